//! Reading: write buffer, then thin map, then read cache, else block table and segment, with every checksum
//! verified.
//!
//! A reader looks into the buffer first. What it finds there lies over what the map leads to; the map may
//! already show a buffered block that was destaged in between, so a block of which only a part is buffered is
//! looked at again when anything was evicted meanwhile. A fragment not hardened yet is waited for: what a
//! reader has seen must not be gone after a crash.

use crate::{
    buffer::{BlockKey, Content, Fragment},
    bugs::{Bug, planted},
    error::PoolError,
    fork::layer::Layer,
    format::{BlockInfo, Location, REGION_BYTES, References, TREE_FAN_OUT, ThinEntry},
    host::{ahead::Ahead, cache::LARGEST_FILL_BYTES},
    journal::Batch,
    lifecycle::slice::Slice,
    maps::{blocks::BlockPlace, tree},
    meta::Page,
    segment::{
        mend::Mended,
        packed::{Whole, content_of},
        placed_block::PlacedBlock,
        runs::{HOST_GAP_BYTES, LONGEST_BYTES, runs},
    },
};
use futures_util::future::{join, join_all, try_join_all};
use quoin_base::{BlockIndex, BlockNumber, ByteRange, SECTOR_BYTES, VolumeId};
use quoin_world::{Buf, Slice as Bytes};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

/// What a read is a part of, as far as it matters to what RAM keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// What it brings from drives goes into the cache.
    Single,
    /// A long one. What it brings is not kept.
    Long,
    /// It goes on with a stream: what it wants may have been read ahead, and what it brings is not kept.
    Stream,
}

impl Pattern {
    fn of(range: ByteRange) -> Self {
        if range.len <= LARGEST_FILL_BYTES { Self::Single } else { Self::Long }
    }
}

/// A block that a part needs and the cache does not have.
struct Found {
    /// Which part.
    part: usize,
    /// `None`: it was placed, and no map leads to it yet.
    number: Option<BlockNumber>,
    place: BlockPlace,
}

/// What lies below parts: on drives, and with what was read ahead.
type Bases = (Vec<Found>, Vec<(usize, Ahead)>);

/// What was read for a part.
enum Read {
    /// What the map leads to; `None`: nothing.
    Mapped(Option<Bytes>),
    /// What was placed and where; `None`: it was not read as it was written.
    Placed(Option<(Location, Bytes)>),
}

/// The part of a read that lies in one block.
struct Part {
    key: BlockKey,
    /// Sectors within the block.
    start: u16,
    sectors: u16,
    fragments: Vec<Fragment>,
    /// What the map led to.
    base: Option<Bytes>,
    /// What was placed for the block, and where.
    placed: Option<(Location, Bytes)>,
}

impl Part {
    fn end(&self) -> u16 {
        self.start + self.sectors
    }

    /// True when the buffered fragments leave sectors of it open.
    fn needs_base(&self) -> bool {
        covered(&self.fragments, self.start, self.end()) < self.sectors
    }

    /// The content of the placed block that all of it is in, if that was read.
    fn placed_content(&self) -> Option<&Bytes> {
        let location = self.placed_in()?.location;
        self.placed.as_ref().filter(|(at, _)| *at == location).map(|(_, content)| content)
    }

    /// The placed block that all of it is in, if it is.
    fn placed_in(&self) -> Option<&PlacedBlock> {
        match self.fragments.as_slice() {
            [Fragment { start, sectors, content: Content::Placed(block), .. }]
                if *start <= self.start && start + sectors >= self.end() =>
            {
                Some(block)
            }
            _ => None,
        }
    }
}

/// True when the parts hold the same fragments.
fn same(parts: &[Part], others: &[Part]) -> bool {
    let sequences = |parts: &[Part]| -> Vec<_> {
        parts
            .iter()
            .flat_map(|p| p.fragments.iter().map(|e| (p.key, e.start, e.sectors, e.sequence)))
            .collect()
    };
    sequences(parts) == sequences(others)
}

/// How many sectors of `start..end` the fragments, which do not overlap, cover.
pub(crate) fn covered(fragments: &[Fragment], start: u16, end: u16) -> u16 {
    fragments.iter().map(|e| (e.start + e.sectors).min(end).saturating_sub(e.start.max(start))).sum()
}

enum Captured {
    Parts(Vec<Part>, u64),
    /// Something there is not hardened yet.
    Wait(Arc<Batch>),
}

