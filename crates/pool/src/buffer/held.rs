//! How the write buffer holds what hosts wrote, so that little is held beside it.
//!
//! 1. What is held is counted, not what was written: a whole backing buffer for as long as any part of it is in the
//!    write buffer, once.
//! 2. A part of a buffer of which the write needs less than half is copied out, so that the rest is not held.
//! 3. What a buffer of its own would waste, since buffers are whole pages, is *packed*: kept in memory of its own size. A
//!    whole block never is, for it goes to a drive as it is.

use quoin_world::{Slice as Bytes, buffer_ram_bytes};
use std::{ops::Range, sync::Arc};

/// How many times what it needs a write may keep of the buffer it came in.
const MOST_KEPT: u64 = 2;
/// Of what it holds, the part that a buffer may waste before packing pays.
const WASTE_PART: usize = 4;
/// What the allocator and the count of references add to packed data: its size classes are an eighth to a fifth apart.
const PACKED_PART: u64 = 5;
const PACKED_MORE_BYTES: u64 = 16;

/// Data in RAM.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// A part of a buffer as it came.
    Buffer(Bytes),
    /// A copy in memory of its own size. Not aligned.
    Packed(Arc<[u8]>),
}

impl Held {
    /// What of a write of `write_bytes` lies in a block of `block_bytes`.
    pub(crate) fn new(data: Bytes, write_bytes: u64, block_bytes: u64) -> Self {
        let len = data.len();
        if data.backing_ram_bytes() as u64 <= MOST_KEPT * write_bytes {
            return Self::Buffer(data);
        }
        let wastes = buffer_ram_bytes(len) > len + len / WASTE_PART;
        if wastes && (len as u64) < block_bytes {
            Self::Packed(Arc::from(&data[..]))
        } else {
            Self::Buffer(Bytes::copy_of(&data))
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer(slice) => slice,
            Self::Packed(bytes) => bytes,
        }
    }

    /// Some of its bytes, to be sent to hosts or drives.
    pub(crate) fn slice(&self, range: Range<usize>) -> Bytes {
        match self {
            Self::Buffer(slice) => slice.slice(range),
            Self::Packed(bytes) => Bytes::copy_of(&bytes[range]),
        }
    }

    /// Counts it as held once more; the RAM that is held more by that, in bytes. Packed data that is cut up counts whole
    /// for each part.
    pub(crate) fn hold(&self) -> u64 {
        match self {
            Self::Buffer(slice) => slice.hold() as u64,
            Self::Packed(bytes) => packed_ram_bytes(bytes.len()),
        }
    }

    /// Counts it as held once less; the RAM that is held less by that, in bytes.
    pub(crate) fn release(&self) -> u64 {
        match self {
            Self::Buffer(slice) => slice.release() as u64,
            Self::Packed(bytes) => packed_ram_bytes(bytes.len()),
        }
    }
}

fn packed_ram_bytes(len: usize) -> u64 {
    let bytes = len as u64 + PACKED_MORE_BYTES;
    bytes + bytes / PACKED_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 8192;

    #[test]
    fn what_is_held_is_near_what_was_written() {
        let received = Bytes::copy_of(&[7; 65536]);
        for (len, most) in [(512, 700), (1536, 1900), (4096, 4096), (4608, 5600), (7680, 8192), (8192, 8192)]
        {
            let held = Held::new(received.slice(512..512 + len), len as u64, BLOCK);
            assert_eq!(held.bytes().len(), len);
            assert!((len as u64..=most).contains(&held.hold()), "{len}: {held:?}");
        }
        // A whole block goes to a drive as it is.
        let whole = Held::new(received.slice(512..512 + 4096), 4096, 4096);
        assert!(matches!(whole, Held::Buffer(slice) if slice.len() == 4096));
    }

    #[test]
    fn a_long_write_is_held_as_it_came_and_counted_until_its_last_part_goes() {
        let write = Bytes::copy_of(&[7; 65536]);
        let parts: Vec<_> =
            (0..8).map(|at| Held::new(write.slice(at * 8192..(at + 1) * 8192), 65536, BLOCK)).collect();
        assert_eq!(parts.iter().map(Held::hold).sum::<u64>(), 65536);
        assert_eq!(parts[1..].iter().map(Held::release).sum::<u64>(), 0);
        assert_eq!(parts[0].release(), 65536);
    }
}
