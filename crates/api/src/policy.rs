//! Policies: what the array does for the volumes that have one.

use crate::{PolicyCompression, PolicyDeduplication};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The name of the policy that volumes have unless they are given another: it has the layout of the pool.
pub const DEFAULT_POLICY: &str = "default";

/// Whether the pool keeps space for all of a volume with a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reservation {
    /// The policy does not say: each volume is as it was made.
    #[default]
    Any,
    /// Its volumes take space as they are written to.
    Thin,
    /// Space is kept for all of its volumes, so that their writes never fail because others took it.
    Thick,
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Thin => "thin",
            Self::Thick => "thick",
        })
    }
}

/// A policy to create. Give either a layout or the failures to tolerate; with a reservation, compression or deduplication
/// alone it has the layout of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyCreate {
    /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "gold", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// How data is laid out over fault domains: mirror, mirror-3, mirror-4, raid5, raid6 or data+parity such as 8+2. The number
    /// of columns is the stripe width. With wide, the array chooses it for two columns of parity.
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
    /// Whether space is kept for all of its volumes.
    #[serde(default)]
    #[schema(default = "any")]
    pub reservation: Reservation,
    /// How what is written to its volumes is compressed.
    #[serde(default)]
    #[schema(default = "any", example = "lz4")]
    pub compression: PolicyCompression,
    /// Whether what is written to its volumes is deduplicated.
    #[serde(default)]
    #[schema(default = "any", example = "on")]
    pub deduplication: PolicyDeduplication,
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
    /// Whether space is kept for all of its volumes: they become thick or thin at once, or the change is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "thick")]
    pub reservation: Option<Reservation>,
    /// How what is written to its volumes from now on is compressed. What they have stays as it is until it is
    /// reduced on request, or the array moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "zstd")]
    pub compression: Option<PolicyCompression>,
    /// Whether what is written to its volumes from now on is deduplicated. What they have stays as it is, unless it is
    /// reduced on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "on")]
    pub deduplication: Option<PolicyDeduplication>,
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
    /// Whether space is kept for all of its volumes.
    #[serde(default)]
    pub reservation: Reservation,
    /// How what is written to its volumes is compressed.
    #[serde(default)]
    pub compression: PolicyCompression,
    /// Whether what is written to its volumes is deduplicated.
    #[serde(default)]
    pub deduplication: PolicyDeduplication,
    /// What new data is laid out as, with the fault domains that there are; null while the pool is offline.
    #[schema(example = "raid6")]
    pub layout_now: Option<String>,
    /// The number of volumes with this policy, snapshots and clones included.
    pub volumes: u64,
    /// Of them, those that are being converted.
    pub converting: u64,
    /// Of them, those that have fewer columns or tolerate fewer failures than the layout, for want of fault domains.
    pub reduced: u64,
    /// Of them, those that are thick, thin, compressed or deduplicated otherwise than the policy says, because they were
    /// made so by themselves.
    #[serde(default)]
    pub differing: u64,
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
    /// It is thick, thin, compressed or deduplicated otherwise than its policy says.
    Differs,
}

impl fmt::Display for ComplianceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compliant => "compliant",
            Self::Converting => "converting",
            Self::Reduced => "reduced",
            Self::Differs => "differs",
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
    /// What its policy says of a reservation. Snapshots have none.
    #[serde(default)]
    pub reservation: Reservation,
    /// What its policy says of compression. To snapshots it does not apply.
    #[serde(default)]
    pub compression: PolicyCompression,
    /// What its policy says of deduplication. To snapshots it does not apply.
    #[serde(default)]
    pub deduplication: PolicyDeduplication,
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
