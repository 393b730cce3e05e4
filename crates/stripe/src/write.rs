//! Writing rows.
//!
//! Invariants:
//! 1. A row is whole stripes, so its parity depends on nothing that was there before.
//! 2. All columns are submitted before any is waited for, and all have ended when a write returns:
//!    a drive takes a write that nobody waits for as its failure.
//! 3. A write that succeeds has reached all columns but at most as many as there are of parity, and
//!    names those it did not reach that were not known to be missing.

use crate::{
    Column, Columns, Geometry, StripeError, StripeSet,
    bugs::{Bug, planted},
    parity::parity_of,
};
use futures_util::{
    FutureExt,
    future::{Either, join_all, ready},
};
use quoin_base::ByteRange;
use quoin_drive::DriveError;
use quoin_world::Slice;
use std::future::Future;

/// What became of a row that was written.
#[derive(Debug, Default)]
pub struct Written {
    /// The columns, by their places, that it did not reach and that were not missing before, with
    /// why. From now on they do not hold what they should.
    pub failed: Vec<(usize, StripeError)>,
}

impl Columns {
    /// Writes one row from byte `offset` of the segment's data on; with one data column, it may be
    /// a part of a row. `durable`: it is hardened on return.
    ///
    /// Columns that are missing are not written. As many columns as there are of parity may be
    /// missing or fail: the row can be read, and the caller notes those that failed now.
    ///
    /// # Errors
    /// [`StripeError::Drive`] with [`DriveError::NoRoom`] if a file system below is full: the row
    /// is to be written again. With the error of a fence, or of anything else that is not a drive's
    /// failure, if a drive refuses it so. Otherwise the first error of a drive, or
    /// [`StripeError::NotEnoughColumns`], if too many columns are missing or failed, and
    /// [`StripeError::Unsupported`] for a geometry that this version does not know. After an error
    /// the range may hold old data, new data or a mixture.
    ///
    /// # Panics
    /// It is not whole stripes, or with one data column not whole units of 4096 bytes.
    pub async fn write_row(
        &self,
        set: &StripeSet,
        offset: u64,
        data: Vec<Slice>,
        durable: bool,
    ) -> Result<Written, StripeError> {
        let range = ByteRange::new(offset, data.iter().map(|slice| slice.len() as u64).sum());
        let is_whole = range.is_aligned(set.geometry.row_unit_bytes());
        assert!(is_whole, "{range:?} of a segment is written, which is not whole stripes");
        if let Some(column) = set.single() {
            self.drive(column.drive)?.write_slab(column.slab, offset, data, durable).await?;
            return Ok(Written::default());
        }
        // Apart, so that the future of the write of a single column stays small.
        Box::pin(self.write_columns(set, range, data, durable)).await
    }

    async fn write_columns(
        &self,
        set: &StripeSet,
        range: ByteRange,
        data: Vec<Slice>,
        durable: bool,
    ) -> Result<Written, StripeError> {
        set.check()?;
        let geometry = set.geometry;
        let present = geometry.all().without(set.missing);
        if present.len() < usize::from(geometry.data) {
            return Err(set.not_enough(present));
        }
        // Data columns and those of parity hold a row at the same place.
        let at = geometry.column_range(range, 0).offset;
        let contents = contents(geometry, data).into_iter().enumerate();
        let writes: Vec<_> = contents
            .filter(|(place, _)| present.has(*place))
            .map(|(place, content)| {
                let write = self.write_column(set.columns[place], at, content, durable);
                async move { (place, write.await) }
            })
            .collect();
        let outcomes = join_all(writes).await;
        let failed = outcomes.into_iter().filter_map(|(place, outcome)| Some((place, outcome.err()?)));
        written(set, failed.collect())
    }

    /// Begins to write to a column: submitted by the call itself.
    pub(crate) fn write_column(
        &self,
        column: Column,
        offset: u64,
        data: Vec<Slice>,
        durable: bool,
    ) -> impl Future<Output = Result<(), StripeError>> + Send + use<> {
        match self.drive(column.drive) {
            Ok(drive) => {
                let write = drive.write_slab(column.slab, offset, data, durable);
                Either::Left(write.map(|outcome| Ok(outcome?)))
            }
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}

/// What a write comes to of which these columns failed.
fn written(set: &StripeSet, mut failed: Vec<(usize, StripeError)>) -> Result<Written, StripeError> {
    let is_no_room = |error: &StripeError| matches!(error, StripeError::Drive(DriveError::NoRoom { .. }));
    let first = |failed: &[(usize, StripeError)], is: &dyn Fn(&StripeError) -> bool| {
        failed.iter().position(|(_, error)| is(error))
    };
    // A fence that one drive knows of already holds for all: such an error says nothing of the
    // column.
    if let Some(at) = first(&failed, &|error| !error.is_of_the_drive() && !is_no_room(error)) {
        return Err(failed.swap_remove(at).1);
    }
    let lost = failed.iter().filter(|(_, error)| !is_no_room(error)).count() + set.missing.len();
    if lost > usize::from(set.geometry.parity)
        && let Some(at) = first(&failed, &StripeError::is_of_the_drive)
    {
        return Err(failed.swap_remove(at).1);
    }
    if let Some(at) = first(&failed, &is_no_room) {
        return Err(failed.swap_remove(at).1);
    }
    if planted(Bug::HideFailedColumns) {
        failed.clear();
    }
    Ok(Written { failed })
}

/// What each column is to hold of a row.
fn contents(geometry: Geometry, data: Vec<Slice>) -> Vec<Vec<Slice>> {
    if geometry.data == 1 {
        return vec![data; geometry.columns()];
    }
    let mut columns = strips(geometry, &data);
    if geometry.parity > 0 {
        let parity = parity_of(geometry, &columns);
        columns.extend(parity.into_iter().map(|parity| vec![parity.into_slice()]));
    }
    columns
}

/// What each data column holds of whole stripes: pieces of the slices, without a copy.
fn strips(geometry: Geometry, data: &[Slice]) -> Vec<Vec<Slice>> {
    let strip = geometry.strip_bytes as usize;
    let mut columns = vec![Vec::<Slice>::new(); geometry.data.into()];
    let mut done = 0;
    for slice in data {
        let mut taken = 0;
        while taken < slice.len() {
            let len = (slice.len() - taken).min(strip - done % strip);
            let piece = slice.slice(taken..taken + len);
            (taken, done) = (taken + piece.len(), done + piece.len());
            let column = &mut columns[(done - 1) / strip % usize::from(geometry.data)];
            if !column.last_mut().is_some_and(|last| last.extend(&piece)) {
                column.push(piece);
            }
        }
    }
    columns
}
