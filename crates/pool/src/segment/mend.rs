//! Mending: what does not verify, or cannot be read, is read in other ways until one verifies, and what was wrong is written
//! again.
//!
//! Invariants:
//! 1. Only what a checksum says is right is returned or written.
//! 2. A column is written only while the reader epoch lasts in which its segment was looked up, so that its slab cannot
//!    have been given to something else. Callers enter it first.
//! 3. A column that is missing is not written: a rebuild fills it.
//! 4. Only whole pages are written. What a page holds beside the content stays what the column has: the checksum says nothing of it.
//!    Where the drive fails to read that, it becomes what the other columns have.

use crate::{
    bugs::{Bug, planted},
    format::{Location, PAGE_BYTES},
    segment::io::SegmentIo,
    store::repairs::RepairKind,
};
use quoin_base::{ByteRange, DriveIndex, SegmentId, crc32c};
use quoin_stripe::{ColumnSet, Read, StripeError, StripeSet, alternatives, columns_of};
use quoin_world::{Buf, Compiled, Slice as Bytes};

/// What tells right content from wrong.
pub(crate) type Verifies<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);

/// What verifies after all.
pub(crate) struct Mended {
    pub content: Bytes,
    /// What was written again: whose, and of which kind.
    pub repairs: Vec<(Option<DriveIndex>, RepairKind)>,
    /// Columns hold something else still: what was written again did not get there, or not whole pages were wrong.
    pub is_wrong_still: bool,
}

/// A segment, a column of it, pages of its data, and what they are to hold.
pub(super) type Write = (StripeSet, usize, ByteRange, Bytes);

/// Content that verifies, found by leaving columns out.
struct Found {
    content: Bytes,
    /// Columns that hold something else there, or that a drive failed to read.
    wrong: ColumnSet,
}

/// The pages that a range touches.
pub(crate) fn pages_of(range: ByteRange) -> ByteRange {
    let page = PAGE_BYTES as u64;
    ByteRange::from(range.offset / page * page..range.end().next_multiple_of(page))
}

/// What of the pages around a range is the range.
pub(crate) fn within_pages(pages: Bytes, range: ByteRange) -> Bytes {
    let from = (range.offset - pages_of(range).offset) as usize;
    pages.slice(from..from + range.len as usize)
}

impl SegmentIo {
    /// The content of a location with this checksum, read in whichever way brings it. What was found wrong is written
    /// again and counted. `None`: there is no such way. The caller is in a reader epoch, and has found in it that the
    /// location is in use.
    pub(crate) async fn mend_block(&self, location: Location, crc: u32) -> Option<Mended> {
        let range = ByteRange::new(location.offset_bytes(), location.len_bytes());
        self.mend(location.segment(), range, &|bytes| crc32c(bytes).0 == crc).await
    }

