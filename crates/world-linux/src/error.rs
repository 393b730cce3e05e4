//! Why the world did not start or a disk was not opened.

use std::{io, path::PathBuf};
use thiserror::Error;

/// Why the world did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// No io_uring.
    #[error(
        "io_uring cannot be set up ({0}); it needs Linux 5.19 or newer, and neither the sysctl \
         kernel.io_uring_disabled nor a container's seccomp profile may forbid it"
    )]
    Ring(#[source] io::Error),
    /// No thread or no event loop.
    #[error("a thread of the array cannot be started: {0}")]
    Thread(#[source] io::Error),
}

/// Why a disk was not opened. Nothing on it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The operating system's own error.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// The file or device.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Someone else has it.
    #[error("{}: another process uses it (or it is mounted); stop that first", path.display())]
    InUse {
        /// The file or device.
        path: PathBuf,
    },
    /// The file system has no direct I/O.
    #[error(
        "{}: the file system refuses direct I/O; put the drive on a local one such as ext4 or XFS ({source})",
        path.display()
    )]
    NoDirectIo {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Its unit of direct I/O is too coarse.
    #[error("{}: direct I/O needs units of {bytes} bytes there; at most 4096 are supported", path.display())]
    CoarseBlocks {
        /// The file or device.
        path: PathBuf,
        /// The unit.
        bytes: u32,
    },
    /// Neither a file nor a block device.
    #[error("{}: neither a regular file nor a block device", path.display())]
    NotADrive {
        /// What was given.
        path: PathBuf,
    },
    /// A file to be made is there already, with another size.
    #[error("{}: exists with {found} bytes, not {asked}; remove it or ask for its size", path.display())]
    OtherLen {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
        /// The size asked for in bytes.
        asked: u64,
    },
}
