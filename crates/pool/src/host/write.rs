//! Writing and unmapping: admission, the journal record and the buffer entry, then the wait until hardened.

use crate::{
    buffer::received::Received,
    buffer::{BlockKey, Content, Piece, Shard, held::Held},
    bugs::{Bug, planted},
    error::PoolError,
    fork::layer::Layer,
    format::{MAX_BLOCKS, REGION_BYTES, RecordHeader, RecordKind, zeroed},
    host::{below::Below, stalls::Waits},
    journal::{Batch, Entry},
    lifecycle::slice::Slice,
    space::{Claim, Fit, Weight},
};
use quoin_base::{BlockIndex, ByteRange, SECTOR_BYTES, VolumeId, crc32c};
use quoin_world::{Slice as Bytes, atomic::Ordering};
use std::{collections::VecDeque, sync::Arc};

/// Longer ranges are unmapped only where anything is mapped: that takes a look at the map.
const MAPPED_ONLY_FROM: u64 = 4 << 20;

/// What of a write lies in one block.
pub(super) struct DataPiece {
    pub(super) index: BlockIndex,
    /// First sector within the block.
    start: u16,
    len_bytes: u32,
    data: Held,
}

/// Which part of a volume an unmap may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// What lies before the volume's end, as of the moment at which each record is appended: see [`Slice::end_volume`].
    Volume,
    /// What was cut off too.
    Tail,
}

pub(crate) enum Refusal {
    /// Space will come with the next commits.
    Wait,
    /// Whether it fits depends on what it overwrites.
    LookBelow,
    /// The volume was forked, or holds something else by now.
    Moved,
    Error(PoolError),
}

impl Slice {
    /// Writes the slices one after the other from byte `offset` on, hardened on return. Offset and lengths are
    /// multiples of 512, and each slice begins at a multiple of 512 in memory.
    pub(crate) async fn write(
        &self,
        volume: VolumeId,
        offset: u64,
        data: Vec<Bytes>,
    ) -> Result<(), PoolError> {
        let len: u64 = data.iter().map(|d| d.len() as u64).sum();
        self.check_write(ByteRange::new(offset, len), &data)?;
        let mut layer = self.confirmed_layer(volume).await?;
        let _large_write = self.large_write(len);
        let (started, mut waits) = (self.world().now(), Waits::default());
        let mut batches: Vec<Arc<Batch>> = Vec::new();
        let mut refused = None;
        let mut rest = data.into_iter().collect::<VecDeque<_>>();
        // A record lies within a region, and is no longer than the journal takes.
        let unit = REGION_BYTES.min(self.log.journal.max_record_bytes());
        for range in ByteRange::new(offset, len).split(unit).flat_map(|range| self.pieces_to_place(range)) {
            let slices = take_front(&mut rest, range.len as usize);
            if let Err(error) = self.check_rest(&layer, range).await {
                refused = Some(error);
                break;
            }
            let written = self.write_piece(&mut layer, range, slices, &mut waits, &mut batches).await;
            if let Err(error) = written {
                refused = Some(error);
                break;
            }
        }
        // Also what went before a refusal: nothing is left behind that is neither done nor undone.
        for batch in batches {
            self.log.journal.hardened(&batch).await?;
        }
        self.front.admission.ended(started, self.world().now(), waits);
        if let Some(error) = refused {
            return Err(error);
        }
        layer.volume.written_bytes.fetch_add(len, Ordering::Relaxed);
        self.counters.host.wrote(len);
        Ok(())
    }

    /// Refuses data that is not whole sectors, or for which there is no room on the drives.
    pub(super) fn check_write(&self, range: ByteRange, data: &[Bytes]) -> Result<(), PoolError> {
        self.check_range(range)?;
        if let Some(odd) = data.iter().find(|d| !d.len().is_multiple_of(SECTOR_BYTES as usize)) {
            return Err(PoolError::Refused(format!("a slice of {} bytes is not whole sectors", odd.len())));
        }
        if self.store.is_short_of_room() { Err(PoolError::NoSpace) } else { Ok(()) }
    }

