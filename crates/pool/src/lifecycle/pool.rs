//! A pool that is open, as the layers above see it: calls about a volume go to the slice that holds it.
//!
//! The highest bits of a volume's id say which slice that is. Figures of the pool are sums over its slices.

use crate::{
    error::PoolError,
    fork::copy::unreadable,
    integrity::damage::Damage,
    lifecycle::{
        missing::{Held, missing_drives},
        open::{ReadSlice, look},
        options::PoolOptions,
        slice::Slice,
        spanning::{Decided, Spanning},
        stats::{PoolStats, RecoveryStats, Removal, SliceSpace, VolumeStats},
    },
    meta::{ObjectKind, Transaction},
    space::report::{PoolSpace, ReductionEstimate, VolumeSpace},
    store::{Store, health::PoolState, repairs::RepairCounts},
};
use futures_util::future::join_all;
use quoin_base::{ByteRange, DriveIndex, Extent, LayerId, MIB, PoolId, SliceId, VolumeId};
use quoin_drive::{Drive, Members};
use quoin_world::{Compiled, Slice as Bytes, World};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// How often a promise is tried again if there was room for it and other writes took that room first.
const RESERVE_TRIES: u32 = 4;
/// The most that one step of a copy between slices reads and writes.
const ACROSS_BYTES: u64 = MIB;

/// A pool that is open. Calls that do I/O are made on a thread of the array.
pub struct Pool {
    store: Arc<Store>,
    /// By number; never empty.
    slices: Vec<Arc<Slice>>,
    spanning: Spanning,
    recovery: RecoveryStats,
    mended: Vec<String>,
}

