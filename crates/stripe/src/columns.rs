//! The drives of a pool, as the columns of its segments.

use crate::{Column, StripeError, StripeSet, hedging::Hedge};
use futures_util::{
    FutureExt,
    future::{Either, join_all, ready},
};
use quoin_base::{ByteRange, DriveIndex};
use quoin_drive::{Drive, MAX_MEMBERS};
use quoin_world::{
    Buf,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::{
    future::Future,
    sync::{Arc, OnceLock},
};

/// The drives of a pool, to reach the columns of its segments. Drives may be added while other
/// threads read: looking a drive up takes no lock.
#[derive(Clone)]
pub struct Columns(Arc<Places>);

struct Places {
    /// By [`DriveIndex`]. A number is never used again, so a place is filled once.
    all: Box<[Place]>,
    /// Places from here on are empty.
    end: AtomicUsize,
    hedge: Hedge,
}

/// On a cache line of its own: threads that read different drives do not pass lines to and fro.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Place {
    drive: OnceLock<Arc<Drive>>,
    /// Reads of segments in flight.
    reads: AtomicUsize,
    /// Reads that were late lately.
    pub(crate) late: AtomicUsize,
    /// It is read only where there is no other way.
    pub(crate) slow: AtomicBool,
}

/// A read in flight.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    fn begin(reads: &'a AtomicUsize) -> Self {
        reads.fetch_add(1, Ordering::Relaxed);
        Self(reads)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Columns {
    /// Over these drives.
    pub fn new(drives: Vec<Arc<Drive>>) -> Self {
        let all = (0..MAX_MEMBERS).map(|_| Place::default()).collect();
        let columns = Self(Arc::new(Places { all, end: AtomicUsize::new(0), hedge: Hedge::default() }));
        drives.into_iter().for_each(|drive| columns.add(drive));
        columns
    }

    /// Adds a drive.
    ///
    /// # Panics
    /// There was a drive with its number.
    pub fn add(&self, drive: Arc<Drive>) {
        let place = usize::from(drive.index().0);
        let is_new = self.0.all[place].drive.set(drive).is_ok();
        assert!(is_new, "a number belongs to one drive");
        self.0.end.fetch_max(place + 1, Ordering::Release);
    }

    /// The drives, in the order of their numbers.
    pub fn drives(&self) -> impl Iterator<Item = &Arc<Drive>> {
        let places = &self.0.all[..self.0.end.load(Ordering::Acquire)];
        places.iter().filter_map(|place| place.drive.get())
    }

    /// The drive of this index.
    ///
    /// # Errors
    /// [`StripeError::NoSuchDrive`] if the pool has no drive with this number.
    pub fn drive(&self, index: DriveIndex) -> Result<&Arc<Drive>, StripeError> {
        let place = self.0.all.get(usize::from(index.0));
        place.and_then(|place| place.drive.get()).ok_or(StripeError::NoSuchDrive(index))
    }

    /// Whether the drive of a column is not there or has failed.
    pub fn is_lost(&self, column: Column) -> bool {
        self.drive(column.drive).map_or(true, |drive| drive.is_failed())
    }

    /// How many more of its columns a segment can lose now without loss of data.
    pub fn tolerates(&self, set: &StripeSet) -> usize {
        let is_gone = |place: &usize| set.missing.has(*place) || self.is_lost(set.columns[*place]);
        let gone = (0..set.columns.len()).filter(is_gone).count();
        usize::from(set.geometry.parity).saturating_sub(gone)
    }

    /// How many reads of segments are in flight on the drive of a column.
    pub(crate) fn reads_in_flight(&self, column: Column) -> usize {
        let place = self.0.all.get(usize::from(column.drive.0));
        place.map_or(0, |place| place.reads.load(Ordering::Relaxed))
    }

    /// When reads are late, and what was done about it.
    pub(crate) fn hedge(&self) -> &Hedge {
        &self.0.hedge
    }

    /// How fast a drive answers.
    pub(crate) fn pace_of(&self, drive: DriveIndex) -> Option<&Place> {
        self.0.all.get(usize::from(drive.0))
    }

    /// Forgets which reads were late.
    pub(crate) fn forget_late(&self) {
        let places = &self.0.all[..self.0.end.load(Ordering::Acquire)];
        places.iter().for_each(|place| place.late.store(0, Ordering::Relaxed));
    }

    /// The largest block of the drives that hold these columns: what is written to them begins in
    /// memory, and is long, a multiple of it.
    ///
    /// # Errors
    /// [`StripeError::NoSuchDrive`] if a column is on no drive of the pool.
    pub fn block_bytes(&self, columns: &[Column]) -> Result<u32, StripeError> {
        let blocks = columns.iter().map(|column| Ok(self.drive(column.drive)?.block_bytes()));
        blocks.collect::<Result<Vec<_>, StripeError>>().map(|blocks| blocks.into_iter().max().unwrap_or(512))
    }

    /// Hardens every row written before.
    ///
    /// # Errors
    /// [`StripeError::Drive`] with the first error of a drive's flush; the others are flushed all
    /// the same.
    pub async fn flush(&self) -> Result<(), StripeError> {
        // All are flushed, also if one fails.
        let flushes = self.drives().filter(|d| d.label().roles.data).map(|d| d.flush());
        join_all(flushes).await.into_iter().collect::<Result<(), _>>().map_err(StripeError::from)
    }

    /// Begins to read a range of a column: submitted by the call itself.
    pub(crate) fn read_column(
        &self,
        column: Column,
        range: ByteRange,
    ) -> impl Future<Output = Result<Buf, StripeError>> + Send {
        // Not async blocks, which would hold the future of the drive twice.
        match self.drive(column.drive) {
            Ok(drive) => {
                let reading = Reading::begin(&self.0.all[usize::from(column.drive.0)].reads);
                let read = drive.read_slab(column.slab, range.offset, range.len as usize);
                Either::Left(read.map(move |outcome| {
                    drop(reading);
                    Ok(outcome?)
                }))
            }
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}
