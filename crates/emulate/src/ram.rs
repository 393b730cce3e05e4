//! A disk in RAM. Its content is gone when it is dropped; what was never written takes no RAM.

use quoin_world::{Buf, Completion, Disk, DiskError, DiskOp, Mutex};
use std::{collections::BTreeMap, io};

const CHUNK_BYTES: usize = 64 << 10;
const BLOCK_BYTES: u32 = 512;
const EINVAL: i32 = 22;

/// A disk in RAM that answers at once.
pub struct RamDisk {
    name: String,
    len_bytes: u64,
    /// By number; what is not there is all zero.
    chunks: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl RamDisk {
    /// One of zeroes. `len_bytes` is rounded down to whole blocks of 512 bytes.
    pub fn new(name: &str, len_bytes: u64) -> Self {
        let len_bytes = len_bytes / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
        Self { name: name.to_owned(), len_bytes, chunks: Mutex::default() }
    }

    /// How much RAM its content takes.
    pub fn ram_bytes(&self) -> u64 {
        self.chunks.lock().len() as u64 * CHUNK_BYTES as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        let chunks = self.chunks.lock();
        for (number, within, part) in parts(offset, buf.len()) {
            match chunks.get(&number) {
                Some(chunk) => buf[part.clone()].copy_from_slice(&chunk[within..within + part.len()]),
                None => buf[part].fill(0),
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let mut chunks = self.chunks.lock();
        for (number, within, part) in parts(offset, data.len()) {
            let chunk = chunks.entry(number).or_insert_with(|| vec![0; CHUNK_BYTES].into());
            chunk[within..within + part.len()].copy_from_slice(&data[part]);
        }
    }

    fn discard(&self, offset: u64, len: u64) {
        let mut chunks = self.chunks.lock();
        let (first, end) = (offset.div_ceil(CHUNK_BYTES as u64), (offset + len) / CHUNK_BYTES as u64);
        if first < end {
            chunks.retain(|number, _| !(first..end).contains(number));
        }
    }

    fn fits(&self, offset: u64, len: u64) -> bool {
        let block = u64::from(BLOCK_BYTES);
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len_bytes);
        is_inside && len > 0 && offset.is_multiple_of(block) && len.is_multiple_of(block)
    }

    fn refuse(&self, operation: &'static str, offset: u64, len: u64) -> Completion {
        let source = io::Error::from_raw_os_error(EINVAL);
        Completion::ready(Err(DiskError::Io { disk: self.name.clone(), operation, offset, len, source }))
    }
}

/// The chunks of a range: number, first byte in the chunk, and bytes of the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % CHUNK_BYTES as u64) as usize;
        let part = done..len.min(done + CHUNK_BYTES - within);
        done = part.end;
        (!part.is_empty()).then_some((at / CHUNK_BYTES as u64, within, part))
    })
}

impl Disk for RamDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn submit(&self, op: DiskOp) -> Completion {
        match op {
            DiskOp::Read { offset, mut buf } => {
                if !self.fits(offset, buf.len() as u64) {
                    return self.refuse("read", offset, buf.len() as u64);
                }
                self.read(offset, buf.as_mut_slice());
                return Completion::ready(Ok(buf));
            }
            DiskOp::Write { mut offset, data, .. } => {
                let len = data.iter().map(|slice| slice.len() as u64).sum();
                if !self.fits(offset, len) {
                    return self.refuse("write", offset, len);
                }
                for slice in data {
                    self.write(offset, &slice);
                    offset += slice.len() as u64;
                }
            }
            DiskOp::Discard { offset, len } => {
                if !self.fits(offset, len) {
                    return self.refuse("discard", offset, len);
                }
                self.discard(offset, len);
            }
            DiskOp::Flush => {}
        }
        Completion::ready(Ok(Buf::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_world::Slice;
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    fn done(mut completion: Completion) -> Result<Buf, DiskError> {
        match Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it answers at once"),
        }
    }

    #[test]
    fn it_holds_what_was_written_across_chunks_until_it_is_discarded() {
        let disk = RamDisk::new("r0", (1 << 20) + 100);
        assert_eq!(disk.len_bytes(), 1 << 20);
        let data = vec![Slice::copy_of(&[1; 4096]), Slice::copy_of(&[2; 512])];
        let offset = CHUNK_BYTES as u64 - 512;
        done(disk.submit(DiskOp::Write { offset, data, durable: true })).unwrap();
        assert_eq!(disk.ram_bytes(), 2 * CHUNK_BYTES as u64);
        let read = || done(disk.submit(DiskOp::Read { offset, buf: Buf::zeroed(5120) })).unwrap();
        assert!(read()[..4096] == [1; 4096] && read()[4096..] == *[[2; 512], [0; 512]].concat());
        done(disk.submit(DiskOp::Discard { offset: 0, len: CHUNK_BYTES as u64 })).unwrap();
        assert!(read()[..512] == [0; 512] && read()[512] == 1);
        done(disk.submit(DiskOp::Flush)).unwrap();
    }

    #[test]
    fn what_is_not_inside_is_refused() {
        let disk = RamDisk::new("r0", 1 << 20);
        for (offset, len) in [(1 << 20, 512), (100, 512), (0, 100), (u64::MAX - 511, 512)] {
            let read = DiskOp::Read { offset, buf: Buf::zeroed(len) };
            assert!(done(disk.submit(read)).is_err(), "{offset}+{len}");
        }
    }
}
