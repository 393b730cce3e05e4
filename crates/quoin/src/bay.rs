//! Drives by path.

use quoin_array::Bay;
use quoin_world::Disk;
use quoin_world_linux::{OpenError, OpenOptions, open_disk};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// So long are drives waited for that are in use, and so often it is looked.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The drives of the configuration, opened through the operating system.
pub(crate) struct PathBay(pub(crate) Vec<PathBuf>);

impl PathBay {
    /// Opens all drives. A process that was killed lets go of its drives a moment after it has ended.
    pub(crate) fn open_all(&self) -> Result<Vec<Arc<dyn Disk>>, OpenError> {
        let deadline = Instant::now() + LET_GO_WITHIN;
        let open_one = |path: &PathBuf| loop {
            match open(path) {
                Err(OpenError::InUse { .. }) if Instant::now() < deadline => thread::sleep(LOOK_AGAIN),
                opened => return opened,
            }
        };
        self.0.iter().map(open_one).collect()
    }
}

fn open(path: &Path) -> Result<Arc<dyn Disk>, OpenError> {
    open_disk(path, OpenOptions { create_len: None })
}

impl Bay for PathBay {
    fn paths(&self) -> Vec<String> {
        self.0.iter().map(|path| path.display().to_string()).collect()
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        open(path.as_ref()).map_err(|error| error.to_string())
    }
}
