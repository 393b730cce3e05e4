//! All drives of one mount, and the commands that change their lot.

use crate::{
    Command, FaultFsError,
    drive::{Drive, DriveStatus, Fates},
};
use parking_lot::RwLock;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// What a power cut does to writes that were not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CutMode {
    /// All of them vanish.
    Lose,
    /// Of each, about half of its sectors arrive.
    Tear,
    /// Each vanishes, is torn, or arrives whole.
    Mix,
}

/// How the drives are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes a drive holds in RAM before it puts its oldest writes on the medium of its own accord.
    pub cache_limit_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_limit_bytes: 256 << 20 }
    }
}

/// What a power cut did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutReport {
    /// Held writes that vanished.
    pub lost: u64,
    /// Held writes of which about half of the sectors arrived.
    pub torn: u64,
    /// Held writes that arrived.
    pub kept: u64,
}

/// The state of all drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// False from a power cut until the power is restored.
    pub powered: bool,
    /// Each drive, in the order it was first seen.
    pub drives: Vec<DriveStatus>,
}

/// The drives of one backing directory.
#[derive(Debug)]
pub struct Shelf {
    backing: PathBuf,
    options: Options,
    drives: RwLock<Vec<Option<Arc<Drive>>>>,
}

impl Shelf {
    /// Opens every regular file of the backing directory as a drive.
    ///
    /// # Errors
    /// [`FaultFsError::Backing`] if the directory or a file in it cannot be read.
    pub fn open(backing: &Path, options: Options) -> Result<Arc<Self>, FaultFsError> {
        let failed = |source| FaultFsError::Backing { path: backing.to_owned(), source };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(backing).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_file() {
                paths.push(entry.path());
            }
        }
        paths.sort();
        let drives =
            paths.iter().map(|path| Ok(Some(Arc::new(Drive::open(path, options.cache_limit_bytes, false)?))));
        let drives = RwLock::new(drives.collect::<Result<_, FaultFsError>>()?);
        Ok(Arc::new(Self { backing: backing.to_owned(), options, drives }))
    }

    /// Cuts the power of all drives at one moment. Until [`Shelf::restore`] every operation fails with `EIO`;
    /// handles opened before the cut stay dead for good.
    ///
    /// # Errors
    /// [`FaultFsError::Backing`] if a kept write cannot be put on the medium.
    pub fn power_cut(&self, mode: CutMode, seed: u64) -> Result<CutReport, FaultFsError> {
        let drives = self.all();
        let mut locked: Vec<_> = drives.iter().map(|drive| drive.lock()).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut report = CutReport::default();
        for (drive, state) in drives.iter().zip(&mut locked) {
            let Fates { lost, torn, kept } =
                state.cut(mode, &mut rng).map_err(|source| backing_failed(drive, source))?;
            report.lost += lost;
            report.torn += torn;
            report.kept += kept;
        }
        Ok(report)
    }

    /// Gives the drives their power back.
    pub fn restore(&self) {
        for drive in self.all() {
            drive.lock().restore();
        }
    }

    /// The figures of all drives.
    pub fn status(&self) -> Status {
        let drives = self.all();
        let powered = drives.iter().all(|drive| drive.lock().powered());
        Status { powered, drives: drives.iter().map(|drive| drive.status()).collect() }
    }

    /// Carries out a command; the answer is what it has to report.
    ///
    /// # Errors
    /// [`FaultFsError::NoSuchDrive`], or [`FaultFsError::Backing`] if the medium cannot be read or written.
    pub fn apply(&self, command: &Command) -> Result<serde_json::Value, FaultFsError> {
        match command {
            Command::Status => return Ok(serde_json::json!(self.status())),
            Command::PowerCut { seed, mode } => return Ok(serde_json::json!(self.power_cut(*mode, *seed)?)),
            Command::Restore => self.restore(),
            Command::Flush => self.flush()?,
            Command::Fail { drive, ops } => self.named(drive)?.lock().fail(ops),
            Command::Slow { drive, delay_ms } => {
                self.named(drive)?.lock().slow(Duration::from_millis(*delay_ms))
            }
            Command::Hang { drive } => self.named(drive)?.lock().hang(),
            Command::Full { drive } => {
                let drive = self.named(drive)?;
                drive.lock().fill().map_err(|source| backing_failed(&drive, source))?;
            }
            Command::IgnoreFlushes { drive } => self.named(drive)?.lock().ignore_flushes(),
            Command::Heal { drive } => self.named(drive)?.heal(),
            Command::Corrupt { drive, offset, len, seed } => {
                let drive = self.named(drive)?;
                let mut rng = ChaCha8Rng::seed_from_u64(*seed);
                drive
                    .lock()
                    .corrupt(*offset, *len, &mut rng)
                    .map_err(|source| backing_failed(&drive, source))?;
            }
        }
        Ok(serde_json::json!({}))
    }

    /// Puts everything held on the medium, as an orderly shutdown of the drives would.
    ///
    /// # Errors
    /// [`FaultFsError::Backing`] if the medium cannot be written.
    pub fn flush(&self) -> Result<(), FaultFsError> {
        for drive in self.all() {
            drive.lock().shrink_to_nothing().map_err(|source| backing_failed(&drive, source))?;
        }
        Ok(())
    }

    /// The drives with their numbers; a number is never given twice.
    pub(crate) fn numbered(&self) -> Vec<(usize, Arc<Drive>)> {
        let drives = self.drives.read();
        drives.iter().enumerate().filter_map(|(number, drive)| Some((number, drive.clone()?))).collect()
    }

    pub(crate) fn drive(&self, number: usize) -> io::Result<Arc<Drive>> {
        let drive = self.drives.read().get(number).cloned().flatten();
        drive.ok_or_else(|| rustix::io::Errno::NOENT.into())
    }

    pub(crate) fn find(&self, name: &str) -> Option<(usize, Arc<Drive>)> {
        self.numbered().into_iter().find(|(_, drive)| drive.name() == name)
    }

    pub(crate) fn create(&self, name: &str) -> Result<(usize, Arc<Drive>), FaultFsError> {
        let path = self.backing.join(name);
        let drive = Arc::new(Drive::open(&path, self.options.cache_limit_bytes, true)?);
        let mut drives = self.drives.write();
        drives.push(Some(drive.clone()));
        Ok((drives.len() - 1, drive))
    }

    pub(crate) fn remove(&self, number: usize) -> io::Result<()> {
        std::fs::remove_file(self.drive(number)?.path())?;
        self.drives.write()[number] = None;
        Ok(())
    }

    pub(crate) fn backing(&self) -> &Path {
        &self.backing
    }

    fn all(&self) -> Vec<Arc<Drive>> {
        self.numbered().into_iter().map(|(_, drive)| drive).collect()
    }

    fn named(&self, name: &str) -> Result<Arc<Drive>, FaultFsError> {
        self.find(name).map(|(_, drive)| drive).ok_or_else(|| {
            let present = self.all().iter().map(|drive| drive.name()).collect::<Vec<_>>().join(", ");
            FaultFsError::NoSuchDrive { name: name.to_owned(), present }
        })
    }
}

fn backing_failed(drive: &Drive, source: io::Error) -> FaultFsError {
    FaultFsError::Backing { path: drive.path().to_owned(), source }
}
