//! What volumes are, and the folders they are kept in.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The kind of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeKind {
    /// An ordinary volume.
    #[default]
    Volume,
    /// The content of another volume at one moment.
    Snapshot,
    /// An independent volume that began as a copy of another.
    Clone,
    /// A write-protected volume to make clones of.
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

/// A folder. It exists while a volume is in it or below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Folder {
    /// The path: names joined by '/'; "/" for the top.
    #[schema(example = "prod/sql")]
    pub path: String,
    /// The number of volumes in the folder.
    pub volumes: u64,
    /// The number of volumes in the folder and below it.
    pub volumes_below: u64,
    /// The total size of the volumes in the folder and below it, in bytes.
    pub size_bytes: u64,
    /// The bytes allocated to these volumes; null while the pool is offline.
    pub mapped_bytes: Option<u64>,
}
