//! Carrying out what requests ask for. A command given to the device is never cancelled.

use crate::operation::{Failure, Operation};
use quoin_base::{ByteRange, Extent, MIB};
use quoin_target::Clock;
use quoin_volume::{self as volume, BlockDevice, DeviceError};
use quoin_world::{Buf, Nanos, Slice};
use std::{rc::Rc, sync::Arc, time::Duration};

/// Extents told in one block status.
const MAX_EXTENTS: usize = 1024;
/// What is unmapped in one go, so that a long range leaves room for others.
const UNMAP_BYTES: u64 = 256 * MIB;

/// The volume a connection works on.
pub(crate) struct Unit<D> {
    pub(crate) device: Arc<D>,
    /// The content that the client was shown.
    pub(crate) contents: u64,
}

/// Something to be awaited.
pub(crate) struct Work<D> {
    pub(crate) cookie: u64,
    pub(crate) operation: Operation,
    /// What to write.
    pub(crate) data: Buf,
    /// When the last of it arrived.
    pub(crate) received: Nanos,
    pub(crate) unit: Rc<Unit<D>>,
}

/// What came of [`Work`].
pub(crate) struct Finished {
    pub(crate) cookie: u64,
    pub(crate) operation: Operation,
    pub(crate) outcome: Result<Outcome, Failure>,
}

pub(crate) enum Outcome {
    Done,
    Data(Vec<Slice>),
    Extents(Vec<Extent>),
}

pub(crate) async fn perform<D: BlockDevice>(work: Work<D>, clock: &dyn Clock) -> Finished {
    let Work { cookie, operation, data, received, unit } = work;
    let outcome = match operation {
        Operation::Read { range, .. } => unit.read(range).await.map(Outcome::Data),
        Operation::Write(range) => unit.write(range, data).await.map(|()| Outcome::Done),
        Operation::WriteZeroes(range) => unit.zero(range).await.map(|()| Outcome::Done),
        Operation::Trim(range) => unit.trim(range).await.map(|()| Outcome::Done),
        Operation::Cache(range) => unit.cache(range).await.map(|()| Outcome::Done),
        Operation::BlockStatus { range, one } => unit.allocation(range, one).await.map(Outcome::Extents),
        // Whatever was answered is hardened already.
        Operation::Flush | Operation::Disconnect => Ok(Outcome::Done),
    };
    unit.count(operation, outcome.is_ok(), clock.now().since(received));
    Finished { cookie, operation, outcome }
}

/// A range cut at the block: the part of a block it begins with, whole blocks, the part it ends with.
struct Cut {
    head: ByteRange,
    middle: ByteRange,
    tail: ByteRange,
}

fn cut(range: ByteRange, block_bytes: u64) -> Cut {
    let head_end = range.offset.next_multiple_of(block_bytes).min(range.end());
    let tail_start = (range.end() / block_bytes * block_bytes).max(head_end);
    Cut {
        head: ByteRange::from(range.offset..head_end),
        middle: ByteRange::from(head_end..tail_start),
        tail: ByteRange::from(tail_start..range.end()),
    }
}

/// Leaves of the slices, which begin at `at`, what lies in `range`.
fn clipped(slices: Vec<Slice>, mut at: u64, range: ByteRange) -> Vec<Slice> {
    let clip = |slice: Slice| {
        let (start, end) = (at.max(range.offset), (at + slice.len() as u64).min(range.end()));
        let clipped = (start < end).then(|| slice.slice((start - at) as usize..(end - at) as usize));
        at += slice.len() as u64;
        clipped
    };
    slices.into_iter().filter_map(clip).collect()
}

impl<D: BlockDevice> Unit<D> {
    fn block_bytes(&self) -> u64 {
        self.device.block_bytes().into()
    }

