//! A block device in RAM, in place of a volume in the tests of front ends.
//!
//! It keeps the promises of [`BlockDevice`], and asserts those of its callers: ranges are whole logical blocks, slices
//! are aligned in memory. A range beyond its end is refused. It answers at once, unless it is made to yield
//! ([`RamDevice::yielding`]) or to wait ([`RamDevice::hold`]). Nothing is mapped at first.

mod content;

use content::Content;
use quoin_base::{ByteRange, Extent};
use quoin_qos::{Limits, Throttle};
use quoin_volume::{BlockDevice, DeviceError, Instruments, Kept, Provisioning, Thresholds};
use quoin_world::{Buf, Event, Mutex, Nanos, Slice};
use std::{
    future::poll_fn,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
};
use uuid::Uuid;

/// Each slice of a write starts at a multiple of this in memory, and is a multiple of this long.
const SECTOR_BYTES: usize = 512;

/// A block device in RAM.
pub struct RamDevice {
    uuid: Uuid,
    name: String,
    block_bytes: u32,
    /// Writes change the content.
    keeps: bool,
    /// Reads and writes let other tasks go first.
    yields: bool,
    size_bytes: AtomicU64,
    contents: AtomicU64,
    thick: AtomicBool,
    read_only: AtomicBool,
    thresholds: Option<Thresholds>,
    instruments: Instruments,
    content: Mutex<Content>,
    fault: Mutex<Option<DeviceError>>,
    held: AtomicBool,
    released: Event,
    unmapped: Mutex<Vec<ByteRange>>,
    kept: Mutex<[Option<Vec<u8>>; 2]>,
    throttle: Arc<Throttle>,
}

/// How it is made.
impl RamDevice {
    /// Returns a device `ram` of 1 MiB with this logical block.
    pub fn new(block_bytes: u32) -> Self {
        Self {
            uuid: Uuid::nil(),
            name: "ram".to_owned(),
            block_bytes,
            keeps: true,
            yields: false,
            size_bytes: AtomicU64::new(1 << 20),
            contents: AtomicU64::new(0),
            thick: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            thresholds: None,
            instruments: Instruments::default(),
            content: Mutex::new(Content::new(block_bytes.into())),
            fault: Mutex::default(),
            held: AtomicBool::new(false),
            released: Event::new(),
            unmapped: Mutex::default(),
            kept: Mutex::default(),
            throttle: Arc::default(),
        }
    }

    /// With these limits of what hosts may ask of it.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        self.throttle.configure(&[limits], None, Nanos::default());
        self
    }

    /// With this identity.
    #[must_use]
    pub fn identified(self, uuid: Uuid) -> Self {
        Self { uuid, ..self }
    }

    /// With this name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// With this size.
    #[must_use]
    pub fn sized(self, size_bytes: u64) -> Self {
        self.resize(size_bytes);
        self
    }

    /// With this byte everywhere.
    #[must_use]
    pub fn filled(self, byte: u8) -> Self {
        self.content.lock().change(ByteRange::new(0, self.size_bytes()), |bytes, _| bytes.fill(byte));
        self
    }

    /// Mapped in pieces of so many bytes, not in logical blocks. It must be empty.
    #[must_use]
    pub fn mapped_in(self, piece_bytes: u64) -> Self {
        Self { content: Mutex::new(Content::new(piece_bytes)), ..self }
    }

    /// Writes are checked and acknowledged, and change nothing.
    #[must_use]
    pub fn keeping_nothing(self) -> Self {
        Self { keeps: false, ..self }
    }

    /// Reads and writes let other tasks go first, as those of a drive would.
    #[must_use]
    pub fn yielding(self) -> Self {
        Self { yields: true, ..self }
    }

    /// With all of its space reserved for it.
    #[must_use]
    pub fn thick(self) -> Self {
        self.set_thick(true);
        self
    }

    /// With these thresholds, while it is thin.
    #[must_use]
    pub fn with_thresholds(self, thresholds: Thresholds) -> Self {
        Self { thresholds: Some(thresholds), ..self }
    }
}

/// What tests change and look at.
impl RamDevice {
    /// From now on it has this size.
    pub fn resize(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Release);
    }

    /// From now on all of its space is reserved for it, or none.
    pub fn set_thick(&self, thick: bool) {
        self.thick.store(thick, Ordering::Release);
    }

    /// From now on it says that it rejects writes, or not. It is for the front end to reject them.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Release);
    }

    /// From now on its content counts as replaced once more.
    pub fn replace(&self) {
        self.contents.fetch_add(1, Ordering::AcqRel);
    }

    /// From now on every request fails so, or none.
    pub fn fail(&self, fault: Option<DeviceError>) {
        *self.fault.lock() = fault;
    }

    /// From now on writes and unmaps wait, or go on.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
        self.released.notify();
    }

    /// Returns all that it holds.
    pub fn content(&self) -> Vec<u8> {
        let slices = self.content.lock().read(ByteRange::new(0, self.size_bytes()));
        slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    /// Returns what it holds at byte `at`.
    pub fn byte(&self, at: u64) -> u8 {
        self.content.lock().read(ByteRange::new(at, 1))[0][0]
    }

    /// Returns the ranges that it was asked to unmap, in order.
    pub fn unmapped(&self) -> Vec<ByteRange> {
        self.unmapped.lock().clone()
    }
}

