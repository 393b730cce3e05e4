//! Quality of service: limits of IOPS and bandwidth.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// How long what a limit did not let through may be saved up, unless something else is asked for.
pub const DEFAULT_BURST_MS: u64 = 100;

/// What limits apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QosScope {
    /// One volume.
    Volume,
    /// The volumes of a consistency group, together.
    Group,
    /// Each volume that has a policy, on its own.
    Policy,
}

impl fmt::Display for QosScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volume => "volume",
            Self::Group => "group",
            Self::Policy => "policy",
        })
    }
}

/// Limits to set, in place of those there were. Give at least one of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QosSet {
    /// The most requests a second, of whatever size.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    #[schema(example = 5000, minimum = 10, maximum = 100000000)]
    pub iops: Option<u64>,
    /// The most bytes a second, reads and writes together.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    #[schema(example = 209715200, minimum = 4194304, maximum = 1099511627776u64)]
    pub bytes_per_s: Option<u64>,
    /// For how long what is not used is saved up, to be used at once later: 0 for a limit that holds at each moment.
    #[serde(default = "default_burst_ms")]
    #[schema(default = 100, example = 10000, minimum = 0, maximum = 3600000)]
    pub burst_ms: u64,
}

fn default_burst_ms() -> u64 {
    DEFAULT_BURST_MS
}

/// The limits of a volume, a consistency group or a policy. All that concern a volume apply to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Qos {
    /// What they apply to.
    pub scope: QosScope,
    /// The volume, group or policy.
    #[schema(example = "v1")]
    pub name: String,
    /// The most requests a second; null for any number.
    pub iops: Option<u64>,
    /// The most bytes a second; null for any number.
    pub bytes_per_s: Option<u64>,
    /// For how long what is not used is saved up; null if there is no limit.
    pub burst_ms: Option<u64>,
    /// For a volume: the limits of its group and policy that apply to it too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["policy gold"]))]
    pub others: Vec<String>,
    /// Requests of its volumes that wait for limits now.
    pub waiting: u64,
    /// Requests of its volumes that waited since the array started.
    pub delayed: u64,
    /// How long these waited on average, in microseconds; null if none did.
    pub delay_us: Option<u64>,
}