impl Pool {
    /// Opens a pool: takes it over with a new epoch, recovers what the last owner acknowledged, and serves. Drives that it needs
    /// may be missing if it can do without them: they are absent then.
    ///
    /// # Errors
    /// [`PoolError::Drive`] if drives are missing, fail, or were taken over by another owner;
    /// [`PoolError::Unopenable`] or [`PoolError::Corrupt`] if what they hold cannot be recovered.
    pub fn open(
        world: Arc<dyn World>,
        drives: Vec<Arc<Drive>>,
        options: PoolOptions,
    ) -> Compiled<'static, Result<Arc<Pool>, PoolError>> {
        Box::pin(async move {
            let started = world.now();
            let held = async |store, slice| {
                let (is_closed, lost) = look(store, slice).await?;
                Ok(Held { is_closed, lost })
            };
            let missing = missing_drives(&drives, options.without_missing, held).await?;
            let store = Store::take_over_without(drives, (&missing, world.wall_clock_ms())).await?;
            let store = Arc::new(store);
            store.set_world(world.clone());
            store.columns().keep_time_by(world.clone());
            let takeover = world.now().since(started);
            let mut mended = store.damaged().to_vec();
            mended.iter().for_each(|what| tracing::warn!(pool = %store.pool_name(), "{what}"));
            let (slices, spanning) = open_slices(&world, &store, &options).await?;
            mended.extend(slices.iter().flat_map(|slice| slice.recovered().mended().to_vec()));
            let mut recovery = RecoveryStats { takeover, ..RecoveryStats::default() };
            slices.iter().for_each(|slice| recovery.add(slice.recovered().stats()));
            recovery.duration = world.now().since(started);
            tracing::info!(
                pool = %store.pool_name(),
                records = recovery.replayed_records,
                bytes = recovery.replayed_bytes,
                torn = recovery.torn_batches,
                took = ?recovery.duration,
                takeover = ?recovery.takeover,
                checkpoint = ?recovery.checkpoint,
                journal = ?recovery.journal,
                replay = ?recovery.replay,
                "pool opened"
            );
            Ok(Arc::new(Pool { store, slices, spanning, recovery, mended }))
        })
    }

    /// Stops the pool cleanly: everything is destaged and checkpointed, so that the next opening replays
    /// nothing. Requests made meanwhile or later fail.
    ///
    /// # Errors
    /// [`PoolError::Offline`] if the pool is or goes offline before all is destaged, [`PoolError::NoSpace`] if it lost drives and
    /// has no slabs for that. It is closed nevertheless: the next opening replays the journal.
    pub fn close(&self) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            self.stop_waiting_for_room();
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

    /// Gives up what waits for room on a file system under a drive, before the pool is closed: it goes offline if anything
    /// does, and requests that would have to wait fail.
    pub fn stop_waiting_for_room(&self) {
        self.store.stop_waiting_for_room();
    }

    /// The slice with number 0.
    #[cfg(test)]
    pub(crate) fn first(&self) -> &Arc<Slice> {
        &self.slices[0]
    }

    pub(crate) fn slices(&self) -> &[Arc<Slice>] {
        &self.slices
    }

    /// A slice that there is.
    pub(crate) fn slice(&self, id: SliceId) -> &Arc<Slice> {
        &self.slices[usize::from(id.0)]
    }

    /// What is known of transactions that span slices.
    pub(crate) fn spanning(&self) -> &Spanning {
        &self.spanning
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The slice that holds a volume.
    pub(crate) fn slice_of(&self, volume: VolumeId) -> Result<&Arc<Slice>, PoolError> {
        self.slices.get(usize::from(volume.slice().0)).ok_or(PoolError::NoSuchVolume(volume))
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

    /// Whether another owner has taken it over: it is offline then, or will be with its next write.
    pub fn is_taken_over(&self) -> bool {
        self.store.is_expelled()
    }

    /// Notes that one of its drives does not answer any more. The pool goes offline, unless it can do without the drive: then
    /// the journal writes that wait for the drive fail, and that takes the drive out of the journal.
    pub fn drive_is_lost(&self, drive: &str, reason: String) {
        if !self.store.may_do_without(drive) {
            self.take_offline(reason);
        }
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

    /// Whether drives were lost, and those that are left have no slab for what hosts wrote before. Writes are refused then.
    pub fn is_short_of_slabs(&self) -> bool {
        self.store.is_short_of_slabs()
    }

    /// What was found damaged or unreadable when it was opened, where nothing is lost by it, in words: it was written
    /// anew from another copy, or will be when its place is used again.
    pub fn mended(&self) -> &[String] {
        &self.mended
    }

    /// How many slices it has.
    pub fn slice_count(&self) -> usize {
        self.slices.len()
    }

    /// What its slices have of the space, in their order.
    pub fn slice_space(&self) -> impl Iterator<Item = SliceSpace> + '_ {
        self.slices.iter().map(|slice| slice.slice_space())
    }

    /// Which drives it has, and once had.
    pub fn members(&self) -> Arc<Members> {
        self.store.members()
    }

    /// The drive with a number, if it is open.
    pub fn drive(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        self.store.drive(index)
    }

    /// What opening it took.
    pub fn recovery(&self) -> RecoveryStats {
        self.recovery
    }

    /// The pool in figures. Ungranted slabs count as free: any slice may take them.
    pub fn stats(&self) -> PoolStats {
        let mut sum = PoolStats::default();
        self.slices.iter().for_each(|slice| sum.add(&slice.stats()));
        let slabs = self.slices[0].space.overhead().net(self.store.nobodys_slabs());
        let (holds, takes) = (self.slices[0].segments.table.slab_bytes(), self.bytes_for_hosts(slabs));
        sum.capacity_bytes += slabs * holds;
        (sum.segments, sum.free_segments) = (sum.segments + slabs, sum.free_segments + slabs);
        (sum.usable_bytes, sum.free_bytes) = (sum.usable_bytes + takes, sum.free_bytes + takes);
        let RepairCounts { data, copies, parity, metadata } = self.store.repairs();
        (sum.repaired_data, sum.repaired_copies) = (data, copies);
        (sum.repaired_parity, sum.repaired_metadata) = (parity, metadata);
        sum
    }

    /// What all volumes have of the pool's space.
    pub fn space(&self) -> PoolSpace {
        let mut sum = PoolSpace { settled: true, ..PoolSpace::default() };
        self.slices.iter().for_each(|slice| sum.add(&slice.forks.space()));
        sum
    }

    /// What volumes have of the pool's space, all together: what deleting all of them frees may be more than the sum of
    /// what deleting each frees.
    pub fn space_of(&self, volumes: &BTreeSet<VolumeId>) -> VolumeSpace {
        let mut sum = VolumeSpace::default();
        self.slices.iter().for_each(|slice| sum.add(&slice.forks.space_of(volumes)));
        sum
    }

    /// What compression and deduplication save on what is destaged of a volume, by a few thousand of its blocks at the most: that
    /// takes as many reads of metadata at the most.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Offline`].
    pub fn estimate_reduction(&self, volume: VolumeId) -> Compiled<'_, Result<ReductionEstimate, PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.estimate_reduction(volume).await })
    }

    /// At most so many bytes are taken by blocks that damaged metadata led to: they are never given back.
    pub fn lost_space_bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.lost_space_bytes()).sum()
    }

    /// What was found since this was last asked, by reads, by destage and by scrubs.
    pub fn take_damage(&self) -> Vec<Damage> {
        self.slices.iter().flat_map(|slice| slice.take_damage()).collect()
    }

    /// Repairs since this was last asked, by the name of the drive that held something wrong or could not read it.
    pub fn take_repairs(&self) -> Vec<(String, RepairCounts)> {
        self.store.take_repairs()
    }

    /// What was given up and is not given back yet, by volume, what is next first.
    pub fn being_removed(&self) -> Vec<Removal> {
        self.slices.iter().flat_map(|slice| slice.forks.being_removed()).collect()
    }

    /// For tests of what happens then: of each of the next so many blocks with data in RAM that are destaged, a bit
    /// flips between receipt and destage.
    pub fn flip_bits(&self, blocks: u64) {
        self.slices.iter().for_each(|slice| slice.flips().add(blocks));
    }

    /// An object of the catalog.
    pub fn get(&self, kind: ObjectKind, key: &str) -> Option<Vec<u8>> {
        self.slices.iter().find_map(|slice| slice.metadata.catalog.get(kind, key))
    }

    /// The objects of a kind, ordered by key.
    pub fn list(&self, kind: ObjectKind) -> Vec<(String, Vec<u8>)> {
        let mut objects: Vec<_> =
            self.slices.iter().flat_map(|slice| slice.metadata.catalog.list(kind)).collect();
        objects.sort_unstable();
        objects
    }

    /// An id for a new volume, in the slice whose volumes take the least: slabs go where they are needed, and
    /// the load is spread evenly over the slices. It is never given to another once a transaction that creates
    /// it is committed.
    pub fn next_volume_id(&self) -> VolumeId {
        let emptiest = self.slices.iter().min_by_key(|slice| slice.taken_by_volumes());
        emptiest.unwrap_or(&self.slices[0]).next_volume_id()
    }

    /// An id for a new volume in the slice of another, as forks need it.
    pub fn next_volume_id_near(&self, volume: VolumeId) -> VolumeId {
        self.slice_of(volume).unwrap_or(&self.slices[0]).next_volume_id()
    }

    /// Makes the changes of a transaction, all or none, hardened on return. Transactions take effect in the
    /// order in which they return. Forks of volumes hold every write acknowledged before the call, none that began after
    /// its return, and no write without those that it could have depended on.
    ///
    /// # Errors
    /// [`PoolError::Refused`], [`PoolError::NoSuchVolume`] or [`PoolError::CannotReserve`] if a change is
    /// impossible: nothing changed then. After [`PoolError::Offline`] only the next opening tells whether the
    /// transaction counts.
    pub fn commit(&self, transaction: Transaction) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            for _ in 0..RESERVE_TRIES {
                match self.try_commit(transaction.clone()).await {
                    // What room was made may have been taken meanwhile, and there is more.
                    Err(PoolError::CannotReserve { wanted_bytes, free_bytes })
                        if wanted_bytes <= free_bytes => {}
                    outcome => return outcome,
                }
            }
            self.try_commit(transaction).await
        })
    }

    async fn try_commit(&self, transaction: Transaction) -> Result<(), PoolError> {
        match &self.slices[..] {
            [only] => only.commit(transaction).await,
            _ => self.commit_in_slices(transaction).await,
        }
    }

    /// Makes a checkpoint of what has been destaged so far, of all slices at the same time.
    ///
    /// # Errors
    /// [`PoolError::Offline`] if the pool is or goes offline. The checkpoint before stays in force then.
    pub fn checkpoint(&self) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            let checkpoints = self.slices.iter().map(|slice| slice.checkpoint());
            join_all(checkpoints).await.into_iter().collect()
        })
    }

    /// Destages everything acknowledged before the call, then makes a checkpoint, of all slices at the same time.
    ///
    /// # Errors
    /// [`PoolError::Offline`] if the pool is or goes offline; what was acknowledged is in the journal then. [`PoolError::NoSpace`] if
    /// it lost drives and has no slabs for some of it, which stays in the journal.
    pub fn drain(&self) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            join_all(self.slices.iter().map(|slice| slice.drain())).await.into_iter().collect()
        })
    }
}

