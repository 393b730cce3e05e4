//! Which parts of a file have data: holes need not be read to be known as zeroes.

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use std::{fs::File, ops::Range};

/// The next part of a file, from `at` on, that may have data. `None`: it has none up to its end.
pub(crate) fn next_data(file: &File, at: u64, len: u64) -> Option<Range<u64>> {
    if at >= len {
        return None;
    }
    let begin = match seek(file, SeekFrom::Data(at)) {
        Ok(begin) => begin,
        Err(Errno::NXIO) => return None,
        // Devices and some file systems cannot tell.
        Err(_) => return Some(at..len),
    };
    let end = seek(file, SeekFrom::Hole(begin)).unwrap_or(len);
    (begin < len).then_some(begin..end.min(len))
}
