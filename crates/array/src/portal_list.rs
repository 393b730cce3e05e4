//! The keeper of iSCSI portals: as the catalog has them, and at which of them the process cannot listen.
//!
//! Invariants:
//! 1. No two portals have the same target portal group: registrations of hosts name it.
//! 2. A portal keeps its group for as long as it is configured or was not deleted, in whatever order portals are configured.
//! 3. A portal that neither a client created nor the configuration names is gone, and its group free.

use crate::{
    ArrayError, Portal, PortalError,
    record::{PORTAL_OBJECT, decode, encode},
};
use quoin_pool::{Pool, Transaction};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// How many there may be. Discovery tells an initiator of all of them in one answer.
const PORTALS_MAX: usize = 64;

/// A portal as the catalog keeps it, under its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortalRecord {
    /// The tag of its target portal group.
    pub(crate) group: u16,
    /// A client created it; otherwise the configuration names it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) created: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) disabled: bool,
    pub(crate) created_ms: u64,
}

/// The keeper of portals.
#[derive(Default)]
pub(crate) struct Portals {
    records: BTreeMap<SocketAddr, PortalRecord>,
    /// Why the process does not listen at a portal that is enabled.
    problems: BTreeMap<SocketAddr, String>,
}

/// Reads the portals in the catalog of a pool.
pub(crate) fn read_portals(pool: &Pool) -> Result<BTreeMap<SocketAddr, PortalRecord>, ArrayError> {
    pool.list(PORTAL_OBJECT).into_iter().map(|(key, value)| read(&key, &value)).collect()
}

fn read(key: &str, value: &[u8]) -> Result<(SocketAddr, PortalRecord), ArrayError> {
    let bad =
        || ArrayError::Record { key: key.to_owned(), why: "it is not the address of a portal".to_owned() };
    Ok((key.parse().map_err(|_| bad())?, decode(key, value)?))
}

/// What is wrong with a portal in the catalog.
pub(crate) fn portal_problem(key: &str, value: &[u8]) -> Option<String> {
    read(key, value).err().map(|error| error.to_string())
}

/// Adds to a transaction that the catalog has this portal.
pub(crate) fn put(tx: Transaction, address: SocketAddr, record: &PortalRecord) -> Transaction {
    tx.put(PORTAL_OBJECT, &address.to_string(), encode(record))
}

/// Adds to a transaction that the catalog no longer has this portal.
pub(crate) fn delete(tx: Transaction, address: SocketAddr) -> Transaction {
    tx.delete(PORTAL_OBJECT, &address.to_string())
}

impl Portals {
    /// Takes over the portals of a newly opened pool, beside those of the configuration. Returns what is to be changed in its
    /// catalog, if anything is.
    pub(crate) fn restore(
        &mut self,
        read: BTreeMap<SocketAddr, PortalRecord>,
        configured: &[SocketAddr],
        now_ms: u64,
    ) -> Option<Transaction> {
        self.records = read;
        let is_gone = |address: &SocketAddr, record: &mut PortalRecord| {
            !record.created && !configured.contains(address)
        };
        let gone: Vec<_> = self.records.extract_if(.., is_gone).map(|(address, _)| address).collect();
        let new: Vec<_> =
            configured.iter().filter(|address| !self.records.contains_key(address)).copied().collect();
        if gone.is_empty() && new.is_empty() {
            return None;
        }
        let tx = gone.into_iter().fold(Transaction::new(), delete);
        Some(new.into_iter().fold(tx, |tx, address| {
            let group = self.free_group();
            let record = PortalRecord { group, created: false, disabled: false, created_ms: now_ms };
            let tx = put(tx, address, &record);
            self.records.insert(address, record);
            tx
        }))
    }

    /// The lowest group that no portal has.
    fn free_group(&self) -> u16 {
        let taken: BTreeSet<u16> = self.records.values().map(|record| record.group).collect();
        (1..u16::MAX).find(|group| !taken.contains(group)).expect("there are far fewer portals than groups")
    }

