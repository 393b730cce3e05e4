//! A volume as the pool's catalog keeps it.

use crate::{Tags, VolumeError, VolumeSpec};
use quoin_base::VolumeId;
use quoin_pool::ObjectKind;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The kind of catalog object that holds a volume; the key is its id as ten digits, the value JSON.
pub const VOLUME_OBJECT: ObjectKind = ObjectKind(1);

const RECORD_VERSION: u32 = 2;

/// The JSON of one volume. Keyed by id, so that a volume can be renamed by changing its record alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeRecord {
    version: u32,
    pub(crate) id: VolumeId,
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    /// Milliseconds since the Unix epoch.
    pub(crate) created_ms: u64,
    /// The pool keeps space for all of it.
    pub(crate) thick: bool,
    pub(crate) tags: Tags,
    /// Where it ended before it was shrunk, while what lies between is not emptied yet; else 0.
    pub(crate) trim_end: u64,
}

impl VolumeRecord {
    pub(crate) fn new(id: VolumeId, uuid: Uuid, created_ms: u64, spec: VolumeSpec) -> Self {
        let VolumeSpec { name, size_bytes, block_bytes, thick, tags } = spec;
        let version = RECORD_VERSION;
        Self { version, id, uuid, name, size_bytes, block_bytes, created_ms, thick, tags, trim_end: 0 }
    }

    /// What the pool is to reserve for it. While its tail is not emptied, that counts too, since it is mapped.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        if self.thick { self.size_bytes.max(self.trim_end) } else { 0 }
    }

    /// Whether a tail waits to be emptied.
    pub(crate) fn is_trimming(&self) -> bool {
        self.trim_end > self.size_bytes
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a struct of plain fields is always JSON")
    }

    pub(crate) fn decode(key: &str, bytes: &[u8]) -> Result<Self, VolumeError> {
        let bad = |why: String| VolumeError::Record { key: key.to_owned(), why };
        let record: Self = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        if record.version != RECORD_VERSION {
            return Err(bad(format!("is of version {}, not {RECORD_VERSION}", record.version)));
        }
        Ok(record)
    }
}

/// The catalog key of a volume: its id, so padded that keys sort as ids do.
pub(crate) fn key(id: VolumeId) -> String {
    format!("{:010}", id.0)
}
