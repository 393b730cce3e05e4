//! The drives of a history: files, and what was done to each.

use anyhow::{Context, Result};
use std::{
    fs::File,
    path::{Path, PathBuf},
};

/// What a drive does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// What it should.
    Works,
    /// It answers late.
    IsSlow,
    /// It fails, hangs or is away, until it returns.
    IsAway,
    /// It was taken out by hand.
    IsOut,
}

#[derive(Debug)]
pub(super) struct Drive {
    pub(super) path: PathBuf,
    pub(super) behaves: Behaviour,
    /// Drives that were added while the array served work as fast as they are, and do not fail on command.
    pub(super) is_emulated: bool,
}

impl Drive {
    /// How commands name it.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

#[derive(Debug)]
pub(super) struct Drives {
    pub(super) all: Vec<Drive>,
    directory: PathBuf,
    bytes: u64,
}

impl Drives {
    /// Makes so many files of this size.
    pub(super) fn create(directory: &Path, count: u64, bytes: u64) -> Result<Self> {
        let mut drives = Self { all: Vec::new(), directory: directory.to_owned(), bytes };
        for _ in 0..count {
            drives.add(true)?;
        }
        Ok(drives)
    }

    /// Makes one more.
    pub(super) fn add(&mut self, is_emulated: bool) -> Result<&Drive> {
        let path = self.directory.join(format!("drive{}", self.all.len()));
        File::create(&path)?.set_len(self.bytes).with_context(|| format!("making {}", path.display()))?;
        self.all.push(Drive { path, behaves: Behaviour::Works, is_emulated });
        Ok(&self.all[self.all.len() - 1])
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.all.iter().map(|drive| drive.path.clone()).collect()
    }

    /// The array was started again: what is emulated works as configured.
    pub(super) fn all_work_again(&mut self) {
        let restored = self.all.iter_mut().filter(|drive| drive.behaves != Behaviour::IsOut);
        restored.for_each(|drive| drive.behaves = Behaviour::Works);
    }

    /// The places of those that are like this.
    pub(super) fn places(&self, is: impl Fn(&Drive) -> bool) -> Vec<usize> {
        (0..self.all.len()).filter(|place| is(&self.all[*place])).collect()
    }
}
