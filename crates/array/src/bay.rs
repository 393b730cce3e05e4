//! Where the array's drives come from.

use quoin_world::Disk;
use std::sync::Arc;

/// Opens the drives the configuration names; again after one has failed.
pub trait Bay: Send + Sync {
    /// The paths of all drives, in the order of the configuration.
    fn paths(&self) -> Vec<String>;
    /// Opens the drive at `path`, or says why it cannot be opened.
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String>;
}
