//! A slice that gets more slabs, and one that gives some back.
//!
//! A slice admits and promises only what the slabs that it holds can take, so no two slices count on the same
//! slab. When it is short of room for a write or a promise, it asks for slabs: its committer takes ungranted
//! slabs, and other slices give back what they can spare. The pool is full only when neither brings any.

use super::{Overhead, Promise, RESERVE_PART, Space};
use crate::{
    error::PoolError,
    lifecycle::slice::Slice,
    meta::{Domain, table_slabs_for},
    store::Standing,
};
use quoin_world::atomic::Ordering;
use std::collections::BTreeMap;

/// Segments of room that a slice has at least when it begins to serve, and keeps beside its reserve when it gives slabs back.
const LEAST_ROOM_SEGMENTS: u64 = 2;

impl Overhead {
    /// Of additional net slabs, those that the segment table may take, and those of a segment that is used in part.
    fn for_table_slabs(&self) -> u64 {
        self.table(1) + self.segment()
    }

    /// The fewest slabs that leave anything for host data when a drive brings them.
    pub(crate) fn least_added_slabs(&self) -> u64 {
        self.for_table_slabs() + 1
    }

    fn least_room_slabs(&self) -> u64 {
        LEAST_ROOM_SEGMENTS * self.segment()
    }
}

/// The least of a slab that is left for host data: reserve and headroom take a part of it.
fn least_kept(filled_bytes: u64) -> u64 {
    filled_bytes * 15 / 16
}

impl Space {
    /// The fewest slabs that a slice can work with: its reserve, the headroom, and a little room.
    pub(crate) fn least_slabs(&self) -> u64 {
        let headroom = self.least_headroom.div_ceil(self.filled_bytes);
        let overhead = self.overhead();
        let without_table = self.reserve_slabs(0) + headroom + overhead.least_room_slabs();
        // The reserve has a part of them too, and the segment table takes some for all of them.
        let with_table = |table| (without_table + table) * RESERVE_PART / (RESERVE_PART - 1) + 1;
        let mut least = with_table(0);
        loop {
            let all =
                with_table(overhead.table(table_slabs_for(overhead.raw_for_hosts(least), self.slab_bytes)));
            if all <= least {
                return least;
            }
            least = all;
        }
    }

    /// Bytes that so many slabs more would leave for host data. A few slabs may leave none: the segment table
    /// may need them.
    pub(crate) fn bytes_of(&self, slabs: u64) -> u64 {
        let held = self.slabs();
        self.total_of(held + slabs).saturating_sub(self.total_of(held))
    }

    /// Whether so many net slabs, beside so many slabs of drives for the segment table, hold all that is taken and `charged`, or
    /// as much as there is room for now.
    pub(crate) fn bears(&self, slabs: u64, table_slabs: u64, charged: u64) -> bool {
        let overhead = self.overhead();
        let live_meta = self.metadata.load(Ordering::Relaxed);
        let held = self.filled_beside(slabs, overhead.net(table_slabs));
        held.saturating_sub(overhead.metadata(2 * live_meta)) >= self.limit().min(self.taken(charged))
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

    /// Whether more is live and `charged` than fits, which was admitted while more drives were there.
    pub(crate) fn is_overdrawn(&self, charged: u64) -> bool {
        let taken =
            self.live.load(Ordering::Relaxed).saturating_add(charged.saturating_mul(self.block_bytes));
        taken > self.replace_limit.load(Ordering::Relaxed)
    }

    /// How many slabs more it takes to promise `pending` too. `shares`: layers share maps by then.
    pub(crate) fn slabs_short_of(&self, pending: Promise, charged: u64, shares: bool) -> u64 {
        let reserved = *self.reserved.lock();
        let sharing = reserved.sharing || shares;
        let promised = self.promised(charged, &super::Reserved { pending, sharing, ..reserved });
        self.slabs_of_bytes(promised.saturating_sub(self.limit()))
    }

    /// How many slabs leave so many bytes for host data.
    pub(super) fn slabs_of_bytes(&self, bytes: u64) -> u64 {
        match bytes {
            0 => 0,
            short => short.div_ceil(least_kept(self.filled_bytes)) + self.overhead().for_table_slabs(),
        }
    }

    /// The least that so many slabs more leave for host data, in bytes.
    pub(super) fn kept_of(&self, slabs: u64) -> u64 {
        slabs.saturating_sub(self.overhead().for_table_slabs()) * least_kept(self.filled_bytes)
    }

    /// How many slabs more hold so many blocks, and some for what comes next.
    fn slabs_for_blocks(&self, blocks: u64) -> u64 {
        (blocks * self.charge_bytes()).div_ceil(self.filled_bytes) + self.overhead().least_room_slabs()
    }

    /// How many slabs can be given back without touching what is live, promised or `charged`.
    pub(crate) fn spare_slabs(&self, charged: u64) -> u64 {
        let kept = self.overhead().least_room_slabs() + self.slabs() / (2 * RESERVE_PART);
        let spare = self.room_slabs(charged).saturating_sub(kept);
        spare.min(self.slabs().saturating_sub(self.least_slabs()))
    }
}

impl Slice {
    /// Whether slabs may come that it does not hold yet: as many as its segment table can name.
    pub(crate) fn may_grow(&self) -> bool {
        self.segments.table.room_for(1) > 0 && self.store.claimable(self.id()) > 0
    }

