//! Reading what a location names.

use crate::{
    error::PoolError,
    format::{Location, PAGE_BYTES, RowHeader},
    meta::SegmentTable,
    segment::mend::{pages_of, within_pages},
    store::Store,
};
use quoin_base::{ByteRange, DriveIndex, SegmentGeneration, SegmentId, crc64};
use quoin_stripe::{Column, ColumnSet, Read, StripeSet};
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;

/// A page of metadata that verifies.
pub(crate) struct PageRead {
    pub bytes: Bytes,
    /// What is wrong with other copies.
    pub ill: Option<Ill>,
}

/// What is wrong with copies of a page while another one is sound.
#[derive(Debug)]
pub(crate) struct Ill {
    /// Of one of them, in words.
    pub why: String,
    /// The drives to blame. None is where drives are not there.
    pub drives: Vec<DriveIndex>,
}

impl Ill {
    /// From the copies that cannot be used; `None` if there are none.
    pub(crate) fn of(bad: &[BadCopy]) -> Option<Self> {
        let why = bad.first()?.what.clone();
        Some(Self { why, drives: bad.iter().filter_map(|copy| copy.blamed).collect() })
    }
}

/// A copy of a page that cannot be used.
pub(crate) struct BadCopy {
    /// Where it lies and what is wrong with it, in words.
    pub what: String,
    /// Its drive failed to read it, and this is the error. Otherwise it does not verify.
    pub error: Option<PoolError>,
    /// Its drive, unless that is not there or has failed.
    pub blamed: Option<DriveIndex>,
}

/// Where a row begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowAt {
    pub segment: SegmentId,
    pub generation: SegmentGeneration,
    /// Within the segment's data.
    pub offset: u64,
}

impl RowAt {
    /// Its head, if that is what the bytes are.
    pub(crate) fn head_in(self, bytes: &[u8]) -> Option<Box<RowHeader>> {
        RowHeader::parse(bytes).filter(|row| {
            row.segment.get() == self.segment.0
                && row.segment_generation.get() == self.generation.0
                && u64::from(row.offset.get()) == self.offset
                && row.len_bytes.get() as usize >= PAGE_BYTES
        })
    }
}

pub(crate) struct SegmentIo {
    pub(crate) store: Arc<Store>,
    pub(crate) segments: Arc<SegmentTable>,
    /// A write that comes when it must not come any more.
    #[cfg(feature = "planted-bugs")]
    pub(super) late: quoin_world::Mutex<Option<super::mend::Write>>,
}

impl SegmentIo {
    pub(crate) fn new(store: Arc<Store>, segments: Arc<SegmentTable>) -> Self {
        Self {
            store,
            segments,
            #[cfg(feature = "planted-bugs")]
            late: quoin_world::Mutex::default(),
        }
    }

    /// The bytes at a location, as stored.
    pub(crate) async fn read(&self, location: Location) -> Result<Bytes, PoolError> {
        self.read_range(location.segment(), ByteRange::new(location.offset_bytes(), location.len_bytes()))
            .await
    }

    /// The bytes of a range of a segment's data, computed where a drive fails to read them.
    pub(crate) async fn read_range(&self, segment: SegmentId, range: ByteRange) -> Result<Bytes, PoolError> {
        let set = self.stripes(segment)?;
        let buf: Buf = self.store.read_segment(&set, pages_of(range)).await?;
        Ok(within_pages(buf.into_slice(), range))
    }

    /// The same if no drive fails to read any of it. Otherwise what lies there is read piece by piece, and
    /// [mended](Self::mend).
    pub(crate) async fn read_sound(&self, segment: SegmentId, range: ByteRange) -> Result<Bytes, PoolError> {
        self.read_sound_of(segment, &self.stripes(segment)?, range).await
    }

    /// The same for a host, which waits for it.
    pub(crate) async fn read_for_host(
        &self,
        segment: SegmentId,
        range: ByteRange,
    ) -> Result<Bytes, PoolError> {
        let set = self.stripes(segment)?;
        let _counted = self.store.pace().host_read(set.columns.iter().map(|column| column.drive));
        self.read_sound_of(segment, &set, range).await
    }

    async fn read_sound_of(
        &self,
        segment: SegmentId,
        set: &StripeSet,
        range: ByteRange,
    ) -> Result<Bytes, PoolError> {
        let Read { content, unread } = self.store.read_telling(set, pages_of(range)).await?;
        match unread.iter().next() {
            None => Ok(within_pages(content.into_slice(), range)),
            Some(place) => {
                let drive = self.store.drive_name(set.columns[place].drive);
                let problem = format!("drive {drive} cannot read some of {range:?}");
                Err(PoolError::corrupt(format!("segment {segment}"), problem))
            }
        }
    }

    /// The head of a row that was read and did not verify, read in other ways; `None` if no way verifies. The caller is in a
    /// reader epoch, and has found in it that the segment is in use.
    ///
    /// Nothing is written. A drive that lost writes may have the heads of earlier rows, and one of these leads to places where the
    /// other drives have what is live.
    pub(crate) async fn row_head_otherwise(&self, row: RowAt) -> Option<Box<RowHeader>> {
        let set = self.segments.stripes(row.segment)?;
        let range = ByteRange::new(row.offset, PAGE_BYTES as u64);
        let found = self.read_otherwise(&set, range, &|bytes| row.head_in(bytes).is_some()).await?;
        row.head_in(&found)
    }

    fn stripes(&self, segment: SegmentId) -> Result<StripeSet, PoolError> {
        self.segments.stripes(segment).ok_or_else(|| {
            PoolError::corrupt("a location", format!("it names segment {segment}, which is free"))
        })
    }

    /// Where the copies of a page of metadata are: a byte offset in each of these columns.
    pub(crate) fn copies(&self, at: Location) -> Result<(Arc<[Column]>, u64), PoolError> {
        let (columns, what) = match at.table_slab() {
            Some(number) => (self.segments.table_slabs().columns_of(at), format!("table slab {number}")),
            None => {
                let set = self.segments.stripes(at.segment());
                (
                    set.map(|set| hold_it(&set, self.store.lost_columns(&set))),
                    format!("segment {}", at.segment()),
                )
            }
        };
        let none = || PoolError::corrupt("a location", format!("it names {what}, which is not there"));
        Ok((columns.ok_or_else(none)?, at.offset_bytes()))
    }

    /// The first copy of a page that has this checksum; `None` if those that can be read have another.
    pub(crate) async fn read_page(&self, at: Location, crc: u64) -> Result<Option<PageRead>, PoolError> {
        let (columns, offset) = self.copies(at)?;
        let mut bad: Vec<BadCopy> = Vec::new();
        for column in columns.iter() {
            match self.read_copy(*column, offset, crc).await {
                Ok(bytes) => {
                    return Ok(Some(PageRead { bytes, ill: Ill::of(&bad) }));
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
            Ok(_) => {
                let what = format!("{} does not verify", place());
                Err(BadCopy { what, error: None, blamed: Some(column.drive) })
            }
            Err(error) => Err(BadCopy {
                what: format!("{} cannot be read ({error})", place()),
                error: Some(error.into()),
                blamed: Some(column.drive).filter(|_| self.store.is_there(column)),
            }),
        }
    }
}

/// The columns of a mirror to read: those that hold what they should, on drives that work if there are any.
fn hold_it(set: &StripeSet, lost: ColumnSet) -> Arc<[Column]> {
    let hold = set.geometry.all().without(set.missing);
    let sound = hold.without(lost);
    let chosen = if sound.is_empty() { hold } else { sound };
    chosen.iter().map(|place| set.columns[place]).collect()
}
