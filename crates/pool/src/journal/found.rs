//! What reading an extent found.

use super::{
    JournalPlace,
    mend::Mend,
    record::ReplayedRecord,
    slabs::Slabs,
    unread::{JournalBounds, Unread, refusal, tell},
};
use crate::{error::PoolError, format::ExtentHeader};
use quoin_base::{ByteRange, Sequence};
use quoin_stripe::Column;

/// A batch that recovery drops, and all behind it.
#[derive(Clone, Debug)]
pub(crate) struct TornBatch {
    /// Where it begins.
    pub place: JournalPlace,
    /// The rows of large writes that it names, as ranges of slabs.
    pub rows: Vec<(Column, ByteRange)>,
}

/// An extent whose header is intact.
pub(super) struct ExtentContent {
    pub header: ExtentHeader,
    pub slabs: Slabs,
    pub records: Vec<ReplayedRecord>,
    pub batches: u32,
    pub last: Sequence,
    /// The batch that was torn, if one was.
    pub torn: Option<TornBatch>,
    /// Batches in doubt, from the first one whose payload cannot be read: no later batch tells whether they were
    /// hardened.
    pub doubtful: Vec<Vec<ReplayedRecord>>,
}

/// What was found of one extent.
#[derive(Default)]
pub(super) struct Found {
    /// `None`: the extent is free.
    pub content: Option<ExtentContent>,
    /// The extent's number, if anything tells it.
    pub number: Option<u64>,
    /// Where reading stopped because the drive failed it, if it did.
    pub unread: Option<Unread>,
    /// What could not be read behind the last batch.
    pub skipped: Vec<Unread>,
    /// What its columns need to be alike.
    pub mend: Option<Mend>,
    /// Pages that hold nothing that counted, and that a drive fails to read.
    pub forget: Vec<(Column, u64)>,
    /// What was found of a slab that begins with no header.
    pub bare: Option<Bare>,
}

/// A slab that begins with no header, and that none names.
pub(super) struct Bare {
    pub column: Column,
    /// What its batches say is the checksum of the header; 0: there are none.
    pub tag: u64,
    pub is_unreadable: bool,
    /// A batch tells that the first one counted, and some are needed.
    pub has_counted: bool,
    /// Why the pool is refused if the slab is all there is of an extent.
    pub refusal: Option<PoolError>,
}

impl ExtentContent {
    /// Adds a batch that was hardened, or may count as if it was. What lies below the tail is not kept.
    pub(super) fn take(&mut self, records: Vec<ReplayedRecord>, tail: Sequence) {
        self.batches += 1;
        let newest = records.iter().map(|r| Sequence(r.header.sequence.get())).max();
        self.last = self.last.max(newest.unwrap_or_default());
        self.records.extend(records.into_iter().filter(|r| r.header.sequence.get() >= tail.0));
    }

    /// Adds the batches in doubt: something tells that they were hardened.
    pub(super) fn take_doubtful(&mut self, tail: Sequence) {
        for records in std::mem::take(&mut self.doubtful) {
            self.take(records, tail);
        }
    }
}

/// Refuses what cannot be read and may be needed. Returns the rest of what cannot be read, in words.
pub(super) fn refuse_needed(found: &mut [Found], bounds: JournalBounds) -> Result<Vec<String>, PoolError> {
    let headers: Vec<_> = found.iter().filter_map(|f| f.content.as_ref()).map(|c| c.header).collect();
    // A root that is older than the journal is not the one that was written when the pool was closed.
    let goes_on = |f: &Found| {
        f.number.is_some_and(|number| number >= bounds.next_extent)
            || f.content.as_ref().is_some_and(|c| c.last >= bounds.tail || !c.doubtful.is_empty())
    };
    let closed = bounds.closed && !found.iter().any(goes_on);
    let mut told = Vec::new();
    for found in found {
        if let Some(unread) = &found.unread {
            let next =
                headers.iter().find(|h| h.previous.get() > 0 && Some(h.previous.get()) == found.number);
            // Each of these tells that nothing from the tail on lies there.
            let all_needless = closed
                || unread.is_obsolete
                || found.number.is_some_and(|number| number < bounds.first_extent)
                || next.is_some_and(|next| next.previous_last.get() < bounds.tail.0);
            let held = next.map(|next| next.previous_batches.get());
            match &mut found.content {
                _ if all_needless => {}
                // The extent ends before it, or with what was read.
                Some(content) if held == Some(content.batches + content.doubtful.len() as u32) => {
                    content.take_doubtful(bounds.tail);
                }
                _ => return Err(refusal(found.number, unread)),
            }
        }
        told.extend(found.unread.iter().chain(&found.skipped).map(tell));
    }
    Ok(told)
}
