//! What was seen of blocks of one size: a sample of their fingerprints, and a sample of the blocks themselves.
//!
//! Two samples, for two questions. What deduplication leaves is estimated from *fingerprints*: those below a bound, with all their
//! copies. What all blocks take is estimated from *places*: a fingerprint with a million copies would weigh too much in the first
//! sample, or be missed.

use quoin_reduction::Fingerprint;
use rustc_hash::FxHashMap;

/// Where a content is in a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    set: u32,
    /// The piece that it was seen in first.
    piece: u32,
    in_several_pieces: bool,
}

/// A content, and what is known of it.
#[derive(Debug)]
pub(crate) struct Content {
    /// In which sets it is.
    pub copies: Vec<Copies>,
    pub len_bytes: u32,
    /// What it takes with each codec; empty until that is known.
    pub stored: Box<[u32]>,
}

impl Content {
    /// Whether a set has it, or any; and if it was seen in one piece alone, which that is.
    pub(crate) fn found_in(&self, set: Option<usize>) -> Option<Seen> {
        let mut of_set = self.copies.iter().filter(|copies| set.is_none_or(|set| copies.set as usize == set));
        let first = of_set.next()?;
        let is_alone = !first.in_several_pieces && of_set.next().is_none();
        Some(if is_alone { Seen::InPiece(first.piece) } else { Seen::InSeveral })
    }

    /// What it takes with a codec, or without one.
    pub(crate) fn stored_with(&self, codec: Option<usize>) -> u32 {
        codec.and_then(|codec| self.stored.get(codec)).copied().unwrap_or(self.len_bytes)
    }
}

/// Where a content was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// In this piece alone, once or more often.
    InPiece(u32),
    InSeveral,
}

/// Contents by fingerprint: all of them, or those whose fingerprint is below a bound.
#[derive(Debug)]
pub(crate) struct Contents {
    most: usize,
    /// One of 2^shift is kept.
    shift: u32,
    by: FxHashMap<Fingerprint, Content>,
}

/// Whether a content was seen before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    New,
    Known,
    /// It is not in the sample.
    Left,
}

impl Contents {
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), shift: 0, by: FxHashMap::default() }
    }

    fn keeps(&self, fingerprint: Fingerprint) -> bool {
        fingerprint.0.leading_zeros() >= self.shift
    }

    /// Notes a block of a piece, which is of a set.
    pub(crate) fn note(
        &mut self,
        fingerprint: Fingerprint,
        (set, piece): (usize, u32),
        len_bytes: usize,
    ) -> Noted {
        if !self.keeps(fingerprint) {
            return Noted::Left;
        }
        let copies = Copies { set: set as u32, piece, in_several_pieces: false };
        if let Some(content) = self.by.get_mut(&fingerprint) {
            match content.copies.iter_mut().find(|one| one.set == copies.set) {
                Some(known) => known.in_several_pieces |= known.piece != piece,
                None => content.copies.push(copies),
            }
            return Noted::Known;
        }
        let content = Content { copies: vec![copies], len_bytes: len_bytes as u32, stored: Box::default() };
        self.by.insert(fingerprint, content);
        while self.by.len() > self.most && self.shift < u128::BITS {
            self.shift += 1;
            let shift = self.shift;
            self.by.retain(|fingerprint, _| fingerprint.0.leading_zeros() >= shift);
        }
        Noted::New
    }

    /// What a content takes with each codec, if that is known.
    pub(crate) fn stored(&self, fingerprint: Fingerprint) -> Option<&[u32]> {
        self.by.get(&fingerprint).map(|content| &*content.stored).filter(|stored| !stored.is_empty())
    }

    /// Notes what a content takes with each codec, if it is still kept.
    pub(crate) fn note_stored(&mut self, fingerprint: Fingerprint, stored: &[u32]) {
        if let Some(content) = self.by.get_mut(&fingerprint) {
            content.stored = stored.into();
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Content> {
        self.by.values()
    }

    /// Which part of all contents is kept.
    pub(crate) fn kept(&self) -> f64 {
        0.5f64.powi(self.shift as i32)
    }
}

/// With fewer pieces than this nothing is known of how they differ.
const LEAST_PIECES: u64 = 10;

/// Sums over pieces: what they are long and what they take, or what their blocks in a sample do. From these a ratio and its margin
/// follow.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sums {
    pieces: u64,
    len: f64,
    stored: f64,
    len_len: f64,
    len_stored: f64,
    stored_stored: f64,
}

