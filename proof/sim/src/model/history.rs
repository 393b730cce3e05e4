//! The history of every sector: which writes its content may be of.
//!
//! An operation begins, and ends acknowledged or failed, or its end is never heard of. In between, or later
//! if it failed, it takes effect at one moment in each pool block it touches. A sector's *entries* are the
//! operations that may be the last to have taken effect on it.
//!
//! 1. An acknowledged operation outdates all that ended before it began (I1).
//! 2. A read outdates all that had ended before it began and is not what it returned: they took effect before
//!    what it saw. What a read returned is certain from then on, also over crashes.
//! 3. An operation that failed or was cut off by a crash is *in doubt*: it may have taken effect or not, but as
//!    a whole in each pool block (I2), so what is seen of one sector tells about the others of its block.
//! 4. An outdated entry stays allowed for reads that began before it was outdated.

mod copy;
mod fork;
mod story;

pub use copy::Place;

use crate::stamp::{self, Value};
use quoin_base::SECTOR_BYTES;
use quoin_world::Slice;
use std::collections::{BTreeMap, BTreeSet};

/// Sectors of a pool block.
const BLOCK_SECTORS: u32 = 16;
const NEVER: u32 = u32::MAX;
/// Of so many operations before it a write may repeat one.
const REPEATED_OPS: usize = 300;

/// Names an operation; also the value of the sectors it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct OpId(u32);

/// A range of a volume that is used, in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first sector, at the beginning of a pool block.
    pub first: u64,
    /// How many there are.
    pub sectors: u32,
}

#[derive(Clone, Copy, Debug)]
struct Op {
    volume: u32,
    window: usize,
    first: u32,
    sectors: u32,
    value: Value,
    begun: u32,
    ended: u32,
    boot: u32,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Pending,
    Acknowledged,
    Failed,
    Crashed,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    op: u32,
    value: Value,
    begun: u32,
    /// When it had surely taken effect, if ever it did.
    ended: u32,
    outdated: u32,
    doubt: bool,
    /// The fork that it came by, if it is not certain to have; else 0. And when it began and ended before.
    fork: u32,
    before: (u32, u32),
}

impl Entry {
    /// True for what happened as one: the same operation, by the same fork if by any.
    fn is(&self, other: &Entry) -> bool {
        (self.op, self.fork) == (other.op, other.fork)
    }
}

/// One sector. While `entries` is empty, `settled` is the one operation its content is of.
#[derive(Clone, Default)]
struct Sector {
    settled: u32,
    /// When that had surely taken effect.
    settled_at: u32,
    entries: Vec<Entry>,
}

struct Volume {
    windows: Vec<(Window, Vec<Sector>)>,
    /// When its deletion was acknowledged.
    deleted: u32,
}

/// Histories of all sectors of all volumes.
pub struct History {
    now: u32,
    boot: u32,
    ops: Vec<Op>,
    volumes: BTreeMap<u32, Volume>,
    pending: BTreeSet<u32>,
    /// When reads in flight began, and how many began then.
    reads: BTreeMap<u32, u32>,
    /// How often a sector read in this boot was what a write in flight wrote.
    seen_in_flight: u64,
    forks: Vec<Fork>,
}

/// A transaction that forks volumes, all at one moment.
#[derive(Clone, Debug)]
struct Fork {
    /// Source and target of each.
    volumes: Vec<(u32, u32)>,
    begun: u32,
    under_way: bool,
    /// It is after the beginning of each write that was seen in it, and before the end of each that is missing.
    after: u32,
    before: u32,
}

impl Sector {
    fn open(&mut self, ops: &[Op]) -> &mut Vec<Entry> {
        if self.entries.is_empty() {
            let op = &ops[self.settled as usize];
            self.entries.push(Entry {
                op: self.settled,
                value: op.value,
                begun: op.begun.min(self.settled_at),
                ended: op.ended.min(self.settled_at),
                outdated: NEVER,
                doubt: false,
                fork: 0,
                before: (0, self.settled_at),
            });
        }
        &mut self.entries
    }

