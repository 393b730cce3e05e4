//! The fingerprint index: which block has a content, as far as that is remembered.
//!
//! A hint, never the truth. Who asks gets numbers of blocks that may have the content, and looks into the block table whether they
//! do: see [`Fingerprint`]. So the index may forget, and may be wrong about blocks that were freed meanwhile; it may be lost whole.
//!
//! 1. Its size is fixed: eight bytes an entry, eight entries a bucket, a bucket a cache line. A fingerprint belongs to one bucket.
//! 2. It returns a number only for a fingerprint of the same bucket and tag as the one it was noted with. Two that differ have both
//!    in common with a probability of 2^-22, for each of the eight entries.
//! 3. When a bucket is full, what goes is what was hit least. Each one that comes takes a hit from one of those that stay. So what is
//!    hit again and again stays, and of the rest what came last.
//!
//! Any number of threads use it at once. One may overwrite what another has just noted: that is forgotten.

use crate::Fingerprint;
use quoin_base::BlockNumber;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromZeros, KnownLayout};

const WAYS: usize = 8;
const NUMBER_BITS: u32 = 39;
const TAG_BITS: u32 = 22;
/// Hits of an entry are counted up to this.
const MOST_HITS: u64 = 7;

/// An entry: number of the block 39 bits, tag 22, hits 3. 0: none. Number 0 is no block's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    const NONE: Self = Self(0);

    fn new(number: BlockNumber, tag: u64, hits: u64) -> Self {
        Self(number.0 | tag << NUMBER_BITS | hits << (NUMBER_BITS + TAG_BITS))
    }

    fn number(self) -> BlockNumber {
        BlockNumber(self.0 & ((1 << NUMBER_BITS) - 1))
    }

    fn tag(self) -> u64 {
        self.0 >> NUMBER_BITS & ((1 << TAG_BITS) - 1)
    }

    fn hits(self) -> u64 {
        self.0 >> (NUMBER_BITS + TAG_BITS)
    }

    fn with_hits(self, hits: u64) -> Self {
        Self::new(self.number(), self.tag(), hits)
    }

    /// How much it is worth keeping: nothing at all, if it is none.
    fn worth(self) -> u64 {
        if self == Self::NONE { 0 } else { 1 + self.hits() }
    }
}

#[repr(align(64))]
#[derive(FromZeros, KnownLayout)]
struct Bucket([AtomicU64; WAYS]);

impl Bucket {
    fn get(&self, way: usize) -> Entry {
        Entry(self.0[way].load(Ordering::Relaxed))
    }

