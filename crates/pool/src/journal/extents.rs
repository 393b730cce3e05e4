//! Which journal extents there are, which are free, and which records the others hold.
//!
//! An extent is a segment of the stream [`Stream::Journal`](crate::meta::Stream::Journal). Its life:
//! free, open (a lane appends to it), closed; then free again once every record in it is below the tail of a
//! durable root. If destage kept blocks where their records had put them, it leaves the journal instead, and the
//! segment that was taken in its place has joined.

use super::Batch;
use crate::bugs::{Bug, planted};
use quoin_base::{SegmentId, Sequence};
use quoin_stripe::Column;
use quoin_world::atomic::{AtomicU64, Ordering};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// How much of an extent is host data in whole blocks, and how much of that was overwritten before destage.
#[derive(Default)]
pub(crate) struct ExtentUse {
    pub whole_bytes: AtomicU64,
    pub dead_bytes: AtomicU64,
}

/// What becomes of the blocks that an extent holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Not decided yet: destage has met none of them.
    Open,
    /// They stay where they are, and the extent leaves the journal.
    Kept,
    /// They are written to rows, and the extent is used again.
    Copied,
}

struct Extent {
    column: Column,
    /// 0 while it is free.
    number: u64,
    /// No record above this one was written to it.
    last: Sequence,
    /// True while a lane may still append to it.
    open: bool,
    /// Where its batches end.
    end_bytes: u64,
    fate: Fate,
    usage: Arc<ExtentUse>,
}

pub(crate) struct Extents {
    all: BTreeMap<SegmentId, Extent>,
    free: VecDeque<SegmentId>,
    next_number: u64,
    taken: u64,
}

/// How full the journal is, in extents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JournalUse {
    pub total: u64,
    pub used: u64,
    /// Extents taken since the pool was opened.
    pub taken: u64,
}

/// An extent a lane appends to.
pub(crate) struct TakenExtent {
    pub id: SegmentId,
    pub column: Column,
    pub number: u64,
    pub usage: Arc<ExtentUse>,
}

/// An extent as it is found when the pool is opened.
pub(crate) struct FoundExtent {
    pub id: SegmentId,
    pub column: Column,
    /// Number and last record, if it holds any that is needed.
    pub held: Option<(u64, Sequence)>,
    /// Where its batches end.
    pub end_bytes: u64,
    /// The block table leads to it, or there are more extents than there should be.
    pub leaves: bool,
}

impl Extents {
    /// All free, but for those that are held or leave.
    pub(crate) fn new(found: Vec<FoundExtent>, next_number: u64) -> Self {
        let mut extents = Self { all: BTreeMap::new(), free: VecDeque::new(), next_number, taken: 0 };
        for FoundExtent { id, column, held, end_bytes, leaves } in found {
            let (number, last) = held.unwrap_or((u64::from(leaves), Sequence(0)));
            let fate = if leaves { Fate::Kept } else { Fate::Copied };
            let extent = Extent { column, number, last, open: false, end_bytes, fate, usage: Arc::default() };
            extents.all.insert(id, extent);
        }
        extents.free = extents.all.iter().filter(|(_, e)| e.number == 0).map(|(id, _)| *id).collect();
        extents
    }

    pub(crate) fn take(&mut self) -> Option<TakenExtent> {
        let id = self.free.pop_front()?;
        let extent = self.all.get_mut(&id)?;
        *extent = Extent {
            column: extent.column,
            number: self.next_number,
            last: Sequence(0),
            open: true,
            end_bytes: 0,
            fate: Fate::Open,
            usage: Arc::default(),
        };
        self.next_number += 1;
        self.taken += 1;
        Some(TakenExtent { id, column: extent.column, number: extent.number, usage: extent.usage.clone() })
    }

