//! What recovery would replay: the journals of all slices, and which transactions over several slices are decided.

use super::{CheckReport, block_bytes};
use crate::{
    error::PoolError,
    format::{Location, RecordKind},
    journal::{JournalBounds, Replay, ReplayedRecord, payload_verifies, read_journal},
    lifecycle::{
        open::{Opened, open_checkpoint, read_transaction},
        spanning::Decided,
    },
    segment::opened::OpenedSegment,
    store::Store,
};
use quoin_base::{ByteRange, Sequence, SliceId, crc32c};
use std::sync::Arc;

/// A slice of a pool that is not open.
pub(super) struct SliceToCheck {
    pub(super) id: SliceId,
    pub(super) opened: Opened,
    /// What recovery would replay, or why it cannot be read.
    replay: Result<Replay, PoolError>,
}

impl SliceToCheck {
    pub(super) async fn open(store: &Arc<Store>, id: SliceId) -> Result<Self, PoolError> {
        let opened = open_checkpoint(store.clone(), id).await?;
        let replay = read_journal(&opened.io, id, JournalBounds::of(&opened.root)).await;
        Ok(Self { id, opened, replay })
    }
}

/// Which transactions over several slices are decided.
pub(super) async fn decided_by(slices: &[SliceToCheck]) -> Result<Decided, PoolError> {
    let mut decided = Decided::default();
    if slices.len() == 1 {
        return Ok(decided);
    }
    for SliceToCheck { id, opened, replay } in slices {
        decided.note_objects(*id, opened.catalog.objects.keys());
        for record in replay.iter().flat_map(|replay| &replay.records) {
            let is_new = Sequence(record.header.sequence.get()) > opened.catalog.applied;
            if is_new && RecordKind::from_byte(record.header.kind) == Some(RecordKind::Catalog) {
                // One that cannot be read is told of when the journal is checked.
                if let Ok(transaction) = read_transaction(&opened.io.store, record).await {
                    decided.note_record(*id, &transaction);
                }
            }
        }
    }
    Ok(decided)
}

/// The records that a recovery would replay, and what they would make of the catalog.
pub(super) async fn check_journal(slice: &SliceToCheck, decided: &Decided, report: &mut CheckReport) {
    let opened = &slice.opened;
    let store = &opened.io.store;
    let replay = match &slice.replay {
        Ok(replay) => replay,
        Err(PoolError::Corrupt { what, problem }) => return report.add(what.clone(), problem.clone()),
        Err(error) => return report.add("the journal", error.to_string()),
    };
    for unread in &replay.unread {
        report.note("the journal".into(), unread.clone());
    }
    for torn in &replay.torn {
        let column = torn.place.column();
        let at = store.byte_of_drive(column, torn.place.offset);
        report.note(
            format!("the journal at byte {at} of drive {}", store.drive_name(column.drive)),
            "a batch or what it leads to does not verify; it was being written, or is damaged: recovery drops it",
        );
        for (column, range) in &torn.rows {
            let place = ByteRange::new(store.byte_of_drive(*column, range.offset), range.len);
            report.dropped_rows.push((store.drive_name(column.drive).to_owned(), place));
        }
    }
    for record in &replay.records {
        report.records += 1;
        let what = format!("journal record {}", record.header.sequence.get());
        let verified = match RecordKind::from_byte(record.header.kind) {
            Some(RecordKind::Catalog) => match read_transaction(store, record).await {
                Ok(transaction) => {
                    let is_new = Sequence(record.header.sequence.get()) > opened.catalog.applied;
                    if is_new && decided.takes_effect(&transaction) {
                        report.apply(transaction);
                    }
                    Ok(true)
                }
                Err(error) => Err(error),
            },
            Some(RecordKind::Segment) => reopen(opened, record).map(|()| true),
            Some(RecordKind::Watermark) => Ok(true),
            Some(kind) => match record.problem(block_bytes(opened)) {
                Some(why) => {
                    report.add(what, why);
                    continue;
                }
                None if kind == RecordKind::Placed => placed_verifies(opened, record).await,
                None => payload_verifies(store, record).await.map_err(PoolError::from),
            },
            None => Ok(false),
        };
        match verified {
            Ok(true) => {}
            Ok(false) => report.add(what, "its payload does not verify; acknowledged data is lost"),
            Err(error) => report.add_error(&what, error),
        }
    }
}

/// Takes over what a record says of a segment that was opened for placed rows.
fn reopen(opened: &Opened, record: &ReplayedRecord) -> Result<(), PoolError> {
    let segment = OpenedSegment::parse(&record.header, &record.crcs)
        .ok_or_else(|| PoolError::corrupt("a segment", "the journal opens an impossible one"))?;
    opened.io.segments.reopen(&segment, Sequence(record.header.sequence.get()))
}

/// Whether what was placed is what its record's checksums say.
async fn placed_verifies(opened: &Opened, record: &ReplayedRecord) -> Result<bool, PoolError> {
    let first = Location(record.header.source.get());
    if !opened.io.segments.is_placed_in(first, record.crcs.len() as u64) {
        return Ok(false);
    }
    for (at, crc) in (0..).zip(record.crcs.iter()) {
        let block = first.plus(at);
        let read = opened.io.read(block).await;
        if read.as_ref().is_ok_and(|bytes| crc32c(bytes).0 == *crc) {
            continue;
        }
        // What is on other drives is as good: destage writes it anew.
        let Some(set) = opened.io.segments.stripes(block.segment()) else { return Ok(false) };
        let verifies = |bytes: &[u8]| crc32c(bytes).0 == *crc;
        if opened.io.read_otherwise(&set, block.range(), &verifies).await.is_none() {
            return read.map(|_| false);
        }
    }
    Ok(true)
}