    /// Makes a range read as zeroes and gives its space back, hardened on return. Where a volume shares its map with
    /// others that takes copies of nodes: a pool that has no room for more of them says so.
    pub(crate) async fn unmap(&self, volume: VolumeId, range: ByteRange) -> Result<(), PoolError> {
        self.check_range(range)?;
        let copies_nodes = self.forks.of_volume(volume)?.parent().is_some();
        while copies_nodes && !self.space.may_replace() {
            if !self.grow(1).await {
                return Err(PoolError::NoSpace);
            }
        }
        if range.len > MAPPED_ONLY_FROM {
            self.unmap_mapped(volume, range, Reach::Volume).await?;
        } else {
            let mut batches = Vec::new();
            let appended = self.append_unmap_range(volume, range, Reach::Volume, &mut batches).await;
            // Also what went before a refusal: nothing is left behind that is neither done nor undone.
            self.harden_all(&mut batches).await?;
            appended?;
            self.unmap_no_more(volume, range).await?;
        }
        self.counters.host.unmapped_bytes.add(range.len);
        Ok(())
    }

    /// Appends a record for each region of the range.
    pub(crate) async fn append_unmap_range(
        &self,
        volume: VolumeId,
        range: ByteRange,
        reach: Reach,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        let parts: Vec<_> = range.split(REGION_BYTES).collect();
        self.append_unmap_parts(volume, &parts, reach, batches).await
    }

    /// Appends a record for each of these parts of regions, ascending.
    pub(crate) async fn append_unmap_parts(
        &self,
        volume: VolumeId,
        mut parts: &[ByteRange],
        reach: Reach,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        let mut layer = self.confirmed_layer(volume).await?;
        if reach == Reach::Volume {
            for part in parts {
                self.check_rest(&layer, *part).await?;
            }
        }
        if !self.are_journaled(volume, parts)? {
            return Ok(());
        }
        let attempt = |layer: &Arc<Layer>, part: &ByteRange, batch: &Arc<Batch>, _: Option<&Below>| {
            self.try_unmap(layer, *part, batch, reach)
        };
        while !parts.is_empty() {
            let appended = self.append_parts(&mut layer, parts, |part| *part, attempt, batches).await?;
            parts = &parts[appended..];
        }
        Ok(())
    }

    pub(crate) fn check_range(&self, range: ByteRange) -> Result<(), PoolError> {
        if !range.is_aligned(SECTOR_BYTES) {
            let ByteRange { offset, len } = range;
            return Err(PoolError::Refused(format!(
                "range {offset}+{len} is not whole sectors of 512 bytes"
            )));
        }
        if range.end() > MAX_BLOCKS * self.buffer.block_bytes {
            return Err(PoolError::Refused(format!("byte {} is beyond what a volume can hold", range.end())));
        }
        self.store.health().check()
    }

    pub(super) async fn append_write(
        &self,
        layer: &mut Arc<Layer>,
        range: ByteRange,
        slices: Vec<Bytes>,
        waits: &mut Waits,
    ) -> Result<Arc<Batch>, PoolError> {
        let (pieces, crcs) = self.data_pieces(range, &slices);
        self.append_admitted(layer, range, range.len, waits, |layer, below| {
            self.try_append_write(layer, range, &slices, &pieces, &crcs, below)
        })
        .await
    }

