//! How a unit is set for hosts, as its device keeps it over a restart: saved mode parameters, and a
//! SANITIZE that has not come to its end.

use quoin_scsi::Modes;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// How a SANITIZE that has not come to its end may be left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Completion {
    /// By another restricted SANITIZE only.
    Restricted,
    /// Also by EXIT FAILURE MODE: AUSE was 1.
    Unrestricted,
}

impl Completion {
    /// As AUSE says.
    pub(crate) fn of(unrestricted: bool) -> Self {
        if unrestricted { Self::Unrestricted } else { Self::Restricted }
    }
}

/// What is kept of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Settings {
    /// The mode parameters that a reset and a restart bring back.
    pub(crate) modes: Modes,
    /// The content is being erased, or that failed.
    pub(crate) sanitize: Option<Completion>,
}

/// [`Settings`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptSettings {
    version: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    descriptor_sense: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    write_protect: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sanitize: Option<Completion>,
}

impl Settings {
    /// Returns what is to be kept; `None` if all is as by default.
    pub(crate) fn to_keep(self) -> Option<Vec<u8>> {
        if self == Self::default() {
            return None;
        }
        let Modes { descriptor_sense, write_protect } = self.modes;
        let kept =
            KeptSettings { version: VERSION, descriptor_sense, write_protect, sanitize: self.sanitize };
        Some(serde_json::to_vec(&kept).expect("plain fields are always JSON"))
    }

    /// Reads what was kept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn from_kept(bytes: &[u8]) -> Result<Self, String> {
        let KeptSettings { version, descriptor_sense, write_protect, sanitize } =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version != VERSION {
            return Err(format!("version {version} is not {VERSION}"));
        }
        Ok(Self { modes: Modes { descriptor_sense, write_protect }, sanitize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_default_is_kept() {
        assert_eq!(Settings::default().to_keep(), None);
        let modes = Modes { descriptor_sense: false, write_protect: true };
        let (restricted, unrestricted) = (Some(Completion::Restricted), Some(Completion::Unrestricted));
        for (set, json) in [
            (Settings { modes, sanitize: None }, r#"{"version":1,"write_protect":true}"#),
            (
                Settings { modes, sanitize: restricted },
                r#"{"version":1,"write_protect":true,"sanitize":"restricted"}"#,
            ),
            (
                Settings { sanitize: unrestricted, ..Settings::default() },
                r#"{"version":1,"sanitize":"unrestricted"}"#,
            ),
        ] {
            let bytes = set.to_keep().unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes), json);
            assert_eq!(Settings::from_kept(&bytes), Ok(set));
        }
        for wrong in [
            &br#"{"version":2}"#[..],
            br#"{"version":1,"other":true}"#,
            br#"{"version":1,"sanitize":""}"#,
            b"{}",
            b"",
            b"\xFF",
        ] {
            assert!(Settings::from_kept(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}
