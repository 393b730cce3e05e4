//! Why a pool refuses or fails a request.

use crate::format::PageSpace;
use quoin_base::{PageNumber, VolumeId};
use quoin_drive::DriveError;
use quoin_stripe::StripeError;
use thiserror::Error;

/// Why a pool refuses or fails a request.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The pool has no space for new data. Unmapping and deleting go on; the same write may succeed later.
    #[error("the pool is full")]
    NoSpace,
    /// Data or metadata of this block cannot be read back correctly.
    #[error("volume {volume}, byte {offset}: {reason}")]
    Medium {
        /// The volume.
        volume: VolumeId,
        /// First byte of the pool block concerned.
        offset: u64,
        /// What was found.
        reason: String,
        /// The drive failed the read; the content may be sound. Otherwise it was read and is not what it was.
        unread: bool,
    },
    /// The pool is offline until it is opened again.
    #[error("the pool is offline: {reason}")]
    Offline {
        /// The first failure.
        reason: String,
    },
    /// There is no such volume, or it was deleted meanwhile.
    #[error("the pool has no volume {0}")]
    NoSuchVolume(VolumeId),
    /// The pool cannot promise as much space. Nothing was reserved.
    #[error(
        "{wanted_bytes} bytes more cannot be reserved: the pool has {free_bytes} bytes that are neither used nor reserved"
    )]
    CannotReserve {
        /// The bytes asked for, beside those reserved already.
        wanted_bytes: u64,
        /// The most that could be reserved.
        free_bytes: u64,
    },
    /// The write reaches beyond the end that the volume was given; nothing of the piece that does was written.
    #[error("volume {volume} ends at byte {end}")]
    BeyondEnd {
        /// The volume.
        volume: VolumeId,
        /// Its end, in bytes.
        end: u64,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    Refused(String),
    /// The drives do not hold a pool that can be opened.
    #[error("the pool cannot be opened: {0}")]
    Unopenable(String),
    /// A structure on the drives is not what it must be.
    #[error("{what} is damaged: {problem}")]
    Corrupt {
        /// Which structure.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A drive failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// Reading or writing a segment failed.
    #[error(transparent)]
    Stripe(#[from] StripeError),
}

impl PoolError {
    /// Whether a drive refused because another owner has it.
    pub fn is_expulsion(&self) -> bool {
        self.of_drive().is_some_and(DriveError::is_expulsion)
    }

    /// Whether a drive failed a write or a flush, after which it takes no more.
    pub(crate) fn is_of_failed_drive(&self) -> bool {
        self.of_drive().is_some_and(DriveError::is_of_the_drive)
    }

    /// Whether a drive was not there.
    pub(crate) fn is_of_away_drive(&self) -> bool {
        self.of_drive().is_some_and(DriveError::is_of_away_drive)
    }

    fn of_drive(&self) -> Option<&DriveError> {
        match self {
            Self::Drive(error) | Self::Stripe(StripeError::Drive(error)) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), problem: problem.into() }
    }

    pub(crate) fn page(space: PageSpace, index: PageNumber, problem: impl Into<String>) -> Self {
        Self::corrupt(format!("metadata page {index} of the {space:?} space"), problem)
    }
}
