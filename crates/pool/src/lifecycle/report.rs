//! A slice in figures.

use crate::lifecycle::{
    slice::Slice,
    stats::{PoolStats, SliceSpace},
};
use quoin_world::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The least that a volume counts for when a new volume's slice is chosen: it may not have been written to yet.
const LEAST_VOLUME_BYTES: u64 = 64 << 20;

impl Slice {
    /// The pool in figures.
    pub(crate) fn stats(&self) -> PoolStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        let (segments, journal) = (self.segments.table.usage(), self.log.journal.usage());
        let written = self.log.journal.counters();
        let reserved = self.space.reserved().now;
        let (layers, joining_layers, layer_use) = self.forks.layer_use();
        let block_bytes = self.buffer.block_bytes;
        let dropped_bytes = get(&c.dropped_blocks) * block_bytes;
        PoolStats {
            capacity_bytes: segments.data_slabs * self.segments.table.slab_bytes(),
            usable_bytes: self.space.limit(),
            free_bytes: self.space.free_bytes(),
            reserved_bytes: reserved.blocks.saturating_mul(self.buffer.block_bytes),
            reserved_unmapped_bytes: reserved.unmapped.saturating_mul(self.buffer.block_bytes),
            live_bytes: segments.live_data.saturating_sub(dropped_bytes),
            dropped_bytes,
            removing_bytes: layer_use.removing * block_bytes,
            shared_bytes: layer_use.shared * block_bytes,
            sifting_entries: layer_use.sifting,
            joining_layers,
            layers,
            metadata_bytes: segments.live_meta,
            buffered_bytes: self.buffer.charged_blocks() * self.buffer.block_bytes,
            buffer_ram_bytes: self.buffer.ram_bytes(),
            metadata_ram_bytes: self.metadata.pages.resident_bytes() + get(&c.freed_pages_ram_bytes),
            freed_pages_ram_bytes: get(&c.freed_pages_ram_bytes),
            cache_ram_bytes: self.front.cache.held_bytes(),
            cache_hits: self.front.cache.hits(),
            cache_misses: self.front.cache.misses(),
            ahead_ram_bytes: self.front.ahead.held_bytes(),
            ahead_bytes: self.front.ahead.read_bytes(),
            ahead_unused_bytes: self.front.ahead.unused_bytes(),
            free_segments: segments.free_slabs,
            segments: segments.data_slabs,
            journal_extents_used: journal.used,
            journal_extents: journal.total,
            journal_bytes: written.bytes,
            journal_batches: written.batches,
            journal_records: written.records,
            journal_wraps: journal.taken / journal.total.max(1),
            ..self.counted()
        }
    }

    /// What was done since the pool was opened, for hosts and in the background.
    fn counted(&self) -> PoolStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (c, stalls) = (&self.counters, self.front.admission.stalls());
        PoolStats {
            writes: get(&c.writes),
            written_bytes: get(&c.written_bytes),
            reads: get(&c.reads),
            read_bytes: get(&c.read_bytes),
            unmapped_bytes: get(&c.unmapped_bytes),
            copied_bytes: get(&c.copied_bytes),
            throttled_writes: get(&c.throttled),
            refused_writes: get(&c.refused_full),
            claimed_slabs: get(&c.claimed_slabs),
            given_back_slabs: get(&c.given_back_slabs),
            stalls_for_room: stalls.room,
            stalls_for_space: stalls.space,
            stalls_for_hardening: stalls.hardening,
            longest_write: stalls.longest,
            forks: get(&c.forks),
            longest_fork: Duration::from_nanos(get(&c.longest_fork_nanos)),
            destaged_blocks: get(&c.destaged_blocks),
            overlapped_blocks: get(&c.overlapped_blocks),
            destaged_beside_checkpoints: get(&c.destaged_beside),
            placed_bytes: get(&c.placed_bytes),
            destaged_bytes: get(&c.destaged_bytes),
            cleaned_bytes: get(&c.cleaned_bytes),
            checkpoints: get(&c.checkpoints),
            checkpoint_bytes: get(&c.checkpoint_bytes),
            catalog_pages: get(&c.catalog_pages),
            checkpoint_time: Duration::from_nanos(get(&c.checkpoint_nanos)),
            longest_cut: Duration::from_nanos(get(&c.longest_cut_nanos)),
            metadata_hits: self.metadata.pages.hits(),
            metadata_loads: get(&self.metadata.pages.loads),
            medium_errors: get(&c.medium_errors),
            lost_blocks: get(&c.lost_blocks),
            ram_faults: get(&c.ram_faults),
            uncleanable_segments: get(&c.uncleanable),
            ..PoolStats::default()
        }
    }

    /// What it has of the pool's space.
    pub(crate) fn slice_space(&self) -> SliceSpace {
        let buffered_bytes = self.buffer.charged_blocks() * self.buffer.block_bytes;
        SliceSpace {
            volumes: self.forks.volume_count(),
            usable_bytes: self.space.limit(),
            free_bytes: self.space.free_bytes().saturating_sub(buffered_bytes),
        }
    }

    /// What its volumes take and were promised, and a little for each of them.
    pub(crate) fn taken_by_volumes(&self) -> u64 {
        let volumes = self.forks.volume_count();
        self.space.taken(self.buffer.charged_blocks()).saturating_add(volumes * LEAST_VOLUME_BYTES)
    }
}
