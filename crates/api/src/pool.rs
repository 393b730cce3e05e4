//! Settings of the pool that are changed while it serves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The settings of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolSettings {
    /// The share of the space for host data, in percent, from which on a notice is in order; 0: off.
    pub notice_percent: u8,
    /// That from which on a warning is in order; 0: off.
    pub warning_percent: u8,
    /// That from which on it is critical; 0: off, and nothing tells of a full pool before a write is refused.
    pub critical_percent: u8,
    /// The errors and repairs of a drive within an hour from which on it is evacuated, of a minute at most four; 0: it is not.
    pub evict_errors: u32,
    /// What is kept free for the loss of drives.
    #[serde(default)]
    pub spare: Spare,
}

/// Space that hosts leave free, so that what lost drives held can be made again on the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spare {
    /// Fault domains that are to be kept spare; 0: off.
    pub domains: u8,
    /// Those of them that are. Fewer, while there are too few fault domains or too little space is free.
    pub kept_domains: u8,
    /// Those of these that are in use: drives in them failed, are absent or leave.
    pub used_domains: u8,
    /// The space for host data that is kept free for the others.
    pub bytes: u64,
}

/// A change of these settings. What is left out stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolUpdate {
    /// The share of the space for host data, in percent, from which on a notice is in order; 0: off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub notice_percent: Option<u8>,
    /// That from which on a warning is in order; 0: off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub warning_percent: Option<u8>,
    /// That from which on it is critical; 0: off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub critical_percent: Option<u8>,
    /// The errors and repairs of a drive within an hour from which on it is evacuated, of a minute at most four; 0: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 240)]
    pub evict_errors: Option<u32>,
    /// Fault domains for whose loss space is kept free, the largest ones; 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 8)]
    pub spare_domains: Option<u8>,
}
