//! Places of the journal that a drive fails to read.
//!
//! Such a place refuses the pool only if a record that replay needs may lie there. It is told by other evidence that none
//! does: the root, which knows the oldest extent that is needed and whether the pool was closed; the headers of later
//! extents, which say what their predecessors held; and the batches that follow in the same extent. What is not needed is
//! written again when its extent is used again.

use crate::{error::PoolError, format::Root, store::Store};
use quoin_base::Sequence;
use quoin_drive::DriveError;
use quoin_stripe::{Column, StripeError};
use quoin_world::Buf;

/// How often a read is tried before its place counts as unreadable.
const TRIES: u32 = 3;

/// What a root says of the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalBounds {
    /// Records below are in the checkpoint.
    pub tail: Sequence,
    /// Extents from here on were begun after the root.
    pub next_extent: u64,
    /// Nothing is needed of extents below; 0: not known.
    pub first_extent: u64,
    /// The pool was closed: nothing was written after the root.
    pub closed: bool,
}

impl JournalBounds {
    pub(crate) fn of(root: &Root) -> Self {
        Self {
            tail: Sequence(root.tail.get()),
            next_extent: root.next_extent.get(),
            first_extent: root.first_extent.get(),
            closed: root.closed.get() == 1,
        }
    }
}

/// A page that no column can read, or the first of several.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    drive: String,
    /// Byte of the slab.
    pub offset: u64,
    /// Byte of the drive.
    drive_offset: u64,
    error: String,
    /// Later batches of the extent tell that nothing there is needed.
    pub is_obsolete: bool,
}

impl Unread {
    pub(super) fn new(store: &Store, place: Column, offset: u64, error: &StripeError) -> Self {
        let drive_offset = store.byte_of_drive(place, offset);
        let (drive, error) = (store.drive_name(place.drive).to_owned(), error.to_string());
        Self { drive, offset, drive_offset, error, is_obsolete: false }
    }
}

/// Reads again what the drive fails to read once.
pub(super) async fn read_patiently(
    store: &Store,
    place: Column,
    offset: u64,
    len: usize,
) -> Result<Buf, StripeError> {
    let mut tries = 1;
    loop {
        match store.read_slab(place, offset, len).await {
            Err(StripeError::Drive(DriveError::Disk(_))) if tries < TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

pub(super) fn tell(unread: &Unread) -> String {
    let Unread { drive, drive_offset, error, .. } = unread;
    format!(
        "drive {drive} fails to read its journal at byte {drive_offset} ({error}); nothing there is needed, and it is \
         written again when that part of the journal is used"
    )
}

pub(super) fn refusal(number: Option<u64>, unread: &Unread) -> PoolError {
    let Unread { drive, drive_offset, error, .. } = unread;
    let extent = number.map_or("a journal extent".to_owned(), |number| format!("journal extent {number}"));
    PoolError::corrupt(
        format!("{extent} at byte {drive_offset} of drive {drive}"),
        format!(
            "the drive fails to read it ({error}), and acknowledged writes that are nowhere else may lie there; have \
             the drive read it, or copy the drive to another one that does, then start again"
        ),
    )
}
