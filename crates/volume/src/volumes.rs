//! All volumes of a pool: created, found, deleted, and restored from the pool's catalog.

use crate::{
    BlockDevice, PoolSlot, Volume, VolumeError, VolumeSpec,
    copy_record::{Copies, read_copies},
    error::refused,
    group::Groups,
    image::Images,
    kept::KeptObjects,
    known::{Bin, Known},
    marking::Marking,
    record::{TAGS_OBJECT, VOLUME_OBJECT, VolumeRecord},
    reduction::reduce,
    retention_clock::RetentionClock,
};
use parking_lot::Mutex;
use quoin_base::{Compression, VolumeId};
use quoin_pool::{Pool, Transaction};
use quoin_world::{AsyncMutex, World};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// What [`Volumes::restore`] changed.
#[derive(Debug, Default)]
pub struct Restored {
    /// Volumes that were not known before.
    pub added: Vec<Arc<Volume>>,
    /// Volumes that are no longer in the catalog.
    pub removed: Vec<Arc<Volume>>,
}

/// The volumes of the pool in a slot. Changes are made one after the other, each in one transaction.
pub struct Volumes {
    pub(crate) world: Arc<dyn World>,
    slot: Arc<PoolSlot>,
    pub(crate) known: Mutex<Known>,
    /// Deleted volumes that can be restored. Of this lock and that of `known` at most one is held.
    pub(crate) bin: Mutex<Bin>,
    pub(crate) groups: Mutex<Groups>,
    /// Copies of ranges that are not ended.
    pub(crate) copies: Mutex<Copies>,
    /// The clock by which snapshots are immutable and deleted volumes are kept; none while there are neither.
    pub(crate) retention: Mutex<Option<RetentionClock>>,
    pub(crate) changes: Arc<AsyncMutex>,
    /// A task that empties the former tails of volumes, one after the other, holds another handle on it.
    pub(crate) trims: Arc<()>,
    /// Images from which hosts had ranges copied.
    pub(crate) images: Arc<Images>,
}

impl Volumes {
    /// No volumes yet: [`Volumes::restore`] finds them once a pool is open.
    pub fn new(world: Arc<dyn World>, slot: Arc<PoolSlot>) -> Self {
        let (known, bin, groups, copies) =
            (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        let (retention, changes) = (Mutex::default(), Arc::new(AsyncMutex::new()));
        let (trims, images) = (Arc::new(()), Arc::default());
        Self { world, slot, known, bin, groups, copies, retention, changes, trims, images }
    }

    /// Reads the volumes from the catalog of a newly opened pool. Volumes known before keep their objects.
    ///
    /// # Errors
    /// [`VolumeError::Record`] for an object of the catalog that this version cannot read. Which volumes are
    /// known stays as it was.
    pub fn restore(&self, pool: &Arc<Pool>) -> Result<Restored, VolumeError> {
        // All is read before anything is changed: a record that cannot be read leaves the volumes as they were.
        let tags: BTreeMap<_, _> = pool.list(TAGS_OBJECT).into_iter().collect();
        let records = pool
            .list(VOLUME_OBJECT)
            .into_iter()
            .map(|(key, value)| VolumeRecord::decode(&key, &value, tags.get(&key).map(Vec::as_slice)))
            .collect::<Result<Vec<_>, _>>()?;
        // NOTE: all is read before anything changes. An object that cannot be read leaves all as it was.
        let (groups, copies) = (Groups::read(pool)?, read_copies(pool)?);
        let mut kept = KeptObjects::read(pool);
        self.restore_clock(pool, &records)?;
        // Those in the recycle bin apart from the others.
        let (binned, records): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.deleted.is_some());
        self.restore_bin(&binned, &mut kept);
        let mut known = self.known.lock();
        // A volume that was known keeps its object, which hosts may hold.
        let mut before = known.take();
        let mut restored = Restored::default();
        for record in records {
            let volume = match before.remove(&record.id) {
                Some(volume) => {
                    volume.update(&record);
                    volume
                }
                None => {
                    let volume = Arc::new(self.object(&record));
                    restored.added.push(volume.clone());
                    volume
                }
            };
            kept.restore(&volume);
            known.insert(volume);
        }
        // What the catalog no longer has was deleted.
        // What is left over is not in the catalog.
        before.values().for_each(|volume| volume.mark_deleted());
        restored.removed.extend(before.into_values());
        *self.groups.lock() = groups;
        *self.copies.lock() = copies;
        self.images.restore(pool);
        Ok(restored)
    }

    /// Takes over which volumes are in the recycle bin.
    fn restore_bin(&self, records: &[VolumeRecord], kept: &mut KeptObjects) {
        let mut bin = self.bin.lock();
        let mut before = std::mem::take(&mut *bin);
        for record in records {
            let volume = before.remove(&record.id).unwrap_or_else(|| Arc::new(self.object(record)));
            volume.mark_deleted();
            volume.update(record);
            kept.restore(&volume);
            bin.insert(record.id, volume);
        }
    }

    /// All volumes, oldest first; those in the recycle bin are not among them.
    pub fn list(&self) -> Vec<Arc<Volume>> {
        self.known.lock().values().cloned().collect()
    }

    /// The snapshots and clones of a volume, oldest first; those in the recycle bin are not among them.
    pub fn forks_of(&self, source: VolumeId) -> Vec<Arc<Volume>> {
        self.known.lock().forks_of(source).cloned().collect()
    }

