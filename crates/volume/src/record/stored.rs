//! The JSON of a volume's record on the drives: which fields there are, in which order, and which are left out.
//!
//! 1. What this version writes, it reads back as the same record, without the tags, which are an object of their own.
//! 2. A record of another version and one with a field that is not listed here are refused.

use super::{Guards, Labels, RECORD_VERSION, Space, VolumeRecord, encode};
use crate::{Deleted, Folder, Origin, Tags};
use quoin_base::VolumeId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The fields as they are on the drives; [`VolumeRecord`] groups them by meaning.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    version: u32,
    id: VolumeId,
    uuid: Uuid,
    name: String,
    size_bytes: u64,
    block_bytes: u32,
    created_ms: u64,
    thick: bool,
    #[serde(default, skip_serializing_if = "Folder::is_top")]
    folder: Folder,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    template: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    protected: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retain_until_ms: Option<u64>,
    trim_end: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted: Option<Deleted>,
}

impl Stored {
    /// Returns the JSON of a record.
    pub(super) fn write(record: &VolumeRecord) -> Vec<u8> {
        let VolumeRecord { id, uuid, name, created_ms, space, labels, guards, modified_ms, origin, deleted } =
            record.clone();
        let Space { size_bytes, block_bytes, thick, trim_end } = space;
        let Guards { template, protected, retain_until_ms } = guards;
        let Labels { tags: _, folder, policy } = labels;
        let version = RECORD_VERSION;
        encode(&Self {
            version,
            id,
            uuid,
            name,
            size_bytes,
            block_bytes,
            created_ms,
            thick,
            folder,
            policy,
            template,
            protected,
            modified_ms,
            retain_until_ms,
            trim_end,
            origin,
            deleted,
        })
    }

    /// Reads the JSON of a record, which has no tags yet.
    ///
    /// # Errors
    /// What is wrong with it: it is no record, or one of another version.
    pub(super) fn read(bytes: &[u8]) -> Result<VolumeRecord, String> {
        let stored: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if stored.version != RECORD_VERSION {
            return Err(format!("is of version {}, not {RECORD_VERSION}", stored.version));
        }
        let Self { version: _, id, uuid, name, size_bytes, block_bytes, created_ms, thick, folder, .. } =
            stored;
        let Self { policy, template, protected, modified_ms, .. } = stored;
        let Self { retain_until_ms, trim_end, origin, deleted, .. } = stored;
        Ok(VolumeRecord {
            id,
            uuid,
            name,
            created_ms,
            space: Space { size_bytes, block_bytes, thick, trim_end },
            labels: Labels { tags: Tags::new(), folder, policy },
            guards: Guards { template, protected, retain_until_ms },
            modified_ms,
            origin,
            deleted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OriginKind, SetOf};

    /// A record with every field, and its JSON.
    fn full() -> (VolumeRecord, &'static str) {
        let (id, uuid, set) =
            (VolumeId(7), Uuid::from_u128(1), SetOf { group: Uuid::nil(), name: "monday".into() });
        let origin = Origin {
            kind: OriginKind::Snapshot,
            source: VolumeId(3),
            source_name: "v0".into(),
            taken_ms: 4,
            set: Some(set),
        };
        let record = VolumeRecord {
            id,
            uuid,
            name: "v1".into(),
            created_ms: 5,
            space: Space { size_bytes: 4096, block_bytes: 512, thick: true, trim_end: 8192 },
            labels: Labels {
                tags: Tags::new(),
                folder: Folder::parse("prod/sql").unwrap(),
                policy: Some("gold".into()),
            },
            guards: Guards { template: true, protected: true, retain_until_ms: Some(9) },
            modified_ms: Some(8),
            origin: Some(origin),
            deleted: Some(Deleted::new(1, 2, Some("ann"))),
        };
        let text = concat!(
            r#"{"version":3,"id":7,"uuid":"00000000-0000-0000-0000-000000000001","name":"v1","size_bytes":4096,"#,
            r#""block_bytes":512,"created_ms":5,"thick":true,"folder":"prod/sql","policy":"gold","template":true,"protected":true,"#,
            r#""modified_ms":8,"retain_until_ms":9,"trim_end":8192,"origin":{"kind":"snapshot","source":3,"#,
            r#""source_name":"v0","taken_ms":4,"set":{"group":"00000000-0000-0000-0000-000000000000","#,
            r#""name":"monday"}},"deleted":{"at_ms":1,"until_ms":2,"by":"ann"}}"#
        );
        (record, text)
    }

    /// A record of a new volume, and its JSON: what is not set is left out.
    fn new() -> (VolumeRecord, &'static str) {
        let record = VolumeRecord {
            id: VolumeId(0),
            uuid: Uuid::nil(),
            name: "v1".into(),
            created_ms: 5,
            space: Space { size_bytes: 4096, block_bytes: 4096, thick: false, trim_end: 0 },
            labels: Labels::default(),
            guards: Guards::default(),
            modified_ms: None,
            origin: None,
            deleted: None,
        };
        let text = concat!(
            r#"{"version":3,"id":0,"uuid":"00000000-0000-0000-0000-000000000000","name":"v1","size_bytes":4096,"#,
            r#""block_bytes":4096,"created_ms":5,"thick":false,"trim_end":0}"#
        );
        (record, text)
    }

    #[test]
    fn records_keep_their_form() {
        for (record, text) in [full(), new()] {
            assert_eq!(String::from_utf8(Stored::write(&record)).unwrap(), text);
            assert_eq!(Stored::read(text.as_bytes()), Ok(record));
        }
    }

    #[test]
    fn strange_records_are_refused() {
        let (_, text) = new();
        let refused = |text: String| Stored::read(text.as_bytes()).unwrap_err();
        assert_eq!(refused(text.replace("\"version\":3", "\"version\":4")), "is of version 4, not 3");
        assert!(refused(text.replace("trim_end", "trim_to")).contains("trim_to"));
    }
}
