//! How a lane leaves its extent, and which lane has the next one that is free.
//!
//! As a rule an extent is free when a lane needs one. When drives of the journal were lost there may be fewer than lanes. Then:
//!
//! 1. A lane that is idle leaves its extent, and takes another when it has something to write.
//! 2. An extent goes to the lane that waits with the oldest record. What is older than that one is hardened, so the tail passes
//!    that lane's last extent at the latest, and another extent comes free for the next lane.

use super::{Lane, Position};
use crate::{
    error::PoolError,
    format::{EXTENT_MAGIC, ExtentHeader, PAGE_BYTES, zeroed},
    journal::{Extents, Journal, footer::Index},
};
use quoin_base::Sequence;
use quoin_drive::FORMAT_VERSION;
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use std::collections::BTreeSet;
use zerocopy::little_endian::{U32, U64};

/// Lanes that wait for an extent.
#[derive(Default)]
pub(in crate::journal) struct WaitingLanes {
    /// The oldest record that each waits with, and its number.
    lanes: Mutex<BTreeSet<(Sequence, u32)>>,
    /// Set when an extent was wanted and none was free, until some come free. Changed with the extents locked.
    lack_extents: AtomicBool,
}

impl WaitingLanes {
    /// Whether idle lanes are to leave theirs.
    pub(in crate::journal) fn lack_extents(&self) -> bool {
        self.lack_extents.load(Ordering::Acquire)
    }

    /// Extents may have come free. With the extents locked.
    pub(in crate::journal) fn may_have_extents(&self) {
        self.lack_extents.store(false, Ordering::Release);
    }
}

/// The extent that a lane left last; all zero if it never had one.
#[derive(Clone, Copy, Default)]
pub(super) struct Left {
    number: u64,
    batches: u32,
    last: Sequence,
}

impl Left {
    pub(super) fn of(at: &Position) -> Self {
        Self { number: at.extent.number, batches: at.batches, last: at.last }
    }
}

impl Journal {
    /// Leaves the extent at hand without another.
    pub(super) async fn leave(
        &self,
        position: &mut Option<Position>,
        left: &mut Left,
    ) -> Result<(), PoolError> {
        let Some(at) = position.take() else { return Ok(()) };
        *left = Left::of(&at);
        // Nothing else tells that its last batches are hardened.
        self.close(&at, true).await
    }

    /// Writes the footer of an extent whose batches are all hardened, and closes the extent.
    pub(super) async fn close(&self, full: &Position, durable: bool) -> Result<(), PoolError> {
        let number = full.extent.number;
        assert_eq!(full.hardened, full.batches, "the footer of extent {number} says that all are hardened");
        let (offset, footer) = full.index.footer(&full.header, full.batches, full.last, self.slab_bytes());
        self.write_columns(&full.extent.slabs, offset, footer, durable).await?;
        // NOTE: not before: a late footer would lie over what the extent's next life wrote there.
        self.extents.lock().close(full.extent.index);
        Ok(())
    }

    /// Takes another extent for a batch whose oldest record is `first`, waiting for one to come free.
    pub(super) async fn next_extent_for(
        &self,
        lane: &Lane,
        first: Sequence,
        left: Left,
    ) -> Result<Position, PoolError> {
        let turn = (first, lane.index);
        self.waiting.lanes.lock().insert(turn);
        let taken = self.freed.until(|| {
            if self.store.health().is_failed() {
                return Some(Err(self.store.health().error()));
            }
            let mut extents = self.extents.lock();
            // NOTE: the set of now, not that of before the wait; and with the lock, so that no lane goes by an older one.
            let members = self.follow(&mut extents);
            if self.waiting.lanes.lock().first() != Some(&turn) {
                return None;
            }
            let taken = extents.take();
            if taken.is_none() {
                self.lack_extents(&extents);
            }
            taken.map(|extent| Ok((members.journal_set, extent)))
        });
        let taken = taken.await;
        self.waiting.lanes.lock().remove(&turn);
        // It is the turn of the next one.
        self.freed.notify();
        let (set, extent) = taken?;
        let mut header: ExtentHeader = zeroed();
        header.magic = U64::new(EXTENT_MAGIC);
        header.version = U32::new(FORMAT_VERSION);
        header.lane = U32::new(lane.index);
        header.pool = *self.store.pool().0.as_bytes();
        header.epoch = U64::new(self.store.epoch().0);
        header.number = U64::new(extent.number);
        header.set = U64::new(set);
        header.footer = U64::new(self.slab_bytes() - PAGE_BYTES as u64);
        header.columns = U32::new(extent.slabs.len() as u32);
        header.slabs = extent.slabs.encode();
        header.previous = U64::new(left.number);
        header.previous_batches = U32::new(left.batches);
        header.previous_last = U64::new(left.last.0);
        header.seal();
        // The header goes to the drives with the first batch. Until then the extent holds nothing.
        Ok(Position {
            extent,
            offset: PAGE_BYTES as u64,
            batches: 0,
            last: Sequence(0),
            previous_crc: header.crc.get() as u32,
            header,
            is_begun: false,
            index: Index::default(),
            hardened: 0,
            is_told: true,
            broken: false,
        })
    }

    /// An extent is wanted, and none of these is free: lanes that are idle leave theirs.
    pub(in crate::journal) fn lack_extents(&self, _locked: &Extents) {
        if !self.waiting.lack_extents.swap(true, Ordering::AcqRel) {
            self.lanes.iter().for_each(|lane| lane.wake.notify());
        }
    }
}
