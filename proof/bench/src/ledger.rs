//! What was written where, and whether what is read is that.
//!
//! Every 512-byte sector written carries its own address, the version of its block, the run's seed and a checksum
//! over all of it. The ledger remembers each block's version. So a lost write, a torn write, a misdirected write, a
//! stale read and a flipped bit are told apart.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use quoin_base::crc32c;
use serde::{Deserialize, Serialize};

use quoin_initiator::Rng;

const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: usize = 24;

/// The part of a ledger that is not versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// First byte of the logical unit covered.
    pub(crate) start: u64,
    /// Bytes in a block, the unit of versions.
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) seed: u64,
}

/// Versions of the blocks of one extent; version 0 is "never written by us".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) extent: Extent,
    versions: Vec<u32>,
    busy: Vec<bool>,
}

impl Ledger {
    pub(crate) fn new(extent: Extent) -> Ledger {
        let blocks = extent.blocks as usize;
        Ledger { extent, versions: vec![0; blocks], busy: vec![false; blocks] }
    }

    fn blocks_of(&self, offset: u64, len: usize) -> std::ops::Range<usize> {
        let block = u64::from(self.extent.block_bytes);
        let first = (offset - self.extent.start) / block;
        first as usize..(first + len as u64 / block) as usize
    }

    /// Reserves the blocks for one transfer; false if one is in flight on any of them.
    pub(crate) fn reserve(&mut self, offset: u64, len: usize) -> bool {
        let range = self.blocks_of(offset, len);
        let free = !self.busy[range.clone()].contains(&true);
        if free {
            self.busy[range].fill(true);
        }
        free
    }

    pub(crate) fn release(&mut self, offset: u64, len: usize) {
        let range = self.blocks_of(offset, len);
        self.busy[range].fill(false);
    }

    /// Raises the versions of the blocks and stamps their new contents into `data`.
    pub(crate) fn stamp(&mut self, offset: u64, data: &mut [u8]) {
        let block_bytes = self.extent.block_bytes as usize;
        for (index, block) in self.blocks_of(offset, data.len()).zip(data.chunks_exact_mut(block_bytes)) {
            self.versions[index] += 1;
            let at = self.extent.start + index as u64 * block_bytes as u64;
            for (number, sector) in block.chunks_exact_mut(SECTOR_BYTES).enumerate() {
                let address = at + (number * SECTOR_BYTES) as u64;
                stamp_sector(sector, address, self.versions[index], self.extent.seed);
            }
        }
    }

    /// Checks what was read; returns the number of blocks checked (those written before).
    pub(crate) fn check(&self, offset: u64, data: &[u8]) -> Result<u64, String> {
        let block_bytes = self.extent.block_bytes as usize;
        let mut checked = 0;
        for (index, block) in self.blocks_of(offset, data.len()).zip(data.chunks_exact(block_bytes)) {
            let version = self.versions[index];
            if version == 0 {
                continue;
            }
            let at = self.extent.start + index as u64 * block_bytes as u64;
            for (number, sector) in block.chunks_exact(SECTOR_BYTES).enumerate() {
                let address = at + (number * SECTOR_BYTES) as u64;
                check_sector(sector, address, version, self.extent.seed)
                    .map_err(|why| format!("byte {address} (block {index} of the working set): {why}"))?;
            }
            checked += 1;
        }
        Ok(checked)
    }

    /// Appends the ledger to a file: one line of JSON, then the versions as little-endian 32-bit numbers.
    fn write_to(&self, file: &mut impl Write) -> Result<()> {
        serde_json::to_writer(&mut *file, &self.extent)?;
        file.write_all(b"\n")?;
        for version in &self.versions {
            file.write_all(&version.to_le_bytes())?;
        }
        Ok(())
    }

    fn read_from(file: &mut impl Read) -> Result<Option<Ledger>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while file.read(&mut byte)? == 1 && byte[0] != b'\n' {
            ensure!(line.len() < 4096, "the line of JSON is too long");
            line.push(byte[0]);
        }
        if line.is_empty() {
            return Ok(None);
        }
        let extent: Extent = serde_json::from_slice(&line)?;
        ensure!(
            extent.blocks < 1 << 32 && extent.block_bytes.is_multiple_of(512),
            "it describes an absurd extent"
        );
        ensure!(extent.block_bytes > 0, "it describes an absurd extent");
        let mut versions = Vec::new();
        file.take(extent.blocks * 4).read_to_end(&mut versions)?;
        ensure!(versions.len() as u64 == extent.blocks * 4, "it is cut short");
        let mut ledger = Ledger::new(extent);
        for (version, bytes) in ledger.versions.iter_mut().zip(versions.chunks_exact(4)) {
            *version = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(Some(ledger))
    }
}

