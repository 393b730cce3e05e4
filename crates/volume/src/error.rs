//! Why a volume operation was refused or failed.

use crate::{BadName, MAX_SIZE_BYTES};
use quoin_base::GIB;
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
    /// What a volume would lose by being shrunk holds data.
    #[error("volume {name} holds data beyond byte {size_bytes}")]
    TailMapped {
        /// The volume.
        name: String,
        /// The size asked for.
        size_bytes: u64,
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
    #[error("a volume {name} exists already, of {size_bytes} bytes, uuid {uuid}")]
    Exists {
        /// The name.
        name: String,
        /// The existing volume's size.
        size_bytes: u64,
        /// The existing volume's identity.
        uuid: Uuid,
    },
    /// No volume has the name.
    #[error("there is no volume {name}")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// The pool is not open; what was asked for was not done.
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
