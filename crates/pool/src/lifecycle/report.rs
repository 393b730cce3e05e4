//! A slice in figures.

use crate::lifecycle::{
    slice::Slice,
    stats::{PoolStats, SliceSpace},
};
use quoin_world::atomic::Ordering;

/// The least that a volume counts for when a new volume's slice is chosen: it may not have been written to yet.
const LEAST_VOLUME_BYTES: u64 = 64 << 20;

impl Slice {
    /// The pool in figures.
    pub(crate) fn stats(&self) -> PoolStats {
        let counted = self.counters.figures();
        let stalls = self.front.admission.stalls();
        let (segments, journal) = (self.segments.table.usage(), self.log.journal.usage());
        let written = self.log.journal.counters();
        let reserved = self.space.reserved().now;
        let (layers, joining_layers, layer_use) = self.forks.layer_use();
        let block_bytes = self.buffer.block_bytes;
        let dropped_blocks = self.counters.held.dropped_blocks.get();
        // What dropped blocks take is not known before they are freed: as much as others do.
        let dropped = u128::from(segments.live_data) * u128::from(dropped_blocks);
        let dropped_bytes = dropped.checked_div(segments.live_blocks.into()).unwrap_or(0) as u64;
        let displaced = self.segments.table.displaced();
        PoolStats {
            degraded_segments: displaced.degraded_segments,
            degraded_bytes: displaced.degraded_bytes,
            capacity_bytes: segments.data_slabs * self.segments.table.slab_bytes(),
            usable_bytes: self.space.limit(),
            free_bytes: self.space.free_bytes(),
            reserved_bytes: reserved.blocks.saturating_mul(self.buffer.block_bytes),
            reserved_unmapped_bytes: reserved.unmapped.saturating_mul(self.buffer.block_bytes),
            live_bytes: segments.live_data.saturating_sub(dropped_bytes),
            stored_blocks: segments.live_blocks.saturating_sub(dropped_blocks),
            dropped_bytes,
            dropped_blocks,
            removing_bytes: layer_use.removing * block_bytes,
            shared_bytes: layer_use.shared * block_bytes,
            sifting_entries: layer_use.sifting,
            joining_layers,
            layers,
            metadata_bytes: segments.live_meta,
            buffered_bytes: self.buffer.charged_blocks() * self.buffer.block_bytes,
            buffer_ram_bytes: self.buffer.ram_bytes(),
            metadata_ram_bytes: self.metadata.pages.resident_bytes() + counted.freed_pages_ram_bytes,
            metadata_hits: self.metadata.pages.hits(),
            metadata_loads: self.metadata.pages.loads.load(Ordering::Relaxed),
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
            stalls_for_room: stalls.room,
            stalls_for_space: stalls.space,
            stalls_for_hardening: stalls.hardening,
            longest_write: stalls.longest,
            ..counted
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
