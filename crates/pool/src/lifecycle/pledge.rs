//! Reservations: space that is promised to one volume, so that no other can take it.
//!
//! A promise that grows is first *pledged*: writers see it before it is checked, so that nothing slips in between
//! the check and the moment it takes effect. The pledge is given back once the transaction has taken effect or
//! failed. What of a volume is mapped already needs no more space, so a pledge is counted anew with every commit, as
//! promises are.

use crate::{buffer::SHARDS, error::PoolError, lifecycle::slice::Slice, meta::Transaction, space::Promise};

/// What is set aside for a transaction that is not hardened yet.
pub(crate) struct Pledge<'a>(&'a Slice);

impl Drop for Pledge<'_> {
    fn drop(&mut self) {
        self.0.forks.take_back_pledge();
        self.0.count_reserved();
        // What others are told to be left must not count what was just promised.
        self.0.tell_less_to_spare();
    }
}

impl Slice {
    /// What is buffered is charged more than it will take, and may lie over what it replaces; what was dropped is taken until
    /// it is merged. Lets it be destaged and merged if a reservation fails for its sake.
    pub(crate) async fn make_room_for(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let pledged = self.forks.pledged_by(transaction);
        let pending = self.forks.pending(&pledged);
        // NOTE: as the pledge will be reckoned. From a fork on, each block in the buffer is charged more metadata.
        let shares = pledged.values().any(|pledge| pledge.shared);
        if pending == Promise::default() || self.makes_room_with_slabs(pending, shares).await {
            return Ok(());
        }
        if self.counters.held.dropped_blocks.get() > 0 {
            self.merge_dropped().await?;
        }
        let short = |charged| self.space.slabs_short_of(pending, charged, shares);
        if short(self.buffer.charged_blocks()) > 0 && short(0) <= self.claimable() {
            self.drain().await?;
        }
        self.makes_room_with_slabs(pending, shares).await;
        Ok(())
    }

    /// Whether there is room to promise `pending` too. Gets slabs for it, unless too few can come.
    async fn makes_room_with_slabs(&self, pending: Promise, shares: bool) -> bool {
        let short = || self.space.slabs_short_of(pending, self.buffer.charged_blocks(), shares);
        let slabs = short();
        if slabs > 0 && slabs <= self.claimable() {
            self.grow(slabs).await;
        }
        short() == 0
    }

    /// Sets aside what a transaction promises, or refuses it. Called with the catalog's turn held.
    pub(crate) fn pledge(&self, transaction: &Transaction) -> Result<Option<Pledge<'_>>, PoolError> {
        let pledged = self.forks.pledged_by(transaction);
        if self.forks.pending(&pledged) == Promise::default() {
            return Ok(None);
        }
        self.forks.pledge(pledged);
        let pledge = Pledge(self);
        self.count_reserved();
        self.pass_shards();
        let charged = self.buffer.charged_blocks();
        let pending = self.space.reserved().pending;
        if self.space.keeps_promises(pending, charged) {
            Ok(Some(pledge))
        } else {
            Err(PoolError::CannotReserve {
                wanted_bytes: pending.unmapped.saturating_mul(self.buffer.block_bytes),
                free_bytes: self.space.reservable_bytes(charged, self.claimable()),
            })
        }
    }

    /// Takes and releases the lock of each shard. Writers that held one before the call have inserted their data on
    /// return. Writers that take one later see what was changed before the call.
    pub(crate) fn pass_shards(&self) {
        (0..SHARDS).for_each(|shard| self.buffer.pass(shard));
    }
}
