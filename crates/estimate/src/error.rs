//! Why nothing is estimated.

use std::{io, path::PathBuf};
use thiserror::Error;

/// Why there is no estimate.
#[derive(Debug, Error)]
pub enum EstimateError {
    /// A path that was named cannot be read at all.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// As it was given.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A path that was named is something else than a file, a directory or a block device.
    #[error("{}: it is {is}", path.display())]
    Unfit {
        /// As it was given.
        path: PathBuf,
        /// What it is.
        is: &'static str,
    },
    /// There is nothing to read below any path.
    #[error("no file of any length is below {0}")]
    Nothing(String),
    /// It was cancelled.
    #[error("it was cancelled")]
    Cancelled,
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
}
