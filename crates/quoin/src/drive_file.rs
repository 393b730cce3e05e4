//! Files of drives: how long they are, and making them longer.

use quoin_array::DriveFile;
use rustix::{
    fs::{FallocateFlags, fallocate, fstatvfs},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

/// What is at a path.
pub(crate) fn measure(path: &Path) -> io::Result<DriveFile> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let is_device = metadata.file_type().is_block_device();
    let len_bytes = file.seek(SeekFrom::End(0))?;
    let system = fstatvfs(&file)?;
    let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
    Ok(DriveFile { is_device, len_bytes, file_system: metadata.dev(), free_bytes })
}

/// Makes a file longer, durably; one that is as long already stays as it is. What is new of a file with holes is a hole, and of
/// one without there is room for all of it.
pub(crate) fn lengthen(path: &Path, len_bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let found = metadata.len();
    if found < len_bytes {
        let has_holes = metadata.blocks() * 512 < found;
        let made = if has_holes { Err(Errno::OPNOTSUPP) } else { allocate(&file, found, len_bytes) };
        match made {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => file.set_len(len_bytes)?,
            Err(error) => {
                // What was allocated of it goes again: nobody uses it.
                let _ = file.set_len(found);
                return Err(error.into());
            }
        }
    }
    file.sync_all()
}

fn allocate(file: &File, from: u64, to: u64) -> Result<(), Errno> {
    fallocate(file, FallocateFlags::empty(), from, to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_holes_stays_one_and_another_gets_all_its_room() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = |name: &str| directory.path().join(name);
        File::create(path("holes")).and_then(|file| file.set_len(1 << 20)).unwrap();
        std::fs::write(path("whole"), vec![1; 1 << 20]).unwrap();
        for name in ["holes", "whole"] {
            lengthen(&path(name), 3 << 20).unwrap();
            let found = measure(&path(name)).unwrap();
            assert!(!found.is_device && found.len_bytes == 3 << 20 && found.free_bytes > 0, "{found:?}");
            // Shorter does not become of it.
            lengthen(&path(name), 2 << 20).unwrap();
            assert_eq!(measure(&path(name)).unwrap().len_bytes, 3 << 20);
        }
        let blocks = |name: &str| std::fs::metadata(path(name)).unwrap().blocks() * 512;
        assert!(blocks("holes") < 1 << 20 && blocks("whole") >= 3 << 20);
        let none = lengthen(&path("none"), 1).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        lengthen(directory.path(), 1).unwrap_err();
    }
}