    /// Counts a request with the volume.
    fn count(&self, operation: Operation, is_good: bool, latency: Duration) {
        let Some(instruments) = self.device.instruments() else { return };
        let (operation, bytes) = match operation {
            Operation::Read { range, .. } => (volume::Operation::Read, range.len),
            Operation::Write(range) | Operation::WriteZeroes(range) => (volume::Operation::Write, range.len),
            Operation::Trim(_) => (volume::Operation::Unmap, 0),
            _ => return,
        };
        if is_good {
            instruments.answered(operation, bytes, latency)
        } else {
            instruments.failed(operation, latency)
        }
    }

    /// Refuses what was meant for another content of the volume.
    fn require_same_content(&self) -> Result<(), Failure> {
        if self.device.contents() == self.contents {
            Ok(())
        } else {
            Err(DeviceError::Replaced { volume: self.device.name() }.into())
        }
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Slice>, Failure> {
        let wide = range.widened(self.block_bytes());
        if range.is_empty() {
            return Ok(Vec::new());
        }
        self.require_same_content()?;
        let slices = self.device.read(wide).await?;
        Ok(if wide == range { slices } else { clipped(slices, wide.offset, range) })
    }

    async fn write(&self, range: ByteRange, data: Buf) -> Result<(), Failure> {
        if range.is_empty() {
            return Ok(());
        }
        self.require_same_content()?;
        if range.is_aligned(self.block_bytes()) {
            self.device.write(range.offset, vec![data.into_slice()]).await?
        } else {
            self.device.write_bytes(range.offset, data).await?
        }
        Ok(())
    }

    /// Makes a range read as zeroes. The pool stores no zeroes, so this is as quick as it is for a trim, and what
    /// keeps space for later writes is the volume, not the content of its blocks.
    async fn zero(&self, range: ByteRange) -> Result<(), Failure> {
        let Cut { head, middle, tail } = cut(range, self.block_bytes());
        for part in [head, tail] {
            self.write(part, Buf::zeroed(part.len as usize)).await?;
        }
        self.unmap(middle).await
    }

    /// Gives back the whole blocks of a range; parts of blocks stay what they are.
    async fn trim(&self, range: ByteRange) -> Result<(), Failure> {
        self.unmap(cut(range, self.block_bytes()).middle).await
    }

    async fn unmap(&self, range: ByteRange) -> Result<(), Failure> {
        for piece in range.split(UNMAP_BYTES) {
            self.require_same_content()?;
            self.device.unmap(piece).await?;
        }
        Ok(())
    }

    /// Reads a range and forgets it, so that what caches there are have it.
    async fn cache(&self, range: ByteRange) -> Result<(), Failure> {
        for piece in range.split(MIB) {
            self.read(piece).await?;
        }
        Ok(())
    }

    async fn allocation(&self, range: ByteRange, one: bool) -> Result<Vec<Extent>, Failure> {
        let limit = if one { 1 } else { MAX_EXTENTS };
        let wide = range.widened(self.block_bytes());
        let mut extents = self.device.allocation(wide, limit).await?;
        for extent in &mut extents {
            let (start, end) = (extent.range.offset.max(range.offset), extent.range.end().min(range.end()));
            extent.range = ByteRange::new(start, end.saturating_sub(start));
        }
        extents.retain(|extent| !extent.range.is_empty());
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_blocks() {
        let pairs = |offset, len| {
            let Cut { head, middle, tail } = cut(ByteRange::new(offset, len), 512);
            [head, middle, tail].map(|part| (part.offset, part.len))
        };
        assert_eq!(pairs(512, 1024), [(512, 0), (512, 1024), (1536, 0)]);
        assert_eq!(pairs(500, 1024), [(500, 12), (512, 512 + 488 - 488), (1024, 500)]);
        assert_eq!(pairs(10, 20), [(10, 20), (30, 0), (30, 0)]);
        assert_eq!(pairs(510, 4), [(510, 2), (512, 0), (512, 2)]);
        let slices = vec![Slice::copy_of(&[1; 512]), Slice::copy_of(&[2; 512])];
        let lengths: Vec<_> =
            clipped(slices, 0, ByteRange::new(500, 20)).iter().map(|s| (s[0], s.len())).collect();
        assert_eq!(lengths, [(1, 12), (2, 8)]);
    }
}
