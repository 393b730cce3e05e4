//! What the committer decides from, gathered.

use crate::{
    bugs::{Bug, planted},
    commit::{
        committer::Committer,
        decide::{Buffered, DESTAGE_HALF_FROM, Due, Figures, JournalFigures, Slabs, Tail, Waiting},
    },
    fork::SETTLES_AFTER,
    format::PAGE_BYTES,
};
use quoin_base::Sequence;
use quoin_world::atomic::Ordering;

/// How much of what was placed last stays in the buffer.
const PLACED_BUFFERED_BYTES: u64 = 32 << 20;

impl Committer {
    pub(super) fn figures(&mut self) -> Figures {
        let slice = self.slice.clone();
        let (awaits_forks, gone_or_lonely) = {
            let layers = slice.forks.read();
            (!layers.pending.is_empty(), !layers.removing.is_empty() || layers.joining() > 0)
        };
        let slabs = self.slabs();
        Figures {
            is_asked: !slice.requests.queue.lock().is_empty(),
            draining: self.round.draining,
            turn: self.round.turn,
            due: self.due(),
            claims: self.claims(&slabs),
            slabs,
            journal: self.journal_figures(),
            buffered: self.buffered(awaits_forks),
            waiting: Waiting {
                lacks_numbers: slice.front.placer.numbers().is_short(),
                awaits_forks,
                awaits_merging: self.merging_is_due(),
                any_to_remove: gone_or_lonely || self.sifting.is_some(),
                relocates: self.relocates(),
                converts: self.converts(),
                reduces: self.reduces(),
                learns: self.learns(),
                is_short: self.is_short(),
            },
        }
    }

    fn due(&self) -> Due {
        let slice = &self.slice;
        let catalog_pages = slice.catalog_due_pages();
        Due {
            is_under_way: self.checkpoints.is_under_way(),
            is_wanted: self.checkpoints.is_wanted(),
            bytes: self.due_bytes(),
            most_bytes: slice.options().dirty_bytes,
            catalog_pages,
            most_catalog_pages: slice.space.most_catalog_pages(),
            any: slice.metadata.pages.is_any_dirty()
                || slice.metadata.pages.is_any_ill()
                || catalog_pages > 0
                || slice.requests.catalog_changed.load(Ordering::Acquire),
            age: self.checkpoints.age(slice.world().now()),
            most_age: slice.options().checkpoint_after,
        }
    }

    /// What a checkpoint would write now, beside the catalog.
    pub(crate) fn due_bytes(&self) -> u64 {
        let pages = self.slice.metadata.pages.due();
        (pages + self.slice.segments.table.due(pages)) * PAGE_BYTES as u64
    }

    /// Whether a checkpoint has to be made before more becomes due.
    pub(crate) fn is_much_due(&self) -> bool {
        self.due_bytes() >= self.slice.options().dirty_bytes
    }

    pub(super) fn slabs(&self) -> Slabs {
        let slice = &self.slice;
        let usage = slice.segments.table.usage();
        let cleaned_metadata = self.cleaning.awaiting_checkpoint();
        let early = if planted(Bug::GiveBackEarly) { usage.awaiting_slabs } else { 0 };
        Slabs {
            free: usage.free_slabs + early,
            coming: usage.awaiting_slabs + cleaned_metadata,
            // What was freed since the last checkpoint comes back only with the next.
            awaits_checkpoint: cleaned_metadata > 0
                || slice.segments.table.awaits_checkpoint(self.checkpoints.durable()),
            place_from: slice.space.place_from(),
            checkpoint_below: slice.space.checkpoint_below(),
            clean_below: slice.space.clean_below() + self.slabs_for_conversion(),
        }
    }

    fn journal_figures(&mut self) -> JournalFigures {
        let slice = self.slice.clone();
        let (journal, now) = (slice.log.journal.usage(), slice.world().now());
        let (total, used, most_named_bytes) = (journal.total, journal.used, slice.most_named_bytes());
        let replayed = slice.options().replay_bytes / u64::from(slice.store.slab_bytes());
        let wanted = (total / 2).min(replayed);
        let mut figures = JournalFigures { total, used, wanted, most_named_bytes, tail: None };
        let is_much_named = slice.front.placer.named_bytes() > most_named_bytes / 2;
        // What the checkpoint under way gives back is not known to be there yet.
        if self.checkpoints.is_under_way() || !figures.is_filling() && !is_much_named {
            return figures;
        }
        figures.tail = self.looks.tail(now, || {
            let tail = slice.log.tail(&slice.buffer);
            let passed_bytes = if is_much_named { slice.front.placer.named_below(tail) } else { 0 };
            Tail { freed: slice.log.journal.freed_by(tail), passed_bytes }
        });
        figures
    }

    fn buffered(&mut self, awaits_forks: bool) -> Buffered {
        let slice = self.slice.clone();
        if slice.buffer.charged_blocks() == 0 {
            slice.requests.not_in_a_hurry();
        }
        let (next, fill) = (slice.log.journal.peek_sequence(), slice.fill(0));
        let oldest = if fill > DESTAGE_HALF_FROM { slice.buffer.oldest() } else { None };
        Buffered {
            fill,
            is_awaited: slice.requests.hurry.load(Ordering::Acquire),
            next,
            oldest: oldest.unwrap_or(next),
            aged: self.aged_before(next, awaits_forks),
            placed: self.placed_before(),
        }
    }

    /// What was placed, but the newest. Large writes are seldom overwritten soon, and while little of them is buffered what
    /// destage looks at is in the processor's cache.
    fn placed_before(&self) -> Option<Sequence> {
        let newest = PLACED_BUFFERED_BYTES.min(self.slice.most_named_bytes() / 4);
        self.slice.front.placer.last_before(newest).map(|last| Sequence(last.0 + 1))
    }

    fn aged_before(&mut self, next: Sequence, awaits_forks: bool) -> Option<Sequence> {
        let (now, options) = (self.slice.world().now(), &self.slice.options());
        let after =
            if awaits_forks { options.destage_after.min(SETTLES_AFTER) } else { options.destage_after };
        self.looks.older_than(after, next, now)
    }
}
