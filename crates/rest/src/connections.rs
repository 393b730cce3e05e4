//! Which connections to the management interface are open, and which one makes room for a new one.
//!
//! Invariants:
//! 1. At most `total` connections are in the table, and at most `of_address` from one address.
//! 2. A connection whose request is being carried out never makes room. Any other does, the oldest first: a client
//!    that sends its request at once is served however many others hold theirs back.

use parking_lot::Mutex;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The limits of connections to the management interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub total: usize,
    /// Of them, those from one address.
    pub of_address: usize,
    /// The time in which a request's head has to arrive, and for which a connection may be idle.
    pub head_within: Duration,
    /// The time in which a request's body has to arrive.
    pub body_within: Duration,
    /// The time in which a client has to receive its answer.
    pub taken_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: 256,
            of_address: 128,
            head_within: Duration::from_secs(20),
            body_within: Duration::from_secs(10),
            taken_within: Duration::from_secs(30),
        }
    }
}

/// The connections that are open.
pub(crate) struct Connections {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By number: the oldest first.
    open: BTreeMap<u64, Entry>,
    next: u64,
}

struct Entry {
    address: IpAddr,
    working: bool,
    close: oneshot::Sender<()>,
}

/// A connection's place in the table, free again when this is dropped.
pub(crate) struct Place {
    connections: Arc<Connections>,
    number: u64,
}

/// While this exists, the connection does not make room for others.
pub(crate) struct Working {
    place: Arc<Place>,
}

/// A new connection's place, and what resolves when the connection has to be closed to make room.
pub(crate) type Admitted = (Place, oneshot::Receiver<()>);

impl Table {
    /// The oldest connection that may be closed, of those from `address` if it is given.
    fn oldest_waiting(&self, address: Option<IpAddr>) -> Option<u64> {
        let of = |entry: &Entry| address.is_none_or(|address| entry.address == address);
        self.open.iter().find(|(_, entry)| !entry.working && of(entry)).map(|(number, _)| *number)
    }
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// Gives a new connection its place, if need be that of another. None if all are being worked for.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admitted> {
        let mut table = self.table.lock();
        // NOTE: the limit of the address first: an address that has reached it makes room among its own connections.
        let of_address = table.open.values().filter(|entry| entry.address == address).count();
        if of_address >= self.limits.of_address {
            let oldest = table.oldest_waiting(Some(address))?;
            table.open.remove(&oldest).map(|entry| entry.close.send(()));
        } else if table.open.len() >= self.limits.total {
            let oldest = table.oldest_waiting(None)?;
            table.open.remove(&oldest).map(|entry| entry.close.send(()));
        }
        let number = table.next;
        table.next += 1;
        let (close, closed) = oneshot::channel();
        table.open.insert(number, Entry { address, working: false, close });
        assert!(table.open.len() <= self.limits.total, "invariant 1: too many connections are open");
        Some((Place { connections: self.clone(), number }, closed))
    }

    /// Closes all connections whose requests are not being carried out.
    pub(crate) fn close_waiting(&self) {
        let mut table = self.table.lock();
        for (_, entry) in table.open.extract_if(.., |_, entry| !entry.working) {
            // Fails if the connection has ended by itself.
            let _ = entry.close.send(());
        }
    }
}

impl Place {
    /// The connection's request is carried out from now on. None if it made room for another already.
    pub(crate) fn work(self: &Arc<Self>) -> Option<Working> {
        self.connections.table.lock().open.get_mut(&self.number)?.working = true;
        Some(Working { place: self.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.table.lock().open.remove(&self.number);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(entry) = self.place.connections.table.lock().open.get_mut(&self.place.number) {
            entry.working = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(total: usize, of_address: usize) -> Arc<Connections> {
        Connections::new(Limits { total, of_address, ..Limits::default() })
    }

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn the_oldest_that_waits_makes_room() {
        let connections = table(3, 2);
        let (first, mut first_closed) = connections.admit(A).unwrap();
        let (second, mut second_closed) = connections.admit(A).unwrap();
        let (_third, mut third_closed) = connections.admit(B).unwrap();
        let first = Arc::new(first);
        let working = first.work().unwrap();
        let (_fourth, mut fourth_closed) = connections.admit(A).unwrap();
        assert!(first_closed.try_recv().is_err(), "it works");
        assert!(second_closed.try_recv().is_ok(), "the oldest of the address that waits");
        assert!(Arc::new(second).work().is_none(), "it made room");
        let (_fifth, mut fifth_closed) = connections.admit(B).unwrap();
        assert!(third_closed.try_recv().is_ok(), "the oldest of all");
        assert!(fourth_closed.try_recv().is_err());
        drop(working);
        let (_sixth, _closed) = connections.admit(B).unwrap();
        assert!(first_closed.try_recv().is_ok(), "it works no more");
        connections.close_waiting();
        assert!(fourth_closed.try_recv().is_ok() && fifth_closed.try_recv().is_ok());
    }

    #[test]
    fn nobody_makes_room_while_all_work() {
        let connections = table(1, 1);
        let place = Arc::new(connections.admit(A).unwrap().0);
        let working = place.work().unwrap();
        assert!(connections.admit(A).is_none() && connections.admit(B).is_none());
        drop((working, place));
        assert!(connections.admit(B).is_some(), "the place is free again");
    }
}
