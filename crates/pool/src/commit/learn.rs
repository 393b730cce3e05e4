//! Learning anew, after an opening, which blocks have which content: the block table is gone through once, beside everything else.
//!
//! Until that is done some of what could be shared is written again, and nothing else is different.

use crate::{
    commit::{committer::Committer, learning::Learning},
    maps::blocks::{blocks_of, entry_in, fingerprint_in, table_page},
};
use futures_util::future::join_all;
use quoin_world::atomic::Ordering;

/// Pages of the block table, with 1 MiB of blocks each, that are read side by side in a step.
const PAGES: u64 = 32;

impl Committer {
    /// Whether there is anything to learn, and a volume for which it may be of use.
    pub(super) fn learns(&self) -> bool {
        let Learning { next, end } = self.blocks.learning;
        next < end && self.slice.forks.read().is_any_deduplicated.load(Ordering::Relaxed)
    }

    /// Notes the blocks of some pages.
    pub(super) async fn learn_some(&mut self) {
        let slice = self.slice.clone();
        let Learning { next, end } = self.blocks.learning;
        let stop = end.min(next.plus(PAGES));
        let slice = &slice;
        let reads = next.until(stop).map(|page| async move {
            (page, slice.metadata.pages.get(table_page(page)).await.ok().flatten())
        });
        // What cannot be read is shared with nothing.
        for (number, page) in join_all(reads).await {
            let Some(page) = page else { continue };
            for block in blocks_of(number).filter(|block| entry_in(&page, *block).is_some()) {
                if let Some(fingerprint) = fingerprint_in(&page, block) {
                    slice.fingerprints().note(fingerprint, block);
                }
            }
        }
        self.blocks.learning.next = stop;
    }
}