/// Volumes.
impl Pool {
    /// For each volume the layer at the root of its tree: volumes with the same one are related by snapshots and clones, and
    /// what deleting one frees may depend on whether the others are there.
    pub fn families(&self) -> BTreeMap<VolumeId, (SliceId, LayerId)> {
        let of = |slice: &Arc<Slice>| {
            let id = slice.id();
            slice.forks.families().into_iter().map(move |(volume, root)| (volume, (id, root)))
        };
        self.slices.iter().flat_map(of).collect()
    }

    /// A volume in figures; `None` if there is none of this id.
    pub fn volume_stats(&self, volume: VolumeId) -> Option<VolumeStats> {
        self.slice_of(volume).ok()?.forks.volume_stats(volume)
    }

    /// Reads a range, a multiple of 512 at both ends: the slices, one after the other, are its content.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Refused`] for a range that is no multiple of 512 or that no
    /// volume can hold; [`PoolError::Medium`] with the first block that cannot be read back correctly;
    /// [`PoolError::Offline`].
    pub async fn read(&self, volume: VolumeId, range: ByteRange) -> Result<Vec<Bytes>, PoolError> {
        self.slice_of(volume)?.read_for_host(volume, range).await
    }

    /// Writes the slices one after the other from byte `offset` on, hardened on return. Offset and lengths are
    /// multiples of 512, and each slice begins at a multiple of 512 in memory.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Refused`] for a range that is no multiple of 512 or that no
    /// volume can hold; [`PoolError::BeyondEnd`] and [`PoolError::NoSpace`], after which a part that lies
    /// before may be written. After [`PoolError::Offline`] the range may hold old data, new data or a
    /// mixture.
    pub async fn write(&self, volume: VolumeId, offset: u64, data: Vec<Bytes>) -> Result<(), PoolError> {
        self.slice_of(volume)?.write(volume, offset, data).await
    }

