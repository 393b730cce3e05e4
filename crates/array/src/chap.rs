//! The credentials of hosts: checked as they are set, kept in the catalog, given to the target.

use crate::HostError;
use quoin_api as api;
use quoin_target::{Credentials, Login, Secret};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name (CHAP_N).
const USER_BYTES_MAX: usize = 223;

/// A name and its secret, as the catalog keeps them. The debug form hides the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProofRecord {
    pub(crate) user: String,
    pub(crate) secret: String,
}

impl fmt::Debug for ProofRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofRecord").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What a host proves, and what the array proves to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChapRecord {
    pub(crate) host: ProofRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) array: Option<ProofRecord>,
}

impl ChapRecord {
    pub(crate) fn view(&self) -> api::Chap {
        api::Chap {
            host_user: self.host.user.clone(),
            array_user: self.array.as_ref().map(|array| array.user.clone()),
        }
    }

    /// The credentials as the target checks them; `None` if the catalog holds values that the array never accepts.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        let login = |proof: &ProofRecord| {
            Some(Login { user: proof.user.clone(), secret: Secret::new(proof.secret.as_bytes())? })
        };
        let array = match &self.array {
            Some(array) => Some(login(array)?),
            None => None,
        };
        Some(Credentials { host: login(&self.host)?, array })
    }
}

/// The credentials that `host` may have so, or why not (RFC 7143 §9.2.1): secrets of at least 96 bits, none used in
/// both directions, by this host or between hosts.
pub(crate) fn plan<'a>(
    host: &str,
    set: &api::ChapSet,
    mut others: impl Iterator<Item = (&'a str, &'a ChapRecord)>,
) -> Result<ChapRecord, HostError> {
    let chap = ChapRecord {
        host: proof(host, "the host's", &set.host)?,
        array: set.array.as_ref().map(|array| proof(host, "the array's", array)).transpose()?,
    };
    let refuse = |why: String| Err(HostError::Chap { host: host.to_owned(), why });
    let array = chap.array.as_ref().map(|array| &array.secret);
    if array == Some(&chap.host.secret) {
        return refuse("the host and the array have the same secret".to_owned());
    }
    let clash = others.find(|(name, other)| {
        *name != host
            && (array == Some(&other.host.secret)
                || other.array.as_ref().is_some_and(|theirs| theirs.secret == chap.host.secret))
    });
    match clash {
        Some((other, _)) => refuse(format!("host {other} has the same secret for the other direction")),
        None => Ok(chap),
    }
}

fn proof(host: &str, whose: &str, login: &api::ChapLogin) -> Result<ProofRecord, HostError> {
    let refuse = |why: String| Err(HostError::Chap { host: host.to_owned(), why });
    let (user, secret) = (&login.user, login.secret.expose());
    if user.is_empty() || user.len() > USER_BYTES_MAX || !user.bytes().all(|byte| byte.is_ascii_graphic()) {
        return refuse(format!("{whose} CHAP name is not 1 to {USER_BYTES_MAX} visible ASCII characters"));
    }
    if !(Secret::LEAST_BYTES..=Secret::MOST_BYTES).contains(&secret.len()) {
        let (least, most) = (Secret::LEAST_BYTES, Secret::MOST_BYTES);
        return refuse(format!("{whose} secret has {} bytes, not {least} to {most}", secret.len()));
    }
    if secret.chars().any(char::is_control) {
        return refuse(format!("{whose} secret has control characters"));
    }
    Ok(ProofRecord { user: user.clone(), secret: secret.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str, secret: &str) -> api::ChapLogin {
        api::ChapLogin { user: user.into(), secret: api::Secret::new(secret) }
    }

    #[test]
    fn secrets_keep_to_the_rules() {
        let plan_with =
            |host: api::ChapLogin, array: Option<api::ChapLogin>, others: &[(&str, ChapRecord)]| {
                let others = others.iter().map(|(name, chap)| (*name, chap));
                plan("h1", &api::ChapSet { host, array }, others).map_err(|error| error.to_string())
            };
        let good = plan_with(login("h", "twelve bytes"), Some(login("a", "other twelve")), &[]).unwrap();
        assert_eq!(good.view(), api::Chap { host_user: "h".into(), array_user: Some("a".into()) });
        assert!(good.credentials().is_some() && !format!("{good:?}").contains("twelve"));
        for (given, array, said) in [
            (login("h", "eleven byte"), None, "the host's secret has 11 bytes, not 12 to 255"),
            (login("h", &"x".repeat(256)), None, "256 bytes"),
            (login("h", "twelve\nbytes"), None, "control characters"),
            (login("", "twelve bytes"), None, "the host's CHAP name"),
            (login("h i", "twelve bytes"), None, "the host's CHAP name"),
            (login("h", "twelve bytes"), Some(login("a", "short")), "the array's secret has 5 bytes"),
            (login("h", "twelve bytes"), Some(login("a", "twelve bytes")), "the same secret"),
        ] {
            let error = plan_with(given, array, &[]).unwrap_err();
            assert!(error.contains(said) && !error.contains("twelve"), "{error}");
        }
        let others = [("h2", good)];
        let error = plan_with(login("h", "other twelve"), None, &others).unwrap_err();
        assert!(error.contains("host h2 has the same secret for the other direction"), "{error}");
        let error = plan_with(login("h", "a third one is"), Some(login("a", "twelve bytes")), &others);
        assert!(error.unwrap_err().contains("host h2"));
        // The same host may keep a secret; two hosts may have one in the same direction.
        assert!(plan_with(login("h", "twelve bytes"), None, &others).is_ok());
    }
}
