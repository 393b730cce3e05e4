//! Reading ranges, with what cannot be read computed from the other columns.
//!
//! Invariants:
//! 1. What a missing column holds is never used, nor what the caller leaves out.
//! 2. A drive that refuses writes may have missed some that the set does not know of yet. It is
//!    read only where the range does not follow from the others.
//! 3. A column whose read fails is not read again by the same call.
//! 4. A column of a drive that is slow is read only where the range does not follow from the others. Not where
//!    a checksum said that something is wrong: what is asked for then is read as asked, however long it takes.

use crate::{
    ColumnSet, Columns, StripeError, StripeSet,
    bugs::{Bug, planted},
    gather::{Band, bands},
    geometry::UNIT_BYTES,
};
use quoin_base::ByteRange;
use quoin_world::Buf;

/// So many bytes of a mirror are read from the same copy when all its drives are equally busy.
const TURN_BYTES: u64 = 128 << 10;

/// A range of a segment's data that was read.
#[derive(Debug)]
pub struct Read {
    /// What was read, or computed from what was read.
    pub content: Buf,
    /// Columns that a drive failed to read just now, so that the content was computed without them.
    pub unread: ColumnSet,
}

/// What a read does about drives that are slow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    /// It uses other columns instead.
    ReadAround,
    /// It waits for them: it was asked to read just these columns.
    WaitFor,
}

/// The columns that one call does not read.
pub(crate) struct Lost {
    /// Not at all.
    never: ColumnSet,
    /// Only if there is no other way: their drives refuse writes.
    failed: ColumnSet,
    /// Rather not: their drives are slow.
    slow: ColumnSet,
    /// Columns that a drive failed to read.
    unread: ColumnSet,
    /// The first error of a drive.
    error: Option<StripeError>,
}

impl Lost {
    /// What is not to be read of a segment, `without` included.
    pub(crate) fn new(columns: &Columns, set: &StripeSet, without: ColumnSet, slow: Slow) -> Self {
        let none = ColumnSet::default();
        let mut lost =
            Self { never: unusable(set, without), failed: none, slow: none, unread: none, error: None };
        for (place, column) in set.columns.iter().enumerate() {
            match columns.drive(column.drive) {
                Ok(drive) if drive.is_failed() => lost.failed = lost.failed.with(ColumnSet::one(place)),
                Ok(_) if slow == Slow::ReadAround && columns.is_slow(*column) => {
                    lost.slow = lost.slow.with(ColumnSet::one(place))
                }
                Ok(_) => {}
                Err(_) => lost.never = lost.never.with(ColumnSet::one(place)),
            }
        }
        lost
    }

    /// The columns not to read, in the order in which to try: first also without those whose drives
    /// are slow or have failed.
    pub(crate) fn to_avoid(&self) -> [ColumnSet; 3] {
        let [lost, needed] = [self.lost(), self.never];
        [lost.with(self.slow), lost, needed]
    }

    /// Those that hold nothing, or whose drives have failed.
    pub(crate) fn lost(&self) -> ColumnSet {
        self.never.with(self.failed)
    }

    /// From now on a column is not read any more.
    ///
    /// # Errors
    /// The error, if it does not concern just this column.
    pub(crate) fn note(&mut self, column: usize, error: StripeError) -> Result<(), StripeError> {
        if !error.is_of_the_drive() {
            return Err(error);
        }
        self.never = self.never.with(ColumnSet::one(column));
        self.unread = self.unread.with(ColumnSet::one(column));
        self.error.get_or_insert(error);
        Ok(())
    }

    /// Columns that a drive failed to read.
    pub(crate) fn unread(&self) -> ColumnSet {
        self.unread
    }

    /// Why it cannot be read.
    pub(crate) fn into_error(self, set: &StripeSet) -> StripeError {
        self.error.unwrap_or_else(|| set.not_enough(set.geometry.all().without(self.never)))
    }
}

fn unusable(set: &StripeSet, without: ColumnSet) -> ColumnSet {
    if planted(Bug::ReadMissing) { without } else { set.missing.with(without) }
}

impl Columns {
    /// Reads a range of a segment's data. Both ends are multiples of 4096.
    ///
    /// What lies in columns that are missing, or whose drives are not there, have failed or fail
    /// now, is computed from the others. A range within one strip is one read of a drive; of a
    /// mirror, of the least busy one.
    ///
    /// # Errors
    /// The first error of a drive, or [`StripeError::NotEnoughColumns`], if the range does not
    /// follow from the columns that can be read; at once if a drive refuses the read as out of
    /// range. [`StripeError::NoSuchDrive`] if the only column is on no drive of the pool,
    /// [`StripeError::Unsupported`] for a geometry that this version does not know.
    pub async fn read(&self, set: &StripeSet, range: ByteRange) -> Result<Buf, StripeError> {
        Ok(self.read_telling(set, range).await?.content)
    }

    /// Reads a range of a segment's data as [`Columns::read`] does, and tells of the columns that
    /// could not be read.
    ///
    /// # Errors
    /// Those of [`Columns::read`].
    pub async fn read_telling(&self, set: &StripeSet, range: ByteRange) -> Result<Read, StripeError> {
        if let Some(column) = set.single() {
            let is_whole = range.is_aligned(UNIT_BYTES);
            assert!(is_whole, "{range:?} of a segment is read, which is not whole units");
            let content = self.read_column(column, range).await?;
            return Ok(Read { content, unread: ColumnSet::default() });
        }
        // Apart, so that the future of the read of a single column stays small.
        Box::pin(self.read_ways(set, range, ColumnSet::default(), Slow::ReadAround)).await
    }