    /// Replaces an entry, unless another thread did.
    fn replace(&self, way: usize, from: Entry, to: Entry) -> bool {
        self.0[way].compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Which blocks have which fingerprints, as far as that is remembered.
pub struct Index {
    buckets: Box<[Bucket]>,
}

impl Index {
    /// Bytes of an entry.
    pub const ENTRY_BYTES: usize = 8;

    /// An empty one of so many bytes, rounded down to whole buckets, one at least.
    pub fn new(bytes: usize) -> Self {
        let buckets = (bytes / size_of::<Bucket>()).max(1);
        // RAM that nothing was noted in is not used.
        let buckets = <[Bucket]>::new_box_zeroed_with_elems(buckets);
        Self { buckets: buckets.unwrap_or_else(|_| panic!("no RAM for an index of {bytes} bytes")) }
    }

    /// The most entries that it holds.
    pub fn capacity(&self) -> usize {
        self.buckets.len() * WAYS
    }

    /// Blocks that may have this content, most likely one or none.
    pub fn find(&self, fingerprint: Fingerprint) -> impl Iterator<Item = BlockNumber> {
        let (bucket, tag) = self.place(fingerprint);
        let entries = (0..WAYS).map(|way| bucket.get(way));
        entries.filter(move |entry| *entry != Entry::NONE && entry.tag() == tag).map(Entry::number)
    }

    /// Notes that a block has a content. Others that were noted with the same stay beside it.
    pub fn note(&self, fingerprint: Fingerprint, number: BlockNumber) {
        assert!(number.0 > 0 && number.0 >> NUMBER_BITS == 0, "{number} is no block's number");
        let (bucket, tag) = self.place(fingerprint);
        let entries: [Entry; WAYS] = std::array::from_fn(|way| bucket.get(way));
        if entries.iter().any(|entry| entry.tag() == tag && entry.number() == number) {
            return;
        }
        // By chance among those that are worth the least.
        let chance = (fingerprint.0 as u64 >> TAG_BITS) as usize;
        let ways = (0..WAYS).map(|way| (way + chance) % WAYS);
        let Some(way) = ways.min_by_key(|way| entries[*way].worth()) else { return };
        let is_full = entries[way] != Entry::NONE;
        // A new one has one hit, so that it stays for a while.
        if bucket.replace(way, entries[way], Entry::new(number, tag, 1)) && is_full {
            let pushed = (way + 1 + chance / WAYS % (WAYS - 1)) % WAYS;
            let entry = entries[pushed];
            bucket.replace(pushed, entry, entry.with_hits(entry.hits().saturating_sub(1)));
        }
    }

    /// Notes that a block was found by its content, and has it.
    pub fn hit(&self, fingerprint: Fingerprint, number: BlockNumber) {
        self.change(fingerprint, number, |entry| entry.with_hits((entry.hits() + 1).min(MOST_HITS)));
    }

    /// Forgets a block: it has the content no more.
    pub fn forget(&self, fingerprint: Fingerprint, number: BlockNumber) {
        self.change(fingerprint, number, |_| Entry::NONE);
    }

    fn change(&self, fingerprint: Fingerprint, number: BlockNumber, to: impl Fn(Entry) -> Entry) {
        let (bucket, tag) = self.place(fingerprint);
        for way in 0..WAYS {
            let entry = bucket.get(way);
            if entry.tag() == tag && entry.number() == number && entry != Entry::NONE {
                bucket.replace(way, entry, to(entry));
            }
        }
    }

    /// The bucket of a fingerprint, and its tag there.
    fn place(&self, fingerprint: Fingerprint) -> (&Bucket, u64) {
        let (high, low) = ((fingerprint.0 >> 64) as u64, fingerprint.0 as u64);
        // Any bucket is as likely as any other, without a division.
        let bucket = ((u128::from(high) * self.buckets.len() as u128) >> 64) as usize;
        (&self.buckets[bucket], low & ((1 << TAG_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FingerprintKey;

    fn of(n: u64) -> Fingerprint {
        FingerprintKey::new([1; 32]).fingerprint(&n.to_le_bytes())
    }

    fn finds(index: &Index, n: u64) -> bool {
        index.find(of(n)).any(|number| number.0 == n)
    }

    #[test]
    fn a_bucket_is_a_cache_line_and_the_size_is_kept_to() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
        assert_eq!(Index::new(1 << 20).capacity() * Index::ENTRY_BYTES, 1 << 20);
        assert_eq!(Index::new(0).capacity(), WAYS);
    }

    #[test]
    fn what_was_noted_is_found_and_what_was_forgotten_is_not() {
        let index = Index::new(1 << 20);
        let most = BlockNumber((1 << NUMBER_BITS) - 1);
        index.note(of(1), most);
        assert_eq!(index.find(of(1)).collect::<Vec<_>>(), [most]);
        assert_eq!(index.find(of(2)).count(), 0);
        // The same content lies elsewhere, too.
        index.note(of(1), BlockNumber(5));
        index.note(of(1), BlockNumber(5));
        let mut found: Vec<_> = index.find(of(1)).collect();
        found.sort();
        assert_eq!(found, [BlockNumber(5), most]);
        index.forget(of(1), most);
        assert_eq!(index.find(of(1)).collect::<Vec<_>>(), [BlockNumber(5)]);
        index.hit(of(1), BlockNumber(5));
        index.forget(of(1), BlockNumber(5));
        assert_eq!(index.find(of(1)).count(), 0);
    }

    #[test]
    fn most_of_what_fits_stays_and_of_more_than_fits_the_last() {
        let index = Index::new(1 << 20);
        let capacity = index.capacity() as u64;
        (1..=capacity / 2).for_each(|n| index.note(of(n), BlockNumber(n)));
        let kept = (1..=capacity / 2).filter(|n| finds(&index, *n)).count() as u64;
        assert!(kept * 100 > capacity / 2 * 97, "{kept} of {}", capacity / 2);
        (1..=4 * capacity).for_each(|n| index.note(of(n), BlockNumber(n)));
        let found = |from: u64, to: u64| (from..to).filter(|n| finds(&index, *n)).count() as u64;
        let (first, last) = (found(1, capacity), found(4 * capacity - capacity / 4, 4 * capacity));
        assert!(last * 100 > capacity / 4 * 80 && first * 10 < capacity, "{first}, {last}");
    }

    #[test]
    fn what_is_hit_again_and_again_outlives_what_passes_by() {
        let index = Index::new(1 << 18);
        let (capacity, hot) = (index.capacity() as u64, 1000);
        (1..=hot).for_each(|n| index.note(of(n), BlockNumber(n)));
        for n in 0..20 * capacity {
            let number = 1_000_000 + n;
            index.note(of(number), BlockNumber(number));
            let hit = 1 + n % hot;
            if finds(&index, hit) {
                index.hit(of(hit), BlockNumber(hit));
            }
        }
        let kept = (1..=hot).filter(|n| finds(&index, *n)).count();
        assert!(kept > 950, "{kept}");
        // And what was hot once goes when it is hit no more.
        for n in 0..40 * capacity {
            let number = 100_000_000 + n;
            index.note(of(number), BlockNumber(number));
        }
        let kept = (1..=hot).filter(|n| finds(&index, *n)).count();
        assert!(kept < 200, "{kept}");
    }

    #[test]
    fn no_number_comes_out_that_was_not_noted_whatever_threads_do() {
        let index = Index::new(1 << 12);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let index = &index;
                scope.spawn(move || {
                    for n in 0..50_000 {
                        let n = 1 + (n * 7 + thread * 13) % 5000;
                        // The number tells which content it was noted with.
                        for number in index.find(of(n)) {
                            assert_eq!(number.0, n);
                        }
                        match n % 5 {
                            0 => index.forget(of(n), BlockNumber(n)),
                            1 => index.hit(of(n), BlockNumber(n)),
                            _ => index.note(of(n), BlockNumber(n)),
                        }
                    }
                });
            }
        });
    }
}