impl Sums {
    /// Adds a piece. Blocks of a piece are like each other, so pieces count, not blocks.
    pub(crate) fn add(&mut self, len: u64, stored: u64) {
        let (len, stored) = (len as f64, stored as f64);
        self.pieces += 1;
        self.len += len;
        self.stored += stored;
        self.len_len += len * len;
        self.len_stored += len * stored;
        self.stored_stored += stored * stored;
    }

    /// What a byte takes, and how far that may be off (two standard errors). `of` is how many bytes there are of which these are a
    /// sample.
    pub(crate) fn ratio(&self, of: f64) -> (f64, f64) {
        if self.len <= 0.0 {
            return (1.0, if of > 0.0 { 1.0 } else { 0.0 });
        }
        let ratio = self.stored / self.len;
        if of <= self.len {
            return (ratio, 0.0);
        }
        if self.pieces < LEAST_PIECES {
            return (ratio, 1.0);
        }
        // Of the ratio of two sums over pieces.
        let squares = self.stored_stored - 2.0 * ratio * self.len_stored + ratio * ratio * self.len_len;
        let spread = squares.max(0.0) * self.pieces as f64 / (self.pieces - 1) as f64;
        (ratio, 2.0 * (spread * (1.0 - self.len / of)).sqrt() / self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fingerprints as they come: any value is as likely as any other.
    fn fingerprint(n: u64) -> Fingerprint {
        let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Fingerprint(u128::from(z ^ (z >> 31)) << 64 | u128::from(n))
    }

    #[test]
    fn a_sample_of_contents_stays_small_and_fair() {
        let (most, all) = (4096, 300_000u64);
        let mut contents = Contents::new(most);
        for n in 0..all {
            for copy in 0..1 + n % 3 {
                contents.note(fingerprint(n), ((copy % 2) as usize, copy as u32), 8192);
            }
        }
        let kept = contents.all().count();
        assert!(kept <= most && kept > most / 4, "{kept}");
        let estimated = kept as f64 / contents.kept();
        assert!((estimated / all as f64 - 1.0).abs() < 0.06, "{estimated} of {all}");
        // All copies of those that are kept are known, whenever they came.
        let count = |is: &dyn Fn(&Content) -> bool| {
            contents.all().filter(|content| is(content)).count() as f64 / kept as f64
        };
        assert_eq!(count(&|content| content.found_in(None).is_some()), 1.0);
        let once = count(&|content| content.found_in(None) == Some(Seen::InPiece(0)));
        let in_second = count(&|content| content.found_in(Some(1)) == Some(Seen::InPiece(1)));
        let often = count(&|content| content.found_in(Some(0)) == Some(Seen::InSeveral));
        assert!((once - 1.0 / 3.0).abs() < 0.05, "{once}");
        assert!((in_second - 2.0 / 3.0).abs() < 0.05, "{in_second}");
        assert!((often - 1.0 / 3.0).abs() < 0.05, "{often}");
    }

    #[test]
    fn what_is_known_of_a_content_is_found_again() {
        let mut contents = Contents::new(10);
        let one = fingerprint(1);
        assert_eq!(contents.note(one, (0, 0), 8192), Noted::New);
        assert_eq!(contents.stored(one), None);
        contents.note_stored(one, &[100, 50]);
        assert_eq!(contents.note(one, (1, 1), 8192), Noted::Known);
        assert_eq!(contents.stored(one), Some(&[100, 50][..]));
        let content = contents.all().next().unwrap();
        assert_eq!([None, Some(0), Some(1)].map(|codec| content.stored_with(codec)), [8192, 100, 50]);
    }

    #[test]
    fn the_margin_holds_what_is_true_and_is_nothing_for_all() {
        let piece = |n: u64| (1u64 << 20, (fingerprint(n).0 >> 64) as u64 % (1 << 20));
        let mut all = Sums::default();
        (0..10_000).for_each(|n| all.add(piece(n).0, piece(n).1));
        let of = (10_000u64 << 20) as f64;
        let (truth, none) = all.ratio(of);
        assert!(none.abs() < 1e-9);
        let (mut held, samples) = (0, 200);
        for sample in 0..samples {
            let mut sums = Sums::default();
            (0..10_000).filter(|n| n % samples == sample).for_each(|n| sums.add(piece(n).0, piece(n).1));
            let (ratio, margin) = sums.ratio(of);
            held += u64::from((ratio - truth).abs() <= margin);
        }
        assert!(held >= samples * 88 / 100, "{held} of {samples}");
    }
}
