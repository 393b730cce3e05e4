//! The files under the targets: written out once, read through before every run, and probed, past the page cache and
//! without any target.
//!
//! Behind a virtual drive there is often a cache of the host: what was not touched lately is read ten times slower. So
//! every file is read through before it is used, and a short probe shows that no target had the slower file. A probe
//! that writes leaves every byte as it was: it writes back what it has read, while no target uses the file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quoin_initiator::Rng;
use rustix::fs::{Advice, OFlags, fadvise};

/// Alignment that `O_DIRECT` asks for on any drive.
const ALIGN: usize = 4096;
const CHUNK_BYTES: u64 = 1 << 20;
const READERS: usize = 4;
/// Bytes that each thread of a writing probe keeps, to write them back over and over.
const KEPT_BYTES: u64 = 4 << 20;
const KEPT_BLOCKS_MOST: u64 = 64;

/// What a probe does, which is what the row does: each of `depth` threads has one transfer under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Durable writes, instead of reads.
    pub(crate) write: bool,
    pub(crate) random: bool,
    pub(crate) io_bytes: u64,
    pub(crate) depth: usize,
}

/// Writes a file of so many bytes that cannot be shortened.
pub(crate) fn write_noise(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    let mut rng = Rng::new(7);
    let mut left = bytes;
    while left > 0 {
        rng.fill(&mut chunk);
        let take = left.min(CHUNK_BYTES);
        file.write_all(&chunk[..take as usize])?;
        left -= take;
    }
    Ok(file.sync_all()?)
}

/// Reads all of a file from the drive, once nothing of it is left in the page cache; returns MB/s.
pub(crate) fn read_through(path: &Path) -> Result<f64> {
    let cached = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    cached.sync_all()?;
    fadvise(&cached, 0, None, Advice::DontNeed)?;
    let bytes = cached.metadata()?.len();
    let chunks = bytes / CHUNK_BYTES;
    ensure!(chunks > 0, "{} is smaller than a MiB", path.display());
    let file = open(path, OFlags::DIRECT, false)?;
    let next = AtomicU64::new(0);
    let started = Instant::now();
    together(READERS, |_| {
        let mut buffer = Aligned::new(CHUNK_BYTES);
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return Ok(0);
            }
            file.read_exact_at(buffer.bytes(), chunk * CHUNK_BYTES)?;
        }
    })
    .with_context(|| format!("cannot read {} through", path.display()))?;
    Ok((chunks * CHUNK_BYTES) as f64 / 1e6 / started.elapsed().as_secs_f64())
}

/// What the drive does on this file for so long, in MB/s. The file holds the same afterwards.
pub(crate) fn probe(path: &Path, probe: Probe, seconds: f64) -> Result<f64> {
    let what = || format!("cannot probe {}", path.display());
    let flags = if probe.write { OFlags::DIRECT | OFlags::DSYNC } else { OFlags::DIRECT };
    let file = open(path, flags, probe.write).with_context(what)?;
    let bytes = file.metadata()?.len();
    let part = bytes / probe.depth as u64 / probe.io_bytes;
    ensure!(part > 0, "{}: too small for {} transfers of {} bytes", what(), probe.depth, probe.io_bytes);
    let barrier = Barrier::new(probe.depth);
    let ios = together(probe.depth, |number| {
        // Each thread has a part of the file for itself: nobody writes back what another has just changed.
        let start = number as u64 * part * probe.io_bytes;
        let mut rng = Rng::new(number as u64 + 1);
        let mut cursor = 0;
        let mut place = || {
            let block = if probe.random { rng.below(part) } else { cursor % part };
            cursor += 1;
            start + block * probe.io_bytes
        };
        let kept = if probe.write { (KEPT_BYTES / probe.io_bytes).clamp(1, KEPT_BLOCKS_MOST) } else { 1 };
        let mut blocks = Vec::new();
        let mut readied = Ok(());
        for _ in 0..kept {
            let (at, mut block) = (place(), Aligned::new(probe.io_bytes));
            if probe.write && readied.is_ok() {
                readied = file.read_exact_at(block.bytes(), at);
            }
            blocks.push((at, block));
        }
        barrier.wait();
        readied?;
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut ios = 0;
        while Instant::now() < end {
            let (at, block) = &mut blocks[(ios % kept) as usize];
            if probe.write {
                file.write_all_at(block.bytes(), *at)?
            } else {
                file.read_exact_at(block.bytes(), place())?
            }
            ios += 1;
        }
        Ok(ios)
    })
    .with_context(what)?;
    Ok((ios * probe.io_bytes) as f64 / 1e6 / seconds)
}

fn open(path: &Path, flags: OFlags, write: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(write).custom_flags(flags.bits() as i32);
    options.open(path).with_context(|| format!("cannot open {} past the page cache", path.display()))
}

/// Runs a function on several threads, each with its number; the sum of what they return.
fn together(threads: usize, act: impl Fn(usize) -> Result<u64> + Sync) -> Result<u64> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || act(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a reader panicked")).sum()
    })
}

/// A buffer as `O_DIRECT` wants it.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(bytes: u64) -> Aligned {
        let len = bytes as usize;
        let memory = vec![0; len + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        Aligned { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_the_file_as_it_was() {
        // Not in a temporary directory: a file system in RAM may refuse O_DIRECT.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        write_noise(&path, 16 << 20).unwrap();
        let before = std::fs::read(&path).unwrap();
        for (write, random, io_bytes) in
            [(true, true, 8 << 10), (true, false, 1 << 20), (false, true, 8 << 10), (false, false, 64 << 10)]
        {
            let kind = Probe { write, random, io_bytes, depth: 4 };
            assert!(probe(&path, kind, 0.02).unwrap() > 0.0);
        }
        assert!(read_through(&path).unwrap() > 0.0);
        assert!(std::fs::read(&path).unwrap() == before, "the probe changed the file");
    }

    #[test]
    fn a_file_too_small_is_refused() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        write_noise(&path, 512 << 10).unwrap();
        assert!(read_through(&path).is_err());
        let kind = Probe { write: false, random: false, io_bytes: 1 << 20, depth: 1 };
        assert!(probe(&path, kind, 0.01).is_err());
    }
}