    /// Drops what no read can return any more, and settles if one value is left.
    fn tidy(&mut self, oldest_read: u32) {
        self.entries.retain(|e| e.outdated > oldest_read);
        let Some(first) = self.entries.first() else { return };
        let (value, same) =
            (first.value, |e: &Entry| e.value == first.value && e.ended != NEVER && e.outdated == NEVER);
        if self.entries.iter().all(same) && (self.entries.len() == 1 || value.is_zeroes()) {
            // Of zeroes the one that is certain stays: one in doubt may yet turn out never to have happened. Where all are in
            // doubt, as after a fork, it is zeroes of nobody in particular.
            let last = self.entries.iter().max_by_key(|e| (!e.doubt, e.ended));
            let of_nobody = self.entries.len() > 1 && last.is_some_and(|e| e.doubt);
            let op = |e: &Entry| if of_nobody { 0 } else { e.op };
            (self.settled, self.settled_at) = last.map_or((0, 0), |e| (op(e), e.ended));
            self.entries.clear();
        }
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl History {
    /// Nothing has happened.
    pub fn new() -> Self {
        let never = Op {
            volume: 0,
            window: 0,
            first: 0,
            sectors: 0,
            value: Value::ZEROES,
            begun: 0,
            ended: 0,
            boot: 0,
            end: End::Acknowledged,
        };
        Self {
            now: 1,
            boot: 0,
            ops: vec![never],
            volumes: BTreeMap::new(),
            pending: BTreeSet::new(),
            reads: BTreeMap::new(),
            seen_in_flight: 0,
            forks: vec![Fork { volumes: Vec::new(), begun: 0, under_way: false, after: 0, before: NEVER }],
        }
    }

    fn tick(&mut self) -> u32 {
        self.now += 1;
        self.now
    }

    fn oldest_read(&self) -> u32 {
        // What was outdated at or before this moment can be returned by nobody.
        self.reads.first_key_value().map_or(self.now, |(&begun, _)| begun)
    }

    /// What begins from now on is of this boot.
    pub fn begin_boot(&mut self, boot: u32) {
        self.boot = boot;
        self.seen_in_flight = 0;
    }

    /// How often a sector read in this boot was what a write in flight wrote.
    pub fn seen_in_flight(&self) -> u64 {
        self.seen_in_flight
    }

    /// Volume, window and sectors of the operation begun last of those in flight.
    pub fn last_begun(&self) -> Option<(u32, usize, u32, u32)> {
        let op = self.ops[*self.pending.last()? as usize];
        Some((op.volume, op.window, op.first, op.sectors))
    }

    /// A volume of zeroes, of which these ranges are used.
    pub fn add_volume(&mut self, volume: u32, windows: &[Window]) {
        let windows = windows.iter().map(|w| (*w, vec![Sector::default(); w.sectors as usize])).collect();
        self.volumes.insert(volume, Volume { windows, deleted: NEVER });
    }

    /// The deletion of a volume was acknowledged.
    pub fn volume_deleted(&mut self, volume: u32) {
        let now = self.tick();
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.deleted = now;
        }
    }

    /// The ranges of a volume that are used.
    pub fn windows(&self, volume: u32) -> Vec<Window> {
        self.volumes.get(&volume).map_or(Vec::new(), |v| v.windows.iter().map(|(w, _)| *w).collect())
    }

    /// A write or, if `zero`, an unmap or write of zeroes begins.
    pub fn begin(&mut self, volume: u32, window: usize, first: u32, sectors: u32, zero: bool) -> OpId {
        let value = if zero { Value::ZEROES } else { Value::of(self.ops.len() as u32) };
        self.begin_with(volume, window, first, sectors, value)
    }

    /// A write begins of what an earlier one wrote elsewhere, chosen by `pick`; `None` if there is none. It lies within blocks
    /// as that did.
    pub fn begin_again(
        &mut self,
        volume: u32,
        window: usize,
        first: u32,
        sectors: u32,
        pick: u32,
    ) -> Option<OpId> {
        let at = self.windows(volume).get(window)?.first + u64::from(first);
        let from = self.ops.len().saturating_sub(REPEATED_OPS);
        let is_of_use = |(id, op): &(u32, &Op)| op.value == Value::of(*id) && op.sectors >= BLOCK_SECTORS;
        let ops: Vec<_> = (from as u32..).zip(&self.ops[from..]).filter(is_of_use).collect();
        let (id, op) = ops.get(pick as usize % ops.len().max(1))?;
        let home = self.windows(op.volume).get(op.window)?.first + u64::from(op.first);
        let blocks = (at as i64 - home as i64).div_euclid(BLOCK_SECTORS.into());
        let value = Value::of(*id).moved_by(blocks * i64::from(BLOCK_SECTORS));
        Some(self.begin_with(volume, window, first, sectors, value))
    }

    /// The bytes that a write leaves, from this sector of its volume on.
    pub fn content(&self, id: OpId, first: u64, sectors: u32) -> Slice {
        let value = self.value(id);
        let volume = self.ops[value.write as usize].volume;
        stamp::content(value, volume, first.wrapping_add_signed(-value.moved), sectors)
    }

    fn begin_with(&mut self, volume: u32, window: usize, first: u32, sectors: u32, value: Value) -> OpId {
        let begun = self.tick();
        let id = self.ops.len() as u32;
        self.ops.push(Op {
            volume,
            window,
            first,
            sectors,
            value,
            begun,
            ended: NEVER,
            boot: self.boot,
            end: End::Pending,
        });
        self.pending.insert(id);
        let Some(volume) = self.volumes.get_mut(&volume) else { return OpId(id) };
        for sector in &mut volume.windows[window].1[first as usize..][..sectors as usize] {
            let entry = Entry {
                op: id,
                value,
                begun,
                ended: NEVER,
                outdated: NEVER,
                doubt: false,
                fork: 0,
                before: (0, 0),
            };
            sector.open(&self.ops).push(entry);
        }
        OpId(id)
    }

    /// The value that the sectors a write leaves are to carry.
    pub fn value(&self, id: OpId) -> Value {
        self.ops[id.0 as usize].value
    }

    /// An operation was acknowledged, or failed: then it is in doubt.
    pub fn end(&mut self, id: OpId, acknowledged: bool) {
        let now = self.tick();
        let oldest_read = self.oldest_read();
        self.pending.remove(&id.0);
        let op = &mut self.ops[id.0 as usize];
        op.ended = now;
        op.end = if acknowledged { End::Acknowledged } else { End::Failed };
        let op = *op;
        let Some(volume) = self.volumes.get_mut(&op.volume) else { return };
        for sector in &mut volume.windows[op.window].1[op.first as usize..][..op.sectors as usize] {
            // A read may have seen it already.
            let Some(entry) = sector.entries.iter_mut().find(|e| e.op == id.0 && e.ended == NEVER) else {
                continue;
            };
            entry.ended = now;
            entry.doubt = !acknowledged;
            if acknowledged {
                outdate(&mut sector.entries, now, |e| e.op != id.0 && e.ended < op.begun);
            }
            sector.tidy(oldest_read);
        }
    }

    /// An operation failed and surely had no effect.
    pub fn cancel(&mut self, id: OpId) {
        let oldest_read = self.oldest_read();
        self.pending.remove(&id.0);
        let op = &mut self.ops[id.0 as usize];
        (op.ended, op.end) = (self.now, End::Failed);
        let op = *op;
        let Some(volume) = self.volumes.get_mut(&op.volume) else { return };
        for sector in &mut volume.windows[op.window].1[op.first as usize..][..op.sectors as usize] {
            // Where it was seen all the same, that is for the next read to tell.
            sector.entries.retain(|e| e.op != id.0 || e.ended != NEVER);
            sector.tidy(oldest_read);
        }
    }

    /// All that is under way is cut off; forks may have taken effect or not.
    pub fn crash(&mut self) {
        (0..self.forks.len())
            .filter(|&id| self.forks[id].under_way)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|id| self.end_fork(id, false));
        self.cut_off();
    }

