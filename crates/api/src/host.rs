//! Hosts, what they see, and their sessions.

use crate::{Chap, ChapSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A host to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostCreate {
    /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "h1", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// The iSCSI names of its initiators, at least one. Each belongs to one host only.
    #[schema(example = json!(["iqn.2026-11.test:h1"]), min_items = 1)]
    pub initiators: Vec<String>,
    /// How it logs in; without authentication if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapSet>,
}

/// What to change about a host. Fields that are not given stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostChange {
    /// The new name. Its sessions continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "h2", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
    /// The iSCSI names of its initiators, at least one. They replace the current ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    pub initiators: Option<Vec<String>>,
    /// The new CHAP settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapSet>,
    /// Remove CHAP: the host logs in without authentication.
    #[serde(default)]
    pub remove_chap: bool,
    /// Remove initiators although they are logged in and see volumes.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// A host: a set of initiators that see the same volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Its name.
    #[schema(example = "h1")]
    pub name: String,
    /// The iSCSI names of its initiators.
    #[schema(example = json!(["iqn.2026-11.test:h1"]))]
    pub initiators: Vec<String>,
    /// Its CHAP settings, without secrets; null if it logs in without authentication.
    pub chap: Option<Chap>,
    /// When it was created.
    pub created_ms: u64,
    /// The number of its sessions.
    pub sessions: usize,
    /// The volumes mapped to it, by logical unit number.
    pub mappings: Vec<HostMapping>,
}

/// A volume mapped to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostMapping {
    /// The logical unit number.
    #[schema(example = 1)]
    pub lun: u16,
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
}

/// A volume to map to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MappingCreate {
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// The host.
    #[schema(example = "h1")]
    pub host: String,
    /// The logical unit number; the lowest free one if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1, maximum = 16383)]
    pub lun: Option<u16>,
    /// The host may only read.
    #[serde(default)]
    #[schema(default = false)]
    pub read_only: bool,
    /// The host may write, even to a snapshot that is read-only by default.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
}

/// What a host or client may do with a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read; write unless the volume is read-only, as snapshots are by default.
    #[default]
    Default,
    /// Read and write, even if the volume is read-only by default. Templates and immutable snapshots still reject
    /// writes.
    ReadWrite,
    /// Read only.
    ReadOnly,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
        })
    }
}

/// What to change of a mapping or an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessUpdate {
    /// The new access. Sessions stay logged in and learn of the change.
    pub access: Access,
    /// Make it read-only although a connected client may write.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// A mapping of a volume to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mapping {
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// The host.
    #[schema(example = "h1")]
    pub host: String,
    /// The logical unit number.
    #[schema(example = 1)]
    pub lun: u16,
    /// Whether the host may currently only read.
    pub read_only: bool,
    /// The access that the mapping sets.
    pub access: Access,
}

/// An iSCSI session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// The initiator's name.
    #[schema(example = "iqn.2026-11.test:h1")]
    pub initiator: String,
    /// The host that the initiator belongs to; null if it belongs to none.
    pub host: Option<String>,
    /// The address that its connection comes from.
    #[schema(example = "127.0.0.1:40122")]
    pub peer: String,
    /// The target portal group of the portal that it came through.
    #[schema(example = 1)]
    pub portal_group: u16,
    /// When it logged in.
    pub since_ms: u64,
}
