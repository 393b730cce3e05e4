//! Drives by path.

use quoin_array::Bay;
use quoin_world::Disk;
use quoin_world_linux::{OpenOptions, open_disk};
use std::{path::PathBuf, sync::Arc};

/// The drives of the configuration, opened through the operating system.
pub(crate) struct PathBay(pub(crate) Vec<PathBuf>);

impl Bay for PathBay {
    fn paths(&self) -> Vec<String> {
        self.0.iter().map(|path| path.display().to_string()).collect()
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        open_disk(path.as_ref(), OpenOptions { create_len: None }).map_err(|error| error.to_string())
    }
}