    /// All that is under way is cut off, but for forks: of these it will be known whether they took effect.
    pub fn cut_off(&mut self) {
        let now = self.tick();
        self.reads.clear();
        for fork in self.forks.iter().filter(|fork| fork.under_way) {
            *self.reads.entry(fork.begun).or_default() += 1;
        }
        let oldest_read = self.oldest_read();
        for id in std::mem::take(&mut self.pending) {
            let op = &mut self.ops[id as usize];
            (op.ended, op.end) = (now, End::Crashed);
            let op = *op;
            let Some(volume) = self.volumes.get_mut(&op.volume) else { continue };
            for sector in &mut volume.windows[op.window].1[op.first as usize..][..op.sectors as usize] {
                for entry in sector.entries.iter_mut().filter(|e| e.op == id && e.ended == NEVER) {
                    (entry.ended, entry.doubt) = (now, true);
                }
                sector.tidy(oldest_read);
            }
        }
    }

    /// A read begins: the moment to give at its end.
    pub fn begin_read(&mut self) -> u32 {
        let begun = self.tick();
        *self.reads.entry(begun).or_default() += 1;
        begun
    }

    /// A read failed.
    pub fn read_failed(&mut self, begun: u32) {
        if let Some(count) = self.reads.get_mut(&begun) {
            *count -= 1;
            if *count == 0 {
                self.reads.remove(&begun);
            }
        }
    }

