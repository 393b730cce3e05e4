//! Hosts, mappings and events as the pool's catalog keeps them: JSON, each with the version of its form.
//!
//! Hosts and exports are keyed by name, mappings by host name and LUN, events by number.

use crate::{ArrayError, chap::ChapRecord};
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Transaction};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The kind of catalog object that holds a host.
pub const HOST_OBJECT: ObjectKind = ObjectKind(2);
/// The kind of catalog object that holds a mapping.
pub const MAPPING_OBJECT: ObjectKind = ObjectKind(3);
/// The kind of catalog object that holds an event.
pub const EVENT_OBJECT: ObjectKind = ObjectKind(5);
/// The kind of catalog object that holds how far the numbers of events are.
pub const EVENT_LOG_OBJECT: ObjectKind = ObjectKind(30);

/// The kind of catalog object that holds an export.
pub const EXPORT_OBJECT: ObjectKind = ObjectKind(6);

/// The kind of catalog object that holds a schedule.
pub const SCHEDULE_OBJECT: ObjectKind = ObjectKind(11);

/// The kind of catalog object that holds the snapshot reserve of the pool.
pub const RESERVE_OBJECT: ObjectKind = ObjectKind(12);

/// The kind of catalog object that holds how long deleted volumes are kept.
pub const RECYCLE_BIN_OBJECT: ObjectKind = ObjectKind(13);
/// The kind of catalog object that holds the snapshot reserve of a volume or group.
pub const OWN_RESERVE_OBJECT: ObjectKind = ObjectKind(32);

/// The kind of catalog object that holds how scrubs are set and what they found.
pub const SCRUB_OBJECT: ObjectKind = ObjectKind(20);

/// The kind of catalog object that holds what is to become of a drive that leaves.
pub const LEAVING_OBJECT: ObjectKind = ObjectKind(21);

/// The kind of catalog object that holds how fast data is rebuilt and moved.
pub const REBUILD_OBJECT: ObjectKind = ObjectKind(22);

/// The kind of catalog object that holds a policy.
pub const POLICY_OBJECT: ObjectKind = ObjectKind(23);

/// The kind of catalog object that holds settings of the pool.
pub const POOL_OBJECT: ObjectKind = ObjectKind(24);

/// The kind of catalog object that holds how the pool's space was used in some hour.
pub const HISTORY_OBJECT: ObjectKind = ObjectKind(25);

/// The kind of catalog object that holds limits of IOPS and bandwidth.
pub const QOS_OBJECT: ObjectKind = ObjectKind(26);

/// The kind of catalog object that holds an iSCSI portal.
pub(crate) const PORTAL_OBJECT: ObjectKind = ObjectKind(27);

/// The kind of catalog object that notes a request that was carried out.
pub const REQUEST_OBJECT: ObjectKind = ObjectKind(50);

const VERSION: u32 = 1;

/// A record around its version.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    record: T,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostRecord {
    pub(crate) name: String,
    pub(crate) initiators: Vec<String>,
    pub(crate) created_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chap: Option<ChapRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MappingRecord {
    pub(crate) host: String,
    pub(crate) lun: u16,
    pub(crate) volume: VolumeId,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) read_only: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) writable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExportRecord {
    pub(crate) name: String,
    pub(crate) volume: VolumeId,
    pub(crate) read_only: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) writable: bool,
    pub(crate) networks: Vec<String>,
    pub(crate) tls_clients: Vec<String>,
    pub(crate) created_ms: u64,
}

/// The transaction that removes these mappings.
pub(crate) fn without_mappings(mappings: &[MappingRecord]) -> Transaction {
    mappings.iter().fold(Transaction::new(), |tx, mapping| {
        tx.delete(MAPPING_OBJECT, &mapping_key(&mapping.host, mapping.lun))
    })
}

/// `tx`, removing these exports too.
pub(crate) fn without_exports(tx: Transaction, names: &[String]) -> Transaction {
    names.iter().fold(tx, |tx, name| tx.delete(EXPORT_OBJECT, name))
}

pub(crate) fn mapping_key(host: &str, lun: u16) -> String {
    format!("{host}/{lun:05}")
}

pub(crate) fn event_key(number: u64) -> String {
    format!("{number:020}")
}

pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(&Versioned { version: VERSION, record })
        .expect("a struct of plain fields is always JSON")
}

pub(crate) fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, ArrayError> {
    let bad = |why: String| ArrayError::Record { key: key.to_owned(), why };
    let Versioned { version, record } = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
    if version != VERSION {
        return Err(bad(format!("is of version {version}, not {VERSION}")));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_their_form() {
        let mapping = MappingRecord {
            host: "h1".into(),
            lun: 7,
            volume: VolumeId(3),
            read_only: false,
            writable: false,
        };
        let bytes = encode(&mapping);
        assert_eq!(String::from_utf8_lossy(&bytes), r#"{"version":1,"host":"h1","lun":7,"volume":3}"#);
        assert_eq!(decode::<MappingRecord>("k", &bytes).unwrap(), mapping);
        let mapping = MappingRecord { read_only: true, ..mapping };
        let bytes = encode(&mapping);
        assert!(String::from_utf8_lossy(&bytes).ends_with(r#","volume":3,"read_only":true}"#));
        assert_eq!(decode::<MappingRecord>("k", &bytes).unwrap(), mapping);
        let writable = encode(&MappingRecord { read_only: false, writable: true, ..mapping });
        assert!(String::from_utf8_lossy(&writable).ends_with(r#","volume":3,"writable":true}"#));
        let newer = r#"{"version":2,"host":"h1","lun":7,"volume":3}"#;
        let error = decode::<MappingRecord>("h1/00007", newer.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("h1/00007") && error.contains("version 2"), "{error}");
        assert_eq!(mapping_key("h1", 7), "h1/00007");
    }
}
