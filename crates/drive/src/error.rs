//! Why a drive was refused or an operation on it failed.

use crate::{MAX_FENCES, WriterSession, drive::failure::is_away};
use quoin_base::{DriveId, DriveIndex, Epoch, HolderId, PoolId};
use quoin_world::DiskError;
use thiserror::Error;

/// Why a drive was refused or an operation on it failed.
#[derive(Debug, Error)]
pub enum DriveError {
    /// The disk below reported it.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An earlier write or flush failed.
    #[error(
        "drive {drive} takes no more writes since one failed ({cause}); check the drive, then open the pool again"
    )]
    Failed {
        /// The drive.
        drive: String,
        /// What failed first.
        cause: String,
    },
    /// It has not finished what an earlier opening asked of it.
    #[error(
        "drive {drive} has not finished {operations} operations of before; it is used again as soon as it has"
    )]
    Owes {
        /// The drive.
        drive: String,
        /// How many operations are under way.
        operations: usize,
    },
    /// The file system under it is full. The drive has not failed; what the range holds is old, new or a mixture.
    #[error("drive {drive} has no room: the file system under it is full; make room there")]
    NoRoom {
        /// The drive.
        drive: String,
    },
    /// There is no label on it.
    #[error("drive {drive} is blank; initialise it first")]
    Blank {
        /// The drive.
        drive: String,
    },
    /// It holds something else.
    #[error("drive {drive} holds {what}, not part of a Quoin pool; it was not changed")]
    Foreign {
        /// The drive.
        drive: String,
        /// What it holds.
        what: String,
    },
    /// It has labels, none of which can be believed.
    #[error(
        "drive {drive} is Quoin's but no copy of its label is intact ({why}); restore it from another copy of the drive"
    )]
    LabelDamaged {
        /// The drive.
        drive: String,
        /// What is wrong with the better copy.
        why: String,
    },
    /// Another version of Quoin wrote it.
    #[error(
        "drive {drive} has on-disk format {found}; this Quoin reads and writes format {expected} only; use the version that wrote it"
    )]
    FormatVersion {
        /// The drive.
        drive: String,
        /// The version in its label.
        found: u32,
        /// [`crate::FORMAT_VERSION`].
        expected: u32,
    },
    /// It is smaller than it was.
    #[error("drive {drive} has {found} bytes but had {expected}; give it its old size back")]
    Shrunk {
        /// The drive.
        drive: String,
        /// Size now, in bytes.
        found: u64,
        /// Size in its label, in bytes.
        expected: u64,
    },
    /// It cannot hold one slab and the journal.
    #[error("drive {drive} has {found} bytes and needs at least {needed}")]
    TooSmall {
        /// The drive.
        drive: String,
        /// Its size in bytes.
        found: u64,
        /// The least size in bytes.
        needed: u64,
    },
    /// A label to write makes no sense.
    #[error("drive {drive} cannot be initialised: {why}")]
    BadLabel {
        /// The drive.
        drive: String,
        /// Which field, and why.
        why: String,
    },
    /// An epoch that does not grow: someone else owns the drive by now.
    #[error(
        "drive {drive} is at epoch {current} and refuses epoch {asked}: another owner has taken the pool over"
    )]
    Fenced {
        /// The drive.
        drive: String,
        /// Its epoch.
        current: Epoch,
        /// The epoch asked for.
        asked: Epoch,
    },
    /// A write of a writer session that the drive accepts no more.
    #[error("drive {drive} refuses writes of {session}: another owner has taken it over")]
    Expelled {
        /// The drive.
        drive: String,
        /// The writer session.
        session: WriterSession,
    },
    /// A write of a holder that has not taken the drive over and has not joined.
    #[error(
        "drive {drive} refuses writes of holder {holder}, which has no writer session on it; take the pool over first"
    )]
    NoWriterSession {
        /// The drive.
        drive: String,
        /// Who would write.
        holder: HolderId,
    },
    /// A fence that no label can hold.
    #[error("drive {drive} cannot be fenced so, and was not changed: {why}")]
    BadFence {
        /// The drive.
        drive: String,
        /// What is wrong with it.
        why: String,
    },
    /// A writer session that does not grow.
    #[error(
        "drive {drive} accepts writer sessions of holder {holder} from {current} on and refuses {asked} as the lowest"
    )]
    WriterSessionFenced {
        /// The drive.
        drive: String,
        /// Whose writer sessions.
        holder: HolderId,
        /// The lowest that it accepts.
        current: u64,
        /// The lowest asked for.
        asked: u64,
    },
    /// There is no room in the label for the fence of one more holder.
    #[error(
        "drive {drive} keeps fences of {MAX_FENCES} holders already; opening the pool anew takes their place"
    )]
    TooManyFences {
        /// The drive.
        drive: String,
    },
    /// A place outside the drive's slabs, or not aligned.
    #[error(
        "drive {drive}: {len} bytes at {offset} of slab {slab} is outside its {slabs} slabs of {slab_bytes} bytes or not aligned to {block_bytes}"
    )]
    OutOfRange {
        /// The drive.
        drive: String,
        /// The slab asked for.
        slab: u32,
        /// First byte within the slab.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Slabs the drive has.
        slabs: u32,
        /// Size of a slab.
        slab_bytes: u32,
        /// The disk's unit of I/O.
        block_bytes: u32,
    },
    /// No drives were given.
    #[error("no drives were given")]
    NoDrives,
    /// Drives of two pools.
    #[error(
        "drive {drive} belongs to pool {found}, the others to pool {expected}; give the drives of one pool only"
    )]
    OtherPool {
        /// The drive that does not fit.
        drive: String,
        /// Its pool.
        found: PoolId,
        /// The pool of the first drive.
        expected: PoolId,
    },
    /// One drive twice.
    #[error(
        "drives {first} and {second} are both number {index} of the pool: one is a copy; give only the current one"
    )]
    Duplicate {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// The index in both labels.
        index: DriveIndex,
    },
    /// Some of the drives that the pool needs were not given.
    #[error(
        "the pool has {total} drives; number {missing} missing, present are {present}; bring all of them back"
    )]
    Missing {
        /// How many drives the pool needs.
        total: usize,
        /// The missing ones, by number and identity, as text.
        missing: String,
        /// The numbers that are there with their drives, as text.
        present: String,
    },
    /// Drives that the pool needs are missing, and some that were given cannot be opened.
    #[error("{why}; {missing}")]
    NotOpened {
        /// Why not, of each.
        why: String,
        /// What is missing without them.
        missing: Box<DriveError>,
    },
    /// No drive that was given has the table of members.
    #[error(
        "none of the drives given ({present}) says which drives the pool has: those that do are missing, or making \
         the pool was interrupted; bring all its drives back, or initialise it anew if it never held anything"
    )]
    NoMembers {
        /// The numbers that are there with their drives, as text.
        present: String,
    },
    /// A voter's table of members is lost.
    #[error(
        "neither copy of the table of members on drive {drive} is intact ({why}), and a later one than the others know \
         may have been there; copy the drive to one that can be read, or restore it from a copy"
    )]
    MembersLost {
        /// The drive.
        drive: String,
        /// What is wrong with a copy.
        why: String,
    },
    /// It is not one of the drives that the pool has now.
    #[error("drive {drive}, number {index} ({id}), is no drive of the pool any more, or never was: {why}")]
    NotMember {
        /// The drive.
        drive: String,
        /// Its number.
        index: DriveIndex,
        /// Its identity.
        id: DriveId,
        /// What became of it, and what to do.
        why: &'static str,
    },
    /// Its label and the table of members do not agree.
    #[error(
        "the label of drive {drive} says {found}, the pool's table of members says {expected}; restore the drive from \
         a copy"
    )]
    Differs {
        /// The drive.
        drive: String,
        /// What the label says.
        found: String,
        /// What the table says.
        expected: String,
    },
    /// It was away while the pool went on.
    #[error(
        "drive {drive} is stale: it was away at epoch {found} while the pool went on to {newest}; bring the current drive"
    )]
    Stale {
        /// The drive.
        drive: String,
        /// Its epoch.
        found: Epoch,
        /// The newest epoch among the drives.
        newest: Epoch,
    },
}

impl DriveError {
    /// Whether the drive itself does not do it. Any other error, as that of a fence or of a place outside the slab, is of who asked.
    pub fn is_of_the_drive(&self) -> bool {
        matches!(self, Self::Disk(_) | Self::Failed { .. })
    }

    /// Whether the drive is not there, or does not answer, as far as is known: it may come back with all it held.
    pub fn is_of_away_drive(&self) -> bool {
        matches!(self, Self::Disk(error) if is_away(error))
    }

    /// Whether another owner has taken the drive over, or fenced the writer session that asked.
    pub fn is_expulsion(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::Expelled { .. } | Self::WriterSessionFenced { .. })
    }
}
