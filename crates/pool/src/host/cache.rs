//! The read cache: content of blocks, by block number.
//!
//! A block number names content that never changes, so an entry is either right or of a number that was freed.
//!
//! Invariants:
//! 1. What is here was verified when it was read, or is what destage is placing. It has the checksum that it had then.
//! 2. No entry outlives its number. Freeing a number purges it. A reader that looked it up before may still fill
//!    it afterwards, but only within its reader epoch, and a number is given out again only when all such readers
//!    have left; giving it out purges it once more.
//! 3. The weight of all entries, each with what it costs beside its data, stays within the budget: an entry keeps
//!    no larger buffer alive.
//!
//! Which block goes first is the library's choice: a block that was used once goes before one that was used
//! twice, so that reading much once does not drive out what is read often.

use crate::{
    bugs::{Bug, planted},
    segment::packed::Whole,
};
use quick_cache::{
    OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle},
};
use quoin_base::{BlockNumber, crc32c, metrics::Counter};
use quoin_world::Slice as Bytes;
use rustc_hash::FxBuildHasher;

/// What an entry takes beside its data: the entry itself, its share of the index and of what is remembered of
/// evicted ones, and the head of its buffer.
const ENTRY_BYTES: u64 = 192;
const SHARDS: usize = 64;
/// Reads of more than this are not kept: they stream, and neighbours are cheap to read again.
pub(crate) const LARGEST_FILL_BYTES: u64 = 64 << 10;

#[derive(Clone)]
struct Weight;

impl Weighter<BlockNumber, Whole> for Weight {
    fn weight(&self, _: &BlockNumber, content: &Whole) -> u64 {
        content.data.backing_bytes() as u64 + ENTRY_BYTES
    }
}

type Blocks = Cache<BlockNumber, Whole, Weight, FxBuildHasher>;

pub(crate) struct ReadCache {
    blocks: Option<Blocks>,
    hits: Counter,
    misses: Counter,
}

impl ReadCache {
    /// A cache of at most `budget_bytes`; none if that is less than a few blocks.
    pub(crate) fn new(budget_bytes: u64, block_bytes: u64) -> Self {
        let items = budget_bytes / (block_bytes + ENTRY_BYTES);
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(items as usize)
            .weight_capacity(budget_bytes)
            .build();
        let blocks = options.ok().filter(|_| items >= 4).map(|options| {
            let lifecycle: DefaultLifecycle<BlockNumber, Whole> = DefaultLifecycle::default();
            Blocks::with_options(options, Weight, FxBuildHasher, lifecycle)
        });
        Self { blocks, hits: Counter::default(), misses: Counter::default() }
    }

    /// The content of a block. The caller is in a reader epoch and has just found the number in a thin map.
    pub(crate) fn get(&self, number: BlockNumber) -> Option<Bytes> {
        let found = self.blocks.as_ref()?.get(&number);
        match found {
            Some(_) => self.hits.add(1),
            None => self.misses.add(1),
        };
        found.map(|content| content.data)
    }

