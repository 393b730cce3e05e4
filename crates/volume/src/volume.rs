//! One volume: a named, sized address space of the pool.

use crate::{
    BlockDevice, DeviceError, Folder, Instruments, Kept, Origin, PoolSlot, Provisioning, Tags, Thresholds,
    VolumeError,
    image::{Image, Latest},
    kept::KeptBytes,
    marking::Marking,
    record::VolumeRecord,
};
use parking_lot::RwLock;
use quoin_base::{ByteRange, Compression, Extent, SECTOR_BYTES, VolumeId};
use quoin_drive::DriveError;
use quoin_pool::{Pool, PoolError, VolumeStats};
use quoin_qos::Throttle;
use quoin_world::{AsyncMutex, Buf, Gate, GatePass, Slice};
use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use uuid::Uuid;

/// A volume. Lives as long as anyone holds it; after its deletion every request is refused.
pub struct Volume {
    slot: Arc<PoolSlot>,
    id: VolumeId,
    uuid: Uuid,
    block_bytes: u32,
    record: RwLock<VolumeRecord>,
    /// This and the next five as in the record, for every request.
    size_bytes: AtomicU64,
    thick: AtomicBool,
    template: AtomicBool,
    immutable: AtomicBool,
    protected: AtomicBool,
    /// It is a snapshot that has not changed since it was taken.
    pub(crate) pristine: AtomicBool,
    /// It rejects all I/O until an administrator intervenes.
    stopped: AtomicBool,
    deleted: AtomicBool,
    instruments: Instruments,
    throttle: Arc<Throttle>,
    /// Held while its tail is emptied, so that it does not grow meanwhile.
    pub(crate) trimming: Arc<AsyncMutex>,
    /// How often it was shrunk. Changed by the one whose turn it is to change volumes.
    pub(crate) shrinks: AtomicU64,
    /// How often its content was replaced by another's.
    contents: AtomicU64,
    pub(crate) gate: Gate,
    pub(crate) marking: Marking,
    /// What front ends have to know after a restart.
    pub(crate) kept: KeptBytes,
    pub(crate) latest: Latest,
    /// Held while an image is made.
    pub(crate) imaging: AsyncMutex,
}

impl Volume {
    pub(crate) fn new(slot: Arc<PoolSlot>, marking: Marking, record: &VolumeRecord) -> Self {
        Self {
            slot,
            id: record.id,
            uuid: record.uuid,
            block_bytes: record.space.block_bytes,
            record: RwLock::new(record.clone()),
            size_bytes: AtomicU64::new(record.space.size_bytes),
            thick: AtomicBool::new(record.space.thick),
            template: AtomicBool::new(record.guards.template),
            immutable: AtomicBool::new(record.guards.retain_until_ms.is_some()),
            protected: AtomicBool::new(record.guards.protected),
            pristine: AtomicBool::new(record.is_pristine()),
            stopped: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            instruments: Instruments::default(),
            throttle: Arc::default(),
            trimming: Arc::new(AsyncMutex::new()),
            shrinks: AtomicU64::new(0),
            contents: AtomicU64::new(0),
            gate: Gate::default(),
            marking,
            kept: KeptBytes::default(),
            latest: Latest::default(),
            imaging: AsyncMutex::new(),
        }
    }

    /// Takes over what may change in a volume's life.
    pub(crate) fn update(&self, record: &VolumeRecord) {
        self.record.write().clone_from(record);
        // Requests look at these without locking the record.
        self.size_bytes.store(record.space.size_bytes, Ordering::Release);
        self.thick.store(record.space.thick, Ordering::Release);
        self.set_template(record.guards.template);
        self.set_immutable(record.guards.retain_until_ms.is_some());
        self.protected.store(record.guards.protected, Ordering::Release);
        self.pristine.store(record.is_pristine(), Ordering::Release);
    }

    /// Has requests reach no further than this while its content is replaced: beyond it lies the former tail of another volume.
    pub(crate) fn end_at(&self, size_bytes: u64) {
        self.size_bytes.fetch_min(size_bytes, Ordering::AcqRel);
    }

