//! The target session identifying handles (TSIH): which sessions hold which, and the connection of each (RFC
//! 7143 §6.3.1).

use parking_lot::Mutex;
use quoin_target::NexusName;
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
struct Held {
    tsih: u16,
    cid: u16,
    /// Tells a session from one of the same name that replaced it.
    serial: u64,
}

#[derive(Default)]
struct State {
    held: BTreeMap<NexusName, Held>,
    last_tsih: u16,
    last_serial: u64,
}

/// The TSIHs of all sessions.
#[derive(Default)]
pub(crate) struct TsihTable(Mutex<State>);

/// A session's TSIH, given back when dropped.
pub(crate) struct TsihLease<'a> {
    table: &'a TsihTable,
    name: NexusName,
    pub(crate) tsih: u16,
    serial: u64,
}

/// What a login that names the TSIH of a session asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    /// There is no such session.
    NoSuchSession,
    /// To replace its connection.
    Reinstate,
    /// To add a connection.
    Add,
}

impl TsihTable {
    /// Returns what a login that names `tsih` and `cid` asks for.
    pub(crate) fn join(&self, name: &NexusName, tsih: u16, cid: u16) -> Join {
        match self.0.lock().held.get(name) {
            Some(held) if held.tsih == tsih && held.cid == cid => Join::Reinstate,
            Some(held) if held.tsih == tsih => Join::Add,
            _ => Join::NoSuchSession,
        }
    }

    /// Takes a TSIH for a session that begins: `tsih`, or if that is 0 one that no session has.
    pub(crate) fn take(&self, name: NexusName, tsih: u16, cid: u16) -> TsihLease<'_> {
        let mut state = self.0.lock();
        let tsih = match tsih {
            0 => {
                let mut next = state.last_tsih;
                loop {
                    // The next free one after the last: 0 is no TSIH, and one that is in use is passed over.
                    next = next.checked_add(1).unwrap_or(1);
                    if !state.held.values().any(|held| held.tsih == next) {
                        break;
                    }
                }
                state.last_tsih = next;
                next
            }
            kept => kept,
        };
        state.last_serial += 1;
        let serial = state.last_serial;
        state.held.insert(name.clone(), Held { tsih, cid, serial });
        TsihLease { table: self, name, tsih, serial }
    }
}

impl Drop for TsihLease<'_> {
    fn drop(&mut self) {
        let mut state = self.table.0.lock();
        // NOTE: by serial: a session of the same name may have replaced this one under the same TSIH.
        if state.held.get(&self.name).is_some_and(|held| held.serial == self.serial) {
            state.held.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tsih_lives_as_long_as_its_session() {
        let tsihs = TsihTable::default();
        let name = |isid| NexusName {
            initiator: "iqn.2026-11.test:h".into(),
            isid: [0, 0, 0, 0, 0, isid],
            group: 1,
        };
        let one = tsihs.take(name(1), 0, 7);
        let two = tsihs.take(name(2), 0, 7);
        assert_ne!(one.tsih, two.tsih);
        assert_eq!(tsihs.join(&name(1), one.tsih, 7), Join::Reinstate);
        assert_eq!(tsihs.join(&name(1), one.tsih, 8), Join::Add);
        assert_eq!(tsihs.join(&name(1), two.tsih, 7), Join::NoSuchSession);
        assert_eq!(tsihs.join(&name(3), one.tsih, 7), Join::NoSuchSession);
        // Replaced under the same TSIH; the old one's end does not touch the new.
        let again = tsihs.take(name(1), one.tsih, 7);
        drop(one);
        assert_eq!(tsihs.join(&name(1), again.tsih, 7), Join::Reinstate);
        let tsih = again.tsih;
        drop(again);
        assert_eq!(tsihs.join(&name(1), tsih, 7), Join::NoSuchSession);
    }
}
