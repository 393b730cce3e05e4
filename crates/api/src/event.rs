//! What happened.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use utoipa::ToSchema;

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A requested action was done.
    Info,
    /// A change worth knowing; no action is needed.
    Notice,
    /// Something needs attention; service continues.
    Warning,
    /// Something failed; service is impaired or at risk.
    Error,
    /// Hosts get errors until an administrator intervenes.
    Critical,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Self; 5] = [Self::Info, Self::Notice, Self::Warning, Self::Error, Self::Critical];
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        })
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Something happened to the array, or the array did something by itself.
    #[default]
    Event,
    /// A client of the management interface changed something.
    Change,
    /// The array refused something: a wrong token, an iSCSI login, an NBD connection, or a change that the array does not make.
    Refusal,
}

impl EventKind {
    /// True if an audit is interested in it.
    pub fn is_audit(self) -> bool {
        self != Self::Event
    }

    /// True for what there is least to say about.
    pub fn is_event(&self) -> bool {
        *self == Self::Event
    }
}

/// Who did something, or tried to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Actor {
    /// The token of the request: `admin` for the one in the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "admin")]
    pub token: Option<String>,
    /// The first 8 hexadecimal digits of the SHA-256 of the token. They identify the token without disclosing it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "9f86d081")]
    pub fingerprint: Option<String>,
    /// The initiator or TLS client, by its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address from which the request came.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "127.0.0.1:51234")]
    pub address: Option<String>,
    /// The request: method and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "PATCH /api/v1/volumes/v1")]
    pub request: Option<String>,
    /// The command line behind the request, as the client states it. The array cannot verify it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "quoin volume grow v1 --size 8G")]
    pub command: Option<String>,
    /// The user and machine behind the request, as the client states them. The array cannot verify them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "ann@db1")]
    pub user: Option<String>,
}

impl fmt::Display for Actor {
    /// `ann@db1 (admin, 127.0.0.1)`: who, by what is known best.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The port says nothing to people.
        let host = self.address.as_deref().map(|address| match address.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => address,
        });
        let known: Vec<_> = [self.token.as_deref(), host].into_iter().flatten().collect();
        match (self.user.as_deref().or(self.name.as_deref()), known.is_empty()) {
            (Some(who), true) => f.write_str(who),
            (Some(who), false) => write!(f, "{who} ({})", known.join(", ")),
            (None, true) => f.write_str("unknown"),
            (None, false) => f.write_str(&known.join(", ")),
        }
    }
}

/// A changed field of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// The name of the field, as in the object's JSON.
    #[schema(example = "size_bytes")]
    pub field: String,
    /// The value before; null for an object that was created.
    pub before: Value,
    /// The value after; null for an object that was deleted.
    pub after: Value,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The number of the event. Numbers grow and are never reused; after a crash some may be skipped.
    pub number: u64,
    /// When.
    pub at_ms: u64,
    /// The severity.
    pub severity: Severity,
    /// The kind.
    pub kind: EventKind,
    /// The object: "volume v1".
    #[schema(example = "volume v1")]
    pub object: String,
    /// What happened.
    #[schema(example = "created, 4.0 GiB")]
    pub text: String,
    /// Who did it; null if the array did it by itself.
    pub actor: Option<Actor>,
    /// The changed fields.
    pub changes: Vec<FieldChange>,
    /// The number of similar events that were not recorded individually because there were too many.
    pub suppressed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_told_by_what_is_known_best() {
        let some = |text: &str| Some(text.to_owned());
        let token = Actor { token: some("admin"), address: some("127.0.0.1:51234"), ..Actor::default() };
        assert_eq!(token.to_string(), "admin, 127.0.0.1");
        assert_eq!(Actor { user: some("ann@db1"), ..token }.to_string(), "ann@db1 (admin, 127.0.0.1)");
        let initiator =
            Actor { name: some("iqn.2026-11.test:h1"), address: some("10.0.0.7"), ..Actor::default() };
        assert_eq!(initiator.to_string(), "iqn.2026-11.test:h1 (10.0.0.7)");
        assert_eq!(Actor::default().to_string(), "unknown");
    }
}