impl RamDevice {
    /// Returns why a request for whole blocks is refused, if it is.
    fn admit_blocks(&self, range: ByteRange) -> Result<(), DeviceError> {
        assert!(range.is_aligned(self.block_bytes.into()), "{range:?} is not whole blocks");
        self.admit(range)
    }

    /// Returns why a request is refused, if it is.
    fn admit(&self, range: ByteRange) -> Result<(), DeviceError> {
        if let Some(fault) = self.fault.lock().clone() {
            return Err(fault);
        }
        let (ByteRange { offset, len }, size_bytes) = (range, self.size_bytes());
        if range.end() <= size_bytes {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange { volume: self.name(), offset, len, size_bytes })
        }
    }

    /// Lets other tasks go first, if it is to.
    async fn step(&self) {
        let mut first = self.yields;
        poll_fn(|context| {
            if mem::take(&mut first) {
                context.waker().wake_by_ref();
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    /// Writes bytes, once writes are not held.
    async fn put(&self, offset: u64, bytes: &[u8]) {
        self.step().await;
        self.released.until(|| (!self.held.load(Ordering::Acquire)).then_some(())).await;
        if self.keeps {
            self.content.lock().change(ByteRange::new(offset, bytes.len() as u64), |part, piece| {
                let from = (piece.offset - offset) as usize;
                part.copy_from_slice(&bytes[from..from + part.len()]);
            });
        }
    }
}

/// What a device held in a range.
pub struct RamImage {
    range: ByteRange,
    bytes: Vec<u8>,
}

impl BlockDevice for RamDevice {
    type Image = RamImage;

    fn uuid(&self) -> Uuid {
        self.uuid
    }

    fn name(&self) -> String {
        self.name.clone()
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
        if self.thick.load(Ordering::Acquire) { Provisioning::Resource } else { Provisioning::Thin }
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn thresholds(&self) -> Option<&Thresholds> {
        self.thresholds.as_ref().filter(|_| self.provisioning() == Provisioning::Thin)
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Slice>, DeviceError> {
        self.admit_blocks(range)?;
        self.step().await;
        Ok(self.content.lock().read(range))
    }

    async fn write(&self, offset: u64, data: Vec<Slice>) -> Result<(), DeviceError> {
        for slice in &data {
            assert!(slice.as_ptr().addr().is_multiple_of(SECTOR_BYTES), "a slice is not aligned in memory");
            assert!(slice.len().is_multiple_of(SECTOR_BYTES), "a slice of {} bytes", slice.len());
        }
        let bytes = data.iter().map(|slice| &slice[..]).collect::<Vec<_>>().concat();
        self.admit_blocks(ByteRange::new(offset, bytes.len() as u64))?;
        self.put(offset, &bytes).await;
        Ok(())
    }

    async fn write_atomic(&self, offset: u64, data: Vec<Slice>) -> Result<(), DeviceError> {
        self.write(offset, data).await
    }

    async fn modify(
        &self,
        range: ByteRange,
        change: impl FnOnce(&mut [u8]) -> bool + Send,
    ) -> Result<(), DeviceError> {
        self.admit_blocks(range)?;
        self.step().await;
        self.released.until(|| (!self.held.load(Ordering::Acquire)).then_some(())).await;
        // One piece of the range may be mapped and another not: it is read as a whole, and written as one.
        let mut content = self.content.lock();
        let mut bytes =
            content.read(range).iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<_>>();
        if change(&mut bytes) && self.keeps {
            content.change(range, |part, piece| {
                let from = (piece.offset - range.offset) as usize;
                part.copy_from_slice(&bytes[from..from + part.len()]);
            });
        }
        Ok(())
    }

    async fn image(&self, range: ByteRange) -> Result<Arc<RamImage>, DeviceError> {
        let slices = self.read(range).await?;
        let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        Ok(Arc::new(RamImage { range, bytes }))
    }

    async fn copy_from(&self, to: u64, image: &RamImage, from: ByteRange) -> Result<(), DeviceError> {
        let at = (from.offset - image.range.offset) as usize;
        self.admit_blocks(ByteRange::new(to, from.len))?;
        self.put(to, &image.bytes[at..at + from.len as usize]).await;
        Ok(())
    }

    fn kept(&self, what: Kept) -> Option<Vec<u8>> {
        self.kept.lock()[what as usize].clone()
    }

    async fn keep(&self, what: Kept, bytes: Option<Vec<u8>>) -> Result<(), DeviceError> {
        self.admit(ByteRange::new(0, 0))?;
        self.kept.lock()[what as usize] = bytes;
        Ok(())
    }

    async fn write_bytes(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        self.admit(ByteRange::new(offset, data.len() as u64))?;
        self.put(offset, &data).await;
        Ok(())
    }

    async fn unmap(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.unmapped.lock().push(range);
        self.admit_blocks(range)?;
        self.released.until(|| (!self.held.load(Ordering::Acquire)).then_some(())).await;
        self.content.lock().unmap(range);
        Ok(())
    }

    async fn allocation(&self, range: ByteRange, limit: usize) -> Result<Vec<Extent>, DeviceError> {
        self.admit_blocks(range)?;
        let mut extents = self.content.lock().extents(range);
        extents.truncate(limit);
        Ok(extents)
    }
}
