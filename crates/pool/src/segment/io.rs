//! Reading what a location names.

use crate::{
    error::PoolError,
    format::{Location, PAGE_BYTES},
    meta::SegmentTable,
    store::Store,
};
use quoin_base::{ByteRange, SegmentId, crc64};
use quoin_stripe::Column;
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;

/// A page of metadata that verifies.
pub(crate) struct PageRead {
    pub bytes: Bytes,
    /// What is wrong with another copy, in words.
    pub damaged: Option<String>,
}

/// A copy of a page that cannot be used.
pub(crate) struct BadCopy {
    /// Where it lies and what is wrong with it, in words.
    pub what: String,
    /// Its drive failed to read it, and this is the error. Otherwise it does not verify.
    pub error: Option<PoolError>,
}

pub(crate) struct SegmentIo {
    pub(crate) store: Arc<Store>,
    pub(crate) segments: Arc<SegmentTable>,
}

impl SegmentIo {
    /// The bytes at a location, as stored.
    pub(crate) async fn read(&self, location: Location) -> Result<Bytes, PoolError> {
        self.read_range(location.segment(), ByteRange::new(location.offset_bytes(), location.len_bytes()))
            .await
    }

    /// Whether what lies at a location is as it should be, if it is read from the right columns.
    pub(crate) async fn can_be_read(
        &self,
        location: Location,
        is_good: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, PoolError> {
        let Some(set) = self.segments.stripes(location.segment()) else { return Ok(false) };
        let page = PAGE_BYTES as u64;
        let (first, end) = (location.offset_bytes(), location.offset_bytes() + location.len_bytes());
        let pages = ByteRange::from(first / page * page..end.next_multiple_of(page));
        let mut failure = None;
        for left_out in self.store.ways_to_read(&set, pages) {
            match self.store.read_segment_without(&set, pages, left_out).await {
                Ok(bytes) => {
                    let within = (first - pages.offset) as usize..(end - pages.offset) as usize;
                    if is_good(&bytes[within]) {
                        return Ok(true);
                    }
                    failure = None;
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(false), |error| Err(error.into()))
    }

    /// The bytes of a range of a segment's data.
    pub(crate) async fn read_range(&self, segment: SegmentId, range: ByteRange) -> Result<Bytes, PoolError> {
        let set = self.segments.stripes(segment).ok_or_else(|| {
            PoolError::corrupt("a location", format!("it names segment {segment}, which is free"))
        })?;
        let from = range.offset / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let to = range.end().next_multiple_of(PAGE_BYTES as u64);
        let buf: Buf = self.store.read_segment(&set, ByteRange::from(from..to)).await?;
        Ok(buf.into_slice().slice((range.offset - from) as usize..(range.end() - from) as usize))
    }

    /// Where the copies of a page of metadata are: a byte offset in each of these columns.
    pub(crate) fn copies(&self, at: Location) -> Result<(Arc<[Column]>, u64), PoolError> {
        let (columns, what) = match at.table_slab() {
            Some(number) => (self.segments.table_slabs().columns_of(at), format!("table slab {number}")),
            None => {
                let set = self.segments.stripes(at.segment());
                (set.map(|set| set.columns), format!("segment {}", at.segment()))
            }
        };
        let none = || PoolError::corrupt("a location", format!("it names {what}, which is not there"));
        Ok((columns.ok_or_else(none)?, at.offset_bytes()))
    }

    /// The first copy of a page that has this checksum; `None` if those that can be read have another.
    pub(crate) async fn read_page(&self, at: Location, crc: u64) -> Result<Option<PageRead>, PoolError> {
        let (columns, offset) = self.copies(at)?;
        let mut bad = Vec::new();
        for column in columns.iter() {
            match self.read_copy(*column, offset, crc).await {
                Ok(bytes) => {
                    let damaged = bad.into_iter().next().map(|bad: BadCopy| bad.what);
                    return Ok(Some(PageRead { bytes, damaged }));
                }
                Err(copy) => bad.push(copy),
            }
        }
        // An error is told only if no copy can be read. A copy that was read and is wrong is damage.
        let is_read = bad.iter().any(|copy| copy.error.is_none());
        match bad.into_iter().find_map(|copy| copy.error) {
            Some(error) if !is_read => Err(error),
            _ => Ok(None),
        }
    }

    /// The copies of a page that do not have this checksum, and how many copies there are.
    pub(crate) async fn bad_copies(
        &self,
        at: Location,
        crc: u64,
    ) -> Result<(Vec<BadCopy>, usize), PoolError> {
        let (columns, offset) = self.copies(at)?;
        let mut bad = Vec::new();
        for column in columns.iter() {
            bad.extend(self.read_copy(*column, offset, crc).await.err());
        }
        Ok((bad, columns.len()))
    }

    async fn read_copy(&self, column: Column, offset: u64, crc: u64) -> Result<Bytes, BadCopy> {
        let read = self.store.read_slab(column, offset, PAGE_BYTES).await;
        let place = || {
            let at = self.store.byte_of_drive(column, offset);
            format!("at byte {at} of drive {}", self.store.drive_name(column.drive))
        };
        match read {
            Ok(bytes) if crc64(&bytes).0 == crc => Ok(bytes.into_slice()),
            Ok(_) => Err(BadCopy { what: format!("{} does not verify", place()), error: None }),
            Err(error) => Err(BadCopy {
                what: format!("{} cannot be read ({error})", place()),
                error: Some(error.into()),
            }),
        }
    }
}
