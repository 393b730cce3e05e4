//! Carrying forward what waits for drives or slabs, so that hosts can write on and drives can come back.
//!
//! A block that cannot be put together until a drive is back keeps the journal's tail at its oldest record. The journal would
//! fill up behind it until no host could write. So what is buffered of such blocks is appended again, as if hosts had written it
//! just now. The tail then goes on, and what was written before the loss of a drive gets all its columns.
//!
//! 1. Only what still is in the buffer as it was is appended, with its shard locked: what a host writes is never undone.
//! 2. The tail passes a record only when the one that came in its place is hardened: the buffer sees to that, as it does when
//!    hosts overwrite something.
//! 3. All that waits is carried whenever the journal has gone on by a quarter of its length, and once after each loss. What is
//!    found to wait later is carried when the journal is half full: hosts may be stopped before it has gone on by a quarter. If
//!    it is more than a sixteenth of the journal it stays where it is: it would be most of what the journal is for.
//!
//! A block for which there is no slab since a drive was lost keeps the tail too. Hosts do not write then; but what was written to
//! the journal before the loss must not be needed any more when the drive comes back, which may be what ends the want. So all that
//! is buffered is carried once after each loss while slabs lack, if the journal has room for it; what drives fail to read is tried
//! again.
//!
//! What a fork took along stays where it is too, as does what lies in a row that cannot be read: see `docs/limits.md`. As long as
//! there is any of that, nothing is carried, for the tail would stay.

use crate::{
    buffer::{BlockKey, Content, Fragment, Piece, held::Held, received::Received},
    bugs::{Bug, planted},
    commit::{committer::Committer, retries::CarriesAll},
    error::PoolError,
    fork::layer::Layer,
    format::{RecordHeader, RecordKind},
    host::{
        pace::{SLOW_FROM, STOP_AT},
        write::record,
    },
    journal::Entry,
    lifecycle::slice::Slice,
};
use quoin_base::{ByteRange, SECTOR_BYTES, Sequence, crc32c};
use quoin_world::{Nanos, Slice as Bytes};
use std::{sync::Arc, time::Duration};

/// All is carried again when the journal has gone on by this part of its length.
const DUE_AFTER_PART: u64 = 4;
/// The most that is carried, as a part of the journal: less than what makes it due again.
const MOST_PART: u64 = 16;
/// How long after it could not be carried it is looked at again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// How long after all was carried it is looked whether some was not.
const ALL_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A fragment is not in the buffer any more as it was, or its layer is not written to any more.
struct Changed;

impl Committer {
    /// Carries all forward that waits for drives or slabs, if it holds up the journal.
    pub(super) async fn carry_forward(&mut self) {
        if self.retries.count() == 0 && !self.is_short() {
            return;
        }
        let (journal, now) = (&self.slice.log.journal, self.slice.world().now());
        // Lanes that are about to leave their extents need others first.
        if now < self.retries.carries_from || journal.are_lanes_to_leave() {
            return;
        }
        if self.is_short() { self.carry_all().await } else { self.carry_waiting().await }
    }

    /// What waits for slabs holds up the journal once, after a loss: hosts write nothing behind it.
    async fn carry_all(&mut self) {
        let slice = self.slice.clone();
        let journal = &slice.log.journal;
        let (set_from, now) = (journal.set_from(), slice.world().now());
        if slice.metadata.root().first_extent.get() >= set_from {
            return;
        }
        // NOTE: each once. What was carried is younger than this, and the journal would fill up with it.
        let CarriesAll { older_than, from, .. } =
            *self.retries.carries_all(set_from, journal.peek_sequence());
        if now < from {
            return;
        }
        let old = |key| {
            let mut waiting = slice.waiting(key)?;
            waiting.fragments.retain(|one| one.sequence < older_than);
            (!waiting.fragments.is_empty()).then_some(waiting)
        };
        let all: Vec<_> = slice.buffer.keys().into_iter().filter_map(old).collect();
        let is_of_use = all.iter().all(Waiting::can_be_carried);
        if self.carry_some(all, is_of_use, 1.0).await {
            // What drives fail to read is tried again.
            let from = Nanos(now.0 + ALL_AGAIN_AFTER.as_nanos() as u64);
            self.retries.carries_all(set_from, older_than).from = from;
        }
    }

    async fn carry_waiting(&mut self) {
        let slice = self.slice.clone();
        let (journal, usage) = (&slice.log.journal, slice.log.journal.usage());
        let gone_on = usage.taken - self.retries.carried_at;
        let goes_on = DUE_AFTER_PART * gone_on >= usage.total;
        let is_half_full = 2 * usage.used >= usage.total;
        if !goes_on && !is_half_full && !journal.lacks_columns() {
            return;
        }
        let waiting = self.retries.awaiting_drives(journal.set_from());
        let is_due = |is_new: bool| goes_on || is_new;
        if !waiting.iter().any(|(_, is_new)| is_due(*is_new)) {
            return;
        }
        let find = |(key, is_new): (BlockKey, bool)| Some((slice.waiting(key)?, is_new));
        let all: Vec<_> = waiting.into_iter().filter_map(find).collect();
        let bytes: u64 = all.iter().map(|(waiting, _)| waiting.record_bytes()).sum();
        let is_of_use =
            MOST_PART * bytes <= journal.bytes() && all.iter().all(|(waiting, _)| waiting.can_be_carried());
        let due = all.into_iter().filter(|(_, is_new)| is_due(*is_new));
        let found = due.map(|(waiting, _)| waiting).collect();
        if self.carry_some(found, is_of_use, SLOW_FROM).await && goes_on {
            self.retries.carried_at = usage.taken;
        }
    }

