//! How hosts and the array prove to each other who they are (CHAP).

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny},
};
use std::fmt;
use utoipa::ToSchema;

/// A secret, on its way to the array. No answer contains one, and its debug form hides it.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(value_type = String, format = Password, min_length = 12, max_length = 255)]
pub struct Secret(String);

impl Secret {
    /// A secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    /// Takes text; what is refused is not told, as other types would.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Text(String),
            Other(IgnoredAny),
        }
        match Given::deserialize(deserializer) {
            Ok(Given::Text(secret)) => Ok(Self(secret)),
            Ok(Given::Other(_)) | Err(_) => Err(D::Error::custom("a secret is text")),
        }
    }
}

/// A name and its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapLogin {
    /// The name.
    #[schema(example = "h1", min_length = 1, max_length = 223)]
    pub user: String,
    /// The secret: 12 to 255 characters. Some initiators accept at most 16.
    pub secret: Secret,
}

/// How a host logs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapSet {
    /// The name and secret that the host must prove to know.
    pub host: ChapLogin,
    /// The name and secret that the array proves to know if the host asks for it. The secret must be another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ChapLogin>,
}

/// How a host logs in, without the secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Chap {
    /// The name under which the host authenticates.
    #[schema(example = "h1")]
    pub host_user: String,
    /// The name under which the array authenticates to the host; null if it does not.
    pub array_user: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_and_not_shown() {
        let set: ChapSet = serde_json::from_str(r#"{"host":{"user":"h","secret":"123456789012"}}"#).unwrap();
        assert_eq!(set.host.secret.expose(), "123456789012");
        assert!(!format!("{set:?}").contains("123456789012"));
        for bad in [r#"{"user":"h","secret":123456789012}"#, r#"{"user":"h","secret":["123456789012"]}"#] {
            let error = serde_json::from_str::<ChapLogin>(bad).unwrap_err().to_string();
            assert!(error.contains("a secret is text") && !error.contains("123456789012"), "{error}");
        }
    }
}
