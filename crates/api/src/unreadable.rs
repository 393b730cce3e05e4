//! Ranges of volumes that cannot be read.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use utoipa::{IntoParams, ToSchema};

/// Where to look for ranges that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UnreadableFrom {
    /// The byte of the volume from which on to look: 0, or `next_bytes` of the answer before.
    #[serde(default, deserialize_with = "within_a_volume")]
    #[param(required = false, maximum = 70368744177664u64)]
    pub from_bytes: u64,
}

/// No volume is larger, 64 TiB.
const MOST_BYTES: u64 = 64 << 40;

fn within_a_volume<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        bytes if bytes <= MOST_BYTES => Ok(bytes),
        bytes => {
            Err(D::Error::custom(format!("{bytes} is above {MOST_BYTES}, the end of the largest volume")))
        }
    }
}

/// Why a range cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnreadableCause {
    /// Drives that hold it are away. It can be read again when they are back.
    Away,
    /// It is damaged. It can be read again when it is overwritten or unmapped.
    Damaged,
}

/// A range of a volume that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadableRange {
    /// Its first byte.
    #[schema(example = 1048576)]
    pub offset_bytes: u64,
    /// How many bytes.
    #[schema(example = 65536)]
    pub length_bytes: u64,
    /// Why it cannot be read.
    pub cause: UnreadableCause,
    /// What was found of a damaged range; null for others.
    pub reason: Option<String>,
}

/// What of a part of a volume cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadableRanges {
    /// The volume, snapshot or clone.
    #[schema(example = "v1")]
    pub volume: String,
    /// Its size in bytes.
    #[schema(example = 4294967296u64)]
    pub size_bytes: u64,
    /// The ranges, in order. Each was so at some moment of the look.
    pub ranges: Vec<UnreadableRange>,
    /// Drives that are away and hold something of them.
    #[schema(example = json!(["/dev/sdb", "/dev/sdc"]))]
    pub drives: Vec<String>,
    /// Damaged ranges of all volumes that were found and are not listed, since there are too many.
    pub more_damaged: u64,
    /// Where the look ended: the rest of the volume begins there. Null if there is no rest.
    pub next_bytes: Option<u64>,
}
