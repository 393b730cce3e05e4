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
    /// Its volumes, at most 64; each in no other group.
    #[serde(default)]
    #[schema(example = json!(["db1-data", "db1-log"]), max_items = 64)]
    pub volumes: Vec<String>,
}

/// What to change of a consistency group. What is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupChange {
    /// Another name. Its sets of snapshots keep theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "db2", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
}

/// A volume to put into a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupMember {
    /// The volume.
    #[schema(example = "db1-temp")]
    pub volume: String,
}

/// A consistency group: volumes of which snapshots are taken as of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Its name.
    #[schema(example = "db1")]
    pub name: String,
    /// Its identity, the same for life.
    pub id: Uuid,
    /// Its volumes, in the order in which they joined.
    #[schema(example = json!(["db1-data", "db1-log"]))]
    pub volumes: Vec<String>,
    /// Its sets of snapshots, oldest first.
    pub sets: Vec<GroupSet>,
    /// When it was created.
    pub created_ms: u64,
}

/// A set: the snapshots of the volumes of a group, of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSet {
    /// What it is called, also the end of its snapshots' names.
    #[schema(example = "20261120-133801")]
    pub name: String,
    /// The moment of which it is.
    pub taken_ms: u64,
    /// Its snapshots.
    #[schema(example = json!(["db1-data.20261120-133801", "db1-log.20261120-133801"]))]
    pub snapshots: Vec<String>,
    /// Until when all of them are immutable, by the wall clock as it is now and if the array runs until then; null if
    /// one is not.
    pub retain_until_ms: Option<u64>,
    /// When the first of its snapshots was modified after it was taken; null if all hold what was taken.
    pub modified_ms: Option<u64>,
    /// Why it cannot be restored or refreshed as a whole; null if it can.
    pub incomplete: Option<String>,
}

/// A set of snapshots to take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSnapshotCreate {
    /// What it is called; date and time in UTC if it is not given. Each snapshot is called VOLUME.NAME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "before-upgrade",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub name: Option<String>,
    /// Let hosts write to its snapshots; without this they are read-only for them.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
    /// Make its snapshots immutable for so many seconds: until then nobody deletes or changes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 604800u64, minimum = 1, maximum = 3162240000u64)]
    pub retain_s: Option<u64>,
}

/// A group's volumes to become what a set of snapshots is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRestore {
    /// Take a set of snapshots of this name of what the volumes are now. No write comes between it and the restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "before-restore",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub keep: Option<String>,
    /// Do so though hosts that see the volumes are logged in, and though snapshots of the set were modified.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// A set of snapshots to become what the group's volumes are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRefresh {
    /// Do so though hosts that see the snapshots are logged in.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}
