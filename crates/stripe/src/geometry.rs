//! Where each byte of a segment lies.
//!
//! ```text
//! 3+1 columns, strips numbered in the order of the segment's data; P is the parity of its stripe
//!
//! column      0    1    2    3
//! stripe 0    0    1    2    P
//! stripe 1    3    4    5    P
//! ```

use crate::StripeError;
use quoin_base::{ByteRange, DriveIndex};
use std::sync::Arc;

/// What ranges of a segment begin and end at multiples of.
pub(crate) const UNIT_BYTES: u64 = 4096;

/// The most copies of a mirror's column.
const MOST_COPIES: u8 = 3;

/// How a segment is spread: fixed when it is opened, recorded with it.
///
/// With one data column every parity column is a copy of it: a mirror. With more, the first parity
/// column is the XOR of the data (RAID-5), and a second one makes it RAID-6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Columns that hold data.
    pub data: u8,
    /// Columns that hold parity, or copies.
    pub parity: u8,
    /// Bytes that follow each other in one column before the next column goes on; a power of two
    /// from 4096 on. Without meaning with one data column.
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
            && self.parity <= if self.data == 1 { MOST_COPIES } else { 2 }
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

    /// What rows begin and end at multiples of: whole stripes, so that parity is never changed in
    /// part. A segment with one data column has no stripes, and a row of it is whole units.
    pub fn row_unit_bytes(&self) -> u64 {
        if self.data == 1 { UNIT_BYTES } else { self.stripe_bytes() }
    }

    /// All its columns.
    pub fn all(&self) -> ColumnSet {
        ColumnSet::first(self.columns())
    }

    /// The columns of data, without those of parity or copies.
    pub fn data_columns(&self) -> ColumnSet {
        ColumnSet::first(self.data.into())
    }

    /// The bytes of a data column that hold what lies in it of a range of the segment's data: they
    /// follow each other.
    pub fn column_range(&self, range: ByteRange, column: usize) -> ByteRange {
        let start = self.column_bytes_before(range.offset, column);
        ByteRange::new(start, self.column_bytes_before(range.end(), column) - start)
    }

    /// How many of the segment's first `offset` bytes lie in a data column.
    fn column_bytes_before(&self, offset: u64, column: usize) -> u64 {
        if self.data == 1 {
            return offset;
        }
        let strip = u64::from(self.strip_bytes);
        let (stripes, within) = (offset / self.stripe_bytes(), offset % self.stripe_bytes());
        stripes * strip + within.saturating_sub(column as u64 * strip).min(strip)
    }

    /// Where in the segment's data a byte of a data column is.
    pub(crate) fn data_offset(&self, column: usize, at: u64) -> u64 {
        if self.data == 1 {
            return at;
        }
        let strip = u64::from(self.strip_bytes);
        (at / strip * u64::from(self.data) + column as u64) * strip + at % strip
    }

    /// The data column of a byte of the segment's data.
    pub(crate) fn column_of(&self, offset: u64) -> usize {
        if self.data == 1 {
            return 0;
        }
        (offset / u64::from(self.strip_bytes) % u64::from(self.data)) as usize
    }

    /// Whether a range lies within one strip.
    pub(crate) fn is_one_strip(&self, range: ByteRange) -> bool {
        let strip = u64::from(self.strip_bytes);
        self.data == 1 || range.is_empty() || range.offset / strip == (range.end() - 1) / strip
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

    /// The first `count` columns.
    pub fn first(count: usize) -> Self {
        assert!(count <= Self::MOST, "a segment has {} columns at most, not {count}", Self::MOST);
        Self(u64::MAX.checked_shr((Self::MOST - count) as u32).unwrap_or(0))
    }

    /// Those that are in both.
    pub fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The places of the columns, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let next = (rest != 0).then(|| rest.trailing_zeros() as usize);
            rest &= rest.wrapping_sub(1);
            next
        })
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

    /// Its only column, if it has no other and that one holds what it should.
    pub(crate) fn single(&self) -> Option<Column> {
        match (self.geometry.data, self.geometry.parity, &*self.columns) {
            (1, 0, [column]) if self.missing.is_empty() => Some(*column),
            _ => None,
        }
    }

    /// The error of a segment of which only these columns can be reached.
    pub(crate) fn not_enough(&self, present: ColumnSet) -> StripeError {
        StripeError::NotEnoughColumns { have: present.len(), need: self.geometry.data.into() }
    }

    /// Whether it is what this version reads and writes, with a column for each place.
    ///
    /// # Errors
    /// [`StripeError::Unsupported`] if it is not.
    pub(crate) fn check(&self) -> Result<(), StripeError> {
        let Geometry { data, parity, .. } = self.geometry;
        let fits = self.geometry.columns() == self.columns.len() && self.missing.is_of(self.geometry);
        (self.geometry.is_possible() && fits).then_some(()).ok_or(StripeError::Unsupported { data, parity })
    }
}
