//! Why a stripe operation failed.

use quoin_base::DriveIndex;
use quoin_drive::DriveError;
use thiserror::Error;

/// Why a stripe operation failed.
#[derive(Debug, Error)]
pub enum StripeError {
    /// A drive failed it.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The pool has no drive of this index.
    #[error("the pool has no drive {0}")]
    NoSuchDrive(DriveIndex),
    /// More columns than the layout can do without do not hold what they should, or cannot be
    /// reached.
    #[error(
        "of the columns of a segment only {have} can be read or written and {need} are needed; bring \
         back the drives that are missing or failed"
    )]
    NotEnoughColumns {
        /// Columns that can be reached and hold what they should.
        have: usize,
        /// The fewest from which all data follows.
        need: usize,
    },
    /// The geometry is one this version cannot read.
    #[error("layout {data}+{parity} is not supported by this version")]
    Unsupported {
        /// Data columns.
        data: u8,
        /// Parity columns.
        parity: u8,
    },
}

impl StripeError {
    /// Whether it is the drive of one column that does not do it, so that the other columns have to
    /// do instead. Any other error, as that of a fence or of a place outside the slab, concerns the
    /// whole operation.
    pub(crate) fn is_of_the_drive(&self) -> bool {
        match self {
            Self::NoSuchDrive(_) => true,
            Self::Drive(error) => error.is_of_the_drive(),
            _ => false,
        }
    }
}