    /// Net slabs that it may get for hosts: ungranted ones, and those that other slices can spare.
    pub(crate) fn claimable(&self) -> u64 {
        let overhead = self.space.overhead();
        overhead.for_hosts(overhead.net(self.store.claimable(self.id())))
    }

    /// Asks for slabs for so many blocks. The caller then waits for the next commit.
    pub(crate) fn ask_for_blocks(&self, blocks: u64) {
        self.ask_for(self.space.slabs_for_blocks(blocks));
    }

    /// Asks for so many net slabs for hosts.
    pub(crate) fn ask_for(&self, slabs: u64) {
        self.want(slabs);
        self.requests.nudge();
    }

    /// As [`Slice::ask_for`], for the committer itself: it looks what it gets without being told to.
    pub(crate) fn want(&self, slabs: u64) {
        self.store.want(self.id(), self.space.overhead().raw_for_hosts(slabs));
    }

    /// Asks for slabs, and waits until that many came or no more can come. False if none came.
    pub(crate) async fn grow(&self, slabs: u64) -> bool {
        let from = self.space.slabs();
        let grown = || self.space.slabs().saturating_sub(from);
        while grown() < slabs && self.may_grow() && !self.store.health().is_failed() {
            // NOTE: before it asks: what is committed in between may be what it waits for.
            let commits = self.counters.progress.commits();
            self.ask_for(slabs - grown());
            let moved = || self.counters.progress.commits() != commits;
            self.log.progress().until(|| (moved() || self.store.health().is_failed()).then_some(())).await;
        }
        grown() > 0
    }

    /// Reckons with the drives that the pool has now, and the slabs of them that the slice holds.
    pub(crate) fn lay_out(&self) {
        let layouts = self.store.layouts();
        let overhead = Overhead::of(&layouts);
        self.segments.table.set_layouts(layouts);
        self.space.relay(self.segments.table.usage().host_slabs, overhead);
    }

    /// Why it could not keep count of so many slabs more in these domains, if so: the segment table would take slabs of other
    /// drives that are not free, or without which they could not hold what they do.
    pub(crate) fn cannot_count(&self, new: &BTreeMap<Domain, u64>) -> Option<String> {
        let counted = self.segments.table.counted_with(new);
        let least = counted.free_before.min(self.space.clean_below());
        let charged = self.buffer.charged_blocks();
        let is_borne = counted.free_after.is_some_and(|free| free >= least)
            && self.space.bears(counted.host_slabs, counted.table_columns, charged);
        (counted.more > 0 && !is_borne).then(|| {
            let (slabs, slab_bytes) = (new.values().sum::<u64>(), self.store.slab_bytes());
            format!(
                "to keep count of {slabs} slabs of {slab_bytes} bytes more, the segment table takes {} slabs in each of {} fault \
                 domains, and drives of the others have too few free",
                counted.more, counted.copies
            )
        })
    }

    /// Takes the least that the slice needs, before it serves.
    pub(crate) async fn claim_least(&self) -> Result<(), PoolError> {
        let lacking = self.space.least_slabs().saturating_sub(self.space.slabs());
        if lacking > 0 {
            self.claim(lacking).await?;
        }
        Ok(())
    }

    /// Tells others how many slabs it could give back, `at_most` so many. Returns what it must know of them.
    pub(crate) fn tell_spare(&self, charged: u64, at_most: u64) -> Standing {
        let spare = self.space.spare_slabs(charged).min(at_most);
        self.store.can_spare(self.id(), self.space.overhead().raw(spare))
    }

    /// Tells others at once that it can spare less: something was promised. Its committer tells the rest.
    pub(crate) fn tell_less_to_spare(&self) {
        let spare = self.space.spare_slabs(self.buffer.charged_blocks());
        self.store.can_spare_at_most(self.id(), self.space.overhead().raw(spare));
    }

