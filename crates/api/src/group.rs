//! Consistency groups.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A consistency group to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupCreate {
    /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "db1", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// Its volumes, at most 64. None of them may be in another group.
    #[serde(default)]
    #[schema(example = json!(["db1-data", "db1-log"]), max_items = 64)]
    pub volumes: Vec<String>,
}

/// What to change about a consistency group. Fields that are not given stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupChange {
    /// The new name. Its sets of snapshots keep their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "db2", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
}

/// A volume to add to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupMember {
    /// The volume.
    #[schema(example = "db1-temp")]
    pub volume: String,
}

/// A consistency group: volumes whose snapshots are taken together, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Its name.
    #[schema(example = "db1")]
    pub name: String,
    /// Its identity, which never changes.
    pub id: Uuid,
    /// Its volumes, in the order in which they were added.
    #[schema(example = json!(["db1-data", "db1-log"]))]
    pub volumes: Vec<String>,
    /// Its sets of snapshots, oldest first.
    pub sets: Vec<GroupSet>,
    /// When it was created.
    pub created_ms: u64,
}

/// A set: snapshots of all volumes of a group, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSet {
    /// Its name, which is also the end of the names of its snapshots.
    #[schema(example = "20261120-133801")]
    pub name: String,
    /// The moment at which it was taken.
    pub taken_ms: u64,
    /// Its snapshots.
    #[schema(example = json!(["db1-data.20261120-133801", "db1-log.20261120-133801"]))]
    pub snapshots: Vec<String>,
    /// Until when all its snapshots are immutable, by the current wall clock and if the array runs until then; null
    /// if one of them is not immutable.
    pub retain_until_ms: Option<u64>,
    /// When the first of its snapshots was modified after it was taken; null if none was.
    pub modified_ms: Option<u64>,
    /// Why the set cannot be restored or refreshed as a whole; null if it can.
    pub incomplete: Option<String>,
}

/// A set of snapshots to take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSnapshotCreate {
    /// The name of the set; date and time in UTC if not given. Each snapshot is named VOLUME.NAME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "before-upgrade",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub name: Option<String>,
    /// Let hosts write to the snapshots. Otherwise hosts may only read them.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
    /// Make the snapshots immutable for this many seconds: until then nobody can delete or change them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 604800u64, minimum = 1, maximum = 3162240000u64)]
    pub retain_s: Option<u64>,
}

/// A restore of a group's volumes from a set of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRestore {
    /// First take a set of snapshots with this name of the volumes' current content. No write comes between it and
    /// the restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "before-restore",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub keep: Option<String>,
    /// Restore although hosts that see the volumes are logged in, or snapshots of the set were modified.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// A refresh of a set of snapshots from the group's volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRefresh {
    /// Refresh although hosts that see the snapshots are logged in.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}
