//! What happened.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use utoipa::ToSchema;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something was done, as asked.
    Info,
    /// Something changed by itself that is worth knowing; nothing needs to be done.
    Notice,
    /// Something needs a look; service goes on.
    Warning,
    /// Something failed; service is hurt, or is kept up by what is left.
    Error,
    /// Hosts are refused service until something is done.
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

/// What an event tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Something happened to the array, or the array did something by itself.
    #[default]
    Event,
    /// A client of the management interface changed something.
    Change,
    /// Somebody was refused: a wrong token, a wrong secret, a change that the array does not make.
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
    /// The first 8 hexadecimal digits of the SHA-256 of the token: tells tokens apart without giving them away.
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

/// A field of an object that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// Its name, as in the object's own JSON.
    #[schema(example = "size_bytes")]
    pub field: String,
    /// What it was; null for an object that was created.
    pub before: Value,
    /// What it is now; null for an object that was deleted.
    pub after: Value,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows with each event and is never given to another one. Numbers may be left out after a crash.
    pub number: u64,
    /// When.
    pub at_ms: u64,
    /// How much it matters.
    pub severity: Severity,
    /// What it tells of.
    pub kind: EventKind,
    /// What it is about: "volume v1".
    #[schema(example = "volume v1")]
    pub object: String,
    /// What happened.
    #[schema(example = "created, 4.0 GiB")]
    pub text: String,
    /// Who did it; null when the array did it by itself.
    pub actor: Option<Actor>,
    /// What was changed.
    pub changes: Vec<FieldChange>,
    /// How many like it were not recorded one by one, since there were too many.
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
