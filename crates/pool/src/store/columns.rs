//! Columns of segments, one by one: reading without some of them, writing again what some of them lack, and hardening.

use super::Store;
use crate::error::PoolError;
use futures_util::future::join_all;
use quoin_base::{ByteRange, DriveIndex};
use quoin_drive::Member;
use quoin_stripe::{ColumnSet, Geometry, Read, StripeError, StripeSet, alternatives};
use quoin_world::{Buf, Slice as Bytes};

/// What each column holds of the stripes that a range of a segment's data touches.
pub(crate) fn in_columns(geometry: Geometry, range: ByteRange) -> ByteRange {
    let (stripe, strip) = (geometry.stripe_bytes(), u64::from(geometry.strip_bytes));
    ByteRange::from(range.offset / stripe * strip..range.end().div_ceil(stripe) * strip)
}

impl Store {
    /// What a column of a segment should hold in a range of it: read from it, if it is there, or made from the others.
    pub(crate) async fn read_column_anew(
        &self,
        set: &StripeSet,
        place: usize,
        range: ByteRange,
    ) -> Result<Buf, StripeError> {
        // From the column itself, as long as its drive serves.
        let column = set.columns[place];
        if !set.missing.has(place)
            && !self.columns.is_lost(column)
            && self.members().get(column.drive).is_some_and(Member::is_needed)
            && let Ok(read) = self.read_slab(column, range.offset, range.len as usize).await
        {
            return Ok(read);
        }
        self.columns.rebuild(set, place, range).await
    }

    /// The ways to read a range of a segment's data: with all columns, and then with some left out.
    pub(crate) fn ways_to_read(
        &self,
        set: &StripeSet,
        range: ByteRange,
    ) -> impl Iterator<Item = ColumnSet> + use<> {
        std::iter::once(ColumnSet::default()).chain(alternatives(set, range))
    }

    /// Reads a range of a segment's data without what these columns hold of it.
    pub(crate) async fn read_segment_without(
        &self,
        set: &StripeSet,
        range: ByteRange,
        left_out: ColumnSet,
    ) -> Result<Read, StripeError> {
        self.columns.read_without(set, range, left_out).await
    }

    /// Writes what is known to be right to the columns that were left out when it was read; of a mirror, to all copies. Durable
    /// on return.
    pub(crate) async fn rewrite_columns(
        &self,
        set: &StripeSet,
        range: ByteRange,
        left_out: ColumnSet,
        data: &Bytes,
    ) -> Result<(), PoolError> {
        let lost = self.lost_columns(set);
        let wanted = if set.geometry.data == 1 { set.geometry.all() } else { left_out };
        Ok(self.columns.rewrite(set, range, wanted.without(lost), data).await?)
    }

    /// Those that are missing, or whose drives are not there or have failed.
    pub(crate) fn lost_columns(&self, set: &StripeSet) -> ColumnSet {
        let lost = set.columns.iter().enumerate().filter(|(_, column)| self.columns.is_lost(**column));
        lost.fold(set.missing, |lost, (place, _)| lost.with(ColumnSet::one(place)))
    }

    /// Where a column of data that is missing followed from parity, as a range was read and verified without these columns: makes
    /// those anew, and the parity that was not read. Durable on return.
    pub(crate) async fn make_others_anew(
        &self,
        set: &StripeSet,
        range: ByteRange,
        left_out: ColumnSet,
    ) -> Result<(), PoolError> {
        let missing = set.geometry.data_columns().both(self.lost_columns(set));
        // Of none that is missing no parity was read; of two all was, and nothing was left out.
        let mut one = missing.iter();
        let (Some(place), None) = (one.next(), one.next()) else { return Ok(()) };
        if set.geometry.data > 1 {
            // NOTE: not more than that. Beside it nothing tells which parity is right.
            self.make_anew(set, set.geometry.column_range(range, place), left_out).await?;
        }
        Ok(())
    }

    /// Makes parity anew where it does not agree with the data, in the stripes that a range touches, but not in `kept`, ranges
    /// of each column. Durable on return. While a column of data is missing nothing tells which parity is right beside what was
    /// verified, so nothing is written.
    pub(crate) async fn make_parity_anew(
        &self,
        set: &StripeSet,
        range: ByteRange,
        kept: &[ByteRange],
    ) -> Result<(), PoolError> {
        let is_missing = !set.geometry.data_columns().both(self.lost_columns(set)).is_empty();
        if set.geometry.data == 1 || is_missing {
            return Ok(());
        }
        let all = in_columns(set.geometry, range);
        // As a rule all of it agrees.
        if matches!(self.columns.verify(set, all).await, Ok(true)) {
            return Ok(());
        }
        for of_column in all.split(set.geometry.strip_bytes.into()) {
            if !kept.iter().any(|kept| kept.overlaps(&of_column)) {
                self.make_anew(set, of_column, ColumnSet::default()).await?;
            }
        }
        Ok(())
    }

    /// The same in a range of all columns, whose data was read without some of them.
    async fn make_anew(
        &self,
        set: &StripeSet,
        of_column: ByteRange,
        left_out: ColumnSet,
    ) -> Result<(), PoolError> {
        if of_column.len == 0 {
            return Ok(());
        }
        match self.columns.verify(set, of_column).await {
            Ok(true) => return Ok(()),
            // A column that cannot be read there does not agree.
            Ok(false) | Err(StripeError::Drive(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let (data, lost) = (set.geometry.data_columns(), self.lost_columns(set));
        let parity = set.geometry.all().without(data).without(lost);
        // As much parity was read as columns of data were not. All other follows from what was read, and not from each other.
        let gone = data.both(lost.with(left_out)).len();
        let read = parity.without(left_out).iter().take(gone).map(ColumnSet::one);
        // What was left out is wrong beside the range as well: the row of which it is a part did not get there.
        let wrong =
            parity.without(read.fold(ColumnSet::default(), ColumnSet::with)).with(left_out.without(lost));
        let from = StripeSet { missing: lost.with(wrong), ..set.clone() };
        for place in wrong.iter() {
            let content = match self.columns.rebuild(&from, place, of_column).await {
                Ok(content) => content,
                // Of what lies beside the range. The next scrub makes it good, if anything leads there.
                Err(error) => {
                    tracing::warn!(%error, "a column could not be made anew: another one cannot be read");
                    continue;
                }
            };
            self.write_slab(set.columns[place], of_column.offset, vec![content.into_slice()], true).await?;
        }
        Ok(())
    }

    /// Hardens every row written before, on all drives but those that the pool can go on without.
    pub(crate) async fn flush_rows(&self) -> Result<(), PoolError> {
        let hold_data = self.needed_drives().filter(|drive| drive.label().roles.data);
        let flushes = hold_data.map(async |drive| (drive.index(), drive.flush().await));
        // All are flushed, also if one fails.
        for (drive, outcome) in join_all(flushes).await {
            if let Err(error) = outcome {
                self.do_without(drive, error.into()).await?;
            }
        }
        Ok(())
    }

    /// Hardens what was written to a drive.
    pub(crate) async fn flush_drive(&self, drive: DriveIndex) -> Result<(), PoolError> {
        Ok(self.columns.drive(drive)?.flush().await?)
    }
}
