//! Reservations: space that is promised to one volume, so that no other can take it.
//!
//! A promise that grows is first *pledged*: writers see it before it is checked, so that nothing slips in between
//! the check and the moment it takes effect. The pledge is given back once the transaction has taken effect or
//! failed. What of a volume is mapped already needs no more space, so a pledge is counted anew with every commit, as
//! promises are.

use crate::{
    buffer::SHARDS,
    error::PoolError,
    fork::tally::Promised,
    lifecycle::slice::Slice,
    meta::{Operation, Transaction},
    space::{Promise, Reserved, reserve::Pledged},
};
use quoin_world::atomic::Ordering;
use std::collections::BTreeSet;

/// What is set aside for a transaction that is not hardened yet.
pub(crate) struct Pledge<'a>(&'a Slice);

impl Drop for Pledge<'_> {
    fn drop(&mut self) {
        self.0.pledged.lock().clear();
        self.0.count_reserved();
    }
}

impl Slice {
    /// What a transaction changes about reservations.
    fn pledged_by(&self, transaction: &Transaction) -> Pledged {
        let layers = self.layers.read();
        let mut pledged = Pledged::new();
        let mut created = BTreeSet::new();
        for operation in &transaction.operations {
            match *operation {
                Operation::CreateVolume { volume, .. } => drop(created.insert(volume)),
                Operation::Reserve { volume, bytes }
                    if layers.volumes.contains_key(&volume) || created.contains(&volume) =>
                {
                    pledged.entry(volume).or_default().blocks = Some(self.blocks_of(bytes));
                }
                Operation::Fork { source, target, .. } => {
                    created.insert(target);
                    for volume in [source, target] {
                        pledged.entry(volume).or_default().shared = true;
                    }
                }
                _ => {}
            }
        }
        pledged
    }

    fn blocks_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.buffer.block_bytes)
    }

    /// What is buffered is charged more than it will take, and may lie over what it replaces; what was dropped is taken until
    /// it is merged. Lets it be destaged and merged if a reservation fails for its sake.
    pub(crate) async fn make_room_for(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let pending = self.promises(&self.pledged_by(transaction)).pending;
        if pending == Promise::default() || self.makes_room_with_slabs(pending).await {
            return Ok(());
        }
        if self.counters.dropped_blocks.load(Ordering::Relaxed) > 0 {
            self.merge_dropped().await?;
        }
        let short = |charged| self.space.slabs_short_of(pending, charged);
        if short(self.buffer.charged_blocks()) > 0 && short(0) <= self.store.claimable(self.id) {
            self.drain().await?;
        }
        self.makes_room_with_slabs(pending).await;
        Ok(())
    }

    /// Whether there is room to promise `pending` too. Gets slabs for it, unless too few can come.
    async fn makes_room_with_slabs(&self, pending: Promise) -> bool {
        let short = || self.space.slabs_short_of(pending, self.buffer.charged_blocks());
        let slabs = short();
        if slabs > 0 && slabs <= self.store.claimable(self.id) {
            self.grow(slabs).await;
        }
        short() == 0
    }

    /// Sets aside what a transaction promises, or refuses it. Called with the catalog's turn held.
    pub(crate) fn pledge(&self, transaction: &Transaction) -> Result<Option<Pledge<'_>>, PoolError> {
        let pledged = self.pledged_by(transaction);
        if self.promises(&pledged).pending == Promise::default() {
            return Ok(None);
        }
        *self.pledged.lock() = pledged;
        let pledge = Pledge(self);
        self.count_reserved();
        self.pass_shards();
        let charged = self.buffer.charged_blocks();
        let pending = self.space.reserved().pending;
        match self.space.keeps_promises(pending, charged) {
            true => Ok(Some(pledge)),
            false => Err(PoolError::CannotReserve {
                wanted_bytes: pending.unmapped.saturating_mul(self.buffer.block_bytes),
                free_bytes: self.space.reservable_bytes(charged, self.store.claimable(self.id)),
            }),
        }
    }

    /// Takes and releases the lock of each shard. Writers that held one before the call have inserted their data on
    /// return. Writers that take one later see what was changed before the call.
    pub(crate) fn pass_shards(&self) {
        (0..SHARDS).for_each(|shard| self.buffer.pass(shard));
    }

    /// Counts anew how much is promised, and how much of the promised space is not mapped.
    pub(crate) fn count_reserved(&self) {
        let pledged = self.pledged.lock();
        let counted = self.promises(&pledged);
        self.space.update_reserved(|reserved| *reserved = counted);
    }

    /// What is promised, and what is promised beside once `pledged` holds.
    fn promises(&self, pledged: &Pledged) -> Reserved {
        let layers = self.layers.read();
        let mut tally = self.tally.lock();
        tally.catch_up(&layers, self.buffer.block_bytes);
        let (now, mut then) = (tally.promised, tally.promised);
        for (volume, pledge) in pledged {
            let Some(layer) = layers.volumes.get(volume) else { continue };
            let blocks = pledge.blocks;
            let blocks = blocks.unwrap_or_else(|| tally.promised_to(*volume).promise.blocks);
            then.subtract(tally.promised_to(*volume));
            then.add(match pledge.shared {
                // All it has will be shared.
                true => Promised { promise: Promise::of(blocks, 0, true), lent: 0 },
                false => Promised::of(layer, blocks),
            });
        }
        drop(tally);
        // Of two that share a block only one must be able to overwrite it.
        let copies = layers.copies.load(Ordering::Relaxed);
        let with_lent = |Promised { mut promise, lent }: Promised| {
            promise.unmapped += lent.min(copies);
            promise
        };
        let (now, mut then) = (with_lent(now), with_lent(then));
        // Volumes that the same transaction creates.
        let new = pledged.iter().filter(|(volume, _)| !layers.volumes.contains_key(volume));
        new.for_each(|(_, pledge)| then.add(Promise::of(pledge.blocks.unwrap_or(0), 0, pledge.shared)));
        let sharing = layers.all.len() > layers.volumes.len() || pledged.values().any(|pledge| pledge.shared);
        Reserved { now, pending: then.beyond(now), sharing }
    }
}
