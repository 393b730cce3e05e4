//! Reading ahead for streams, into [`ReadAhead`](crate::host::ahead::ReadAhead).

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::{BlockInfo, Location, PAGE_BYTES, TREE_FAN_OUT, ThinEntry},
    host::{ahead::Reading, read::covered},
    lifecycle::slice::Slice,
    maps::{blocks::BlockPlace, tree},
    meta::Page,
    segment::runs::{HOST_GAP_BYTES, runs},
};
use futures_util::future::join_all;
use quoin_base::{BlockNumber, ByteRange};
use quoin_world::{Thread, buffer_ram_bytes};
use std::sync::Arc;

/// What is read ahead in one operation: long enough for the drive, short enough that its first block is there soon.
const RUN_BYTES: u64 = 256 << 10;

/// A block that is to be read ahead.
struct Wanted {
    number: BlockNumber,
    place: BlockPlace,
}

/// A task that reads ahead.
struct Task(Arc<Slice>);

impl Drop for Task {
    fn drop(&mut self) {
        let ahead = &self.0.front.ahead;
        ahead.tasks.lock().0 -= 1;
        ahead.ended.notify();
    }
}

impl Slice {
    /// Notes a host's read, which is about to be carried out, and begins to read ahead if it goes on with a stream. True if
    /// it does.
    pub(crate) fn follow(self: &Arc<Self>, layer: &Arc<Layer>, range: ByteRange) -> bool {
        let thread = self.world().current();
        let noted = self.front.ahead.streams.note(thread, layer.volume.id, range);
        if let (Some(ahead), Some(thread)) = (noted.ahead, thread) {
            self.begin_to_read_ahead(thread, layer.clone(), ahead);
        }
        noted.is_stream
    }

    fn begin_to_read_ahead(self: &Arc<Self>, thread: Thread, layer: Arc<Layer>, range: ByteRange) {
        {
            let mut tasks = self.front.ahead.tasks.lock();
            if !tasks.1 {
                return;
            }
            tasks.0 += 1;
        }
        let task = Task(self.clone());
        self.world().spawn(
            thread,
            Box::pin(async move {
                // What cannot be read is found by who wants it.
                let _ = task.0.read_ahead(&layer, range).await;
                drop(layer);
            }),
        );
    }

    /// Reads what the map leads to in a range, as far as there is room for it.
    async fn read_ahead(&self, layer: &Layer, range: ByteRange) -> Result<(), PoolError> {
        let _guard = self.enter_readers();
        let mut wanted = self.wanted_ahead(layer, range).await?;
        wanted.sort_unstable_by_key(|wanted| wanted.place.location.0);
        let now = self.world().now();
        let page = PAGE_BYTES as u64;
        let mut begun = Vec::new();
        for run in runs(&wanted, HOST_GAP_BYTES, RUN_BYTES, |wanted| wanted.place.location) {
            let run = &wanted[run];
            let stored = stored_range(run);
            let (from, to) = (stored.offset / page * page, stored.end().next_multiple_of(page));
            let numbers = run.iter().map(|wanted| wanted.number).collect();
            // What is packed is unpacked into buffers of its own.
            let is_packed = |wanted: &&Wanted| wanted.place.info.algorithm() != BlockInfo::PLAIN;
            let packed = run.iter().filter(is_packed).count();
            let ram_bytes = buffer_ram_bytes((to - from) as usize)
                + packed * buffer_ram_bytes(self.buffer.block_bytes as usize);
            let Some(reading) = self.front.ahead.begin(numbers, ram_bytes as u64, now) else { break };
            begun.push(self.read_run_ahead(reading, run, stored));
        }
        join_all(begun).await;
        Ok(())
    }

    /// The blocks of a range that have to be read: those that the map leads to, and neither buffer nor cache has.
    async fn wanted_ahead(&self, layer: &Layer, range: ByteRange) -> Result<Vec<Wanted>, PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let sectors = self.buffer.sectors_per_block();
        let mut wanted = Vec::new();
        let mut leaf: Option<(u64, Option<Arc<Page>>)> = None;
        for index in range.first_block(block_bytes).until(range.end_block(block_bytes)) {
            let leaf_index = index.0 / TREE_FAN_OUT;
            if leaf.as_ref().is_none_or(|(at, _)| *at != leaf_index) {
                leaf = Some((leaf_index, self.leaf(layer, index).await?));
            }
            let Some((_, Some(page))) = &leaf else { continue };
            let Some(number) = ThinEntry(page.get(tree::slot(index, 0))).block() else { continue };
            let is_buffered = {
                let shard = self.buffer.shard(layer.block(index));
                covered(&shard.visible(layer, index), 0, sectors) == sectors
            };
            if is_buffered || self.front.ahead.has(number) || self.front.cache.has(number) {
                continue;
            }
            let Some(place) = self.block(number).await? else { continue };
            if !place.info.is_lost() && !place.location.is_none() {
                wanted.push(Wanted { number, place });
            }
        }
        Ok(wanted)
    }

    async fn read_run_ahead(&self, reading: Reading, run: &[Wanted], stored: ByteRange) {
        let segment = run[0].place.location.segment();
        let Ok(whole) = self.segments.io.read_for_host(segment, stored).await else { return };
        let content = |Wanted { place, .. }: &Wanted| {
            let at = (place.location.offset_bytes() - stored.offset) as usize;
            let stored = whole.slice(at..at + place.location.len_bytes() as usize);
            self.content_of(place.info, stored).map(|content| content.data)
        };
        reading.done(run.iter().map(content).collect());
    }
}

/// What blocks, ordered and of one segment, take of it, with what lies between them.
fn stored_range(run: &[Wanted]) -> ByteRange {
    let place = |wanted: Option<&Wanted>| wanted.map_or(Location::default(), |wanted| wanted.place.location);
    let (first, last) = (place(run.first()), place(run.last()));
    ByteRange::from(first.offset_bytes()..last.offset_bytes() + last.len_bytes())
}