    /// Carries these if it is of use, and it fills the buffer to no more than `most_fill`. What cannot be carried keeps the
    /// tail where it is, and the rest would only fill up the journal. False if they stay where they are.
    async fn carry_some(&mut self, found: Vec<Waiting>, is_of_use: bool, most_fill: f64) -> bool {
        let (slice, now) = (self.slice.clone(), self.slice.world().now());
        // Most often all is carried now. If it cannot be, going through all of it at every step would slow down destage.
        self.retries.carries_from = Nanos(now.0 + LOOK_AGAIN_AFTER.as_nanos() as u64);
        let more_ram: u64 = found.iter().flat_map(|waiting| &waiting.fragments).map(more_ram_bytes).sum();
        if !is_of_use || more_ram > 0 && slice.buffer_fill(more_ram) > most_fill {
            return false;
        }
        let bytes = found.iter().map(Waiting::record_bytes).sum();
        // NOTE: it never waits for room: the room comes from what this task does.
        let Some(_room) = slice.log.journal.keep_last_room(bytes, STOP_AT) else { return false };
        let set_from = slice.log.journal.set_from();
        for Waiting { layer, key, fragments } in found {
            let before = fragments.iter().map(|fragment| fragment.sequence).max().unwrap_or_default();
            let (mut newest, mut is_all) = (before, true);
            for fragment in &fragments {
                match slice.carry(&layer, key, fragment).await {
                    Ok(sequence) => newest = newest.max(sequence.unwrap_or_default()),
                    // It cannot be read now.
                    Err(_) => is_all = false,
                }
            }
            self.retries.carried(key, is_all.then_some(set_from), before, newest);
            // Hosts write meanwhile, and rows.
            slice.world().yield_now().await;
        }
        self.retries.carries_from = now;
        true
    }
}

/// What is buffered of a block that waits.
struct Waiting {
    layer: Arc<Layer>,
    key: BlockKey,
    fragments: Vec<Fragment>,
}

impl Waiting {
    fn record_bytes(&self) -> u64 {
        self.fragments.iter().map(record_bytes).sum()
    }

    fn can_be_carried(&self) -> bool {
        let is_content = |fragment: &Fragment| {
            matches!(fragment.content, Content::Zero | Content::Ram(_) | Content::Journal(_))
        };
        self.layer.is_live() && self.fragments.iter().all(is_content)
    }
}

/// What the buffer holds more when a fragment is carried that is in the journal alone.
fn more_ram_bytes(fragment: &Fragment) -> u64 {
    let is_in_journal = matches!(fragment.content, Content::Journal(_));
    if is_in_journal { u64::from(fragment.sectors) * SECTOR_BYTES } else { 0 }
}

/// What the record of a fragment takes of the journal at most, beside others.
fn record_bytes(fragment: &Fragment) -> u64 {
    u64::from(fragment.sectors) * SECTOR_BYTES + size_of::<RecordHeader>() as u64
}

impl Slice {
    fn waiting(&self, key: BlockKey) -> Option<Waiting> {
        let layer = self.forks.kept_layer(key.layer)?;
        let fragments = self.buffer.shard(key).fragments(key)?.to_vec();
        Some(Waiting { layer, key, fragments })
    }

    /// Appends what a fragment holds under a sequence of its own, which is returned. `None`: it changed meanwhile, and needs not
    /// be carried.
    async fn carry(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
    ) -> Result<Option<Sequence>, PoolError> {
        let data = self.verified_data(layer, key, fragment).await?.map(|verified| verified.data);
        self.dawdle().await;
        Ok(self.try_carry(layer, key, fragment, data).ok())
    }

    fn try_carry(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
        data: Option<Bytes>,
    ) -> Result<Sequence, Changed> {
        let Fragment { start, sectors, sequence: before, .. } = *fragment;
        let block = key.index.offset_bytes(self.buffer.block_bytes);
        let range =
            ByteRange::new(block + u64::from(start) * SECTOR_BYTES, u64::from(sectors) * SECTOR_BYTES);
        let bytes = data.as_ref().map_or(0, |data| data.len());
        let mut appended = before;
        self.log.journal.lane(self.world()).append(
            bytes,
            data.is_some().into(),
            |batch, payload_offset| {
                let mut shard = self.buffer.shard(key);
                let is_same = |other: &Fragment| {
                    (other.start, other.sectors, other.sequence) == (start, sectors, before)
                };
                let is_there = shard.fragments(key).is_some_and(|all| all.iter().any(is_same));
                if !is_there && !planted(Bug::CarryOverNewer)
                    || !layer.is_live()
                    || layer.check_end(range).is_err()
                {
                    return Err(Changed);
                }
                appended = self.log.journal.take_sequence();
                let (kind, content, crcs, payload) = match data {
                    None => (RecordKind::Unmap, Content::Zero, Vec::new(), Vec::new()),
                    Some(data) => {
                        let crc = crc32c(&data).0;
                        let held = Held::new(data.clone(), range.len, self.buffer.block_bytes);
                        let received = Received::new(held, start, crc, payload_offset);
                        (RecordKind::Write, Content::Ram(received), vec![crc], vec![data])
                    }
                };
                self.buffer.insert(&mut shard, appended, batch, [Piece { key, start, sectors, content }]);
                let mut header = record(layer, range, kind);
                header.sequence = appended.0.into();
                header.payload_bytes = (bytes as u32).into();
                Ok(Entry { header, crcs, payload, row: None })
            },
        )?;
        self.counters.destage.carried.add(1);
        Ok(appended)
    }
}

/// Seams for planted bugs.
impl Slice {
    /// Takes no time at all.
    async fn dawdle(&self) {
        if planted(Bug::CarryOverNewer) {
            self.world().sleep(Duration::from_micros(50)).await;
        }
    }
}