    /// The same of any range of a segment's data.
    pub(crate) fn mend<'a>(
        &'a self,
        segment: SegmentId,
        range: ByteRange,
        verifies: Verifies<'a>,
    ) -> Compiled<'a, Option<Mended>> {
        Box::pin(async move {
            let set = self.segments.stripes(segment)?;
            let Found { content, wrong } = self.find(&set, range, verifies).await?;
            let (mut repairs, mut still) = (Vec::new(), wrong);
            for place in wrong.iter() {
                let Some(pages) = self.in_pages(&set, place, range, &content, wrong).await else { continue };
                if self.write_again(&set, place, pages_of(range), &pages).await
                    && self.is_right(&set, place, range, verifies).await
                {
                    let kind = if set.geometry.data == 1 { RepairKind::Copy } else { RepairKind::Data };
                    self.note_repair(&set, Some(place), range.offset, kind);
                    repairs.push((Some(set.columns[place].drive), kind));
                    still = still.without(ColumnSet::one(place));
                }
            }
            Some(Mended { content, repairs, is_wrong_still: !still.is_empty() })
        })
    }

    /// The content of a range that verifies, read in whichever way brings it. Nothing is written.
    pub(crate) async fn read_otherwise(
        &self,
        set: &StripeSet,
        range: ByteRange,
        verifies: Verifies<'_>,
    ) -> Option<Bytes> {
        self.find(set, range, verifies).await.map(|found| found.content)
    }

    /// Content that verifies, and which columns hold something else. Columns on drives that are not there, or have failed,
    /// are not among these.
    async fn find(&self, set: &StripeSet, range: ByteRange, verifies: Verifies<'_>) -> Option<Found> {
        if set.columns.len() == 1 {
            return None;
        }
        let lost = set.columns.iter().enumerate().filter(|(_, column)| !self.store.is_there(**column));
        let lost = lost.fold(set.missing, |lost, (place, _)| lost.with(ColumnSet::one(place)));
        let found = match set.geometry.data {
            1 => self.find_in_copies(set, range, lost, verifies).await,
            _ => self.find_in_stripes(set, range, verifies).await,
        };
        found.map(|found| Found { wrong: found.wrong.without(lost), ..found })
    }

    /// Looks at each copy. Those of drives that have failed are asked only if no other verifies.
    async fn find_in_copies(
        &self,
        set: &StripeSet,
        range: ByteRange,
        lost: ColumnSet,
        verifies: Verifies<'_>,
    ) -> Option<Found> {
        let (mut good, mut wrong) = (None, ColumnSet::default());
        let failed = lost.without(set.missing);
        for place in set.geometry.all().without(lost).iter().chain(failed.iter()) {
            if failed.has(place) && good.is_some() {
                break;
            }
            match self.read_without(set, range, all_but(set, place)).await {
                Ok((content, _)) if verifies(&content) => good = good.or(Some(content)),
                Ok(_) | Err(_) => wrong = wrong.with(ColumnSet::one(place)),
            }
        }
        good.map(|content| Found { content, wrong })
    }

    /// Leaves out columns, as few as possible.
    async fn find_in_stripes(
        &self,
        set: &StripeSet,
        range: ByteRange,
        verifies: Verifies<'_>,
    ) -> Option<Found> {
        let here = columns_of(set.geometry, range);
        let ways = alternatives(set, pages_of(range));
        for without in std::iter::once(ColumnSet::default()).chain(ways) {
            let Ok((content, unread)) = self.read_without(set, range, without).await else { continue };
            if verifies(&content) {
                return Some(Found { content, wrong: without.with(unread).both(here) });
            }
        }
        None
    }

    async fn read_without(
        &self,
        set: &StripeSet,
        range: ByteRange,
        without: ColumnSet,
    ) -> Result<(Bytes, ColumnSet), StripeError> {
        let Read { content, unread } =
            self.store.columns().read_without(set, pages_of(range), without).await?;
        Ok((within_pages(content.into_slice(), range), unread))
    }

    /// The pages that content lies in, as a column is to have them; `None` if it cannot be told what else lies there. `wrong`: the
    /// columns that have something else than the content.
    async fn in_pages(
        &self,
        set: &StripeSet,
        place: usize,
        range: ByteRange,
        content: &Bytes,
        wrong: ColumnSet,
    ) -> Option<Bytes> {
        let pages = pages_of(range);
        if pages == range {
            return Some(content.clone());
        }
        let mut buf = Buf::zeroed(pages.len as usize);
        let page = PAGE_BYTES as u64;
        let (first, last) = (pages.offset, pages.end() - page);
        for at in [first, last].into_iter().take(if first == last { 1 } else { 2 }) {
            let part = ByteRange::new(at, page);
            let in_column = set.geometry.column_range(part, place);
            let is_covered = range.offset <= at && part.end() <= range.end();
            if is_covered || in_column.is_empty() || planted(Bug::RepairOverNeighbours) {
                continue;
            }
            let beside = match self.store.read_slab(set.columns[place], in_column.offset, PAGE_BYTES).await {
                Ok(beside) => beside.into_slice(),
                Err(_) => self.read_without(set, part, wrong).await.ok()?.0,
            };
            buf.as_mut_slice()[(at - pages.offset) as usize..][..PAGE_BYTES].copy_from_slice(&beside);
        }
        let from = (range.offset - pages.offset) as usize;
        buf.as_mut_slice()[from..from + content.len()].copy_from_slice(content);
        Some(buf.into_slice())
    }

    /// Writes pages of a column again. False if they did not get there.
    async fn write_again(&self, set: &StripeSet, place: usize, pages: ByteRange, content: &Bytes) -> bool {
        let (set, place, pages, content) = self.what_this_repair_writes(set, place, pages, content);
        let only = ColumnSet::one(place);
        match self.store.columns().rewrite(&set, pages, only, &content).await {
            Ok(()) => true,
            Err(error) => {
                self.store.repair_failed(&set, place, error).await;
                false
            }
        }
    }

    /// Whether what a column holds of a range verifies now.
    async fn is_right(
        &self,
        set: &StripeSet,
        place: usize,
        range: ByteRange,
        verifies: Verifies<'_>,
    ) -> bool {
        let without = if set.geometry.data == 1 { all_but(set, place) } else { ColumnSet::default() };
        let read = self.read_without(set, range, without).await;
        read.is_ok_and(|(content, unread)| !unread.has(place) && verifies(&content))
    }

    /// Counts a repair of a column, and says so. `None`: columns did not agree, and nothing told which was wrong.
    pub(crate) fn note_repair(&self, set: &StripeSet, place: Option<usize>, at: u64, kind: RepairKind) {
        let column = place.and_then(|place| set.columns.get(place));
        let drive = column.map_or("that is not known", |column| self.store.drive_name(column.drive));
        let slab = column.map(|column| column.slab);
        tracing::warn!(drive, slab, at, ?kind, "what a drive held wrong was written again");
        self.store.note_repair(column.map(|column| column.drive), kind);
    }
}

/// Where the bug is planted.
impl SegmentIo {
    /// What it is given; with the bug, what the repair before was to write.
    fn what_this_repair_writes(
        &self,
        set: &StripeSet,
        place: usize,
        pages: ByteRange,
        content: &Bytes,
    ) -> Write {
        let this = (set.clone(), place, pages, content.clone());
        #[cfg(feature = "planted-bugs")]
        if planted(Bug::RepairLate) {
            return self.late.lock().replace(this.clone()).unwrap_or(this);
        }
        this
    }
}

fn all_but(set: &StripeSet, place: usize) -> ColumnSet {
    set.geometry.all().without(ColumnSet::one(place))
}
