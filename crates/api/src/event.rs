//! What happened.

use serde::{Deserialize, Serialize};
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

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Counts up by one with each event of the array.
    pub number: u64,
    /// When.
    pub at_ms: u64,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about: "volume v1".
    #[schema(example = "volume v1")]
    pub object: String,
    /// What happened.
    #[schema(example = "created, 4.0 GiB")]
    pub text: String,
}
