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
use zerocopy::FromZeros;

const WAYS: usize = 8;
const BUCKET_BYTES: usize = WAYS * Index::ENTRY_BYTES;
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

/// The entries of a cache line.
struct Bucket<'a>(&'a [AtomicU64]);

impl Bucket<'_> {
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
    /// Entries, and as many more as aligning the buckets takes.
    words: Box<[AtomicU64]>,
    /// Where the first bucket begins: at a cache line.
    first: usize,
    buckets: usize,
}

impl Index {
    /// Bytes of an entry.
    pub const ENTRY_BYTES: usize = 8;

    /// An empty one of so many bytes, rounded down to whole buckets, one at least.
    pub fn new(bytes: usize) -> Self {
        let buckets = (bytes / BUCKET_BYTES).max(1);
        // NOTE: not an array of aligned buckets, which the allocator would fill with zeroes. RAM that nothing was noted in is not
        // used this way.
        let words = <[AtomicU64]>::new_box_zeroed_with_elems((buckets + 1) * WAYS);
        let words = words.unwrap_or_else(|_| panic!("no RAM for an index of {bytes} bytes"));
        let misaligned = words.as_ptr().addr() % BUCKET_BYTES;
        let first = (BUCKET_BYTES - misaligned) % BUCKET_BYTES / Self::ENTRY_BYTES;
        Self { words, first, buckets }
    }

    /// The most entries that it holds.
    pub fn capacity(&self) -> usize {
        self.buckets * WAYS
    }

    /// Blocks that may have this content, most likely one or none.
    pub fn find(&self, fingerprint: Fingerprint) -> impl Iterator<Item = BlockNumber> {
        let (bucket, tag) = self.place(fingerprint);
        let entries = (0..WAYS).map(move |way| bucket.get(way));
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
    fn place(&self, fingerprint: Fingerprint) -> (Bucket<'_>, u64) {
        let (high, low) = ((fingerprint.0 >> 64) as u64, fingerprint.0 as u64);
        // Any bucket is as likely as any other, without a division.
        let bucket = ((u128::from(high) * self.buckets as u128) >> 64) as usize;
        let at = self.first + bucket * WAYS;
        (Bucket(&self.words[at..at + WAYS]), low & ((1 << TAG_BITS) - 1))
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
        for bytes in [64, 4096, 1 << 20] {
            let index = Index::new(bytes);
            assert_eq!(index.capacity() * Index::ENTRY_BYTES, bytes);
            for n in 0..1000 {
                let (Bucket(entries), _) = index.place(of(n));
                assert_eq!((entries.as_ptr().addr() % 64, size_of_val(entries)), (0, 64));
            }
        }
        assert_eq!(Index::new(0).capacity(), WAYS);
    }

    #[test]
    fn ram_that_nothing_was_noted_in_is_not_used() {
        let resident_pages = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = resident_pages();
        let index = Index::new(2 << 30);
        index.note(of(1), BlockNumber(1));
        let used = resident_pages().saturating_sub(before);
        assert!(finds(&index, 1) && used * 4096 < 512 << 20, "{used} pages");
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
