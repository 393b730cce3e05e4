//! Rebuilding: columns of segments are made again on other drives, when their drives failed or leave, or are fuller than others.
//!
//! One task for each slice does it, beside hosts, at the pace of the background, and at no more and no less than the pool's
//! [rate](crate::store::rate). It takes the segments first that tolerate the fewest further failures, then those of drives that
//! leave, and only those with anything live. While nothing is to lie elsewhere it moves columns so that drives are used alike.
//!
//! What is copied or computed is verified by the checksums of the blocks that lie wholly in the column. One that does not
//! verify is mended on the drives first, as far as redundancy allows, and read again. What has no such checksums, parity and
//! metadata, is left to scrubs. What it has done is in the segment table, and so in the next
//! checkpoint: after a restart it goes on where that left off. A column is made from the others of its segment, or copied
//! from its drive while that still serves.

use crate::{
    bugs::{Bug, planted},
    commit::gather::rows_of,
    error::PoolError,
    format::PAGE_BYTES,
    lifecycle::slice::Slice,
    maps::blocks::BlockPlace,
    meta::{ColumnMove, DriveUse, emptiest, is_uneven, percents},
    store::{
        Writer,
        pace::{PIECE_BYTES, Work},
    },
};
use futures_util::{StreamExt, future::join, stream::FuturesUnordered};
use quoin_base::{BlockNumber, ByteRange, DriveIndex, SegmentId, crc32c};
use quoin_world::{Buf, Thread};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Bytes of a column that are made at a time, and while hosts use drives: what they ask for waits behind it.
const CHUNK_BYTES: u64 = 1 << 20;
const CHUNK_BESIDE_HOSTS_BYTES: u64 = PIECE_BYTES;
/// Columns that are made at the same time: enough to keep all drives busy while hosts are idle, each move reading from some
/// and writing to one.
const LEAST_MOVES_AT_ONCE: usize = 4;
const MOST_MOVES_AT_ONCE: usize = 32;
const MOVES_FOR_EACH_DRIVE: usize = 4;
/// While hosts use drives, one in so many of these, as long as no less is moved than is to be at least.
const FEWER_BESIDE_HOSTS: usize = 4;
/// How often it is looked whether there is anything to do that could not be done before.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The same, at the longest, when only drives could be used more alike and no column can be moved for that.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// A block that lies wholly in a column.
struct LiveInColumn {
    number: BlockNumber,
    place: BlockPlace,
    /// Where in the column.
    column: ByteRange,
}

impl LiveInColumn {
    /// Whether what was made of a range of the column has the block, and not as it must be.
    fn is_wrong_in(&self, made: &Buf, range: ByteRange) -> bool {
        let is_whole = range.offset <= self.column.offset && self.column.end() <= range.end();
        let at = || (self.column.offset - range.offset) as usize;
        is_whole && crc32c(&made[at()..at() + self.column.len as usize]).0 != self.place.info.crc()
    }
}

impl Slice {
    /// Begins to rebuild whatever there is to rebuild, and to make an end of what was written before losses, until the pool ends.
    pub(crate) fn begin_to_rebuild(self: &Arc<Self>) {
        self.rebuilding().begins();
        let slice = self.clone();
        self.world().spawn(
            Thread::Background,
            Box::pin(async move {
                join(slice.rebuild(), slice.settle_losses()).await;
                slice.rebuilding().ends();
            }),
        );
    }