    /// Makes a range read as zeroes and gives its space back, hardened on return. Where a volume shares its map with
    /// others that takes copies of nodes: a pool that has no room for more of them says so.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Refused`] for a range that is no multiple of 512 or that no
    /// volume can hold; [`PoolError::NoSpace`] if there is no room for copies of nodes;
    /// [`PoolError::Offline`], after which a part may be unmapped.
    pub fn unmap(&self, volume: VolumeId, range: ByteRange) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.unmap(volume, range).await })
    }

    /// Which parts of a range, a multiple of 512 at both ends, are mapped: at most `limit` extents, the first
    /// from the range's beginning on, each next one behind its predecessor and of the other kind. A call looks
    /// at no more than 16 GiB; the extents then end before the range does.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Refused`] for a range that is no multiple of 512;
    /// [`PoolError::Offline`]. Parts whose map is damaged are no error: they count as mapped.
    pub fn allocation(
        &self,
        volume: VolumeId,
        range: ByteRange,
        limit: usize,
    ) -> Compiled<'_, Result<Vec<Extent>, PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.allocation(volume, range, limit).await })
    }

    /// Gives a volume an end: when this returns, no record of a write, unmap or copy that reaches beyond `end` bytes is
    /// appended any more, whenever the request began. Not kept when the pool is closed.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`].
    pub fn end_volume(&self, volume: VolumeId, end: u64) -> Result<(), PoolError> {
        self.slice_of(volume)?.end_volume(volume, end)
    }

    /// Whether anything but zeroes may be read from byte `from` on. `from` is a multiple of 512. Exact to a block,
    /// while nobody writes there.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Medium`] if what may be data cannot be read;
    /// [`PoolError::Offline`].
    pub fn is_mapped_from(&self, volume: VolumeId, from: u64) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.is_mapped_from(volume, from).await })
    }

    /// Makes all from byte `from` on read as zeroes and gives its space back, hardened on return. `from` is a multiple
    /// of 512. Nobody may write there meanwhile: see [`Pool::end_volume`].
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::NoSpace`] if there is no room for copies of nodes;
    /// [`PoolError::Offline`], after which a part may be unmapped.
    pub fn unmap_from(&self, volume: VolumeId, from: u64) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.unmap_from(volume, from).await })
    }

    /// Those parts of a range, whole pool blocks, that still cannot be read from drives.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`] if no slice could have the volume; [`PoolError::Offline`] if the pool goes
    /// offline meanwhile.
    pub fn still_damaged(
        &self,
        volume: VolumeId,
        range: ByteRange,
    ) -> Compiled<'_, Result<Vec<ByteRange>, PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.still_damaged(volume, range).await })
    }

    /// Waits until a volume that was just forked from another can be copied from: its map is its own, and durable.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`] if the fork is deleted meanwhile; [`PoolError::Offline`]; [`PoolError::NoSpace`] if there is
    /// no room on the drives for what is to be destaged.
    pub fn settle_fork(&self, volume: VolumeId) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            let slice = self.slice_of(volume)?;
            self.store.unless_short_of_room(slice.settle_fork(volume)).await
        })
    }

    /// Waits until nothing that was copied so far needs the volume it was copied from: from then on that may be deleted. What
    /// is buffered is left to destage at its own pace for as long as `patience` says; then it is drained.
    ///
    /// # Errors
    /// [`PoolError::Offline`] if the pool is or goes offline; [`PoolError::NoSpace`] if there is no room on the drives
    /// for what is to be destaged.
    pub fn settle_copies(&self, patience: std::time::Duration) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            for slice in &self.slices {
                self.store.unless_short_of_room(slice.settle_copies(patience)).await?;
            }
            Ok(())
        })
    }

    /// Gives a range of `target` what `source` holds from byte `from` on, as far as it gets in one step: at most 64 MiB of
    /// what is mapped, or a hole. Hardened on return; returns how many bytes of the range are done. `source` is a volume
    /// that was forked for the purpose, is settled, and that nobody writes to. Whole blocks are shared where the two
    /// ranges lie alike within blocks; everything else is copied as data.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Refused`] if the ranges are no multiples of 512 or `source`
    /// has not settled; [`PoolError::Medium`], of the source, if it cannot be read; otherwise the errors of
    /// [`Pool::write`] to the target.
    pub fn copy_some(
        &self,
        source: VolumeId,
        from: u64,
        target: VolumeId,
        range: ByteRange,
    ) -> Compiled<'_, Result<u64, PoolError>> {
        Box::pin(async move {
            if source.slice() == target.slice() {
                self.slice_of(target)?.copy_some(source, from, target, range).await
            } else {
                self.copy_across(source, from, target, range).await
            }
        })
    }

    /// A step of a copy between slices: blocks cannot be shared, so data is read and written.
    async fn copy_across(
        &self,
        source: VolumeId,
        from: u64,
        target: VolumeId,
        range: ByteRange,
    ) -> Result<u64, PoolError> {
        let (source_slice, target_slice) = (self.slice_of(source)?, self.slice_of(target)?);
        if range.len == 0 {
            return Ok(0);
        }
        let found = source_slice.allocation(source, ByteRange::new(from, range.len), 1).await;
        let found = found.map_err(|error| unreadable(source, from, error))?;
        let len = found.first().map_or(range.len, |extent| extent.range.len.min(range.len));
        if found.first().is_some_and(|extent| !extent.mapped) {
            target_slice.unmap(target, ByteRange::new(range.offset, len)).await?;
            return Ok(len);
        }
        let len = len.min(ACROSS_BYTES);
        let read = source_slice.read(source, ByteRange::new(from, len)).await;
        let data = read.map_err(|error| unreadable(source, from, error))?;
        target_slice.write(target, range.offset, data).await?;
        Ok(len)
    }
}

