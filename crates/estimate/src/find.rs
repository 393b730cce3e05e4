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
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Which of the sets it belongs to.
    pub set: usize,
    /// Its length.
    pub len_bytes: u64,
}

/// What was not read, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// Why it was not read.
    pub why: String,
}

/// What there is to be read below paths, each of which is a set.
#[derive(Default, Debug)]
pub(crate) struct Found {
    pub sources: Vec<Source>,
    pub skipped: Vec<Skipped>,
}

/// Finds what there is to be read.
pub(crate) fn find(paths: &[PathBuf]) -> Result<Found, EstimateError> {
    let mut found = Found::default();
    let mut met = FxHashSet::default();
    for (set, path) in paths.iter().enumerate() {
        let unreadable = |error| EstimateError::Unreadable { path: path.clone(), error };
        let metadata = fs::metadata(path).map_err(unreadable)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            fs::read_dir(path).map_err(unreadable)?;
            below(path, set, &mut found, &mut met);
        } else if kind.is_file() || kind.is_block_device() {
            let len_bytes = length(path, &metadata).map_err(unreadable)?;
            add(path, set, &metadata, len_bytes, &mut found, &mut met);
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

type Met = FxHashSet<(u64, u64)>;

fn below(path: &Path, set: usize, found: &mut Found, met: &mut Met) {
    // A path that is a link itself is meant as what it leads to.
    let root = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for entry in WalkDir::new(root).same_file_system(true).sort_by_file_name() {
        let (path, looked) = match entry {
            Ok(entry) if !entry.file_type().is_file() => continue,
            Ok(entry) => (entry.path().to_owned(), entry.metadata()),
            Err(error) => (error.path().unwrap_or(path).to_owned(), Err(error)),
        };
        match looked {
            Ok(metadata) => add(&path, set, &metadata, metadata.len(), found, met),
            Err(error) => {
                let why = error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                found.skipped.push(Skipped { path, why });
            }
        }
    }
}

fn add(path: &Path, set: usize, metadata: &Metadata, len_bytes: u64, found: &mut Found, met: &mut Met) {
    // A device is told apart by its number: several of its nodes are the same.
    let is_device = metadata.file_type().is_block_device();
    let id = if is_device { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) };
    if met.insert(id) {
        found.sources.push(Source { path: path.to_owned(), set, len_bytes });
    } else {
        let why = "it is the same file as one before".to_owned();
        found.skipped.push(Skipped { path: path.to_owned(), why });
    }
}

fn length(path: &Path, metadata: &Metadata) -> io::Result<u64> {
    if metadata.file_type().is_file() {
        return Ok(metadata.len());
    }
    Ok(rustix::fs::seek(open(path)?, SeekFrom::End(0))?)
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