    /// Plans a portal that a client creates.
    pub(crate) fn plan(&self, address: SocketAddr, now_ms: u64) -> Result<PortalRecord, PortalError> {
        if self.records.contains_key(&address) {
            return Err(PortalError::Exists { address });
        }
        if self.records.len() >= PORTALS_MAX {
            return Err(PortalError::TooMany { address, limit: PORTALS_MAX });
        }
        Ok(PortalRecord { group: self.free_group(), created: true, disabled: false, created_ms: now_ms })
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<(SocketAddr, PortalRecord)> {
        self.records.iter().map(|(address, record)| (*address, record.clone())).collect()
    }

    /// The portal at this address.
    pub(crate) fn get(&self, address: SocketAddr) -> Result<PortalRecord, PortalError> {
        let found = self.records.get(&address).cloned();
        found.ok_or_else(|| PortalError::NotFound { given: address.to_string() })
    }

    /// Adds or replaces a portal that was committed.
    pub(crate) fn put(&mut self, address: SocketAddr, record: PortalRecord) {
        self.records.insert(address, record);
    }

    /// Removes a portal that was deleted.
    pub(crate) fn remove(&mut self, address: SocketAddr) {
        self.records.remove(&address);
    }

    /// Those at which connections are to be accepted.
    pub(crate) fn enabled(&self) -> Vec<Portal> {
        let enabled = self.records.iter().filter(|(_, record)| !record.disabled);
        enabled.map(|(address, record)| Portal { address: *address, group: record.group }).collect()
    }

    /// Why the process does not listen at a portal that is enabled.
    pub(crate) fn problem(&self, address: SocketAddr) -> Option<String> {
        self.problems.get(&address).cloned()
    }

    /// Whether there is a portal at which the process does not listen, though it is enabled.
    pub(crate) fn any_down(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Notes at which portals the process cannot listen. Returns what was noted before.
    pub(crate) fn note_problems(
        &mut self,
        problems: BTreeMap<SocketAddr, String>,
    ) -> BTreeMap<SocketAddr, String> {
        std::mem::replace(&mut self.problems, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 3260))
    }

    fn groups(portals: &Portals) -> Vec<(SocketAddr, u16)> {
        portals.list().into_iter().map(|(address, record)| (address, record.group)).collect()
    }

    /// A start with these portals in the configuration.
    fn start(portals: &mut Portals, configured: &[u8]) -> bool {
        let configured: Vec<_> = configured.iter().map(|last| address(*last)).collect();
        let read = portals.records.clone();
        portals.restore(read, &configured, 0).is_some()
    }

    #[test]
    fn portals_keep_their_group_in_whatever_order_they_are_configured() {
        let mut portals = Portals::default();
        assert!(start(&mut portals, &[1, 2]));
        assert_eq!(groups(&portals), [(address(1), 1), (address(2), 2)]);
        assert!(!start(&mut portals, &[2, 1]), "nothing has changed");
        assert!(start(&mut portals, &[3, 2, 1]));
        assert_eq!(groups(&portals), [(address(1), 1), (address(2), 2), (address(3), 3)]);
        // A machine whose address has changed serves the same target port.
        assert!(start(&mut portals, &[3, 2, 9]));
        assert_eq!(groups(&portals), [(address(2), 2), (address(3), 3), (address(9), 1)]);
    }

    #[test]
    fn portals_that_clients_created_stay_whatever_is_configured() {
        let mut portals = Portals::default();
        start(&mut portals, &[1]);
        let planned = portals.plan(address(2), 7).unwrap();
        assert_eq!((planned.group, planned.created), (2, true));
        portals.put(address(2), planned);
        assert_eq!(portals.plan(address(2), 8), Err(PortalError::Exists { address: address(2) }));
        assert!(!start(&mut portals, &[1, 2]), "one of the configuration, too, for as long as it is there");
        assert!(!start(&mut portals, &[1]));
        assert!(start(&mut portals, &[]));
        assert_eq!(groups(&portals), [(address(2), 2)]);
        assert_eq!(portals.plan(address(3), 9).unwrap().group, 1);
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut portals = Portals::default();
        for last in 0..PORTALS_MAX as u8 {
            let planned = portals.plan(address(last), 0).unwrap();
            portals.put(address(last), planned);
        }
        let refused = portals.plan(address(200), 0);
        assert_eq!(refused, Err(PortalError::TooMany { address: address(200), limit: PORTALS_MAX }));
    }

    #[test]
    fn records_keep_their_form() {
        let record = PortalRecord { group: 2, created: true, disabled: true, created_ms: 5 };
        let json = r#"{"version":1,"group":2,"created":true,"disabled":true,"created_ms":5}"#;
        assert_eq!(String::from_utf8(encode(&record)).unwrap(), json);
        assert_eq!(portal_problem("[::1]:3260", json.as_bytes()), None);
        assert!(portal_problem("somewhere", json.as_bytes()).is_some());
        assert!(portal_problem("[::1]:3260", b"{}").is_some());
    }
}
