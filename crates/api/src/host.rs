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
    /// The iSCSI names it logs in with, at least one; each belongs to one host only.
    #[schema(example = json!(["iqn.2026-11.test:h1"]), min_items = 1)]
    pub initiators: Vec<String>,
    /// How it logs in; by its name alone if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapSet>,
}

/// What to change of a host. What is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostChange {
    /// Another name. Its sessions go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "h2", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
    /// The iSCSI names it logs in with, at least one, instead of those it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    pub initiators: Option<Vec<String>>,
    /// How it logs in from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapSet>,
    /// It logs in by its name alone from now on.
    #[serde(default)]
    pub remove_chap: bool,
    /// Take initiators away though they are logged in and see volumes.
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
    /// The iSCSI names it logs in with.
    #[schema(example = json!(["iqn.2026-11.test:h1"]))]
    pub initiators: Vec<String>,
    /// How it logs in, without the secrets; null: by its name alone.
    pub chap: Option<Chap>,
    /// When it was created.
    pub created_ms: u64,
    /// Sessions it has now.
    pub sessions: usize,
    /// The volumes it sees, by logical unit number.
    pub mappings: Vec<HostMapping>,
}

/// What a host sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostMapping {
    /// The logical unit number.
    #[schema(example = 1)]
    pub lun: u16,
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
}

/// A volume to show to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MappingCreate {
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// The host.
    #[schema(example = "h1")]
    pub host: String,
    /// The logical unit number; the lowest that is free if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1, maximum = 16383)]
    pub lun: Option<u16>,
    /// The host may read, but not write.
    #[serde(default)]
    #[schema(default = false)]
    pub read_only: bool,
    /// The host may write, also to a snapshot that is read-only for others.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
}

/// What a host or client may do with a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read, and write unless the volume is read-only, as snapshots are.
    #[default]
    Default,
    /// Read and write, also if the volume is read-only for others. Nobody writes to a template or an immutable snapshot.
    ReadWrite,
    /// Read.
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
    /// What may be done from now on. Whoever is logged in stays so, and is told.
    pub access: Access,
    /// Make it read-only though somebody is connected who may write.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// A volume shown to a host.
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
    /// The host may read, but not write, as things are now.
    pub read_only: bool,
    /// What the mapping says that the host may do.
    pub access: Access,
}

/// A session of an initiator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// The initiator's name.
    #[schema(example = "iqn.2026-11.test:h1")]
    pub initiator: String,
    /// The host it belongs to; null for an initiator no host has.
    pub host: Option<String>,
    /// Where its connection comes from.
    #[schema(example = "127.0.0.1:40122")]
    pub peer: String,
    /// When it logged in.
    pub since_ms: u64,
}
