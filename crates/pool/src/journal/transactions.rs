//! The turn of transactions, and what checkpoints must know of the one under way.
//!
//! Invariants:
//! 1. From the last check of a transaction until it has taken effect, or has failed, no other is checked: what was found
//!    possible stays possible.
//! 2. While the record of a transaction is appended and not applied, the tail does not pass its sequence: a checkpoint that
//!    was cut without it leaves it to replay.
//! 3. No checkpoint is cut while a part of a transaction over several slices may have taken effect and is not decided.
//! 4. An id of a volume is given out once, in the order of ids.

use quoin_base::{Sequence, VolumeId};
use quoin_world::{
    AsyncMutex, AsyncMutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// The turn of transactions, and what checkpoints must know of the one under way.
pub(crate) struct Transactions {
    /// Held as invariant 1 says.
    turn: AsyncMutex,
    /// At or below the sequence of a record that is appended and not applied yet; else the maximum.
    pin: AtomicU64,
    /// A part of a transaction over several slices may have taken effect in RAM, and is not decided.
    undecided: AtomicBool,
    next_volume: AtomicU32,
}

impl Transactions {
    /// Ids of volumes below `next_volume` were given out.
    pub(crate) fn new(next_volume: u32) -> Self {
        Self {
            turn: AsyncMutex::new(),
            pin: AtomicU64::new(u64::MAX),
            undecided: AtomicBool::new(false),
            next_volume: AtomicU32::new(next_volume),
        }
    }

    /// Waits until no other transaction has the turn.
    pub(crate) async fn take_turn(&self) -> AsyncMutexGuard<'_> {
        self.turn.lock().await
    }

    /// The sequence that the tail must not pass.
    pub(crate) fn pinned(&self) -> Sequence {
        Sequence(self.pin.load(Ordering::SeqCst))
    }

    pub(crate) fn are_undecided(&self) -> bool {
        self.undecided.load(Ordering::SeqCst)
    }

    /// Called before a part of a transaction over several slices is appended, and once that is decided.
    pub(crate) fn set_undecided(&self, undecided: bool) {
        self.undecided.store(undecided, Ordering::SeqCst);
    }

    /// The first id that no volume has had.
    pub(crate) fn next_volume(&self) -> u32 {
        self.next_volume.load(Ordering::Relaxed)
    }

    /// Called before the record of the transaction that has the turn is appended.
    pub(crate) fn pin_at(&self, sequence: Sequence) {
        let before = self.pin.swap(sequence.0, Ordering::SeqCst);
        assert_eq!(before, u64::MAX, "one transaction is under way at a time");
    }

    /// Called when that has taken effect or failed.
    pub(crate) fn unpin(&self) {
        self.pin.store(u64::MAX, Ordering::SeqCst);
    }

    /// An id that no volume has had.
    pub(crate) fn take_volume(&self) -> VolumeId {
        VolumeId(self.next_volume.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that a volume has this id.
    pub(crate) fn volume_made(&self, id: VolumeId) {
        self.next_volume.fetch_max(id.0.saturating_add(1), Ordering::Relaxed);
    }
}
