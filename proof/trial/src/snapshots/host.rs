//! The host's side of a database whose parts lie on volumes of their own.

use crate::{
    array::Array,
    attach::{Attached, drop_page_cache},
    postgres::Places,
};
use anyhow::Result;
use std::path::Path;

/// The volumes of the group, by what lies on them.
pub(super) const PARTS: [&str; 3] = ["data", "log", "far"];

/// All parts attached, each as a file system. Dropping it takes all down by force.
#[derive(Debug)]
pub(super) struct Host {
    parts: Vec<Attached>,
}

impl Host {
    /// Attaches what the trial's host sees from this LUN on; everything of it lies in directories of `work`.
    pub(super) fn attach(work: &Path, array: &Array, first_lun: u32) -> Result<Self> {
        std::fs::create_dir_all(work)?;
        let mut parts = Vec::new();
        for (name, lun) in PARTS.iter().zip(first_lun..) {
            parts.push(Attached::attach(&work.join(name), &array.target_at(lun)?)?);
        }
        Ok(Self { parts })
    }

    pub(super) fn format(&self) -> Result<()> {
        self.parts.iter().try_for_each(Attached::format)
    }

    pub(super) fn mount(&self) -> Result<()> {
        self.parts.iter().try_for_each(Attached::mount)
    }

    pub(super) fn unmount(&self) -> Result<()> {
        self.parts.iter().try_for_each(Attached::unmount)
    }

    /// Tells the array about the space the file systems do not use.
    pub(super) fn trim(&self) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.trim().map(drop))
    }

    /// Checks the unmounted file systems, reading them from the volumes.
    pub(super) fn check_file_systems(&self) -> Result<()> {
        self.parts.iter().try_for_each(Attached::check_file_system)
    }

    /// What is read next comes from the volumes.
    pub(super) fn forget(&self) -> Result<()> {
        drop_page_cache()
    }

    /// Unmounts and detaches in good order.
    pub(super) fn detach(self) -> Result<()> {
        self.parts.into_iter().try_for_each(Attached::detach)
    }

    /// Where the database's parts lie, or are to lie.
    pub(super) fn places(&self) -> Places {
        let at = |part: usize| self.parts[part].mountpoint();
        Places::apart(at(0), at(1), at(2))
    }
}
