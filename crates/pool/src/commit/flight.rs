//! A checkpoint under way: what was cut is written beside the committer, and the root then makes it durable.
//!
//! Order: checksums of all pages go into the pages above them; rows are written, all data drives flushed, the root written
//! and hardened on every voter; only then the journal is trimmed, and what was freed before the cut may be used again.
//!
//! Invariants:
//! 1. A cut checkpoint is a value. Its root is filled in at the cut, except for checksums, which are found
//!    later, and for numbers that only grow, such as the next sequence: there a later value is right too.
//! 2. What is given up after the cut is still in this checkpoint. The first checkpoint without it is the next
//!    one. See `Committer::first_without`.
//! 3. The tail is that of the cut. The journal from there on holds what was destaged since.
//! 4. A request for a checkpoint is answered by a checkpoint that was cut after the request.
//! 5. A checkpoint under way runs on the committer's thread, and ends before the committer does.

use crate::{
    bugs::{Bug, planted},
    commit::requests::Answer,
    error::PoolError,
    format::{Location, Root},
    lifecycle::slice::Slice,
    meta::PageId,
    segment::rows::Row,
};
use futures_util::future::join;
use quoin_base::{CheckpointGeneration, Sequence};
use quoin_world::{Event, Mutex, Nanos, OneShotSender, Thread};
use std::{collections::BTreeSet, sync::Arc};

/// Pages whose checksums are computed without a pause.
const SEALED_AT_ONCE: usize = 64;

/// A checkpoint as of its cut, to be carried out.
pub(super) struct Checkpoint {
    pub slice: Arc<Slice>,
    pub root: Root,
    pub rows: Vec<Row>,
    /// Pages that lie in table slabs, and their places.
    pub kept_twice: Vec<(PageId, Location)>,
    /// When its cut began.
    pub since: Nanos,
}

/// A checkpoint that is being carried out, as the committer sees it.
pub(super) struct Flight {
    pub generation: CheckpointGeneration,
    /// Its result, once it has ended.
    pub outcome: Arc<Mutex<Option<Result<(), PoolError>>>>,
    ended: Arc<Event>,
    /// Segments to which it writes rows.
    segments: BTreeSet<u32>,
    pub answers: Vec<OneShotSender<Answer>>,
}

impl Checkpoint {
    /// Spawns a task that carries it out, on the committer's thread.
    pub(super) fn start(self, answers: Vec<OneShotSender<Answer>>) -> Flight {
        let (slice, outcome, ended) =
            (self.slice.clone(), Arc::new(Mutex::new(None)), Arc::new(Event::new()));
        let flight = Flight {
            generation: CheckpointGeneration(self.root.generation.get()),
            outcome: outcome.clone(),
            ended: ended.clone(),
            segments: self.rows.iter().map(|row| row.segment().0).collect(),
            answers,
        };
        let thread = Thread::Committer(slice.id());
        let carried_out = async move {
            let slice = self.slice.clone();
            let result = self.carry_out().await;
            if let Err(error) = &result {
                slice.store.health().fail(error.to_string());
            }
            *outcome.lock() = Some(result);
            ended.notify();
            slice.requests.nudge();
        };
        slice.world().spawn(thread, Box::pin(carried_out));
        flight
    }

    async fn carry_out(self) -> Result<(), PoolError> {
        let Self { slice, mut root, rows, kept_twice, since } = self;
        // Checksums first, from the leaves of the map up: a page is written with those of the pages below it.
        for pages in slice.metadata.pages.cut_pages().chunks(SEALED_AT_ONCE) {
            pages.iter().try_for_each(|page| slice.metadata.pages.seal(*page))?;
            slice.world().yield_now().await;
        }
        // NOTE: rows, flush, root, in this order: a root must not lead to what a power failure can take back.
        let (rows, table) = join(slice.write_rows(rows), slice.write_table_pages(kept_twice)).await;
        let written = rows? + table?;
        if !planted(Bug::SkipRowFlush) && !planted(Bug::RootBeforeRows) {
            slice.store.flush_rows().await?;
        }
        slice.segments.table.hardened(CheckpointGeneration(root.generation.get()));
        if planted(Bug::TailOfRoot) {
            root.tail = slice.log.tail(&slice.buffer).0.into();
        }
        let tail = Sequence(root.tail.get());
        // The pages are written, so their checksums are known. Numbers that only grow are taken as they are now.
        root.set_page_maps(slice.metadata.pages.root_entries());
        root.next_sequence = slice.log.journal.peek_sequence().0.into();
        let (first_extent, next_extent) = slice.log.journal.needed_from(tail);
        (root.first_extent, root.next_extent) = (first_extent.into(), next_extent.into());
        root.next_volume = slice.log.transactions.next_volume().into();
        assert!(tail.0 <= root.next_sequence.get(), "a tail of {tail} is before what is to come");
        assert!(first_extent <= next_extent, "extents {first_extent} to {next_extent} hold the tail");
        root.seal();

        // From here on this checkpoint is what an opening finds.
        slice.harden_root(root).await?;
        slice.log.passed(tail);
        slice.front.placer.passed(tail);
        if planted(Bug::RootBeforeRows) {
            slice.store.flush_rows().await?;
        }
        // Hosts may wait for room in the journal. The committer gives back everything else when it lands the
        // checkpoint.
        slice.log.journal.trim(tail);
        slice.log.progress().notify();
        let took = slice.world().now().since(since);
        slice.counters.checkpoints.made(written, took);
        Ok(())
    }
}

impl Flight {
    /// Waits until it has succeeded or failed.
    pub(super) async fn ended(&self) {
        self.ended.until(|| self.outcome.lock().is_some().then_some(())).await;
    }

    /// The segments to which it writes: heads of their rows may not be there yet.
    pub(super) fn segments(&self) -> &BTreeSet<u32> {
        &self.segments
    }
}
