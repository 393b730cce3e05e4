//! Why something that an emulated drive was told did not happen.

use quoin_world::DiskError;
use thiserror::Error;

/// Why an emulated drive did not do as it was told.
#[derive(Debug, Error)]
pub enum EmulateError {
    /// A detached drive cannot be opened.
    #[error("it is an emulated drive and is detached")]
    Detached,
    /// Its content can be changed only while it is open.
    #[error("it is not open")]
    NotOpen,
    /// Its content cannot be changed while its operations do not end.
    #[error("it hangs, and operations of it are under way")]
    Hung,
    /// No page to corrupt was found.
    #[error("it holds nothing in its data area")]
    Blank,
    /// The disk below failed.
    #[error("what lies below it failed: {0}")]
    Disk(#[from] DiskError),
}