impl Slice {
    /// Reads a range, a multiple of 512 at both ends: the slices, one after the other, are its content. For streams, what
    /// follows is read ahead.
    pub(crate) async fn read_for_host(
        self: &Arc<Self>,
        volume: VolumeId,
        range: ByteRange,
    ) -> Result<Vec<Bytes>, PoolError> {
        self.check_range(range)?;
        let layer = self.confirmed_layer(volume).await?;
        let pattern = if self.follow(&layer, range) { Pattern::Stream } else { Pattern::of(range) };
        self.read_layer(layer, range, pattern).await
    }

    /// Reads a range, a multiple of 512 at both ends: the slices, one after the other, are its content.
    pub(crate) async fn read(&self, volume: VolumeId, range: ByteRange) -> Result<Vec<Bytes>, PoolError> {
        self.check_range(range)?;
        let layer = self.confirmed_layer(volume).await?;
        self.read_layer(layer, range, Pattern::of(range)).await
    }

    /// Reads a range of the volume whose layer this is, or was when it was looked up.
    async fn read_layer(
        &self,
        mut layer: Arc<Layer>,
        range: ByteRange,
        pattern: Pattern,
    ) -> Result<Vec<Bytes>, PoolError> {
        let out = loop {
            let guard = self.enter_readers();
            let read = if range.offset % REGION_BYTES + range.len <= REGION_BYTES {
                self.read_region(&layer, range, pattern).await
            } else {
                let pieces = range.split(REGION_BYTES).map(|piece| self.read_region(&layer, piece, pattern));
                try_join_all(pieces).await.map(|pieces| pieces.into_iter().flatten().collect())
            };
            drop(guard);
            if !layer.is_gone() {
                break read.map_err(|error| self.offline_or(error))?;
            }
            layer = self.confirmed_layer(layer.volume.id).await?;
        };
        layer.volume.read_bytes.fetch_add(range.len, Ordering::Relaxed);
        self.counters.host.read(range.len);
        Ok(out)
    }

