//! How a drive failed: whether it is away, and may come back with what it holds.

use quoin_world::DiskError;
use std::io::ErrorKind;

/// What the system says of a device that is not there any more.
pub(crate) const ENODEV: i32 = 19;
const ENXIO: i32 = 6;
/// Why a drive takes no more operations.
pub(super) struct Failure {
    pub(super) cause: String,
    /// It is not there, or does not answer, as far as is known: it may come back with all it held.
    pub(super) is_away: bool,
}

impl Failure {
    /// Of a drive of which an operation failed so.
    pub(super) fn by(error: &DiskError) -> Self {
        Self { cause: error.to_string(), is_away: is_away(error) }
    }
}

/// Whether a drive that answers so is not there. One that answers with another error is.
pub(crate) fn is_away(error: &DiskError) -> bool {
    match error {
        DiskError::TimedOut { .. } => true,
        DiskError::Io { source, .. } => {
            matches!(source.raw_os_error(), Some(ENODEV | ENXIO)) || source.kind() == ErrorKind::NotFound
        }
        DiskError::Abandoned => false,
    }
}
