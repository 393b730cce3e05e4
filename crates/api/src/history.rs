//! What the pool's space was used for over time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the pool's space was used at one moment. The figures are those of `PoolSpace`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpaceSample {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The total size of all volumes.
    pub provisioned_bytes: u64,
    /// What hosts wrote and did not unmap, each volume counted by itself.
    pub written_bytes: u64,
    /// The same with each block counted once.
    pub unique_bytes: u64,
    /// What that takes, of blocks as they are stored.
    pub physical_bytes: u64,
    /// Space used by metadata.
    pub metadata_bytes: u64,
    /// Space for host data.
    pub usable_bytes: u64,
    /// Space left for writes to thin volumes.
    pub free_bytes: u64,
    /// Ratio of written to unique, as x in x:1; null while nothing was written.
    pub sharing_ratio: Option<f64>,
    /// Ratio of unique to physical, as x in x:1; null while nothing was written.
    pub compression_ratio: Option<f64>,
    /// Ratio of written to physical, as x in x:1; null while nothing was written.
    pub data_reduction_ratio: Option<f64>,
    /// Ratio of provisioned to physical, as x in x:1; null while nothing was written.
    pub efficiency_ratio: Option<f64>,
}

impl SpaceSample {
    /// Returns how much of the space for host data was used or reserved.
    pub fn used_bytes(&self) -> u64 {
        self.usable_bytes.saturating_sub(self.free_bytes)
    }
}

/// When the pool will be full, if its use goes on to grow as it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpaceForecast {
    /// The time that the forecast is based on, in seconds.
    pub observed_s: u64,
    /// The number of samples that it is based on.
    pub samples: u64,
    /// How fast use grows, in bytes a day; negative if it declines; null while the array has watched for less than a day.
    pub growth_bytes_day: Option<f64>,
    /// The space left for writes to thin volumes.
    pub free_bytes: u64,
    /// How long the free space lasts, in seconds; null if use does not grow, or is not known to.
    pub full_in_s: Option<u64>,
}
