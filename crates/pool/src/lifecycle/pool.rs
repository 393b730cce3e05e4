//! A pool that is open, as the layers above see it: calls about a volume go to the slice that holds it.
//!
//! A pool has one slice so far. The catalog's objects, and what concerns the pool as a whole, are the first slice's.

use crate::{
    error::PoolError,
    integrity::damage::Damage,
    lifecycle::{
        options::PoolOptions,
        slice::Slice,
        stats::{PoolStats, RecoveryStats, Removal, VolumeStats},
    },
    meta::{ObjectKind, Transaction},
    space::report::{PoolSpace, VolumeSpace},
    store::{Store, health::PoolState},
};
use quoin_base::{ByteRange, Extent, LayerId, PoolId, SliceId, VolumeId};
use quoin_drive::Drive;
use quoin_world::{Compiled, Slice as Bytes, World};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A pool that is open. Calls that do I/O are made on a thread of the array.
pub struct Pool {
    store: Arc<Store>,
    /// Never empty.
    slices: Vec<Arc<Slice>>,
    mended: Vec<String>,
}

impl Pool {
    /// Opens a pool: takes it over with a new epoch, recovers what the last owner acknowledged, and serves.
    pub fn open(
        world: Arc<dyn World>,
        drives: Vec<Arc<Drive>>,
        options: PoolOptions,
    ) -> Compiled<'static, Result<Arc<Pool>, PoolError>> {
        Box::pin(async move {
            let started = world.now();
            let store = Arc::new(Store::take_over(drives).await?);
            let mut mended = store.damaged().to_vec();
            mended.iter().for_each(|what| tracing::warn!(pool = %store.pool_name(), "{what}"));
            let slices = vec![Slice::open(world, store.clone(), SliceId(0), started, options).await?];
            mended.extend(slices.iter().flat_map(|slice| slice.mended.iter().cloned()));
            Ok(Arc::new(Pool { store, slices, mended }))
        })
    }

    /// Stops the pool cleanly: everything is destaged and checkpointed, so that the next opening replays
    /// nothing. Requests made meanwhile or later fail.
    pub fn close(&self) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            self.store.stop_waiting_for_room();
            // While all slices serve, everything is destaged and checkpointed.
            let drained = self.drain().await;
            for slice in &self.slices {
                slice.end_commits().await;
            }
            self.store.health().close();
            for slice in &self.slices {
                slice.end_journal(drained.is_ok()).await;
            }
            drained
        })
    }

    /// The slice of the catalog's objects.
    pub(crate) fn first(&self) -> &Arc<Slice> {
        &self.slices[0]
    }

    /// The slice that holds a volume, or would.
    fn slice_of(&self, _volume: VolumeId) -> &Arc<Slice> {
        self.first()
    }

    /// The pool's identity.
    pub fn id(&self) -> PoolId {
        self.store.pool()
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        self.store.pool_name()
    }

    /// Whether it serves.
    pub fn state(&self) -> PoolState {
        self.store.health().state()
    }

    /// Takes the pool offline, until it is opened again: one of its drives failed in a way that it cannot see.
    pub fn take_offline(&self, reason: String) {
        self.store.health().fail(reason);
    }

    /// Resolves once the pool is offline, to the reason.
    pub async fn failed(&self) -> String {
        self.store.health().failed().await
    }

    /// The drives whose file systems have no room; empty as a rule.
    pub fn drives_without_room(&self) -> Vec<String> {
        self.store.drives_without_room()
    }

    /// What was found damaged or unreadable when it was opened, where nothing is lost by it, in words: it was written
    /// anew from another copy, or will be when its place is used again.
    pub fn mended(&self) -> &[String] {
        &self.mended
    }

    /// What opening it took.
    pub fn recovery(&self) -> RecoveryStats {
        self.first().recovery()
    }

    /// The pool in figures.
    pub fn stats(&self) -> PoolStats {
        self.first().stats()
    }

    /// What all volumes have of the pool's space.
    pub fn space(&self) -> PoolSpace {
        self.first().space()
    }

    /// What volumes have of the pool's space, all together: what deleting all of them frees may be more than the sum of
    /// what deleting each frees.
    pub fn space_of(&self, volumes: &BTreeSet<VolumeId>) -> VolumeSpace {
        self.first().space_of(volumes)
    }

    /// At most so many bytes are taken by blocks that damaged metadata led to: they are never given back.
    pub fn lost_space_bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.lost_space_bytes()).sum()
    }

    /// What was found since this was last asked, by reads, by destage and by scrubs.
    pub fn take_damage(&self) -> Vec<Damage> {
        self.slices.iter().flat_map(|slice| slice.take_damage()).collect()
    }

    /// What was given up and is not given back yet, by volume, what is next first.
    pub fn being_removed(&self) -> Vec<Removal> {
        self.slices.iter().flat_map(|slice| slice.being_removed()).collect()
    }

    /// For tests of what happens then: of each of the next so many blocks with data in RAM that are destaged, a bit
    /// flips between receipt and destage.
    pub fn flip_bits(&self, blocks: u64) {
        self.first().flip_bits(blocks);
    }

    /// An object of the catalog.
    pub fn get(&self, kind: ObjectKind, key: &str) -> Option<Vec<u8>> {
        self.first().catalog.get(kind, key)
    }

    /// The objects of a kind, ordered by key.
    pub fn list(&self, kind: ObjectKind) -> Vec<(String, Vec<u8>)> {
        self.first().catalog.list(kind)
    }

    /// An id for a new volume. It is never given to another once a transaction that creates it is committed.
    pub fn next_volume_id(&self) -> VolumeId {
        self.first().next_volume_id()
    }

    /// Makes the changes of a transaction, all or none, hardened on return. Transactions take effect in the
    /// order in which they return. Forks of volumes hold every write acknowledged before the call, none that began after
    /// its return, and no write without those that it could have depended on.
    pub fn commit(&self, transaction: Transaction) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move { self.first().commit(transaction).await })
    }

    /// Makes a checkpoint of what has been destaged so far.
    pub fn checkpoint(&self) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            for slice in &self.slices {
                slice.checkpoint().await?;
            }
            Ok(())
        })
    }

    /// Destages everything acknowledged before the call, then makes a checkpoint.
    pub fn drain(&self) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            for slice in &self.slices {
                slice.drain().await?;
            }
            Ok(())
        })
    }
}

