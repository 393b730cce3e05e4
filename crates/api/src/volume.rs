//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A volume to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "v1", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// Its size in bytes: a multiple of the block, at most 64 TiB.
    #[schema(example = 4294967296u64, minimum = 512, maximum = 70368744177664u64, multiple_of = 512)]
    pub size_bytes: u64,
    /// Its logical block in bytes: 512 or 4096.
    #[serde(default = "default_block_bytes")]
    #[schema(example = 512, default = 512, minimum = 512, maximum = 4096)]
    pub block_bytes: u32,
}

fn default_block_bytes() -> u32 {
    512
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its name.
    #[schema(example = "v1")]
    pub name: String,
    /// Its identity, the same for life; hosts see it in VPD page 83h.
    pub uuid: Uuid,
    /// Its size in bytes.
    #[schema(example = 4294967296u64)]
    pub size_bytes: u64,
    /// Its logical block in bytes.
    #[schema(example = 512)]
    pub block_bytes: u32,
    /// Bytes that take space in the pool; null while the pool is offline.
    pub mapped_bytes: Option<u64>,
    /// When it was created.
    pub created_ms: u64,
    /// The hosts that see it.
    pub mappings: Vec<VolumeMapping>,
}

/// Where a volume is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMapping {
    /// The host.
    #[schema(example = "h1")]
    pub host: String,
    /// The logical unit number there.
    #[schema(example = 1)]
    pub lun: u16,
}
