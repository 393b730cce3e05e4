//! Reservations: space promised to a volume, which nobody else can take.
//!
//! A promise that grows is first *pledged*: writers see it before it is checked, so that nothing slips in between
//! the check and the moment it takes effect. The pledge is given back once the transaction has taken effect or
//! failed.

use crate::{
    buffer::SHARDS,
    error::PoolError,
    meta::{Operation, Transaction},
    pool::Pool,
    space::Reserved,
};
use quoin_world::atomic::Ordering;
use std::collections::BTreeMap;

/// Blocks set aside for a transaction that is not hardened yet.
pub(crate) struct Pledge<'a>(&'a Pool);

impl Drop for Pledge<'_> {
    fn drop(&mut self) {
        self.0.space.update_reserved(|reserved| reserved.pending = 0);
    }
}

impl Pool {
    /// Blocks that a transaction promises more than is promised now, and less: only one of the two is not zero.
    fn promised_more(&self, transaction: &Transaction) -> u64 {
        let mut change = BTreeMap::new();
        for operation in &transaction.operations {
            if let Operation::Reserve { volume, bytes } = operation {
                let before = self.layer(*volume).map_or(0, |l| l.reserved_bytes.load(Ordering::Acquire));
                change.insert(*volume, (self.blocks_of(before), self.blocks_of(*bytes)));
            }
        }
        let (before, after) = change.values().fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
        after.saturating_sub(before)
    }

    fn blocks_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.buffer.block_bytes)
    }

    /// What is buffered is charged more than it will take, and may lie over what it replaces. Lets it be destaged if
    /// a reservation fails for its sake.
    pub(crate) async fn make_room_for(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let wanted = self.promised_more(transaction) * self.buffer.block_bytes;
        let charged = self.buffer.charged_blocks();
        if wanted > self.space.reservable_bytes(charged) && wanted <= self.space.reservable_bytes(0) {
            self.drain().await?;
        }
        Ok(())
    }

    /// Sets aside what a transaction promises, or refuses it. Called with the catalog's turn held.
    pub(crate) fn pledge(&self, transaction: &Transaction) -> Result<Option<Pledge<'_>>, PoolError> {
        let more = self.promised_more(transaction);
        if more == 0 {
            return Ok(None);
        }
        let pledge = Pledge(self);
        self.space.update_reserved(|reserved| reserved.pending = more);
        self.pass_shards();
        match self.space.keeps_promises(self.buffer.charged_blocks()) {
            true => Ok(Some(pledge)),
            false => Err(PoolError::CannotReserve {
                wanted_bytes: more * self.buffer.block_bytes,
                free_bytes: self.space.reservable_bytes(self.buffer.charged_blocks()),
            }),
        }
    }

    /// When it returns, whoever looked at what a shard's lock protects before the call has made its insertion, and
    /// whoever comes later sees what was changed before the call.
    pub(crate) fn pass_shards(&self) {
        (0..SHARDS).for_each(|shard| self.buffer.pass(shard));
    }

    /// Counts anew what is promised, and what of it is not mapped.
    pub(crate) fn count_reserved(&self) {
        let layers = self.layers.read();
        let block_bytes = self.buffer.block_bytes;
        self.space.update_reserved(|reserved| {
            let mut sum = Reserved { pending: reserved.pending, ..Reserved::default() };
            for layer in layers.values() {
                let blocks = layer.reserved_bytes.load(Ordering::Acquire).div_ceil(block_bytes);
                if blocks > 0 {
                    sum.blocks += blocks;
                    sum.unmapped += blocks.saturating_sub(layer.mapped_blocks.load(Ordering::Relaxed));
                }
            }
            *reserved = sum;
        });
    }
}
