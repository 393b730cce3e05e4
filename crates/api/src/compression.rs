//! How what is written to volumes is compressed.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// How what is written to a volume is compressed. What does not get shorter is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    Off,
    /// By LZ4: the least work, when written and when read.
    Lz4,
    /// By LZ4 when it is written, and by Zstandard when it is written again in the background: the least space.
    Zstd,
}

impl Compression {
    /// All of them, the least work first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Lz4, Self::Zstd];
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

/// How what is written to the volumes with a policy is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyCompression {
    /// The policy does not say: each volume is as it was made.
    #[default]
    Any,
    /// Not at all.
    Off,
    /// By LZ4.
    Lz4,
    /// By LZ4 when it is written, and by Zstandard when it is written again in the background.
    Zstd,
}

impl PolicyCompression {
    /// All of them: first the one that leaves volumes as they are, then the least work.
    pub const ALL: [Self; 4] = [Self::Any, Self::Off, Self::Lz4, Self::Zstd];

    /// What volumes with the policy are to have; `None`: it does not say.
    pub fn wanted(self) -> Option<Compression> {
        match self {
            Self::Any => None,
            Self::Off => Some(Compression::Off),
            Self::Lz4 => Some(Compression::Lz4),
            Self::Zstd => Some(Compression::Zstd),
        }
    }
}

impl From<Option<Compression>> for PolicyCompression {
    fn from(wanted: Option<Compression>) -> Self {
        match wanted {
            None => Self::Any,
            Some(Compression::Off) => Self::Off,
            Some(Compression::Lz4) => Self::Lz4,
            Some(Compression::Zstd) => Self::Zstd,
        }
    }
}

impl fmt::Display for PolicyCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wanted() {
            None => f.write_str("any"),
            Some(compression) => compression.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_called_in_json_as_people_call_it() {
        for compression in Compression::ALL {
            assert_eq!(serde_json::to_value(compression).unwrap(), compression.to_string());
        }
        for compression in PolicyCompression::ALL {
            assert_eq!(serde_json::to_value(compression).unwrap(), compression.to_string());
            assert_eq!(PolicyCompression::from(compression.wanted()), compression);
        }
    }
}
