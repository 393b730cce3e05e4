//! Segments across drives.
//!
//! A segment has `data + parity` columns, each a slab of its own drive. It is written row by row: a row is
//! `data` strips of equal length and the parity over them. This layer knows where each byte of a segment's
//! data lies and reads and writes it there; which drives a segment takes is the pool's choice.
//!
//! Promises: a byte offset into a segment's data means the same place for the life of the segment; a write
//! that returned has reached every column it concerns (not yet hardened: see [`Columns::flush`]).
//! Layout so far: one data column, no parity. A row of it may be shorter than the full row; with parity it
//! will not. Assumes of drives: what [`quoin_drive::Drive`] promises.

use futures_util::future::join_all;
use quoin_base::{ByteRange, DriveIndex};
use quoin_drive::{Drive, DriveError, MAX_MEMBERS};
use quoin_world::{
    Buf, Slice,
    atomic::{AtomicUsize, Ordering},
};
use std::sync::{Arc, OnceLock};
use thiserror::Error;

/// What ranges of a segment begin and end at multiples of.
const UNIT_BYTES: u64 = 4096;

/// How a segment is spread: fixed when it is opened, recorded with it.
///
/// With one data column every parity column is a copy of it: a mirror. With more, the first parity column is the
/// XOR of the data (RAID-5), and a second one makes it RAID-6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Columns that hold data.
    pub data: u8,
    /// Columns that hold parity, or copies.
    pub parity: u8,
    /// Bytes that follow each other in one column before the next column goes on; a power of two from 4096 on.
    /// Without meaning with one data column.
    pub strip_bytes: u32,
    /// The most data bytes of a row; a multiple of [`Geometry::stripe_bytes`].
    pub row_bytes: u32,
}

impl Geometry {
    /// One column, no redundancy.
    pub fn none(row_bytes: u32) -> Self {
        Self::mirror(0, row_bytes)
    }

    /// One column and so many copies of it.
    pub fn mirror(copies: u8, row_bytes: u32) -> Self {
        Self { data: 1, parity: copies, strip_bytes: UNIT_BYTES as u32, row_bytes }
    }

    /// Whether a segment can be spread so.
    pub fn is_possible(&self) -> bool {
        self.data > 0
            && self.columns() <= ColumnSet::MOST
            && (self.data == 1 || self.parity <= 2)
            && self.strip_bytes.is_power_of_two()
            && u64::from(self.strip_bytes) >= UNIT_BYTES
            && u64::from(self.row_bytes).is_multiple_of(self.stripe_bytes())
    }

    /// Columns in all.
    pub fn columns(&self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }

    /// Data bytes of one stripe: what rows begin and end at multiples of.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.data) * u64::from(self.strip_bytes)
    }

    /// Data bytes of a segment whose columns are slabs of `slab_bytes`.
    pub fn segment_bytes(&self, slab_bytes: u32) -> u64 {
        u64::from(slab_bytes) * u64::from(self.data)
    }
}

/// One column of a segment: a slab of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Column {
    /// The drive.
    pub drive: DriveIndex,
    /// Which of its slabs.
    pub slab: u32,
}

/// Some of the columns of a segment, by their places in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ColumnSet(pub u64);

impl ColumnSet {
    /// The most columns that a segment may have.
    pub const MOST: usize = 64;

    /// Just this one.
    pub fn one(column: usize) -> Self {
        Self(1 << column)
    }

    /// Those of either.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of it that are not in the other.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is in it.
    pub fn has(self, column: usize) -> bool {
        self.0 >> column & 1 == 1
    }

    /// The places of the columns, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::MOST).filter(move |column| self.has(*column))
    }

    /// Whether a segment of this geometry has all of them.
    pub fn is_of(self, geometry: Geometry) -> bool {
        self.iter().all(|column| column < geometry.columns())
    }
}

/// Where a segment lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeSet {
    /// How it is spread.
    pub geometry: Geometry,
    /// Its columns: first those of data, in order, then those of parity.
    pub columns: Arc<[Column]>,
    /// Those that do not hold what they should: a rebuild is to fill them.
    pub missing: ColumnSet,
}

impl StripeSet {
    /// All columns hold what they should.
    pub fn whole(geometry: Geometry, columns: Arc<[Column]>) -> Self {
        Self { geometry, columns, missing: ColumnSet::default() }
    }
}

