//! A volume as the pool's catalog keeps it.

use crate::VolumeError;
use quoin_base::VolumeId;
use quoin_pool::ObjectKind;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The kind of catalog object that holds a volume; the key is its id as ten digits, the value JSON.
pub const VOLUME_OBJECT: ObjectKind = ObjectKind(1);

const RECORD_VERSION: u32 = 1;

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
}

impl VolumeRecord {
    pub(crate) fn new(
        id: VolumeId,
        uuid: Uuid,
        name: &str,
        size_bytes: u64,
        block_bytes: u32,
        created_ms: u64,
    ) -> Self {
        Self { version: RECORD_VERSION, id, uuid, name: name.to_owned(), size_bytes, block_bytes, created_ms }
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