    /// Has requests reach as far as its record says.
    pub(crate) fn end_as_recorded(&self) {
        self.size_bytes.store(self.record.read().space.size_bytes, Ordering::Release);
    }

    /// Refuses to replace its content.
    pub(crate) fn require_replaceable(&self) -> Result<(), VolumeError> {
        if self.is_template() {
            Err(VolumeError::IsTemplate { name: self.name(), what: "other content" })
        } else {
            Ok(())
        }
    }

    /// Refuses to change the content of a read-only snapshot.
    pub(crate) fn require_unprotected(&self, what: &'static str) -> Result<(), VolumeError> {
        if self.is_protected() { Err(VolumeError::Protected { name: self.name(), what }) } else { Ok(()) }
    }

    pub(crate) fn set_immutable(&self, immutable: bool) {
        self.immutable.store(immutable, Ordering::Release);
    }

    pub(crate) fn set_template(&self, template: bool) {
        self.template.store(template, Ordering::Release);
    }

    pub(crate) fn record(&self) -> VolumeRecord {
        self.record.read().clone()
    }

    pub(crate) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Its id within the pool.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// When it was created, in milliseconds since the Unix epoch.
    pub fn created_ms(&self) -> u64 {
        self.record.read().created_ms
    }

    /// Whether the pool keeps space for all of it.
    pub fn is_thick(&self) -> bool {
        self.thick.load(Ordering::Acquire)
    }

    /// Where it comes from, if it is a snapshot or clone.
    pub fn origin(&self) -> Option<Origin> {
        self.record.read().origin.clone()
    }

    /// Goes on where a volume ended that was deleted: who still empties its tail keeps others from the tail, and a host that
    /// knew it looks again at what it holds.
    pub(crate) fn succeeding(self, before: &Volume) -> Self {
        let contents = AtomicU64::new(before.contents() + 1);
        let kept = before.kept.copied();
        Self { trimming: before.trimming.clone(), contents, kept, ..self }
    }

    pub(crate) fn content_replaced(&self) {
        self.contents.fetch_add(1, Ordering::AcqRel);
    }

    /// Its tags.
    pub fn tags(&self) -> Tags {
        self.record.read().labels.tags.clone()
    }

    /// Where people keep it.
    pub fn folder(&self) -> Folder {
        self.record.read().labels.folder.clone()
    }

    /// The name of its policy; `None`: the default one.
    pub fn policy(&self) -> Option<String> {
        self.record.read().labels.policy.clone()
    }

    /// Whether it is a template: it can be cloned, and rejects writes.
    pub fn is_template(&self) -> bool {
        self.template.load(Ordering::Acquire)
    }

    /// Whether hosts may only read it, unless a mapping or export lets them write.
    pub fn is_protected(&self) -> bool {
        self.protected.load(Ordering::Acquire)
    }

    /// When a snapshot was first changed after it was taken, in milliseconds since the Unix epoch; `None` if it holds what
    /// was taken.
    pub fn modified_ms(&self) -> Option<u64> {
        self.record.read().modified_ms
    }

    /// Whether it is a snapshot that is kept as it is until its time is over.
    pub fn is_immutable(&self) -> bool {
        self.immutable.load(Ordering::Acquire)
    }