    /// Appends a record for a range of one region, or several for a longer one, as soon as there is room, of which `bytes` will
    /// be taken in buffer or journal. Returns what the attempt that did so returned.
    pub(crate) async fn append_admitted<T>(
        &self,
        layer: &mut Arc<Layer>,
        range: ByteRange,
        bytes: u64,
        waits: &mut Waits,
        attempt: impl Fn(&Arc<Layer>, Option<&Below>) -> Result<T, Refusal>,
    ) -> Result<T, PoolError> {
        let mut below = None;
        loop {
            let room = self.admit(bytes, waits).await?;
            // NOTE: before the attempt: what is committed between it and the wait may be what the wait is for.
            let commits = self.counters.progress.commits();
            // The attempt does not wait: it appends, or says what it needs.
            match attempt(layer, below.as_ref()) {
                Ok(appended) => {
                    room.appended();
                    return Ok(appended);
                }
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::LookBelow) => {
                    drop(room);
                    below = Some(self.look_below(layer, range).await?);
                }
                Err(Refusal::Moved) => {
                    drop(room);
                    below = None;
                    *layer = self.confirmed_layer(layer.volume.id).await?;
                }
                Err(Refusal::Wait) => {
                    drop(room);
                    // There may be a leaf by the next time.
                    below = None;
                    let since = self.world().now();
                    self.requests.hurry();
                    let moved = || {
                        let moved = self.counters.progress.commits() != commits;
                        (moved || self.store.health().is_failed() || self.store.is_short_of_room())
                            .then_some(())
                    };
                    self.log.progress().until(moved).await;
                    waits.space += self.world().now().since(since);
                    self.store.health().check()?;
                    if self.store.is_short_of_room() {
                        return Err(PoolError::NoSpace);
                    }
                }
            }
        }
    }

    /// Whether these blocks of a range may be inserted, whose shard is locked, and which of them only replace what is
    /// mapped.
    pub(crate) fn charge(
        &self,
        shard: &Shard,
        layer: &Layer,
        range: ByteRange,
        keys: impl Iterator<Item = BlockKey> + Clone,
        below: Option<&Below>,
    ) -> Result<Vec<BlockKey>, Refusal> {
        self.charge_all(layer, range, keys.map(|key| (shard, key)), below)
    }

    /// The same for blocks of several shards, each of which is locked.
    pub(super) fn charge_all<'a>(
        &self,
        layer: &Layer,
        range: ByteRange,
        keys: impl Iterator<Item = (&'a Shard, BlockKey)> + Clone,
        below: Option<&Below>,
    ) -> Result<Vec<BlockKey>, Refusal> {
        // What is buffered is charged already.
        let new = keys.clone().filter(|(shard, key)| !shard.is_charged(*key)).count() as u64;
        self.charge_new(layer, range, new, keys, below)
    }

    /// The same if it is known how many of them are not charged.
    pub(crate) fn charge_new<'a>(
        &self,
        layer: &Layer,
        range: ByteRange,
        new: u64,
        keys: impl Iterator<Item = (&'a Shard, BlockKey)>,
        below: Option<&Below>,
    ) -> Result<Vec<BlockKey>, Refusal> {
        if !layer.is_live() {
            return Err(Refusal::Moved);
        }
        layer.check_end(range).map_err(Refusal::Error)?;
        // What is new has to fit, or to replace what is mapped.
        let mut replaced = Vec::new();
        let mut fit = self.fit(new, layer);
        // What a volume replaces that got a heavier layout takes more than it gives.
        let is_lighter = layer.is_mixed() && self.weight(layer).is_more();
        if fit != Fit::Fits && self.space.may_replace() && !is_lighter {
            let below = below
                .filter(|below| below.is_as_it_was(layer, self.forks.lending()))
                .ok_or(Refusal::LookBelow)?;
            let layers = self.forks.read();
            let replaces = |(shard, key): (&Shard, BlockKey)| {
                below.is_replaced(shard, key, layer, &layers).then_some(key)
            };
            replaced.extend(keys.filter_map(replaces));
            fit = match new - replaced.len() as u64 {
                0 => Fit::Fits,
                more => self.fit(more, layer),
            };
        }
        match fit {
            Fit::Fits => Ok(replaced),
            Fit::Later => Err(Refusal::Wait),
            Fit::Never => {
                let refusal = self.grow_or_refuse(new);
                let is_final = matches!(refusal, Refusal::Error(_));
                self.counters.host.refused_full.add(is_final.into());
                Err(refusal)
            }
        }
    }

    /// Asks for slabs for new blocks that do not fit and makes the write wait, or refuses it if no slabs can come.
    fn grow_or_refuse(&self, blocks: u64) -> Refusal {
        if self.may_grow() {
            self.ask_for_blocks(blocks);
            Refusal::Wait
        } else {
            Refusal::Error(PoolError::NoSpace)
        }
    }

    fn try_append_write(
        &self,
        layer: &Arc<Layer>,
        range: ByteRange,
        slices: &[Bytes],
        pieces: &[DataPiece],
        crcs: &[u32],
        below: Option<&Below>,
    ) -> Result<Arc<Batch>, Refusal> {
        assert_eq!(pieces.len(), crcs.len(), "a write has a checksum for each of its blocks");
        let lane = self.log.journal.lane(self.world());
        lane.append(range.len as usize, slices.len(), |batch, payload_offset| {
            // NOTE: the sequence is taken with the shard locked: order in the buffer is order of sequences.
            let early = planted(Bug::SequenceBeforeShard).then(|| self.log.journal.take_sequence());
            let keys = pieces.iter().map(|piece| layer.block(piece.index));
            let mut shard = self.buffer.shard(layer.block(pieces[0].index));
            let replaced = self.charge(&shard, layer, range, keys, below)?;
            let sequence = early.unwrap_or_else(|| self.log.journal.take_sequence());
            self.buffer.insert(&mut shard, sequence, batch, received(layer, pieces, crcs, payload_offset));
            self.buffer.waive(&mut shard, &replaced);
            let mut header = record(layer, range, RecordKind::Write);
            header.sequence = sequence.0.into();
            header.payload_bytes = (range.len as u32).into();
            Ok(Entry { header, crcs: crcs.to_vec(), payload: slices.to_vec(), row: None })
        })
    }

    /// Unmaps a range of one region; returns the record, which is in this batch.
    pub(crate) fn try_unmap(
        &self,
        layer: &Arc<Layer>,
        range: ByteRange,
        batch: &Arc<Batch>,
        reach: Reach,
    ) -> Result<Entry, Refusal> {
        let first = layer.block(range.first_block(self.buffer.block_bytes));
        let mut shard = self.buffer.shard(first);
        if !layer.is_live() {
            return Err(Refusal::Moved);
        }
        if reach == Reach::Volume && !planted(Bug::GateLeftOpen) {
            layer.check_end(range).map_err(Refusal::Error)?;
        }
        let copies_nodes = layer.parent().is_some();
        if copies_nodes {
            self.admit_copies_of_nodes(&shard, layer, first, reach)?;
        }
        let sequence = self.log.journal.take_sequence();
        self.insert_zeroes(&mut shard, layer, sequence, batch, range);
        if copies_nodes {
            self.buffer.charge(&mut shard, first);
        }
        let mut header = record(layer, range, RecordKind::Unmap);
        header.sequence = sequence.0.into();
        Ok(Entry { header, crcs: Vec::new(), payload: Vec::new(), row: None })
    }

    /// Whether there is room for blocks of a layer that take more than they do.
    pub(crate) fn has_room_to_convert(&self, layer: &Layer, blocks: u64) -> bool {
        // While some of what a volume has weighs less than is wanted, the rest is a part of what is promised to it. What it shares
        // is not: the promise is for what is written over that.
        let is_promised = layer.is_live() && layer.is_mixed() && self.weight(layer).is_more();
        let claim = if is_promised { layer.claim() } else { Claim::Free };
        claim == Claim::Reserved || self.fit_as(blocks, claim) == Fit::Fits
    }

    /// What the volume of a layer weighs.
    fn weight(&self, layer: &Layer) -> Weight {
        Weight::of(layer.volume.layout(), self.store.layout())
    }

    /// Whether so many new blocks of a layer fit beside what is buffered.
    fn fit(&self, new: u64, layer: &Layer) -> Fit {
        self.fit_as(new, layer.claim())
    }

    fn fit_as(&self, new: u64, claim: Claim) -> Fit {
        // NOTE: in this order: what is destaged in between makes more seem to come, not less.
        let charged = self.buffer.charged_blocks();
        let stuck = self.counters.progress.stuck_blocks();
        self.space.fit(charged, stuck, new, claim)
    }

    /// Whether the nodes may be copied that an unmap of a shared map needs. They must not take what is promised to others.
    /// A tail that was cut off goes in any case.
    fn admit_copies_of_nodes(
        &self,
        shard: &Shard,
        layer: &Layer,
        first: BlockKey,
        reach: Reach,
    ) -> Result<(), Refusal> {
        if !self.space.any_reserved() {
            return Ok(());
        }
        let new = u64::from(!shard.is_charged(first));
        match self.fit(new, layer) {
            Fit::Fits => Ok(()),
            Fit::Later => Err(Refusal::Wait),
            Fit::Never if reach == Reach::Tail => Ok(()),
            Fit::Never => Err(self.grow_or_refuse(new)),
        }
    }

    /// The blocks of a range and the sectors of each that it touches.
    pub(crate) fn zero_pieces(&self, layer: &Layer, range: ByteRange) -> impl Iterator<Item = Piece> {
        let block_bytes = self.buffer.block_bytes;
        range.split(block_bytes).map(move |piece| Piece {
            key: layer.block(piece.first_block(block_bytes)),
            start: (piece.offset % block_bytes / SECTOR_BYTES) as u16,
            sectors: (piece.len / SECTOR_BYTES) as u16,
            content: Content::Zero,
        })
    }

    /// The data of a range cut at block boundaries, each part in one slice, and the checksum of each.
    pub(super) fn data_pieces(&self, range: ByteRange, slices: &[Bytes]) -> (Vec<DataPiece>, Vec<u32>) {
        let block_bytes = self.buffer.block_bytes;
        let mut rest: VecDeque<Bytes> = slices.iter().cloned().collect();
        range
            .split(block_bytes)
            .map(|piece| {
                let data = joined(take_front(&mut rest, piece.len as usize));
                let crc = crc32c(&data).0;
                let data = Held::new(data, range.len, block_bytes);
                let start = (piece.offset % block_bytes / SECTOR_BYTES) as u16;
                (
                    DataPiece {
                        index: piece.first_block(block_bytes),
                        start,
                        len_bytes: piece.len as u32,
                        data,
                    },
                    crc,
                )
            })
            .unzip()
    }
}

