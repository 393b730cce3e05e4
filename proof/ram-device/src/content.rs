//! What a device holds: pieces of one size, each there once it was written to.
//!
//! What is not there reads as zeroes. A piece of zeroes counts as not mapped, as in a volume.

use quoin_base::{ByteRange, Extent};
use quoin_world::{Buf, Slice};
use std::collections::BTreeMap;

/// The pieces, by number.
pub(crate) struct Content {
    piece_bytes: u64,
    pieces: BTreeMap<u64, Slice>,
}

impl Content {
    /// Nothing yet.
    pub(crate) fn new(piece_bytes: u64) -> Self {
        Self { piece_bytes, pieces: BTreeMap::new() }
    }

    /// Reads a range as one slice for each piece.
    pub(crate) fn read(&self, range: ByteRange) -> Vec<Slice> {
        let part = |range: ByteRange| match self.pieces.get(&(range.offset / self.piece_bytes)) {
            Some(piece) => {
                let start = (range.offset % self.piece_bytes) as usize;
                piece.slice(start..start + range.len as usize)
            }
            None => Buf::zeroed(range.len as usize).into_slice(),
        };
        range.split(self.piece_bytes).map(part).collect()
    }

    /// Changes a range, part by part. Slices that were read before keep what they hold.
    pub(crate) fn change(&mut self, range: ByteRange, mut change: impl FnMut(&mut [u8], ByteRange)) {
        for part in range.split(self.piece_bytes) {
            let number = part.offset / self.piece_bytes;
            let mut piece = match self.pieces.get(&number) {
                Some(old) => Buf::copy_of(old),
                None => Buf::zeroed(self.piece_bytes as usize),
            };
            let at = (part.offset % self.piece_bytes) as usize;
            change(&mut piece.as_mut_slice()[at..at + part.len as usize], part);
            self.pieces.insert(number, piece.into_slice());
        }
    }

    /// Makes a range read as zeroes.
    pub(crate) fn unmap(&mut self, range: ByteRange) {
        for part in range.split(self.piece_bytes) {
            if part.len == self.piece_bytes {
                self.pieces.remove(&(part.offset / self.piece_bytes));
            } else {
                self.change(part, |bytes, _| bytes.fill(0));
            }
        }
    }

    /// Returns which parts of a range are mapped.
    pub(crate) fn extents(&self, range: ByteRange) -> Vec<Extent> {
        let mut extents = Vec::new();
        for range in range.split(self.piece_bytes) {
            let piece = self.pieces.get(&(range.offset / self.piece_bytes));
            let mapped = piece.is_some_and(|piece| piece.iter().any(|byte| *byte != 0));
            Extent { range, mapped }.push(&mut extents);
        }
        extents
    }
}
