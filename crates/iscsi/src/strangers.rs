//! Sessions of initiators that no host has. They see no volume, and there may be so few of them that hosts find room.

use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};

/// The part of all connections that they may have.
const PART: usize = 4;

/// Counts them.
pub(crate) struct Strangers {
    open: AtomicUsize,
    most: usize,
}

/// The place of one, until it is dropped.
pub(crate) struct Stranger<'a>(&'a Strangers);

impl Strangers {
    /// Those of a server with so many connections.
    pub(crate) fn among(connections: usize) -> Self {
        Self { open: AtomicUsize::new(0), most: (connections / PART).max(1) }
    }

    /// A place; `None` if there are as many as there may be.
    pub(crate) fn enter(&self) -> Option<Stranger<'_>> {
        // Counted first: dropped, it is not counted any more.
        let before = self.open.fetch_add(1, AcqRel);
        let place = Stranger(self);
        (before < self.most).then_some(place)
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        let before = self.0.open.fetch_sub(1, AcqRel);
        assert!(before > 0, "iSCSI server: a stranger left that had not come");
    }
}