    /// Notes that records up to `last` are about to be written to the extent.
    pub(crate) fn wrote(&mut self, id: SegmentId, last: Sequence) {
        if let Some(extent) = self.all.get_mut(&id) {
            extent.last = extent.last.max(last);
        }
    }

    /// Notes that nothing more is written to the extent, whose batches end at `end_bytes`.
    pub(crate) fn close(&mut self, id: SegmentId, end_bytes: u64) {
        if let Some(extent) = self.all.get_mut(&id) {
            (extent.open, extent.end_bytes) = (false, end_bytes);
        }
    }

    /// What becomes of the blocks in the extent; `None` if that is open, and cannot be decided yet either, for a
    /// lane still adds to it. Beside it, how many bytes in it are still the newest content of whole blocks.
    pub(crate) fn fate(&self, id: SegmentId) -> Option<(Fate, u64)> {
        let Some(extent) = self.all.get(&id) else { return Some((Fate::Copied, 0)) };
        let whole = extent.usage.whole_bytes.load(Ordering::Relaxed);
        let live = whole.saturating_sub(extent.usage.dead_bytes.load(Ordering::Relaxed));
        (extent.fate != Fate::Open || !extent.open).then_some((extent.fate, live))
    }

    /// Decides what becomes of the blocks in the extent, until it is given out again.
    pub(crate) fn decide(&mut self, id: SegmentId, fate: Fate) {
        if let Some(extent) = self.all.get_mut(&id) {
            extent.fate = fate;
        }
    }

    fn is_obsolete(extent: &Extent, tail: Sequence) -> bool {
        extent.number != 0 && !extent.open && extent.last < tail
    }

    pub(crate) fn freed_by(&self, tail: Sequence) -> u64 {
        self.all.values().filter(|e| Self::is_obsolete(e, tail)).count() as u64
    }

    /// The extents that a root with this tail finds no longer in the journal, and where their batches end.
    pub(crate) fn leaving(&self, tail: Sequence) -> Vec<(SegmentId, u64)> {
        let leaves = |e: &Extent| {
            let early = planted(Bug::LeaveEarly) && !e.open;
            let kept = e.fate == Fate::Kept && !planted(Bug::ReuseKeptExtent);
            kept && (Self::is_obsolete(e, tail) || early)
        };
        self.all.iter().filter(|(_, e)| leaves(e)).map(|(id, e)| (*id, e.end_bytes)).collect()
    }

    pub(crate) fn leave(&mut self, id: SegmentId) {
        self.all.remove(&id);
    }

    pub(crate) fn join(&mut self, id: SegmentId, column: Column) {
        let (last, usage) = (Sequence(0), Arc::default());
        let extent = Extent { column, number: 0, last, open: false, end_bytes: 0, fate: Fate::Copied, usage };
        self.all.insert(id, extent);
        match planted(Bug::JoinEarly) {
            true => self.free.push_front(id),
            false => self.free.push_back(id),
        }
    }

    pub(crate) fn free_below(&mut self, tail: Sequence) {
        for (id, extent) in &mut self.all {
            let reused = extent.fate != Fate::Kept || planted(Bug::ReuseKeptExtent);
            if reused && Self::is_obsolete(extent, tail) {
                extent.number = 0;
                extent.fate = Fate::Copied;
                self.free.push_back(*id);
            }
        }
    }

    pub(crate) fn usage(&self) -> JournalUse {
        let total = self.all.len() as u64;
        JournalUse { total, used: total - self.free.len() as u64, taken: self.taken }
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }
}

/// Where the payload of a batch lies, once it is hardened.
pub(crate) struct BatchPlace {
    pub segment: SegmentId,
    /// Of the first byte of the payload in the segment's data.
    pub payload_offset: u64,
    pub usage: Arc<ExtentUse>,
}

impl Batch {
    /// Notes that so many bytes of whole blocks in it are not the newest content any more.
    pub(crate) fn overwritten(&self, bytes: u64) {
        if let Some(place) = self.place() {
            place.usage.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
