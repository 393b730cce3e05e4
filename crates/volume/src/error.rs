//! Why a volume operation was refused or failed.

use crate::{
    BadName,
    limits::{COPIES_MAX, MAX_SIZE_BYTES, MEMBERS_MAX},
};
use quoin_base::{GIB, VolumeId};
use quoin_pool::PoolError;
use thiserror::Error;
use uuid::Uuid;

/// Why a volume could not be created, found or deleted.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// The name breaks the rules for names.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The logical block is neither 512 nor 4096 bytes.
    #[error("volume {name}: a block of {block_bytes} bytes is not supported; choose 512 or 4096")]
    BlockSize {
        /// The volume asked for.
        name: String,
        /// The block asked for.
        block_bytes: u32,
    },
    /// The size is zero, too large, or not a whole number of blocks.
    #[error(
        "volume {name}: a size of {size_bytes} bytes {why}; choose a multiple of the block of up to {} TiB",
        MAX_SIZE_BYTES / (1024 * GIB)
    )]
    Size {
        /// The volume asked for.
        name: String,
        /// The size asked for.
        size_bytes: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A tag cannot be as it is given.
    #[error("tag {tag:?} {why}")]
    Tag {
        /// The tag, or its key.
        tag: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The path of a folder breaks the rules for them.
    #[error("{path:?} is not a folder: it {why}")]
    Folder {
        /// What was given.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Of a template nothing that hosts see may change.
    #[error("volume {name} is a template; {what} would change its clones' source")]
    IsTemplate {
        /// The volume.
        name: String,
        /// What was asked for.
        what: &'static str,
    },
    /// A volume that hosts may only read is not changed by management either.
    #[error("volume {name} is read-only: {what} would change what it holds")]
    Protected {
        /// The volume.
        name: String,
        /// What was asked for.
        what: &'static str,
    },
    /// An immutable snapshot stays as it is, and stays.
    #[error("snapshot {name} is immutable until {until_ms} ms")]
    Immutable {
        /// The snapshot.
        name: String,
        /// Until when, in milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// A volume is not deleted while snapshots of it are immutable.
    #[error("volume {name} has immutable snapshots, until {until_ms} ms: {}", snapshots.join(", "))]
    HasImmutable {
        /// The volume.
        name: String,
        /// The snapshots.
        snapshots: Vec<String>,
        /// Until when, in milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// The time for which a snapshot is immutable only gets longer.
    #[error("snapshot {name} is already immutable until {until_ms} ms, which is later")]
    RetainedLonger {
        /// The snapshot.
        name: String,
        /// Until when, in milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// Only snapshots are made immutable.
    #[error("volume {name} is not a snapshot")]
    NoSnapshot {
        /// The volume.
        name: String,
    },
    /// A time for which nothing can be immutable.
    #[error("a snapshot cannot be immutable for {seconds} seconds")]
    RetentionTime {
        /// The time asked for.
        seconds: u64,
    },
    /// The part that a volume would lose by shrinking holds data.
    #[error("volume {name} holds data beyond byte {size_bytes}")]
    TailMapped {
        /// The volume.
        name: String,
        /// The size asked for.
        size_bytes: u64,
    },
    /// What a volume lost by shrinking is still being given back.
    #[error("volume {name} was shrunk, and its former tail is still being given back")]
    Trimming {
        /// The volume.
        name: String,
    },
    /// The pool cannot keep as much space for a thick volume.
    #[error(
        "the pool cannot keep {wanted_bytes} bytes more for volume {name}: {free_bytes} bytes are neither used nor kept \
         for others"
    )]
    CannotReserve {
        /// The volume.
        name: String,
        /// The bytes asked for, beside those kept for it already.
        wanted_bytes: u64,
        /// The most that could be kept.
        free_bytes: u64,
    },
    /// The name is taken.
    #[error("volume {name} already exists; it has {size_bytes} bytes and the uuid {uuid}")]
    Exists {
        /// The name.
        name: String,
        /// The existing volume's size.
        size_bytes: u64,
        /// The existing volume's identity.
        uuid: Uuid,
    },
    /// No volume has the name.
    #[error("volume {name} does not exist")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// One name was asked for twice.
    #[error("{name} is given twice")]
    NamedTwice {
        /// The name.
        name: String,
    },
    /// The source and the target of a replacement are the same volume.
    #[error("source and target are both volume {name}")]
    Itself {
        /// The volume.
        name: String,
    },
    /// A volume cannot become one of another logical block.
    #[error(
        "volume {name} has a logical block of {block_bytes} bytes, {source_name} one of {source_block_bytes}: hosts \
         would not know what they see"
    )]
    OtherBlock {
        /// The volume whose content was to be replaced.
        name: String,
        /// Its logical block.
        block_bytes: u32,
        /// The volume whose content it was to take.
        source_name: String,
        /// The logical block of that volume.
        source_block_bytes: u32,
    },
    /// The range to copy is not aligned to blocks.
    #[error(
        "{what}, {bytes}, is not a multiple of {block_bytes} bytes, the larger logical block of the two volumes"
    )]
    CopyUnaligned {
        /// The source.
        name: String,
        /// Which number it is.
        what: &'static str,
        /// The number.
        bytes: u64,
        /// The size of which it must be a multiple.
        block_bytes: u64,
    },
    /// The range to copy is empty, or not within the source.
    #[error(
        "volume {name} has {size_bytes} bytes: there are no {length_bytes} bytes to copy from byte {from_bytes} on"
    )]
    CopyRange {
        /// The source.
        name: String,
        /// The first byte asked for.
        from_bytes: u64,
        /// The bytes asked for.
        length_bytes: u64,
        /// The source's size.
        size_bytes: u64,
    },
    /// The range to copy does not fit into the target.
    #[error(
        "volume {name} has {size_bytes} bytes; to take what is copied it must have at least {needed_bytes}"
    )]
    CopyTooSmall {
        /// The target.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// The size it must have.
        needed_bytes: u64,
    },
    /// A range would be copied to where it is.
    #[error("the range in volume {name} would be copied onto itself")]
    CopyOntoItself {
        /// The volume.
        name: String,
    },
    /// The maximum number of copies is running.
    #[error("{COPIES_MAX} copies are running, the maximum")]
    TooManyCopies {
        /// The target.
        name: String,
    },
    /// A copy writes to the volume.
    #[error("copy {copy} of volume {source_name} writes into volume {name}")]
    CopiedInto {
        /// The target.
        name: String,
        /// The copy.
        copy: VolumeId,
        /// What it copies.
        source_name: String,
    },
    /// The name of a group breaks the rules for names.
    #[error(transparent)]
    GroupName(BadName),
    /// No group has the name.
    #[error("group {name} does not exist")]
    NoGroup {
        /// The name asked for.
        name: String,
    },
    /// The name is taken.
    #[error("group {name} already exists; it has {members} volumes")]
    GroupExists {
        /// The name.
        name: String,
        /// How many volumes it has.
        members: usize,
    },
    /// The volume is in a group already.
    #[error("volume {volume} is already in group {other}")]
    InGroup {
        /// The volume.
        volume: String,
        /// The group it was to join.
        group: String,
        /// The group it is in.
        other: String,
    },
    /// The group has as many volumes as it can.
    #[error("group {group} has {MEMBERS_MAX} volumes, the maximum")]
    GroupFull {
        /// The group.
        group: String,
        /// The volume that was to join it.
        volume: String,
    },
    /// The volume is not in the group.
    #[error("volume {volume} is not in group {group}")]
    NotInGroup {
        /// The volume.
        volume: String,
        /// The group.
        group: String,
    },
    /// The pool is not open; the request was not carried out.
    #[error("the pool is offline: {reason}")]
    Offline {
        /// Why.
        reason: String,
    },
    /// An object in the catalog that this version cannot read.
    #[error("catalog object {key}: {why}; was it written by a newer version of Quoin?")]
    Record {
        /// The object's key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The pool failed or refused the change.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// A refusal of the pool, as an error about the volume of this name.
pub(crate) fn refused(name: &str, error: PoolError) -> VolumeError {
    match error {
        PoolError::CannotReserve { wanted_bytes, free_bytes } => {
            VolumeError::CannotReserve { name: name.to_owned(), wanted_bytes, free_bytes }
        }
        error => error.into(),
    }
}