/// What was received for blocks, as it goes into the buffer. Their payload begins there among those of its batch.
pub(super) fn received<'a>(
    layer: &'a Layer,
    pieces: &'a [DataPiece],
    crcs: &'a [u32],
    payload_offset: u32,
) -> impl Iterator<Item = Piece> + use<'a> {
    let mut at = payload_offset;
    pieces.iter().zip(crcs).map(move |(DataPiece { index, start, len_bytes, data }, crc)| {
        let received = Received::new(data.clone(), *start, *crc, at);
        at += len_bytes;
        let sectors = (u64::from(*len_bytes) / SECTOR_BYTES) as u16;
        Piece { key: layer.block(*index), start: *start, sectors, content: Content::Ram(received) }
    })
}

pub(crate) fn record(layer: &Layer, range: ByteRange, kind: RecordKind) -> RecordHeader {
    let mut header: RecordHeader = zeroed();
    header.volume = layer.volume.id.0.into();
    header.sector = (range.offset / SECTOR_BYTES).into();
    header.sectors = ((range.len / SECTOR_BYTES) as u32).into();
    header.kind = kind as u8;
    header
}

/// The first `len` bytes of a queue of slices, taken off it.
pub(super) fn take_front(queue: &mut VecDeque<Bytes>, mut len: usize) -> Vec<Bytes> {
    let mut taken = Vec::with_capacity(1);
    while len > 0 {
        let Some(front) = queue.pop_front() else { break };
        if front.len() > len {
            taken.push(front.slice(..len));
            queue.push_front(front.slice(len..));
            break;
        }
        len -= front.len();
        taken.push(front);
    }
    taken
}

