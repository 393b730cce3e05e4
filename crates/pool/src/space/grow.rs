//! A slice that gets more slabs, and one that gives some back.
//!
//! What a slice may take is reckoned with the slabs that it holds, so two slices never count on the same. While it is short of
//! room for what a host writes or a volume is promised, it asks for slabs: the committer takes those that nobody holds, and
//! other slices give back what they can spare. Only when nothing comes from either is the pool full.

use super::{Promise, RESERVE_PART, Space};
use crate::{error::PoolError, lifecycle::slice::Slice, meta::TABLE_COPIES};
use quoin_world::atomic::Ordering;

/// Slabs of room that a slice has at least when it begins to serve, and keeps beside its reserve when it gives slabs back.
const LEAST_ROOM_SLABS: u64 = 2;

/// What the segment table may take of some slabs more, and a slab that is used in part.
const FOR_TABLE_SLABS: u64 = TABLE_COPIES as u64 + 1;

/// What is left of a slab at least for host data: the reserve has a part of it, and so has the headroom.
fn least_kept(filled_bytes: u64) -> u64 {
    filled_bytes * 15 / 16
}

impl Space {
    /// The least that a slice needs: its reserve, the headroom, and room for something.
    pub(crate) fn least_slabs(&self) -> u64 {
        let headroom = self.least_headroom.div_ceil(self.filled_bytes);
        let least = self.reserve_slabs(0) + headroom + LEAST_ROOM_SLABS + TABLE_COPIES as u64;
        // The reserve has a part of them too.
        least * RESERVE_PART / (RESERVE_PART - 1) + 1
    }

    /// What host data may take of so many slabs more. Of a few that may be nothing: the segment table may need them.
    pub(crate) fn bytes_of(&self, slabs: u64) -> u64 {
        let held = self.slabs();
        self.total_of(held + slabs).saturating_sub(self.total_of(held))
    }

    /// What is live, promised and `charged`.
    pub(crate) fn taken(&self, charged: u64) -> u64 {
        let promised = self.reserved.lock().now.unmapped.saturating_add(charged);
        self.live.load(Ordering::Relaxed).saturating_add(promised.saturating_mul(self.block_bytes))
    }

    /// How many slabs are left beside what is live, promised and `charged`, and what is kept for overwrites.
    pub(crate) fn room_slabs(&self, charged: u64) -> u64 {
        let reserved = self.reserved.lock();
        self.limit().saturating_sub(self.promised(charged, &reserved)) / self.filled_bytes
    }

    /// How many slabs more it takes to promise `pending` too.
    pub(crate) fn slabs_short_of(&self, pending: Promise, charged: u64) -> u64 {
        let reserved = *self.reserved.lock();
        let promised = self.promised(charged, &super::Reserved { pending, ..reserved });
        match promised.saturating_sub(self.limit()) {
            0 => 0,
            short => short.div_ceil(least_kept(self.filled_bytes)) + FOR_TABLE_SLABS,
        }
    }

    /// What so many slabs more leave for host data at least.
    pub(super) fn kept_of(&self, slabs: u64) -> u64 {
        slabs.saturating_sub(FOR_TABLE_SLABS) * least_kept(self.filled_bytes)
    }

    /// How many slabs more hold so many blocks, and some for what comes next.
    fn slabs_for_blocks(&self, blocks: u64) -> u64 {
        (blocks * self.charge_bytes()).div_ceil(self.filled_bytes) + LEAST_ROOM_SLABS
    }

    /// How many slabs can be given back without touching what is live, promised or `charged`.
    pub(crate) fn spare_slabs(&self, charged: u64) -> u64 {
        let kept = LEAST_ROOM_SLABS + self.slabs() / (2 * RESERVE_PART);
        let spare = self.room_slabs(charged).saturating_sub(kept);
        spare.min(self.slabs().saturating_sub(self.least_slabs()))
    }
}

impl Slice {
    /// Whether slabs may come that it does not hold yet.
    pub(crate) fn may_grow(&self) -> bool {
        self.store.claimable(self.id) > 0
    }

    /// Asks for slabs for so many blocks. Whoever asks waits for the next commit.
    pub(crate) fn ask_for_blocks(&self, blocks: u64) {
        self.ask_for(self.space.slabs_for_blocks(blocks));
    }

    fn ask_for(&self, slabs: u64) {
        self.store.want(self.id, slabs);
        self.requests.nudge();
    }

    /// Asks for slabs, and waits until that many came or no more will. False if none came.
    pub(crate) async fn grow(&self, slabs: u64) -> bool {
        let from = self.space.slabs();
        let grown = || self.space.slabs().saturating_sub(from);
        while grown() < slabs && self.may_grow() && !self.store.health().is_failed() {
            // NOTE: before it asks: what is committed in between may be what it waits for.
            let commits = self.counters.commits.load(Ordering::Acquire);
            self.ask_for(slabs - grown());
            let moved = || self.counters.commits.load(Ordering::Acquire) != commits;
            self.progress.until(|| (moved() || self.store.health().is_failed()).then_some(())).await;
        }
        grown() > 0
    }

    /// Gets what it needs at least, before it serves.
    pub(crate) async fn claim_least(&self) -> Result<(), PoolError> {
        let lacking = self.space.least_slabs().saturating_sub(self.space.slabs());
        if lacking > 0 {
            self.claim(lacking).await?;
        }
        Ok(())
    }

    /// Tells others how many slabs it could give back, `at_most` so many. Returns how many it owes them now.
    pub(crate) fn tell_spare(&self, at_most: u64) -> u64 {
        let spare = self.space.spare_slabs(self.buffer.charged_blocks()).min(at_most);
        self.store.can_spare(self.id, spare);
        self.store.owed_by(self.id)
    }

    /// Takes slabs that nobody holds, as many as there are of so many. Returns how many those are.
    pub(crate) async fn claim(&self, slabs: u64) -> Result<u64, PoolError> {
        // What the segment table cannot name is left to others.
        let slabs = if self.segments.can_hold(slabs) { slabs } else { 0 };
        // NOTE: durable before the table has them. What is in no segment after a crash is free.
        let granted = self.store.grant(self.id, slabs).await?;
        self.segments.grant(&granted);
        self.segments.provide_places()?;
        self.space.resize(self.segments.usage().data_slabs);
        self.counters.claimed_slabs.fetch_add(granted.len() as u64, Ordering::Relaxed);
        Ok(granted.len() as u64)
    }

    /// Gives back free slabs, of so many those that it can spare. Returns how many those are.
    pub(crate) async fn give_back(&self, slabs: u64) -> Result<u64, PoolError> {
        let before = self.segments.usage().data_slabs;
        let slabs = slabs.min(self.space.spare_slabs(self.buffer.charged_blocks()));
        if slabs == 0 {
            return Ok(0);
        }
        // Nobody counts on them any more: neither a write that is on its way into the buffer, nor a promise.
        self.space.resize(before - slabs);
        self.pass_shards();
        if !self.space.is_kept(self.buffer.charged_blocks()) {
            self.space.resize(before);
            return Ok(0);
        }
        // NOTE: they leave the table before a page says that they are nobody's.
        let columns = self.segments.part_with(slabs as usize);
        self.space.resize(before - columns.len() as u64);
        self.store.give_back(self.id, &columns).await?;
        self.counters.given_back_slabs.fetch_add(columns.len() as u64, Ordering::Relaxed);
        Ok(columns.len() as u64)
    }
}
