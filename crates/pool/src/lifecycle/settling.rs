//! Getting ready for the next loss as soon as a drive is lost.
//!
//! What was written before a loss lacks a column: extents of the journal, and rows that no checkpoint has hardened. If the drive
//! with the other column is lost before that is over, the pool goes offline. So it is made as short as it can be. Lanes of the
//! journal go on to extents on the drives that are left at once, open segments are sealed, what is buffered is destaged, and a
//! checkpoint makes an end of it. The table of segments gets its copies back with that checkpoint. Other metadata on fewer drives
//! than it should be is copied to others by the rebuild, also while the lost drive may come back. And drives that do not vote do
//! so in the place of a lost one: the pool cannot go on without its last voter.
//!
//! Blocks that cannot be destaged, because what they were written over in part cannot be read, are carried forward in the
//! journal. Nothing but those for which that cannot be done keeps a loss from being settled: they wait for drives, and the loss
//! with them.
//!
//! While no drive is lost this costs nothing: the task sleeps until the table of members changes.

use crate::{
    error::PoolError,
    lifecycle::{pool::Pool, slice::Slice},
};
use quoin_base::MembersGeneration;
use quoin_drive::Members;
use std::time::Duration;

/// Between two tries, at first and at the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_secs(1);

impl Pool {
    /// Whether it is ready for the next loss: all that was written before drives were lost has as many columns as they left room
    /// for. Until then another loss may take the pool offline.
    pub fn is_settled(&self) -> bool {
        last_loss(&self.store().members()) == MembersGeneration(0)
            || self.slices().iter().all(|slice| !slice.is_bare() && !slice.segments.table.lacks_copies())
    }
}

/// The newest table of members with which the pool went on without a drive that it is without still. 0: there is none.
fn last_loss(members: &Members) -> MembersGeneration {
    let lost = members.all.iter().filter(|member| member.is_lost()).map(|member| member.failed_at);
    lost.max().unwrap_or_default()
}

impl Slice {
    /// Whether something that was written before a loss is on fewer drives because of it, and may be on none after the next.
    fn is_bare(&self) -> bool {
        self.is_bare_beside_journal() || self.log.journal.lacks_columns()
    }

    /// The same of rows and of the segment table.
    fn is_bare_beside_journal(&self) -> bool {
        let table = &self.segments.table;
        let is_known = self.metadata.root().members.get() >= last_loss(&self.store.members()).0;
        !is_known || self.store.lacks_voters() || table.lacks_hardening() || table.lacks_table_copies()
    }

    /// Makes an end of what was written before each loss, until the pool ends. Then it is offline.
    pub(crate) async fn settle_losses(&self) {
        let mut settled = MembersGeneration(0);
        loop {
            let is_news = || {
                let last = last_loss(&self.store.members());
                (last > settled || self.store.health().is_failed()).then_some(last)
            };
            let last = self.store.health().until(is_news).await;
            if self.store.health().is_failed() {
                return;
            }
            // NOTE: if this fails, the pool is offline, which is found next.
            if let Err(error) = self.settle().await {
                tracing::debug!(%error, "a loss was not settled");
            }
            settled = last;
        }
    }

    async fn settle(&self) -> Result<(), PoolError> {
        let mut pause = PAUSE_FIRST;
        while self.is_bare() {
            // NOTE: if one that is to vote is lost as well, that is another loss, and the next turn finds others.
            if let Err(error) = self.store.appoint_enough().await {
                tracing::debug!(%error, "no other drive votes in the place of a lost one so far");
            }
            self.front.placer.seal_idle();
            match self.drain().await {
                // What there are no slabs for stays in the journal.
                Err(PoolError::NoSpace) => {}
                drained => drained?,
            }
            let is_at_end = pause == PAUSE_MOST && !self.is_bare_beside_journal();
            if self.counters.progress.unread_blocks() > 0 && is_at_end {
                // They wait for drives, they could not be carried forward, and the journal keeps what came after them.
                break;
            }
            self.world().sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MOST);
        }
        Ok(())
    }
}