    /// Reads a range of a segment's data as [`Columns::read`] does, but uses nothing that is in the
    /// columns `without`: a checksum says that it is wrong. See
    /// [`alternatives`](crate::alternatives). Drives that are slow are waited for: what the others
    /// hold may be what is wrong.
    ///
    /// # Errors
    /// Those of [`Columns::read`].
    pub async fn read_without(
        &self,
        set: &StripeSet,
        range: ByteRange,
        without: ColumnSet,
    ) -> Result<Read, StripeError> {
        self.read_ways(set, range, without, Slow::WaitFor).await
    }

    async fn read_ways(
        &self,
        set: &StripeSet,
        range: ByteRange,
        without: ColumnSet,
        slow: Slow,
    ) -> Result<Read, StripeError> {
        assert!(range.is_aligned(UNIT_BYTES), "{range:?} of a segment is read, which is not whole units");
        set.check()?;
        let error = match self.direct_place(set, range, without, slow) {
            Some(place) => match self.read_direct(set, range, place, slow).await {
                Ok(read) => return Ok(read),
                Err(error) => Some((place, error)),
            },
            None => None,
        };
        Box::pin(self.read_other_way(set, range, Lost::new(self, set, without, slow), error)).await
    }

    /// The one column that a range can be read from as it is, if that is the best way.
    fn direct_place(
        &self,
        set: &StripeSet,
        range: ByteRange,
        without: ColumnSet,
        slow: Slow,
    ) -> Option<usize> {
        if set.geometry.data == 1 {
            return self.copy_to_read(set, &Lost::new(self, set, without, slow), range.offset);
        }
        let place = set.geometry.column_of(range.offset);
        let column = set.columns[place];
        let is_direct = set.geometry.is_one_strip(range)
            && !unusable(set, without).has(place)
            && !self.is_lost(column)
            && (slow == Slow::WaitFor || !self.is_slow(column));
        is_direct.then_some(place)
    }

    /// Reads a range from other columns than its own, or from several. `error`: that column has
    /// failed already.
    pub(crate) async fn read_other_way(
        &self,
        set: &StripeSet,
        range: ByteRange,
        mut lost: Lost,
        error: Option<(usize, StripeError)>,
    ) -> Result<Read, StripeError> {
        if let Some((place, error)) = error {
            lost.note(place, error)?;
        }
        match set.geometry.data {
            1 => self.read_copies(set, range, lost).await,
            _ => self.read_strips(set, range, lost).await,
        }
    }

    /// Reads a range of a mirror from one copy after the other until one can be read.
    pub(crate) async fn read_copy(
        &self,
        set: &StripeSet,
        range: ByteRange,
        without: ColumnSet,
    ) -> Result<Read, StripeError> {
        self.read_copies(set, range, Lost::new(self, set, without, Slow::ReadAround)).await
    }

    async fn read_copies(
        &self,
        set: &StripeSet,
        range: ByteRange,
        mut lost: Lost,
    ) -> Result<Read, StripeError> {
        loop {
            let Some(place) = self.copy_to_read(set, &lost, range.offset) else {
                return Err(lost.into_error(set));
            };
            match self.read_column(set.columns[place], range).await {
                Ok(content) => return Ok(Read { content, unread: lost.unread }),
                Err(error) => lost.note(place, error)?,
            }
        }
    }

    /// The copy to read next, if there is one.
    fn copy_to_read(&self, set: &StripeSet, lost: &Lost, offset: u64) -> Option<usize> {
        let copies = lost.to_avoid().map(|avoided| set.geometry.all().without(avoided));
        let copies = copies.into_iter().find(|copies| !copies.is_empty()).unwrap_or_default();
        self.least_busy(set, copies, offset)
    }

    /// The copy to read. Among equally busy ones it is another one after every [`TURN_BYTES`].
    fn least_busy(&self, set: &StripeSet, copies: ColumnSet, offset: u64) -> Option<usize> {
        let turn = (offset / TURN_BYTES) as usize % copies.len().max(1);
        let from_turn_on = copies.iter().cycle().skip(turn).take(copies.len());
        from_turn_on.min_by_key(|place| self.reads_in_flight(set.columns[*place]))
    }

    /// Reads a range that lies in several strips, or needs other columns than its own.
    async fn read_strips(&self, set: &StripeSet, range: ByteRange, lost: Lost) -> Result<Read, StripeError> {
        let geometry = set.geometry;
        let bands = bands(geometry, range);
        let gathered = self.gather(set, &bands, lost).await?;
        let mut read = Buf::unfilled(range.len as usize);
        for Band { range: rows, wanted } in &bands {
            for column in wanted.iter() {
                for piece in rows.split(geometry.strip_bytes.into()) {
                    let at = (geometry.data_offset(column, piece.offset) - range.offset) as usize;
                    gathered.write(column, piece, &mut read.as_mut_slice()[at..][..piece.len as usize]);
                }
            }
        }
        Ok(Read { content: read, unread: gathered.unread() })
    }
}