    /// A read that began at `begun` returned these bytes, slice after slice. An error tells the story of the
    /// first sector that may not be so.
    pub fn read_returned<'a>(
        &mut self,
        begun: u32,
        volume: u32,
        window: usize,
        first: u32,
        bytes: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), String> {
        let now = self.tick();
        self.read_failed(begun);
        let Some(content) = self.volumes.get(&volume) else { return Err(format!("no volume {volume}")) };
        if content.deleted < begun {
            return Err(format!("volume {volume} is read after its deletion was acknowledged"));
        }
        let base = content.windows[window].0.first;
        let oldest_read = self.oldest_read();
        for (at, sector) in (first..).zip(bytes.flat_map(|b| b.chunks(SECTOR_BYTES as usize))) {
            let volume_of = |write: u32| self.ops.get(write as usize).map(|op| op.volume);
            let value = stamp::identify(sector, volume_of, base + u64::from(at));
            if let Err(problem) = value.and_then(|v| self.observe(now, begun, volume, window, at, v)) {
                return Err(self.story(volume, window, at, begun, &problem));
            }
            self.sector(volume, window, at).tidy(oldest_read);
        }
        Ok(())
    }

    fn sector(&mut self, volume: u32, window: usize, at: u32) -> &mut Sector {
        let volume = self.volumes.get_mut(&volume);
        &mut volume.unwrap_or_else(|| unreachable!("its caller found it")).windows[window].1[at as usize]
    }

    /// A read begun at `begun` saw `value` in a sector.
    fn observe(
        &mut self,
        now: u32,
        begun: u32,
        volume: u32,
        window: usize,
        at: u32,
        value: Value,
    ) -> Result<(), String> {
        let settled = self.sector(volume, window, at).settled;
        let settled = self.ops[settled as usize].value;
        let sector = self.sector(volume, window, at);
        if sector.entries.is_empty() {
            return if settled == value {
                Ok(())
            } else {
                Err(format!("it holds {}, yet {} is settled", named(value), named(settled)))
            };
        }
        let fits = |e: &Entry| e.value == value && e.outdated > begun;
        if !sector.entries.iter().any(fits) {
            let allowed: Vec<_> =
                sector.entries.iter().filter(|e| e.outdated > begun).map(|e| named(e.value)).collect();
            return Err(format!("it holds {}; allowed: {}", named(value), allowed.join(", ")));
        }
        let dying: Vec<Entry> = sector
            .entries
            .iter()
            .filter(|e| e.outdated == NEVER && e.ended < begun && e.value != value)
            .copied()
            .collect();
        outdate(&mut sector.entries, now, |e| e.ended < begun && e.value != value);
        // NOTE: also what was outdated since: zeroes that a slow read returns may be those of before.
        let matching: Vec<Entry> = sector.entries.iter().filter(|e| fits(e)).copied().collect();
        let [seen] = matching.as_slice() else { return Ok(()) };
        let seen = *seen;
        if seen.outdated != NEVER {
            return Ok(());
        }
        self.place_fork(&seen, &dying)?;
        let sector = self.sector(volume, window, at);
        for entry in sector.entries.iter_mut().filter(|e| e.is(&seen)) {
            entry.doubt = false;
            entry.ended = entry.ended.min(now);
        }
        if seen.ended == NEVER {
            self.seen_in_flight += 1;
            let sector = self.sector(volume, window, at);
            outdate(&mut sector.entries, now, |e| !e.is(&seen) && e.ended < seen.begun);
        }
        if seen.ended < begun {
            self.infer(begun, volume, window, at, seen, &dying);
        }
        Ok(())
    }

    /// What seeing `seen` in a sector, and not `dying`, tells about the other sectors of its pool block.
    fn infer(&mut self, begun: u32, volume: u32, window: usize, at: u32, seen: Entry, dying: &[Entry]) {
        if !seen.doubt && !dying.iter().any(|e| e.doubt) {
            return;
        }
        let block = at / BLOCK_SECTORS * BLOCK_SECTORS;
        let end = (block + BLOCK_SECTORS).min(self.windows(volume)[window].sectors);
        // The read that begun then may still have to compare other sectors of the block.
        let oldest_read = self.oldest_read().min(begun);
        for other in (block..end).filter(|&other| other != at) {
            let sector = self.sector(volume, window, other);
            let has_seen = sector.entries.iter().any(|e| e.is(&seen) && e.outdated == NEVER);
            let gone = |e: &Entry| {
                let outdated_by_seen = has_seen && seen.doubt && !e.is(&seen) && e.ended < seen.begun;
                let never_happened =
                    dying.iter().any(|d| d.is(e) && d.doubt && (has_seen || seen.ended < d.begun));
                outdated_by_seen || never_happened
            };
            // Blocks change as a whole: a read that began after `seen` had ended finds it in all of its block, this
            // read too. One that began before may have looked before.
            outdate(&mut sector.entries, seen.ended + 1, gone);
            for entry in sector.entries.iter_mut().filter(|e| e.is(&seen)) {
                entry.doubt = false;
            }
            sector.tidy(oldest_read);
        }
    }

    /// Pool blocks of a volume that hold anything but zeroes; `None` while that is uncertain.
    pub fn mapped_blocks(&self, volume: u32) -> Option<u64> {
        let mut mapped = 0;
        for (_, sectors) in &self.volumes.get(&volume)?.windows {
            for block in sectors.chunks(BLOCK_SECTORS as usize) {
                if block.iter().any(|s| !s.entries.is_empty()) {
                    return None;
                }
                mapped +=
                    u64::from(block.iter().any(|s| self.ops[s.settled as usize].value != Value::ZEROES));
            }
        }
        Some(mapped)
    }

    /// Ranges whose content is uncertain, in sectors of a window.
    pub fn uncertain(&self, volume: u32) -> Vec<(usize, u32, u32)> {
        let mut ranges: Vec<(usize, u32, u32)> = Vec::new();
        let Some(content) = self.volumes.get(&volume) else { return ranges };
        for (window, (_, sectors)) in content.windows.iter().enumerate() {
            for (at, _) in (0..).zip(sectors).filter(|(_, s)| !s.entries.is_empty()) {
                match ranges.last_mut() {
                    Some((w, first, count)) if *w == window && *first + *count == at && *count < 256 => {
                        *count += 1;
                    }
                    _ => ranges.push((window, at, 1)),
                }
            }
        }
        ranges
    }
}

fn outdate(entries: &mut [Entry], now: u32, which: impl Fn(&Entry) -> bool) {
    for entry in entries.iter_mut().filter(|e| e.outdated == NEVER && which(e)) {
        entry.outdated = now;
    }
}

fn named(value: Value) -> String {
    match value {
        Value::ZEROES => "zeroes".into(),
        Value { write, moved: 0 } => format!("write #{write}"),
        Value { write, moved } => format!("write #{write}, moved by {moved} sectors"),
    }
}
