//! Reading ranges.

use crate::{Columns, Geometry, StripeError, StripeSet, geometry::UNIT_BYTES};
use quoin_base::ByteRange;
use quoin_world::Buf;

impl Columns {
    /// Reads a range of a segment's data. Both ends are multiples of 4096.
    ///
    /// # Errors
    /// [`StripeError::Unsupported`] for a geometry of several columns, [`StripeError::NoSuchDrive`] for a
    /// column on no drive of the pool, and [`StripeError::Drive`] if the drive refuses or fails the read.
    pub async fn read(&self, set: &StripeSet, range: ByteRange) -> Result<Buf, StripeError> {
        assert!(range.is_aligned(UNIT_BYTES), "{range:?} of a segment is read, which is not whole units");
        let Geometry { data, parity, .. } = set.geometry;
        let column = set.single().ok_or(StripeError::Unsupported { data, parity })?;
        self.read_column(column, range).await
    }
}