/// Volumes.
impl Pool {
    /// For each volume the layer at the root of its tree: volumes with the same one are related by snapshots and clones, and
    /// what deleting one frees may depend on whether the others are there.
    pub fn families(&self) -> BTreeMap<VolumeId, LayerId> {
        self.first().families()
    }

    /// A volume in figures; `None` if there is none of this id.
    pub fn volume_stats(&self, volume: VolumeId) -> Option<VolumeStats> {
        self.slice_of(volume).volume_stats(volume)
    }

    /// Reads a range, a multiple of 512 at both ends: the slices, one after the other, are its content.
    pub async fn read(&self, volume: VolumeId, range: ByteRange) -> Result<Vec<Bytes>, PoolError> {
        self.slice_of(volume).read_for_host(volume, range).await
    }

    /// Writes the slices one after the other from byte `offset` on, hardened on return. Offset and lengths are
    /// multiples of 512, and each slice begins at a multiple of 512 in memory.
    pub async fn write(&self, volume: VolumeId, offset: u64, data: Vec<Bytes>) -> Result<(), PoolError> {
        self.slice_of(volume).write(volume, offset, data).await
    }

    /// Makes a range read as zeroes and gives its space back, hardened on return. Where a volume shares its map with
    /// others that takes copies of nodes: a pool that has no room for more of them says so.
    pub fn unmap(&self, volume: VolumeId, range: ByteRange) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move { self.slice_of(volume).unmap(volume, range).await })
    }

    /// Which parts of a range, a multiple of 512 at both ends, are mapped: at most `limit` extents, the first
    /// from the range's beginning on, each next one behind its predecessor and of the other kind. A call looks
    /// at no more than 16 GiB; the extents then end before the range does.
    pub fn allocation(
        &self,
        volume: VolumeId,
        range: ByteRange,
        limit: usize,
    ) -> Compiled<'_, Result<Vec<Extent>, PoolError>> {
        Box::pin(async move { self.slice_of(volume).allocation(volume, range, limit).await })
    }

    /// Gives a volume an end: when this returns, no record of a write, unmap or copy that reaches beyond `end` bytes is
    /// appended any more, whenever the request began. Not kept when the pool is closed.
    pub fn end_volume(&self, volume: VolumeId, end: u64) -> Result<(), PoolError> {
        self.slice_of(volume).end_volume(volume, end)
    }

    /// Whether anything but zeroes may be read from byte `from` on. `from` is a multiple of 512. Exact to a block,
    /// while nobody writes there.
    pub fn is_mapped_from(&self, volume: VolumeId, from: u64) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move { self.slice_of(volume).is_mapped_from(volume, from).await })
    }

    /// Makes all from byte `from` on read as zeroes and gives its space back, hardened on return. `from` is a multiple
    /// of 512. Nobody may write there meanwhile: see [`Pool::end_volume`].
    pub fn unmap_from(&self, volume: VolumeId, from: u64) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move { self.slice_of(volume).unmap_from(volume, from).await })
    }

    /// Those parts of a range, whole pool blocks, that still cannot be read from drives.
    pub fn still_damaged(
        &self,
        volume: VolumeId,
        range: ByteRange,
    ) -> Compiled<'_, Result<Vec<ByteRange>, PoolError>> {
        Box::pin(async move { self.slice_of(volume).still_damaged(volume, range).await })
    }

    /// Waits until a volume that was just forked from another can be copied from: its map is its own, and durable.
    pub fn settle_fork(&self, volume: VolumeId) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move { self.slice_of(volume).settle_fork(volume).await })
    }

    /// Waits until nothing that was copied so far needs the volume it was copied from: from then on that may be deleted.
    pub fn settle_copies(&self) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            for slice in &self.slices {
                slice.settle_copies().await?;
            }
            Ok(())
        })
    }

    /// Gives a range of `target` what `source` holds from byte `from` on, as far as it gets in one step: at most 4 MiB of
    /// what is mapped, or a hole. Hardened on return; returns how many bytes of the range are done. `source` is a volume
    /// that was forked for the purpose, is settled, and that nobody writes to. Whole blocks are shared where the two
    /// ranges lie alike within blocks; everything else is copied as data.
    pub fn copy_some(
        &self,
        source: VolumeId,
        from: u64,
        target: VolumeId,
        range: ByteRange,
    ) -> Compiled<'_, Result<u64, PoolError>> {
        Box::pin(async move { self.slice_of(target).copy_some(source, from, target, range).await })
    }
}