/// Why a stripe operation failed.
#[derive(Debug, Error)]
pub enum StripeError {
    /// A drive failed it.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The pool has no drive of this index.
    #[error("the pool has no drive {0}")]
    NoSuchDrive(DriveIndex),
    /// The geometry is one this version cannot read.
    #[error("layout {data}+{parity} is not supported by this version")]
    Unsupported {
        /// Data columns.
        data: u8,
        /// Parity columns.
        parity: u8,
    },
}

/// The drives of a pool, to reach the columns of its segments. Drives may be added while other threads read: looking
/// a drive up takes no lock.
#[derive(Clone)]
pub struct Columns(Arc<Places>);

struct Places {
    /// By [`DriveIndex`]. A number is never used again, so a place is filled once.
    all: Box<[OnceLock<Arc<Drive>>]>,
    /// Places from here on are empty.
    end: AtomicUsize,
}

impl Columns {
    /// Over these drives.
    pub fn new(drives: Vec<Arc<Drive>>) -> Self {
        let all = (0..MAX_MEMBERS).map(|_| OnceLock::new()).collect();
        let columns = Self(Arc::new(Places { all, end: AtomicUsize::new(0) }));
        drives.into_iter().for_each(|drive| columns.add(drive));
        columns
    }

    /// Adds a drive.
    ///
    /// # Panics
    /// There was a drive with its number.
    pub fn add(&self, drive: Arc<Drive>) {
        let place = usize::from(drive.index().0);
        let is_new = self.0.all[place].set(drive).is_ok();
        assert!(is_new, "a number belongs to one drive");
        self.0.end.fetch_max(place + 1, Ordering::Release);
    }

    /// The drives, in the order of their numbers.
    pub fn drives(&self) -> impl Iterator<Item = &Arc<Drive>> {
        self.0.all[..self.0.end.load(Ordering::Acquire)].iter().filter_map(OnceLock::get)
    }

    /// The drive of this index.
    ///
    /// # Errors
    /// [`StripeError::NoSuchDrive`] if the pool has no drive with this number.
    pub fn drive(&self, index: DriveIndex) -> Result<&Arc<Drive>, StripeError> {
        let place = self.0.all.get(usize::from(index.0));
        place.and_then(OnceLock::get).ok_or(StripeError::NoSuchDrive(index))
    }

    /// Reads a range of a segment's data. Both ends are multiples of 4096.
    ///
    /// # Errors
    /// [`StripeError::Unsupported`] for a geometry of several columns, [`StripeError::NoSuchDrive`] for a
    /// column on no drive of the pool, and [`StripeError::Drive`] if the drive refuses or fails the read.
    pub async fn read(&self, set: &StripeSet, range: ByteRange) -> Result<Buf, StripeError> {
        assert!(range.is_aligned(UNIT_BYTES), "{range:?} of a segment is read, which is not whole units");
        let column = single(set)?;
        Ok(self.drive(column.drive)?.read_slab(column.slab, range.offset, range.len as usize).await?)
    }

    /// Writes one row, or with a single column a part of one, from byte `offset` of the segment's data on. `durable`: it is
    /// hardened on return.
    ///
    /// # Errors
    /// Those of [`Columns::read`]. After [`StripeError::Drive`] the range may hold old data, new data or a
    /// mixture.
    pub async fn write_row(
        &self,
        set: &StripeSet,
        offset: u64,
        data: Vec<Slice>,
        durable: bool,
    ) -> Result<(), StripeError> {
        // The drive refuses what is not within the slab or not whole blocks of its own.
        let len = data.iter().map(|slice| slice.len() as u64).sum();
        let range = ByteRange::new(offset, len);
        assert!(range.is_aligned(UNIT_BYTES), "{range:?} of a segment is written, which is not whole units");
        let column = single(set)?;
        Ok(self.drive(column.drive)?.write_slab(column.slab, offset, data, durable).await?)
    }

    /// The largest block of the drives that hold these columns: what is written to them begins in memory, and
    /// is long, a multiple of it.
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
    /// [`StripeError::Drive`] with the first error of a drive's flush; the others are flushed all the same.
    pub async fn flush(&self) -> Result<(), StripeError> {
        // All are flushed, also if one fails.
        let flushes = self.drives().filter(|d| d.label().roles.data).map(|d| d.flush());
        join_all(flushes).await.into_iter().collect::<Result<(), _>>().map_err(StripeError::from)
    }
}

fn single(set: &StripeSet) -> Result<Column, StripeError> {
    let Geometry { data, parity, .. } = set.geometry;
    match (data, parity, &*set.columns) {
        (1, 0, [column]) => Ok(*column),
        _ => Err(StripeError::Unsupported { data, parity }),
    }
}
