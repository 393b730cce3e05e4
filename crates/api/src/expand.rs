//! Drives that become longer while the pool serves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the pool grows with its drives. With neither `percent` nor `bytes` it takes what files and devices have by now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolExpand {
    /// Make each drive longer by so many percent of its size. For drives that are files; not together with `bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub percent: Option<u32>,
    /// Make the drives longer by so many bytes together, each by its share of their size. For drives that are files.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    #[schema(minimum = 1)]
    pub bytes: Option<u64>,
    /// The drives that grow, each by its path or the end of it; empty: all that hold data.
    #[serde(default)]
    #[schema(example = json!(["drive-1"]))]
    pub drives: Vec<String>,
    /// Only tell what it would come to.
    #[serde(default)]
    pub dry_run: bool,
}

/// What the growth of a pool comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolExpansion {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The drives that grow.
    pub drives: Vec<DriveExpansion>,
    /// The layout that new data gets, for which space is reckoned.
    #[schema(example = "mirror")]
    pub layout: String,
    /// Space for host data before.
    pub usable_before_bytes: u64,
    /// Space for host data afterwards; of a dry run an estimate.
    pub usable_after_bytes: u64,
}

/// What the growth of a drive comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveExpansion {
    /// Its path in the configuration.
    pub path: String,
    /// Its number in the pool.
    pub number: u16,
    /// Whether the array makes its file longer. Otherwise its file or device is as long already.
    pub lengthens_file: bool,
    /// Its size before.
    pub size_before_bytes: u64,
    /// Its size afterwards.
    pub size_after_bytes: u64,
    /// The slabs that it had, those of the journal included.
    pub slabs_before: u32,
    /// The slabs that it has then.
    pub slabs_after: u32,
    /// Grant pages in use then, each of which tells of 4032 slabs.
    pub grant_pages: u32,
    /// The most grant pages that there is room for on the drive: what its growth is limited by.
    pub most_grant_pages: u32,
}
