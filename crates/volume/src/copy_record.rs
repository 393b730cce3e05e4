//! Copies as the catalog keeps them.

use crate::{
    VolumeError,
    image::{IMAGE_OBJECT, hidden_images},
    record::key,
};
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Pool};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The kind of catalog object that holds a copy; the key is that of its hidden volume, the value JSON.
pub const COPY_OBJECT: ObjectKind = ObjectKind(9);

pub(crate) const RECORD_VERSION: u32 = 1;

/// A copy as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRecord {
    pub(crate) version: u32,
    /// Its hidden volume, whose id is that of the copy.
    pub id: VolumeId,
    /// The name of the source when the copy began.
    pub source: String,
    /// Its identity.
    pub source_uuid: Uuid,
    /// The name of the target when the copy began.
    pub target: String,
    /// Its identity.
    pub target_uuid: Uuid,
    /// The first byte of the source.
    pub from_bytes: u64,
    /// Where that goes in the target.
    pub to_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_ms: u64,
}

impl CopyRecord {
    fn decode(key: &str, bytes: &[u8]) -> Result<Self, VolumeError> {
        let bad = |why: String| VolumeError::Record { key: key.to_owned(), why };
        let record: Self = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        match record.version {
            RECORD_VERSION => Ok(record),
            other => Err(bad(format!("is of version {other}, not {RECORD_VERSION}"))),
        }
    }
}

/// The copies of a pool that is open, by hidden volume.
pub(crate) type Copies = BTreeMap<VolumeId, CopyRecord>;

pub(crate) fn read_copies(pool: &Pool) -> Result<Copies, VolumeError> {
    let decoded =
        |(key, value): (String, Vec<u8>)| CopyRecord::decode(&key, &value).map(|record| (record.id, record));
    pool.list(COPY_OBJECT).into_iter().map(decoded).collect()
}

/// The objects of a catalog.
type Objects = BTreeMap<(ObjectKind, String), Vec<u8>>;

/// The hidden volumes of the copies and images in a catalog.
pub fn hidden_volumes(objects: &Objects) -> BTreeSet<VolumeId> {
    let keys_of = |wanted| objects.keys().filter(move |(kind, _)| *kind == wanted).map(|(_, key)| key);
    let copies = objects.iter().filter(|((kind, _), _)| *kind == COPY_OBJECT);
    let copies = copies.filter_map(|((_, key), value)| Some(CopyRecord::decode(key, value).ok()?.id));
    copies.chain(hidden_images(keys_of(IMAGE_OBJECT))).collect()
}

/// The problems of the copies in a catalog of a pool with these volumes.
pub(crate) fn copy_problems(objects: &Objects, volumes: &BTreeSet<VolumeId>) -> Vec<(String, String)> {
    let problem = |own_key: &str, value: &[u8]| match CopyRecord::decode(own_key, value) {
        Err(error) => Some(error.to_string()),
        Ok(record) if key(record.id) != own_key => Some(format!("it says volume {}", record.id)),
        Ok(record) if !volumes.contains(&record.id) => {
            Some(format!("the pool has no volume {}, the hidden one of this copy", record.id))
        }
        Ok(_) => None,
    };
    let copies = objects.iter().filter(|((kind, _), _)| *kind == COPY_OBJECT);
    copies
        .filter_map(|((_, key), value)| Some((format!("copy object {key}"), problem(key, value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::encode;

    fn record(id: u32) -> CopyRecord {
        CopyRecord {
            version: RECORD_VERSION,
            id: VolumeId(id),
            source: "v1".into(),
            source_uuid: Uuid::from_u128(1),
            target: "v2".into(),
            target_uuid: Uuid::from_u128(2),
            from_bytes: 0,
            to_bytes: 4096,
            length_bytes: 8192,
            started_ms: 5,
        }
    }

    #[test]
    fn records_keep_their_form_and_each_fault_of_a_catalog_is_named() {
        let text = r#"{"version":1,"id":7,"source":"v1","source_uuid":"00000000-0000-0000-0000-000000000001","target":"v2","target_uuid":"00000000-0000-0000-0000-000000000002","from_bytes":0,"to_bytes":4096,"length_bytes":8192,"started_ms":5}"#;
        assert_eq!(String::from_utf8(encode(&record(7))).unwrap(), text);
        let found = |own_key: &str, value: &[u8]| {
            let objects = Objects::from([((COPY_OBJECT, own_key.to_owned()), value.to_vec())]);
            let problems = copy_problems(&objects, &BTreeSet::from([VolumeId(7)]));
            (problems.into_iter().next().map(|(what, problem)| format!("{what}: {problem}")), objects)
        };
        let (problem, objects) = found("0000000007", text.as_bytes());
        assert_eq!((problem, hidden_volumes(&objects)), (None, BTreeSet::from([VolumeId(7)])));
        let newer = text.replace("\"version\":1", "\"version\":2");
        for (own_key, value, expected) in [
            (
                "0000000007",
                newer.as_bytes(),
                "copy object 0000000007: catalog object 0000000007: is of version 2",
            ),
            ("0000000007", b"{}".as_slice(), "copy object 0000000007: "),
            ("0000000006", text.as_bytes(), "copy object 0000000006: it says volume 7"),
            ("0000000008", &encode(&record(8)), "copy object 0000000008: the pool has no volume 8"),
        ] {
            let problem = found(own_key, value).0.unwrap_or_default();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
