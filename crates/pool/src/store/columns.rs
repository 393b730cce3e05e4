//! Columns of segments, one by one: reading without some of them, writing again what some of them lack, and hardening.

use super::Store;
use crate::error::PoolError;
use futures_util::future::join_all;
use quoin_base::{ByteRange, DriveIndex};
use quoin_drive::Member;
use quoin_stripe::{ColumnSet, Read, StripeError, StripeSet, alternatives};
use quoin_world::{Buf, Slice as Bytes};

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

    /// Makes parity anew where it does not agree with the data, in the stripes that a range touches. Durable on return.
    /// `left_out`: the columns without which the data was read and verified, if they are known.
    pub(crate) async fn make_parity_anew(
        &self,
        set: &StripeSet,
        range: ByteRange,
        left_out: Option<ColumnSet>,
    ) -> Result<(), PoolError> {
        let geometry = set.geometry;
        if geometry.data == 1 || geometry.parity == 0 {
            return Ok(());
        }
        let lost = self.lost_columns(set);
        let stripe = geometry.stripe_bytes();
        let (first, end) = (range.offset / stripe, range.end().div_ceil(stripe));
        let strip = u64::from(geometry.strip_bytes);
        let of_column = ByteRange::from(first * strip..end * strip);
        match self.columns.verify(set, of_column).await {
            Ok(true) => return Ok(()),
            // A column that cannot be read there does not agree.
            Ok(false) | Err(StripeError::Drive(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let parity = geometry.all().without(geometry.data_columns()).without(lost);
        // As long as all data is there, all parity follows from it.
        let (mut from, mut wrong) = (set.clone(), parity);
        if !geometry.data_columns().both(lost).is_empty() {
            // NOTE: what is missing follows from the parity with which it was read, and from no other.
            let Some(left_out) = left_out else { return Ok(()) };
            let gone = lost.with(left_out);
            let followed = geometry.data_columns().both(gone).len();
            let used = parity.without(left_out).iter().take(followed).map(ColumnSet::one);
            wrong = parity.without(used.fold(ColumnSet::default(), ColumnSet::with));
            from.missing = gone.with(wrong);
        }
        for place in wrong.iter() {
            let parity = match self.columns.rebuild(&from, place, of_column).await {
                Ok(parity) => parity,
                // Of what lies beside the range. The next scrub makes it good, if anything leads there.
                Err(error) => {
                    tracing::warn!(%error, "parity could not be made anew: a column cannot be read");
                    continue;
                }
            };
            self.write_slab(set.columns[place], of_column.offset, vec![parity.into_slice()], true).await?;
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