    /// Whether it has a block.
    pub(crate) fn has(&self, number: BlockNumber) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.peek(&number).is_some())
    }

    /// The content of a block for the pool's own use: not counted, and no reason to keep it. What RAM made of it is not returned.
    pub(crate) fn peek(&self, number: BlockNumber) -> Option<Whole> {
        let content = self.blocks.as_ref()?.peek(&number)?;
        (crc32c(&content.data).0 == content.crc || planted(Bug::SkipReadVerify)).then_some(content)
    }

    /// Keeps the whole content of a block. The caller is the committer, or still in the reader epoch in which it
    /// found the number.
    pub(crate) fn fill(&self, number: BlockNumber, content: &Whole) {
        let Some(blocks) = &self.blocks else { return };
        let Whole { data, crc } = content;
        let owned = data.backing_bytes() == data.len();
        let data = if owned { data.clone() } else { Bytes::copy_of(data) };
        blocks.insert(number, Whole { data, crc: *crc });
    }

    /// Keeps what was just written in place of what a cached block held, if that costs no copy. What nobody has read is
    /// not kept: a host that writes a block seldom reads it soon.
    pub(crate) fn fill_written(&self, number: BlockNumber, content: &Whole, old: Option<BlockNumber>) {
        let is_read = || old.is_some_and(|old| self.has(old));
        if content.data.backing_bytes() == content.data.len() && is_read() {
            self.fill(number, content);
        }
    }

    /// Forgets a block: its number was freed, or is about to be used again.
    pub(crate) fn purge(&self, number: BlockNumber) {
        if let Some(blocks) = self.blocks.as_ref().filter(|_| !planted(Bug::StaleCache)) {
            blocks.remove(&number);
        }
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.value()
    }

    pub(crate) fn misses(&self) -> u64 {
        self.misses.value()
    }

    /// RAM that it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.blocks.as_ref().map_or(0, |blocks| blocks.weight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_world::Buf;

    const BLOCK: u64 = 8192;

    fn block(number: BlockNumber) -> Whole {
        let mut buf = Buf::zeroed(BLOCK as usize);
        buf.as_mut_slice()[..8].copy_from_slice(&number.0.to_le_bytes());
        whole(buf.into_slice())
    }

    fn whole(data: Bytes) -> Whole {
        Whole { crc: crc32c(&data).0, data }
    }

    fn read(cache: &ReadCache, number: BlockNumber) -> bool {
        let found = cache.get(number);
        match &found {
            Some(content) => assert_eq!(content[..8], number.0.to_le_bytes()),
            None => cache.fill(number, &block(number)),
        }
        found.is_some()
    }

    #[test]
    fn a_scan_of_four_times_the_cache_leaves_what_is_hot() {
        let blocks = 1024;
        let cache = ReadCache::new(blocks * (BLOCK + ENTRY_BYTES), BLOCK);
        let hot = blocks / 2;
        for _ in 0..4 {
            for n in 0..hot {
                read(&cache, BlockNumber(n));
            }
        }
        // Hosts go on using the hot set, if less often than the scan reads.
        for n in 0..4 * blocks {
            assert!(!read(&cache, BlockNumber(1_000_000 + n)), "the scan never comes back");
            if n % 4 == 0 {
                read(&cache, BlockNumber(n / 4 % hot));
            }
        }
        let kept = (0..hot).filter(|n| cache.get(BlockNumber(*n)).is_some()).count() as u64;
        assert!(kept * 100 >= hot * 95, "{kept} of {hot} kept");
    }

    #[test]
    fn it_stays_within_its_budget_and_keeps_no_larger_buffers_alive() {
        let cache = ReadCache::new(1 << 20, BLOCK);
        let large = Buf::zeroed(1 << 20).into_slice();
        for n in 0..1000 {
            let start = (n % 128 * BLOCK) as usize;
            let part = whole(large.slice(start..start + BLOCK as usize));
            cache.fill(BlockNumber(n), &part);
            cache.fill_written(BlockNumber(10_000 + n), &part, Some(BlockNumber(n)));
            assert!(cache.held_bytes() <= 1 << 20);
        }
        assert!(cache.held_bytes() > 900 << 10, "{}", cache.held_bytes());
        let kept = (0..1000).find_map(|n| cache.get(BlockNumber(n))).unwrap();
        assert_eq!(kept.backing_bytes() as u64, BLOCK);
        assert!((10_000..11_000).all(|n| cache.get(BlockNumber(n)).is_none()), "a copy was made");
    }

    #[test]
    fn what_is_written_is_kept_where_it_replaces_what_was_read() {
        let cache = ReadCache::new(1 << 20, BLOCK);
        read(&cache, BlockNumber(1));
        cache.fill_written(BlockNumber(10), &block(BlockNumber(10)), Some(BlockNumber(1)));
        cache.fill_written(BlockNumber(11), &block(BlockNumber(11)), Some(BlockNumber(2)));
        cache.fill_written(BlockNumber(12), &block(BlockNumber(12)), None);
        assert!(cache.get(BlockNumber(10)).is_some());
        assert!(cache.get(BlockNumber(11)).is_none() && cache.get(BlockNumber(12)).is_none());
    }

    #[test]
    fn what_is_purged_is_gone_and_no_budget_is_no_cache() {
        let cache = ReadCache::new(1 << 20, BLOCK);
        assert!(!read(&cache, BlockNumber(7)) && read(&cache, BlockNumber(7)));
        cache.purge(BlockNumber(7));
        assert!(cache.get(BlockNumber(7)).is_none());
        assert_eq!((cache.hits(), cache.misses()), (1, 2));
        let none = ReadCache::new(0, BLOCK);
        none.fill(BlockNumber(1), &block(BlockNumber(1)));
        assert!(none.get(BlockNumber(1)).is_none() && none.held_bytes() == 0 && none.misses() == 0);
    }
}