    /// Whether a volume was shrunk and its former tail is not emptied.
    pub fn is_any_trimming(&self) -> bool {
        self.known.lock().trimming().next().is_some()
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`].
    pub fn get(&self, name: &str) -> Result<Arc<Volume>, VolumeError> {
        self.find(name).ok_or_else(|| VolumeError::NotFound { name: name.to_owned() })
    }

    /// The volume of this id.
    pub fn by_id(&self, id: VolumeId) -> Option<Arc<Volume>> {
        self.known.lock().get(id).cloned()
    }

    /// Creates a volume; commits `with` in the same transaction.
    ///
    /// # Errors
    /// The errors of [`VolumeSpec::check`]; [`VolumeError::Exists`]; [`VolumeError::CannotReserve`] if it is
    /// thick. [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction.
    pub async fn create(&self, spec: VolumeSpec, with: Transaction) -> Result<Arc<Volume>, VolumeError> {
        self.create_where(spec, None, with).await
    }

    /// Creates a volume in the slice of another one; commits `with` in the same transaction.
    ///
    /// # Errors
    /// Those of [`Volumes::create`].
    pub async fn create_near(
        &self,
        spec: VolumeSpec,
        near: &Volume,
        with: Transaction,
    ) -> Result<Arc<Volume>, VolumeError> {
        self.create_where(spec, Some(near.id()), with).await
    }

    async fn create_where(
        &self,
        spec: VolumeSpec,
        near: Option<VolumeId>,
        with: Transaction,
    ) -> Result<Arc<Volume>, VolumeError> {
        spec.check()?;
        let _turn = self.changes.lock().await;
        self.require_free(&spec.name)?;
        let pool = self.pool()?;
        let id = near.map_or_else(|| pool.next_volume_id(), |near| pool.next_volume_id_near(near));
        // One transaction creates the address space, its record and its reservation.
        let layout = spec.policy.layout;
        // What is off stays off without being said.
        let compression = spec.policy.compression.filter(|compression| *compression != Compression::Off);
        let deduplication = spec.policy.deduplication.filter(|is_on| *is_on);
        let record = VolumeRecord::new(id, self.random_uuid(), self.world.wall_clock_ms(), spec);
        // One transaction: the address space, the record, and the space that is kept for it.
        let mut tx = record.put(with.create_volume(id), None);
        if layout.is_some() {
            tx = tx.lay_out(id, layout);
        }
        tx = reduce(tx, id, (compression, deduplication));
        if record.space.thick {
            tx = tx.reserve(id, record.reserved_bytes());
        }
        pool.commit(tx).await.map_err(|error| refused(&record.name, error))?;
        Ok(self.add(&record))
    }

    /// Deletes volumes for good; their space is reclaimed in the background. Commits `with` in the same transaction.
    ///
    /// # Errors
    /// The error of the first volume that may not be deleted: it is immutable, has immutable snapshots, or is
    /// copied into. [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails
    /// the transaction.
    pub async fn delete(&self, volumes: &[Arc<Volume>], with: Transaction) -> Result<(), VolumeError> {
        let _turn = self.changes.lock().await;
        self.require_deletable(volumes)?;
        let pool = self.pool()?;
        // A volume leaves its group in the same transaction.
        // One transaction: their records, what groups say of them, and their address spaces.
        let mut groups = self.groups.lock().clone();
        let mut tx = with;
        for volume in volumes {
            assert!(!volume.is_immutable(), "volume {} is deleted while it is immutable", volume.id());
            tx = volume.record().delete(tx).delete_volume(volume.id());
            groups.forget(volume.id());
        }
        tx = groups.put(tx, &self.groups.lock());
        pool.commit(tx).await?;
        *self.groups.lock() = groups;
        let mut known = self.known.lock();
        for volume in volumes {
            volume.mark_deleted();
            known.remove(volume.id());
        }
        Ok(())
    }

    /// Refuses a name that a volume has.
    pub(crate) fn require_free(&self, name: &str) -> Result<(), VolumeError> {
        match self.find(name) {
            None => Ok(()),
            Some(existing) => Err(VolumeError::Exists {
                name: name.to_owned(),
                size_bytes: existing.size_bytes(),
                uuid: existing.uuid(),
            }),
        }
    }

    fn object(&self, record: &VolumeRecord) -> Volume {
        let marking =
            Marking { world: self.world.clone(), changes: self.changes.clone(), images: self.images.clone() };
        Volume::new(self.slot.clone(), marking, record)
    }

    /// Takes up a volume that has come to be.
    pub(crate) fn add(&self, record: &VolumeRecord) -> Arc<Volume> {
        let volume = Arc::new(self.object(record));
        self.known.lock().insert(volume.clone());
        volume
    }

    /// The same for one that was deleted and is back.
    pub(crate) fn add_again(&self, record: &VolumeRecord, before: &Volume) -> Arc<Volume> {
        let volume = Arc::new(self.object(record).succeeding(before));
        self.known.lock().insert(volume.clone());
        volume
    }

    /// Whether a volume is what its id stands for now: not one that was deleted, whether it came back since or not.
    pub(crate) fn is_current(&self, volume: &Arc<Volume>) -> bool {
        self.by_id(volume.id()).is_some_and(|now| Arc::ptr_eq(&now, volume))
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Volume>> {
        self.known.lock().named(name).cloned()
    }

    pub(crate) fn pool(&self) -> Result<Arc<Pool>, VolumeError> {
        self.slot.get().map_err(|reason| VolumeError::Offline { reason })
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.world.wall_clock_ms()
    }

    pub(crate) fn random_uuid(&self) -> Uuid {
        let bits = u128::from(self.world.random_u64()) << 64 | u128::from(self.world.random_u64());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}