    /// Reads a range of one region.
    async fn read_region(
        &self,
        layer: &Layer,
        range: ByteRange,
        pattern: Pattern,
    ) -> Result<Vec<Bytes>, PoolError> {
        loop {
            let (mut parts, evictions) = match self.capture(layer, range) {
                Captured::Parts(parts, evictions) => (parts, evictions),
                Captured::Wait(batch) => {
                    self.log.journal.hardened(&batch).await?;
                    continue;
                }
            };
            let below = self.fill_bases(layer, &mut parts, pattern).await;
            let mixed = parts.iter().any(|p| !p.fragments.is_empty()) && !planted(Bug::LookOnce);
            if mixed && parts.iter().any(|p| p.needs_base() && !p.fragments.is_empty()) {
                match self.capture(layer, range) {
                    Captured::Parts(again, now) if now == evictions => {
                        for (part, again) in parts.iter_mut().zip(again) {
                            part.fragments = again.fragments;
                        }
                    }
                    Captured::Parts(..) => continue,
                    Captured::Wait(batch) => {
                        self.log.journal.hardened(&batch).await?;
                        continue;
                    }
                }
            }
            below?;
            let mut out: Vec<Bytes> = Vec::new();
            let mut failed = None;
            for part in &parts {
                match self.assemble(layer, part).await {
                    Ok(slice) => push(&mut out, slice),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            match failed {
                None => return Ok(out),
                // What was captured may have been displaced, and its journal extent given out again.
                Some(error) => match self.capture(layer, range) {
                    Captured::Parts(again, now) if now == evictions && same(&parts, &again) => {
                        return Err(error);
                    }
                    _ => continue,
                },
            }
        }
    }

    /// What the buffer holds of a range within one region.
    fn capture(&self, layer: &Layer, range: ByteRange) -> Captured {
        let block_bytes = self.buffer.block_bytes;
        let shard = self.buffer.shard(layer.block(range.first_block(block_bytes)));
        let mut parts = Vec::with_capacity((range.len / block_bytes) as usize + 1);
        for piece in range.split(block_bytes) {
            let key = layer.block(piece.first_block(block_bytes));
            let start = (piece.offset % block_bytes / SECTOR_BYTES) as u16;
            let sectors = (piece.len / SECTOR_BYTES) as u16;
            let overlaps = |e: &&Fragment| e.start < start + sectors && e.start + e.sectors > start;
            let fragments: Vec<Fragment> =
                shard.visible(layer, key.index).iter().filter(overlaps).cloned().collect();
            let hardened = |e: &Fragment| e.batch.is_hardened() || planted(Bug::ServeUnhardened);
            if let Some(open) = fragments.iter().find(|e| !hardened(e)) {
                return Captured::Wait(open.batch.clone());
            }
            parts.push(Part { key, start, sectors, fragments, base: None, placed: None });
        }
        Captured::Parts(parts, shard.evictions)
    }

    /// Finds what lies below for the parts that need it: read ahead or in the cache, else on drives, neighbours in one
    /// operation.
    async fn fill_bases(&self, layer: &Layer, parts: &mut [Part], pattern: Pattern) -> Result<(), PoolError> {
        let (found, ahead) = self.find_bases(layer, parts, pattern).await?;
        self.read_bases(layer, parts, (found, ahead), pattern).await
    }

    /// Takes from the cache what lies below, and finds where the rest lies: on drives, or with what was read ahead.
    async fn find_bases(
        &self,
        layer: &Layer,
        parts: &mut [Part],
        pattern: Pattern,
    ) -> Result<Bases, PoolError> {
        let mut found: Vec<Found> = Vec::new();
        let mut ahead: Vec<(usize, Ahead)> = Vec::new();
        let mut leaf: Option<(u64, Option<Arc<Page>>)> = None;
        for (i, part) in parts.iter_mut().enumerate() {
            if let Some(block) = part.placed_in() {
                let info = BlockInfo::new(block.crc, References::Count(1), BlockInfo::PLAIN);
                let place = BlockPlace { location: block.location, info };
                found.push(Found { part: i, number: None, place });
                continue;
            }
            if !part.needs_base() {
                continue;
            }
            let leaf_index = part.key.index.0 / TREE_FAN_OUT;
            if leaf.as_ref().is_none_or(|(index, _)| *index != leaf_index) {
                let found = self.leaf(layer, part.key.index).await;
                leaf = Some((leaf_index, found.map_err(|e| self.unreachable(layer, part.key.index, e))?));
            }
            let Some((_, Some(page))) = &leaf else { continue };
            let Some(number) = ThinEntry(page.get(tree::slot(part.key.index, 0))).block() else { continue };
            if pattern == Pattern::Stream {
                let is_end = part.end() == self.buffer.sectors_per_block();
                if let Some(held) = self.front.ahead.take(number, is_end) {
                    ahead.push((i, held));
                    continue;
                }
            }
            part.base = self.front.cache.get(number);
            if part.base.is_none() {
                // Freed between the two look-ups: it is looked up again below.
                let freed = BlockPlace { location: Default::default(), info: BlockInfo(0) };
                let place =
                    self.block(number).await.map_err(|e| self.unreachable(layer, part.key.index, e))?;
                let place = place.unwrap_or(freed);
                found.push(Found { part: i, number: Some(number), place });
            }
        }
        Ok((found, ahead))
    }

    /// Reads what was found on drives, and waits for what is being read ahead.
    async fn read_bases(
        &self,
        layer: &Layer,
        parts: &mut [Part],
        (mut found, ahead): Bases,
        pattern: Pattern,
    ) -> Result<(), PoolError> {
        // Where blocks lie sorted, those of one read are neighbours even if what is between them by address lies elsewhere.
        found.sort_unstable_by_key(|found| found.place.location.0);
        let mut runs = runs(&found, HOST_GAP_BYTES, LONGEST_BYTES, |found| found.place.location);
        let (keep, parts_now) = (pattern == Pattern::Single, &*parts);
        let read = async |run: Range<usize>| self.read_run(layer, &found[run], parts_now, keep).await;
        let read_all = async {
            match runs.len() {
                0 => Vec::new(),
                1 => vec![read(runs.remove(0)).await],
                _ => join_all(runs.into_iter().map(read)).await,
            }
        };
        let (bases, held) = if ahead.is_empty() {
            (read_all.await, None)
        } else {
            let (bases, held) = join(read_all, self.held_bases(layer, parts_now, ahead)).await;
            (bases, Some(held?))
        };
        for (i, base) in held.into_iter().flatten() {
            parts[i].base = base;
        }
        for base in bases {
            for (i, found) in base? {
                match found {
                    Read::Mapped(content) => parts[i].base = content,
                    Read::Placed(place) => parts[i].placed = place,
                }
            }
        }
        Ok(())
    }

    /// What was read ahead for parts, or is being read.
    async fn held_bases(
        &self,
        layer: &Layer,
        parts: &[Part],
        ahead: Vec<(usize, Ahead)>,
    ) -> Result<Vec<(usize, Option<Bytes>)>, PoolError> {
        let mut bases = Vec::with_capacity(ahead.len());
        for (i, held) in ahead {
            let base = match held.content().await {
                Some(content) => {
                    self.front.ahead.used(&held, &content);
                    Some(content)
                }
                None => self.read_base(layer, parts[i].key.index).await?.map(|content| content.data),
            };
            bases.push((i, base));
        }
        Ok(bases)
    }

    /// Reads blocks that lie one behind the other.
    async fn read_run(
        &self,
        layer: &Layer,
        run: &[Found],
        parts: &[Part],
        keep: bool,
    ) -> Result<Vec<(usize, Read)>, PoolError> {
        let (first, last) = (run[0].place.location, run[run.len() - 1].place.location);
        let mut out = Vec::with_capacity(run.len());
        let whole = if first.is_none() {
            None
        } else {
            let len = last.offset_bytes() + last.len_bytes() - first.offset_bytes();
            self.segments
                .io
                .read_for_host(first.segment(), ByteRange::new(first.offset_bytes(), len))
                .await
                .ok()
        };
        for Found { part, number, place } in run {
            let intact = whole.as_ref().and_then(|whole| {
                let at = (place.location.offset_bytes() - first.offset_bytes()) as usize;
                let slice = whole.slice(at..at + place.location.len_bytes() as usize);
                self.content_of(place.info, slice)
            });
            let read = match (number, intact) {
                // If it is not intact it is read once more by itself, and what is wrong is told.
                (None, content) => Read::Placed(content.map(|content| (place.location, content.data))),
                (Some(number), Some(content)) => {
                    if keep {
                        self.front.cache.fill(*number, &content);
                    }
                    Read::Mapped(Some(content.data))
                }
                (Some(_), None) => {
                    let content = self.read_base(layer, parts[*part].key.index).await?;
                    Read::Mapped(content.map(|content| content.data))
                }
            };
            out.push((*part, read));
        }
        Ok(out)
    }

    /// The content of a block from what is stored of it; `None` if that is not what it was.
    pub(crate) fn content_of(&self, info: BlockInfo, stored: Bytes) -> Option<Whole> {
        content_of(info, stored, self.buffer.block_bytes, !planted(Bug::SkipReadVerify))
    }

    /// What is stored of a block that could not be read as it should be, if it can be read in another way. What is wrong of it
    /// is written again. The caller has been in a reader epoch since before it found the place.
    pub(crate) async fn mend(&self, place: BlockPlace) -> Option<Mended> {
        if place.info.is_lost() {
            return None;
        }
        self.segments.io.mend_block(place.location, place.info.crc()).await
    }

    /// The content of a block as segments have it; `None` if it is unmapped. Looks again as long as what it
    /// looks at moves; an unchanged place whose content does not verify is damage.
    pub(crate) async fn read_base(
        &self,
        layer: &Layer,
        index: BlockIndex,
    ) -> Result<Option<Whole>, PoolError> {
        self.read_mapped(layer, index, layer, index).await
    }

    /// The same of what a map leads to, for a block of a layer: damage is the layer's.
    pub(crate) async fn read_mapped(
        &self,
        map: &Layer,
        at: BlockIndex,
        layer: &Layer,
        index: BlockIndex,
    ) -> Result<Option<Whole>, PoolError> {
        // Of a map that is taken apart nothing counts.
        let unreachable = |error| if map.is_gone() { error } else { self.unreachable(layer, index, error) };
        loop {
            // NOTE: before anything is looked up. What is found wrong is written again where it was found.
            let _guard = self.enter_readers();
            let Some(leaf) = self.leaf(map, at).await.map_err(unreachable)? else { return Ok(None) };
            let entry = ThinEntry(leaf.get(tree::slot(at, 0)));
            let Some(number) = entry.block() else { return Ok(None) };
            let place = self.block(number).await.map_err(unreachable)?;
            let Some(found) = place else {
                if self.moved(map, at, entry, place).await? {
                    continue;
                }
                return Err(PoolError::corrupt(format!("block {number}"), "it is mapped, yet free"));
            };
            if found.info.is_lost() {
                return Err(self.medium(layer, index, "its content is lost".into()));
            }
            // It may become part of what is written: what RAM made of it is not passed on.
            if let Some(cached) = self.front.cache.peek(number) {
                return Ok(Some(cached));
            }
            let read = self.segments.io.read_for_host(found.location.segment(), found.location.range()).await;
            let intact = match &read {
                Ok(stored) => self.content_of(found.info, stored.clone()),
                Err(_) => None,
            };
            if intact.is_some() {
                return Ok(intact);
            }
            if self.moved(map, at, entry, place).await? {
                continue;
            }
            let mended = self.mend(found).await;
            let content = mended.and_then(|mended| self.content_of(found.info, mended.content));
            if content.is_some() {
                return Ok(content);
            }
            let reason = match read {
                Ok(_) => {
                    let (segment, offset) = (found.location.segment(), found.location.offset_bytes());
                    let text =
                        format!("the checksum of block {number} in segment {segment} at {offset} differs");
                    // A drive that is away may have it right.
                    let awaits = self.segments.table.awaits(segment);
                    if awaits { Err(format!("{text}; a drive with it is away")) } else { Ok(text) }
                }
                Err(error) => Err(error.to_string()),
            };
            self.fingerprints().distrust(number);
            return Err(self.unreadable_block(layer, index, reason));
        }
    }

    /// Counts a block that cannot be read and says so: what it holds is wrong, or a drive fails to read it.
    fn unreadable_block(
        &self,
        layer: &Layer,
        index: BlockIndex,
        reason: Result<String, String>,
    ) -> PoolError {
        self.counters.damage.medium_errors.add(1);
        let volume = layer.volume.id;
        let (Ok(text) | Err(text)) = &reason;
        tracing::warn!(%volume, block = %index, reason = text, "unreadable block");
        match reason {
            Ok(reason) => self.medium(layer, index, reason),
            Err(reason) => {
                let offset = index.offset_bytes(self.buffer.block_bytes);
                PoolError::Medium { volume, offset, reason, unread: true }
            }
        }
    }

    /// True if a block is no longer mapped by `entry`, or no longer at `place`. The leaf is looked up anew: leaves
    /// go too, and one seen before keeps what it held when it went.
    async fn moved(
        &self,
        layer: &Layer,
        index: BlockIndex,
        entry: ThinEntry,
        place: Option<BlockPlace>,
    ) -> Result<bool, PoolError> {
        let Some(leaf) = self.leaf(layer, index).await? else { return Ok(true) };
        let now = ThinEntry(leaf.get(tree::slot(index, 0)));
        let Some(number) = now.block().filter(|_| now == entry) else { return Ok(true) };
        Ok(self.block(number).await? != place)
    }

    /// Puts a part together from its buffered fragments and what lies below.
    async fn assemble(&self, layer: &Layer, part: &Part) -> Result<Bytes, PoolError> {
        let bytes = |sectors: u16| usize::from(sectors) * SECTOR_BYTES as usize;
        let len = bytes(part.sectors);
        match (&part.base, part.fragments.as_slice()) {
            (Some(base), []) => return Ok(base.slice(bytes(part.start)..bytes(part.end()))),
            (None, []) => return Ok(Buf::zeroed(len).into_slice()),
            (_, [e]) if e.start <= part.start && e.start + e.sectors >= part.end() => {
                if let Content::Ram(received) = &e.content {
                    return Ok(received.sectors(part.start, part.sectors));
                }
            }
            _ => {}
        }
        if let Some(content) = part.placed_content() {
            return Ok(content.slice(bytes(part.start)..bytes(part.end())));
        }
        let mut buf = match &part.base {
            Some(base) => Buf::copy_of(&base.slice(bytes(part.start)..bytes(part.end()))),
            None => Buf::zeroed(len),
        };
        for fragment in &part.fragments {
            let (from, to) =
                (fragment.start.max(part.start), (fragment.start + fragment.sectors).min(part.end()));
            let target = &mut buf.as_mut_slice()[bytes(from - part.start)..bytes(to - part.start)];
            match self.fragment_data(layer, part.key, fragment).await? {
                None => target.fill(0),
                Some(data) => {
                    target.copy_from_slice(&data[bytes(from - fragment.start)..bytes(to - fragment.start)]);
                }
            }
        }
        Ok(buf.into_slice())
    }
}

/// Adds a slice, as one with the last if it follows that in the same buffer.
fn push(slices: &mut Vec<Bytes>, slice: Bytes) {
    if !slices.last_mut().is_some_and(|last| last.extend(&slice)) {
        slices.push(slice);
    }
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(512).all(|chunk| chunk.iter().fold(0, |acc, b| acc | b) == 0)
}
