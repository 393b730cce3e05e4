//! Where the array's drives come from.

use crate::Notes;
use quoin_api::DriveLocation;
use quoin_base::{DriveIndex, PoolId};
use quoin_drive::Patience;
use quoin_emulate::EmulatedDrive;
use quoin_world::{Disk, OneShot, one_shot};
use std::sync::Arc;

/// The outcome of opening a drive; `None` if another process has it.
pub type Opening = OneShot<Result<Option<Arc<dyn Disk>>, String>>;
/// Paths of drives, with their position in the pool.
pub type Finding = OneShot<Vec<(DriveIndex, String)>>;

/// What is at the path of a drive, or why that cannot be found out.
pub type Measuring = OneShot<Result<DriveFile, String>>;
/// The outcome of making a file longer.
pub type Lengthening = OneShot<Result<(), String>>;

/// What is at the path of a drive, as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveFile {
    /// Whether it is a block device; otherwise it is a file.
    pub is_device: bool,
    /// Its bytes.
    pub len_bytes: u64,
    /// The file system that a file is on: a number that all files there have.
    pub file_system: u64,
    /// Bytes that are free there.
    pub free_bytes: u64,
}

/// Opens the drives the configuration names; again after one has failed.
pub trait Bay: Send + Sync {
    /// The paths of all drives, in the order of the configuration.
    fn paths(&self) -> Vec<String>;

    /// Opens the drive at `path`, or says why it cannot be opened.
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String>;

    /// The same, but `None` if another process has the drive: one that was killed has it for a moment longer.
    fn open_unless_in_use(&self, path: &str) -> Result<Option<Arc<dyn Disk>>, String> {
        self.open(path).map(Some)
    }

    /// Where events wait while the pool is offline; without it, the end of the process loses them.
    fn notes(&self) -> Option<Arc<dyn Notes>> {
        None
    }

    /// The same, by a thread that may be kept waiting by a drive that does not answer.
    fn begin_open(&self, path: &str) -> Opening {
        let (sender, opening) = one_shot();
        sender.send(self.open_unless_in_use(path));
        opening
    }

    /// Looks for drives of the pool, by their labels, where the configured paths lead and beside them. `taken` are
    /// paths of drives that are open.
    fn begin_search(&self, _pool: PoolId, _taken: &[String]) -> Finding {
        let (sender, finding) = one_shot();
        sender.send(Vec::new());
        finding
    }

    /// Finds out how long the file or device at a path is, and what its file system has.
    fn begin_measure(&self, _path: &str) -> Measuring {
        let (sender, measuring) = one_shot();
        sender.send(Err("the system does not tell".to_owned()));
        measuring
    }

    /// Makes the file at a path so long, durably, if it is shorter.
    fn begin_lengthen(&self, _path: &str, _len_bytes: u64) -> Lengthening {
        let (sender, lengthening) = one_shot();
        sender.send(Err("it is not the array's to make longer".to_owned()));
        lengthening
    }

    /// What a path leads to, if that is another path.
    fn device(&self, _path: &str) -> Option<String> {
        None
    }

    /// Where the drive at a path is, as the system tells.
    fn location(&self, _path: &str) -> Option<DriveLocation> {
        None
    }

    /// The name of the fault domain of a drive at a path, if nobody names another one.
    fn domain(&self, _path: &str) -> Option<String> {
        None
    }

    /// Adds a path to the configuration, durably.
    ///
    /// # Errors
    /// Why it cannot be added, in words.
    fn add(&self, _path: &str) -> Result<(), String> {
        Ok(())
    }

    /// Removes from the configuration a path that was added and is not needed after all.
    fn remove(&self, _path: &str) {}

    /// Takes the drive at a path, which left the pool, out of the configuration, durably.
    ///
    /// # Errors
    /// Why it cannot be taken out, in words.
    fn forget(&self, _path: &str) -> Result<(), String> {
        Ok(())
    }

    /// The emulated drive at a path of the configuration; `None` if it works as it is.
    fn emulated(&self, _path: &str) -> Option<Arc<EmulatedDrive>> {
        None
    }

    /// How long operations of drives may take.
    fn patience(&self) -> Patience {
        Patience::default()
    }
}

/// Drives that are open already, by their names, as those of a simulation are.
impl Bay for Vec<Arc<dyn Disk>> {
    fn paths(&self) -> Vec<String> {
        self.iter().map(|disk| disk.name().to_owned()).collect()
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        let disk = self.iter().find(|disk| disk.name() == path);
        disk.cloned().ok_or_else(|| format!("there is no drive {path}"))
    }
}
