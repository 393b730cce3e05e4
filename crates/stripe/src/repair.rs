//! Whole columns: computing what one should hold, comparing, and writing again what was found
//! wrong.

use crate::{
    ColumnSet, Columns, StripeError, StripeSet,
    bugs::{Bug, planted},
    gather::Band,
    geometry::UNIT_BYTES,
    parity::{recipe, write_sum},
    read::{Lost, Slow},
};
use futures_util::future::join_all;
use quoin_base::ByteRange;
use quoin_world::{Buf, Slice};

impl Columns {
    /// Writes the parts of a range of a segment's data that lie in these columns again, durably;
    /// `data` is the content of the whole range. Of a mirror, the columns are the copies to write.
    /// Columns of parity and those that are missing are passed over.
    ///
    /// # Errors
    /// The first error of a drive; the other columns are written all the same.
    /// [`StripeError::NoSuchDrive`] if a column is on no drive of the pool,
    /// [`StripeError::Unsupported`] for a geometry that this version does not know.
    ///
    /// # Panics
    /// The range is not whole units of 4096 bytes, or `data` not as long as it.
    pub async fn rewrite(
        &self,
        set: &StripeSet,
        range: ByteRange,
        columns: ColumnSet,
        data: &Slice,
    ) -> Result<(), StripeError> {
        assert!(range.is_aligned(UNIT_BYTES), "{range:?} of a segment is written, which is not whole units");
        assert_eq!(data.len() as u64, range.len, "what is written again is as long as its range");
        set.check()?;
        let geometry = set.geometry;
        let candidates = if geometry.data == 1 { geometry.all() } else { geometry.data_columns() };
        let writes = columns.both(candidates).without(set.missing).iter().filter_map(|place| {
            let part = geometry.column_range(range, place);
            let content = match geometry.data {
                1 => vec![data.clone()],
                _ => {
                    let pieces = part.split(geometry.strip_bytes.into());
                    let content = |piece: ByteRange| {
                        let from = (geometry.data_offset(place, piece.offset) - range.offset) as usize;
                        data.slice(from..from + piece.len as usize)
                    };
                    pieces.map(content).collect()
                }
            };
            let is_concerned = !part.is_empty();
            let target =
                if planted(Bug::RewriteNextColumn) { (place + 1) % set.columns.len() } else { place };
            is_concerned.then(|| self.write_column(set.columns[target], part.offset, content, true))
        });
        // NOTE: all have ended before an error is returned.
        let outcomes = join_all(writes.collect::<Vec<_>>()).await;
        outcomes.into_iter().collect()
    }

    /// Computes what a column, of data or parity, should hold in a range of it, from the other
    /// columns.
    ///
    /// # Errors
    /// Those of [`Columns::read`].
    pub async fn rebuild(
        &self,
        set: &StripeSet,
        column: usize,
        column_range: ByteRange,
    ) -> Result<Buf, StripeError> {
        let is_whole = column_range.is_aligned(UNIT_BYTES);
        assert!(is_whole, "{column_range:?} of a column is rebuilt, which is not whole units");
        set.check()?;
        let wanted = ColumnSet::one(column);
        assert!(
            wanted.is_of(set.geometry),
            "a segment of {} columns has no column {column}",
            set.columns.len()
        );
        if set.geometry.data == 1 {
            return Ok(self.read_copy(set, column_range, wanted).await?.content);
        }
        let bands = [Band { range: column_range, wanted }];
        let gathered = self.gather(set, &bands, Lost::new(self, set, wanted, Slow::ReadAround)).await?;
        let mut rebuilt = Buf::unfilled(column_range.len as usize);
        gathered.write(column, column_range, rebuilt.as_mut_slice());
        Ok(rebuilt)
    }

    /// Writes what a column should hold in a range of it, durably: parity that was computed again, or
    /// a copy.
    ///
    /// # Errors
    /// Those of the drive; [`StripeError::NoSuchDrive`] if the column is on no drive of the pool.
    ///
    /// # Panics
    /// `data` is not whole units of 4096 bytes, or the segment has no such column.
    pub async fn restore(
        &self,
        set: &StripeSet,
        column: usize,
        offset: u64,
        data: Slice,
    ) -> Result<(), StripeError> {
        let is_whole = ByteRange::new(offset, data.len() as u64).is_aligned(UNIT_BYTES);
        assert!(is_whole, "{} bytes from {offset} of a column are not whole units", data.len());
        self.write_column(set.columns[column], offset, vec![data], true).await
    }

    /// Whether parity, or the copies, agree with the data in this range of all columns. Columns
    /// that are missing and those whose drives are not there or have failed are left out; what
    /// remains is compared as far as it can be.
    ///
    /// # Errors
    /// The first error of a drive that is read, [`StripeError::Unsupported`] for a geometry that
    /// this version does not know.
    pub async fn verify(&self, set: &StripeSet, column_range: ByteRange) -> Result<bool, StripeError> {
        let is_whole = column_range.is_aligned(UNIT_BYTES);
        assert!(is_whole, "{column_range:?} of a column is verified, which is not whole units");
        set.check()?;
        let geometry = set.geometry;
        let lost = Lost::new(self, set, ColumnSet::default(), Slow::WaitFor).lost();
        let present = geometry.all().without(lost);
        // How each column of parity follows from the others, if it does. Of a mirror those are the
        // copies.
        let checks =
            geometry.all().without(geometry.data_columns()).both(present).iter().filter_map(|parity| {
                Some((parity, recipe(geometry, parity, lost.with(ColumnSet::one(parity)))?))
            });
        let checks: Vec<_> = checks.collect();
        if checks.is_empty() {
            return Ok(true);
        }
        let parts = present.iter().map(|place| (place, column_range)).collect();
        let mut contents: Vec<_> = (0..geometry.columns()).map(|_| Buf::default()).collect();
        for (place, _, outcome) in self.read_parts(&set.columns, parts).await {
            contents[place] = outcome?;
        }
        let mut computed = Buf::unfilled(column_range.len as usize);
        Ok(checks.into_iter().all(|(parity, recipe)| match recipe[..] {
            [(copy, 1)] => contents[parity][..] == contents[copy][..],
            _ => {
                let terms = recipe.iter().map(|(source, factor)| (&contents[*source][..], *factor));
                write_sum(&terms.collect::<Vec<_>>(), computed.as_mut_slice());
                contents[parity][..] == computed[..]
            }
        }))
    }
}
