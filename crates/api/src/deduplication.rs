//! Whether what is written to volumes is deduplicated.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Whether what is written to a volume is deduplicated: blocks of the same content are stored once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Deduplication {
    /// It is not: each block is stored.
    #[default]
    Off,
    /// It is, with what else was written to volumes of the same slice of the pool that have it on.
    On,
}

impl Deduplication {
    /// Both of them, the one with less work first.
    pub const ALL: [Self; 2] = [Self::Off, Self::On];

    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

impl From<bool> for Deduplication {
    fn from(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

impl fmt::Display for Deduplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
        })
    }
}

/// Whether what is written to the volumes with a policy is deduplicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyDeduplication {
    /// The policy does not say: each volume is as it was made.
    #[default]
    Any,
    /// It is not.
    Off,
    /// Blocks of the same content are stored once.
    On,
}

impl PolicyDeduplication {
    /// All of them: first the one that leaves volumes as they are, then the one with less work.
    pub const ALL: [Self; 3] = [Self::Any, Self::Off, Self::On];

    /// What volumes with the policy are to have; `None`: it does not say.
    pub fn wanted(self) -> Option<Deduplication> {
        match self {
            Self::Any => None,
            Self::Off => Some(Deduplication::Off),
            Self::On => Some(Deduplication::On),
        }
    }
}

impl From<Option<Deduplication>> for PolicyDeduplication {
    fn from(wanted: Option<Deduplication>) -> Self {
        match wanted {
            None => Self::Any,
            Some(Deduplication::Off) => Self::Off,
            Some(Deduplication::On) => Self::On,
        }
    }
}

impl fmt::Display for PolicyDeduplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wanted() {
            None => f.write_str("any"),
            Some(deduplication) => deduplication.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_called_in_json_as_people_call_it() {
        for deduplication in Deduplication::ALL {
            assert_eq!(serde_json::to_value(deduplication).unwrap(), deduplication.to_string());
            assert_eq!(Deduplication::from(deduplication.is_on()), deduplication);
        }
        for deduplication in PolicyDeduplication::ALL {
            assert_eq!(serde_json::to_value(deduplication).unwrap(), deduplication.to_string());
            assert_eq!(PolicyDeduplication::from(deduplication.wanted()), deduplication);
        }
    }
}
