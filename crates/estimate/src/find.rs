//! The files and devices below the paths that a user names.
//!
//! 1. A file counts once, however many names it has.
//! 2. Symbolic links are followed only if they are named themselves, and other file systems are not entered: what is read is what
//!    the user pointed at.

use crate::EstimateError;
use rustc_hash::FxHashSet;
use rustix::fs::{Mode, OFlags, SeekFrom};
use serde::Serialize;
use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};
use walkdir::WalkDir;

/// A file or device to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Which of the sets it belongs to.
    pub set: usize,
    /// Its length.
    pub len_bytes: u64,
    /// About the most of it that can be no hole.
    pub most_data_bytes: u64,
}

/// What was not read, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Skipped {
    /// Where it is.
    pub path: String,
    /// Why it was not read.
    pub why: String,
    /// It was to be read, and could not be.
    pub failed: bool,
}

/// What is kept of what was not read. Of the rest only the number is.
const MOST_SKIPPED: usize = 1000;

/// What was not read: the first of it, and how much more there is.
#[derive(Default, Debug)]
pub(crate) struct AllSkipped {
    pub first: Vec<Skipped>,
    pub more: u64,
    pub failed: u64,
}

impl AllSkipped {
    /// Notes what could not be read.
    pub(crate) fn fail(&mut self, path: &Path, why: impl ToString) {
        self.failed += 1;
        self.push(Skipped { path: shown(path), why: why.to_string(), failed: true });
    }

    fn leave(&mut self, path: &Path, why: &str) {
        self.push(Skipped { path: shown(path), why: why.to_owned(), failed: false });
    }

    fn push(&mut self, skipped: Skipped) {
        if self.first.len() < MOST_SKIPPED {
            self.first.push(skipped);
        } else {
            self.more += 1;
        }
    }
}

/// A path as people and programs can read it, whatever bytes it is of.
pub(crate) fn shown(path: &Path) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    path.to_string_lossy().chars().map(plain).collect()
}

/// What there is to be read below paths, each of which is a set.
#[derive(Default, Debug)]
pub(crate) struct Found {
    pub sources: Vec<Source>,
    pub skipped: AllSkipped,
    met: FxHashSet<(u64, u64)>,
    /// The paths, without links.
    roots: Vec<PathBuf>,
}

/// Finds what there is to be read.
pub(crate) fn find(paths: &[PathBuf]) -> Result<Found, EstimateError> {
    let roots = paths.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let mut found = Found { roots, ..Found::default() };
    for (set, path) in paths.iter().enumerate() {
        let unreadable = |error| EstimateError::Unreadable { path: path.clone(), error };
        let metadata = fs::metadata(path).map_err(unreadable)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            fs::read_dir(path).map_err(unreadable)?;
            found.below(path, set);
        } else if kind.is_file() || kind.is_block_device() {
            let file = open(path).map_err(unreadable)?;
            let len_bytes = length(&file, &metadata).map_err(unreadable)?;
            found.add(path, set, &metadata, len_bytes);
        } else {
            return Err(EstimateError::Unfit { path: path.clone(), is: what(&metadata) });
        }
    }
    found.sources.retain(|source| source.len_bytes > 0);
    if found.sources.is_empty() {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(EstimateError::Nothing(names.join(", ")));
    }
    Ok(found)
}

impl Found {
    fn below(&mut self, path: &Path, set: usize) {
        // A path that is a link itself is meant as what it leads to.
        let root = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let here = fs::metadata(&root).map(|metadata| metadata.dev());
        for entry in WalkDir::new(root).same_file_system(true).sort_by_file_name() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let why = error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                    self.skipped.fail(error.path().unwrap_or(path), why);
                    continue;
                }
            };
            let (path, kind) = (entry.path(), entry.file_type());
            match entry.metadata() {
                Err(error) => self.skipped.fail(path, error),
                Ok(metadata) if kind.is_dir() => {
                    if here.as_ref().is_ok_and(|here| metadata.dev() != *here) {
                        self.skipped.leave(path, "another file system is not entered; name it as a PATH");
                    }
                }
                Ok(_) if kind.is_symlink() => {
                    let target = fs::canonicalize(path);
                    let leads_away =
                        target.is_ok_and(|target| !self.roots.iter().any(|root| target.starts_with(root)));
                    if leads_away {
                        self.skipped.leave(path, "a link is not followed; name what it leads to as a PATH");
                    }
                }
                Ok(metadata) if kind.is_file() => self.add(path, set, &metadata, metadata.len()),
                Ok(_) => {}
            }
        }
    }

    fn add(&mut self, path: &Path, set: usize, metadata: &Metadata, len_bytes: u64) {
        // A device is told apart by its number: several of its nodes are the same.
        let is_device = metadata.file_type().is_block_device();
        let id = if is_device { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) };
        if self.met.insert(id) {
            let most_data = if is_device { len_bytes } else { len_bytes.min(metadata.blocks() * 512) };
            self.sources.push(Source { path: path.to_owned(), set, len_bytes, most_data_bytes: most_data });
        } else {
            self.skipped.leave(path, "it is the same file as one before");
        }
    }
}

fn length(file: &File, metadata: &Metadata) -> io::Result<u64> {
    if metadata.file_type().is_file() {
        return Ok(metadata.len());
    }
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

/// Opens for reading alone.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // NOTE: a file may have become a pipe since it was found: opening that would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn what(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_char_device() => "a character device",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "neither a file nor a directory nor a block device",
    }
}
