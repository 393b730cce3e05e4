//! Rebuilding: columns of segments are made again on other drives, when their drives failed or leave.
//!
//! One task for each slice does it, beside hosts, at the pace of the background. It takes the segments first that tolerate the
//! fewest further failures, and only those with anything live. What it has done is in the segment table, and so in the next
//! checkpoint: after a restart it goes on where that left off. A column is made from the others of its segment, or copied
//! from its drive while that still serves.

use crate::{error::PoolError, lifecycle::slice::Slice, meta::ColumnMove};
use futures_util::{StreamExt, stream::FuturesUnordered};
use quoin_base::{ByteRange, DriveIndex, SegmentId};
use quoin_world::{
    Buf, Event, Thread,
    atomic::{AtomicBool, Ordering},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Bytes of a column that are made at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Columns that are made at the same time.
const MOVES_AT_ONCE: usize = 4;
/// How often it is looked whether there is anything to do that could not be done before.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Whether the task of a slice is under way.
#[derive(Default)]
pub(crate) struct Rebuilding {
    is_under_way: AtomicBool,
    ended: Event,
}

impl Rebuilding {
    /// Waits until the task has ended, as it does soon after the store was closed.
    pub(crate) async fn until_ended(&self) {
        self.ended.until(|| (!self.is_under_way.load(Ordering::Acquire)).then_some(())).await;
    }
}

impl Slice {
    /// Begins to rebuild whatever there is to rebuild, until the pool ends.
    pub(crate) fn begin_to_rebuild(self: &Arc<Self>) {
        self.rebuilding().is_under_way.store(true, Ordering::Release);
        let slice = self.clone();
        self.world().spawn(
            Thread::Background,
            Box::pin(async move {
                slice.rebuild().await;
                slice.rebuilding().is_under_way.store(false, Ordering::Release);
                slice.rebuilding().ended.notify();
            }),
        );
    }

    /// Rebuilds whatever there is to rebuild, until the pool ends.
    async fn rebuild(&self) {
        loop {
            // It sleeps until a drive is lost or leaves.
            let has_work = || (self.has_moves() || self.store.health().is_failed()).then_some(());
            self.store.health().until(has_work).await;
            if self.store.health().is_failed() {
                return;
            }
            match self.rebuild_some().await {
                Ok(true) => {}
                Ok(false) => {
                    self.help_moves().await;
                    self.world().sleep(LOOK_EVERY).await;
                }
                Err(error) => {
                    self.store.health().fail(error.to_string());
                    return;
                }
            }
        }
    }

    /// Whether anything is to lie elsewhere.
    fn has_moves(&self) -> bool {
        let table = &self.segments.table;
        table.is_any_displaced()
            || table.moves_await_checkpoint()
            || self.store.leaving().into_iter().any(|drive| self.is_on(drive))
    }

    fn is_on(&self, drive: DriveIndex) -> bool {
        self.segments.table.refers_to(drive) || self.log.journal.lies_on(drive)
    }

    /// Sees to what is left: it waits for a checkpoint, for the cleaner, for slabs, or is in the journal.
    async fn help_moves(&self) {
        let table = &self.segments.table;
        self.front.placer.seal_idle();
        self.requests.nudge();
        let leaving = self.store.leaving();
        // NOTE: if one of these fails, the pool is offline, which the caller finds.
        if leaving.iter().any(|drive| self.log.journal.lies_on(*drive)) && !table.is_any_displaced() {
            let _ = self.drain().await;
        } else if table.moves_await_checkpoint() || leaving.into_iter().any(|drive| table.refers_to(drive)) {
            let _ = self.checkpoint().await;
        }
        if table.is_any_displaced() && self.store.claimable(self.id()) > 0 {
            self.ask_for(self.space.overhead().segment());
        }
    }

    /// Makes columns again, several at a time, until there is none that can be. False if there was none.
    async fn rebuild_some(&self) -> Result<bool, PoolError> {
        // Several drives are read from and written to side by side.
        let (mut moving, mut under_way) = (FuturesUnordered::new(), BTreeSet::<SegmentId>::new());
        let (mut did, mut failure) = (false, None);
        loop {
            while moving.len() < MOVES_AT_ONCE && failure.is_none() && !self.store.health().is_failed() {
                let kept = self.space.checkpoint_slabs();
                let Some(next) = self.segments.table.begin_move(kept, &under_way) else { break };
                under_way.insert(next.segment);
                moving.push(async move {
                    let made = self.make_column(&next).await;
                    let is_made = matches!(made, Ok(true));
                    let took_place = self.segments.table.end_move(&next, is_made, self.segments.readers());
                    if took_place {
                        self.counters.rebuild.columns.add(1);
                    }
                    made.map(|_| (next.segment, took_place))
                });
            }
            // NOTE: all of them end, also if one fails: a drive takes a write that nobody waits for as its failure.
            match moving.next().await {
                Some(Ok((segment, true))) => {
                    under_way.remove(&segment);
                    did = true;
                    self.requests.nudge();
                }
                // It stays out of this turn, or it would be tried again and again.
                Some(Ok((_, false))) => {}
                Some(Err(error)) => failure = Some(error),
                None => return failure.map_or(Ok(did), Err),
            }
        }
    }

    /// Makes a column in its new slab, hardened. False if it cannot be made now.
    async fn make_column(&self, next: &ColumnMove) -> Result<bool, PoolError> {
        let store = &self.store;
        let geometry = next.stripes.geometry;
        let end = next.written_bytes / u64::from(geometry.data);
        let mut at = 0;
        while at < end {
            store.health().check()?;
            let range = ByteRange::new(at, CHUNK_BYTES.min(end - at));
            let made = match store.read_column_anew(&next.stripes, next.place, range).await {
                Ok(made) => made,
                // Another drive may have failed: then others are tried, or it cannot be made at all.
                Err(error) => {
                    tracing::warn!(segment = next.segment.0, %error, "a column cannot be rebuilt now");
                    return Ok(false);
                }
            };
            if !self.write_made(next, at, made).await? {
                return Ok(false);
            }
            self.counters.rebuild.bytes.add(range.len);
            at = range.end();
        }
        // NOTE: durable before the table says that it is there.
        match store.flush_drive(next.to.drive).await {
            Ok(()) => Ok(true),
            Err(error) => {
                store.do_without(next.to.drive, error).await?;
                Ok(false)
            }
        }
    }

    /// Writes a part of a column at the pace of the background. False if its drive failed and the pool goes on without it.
    async fn write_made(&self, next: &ColumnMove, at: u64, made: Buf) -> Result<bool, PoolError> {
        let (store, world) = (&self.store, self.world());
        // Hosts that write to the same drive come first.
        let made = made.into_slice();
        let paced = store.pace().enter(next.to.drive, made.len() as u64, world, || self.pressure()).await;
        let write = || store.write_slab(next.to, at, vec![made.clone()], false);
        let written = store.write_patiently(world, write).await;
        paced.written(world.now(), self.pressure());
        if let Err(error) = written {
            store.do_without(next.to.drive, error).await?;
            return Ok(false);
        }
        Ok(true)
    }
}