/// Saves the ledgers of a run, one per session.
pub(crate) fn save(path: &Path, ledgers: &[Ledger]) -> Result<()> {
    let what = || format!("cannot save the ledger {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(what)?);
    for ledger in ledgers {
        ledger.write_to(&mut file).with_context(what)?;
    }
    file.flush().with_context(what)
}

/// Loads what [`save`] saved.
pub(crate) fn load(path: &Path) -> Result<Vec<Ledger>> {
    let what = || format!("cannot use the ledger {}", path.display());
    let mut file = BufReader::new(File::open(path).with_context(what)?);
    let mut ledgers = Vec::new();
    while let Some(ledger) = Ledger::read_from(&mut file).with_context(what)? {
        ledgers.push(ledger);
    }
    ensure!(!ledgers.is_empty(), "cannot use the ledger {}: it is empty", path.display());
    Ok(ledgers)
}

/// Layout: crc32c of the rest (4), version (4), address (8), seed (8), noise that follows from these.
fn stamp_sector(sector: &mut [u8], address: u64, version: u32, seed: u64) {
    sector[4..8].copy_from_slice(&version.to_le_bytes());
    sector[8..16].copy_from_slice(&address.to_le_bytes());
    sector[16..24].copy_from_slice(&seed.to_le_bytes());
    Rng::new(seed ^ address.rotate_left(32) ^ u64::from(version)).fill(&mut sector[HEADER_BYTES..]);
    let sum = crc32c(&sector[4..]);
    sector[..4].copy_from_slice(&sum_bytes(sum));
}

fn check_sector(sector: &[u8], address: u64, version: u32, seed: u64) -> Result<(), String> {
    let u64_at = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("eight bytes"));
    if sector[..4] != sum_bytes(crc32c(&sector[4..])) {
        return Err(if sector.iter().all(|&byte| byte == 0) {
            format!("all zeroes instead of version {version}: the write is lost")
        } else {
            "the checksum is wrong: the data is corrupt".to_owned()
        });
    }
    let found = u32::from_le_bytes(sector[4..8].try_into().expect("four bytes"));
    if u64_at(16) != seed {
        return Err(format!("data of another run (seed {}): the write is lost", u64_at(16)));
    }
    if u64_at(8) != address {
        return Err(format!("data that belongs to byte {}: misdirected", u64_at(8)));
    }
    if found != version {
        return Err(format!("version {found} instead of {version}: stale or lost write"));
    }
    Ok(())
}

fn sum_bytes(sum: quoin_base::Crc32c) -> [u8; 4] {
    sum.0.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(Extent { start: 1 << 20, block_bytes: 4096, blocks: 8, seed: 42 })
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        let mut ledger = ledger();
        let at = (1 << 20) + 4096;
        let (mut old, mut new) = (vec![0; 8192], vec![0; 8192]);
        assert_eq!(ledger.check(at, &new), Ok(0), "what was never written is not judged");
        ledger.stamp(at, &mut old);
        ledger.stamp(at, &mut new);
        assert_eq!(ledger.check(at, &new), Ok(2));

        let blame = |data: &[u8]| ledger.check(at, data).unwrap_err();
        assert!(blame(&old).contains("version 1 instead of 2"));
        assert!(blame(&[0; 8192]).contains("all zeroes"));
        let mut torn = new.clone();
        torn[7680..].copy_from_slice(&old[7680..]);
        assert!(blame(&torn).starts_with(&format!("byte {}", at + 7680)), "{}", blame(&torn));
        let mut swapped = new[4096..].to_vec();
        swapped.extend_from_slice(&new[..4096]);
        assert!(blame(&swapped).contains("misdirected"));
        for bit in [0, 40, 70, 4095 * 8] {
            let mut flipped = new.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(blame(&flipped).contains("corrupt"), "bit {bit}");
        }
        let mut other = Ledger::new(Extent { seed: 43, ..ledger.extent });
        other.stamp(at, &mut old);
        assert!(blame(&old).contains("another run"));
    }

    #[test]
    fn transfers_on_one_block_exclude_each_other() {
        let mut ledger = ledger();
        let at = 1 << 20;
        assert!(ledger.reserve(at, 8192));
        assert!(!ledger.reserve(at + 4096, 8192));
        assert!(ledger.reserve(at + 8192, 4096));
        ledger.release(at, 8192);
        assert!(ledger.reserve(at + 4096, 4096));
    }

    #[test]
    fn a_saved_ledger_is_the_same_again_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let (mut one, two) = (ledger(), ledger());
        one.stamp(1 << 20, &mut [0; 4096]);
        save(&path, &[one.clone(), two.clone()]).unwrap();
        assert_eq!(load(&path).unwrap(), [one, two]);
        let bytes = std::fs::read(&path).unwrap();
        for damaged in [&bytes[..bytes.len() - 1], b"", b"{\"start\":0}\n", b"\xff"] {
            std::fs::write(&path, damaged).unwrap();
            assert!(load(&path).is_err());
        }
    }
}
