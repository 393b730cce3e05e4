//! Two shards at once.

use super::{BlockKey, Buffer, Shard};
use quoin_world::MutexGuard;
use std::cmp::Ordering;

impl Buffer {
    /// The shards of two blocks; one, if both have the same.
    pub(crate) fn shards_of(
        &self,
        first: BlockKey,
        second: BlockKey,
    ) -> (MutexGuard<'_, Shard>, Option<MutexGuard<'_, Shard>>) {
        let (a, b) = (self.shard_index(first), self.shard_index(second));
        match a.cmp(&b) {
            Ordering::Equal => (self.shards[a].lock(), None),
            // IMPORTANT: in their order, as whoever locks several does.
            Ordering::Less => {
                let first = self.shards[a].lock();
                (first, Some(self.shards[b].lock()))
            }
            Ordering::Greater => {
                let second = self.shards[b].lock();
                (self.shards[a].lock(), Some(second))
            }
        }
    }
}