    /// Rebuilds whatever there is to rebuild, until the pool ends.
    async fn rebuild(&self) {
        let mut pause = LOOK_EVERY;
        loop {
            // It sleeps until a drive is lost or leaves.
            let has_work =
                || (self.has_moves() || self.is_uneven() || self.store.health().is_failed()).then_some(());
            self.store.health().until(has_work).await;
            if self.store.health().is_failed() {
                return;
            }
            match self.rebuild_some().await {
                Ok(true) => pause = LOOK_EVERY,
                Ok(false) if self.has_moves() => {
                    self.help_moves().await;
                    self.world().sleep(LOOK_EVERY).await;
                }
                // Slabs of the emptiest drive may have to be granted first, or no column fits there.
                Ok(false) => {
                    self.help_balance();
                    self.world().sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_LOOK);
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
        let (mut moving, mut under_way) = (FuturesUnordered::new(), BTreeMap::<SegmentId, DriveIndex>::new());
        let (mut did, mut failure) = (false, None);
        let _moving = self.store.pace().moving();
        loop {
            while moving.len() < self.moves_at_once() && failure.is_none() && !self.store.health().is_failed()
            {
                let Some(next) = self.next_move(&under_way) else { break };
                under_way.insert(next.segment, next.from());
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

    /// How many columns are made at the same time.
    fn moves_at_once(&self) -> usize {
        let of_all = MOVES_FOR_EACH_DRIVE * self.store.data_drive_count();
        let of_slice = of_all / (self.store.slice_count() as usize).max(1);
        let most = of_slice.clamp(LEAST_MOVES_AT_ONCE, MOST_MOVES_AT_ONCE);
        let now = self.world().now();
        let leave_room = self.store.pace().do_hosts_use_drives(now) && !self.store.rate().is_behind(now);
        if leave_room { most / FEWER_BESIDE_HOSTS } else { most }
    }

    /// The next column to be made elsewhere: one that is missing or leaves, and if there is none one of a drive that is fuller
    /// than others.
    fn next_move(&self, under_way: &BTreeMap<SegmentId, DriveIndex>) -> Option<ColumnMove> {
        let table = &self.segments.table;
        let (kept, but) = (self.space.checkpoint_slabs(), under_way.keys().copied().collect());
        let next = table.begin_move(kept, &but);
        if next.is_some() || table.is_any_displaced() || !self.store.balances() {
            self.rebuilding().set_balancing(false);
            return next;
        }
        let uses = self.drive_use(&under_way.values().copied().collect::<Vec<_>>());
        let goes_on = self.rebuilding().is_balancing();
        // The cleaner and destage have the slabs first.
        let kept = kept.max(self.space.clean_below());
        let next = is_uneven(&uses, goes_on).then(|| table.begin_balance(&uses, kept, &but)).flatten();
        self.rebuilding().set_balancing(next.is_some());
        next
    }

    /// How the drives are used by the slice, each of which has an equal part of it.
    fn drive_use(&self, about_to_leave: &[DriveIndex]) -> DriveUse {
        let slices = self.store.slice_count();
        let slabs = self.store.data_slabs().into_iter().map(|(drive, slabs)| (drive, slabs.div_ceil(slices)));
        self.segments.table.drive_use(slabs.filter(|(_, slabs)| *slabs > 0), about_to_leave)
    }

    /// Whether columns are to be moved so that drives are used alike.
    fn is_uneven(&self) -> bool {
        self.store.balances() && is_uneven(&self.drive_use(&[]), false)
    }

    /// The largest and the smallest share of a drive that the slice uses, in percent of its part, and whether it moves columns
    /// because of that.
    pub(crate) fn balance(&self) -> (Option<(u64, u64)>, bool) {
        (percents(&self.drive_use(&[])), self.rebuilding().is_balancing())
    }

    /// Asks for slabs of the drive that is used least, where slices take slabs only as they need them.
    fn help_balance(&self) {
        let uses = self.drive_use(&[]);
        let lacks = emptiest(&uses).is_some_and(|drive| self.segments.table.free_of(drive) == 0);
        if lacks && self.store.nobodys_slabs() > 0 {
            self.ask_for(self.space.overhead().segment());
        }
    }

    /// Makes a column in its new slab, hardened. False if it cannot be made now.
    async fn make_column(&self, next: &ColumnMove) -> Result<bool, PoolError> {
        let store = &self.store;
        let geometry = next.stripes.geometry;
        let end = next.written_bytes / u64::from(geometry.data);
        self.turn_to_move().await;
        let live = self.live_in_column(next).await;
        let mut range = self.part_of(ByteRange::new(0, end));
        let mut made = self.read_made(next, range, &live).await;
        while range.len > 0 {
            store.health().check()?;
            let Some(part) = made else { return Ok(false) };
            store.rate().admit(range.len, self.world()).await;
            self.turn_to_move().await;
            // The next part is read while this one is written.
            let following = self.part_of(ByteRange::from(range.end()..end));
            // NOTE: both end, whatever becomes of the other.
            let write = self.write_made(next, range.offset, part);
            let (written, after) = join(write, self.read_made(next, following, &live)).await;
            if !written? {
                return Ok(false);
            }
            self.counters.rebuild.bytes.add(range.len);
            (range, made) = (following, after);
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

    /// Waits while hosts have their turn.
    async fn turn_to_move(&self) {
        let (store, world) = (&self.store, self.world());
        store.pace().turn_to_move(world, |now| store.rate().is_behind(now)).await;
    }

    /// The part of a column that is made next, of what is left of it.
    fn part_of(&self, left: ByteRange) -> ByteRange {
        let are_used = self.store.pace().do_hosts_use_drives(self.world().now());
        let most = if are_used { CHUNK_BESIDE_HOSTS_BYTES } else { CHUNK_BYTES };
        ByteRange::new(left.offset, left.len.min(most))
    }

    /// What a column should hold in a range of it, verified as far as checksums tell; `None` if it cannot be made now.
    async fn read_made(&self, next: &ColumnMove, range: ByteRange, live: &[LiveInColumn]) -> Option<Buf> {
        if range.len == 0 {
            return None;
        }
        // A block that ends behind it is verified with it.
        let cut =
            live.iter().filter(|block| block.column.offset < range.end()).map(|block| block.column.end());
        let end = cut.fold(range.end(), u64::max).next_multiple_of(PAGE_BYTES as u64);
        let read = ByteRange::from(range.offset..end);
        let mut made = self.read_once(next, read).await?;
        let wrong: Vec<_> = live.iter().filter(|block| block.is_wrong_in(&made, read)).collect();
        if !wrong.is_empty() && !planted(Bug::CopyUnverified) {
            for block in wrong {
                self.mend_source(block).await;
            }
            // A block that cannot be mended is moved as it is: it fails its checksum there too, and nothing else is lost.
            made = self.read_once(next, read).await?;
        }
        made.truncate(range.len as usize);
        Some(made)
    }

    async fn read_once(&self, next: &ColumnMove, range: ByteRange) -> Option<Buf> {
        match self.store.read_column_anew(&next.stripes, next.place, range).await {
            Ok(made) => Some(made),
            // Another drive may have failed: then others are tried, or it cannot be made at all.
            Err(error) => {
                tracing::warn!(segment = next.segment.0, %error, "a column cannot be rebuilt now");
                None
            }
        }
    }

    /// Writes again what is wrong of a block, from what else the layout offers.
    async fn mend_source(&self, block: &LiveInColumn) {
        let _guard = self.enter_readers();
        if self.block(block.number).await.ok().flatten() == Some(block.place) {
            let is_mended = self.mend(block.place).await.is_some_and(|mended| !mended.is_wrong_still);
            tracing::warn!(number = block.number.0, is_mended, "a block to be moved did not verify");
        }
    }

    /// The blocks that lie wholly in a column, as far as that is known. Those that are freed meanwhile may be among them.
    async fn live_in_column(&self, next: &ColumnMove) -> Vec<LiveInColumn> {
        let (table, geometry) = (&self.segments.table, next.stripes.geometry);
        // Parity has no blocks of its own. All copies have all.
        let has_blocks = geometry.data == 1 || geometry.data_columns().has(next.place);
        let Some(segment) = table.segment(next.segment).filter(|segment| {
            has_blocks && segment.generation == next.generation() && !segment.stream.is_metadata()
        }) else {
            return Vec::new();
        };
        let full_row_bytes = table.full_row_bytes(&segment, self.buffer.block_bytes);
        let rows = rows_of(&self.segments.io, full_row_bytes, next.segment, &segment).await;
        let mut live = Vec::new();
        for content in rows.iter().flatten().flat_map(|row| &row.contents) {
            let number = content.block_number();
            let Ok(Some(place)) = self.block(number).await else { continue };
            let range = place.location.range();
            let is_here = place.location.segment() == next.segment
                && !place.info.is_lost()
                && range.end() <= next.written_bytes;
            let column = if geometry.data == 1 { range } else { geometry.column_range(range, next.place) };
            if is_here && column.len == range.len {
                live.push(LiveInColumn { number, place, column });
            }
        }
        live
    }

    /// Writes a part of a column at the pace of the background. False if its drive failed and the pool goes on without it.
    async fn write_made(&self, next: &ColumnMove, at: u64, made: Buf) -> Result<bool, PoolError> {
        let (store, world) = (&self.store, self.world());
        // Hosts that use the same drive come first.
        let made = made.into_slice();
        // Without rests, while less was moved than is to be at least.
        let pressure = || {
            let (is_awaited, fill) = self.pressure();
            (is_awaited || store.rate().is_behind(world.now()), fill)
        };
        let piece = (Work::Move, made.len() as u64);
        let paced = store.pace().enter(next.to.drive, piece, world, pressure).await;
        let write = || store.write_slab(next.to, at, vec![made.clone()], false);
        let written = store.write_patiently(world, Writer::Rebuild, write).await;
        paced.done(world.now(), pressure());
        if let Err(error) = written {
            store.do_without(next.to.drive, error).await?;
            return Ok(false);
        }
        Ok(true)
    }
}