    /// Takes so many ungranted net slabs, or as many as there are. Returns how many slabs it took.
    pub(crate) async fn claim(&self, slabs: u64) -> Result<u64, PoolError> {
        // Slabs that the segment table could not name are left to other slices.
        // A segment takes a slab of each of its columns.
        let slabs = self.segments.table.room_for(self.space.overhead().raw(slabs));
        // NOTE: durable before the table has them. What is in no segment after a crash is free.
        let granted = self.store.grant(self.id(), slabs).await?;
        self.segments.table.grant(&granted);
        self.lay_out();
        self.segments.table.provide_places()?;
        self.lay_out();
        self.counters.slabs.claimed.add(granted.len() as u64);
        Ok(granted.len() as u64)
    }

    /// Gives back at most so many free net slabs, as many as the slice can spare. Returns how many slabs.
    pub(crate) async fn give_back(&self, slabs: u64) -> Result<u64, PoolError> {
        let before = self.segments.table.usage().host_slabs;
        let slabs = slabs.min(self.space.spare_slabs(self.buffer.charged_blocks()));
        if slabs == 0 {
            return Ok(0);
        }
        // Slabs of several drives make up one: what is left may hold a segment less than reckoned.
        let overhead = self.space.overhead();
        let inexact = if overhead.raw(1) > 1 { overhead.segment() } else { 0 };
        // From here on no new write or promise counts on them. `pass_shards` waits for writes that still do.
        self.space.resize(before.saturating_sub(slabs + inexact));
        self.pass_shards();
        if !self.space.is_kept(self.buffer.charged_blocks()) {
            self.space.resize(before);
            return Ok(0);
        }
        // NOTE: they leave the table before a grant page says that they are ungranted.
        // What is kept spare with them stays: no more leaves hosts than was reckoned, whichever drives they are of.
        let columns = self.segments.table.part_with(overhead.raw(slabs) as usize);
        self.space.resize(self.segments.table.usage().host_slabs);
        self.store.give_back(self.id(), &columns).await?;
        self.counters.slabs.given_back.add(columns.len() as u64);
        Ok(columns.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::options::PoolOptions;

    const SLAB_BYTES: u64 = 256 << 10;

    fn space(slabs: u64, dirty_bytes: u64) -> Space {
        let options = PoolOptions { dirty_bytes, ..PoolOptions::default() };
        Space::new(slabs, SLAB_BYTES, 8192, SLAB_BYTES * 15 / 16, Overhead::NONE, &options)
    }

    #[test]
    fn the_least_slabs_leave_room_however_many_the_segment_table_takes() {
        for dirty_bytes in [256 << 10, 16 << 20, 256 << 20] {
            let least = space(0, dirty_bytes).least_slabs();
            let room = space(least, dirty_bytes).room_slabs(0);
            assert!(
                (LEAST_ROOM_SEGMENTS..=LEAST_ROOM_SEGMENTS + 3).contains(&room),
                "{room} of {least} slabs"
            );
        }
    }

    #[test]
    fn table_slabs_that_are_not_empty_yet_leave_no_room() {
        // It held twenty times as many slabs, and gave them back.
        let (held, before) = (300, 6000);
        let table_slabs = 2 * table_slabs_for(before, SLAB_BYTES);
        let space = space(held, 256 << 10);
        let (room, spare) = (space.room_slabs(0), space.spare_slabs(0));
        space.update(0, 0, table_slabs);
        let more = table_slabs - 2 * table_slabs_for(held, SLAB_BYTES);
        // The headroom takes a part of the room.
        assert!(more > 40 && spare > more, "{more} more, {spare} to spare");
        assert!((more - 1..=more).contains(&(room - space.room_slabs(0))), "{room}, {}", space.room_slabs(0));
        assert_eq!(spare - space.spare_slabs(0), room - space.room_slabs(0));
        // Once they have left, there is room again.
        space.update(0, 0, 2);
        assert_eq!((space.room_slabs(0), space.spare_slabs(0)), (room, spare));
    }

    #[test]
    fn slabs_bring_what_is_reckoned_with_at_least() {
        for held in [100, 1000, 50_000] {
            for more in [1, 5, 100, 10_000, 100_000] {
                let (before, after) = (space(held, 256 << 10), space(held + more, 256 << 10));
                let room = |space: &Space| space.total() - space.headroom();
                assert!(
                    room(&after) >= room(&before) + before.kept_of(more),
                    "{more} slabs beside {held} bring {}, reckoned {}",
                    room(&after) - room(&before),
                    before.kept_of(more)
                );
            }
        }
    }
}
