//! The heads of rows.

use super::{Pace, Scrub};
use crate::{
    error::PoolError,
    format::{PAGE_BYTES, RowHeader},
    meta::SegmentState,
    segment::io::RowAt,
};
use quoin_base::{ByteRange, SegmentGeneration, SegmentId};
use std::collections::BTreeMap;

enum Rows {
    Sound,
    /// From here on.
    Damaged(u64),
    Stopped,
}

impl Scrub {
    /// The heads of the rows of every sealed segment. False if it was stopped.
    pub(super) async fn segments(&self, pace: &mut Pace) -> Result<bool, PoolError> {
        let mut doubtful: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for (id, segment) in self.slice().segments.table.all() {
            if segment.state == SegmentState::Sealed {
                match self.rows(id, segment.generation, segment.written_bytes, pace).await? {
                    Rows::Stopped => return Ok(false),
                    Rows::Sound => {}
                    Rows::Damaged(at) => drop(doubtful.insert(id, at)),
                }
            }
        }
        if doubtful.is_empty() {
            return Ok(true);
        }
        // What was planned and not written yet is written by then.
        self.slice().checkpoint().await?;
        for (id, segment) in self.slice().segments.table.all() {
            if segment.state != SegmentState::Sealed || !doubtful.contains_key(&id) {
                continue;
            }
            match self.rows(id, segment.generation, segment.written_bytes, pace).await? {
                Rows::Stopped => return Ok(false),
                Rows::Sound => {}
                Rows::Damaged(at) => {
                    let mut state = self.state.lock();
                    state.counts.damaged_rows += 1;
                    state.note(format!(
                        "the head of the row at {at} of segment {id} does not verify; what lies there can be read, the \
                         segment is not cleaned"
                    ));
                }
            }
        }
        Ok(true)
    }

    async fn rows(
        &self,
        id: SegmentId,
        generation: SegmentGeneration,
        end: u64,
        pace: &mut Pace,
    ) -> Result<Rows, PoolError> {
        let mut at = 0;
        while at < end {
            if self.is_stopping() {
                return Ok(Rows::Stopped);
            }
            let guard = self.slice().enter_readers();
            let is_there = self.slice().segments.table.generation(id) == Some(generation);
            let row = self.row_head(RowAt { segment: id, generation, offset: at }).await;
            drop(guard);
            if !is_there || self.slice().segments.table.generation(id) != Some(generation) {
                return Ok(Rows::Sound);
            }
            // It is looked at when the drives are back that it waits for.
            let waits = row.is_none() && self.slice().segments.table.is_unreadable(id);
            let Some(row) = row else { return Ok(if waits { Rows::Sound } else { Rows::Damaged(at) }) };
            at += u64::from(row.len_bytes.get());
            self.count(|counts| {
                (counts.rows, counts.bytes) = (counts.rows + 1, counts.bytes + PAGE_BYTES as u64)
            });
            self.rest(pace, PAGE_BYTES as u64).await?;
        }
        Ok(Rows::Sound)
    }

    /// The head of a row, from another drive if need be; `None` if it does not verify.
    pub(super) async fn row_head(&self, row: RowAt) -> Option<Box<RowHeader>> {
        let io = &self.slice().segments.io;
        let read = io.read_sound(row.segment, ByteRange::new(row.offset, PAGE_BYTES as u64)).await;
        if let Some(head) = read.ok().and_then(|bytes| row.head_in(&bytes)) {
            return Some(head);
        }
        io.row_head_otherwise(row).await
    }
}
