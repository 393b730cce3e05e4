//! Blocks that destage tries again. Each rests for a while before that, the longer the more often it failed: what it waits for
//! may be a drive that is away for hours.

use crate::buffer::BlockKey;
use quoin_base::{LayerId, Sequence};
use quoin_world::Nanos;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long a block rests when it has failed once, and at the longest.
const REST_FIRST: Duration = Duration::from_millis(2);
const REST_MOST: Duration = Duration::from_secs(1);

/// Blocks that could not be put together, because a drive failed to read a part of each, and those that found no slab.
#[derive(Default)]
pub(crate) struct Retries {
    unread: BTreeMap<BlockKey, Unread>,
    unplaced: BTreeSet<BlockKey>,
    /// How many extents the journal had taken when all that waits was carried forward last.
    pub(super) carried_at: u64,
    /// When it is looked again whether it can be.
    pub(super) carries_from: Nanos,
    carries_all: CarriesAll,
}

/// What is carried forward for want of slabs.
#[derive(Default)]
pub(super) struct CarriesAll {
    /// Where the journal's set of drives had changed last.
    set_from: u64,
    /// All that came in before this is carried.
    pub older_than: Sequence,
    /// When it is looked again whether something was not.
    pub from: Nanos,
}

struct Unread {
    tries: u32,
    since: Nanos,
    /// The newest sequence in it when it was tried last.
    newest: Sequence,
    rests_until: Nanos,
    /// When it was tried last, drives were away that may have what it waits for.
    awaits_drives: bool,
    /// Where the journal's set of drives had changed last when it was carried forward last.
    carried_since: Option<u64>,
}

impl Retries {
    /// Notes that a block whose newest sequence is this could not be read. Returns how often, and for how long.
    pub(super) fn failed(&mut self, key: BlockKey, newest: Sequence, now: Nanos) -> (u32, Duration) {
        let first = Unread {
            tries: 0,
            since: now,
            newest,
            rests_until: now,
            awaits_drives: false,
            carried_since: None,
        };
        let unread = self.unread.entry(key).or_insert(first);
        let rest = REST_FIRST.saturating_mul(1 << unread.tries.min(16)).min(REST_MOST);
        unread.tries = unread.tries.saturating_add(1);
        (unread.newest, unread.rests_until) = (newest, Nanos(now.0 + rest.as_nanos() as u64));
        (unread.tries, now.since(unread.since))
    }

    /// Whether a block is to rest still. One that was written to since it failed is tried at once.
    pub(super) fn rests(&self, key: BlockKey, newest: Sequence, now: Nanos) -> bool {
        self.unread.get(&key).is_some_and(|unread| unread.newest >= newest && unread.rests_until > now)
    }

    /// Has all blocks tried again at once.
    pub(super) fn wake(&mut self) {
        self.unread.values_mut().for_each(|unread| unread.rests_until = Nanos(0));
    }

    /// Notes that a block that failed waits for drives, or that it does not.
    pub(super) fn awaits(&mut self, key: BlockKey, awaits_drives: bool) {
        if let Some(unread) = self.unread.get_mut(&key) {
            unread.awaits_drives = awaits_drives;
        }
    }

    /// Those that wait for drives, and of each whether it was not carried forward since the journal's set of drives changed.
    pub(super) fn awaiting_drives(&self, set_from: u64) -> Vec<(BlockKey, bool)> {
        let waiting = self.unread.iter().filter(|(_, unread)| unread.awaits_drives);
        waiting.map(|(key, unread)| (*key, unread.carried_since != Some(set_from))).collect()
    }

    /// Notes that a block was carried forward, all of it if `set_from` is there: what it holds has other sequences than before,
    /// and was tried. `before` and `newest` are the newest of them.
    pub(super) fn carried(
        &mut self,
        key: BlockKey,
        set_from: Option<u64>,
        before: Sequence,
        newest: Sequence,
    ) {
        let Some(unread) = self.unread.get_mut(&key) else { return };
        unread.carried_since = set_from.or(unread.carried_since);
        if unread.newest == before {
            unread.newest = newest;
        }
    }

    /// What is to be carried forward once for want of slabs, after the journal's set of drives changed there. `next` is the
    /// sequence that comes next.
    pub(super) fn carries_all(&mut self, set_from: u64, next: Sequence) -> &mut CarriesAll {
        if self.carries_all.set_from != set_from {
            self.carries_all = CarriesAll { set_from, older_than: next, from: Nanos(0) };
        }
        &mut self.carries_all
    }

    /// Notes that there is no slab for a block, or that it waits for none: it has a place, or needs none now.
    pub(super) fn note_unplaced(&mut self, key: BlockKey, is_unplaced: bool) {
        if is_unplaced {
            self.unplaced.insert(key);
        } else if self.is_any_unplaced() {
            self.unplaced.remove(&key);
        }
    }

    /// Whether there is no slab for some block.
    pub(super) fn is_any_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// Notes that no block waits for slabs.
    pub(super) fn forget_unplaced(&mut self) {
        self.unplaced.clear();
    }

    /// Notes that a block is tried no more.
    pub(super) fn forget(&mut self, key: BlockKey) {
        self.unread.remove(&key);
    }

    /// How many blocks are to be tried again.
    pub(super) fn count(&self) -> u64 {
        self.unread.len() as u64
    }

    /// Whether any block of a layer is to be tried again.
    pub(super) fn any_of(&self, layer: LayerId) -> bool {
        self.unread.keys().any(|key| key.layer == layer)
    }

    /// Whether a block was tried as it is now.
    pub(super) fn was_tried(&self, key: BlockKey, newest: Sequence) -> bool {
        self.unread.get(&key).is_some_and(|unread| unread.newest >= newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::BlockIndex;

    fn key() -> BlockKey {
        BlockKey { layer: LayerId(1), family: LayerId(1), index: BlockIndex(7) }
    }

    #[test]
    fn a_block_rests_longer_each_time_until_it_is_written_to_or_woken() {
        let (mut retries, newest, mut now) = (Retries::default(), Sequence(5), Nanos(0));
        let mut rests = Vec::new();
        for tries in 1..=12 {
            assert_eq!(retries.failed(key(), newest, now).0, tries);
            let begun = now;
            while retries.rests(key(), newest, now) {
                now = Nanos(now.0 + 1_000_000);
            }
            rests.push(now.since(begun).as_millis());
        }
        assert_eq!(rests, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000, 1000]);
        retries.failed(key(), newest, now);
        assert!(retries.rests(key(), newest, now) && !retries.rests(key(), Sequence(6), now));
        assert_eq!(retries.count(), 1);
        retries.wake();
        assert!(!retries.rests(key(), newest, now));
        retries.forget(key());
        assert_eq!(retries.count(), 0);
    }
}
