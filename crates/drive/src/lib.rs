//! One drive of a pool: labels, root slots, the table of members, grant pages and slabs, on any [`Disk`](quoin_world::Disk).
//!
//! ```text
//! byte 0         label, copy 0 (4 KiB)
//! byte 65536     label, copy 1 (4 KiB)
//! byte 131072    root slot 0 (4 KiB) of slice 0, of slice 1, … of slice 15, one every 28 KiB
//! byte 589824    root slot 1 (4 KiB) of slice 0, of slice 1, … of slice 15, one every 28 KiB
//! byte 1 MiB     the table of members, copy 0 (128 KiB at most); only voters have it
//! byte 1.125 MiB the table of members, copy 1
//! byte 1.25 MiB  room for the first copies of the grant pages (4 KiB each), then as much for the second ones
//! slabs_start    slab 0, slab 1, …; a tail that does not fill a slab is unused
//! ```
//!
//! Promises: a drive that is blank, foreign, shorter than it was, stale or of another version of the on-disk format is never taken
//! for one of the pool, and the refusal says which it is; a label survives a power failure during its rewrite; an epoch
//! on a drive only grows; when a raise of it is done, nothing of an earlier writer session of this opening is written any
//! more; a pool is opened with all drives that its newest table of members needs, and with no other; after a failed write or
//! flush nothing more is written until the drive is opened again; with a [`DriveWatch`], every operation ends in time, whether
//! the disk answers or not.
//!
//! Does not: know what is in a root slot, a grant page or a slab, keep checksums of data, retry. Assumes of the disk: one
//! process has it open, and a write is torn at nothing smaller than 512 bytes.

pub mod bugs;
mod drive;
mod error;
mod label;
mod members;
mod probe;
mod raw;
mod set;
mod watch;
mod writer_session;

pub use drive::{Drive, DriveCounters};
pub use error::DriveError;
pub use label::{
    FORMAT_VERSION, GRANT_PAGE_BYTES, HEAD_BYTES, LABEL_BYTES, LABEL_OFFSETS, Label, MAX_SLICES,
    MOST_JOURNAL_COLUMNS, POOL_NAME_MAX_BYTES, ROOT_BYTES, Roles, SLABS_PER_GRANT_PAGE, root_offset,
    slabs_start,
};
pub use members::{
    DOMAIN_MAX_BYTES, MAX_MEMBERS, MAX_VOTERS, MEMBERS_OFFSETS, MEMBERS_PAGE_BYTES, MEMBERS_PER_PAGE, Member,
    MemberState, Members, MembersCopy,
};
pub use probe::{Probe, probe};
pub use set::{DriveSet, inspect_set, open_set, raise_set};
pub use watch::{Answers, DriveWatch, Patience};
pub use writer_session::{Fences, MAX_FENCES, WriterSession};

#[cfg(test)]
mod tests;
