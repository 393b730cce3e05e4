//! Policies: what the array does for the volumes that have one.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The name of the policy that volumes have unless they are given another: it has the layout of the pool.
pub const DEFAULT_POLICY: &str = "default";

/// A policy to create. Give either a layout or the failures to tolerate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyCreate {
    /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "gold", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// How data is laid out over fault domains: mirror, mirror-3, mirror-4, raid5, raid6 or data+parity such as 8+2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "raid6")]
    pub layout: Option<String>,
    /// Failures of fault domains to tolerate: the array chooses the layout of the pool if it tolerates as many, or else copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 2, minimum = 0, maximum = 3)]
    pub failures_to_tolerate: Option<u8>,
    /// Place what can be placed if there are too few fault domains: with fewer columns, or tolerating fewer failures. It is
    /// made good when drives are added.
    #[serde(default)]
    #[schema(default = false)]
    pub force_provisioning: bool,
}

/// What to change about a policy. Fields that are not given stay as they are. Its volumes are converted in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyUpdate {
    /// The new layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "mirror")]
    pub layout: Option<String>,
    /// Failures of fault domains to tolerate, instead of a layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1, minimum = 0, maximum = 3)]
    pub failures_to_tolerate: Option<u8>,
    /// Place what can be placed if there are too few fault domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_provisioning: Option<bool>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Its name.
    #[schema(example = "gold")]
    pub name: String,
    /// How data of its volumes is laid out.
    #[schema(example = "raid6")]
    pub layout: String,
    /// Failures of fault domains that the layout tolerates.
    #[schema(example = 2)]
    pub failures_to_tolerate: u8,
    /// What can be placed is placed if there are too few fault domains.
    pub force_provisioning: bool,
    /// What new data is laid out as, with the fault domains that there are; null while the pool is offline.
    #[schema(example = "raid6")]
    pub layout_now: Option<String>,
    /// The number of volumes with this policy, snapshots and clones included.
    pub volumes: u64,
    /// Of them, those that are being converted.
    pub converting: u64,
    /// Of them, those that have fewer columns or tolerate fewer failures than the layout, for want of fault domains.
    pub reduced: u64,
    /// When it was created; null for the default policy.
    pub created_ms: Option<u64>,
}

/// Whether a volume is as its policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ComplianceState {
    /// It is.
    Compliant,
    /// Some of its data is being moved.
    Converting,
    /// Its data has fewer columns, or tolerates fewer failures, than the layout, for want of fault domains.
    Reduced,
}

impl fmt::Display for ComplianceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compliant => "compliant",
            Self::Converting => "converting",
            Self::Reduced => "reduced",
        })
    }
}

/// How far a volume is as its policy says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Compliance {
    /// The state.
    pub state: ComplianceState,
    /// How its data is to be laid out.
    #[schema(example = "raid5")]
    pub layout: String,
    /// What new data is laid out as, with the fault domains that there are.
    #[schema(example = "raid5")]
    pub layout_now: String,
    /// Failures of fault domains that this tolerates.
    pub tolerates: u8,
    /// How much of what it has, shared with others or not, is laid out so, in percent.
    pub percent: f64,
    /// Bytes that may still be laid out otherwise.
    pub left_bytes: u64,
    /// Speed of the conversion in bytes per second; null if not known.
    pub bytes_per_s: Option<u64>,
    /// Estimated remaining time; null if unknown.
    pub remaining_s: Option<u64>,
    /// The conversion waits until the pool has more free space.
    pub waits_for_space: bool,
}
