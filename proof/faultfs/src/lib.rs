//! A FUSE file system whose files behave like drives with a volatile write cache, and fail on command.
//!
//! It shows the regular files of one backing directory. A write is held in RAM until the file is flushed
//! (`fsync`, `fdatasync`) or the write itself asks for durability (`O_DSYNC`, `RWF_DSYNC`); a power cut
//! decides for every held write whether it is lost, kept or torn at 512 bytes, by a seed. Drives can also be
//! made to fail, to be slow, to hold flipped bits, and to lie about flushes.
//!
//! Promises: a read returns the newest write, held or not; what was written before a flush that succeeded
//! survives any cut; held writes survive the death of the process that wrote them, as in a real drive; after
//! a cut every file handle opened before it stays dead, so that no late request of a killed process can
//! reach the medium. Not simulated: sizes and file names are durable at once, and files cannot be mapped
//! into memory. The backing files are written through the host's page cache: this protects nothing against
//! a power cut of the host itself.
//!
//! [`Mounted`] is the file system in the caller's own process; the binary `quoin-faultfs` serves it with a
//! control socket.

mod cache;
mod control;
mod drive;
mod front;
mod shelf;

pub use control::{Command, Op, ask, serve};
pub use drive::DriveStatus;
pub use front::Mounted;
pub use shelf::{CutMode, CutReport, Options, Shelf, Status};

use std::{io, path::PathBuf};

/// The sector size: a torn write is torn between sectors, never inside one.
pub const SECTOR_BYTES: u64 = 512;

/// Why an operation on the file system or its control socket failed.
#[derive(Debug, thiserror::Error)]
pub enum FaultFsError {
    /// The file system cannot be mounted.
    #[error(
        "cannot mount the drives of {backing} at {mountpoint}: {source}; it needs /dev/fuse and root or fusermount3"
    )]
    Mount {
        /// Directory that holds the drive files.
        backing: PathBuf,
        /// Directory the drives were to appear in.
        mountpoint: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of the backing directory cannot be used.
    #[error("backing file {path}: {source}")]
    Backing {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A command names a drive that is not there.
    #[error("no drive called {name}; there are: {present}")]
    NoSuchDrive {
        /// The name in the command.
        name: String,
        /// Names of the drives, separated by commas.
        present: String,
    },
    /// The control socket cannot be used, or what came over it is no command or answer.
    #[error("control socket {path}: {source}")]
    Control {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The other side of the control socket refused the command.
    #[error("refused: {0}")]
    Refused(String),
}
