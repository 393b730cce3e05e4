//! A block device in RAM, ready at once.

use quoin_base::{ByteRange, Extent};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::{Buf, Mutex, Slice};
use uuid::Uuid;

/// Its size in logical blocks: small, so that any number is soon out of range.
pub(crate) const BLOCKS: usize = 64;

pub(crate) struct Ram {
    block_bytes: u32,
    bytes: Mutex<Vec<u8>>,
}

impl Ram {
    pub(crate) fn new(block_bytes: u32) -> Self {
        Self { block_bytes, bytes: Mutex::new(vec![0xEE; BLOCKS * block_bytes as usize]) }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    /// Promises of its callers are checked: ranges inside, whole blocks.
    fn part<T>(&self, range: ByteRange, use_it: impl FnOnce(&mut [u8]) -> T) -> Result<T, DeviceError> {
        assert!(range.is_aligned(self.block_bytes.into()), "{range:?} is not whole blocks");
        self.bytes(range, use_it)
    }

    fn bytes<T>(&self, range: ByteRange, use_it: impl FnOnce(&mut [u8]) -> T) -> Result<T, DeviceError> {
        let mut bytes = self.bytes.lock();
        let size_bytes = bytes.len() as u64;
        if range.end() > size_bytes {
            let ByteRange { offset, len } = range;
            return Err(DeviceError::OutOfRange { volume: self.name(), offset, len, size_bytes });
        }
        Ok(use_it(&mut bytes[range.offset as usize..range.end() as usize]))
    }
}

impl BlockDevice for Ram {
    fn uuid(&self) -> Uuid {
        Uuid::from_u128(0x0193_2c07_1234_7abc_8def_0123_4567_89ab)
    }

    fn name(&self) -> String {
        "ram".into()
    }

    fn size_bytes(&self) -> u64 {
        (BLOCKS * self.block_bytes as usize) as u64
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Slice>, DeviceError> {
        self.part(range, |bytes| if bytes.is_empty() { Vec::new() } else { vec![Slice::copy_of(bytes)] })
    }

    async fn write(&self, offset: u64, data: Vec<Slice>) -> Result<(), DeviceError> {
        for slice in &data {
            assert!((slice.as_ptr() as usize).is_multiple_of(512), "a slice is not aligned in memory");
            assert!(slice.len().is_multiple_of(512), "a slice of {} bytes is not whole sectors", slice.len());
        }
        let data: Vec<u8> = data.iter().flat_map(|slice| slice.to_vec()).collect();
        self.part(ByteRange::new(offset, data.len() as u64), |bytes| bytes.copy_from_slice(&data))
    }

    async fn write_bytes(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        self.bytes(ByteRange::new(offset, data.len() as u64), |bytes| bytes.copy_from_slice(&data))
    }

    async fn unmap(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.part(range, |bytes| bytes.fill(0))
    }

    async fn allocation(&self, range: ByteRange, limit: usize) -> Result<Vec<Extent>, DeviceError> {
        let mut extents = Vec::new();
        for range in range.split(self.block_bytes.into()) {
            let mapped = self.part(range, |bytes| bytes.iter().any(|byte| *byte != 0))?;
            Extent { range, mapped }.push(&mut extents);
        }
        extents.truncate(limit);
        Ok(extents)
    }
}
