//! Blocks that destage tries again.

use crate::buffer::BlockKey;
use quoin_base::{LayerId, Sequence};
use quoin_world::Nanos;
use std::{collections::BTreeMap, time::Duration};

/// Blocks that could not be put together, because a drive failed to read a part of each.
#[derive(Default)]
pub(crate) struct Retries {
    unread: BTreeMap<BlockKey, Unread>,
}

struct Unread {
    tries: u32,
    since: Nanos,
    /// The newest sequence in it when it was tried last.
    newest: Sequence,
}

impl Retries {
    /// Notes that a block whose newest sequence is this could not be read. Returns how often, and for how long.
    pub(super) fn failed(&mut self, key: BlockKey, newest: Sequence, now: Nanos) -> (u32, Duration) {
        let first = Unread { tries: 0, since: now, newest };
        let unread = self.unread.entry(key).or_insert(first);
        unread.tries += 1;
        unread.newest = newest;
        (unread.tries, now.since(unread.since))
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
