//! The drive by itself: small durable writes at a low rate, so that a stall of the drive is told from one of the target.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::OFlags;

use crate::pressure::timeline::Timeline;

const WRITE_BYTES: usize = 4096;
/// The file written, over and over.
const FILE_BYTES: usize = 4 << 20;
/// From the beginning of one write to that of the next: a stall of 50 ms cannot fall between two.
const INTERVAL: Duration = Duration::from_millis(20);

/// A file on the drive, opened past the page cache, each write durable.
pub(crate) struct Probe {
    file: File,
    block: Vec<u8>,
}

impl Probe {
    pub(crate) fn create(dir: &Path) -> Result<Probe> {
        let path = dir.join("probe");
        let what = || format!("cannot write {} past the page cache", path.display());
        std::fs::write(&path, vec![1; FILE_BYTES]).with_context(what)?;
        File::open(&path).and_then(|file| file.sync_all()).with_context(what)?;
        let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(&path).with_context(what)?;
        Ok(Probe { file, block: vec![2; 2 * WRITE_BYTES] })
    }

    /// Writes until told to stop.
    pub(crate) fn run(&self, timeline: &mut Timeline, stop: &AtomicBool) -> Result<()> {
        let skip = self.block.as_ptr().align_offset(WRITE_BYTES);
        let block = &self.block[skip..skip + WRITE_BYTES];
        let places = FILE_BYTES / WRITE_BYTES;
        for turn in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let started = Instant::now();
            let place = turn * 389 % places;
            self.file
                .write_all_at(block, (place * WRITE_BYTES) as u64)
                .context("the probe's write failed")?;
            let ended = Instant::now();
            timeline.record(started, ended, WRITE_BYTES as u64);
            std::thread::sleep((started + INTERVAL).saturating_duration_since(ended));
        }
        Ok(())
    }
}