    /// Whether it rejects all I/O until an administrator intervenes.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Makes it refuse all I/O, or serve again. Not kept over a restart.
    pub fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Release);
    }

    /// Whether it was shrunk and the space beyond its end is still being given back.
    pub fn is_trimming(&self) -> bool {
        self.record.read().is_trimming()
    }

    /// Bytes the pool keeps for it, used or not; `None` while the pool is offline.
    pub fn reserved_bytes(&self) -> Option<u64> {
        Some(self.slot.get().ok()?.volume_stats(self.id)?.reserved_bytes)
    }

    /// Bytes of it that take space in the pool; `None` while the pool is offline.
    pub fn mapped_bytes(&self) -> Option<u64> {
        Some(self.slot.get().ok()?.volume_stats(self.id)?.mapped_bytes)
    }

    /// How what is written to it is compressed; `None` while the pool is offline.
    pub fn compression(&self) -> Option<Compression> {
        self.slot.get().ok()?.compression_of(self.id)
    }

    /// Whether what is written to it is deduplicated; `None` while the pool is offline.
    pub fn deduplication(&self) -> Option<bool> {
        self.slot.get().ok()?.is_deduplicated(self.id)
    }

    /// Its figures in the pool; `None` while the pool is offline.
    pub fn stats(&self) -> Option<VolumeStats> {
        self.slot.get().ok()?.volume_stats(self.id)
    }

    /// Admits a writer of `range`, unless the content was replaced while it waited.
    pub(crate) async fn enter(&self, range: ByteRange) -> Result<GatePass<'_>, DeviceError> {
        self.admit(self.gate.enter(range)).await
    }

    /// The same for a writer that reads `range` and writes it back: it holds the range exclusively.
    pub(crate) async fn enter_alone(&self, range: ByteRange) -> Result<GatePass<'_>, DeviceError> {
        self.admit(self.gate.enter_alone(range)).await
    }

    async fn admit<'a>(
        &'a self,
        entering: impl Future<Output = GatePass<'a>>,
    ) -> Result<GatePass<'a>, DeviceError> {
        let contents = self.contents();
        let pass = entering.await;
        // The writer began with other content in mind.
        if self.contents() == contents {
            Ok(pass)
        } else {
            Err(DeviceError::Replaced { volume: self.name() })
        }
    }

    fn require_within(&self, range: ByteRange) -> Result<(), DeviceError> {
        let size_bytes = self.size_bytes();
        let end = range.offset.checked_add(range.len);
        if end.is_none_or(|end| end > size_bytes) {
            let ByteRange { offset, len } = range;
            return Err(DeviceError::OutOfRange { volume: self.name(), offset, len, size_bytes });
        }
        Ok(())
    }

    pub(crate) fn pool_for(&self, range: ByteRange) -> Result<Arc<Pool>, DeviceError> {
        // What keeps the volume from any I/O, then whether the range is within it.
        if self.deleted.load(Ordering::Acquire) {
            return Err(DeviceError::Deleted { volume: self.name() });
        }
        if self.is_stopped() {
            return Err(DeviceError::Stopped { volume: self.name() });
        }
        self.require_within(range)?;
        self.slot.get().map_err(|reason| DeviceError::Offline { volume: self.name(), reason })
    }

    pub(crate) fn writable_pool_for(&self, range: ByteRange) -> Result<Arc<Pool>, DeviceError> {
        let pool = self.pool_for(range)?;
        if self.is_read_only() { Err(DeviceError::ReadOnly { volume: self.name() }) } else { Ok(pool) }
    }

    pub(crate) fn device_error(&self, at: ByteRange, error: PoolError) -> DeviceError {
        let volume = self.name();
        match error {
            PoolError::NoSpace => DeviceError::NoSpace { volume },
            PoolError::Medium { offset, reason, .. } => DeviceError::Medium { volume, offset, reason },
            PoolError::NoSuchVolume(_) => DeviceError::Deleted { volume },
            PoolError::BeyondEnd { .. } if self.is_read_only() => DeviceError::ReadOnly { volume },
            PoolError::BeyondEnd { end, .. } => {
                let ByteRange { offset, len } = at;
                DeviceError::OutOfRange { volume, offset, len, size_bytes: end }
            }
            PoolError::Offline { reason } => DeviceError::Offline { volume, reason },
            error @ (PoolError::Drive(DriveError::Failed { .. })
            | PoolError::Refused(_)
            | PoolError::CannotReserve { .. }
            | PoolError::Unopenable(_)) => DeviceError::Offline { volume, reason: error.to_string() },
            error @ (PoolError::Corrupt { .. } | PoolError::Drive(_) | PoolError::Stripe(_)) => {
                DeviceError::Medium { volume, offset: at.offset, reason: error.to_string() }
            }
        }
    }
}

