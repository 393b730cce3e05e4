//! The notes of the event log: a small file in the data directory.

use quoin_array::Notes;
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The file, in the data directory.
pub(crate) const NOTES_FILE: &str = "events.pending";

/// Lines in a file that is replaced as a whole or added to.
pub(crate) struct FileNotes {
    path: PathBuf,
    /// The file written last, still to be made durable; one writer at a time.
    file: Mutex<Option<fs::File>>,
    failed: AtomicBool,
}

impl FileNotes {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: Mutex::default(), failed: AtomicBool::new(false) }
    }

    fn told(&self, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => self.failed.store(false, Ordering::Relaxed),
            // Once, not at every event. It is no event by itself: it could not be noted.
            Err(error) if !self.failed.swap(true, Ordering::Relaxed) => {
                let path = self.path.display();
                tracing::warn!(
                    "events cannot be noted in {path}: {error}; while the pool is offline they are in memory only"
                );
            }
            Err(_) => {}
        }
    }
}

impl Notes for FileNotes {
    fn read(&self) -> Vec<String> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let path = self.path.display();
                    tracing::warn!("{path} cannot be read: {error}; events that waited in it are lost");
                }
                return Vec::new();
            }
        };
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }

    fn add(&self, line: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut options = fs::OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let mut add = || {
            let mut opened = options.open(&self.path)?;
            // In one write: a line is there wholly, or is the last one.
            opened.write_all(format!("{line}\n").as_bytes())?;
            *file = Some(opened);
            Ok(())
        };
        self.told(add());
    }

    fn replace(&self, lines: &[String]) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let new = self.path.with_extension("new");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut replace = || {
            let mut opened = options.open(&new)?;
            opened.write_all(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes())?;
            // A file that replaces another before its content is durable may be empty after a power failure. The mark
            // alone is not worth the wait: without it, numbering continues from the last event in the pool.
            if lines.len() > 1 {
                opened.sync_data()?;
            }
            fs::rename(&new, &self.path)?;
            *file = Some(opened);
            Ok(())
        };
        self.told(replace());
    }

    fn sync(&self) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(file) = file {
            let parent = self.path.parent().map(fs::File::open);
            self.told(file.sync_all().and_then(|()| parent.map_or(Ok(()), |parent| parent?.sync_all())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_and_replaced_and_a_file_that_cannot_be_written_hinders_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let notes = FileNotes::new(directory.path().join(NOTES_FILE));
        assert!(notes.read().is_empty());
        notes.add("a");
        notes.add("b");
        notes.sync();
        assert_eq!(FileNotes::new(directory.path().join(NOTES_FILE)).read(), ["a", "b"]);
        notes.replace(&["c".to_owned()]);
        notes.add("d");
        assert_eq!(notes.read(), ["c", "d"]);
        let nowhere = FileNotes::new(directory.path().join("missing").join(NOTES_FILE));
        nowhere.add("a");
        nowhere.replace(&[]);
        nowhere.sync();
        assert!(nowhere.read().is_empty());
    }
}
