//! What volumes are, and the folders they are kept in.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What sort of volume it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeKind {
    /// One that stands for itself.
    #[default]
    Volume,
    /// What another held at a moment.
    Snapshot,
    /// A volume of its own that began as what another held.
    Clone,
    /// One that is there to be cloned, and that nobody writes to.
    Template,
}

impl VolumeKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Volume, Self::Snapshot, Self::Clone, Self::Template];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Clone => "clone",
            Self::Template => "template",
        }
    }
}

impl fmt::Display for VolumeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A folder. It is there as long as a volume is in it or below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Folder {
    /// The names of its path, joined by '/'; "/" for the top.
    #[schema(example = "prod/sql")]
    pub path: String,
    /// Volumes in it.
    pub volumes: u64,
    /// Volumes in it and below it.
    pub volumes_below: u64,
    /// The sizes of those in it and below it, in bytes.
    pub size_bytes: u64,
    /// The bytes that those in it and below it have mapped; null while the pool is offline.
    pub mapped_bytes: Option<u64>,
}