/// Recovers and serves the slices of a store that was taken over.
async fn open_slices(
    world: &Arc<dyn World>,
    store: &Arc<Store>,
    options: &PoolOptions,
) -> Result<(Vec<Arc<Slice>>, Spanning), PoolError> {
    let mut read = Vec::new();
    for id in store.slices() {
        read.push(ReadSlice::read(&**world, store.clone(), id).await?);
    }
    // What spans slices is replayed in all of them or in none: all are asked first.
    let mut decided = Decided::default();
    if read.len() > 1 {
        for slice in &read {
            slice.note_decisions(&mut decided).await?;
        }
    }
    let options = options.divided(read.len());
    let mut recovered = Vec::new();
    for slice in read {
        recovered.push(slice.recover(world.clone(), options.clone(), &mut decided).await?);
    }
    // Nothing is written before all of them could be recovered.
    let slices: Vec<_> = recovered.into_iter().map(Arc::new).collect();
    for slice in &slices {
        // Before any takes more.
        if let Err(error) = slice.claim_least().await {
            store.health().fail(error.to_string());
            return Err(error);
        }
    }
    for slice in &slices {
        if let Err(error) = slice.start().await {
            store.health().fail(error.to_string());
            return Err(error);
        }
    }
    let spanning = Spanning::new(decided.into_decisions(&slices));
    Ok((slices, spanning))
}