/// The slices as one: itself if there is but one, else a copy.
pub(crate) fn joined(mut slices: Vec<Bytes>) -> Bytes {
    match slices.len() {
        1 => slices.remove(0),
        _ => Bytes::joined(&slices),
    }
}

/// Seams for planted bugs.
impl Slice {
    /// Leaves a range alone once it is unmapped.
    async fn unmap_no_more(&self, volume: VolumeId, range: ByteRange) -> Result<(), PoolError> {
        if planted(Bug::UnmapTwice) {
            let mut batches = Vec::new();
            self.world().sleep(std::time::Duration::from_millis(5)).await;
            self.append_unmap_range(volume, range, Reach::Volume, &mut batches).await?;
            self.harden_all(&mut batches).await?;
        }
        Ok(())
    }

    /// Whether unmaps of parts of regions get records: they do.
    fn are_journaled(&self, volume: VolumeId, parts: &[ByteRange]) -> Result<bool, PoolError> {
        for part in parts.iter().filter(|_| planted(Bug::UnjournaledUnmap)) {
            let layer = self.forks.of_volume(volume)?;
            let mut shard = self.buffer.shard(layer.block(part.first_block(self.buffer.block_bytes)));
            let sequence = self.log.journal.take_sequence();
            self.insert_zeroes(&mut shard, &layer, sequence, &Batch::recovered(), *part);
        }
        Ok(!planted(Bug::UnjournaledUnmap))
    }
}