impl BlockDevice for Volume {
    type Image = Image;

    fn uuid(&self) -> Uuid {
        self.uuid
    }

    fn name(&self) -> String {
        self.record.read().name.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn contents(&self) -> u64 {
        self.contents.load(Ordering::Acquire)
    }

    fn instruments(&self) -> Option<&Instruments> {
        Some(&self.instruments)
    }

    fn throttle(&self) -> Option<&Arc<Throttle>> {
        Some(&self.throttle)
    }

    fn provisioning(&self) -> Provisioning {
        if self.is_thick() { Provisioning::Resource } else { Provisioning::Thin }
    }

    fn is_read_only(&self) -> bool {
        self.is_template() || self.is_immutable()
    }

    fn is_read_only_by_default(&self) -> bool {
        self.is_protected()
    }

    fn thresholds(&self) -> Option<&Thresholds> {
        (!self.is_thick()).then_some(&self.slot.thresholds)
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Slice>, DeviceError> {
        let pool = self.pool_for(range)?;
        let read = pool.read(self.id, range).await.map_err(|e| self.device_error(range, e))?;
        // NOTE: it may have ended earlier meanwhile. What lies beyond that can be what was cut off of another volume.
        self.require_within(range)?;
        Ok(read)
    }

    async fn write(&self, offset: u64, data: Vec<Slice>) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset, data.iter().map(|slice| slice.len() as u64).sum());
        let _pass = self.enter_to_write(range).await?;
        let pool = self.writable_pool_for(range)?;
        pool.write(self.id, offset, data).await.map_err(|e| self.device_error(range, e))
    }

    async fn write_atomic(&self, offset: u64, data: Vec<Slice>) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset, data.iter().map(|slice| slice.len() as u64).sum());
        let _pass = self.enter_to_write(range).await?;
        let pool = self.writable_pool_for(range)?;
        pool.write_atomic(self.id, offset, data).await.map_err(|e| self.device_error(range, e))
    }

    async fn modify(
        &self,
        range: ByteRange,
        change: impl FnOnce(&mut [u8]) -> bool + Send,
    ) -> Result<(), DeviceError> {
        if range.is_empty() { Ok(()) } else { self.write_changed(range, change).await }
    }

    async fn image(&self, range: ByteRange) -> Result<Arc<Image>, DeviceError> {
        self.image_of(range).await
    }

    async fn copy_from(&self, to: u64, image: &Image, from: ByteRange) -> Result<(), DeviceError> {
        self.take_from(to, image, from).await
    }

    fn kept(&self, what: Kept) -> Option<Vec<u8>> {
        self.kept.get(what)
    }

    async fn keep(&self, what: Kept, bytes: Option<Vec<u8>>) -> Result<(), DeviceError> {
        self.put_kept(what, bytes).await
    }

    async fn write_bytes(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset, data.len() as u64);
        if !range.is_aligned(SECTOR_BYTES) {
            self.write_part(range, data).await
        } else if range.is_empty() {
            Ok(())
        } else {
            self.write(offset, vec![data.into_slice()]).await
        }
    }

    async fn unmap(&self, range: ByteRange) -> Result<(), DeviceError> {
        let _pass = self.enter_to_write(range).await?;
        let pool = self.writable_pool_for(range)?;
        pool.unmap(self.id, range).await.map_err(|e| self.device_error(range, e))?;
        self.instruments.unmapped(range.len);
        Ok(())
    }

    async fn allocation(&self, range: ByteRange, limit: usize) -> Result<Vec<Extent>, DeviceError> {
        let pool = self.pool_for(range)?;
        pool.allocation(self.id, range, limit).await.map_err(|e| self.device_error(range, e))
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("id", &self.id).field("name", &self.name()).finish()
    }
}
