//! The volatile write cache of one drive.
//!
//! Invariants: 1. `writes` is in the order the writes were acknowledged, `first` numbers its head.
//! 2. The pieces of `newest` do not overlap, and each lies inside the write it names, which is in `writes`.
//! 3. `held_bytes` is the sum of the bytes in RAM of `writes`.

use std::collections::{BTreeMap, VecDeque};

/// What a write puts down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Zeroes(u64),
}

/// A write that was acknowledged. A `durable` one is on the medium already, and is held only because an older
/// held write overlaps it and must not end up over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) offset: u64,
    pub(crate) content: Content,
    pub(crate) durable: bool,
}

impl Held {
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(len) => *len,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len()
    }

    fn ram_bytes(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(_) => 0,
        }
    }
}

/// Where the newest held content of a range is: ends at `end`, in write number `write`.
#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    write: u64,
}

/// Writes held in the order of their acknowledgement, and an index of the newest content by offset.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    writes: VecDeque<Held>,
    first: u64,
    newest: BTreeMap<u64, Piece>,
    held_bytes: u64,
}

impl Cache {
    pub(crate) fn hold(&mut self, held: Held) {
        if held.len() == 0 {
            return;
        }
        let write = self.first + self.writes.len() as u64;
        self.forget(held.offset, held.end());
        self.newest.insert(held.offset, Piece { end: held.end(), write });
        self.held_bytes += held.ram_bytes();
        self.writes.push_back(held);
    }

    /// Puts what is held of the range that starts at `offset` over `buf`.
    pub(crate) fn overlay(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        for (start, piece) in self.pieces(offset, end) {
            let (from, to) = (start.max(offset), piece.end.min(end));
            let target = &mut buf[(from - offset) as usize..(to - offset) as usize];
            let held = &self.writes[(piece.write - self.first) as usize];
            match &held.content {
                Content::Bytes(bytes) => {
                    target.copy_from_slice(&bytes[(from - held.offset) as usize..(to - held.offset) as usize])
                }
                Content::Zeroes(_) => target.fill(0),
            }
        }
    }

    /// Takes the oldest write out; later writes over the same range stay held.
    pub(crate) fn pop_oldest(&mut self) -> Option<Held> {
        let held = self.writes.pop_front()?;
        let write = self.first;
        self.first += 1;
        self.held_bytes -= held.ram_bytes();
        let own: Vec<u64> = self
            .pieces(held.offset, held.end())
            .filter(|(_, piece)| piece.write == write)
            .map(|(start, _)| start)
            .collect();
        for start in own {
            self.newest.remove(&start);
        }
        Some(held)
    }

    /// Cuts off everything held at and above `len`.
    pub(crate) fn truncate(&mut self, len: u64) {
        self.forget(len, u64::MAX);
        for held in &mut self.writes {
            let keep = len.saturating_sub(held.offset).min(held.len());
            let before = held.ram_bytes();
            match &mut held.content {
                Content::Bytes(bytes) => bytes.truncate(keep as usize),
                Content::Zeroes(zeroes) => *zeroes = keep,
            }
            self.held_bytes -= before - held.ram_bytes();
        }
    }

    /// Whether any held write overlaps this range.
    pub(crate) fn overlaps(&self, offset: u64, end: u64) -> bool {
        self.pieces(offset, end).next().is_some()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(crate) fn held_writes(&self) -> u64 {
        self.writes.len() as u64
    }

    /// The pieces that overlap `offset..end`, by their start.
    fn pieces(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, Piece)> {
        let before = self.newest.range(..offset).next_back().filter(|(_, piece)| piece.end > offset);
        before
            .into_iter()
            .chain(self.newest.range(offset..end.max(offset)))
            .map(|(&start, &piece)| (start, piece))
    }

    /// Takes `offset..end` out of the index, splitting the pieces at its edges.
    fn forget(&mut self, offset: u64, end: u64) {
        let overlapped: Vec<(u64, Piece)> = self.pieces(offset, end).collect();
        for (start, piece) in overlapped {
            self.newest.remove(&start);
            if start < offset {
                self.newest.insert(start, Piece { end: offset, ..piece });
            }
            if piece.end > end {
                self.newest.insert(end, piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    fn bytes(offset: u64, byte: u8, len: usize) -> Held {
        Held { offset, content: Content::Bytes(vec![byte; len]), durable: false }
    }

    #[test]
    fn behaves_as_a_plain_array_with_the_oldest_write_applied_late() {
        for seed in 0..200 {
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let (mut cache, mut medium, mut model) = (Cache::default(), vec![0u8; 4096], vec![0u8; 4096]);
            for step in 0..200u64 {
                let offset = rng.random_range(0..4000u64);
                let len = rng.random_range(1..=96usize);
                let held = match rng.random_range(0..10) {
                    0 => Held { offset, content: Content::Zeroes(len as u64), durable: false },
                    _ => bytes(offset, step as u8 | 1, len),
                };
                apply(&mut model, &held);
                cache.hold(held);
                if rng.random_bool(0.4) {
                    apply(&mut medium, &cache.pop_oldest().expect("one was held"));
                }
                let mut seen = medium.clone();
                cache.overlay(0, &mut seen);
                assert_eq!(seen, model, "seed {seed} step {step}");
                let mut part = medium[offset as usize..offset as usize + len].to_vec();
                cache.overlay(offset, &mut part);
                assert_eq!(part, model[offset as usize..offset as usize + len], "seed {seed} step {step}");
            }
            while let Some(held) = cache.pop_oldest() {
                apply(&mut medium, &held);
            }
            assert_eq!(medium, model);
            assert_eq!((cache.held_bytes(), cache.newest.len()), (0, 0));
        }
    }

    #[test]
    fn truncation_cuts_what_is_held() {
        let mut cache = Cache::default();
        cache.hold(bytes(0, 7, 100));
        cache.hold(bytes(50, 8, 100));
        cache.truncate(60);
        let mut seen = [0; 80];
        cache.overlay(0, &mut seen);
        assert_eq!((seen[49], seen[59], seen[60]), (7, 8, 0));
        assert_eq!(cache.held_bytes(), 70);
        assert_eq!(cache.pop_oldest(), Some(bytes(0, 7, 60)));
        assert_eq!(cache.pop_oldest(), Some(bytes(50, 8, 10)));
    }

    fn apply(medium: &mut [u8], held: &Held) {
        let target = &mut medium[held.offset as usize..held.end() as usize];
        match &held.content {
            Content::Bytes(bytes) => target.copy_from_slice(bytes),
            Content::Zeroes(_) => target.fill(0),
        }
    }
}
