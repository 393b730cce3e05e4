//! Hosts, what they see, and their sessions.

use crate::{Chap, ChapSet};
use serde::{Deserialize, Serialize};
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
    pub read_only: bool,
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
    /// The host may read, but not write.
    pub read_only: bool,
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
