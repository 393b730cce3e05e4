//! Silent corruption at rest: bits flip on the medium, and the drive does not know.

use crate::{EmulateError, EmulatedDrive};
use quoin_world::{Buf, Disk, DiskOp};
use std::collections::BTreeSet;

/// What is corrupted at once.
const PAGE_BYTES: u64 = 4096;
/// Where pages that hold something are looked for at once.
const REGION_BYTES: u64 = 1 << 20;
/// So many regions are tried at random for each page, and no fewer than the second number in all.
const TRIES_PER_PAGE: u64 = 64;
const LEAST_TRIES: u64 = 1024;
/// Where random tries find too little, so many regions are read one after the other.
const MOST_IN_ORDER: u64 = 16 << 10;

/// What was corrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The first bytes of the pages, in ascending order.
    pub offsets: Vec<u64>,
}

/// Numbers that follow from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Flips bits in pages of `disk` that are not all zero, from byte `from` on.
pub(crate) async fn corrupt(
    drive: &EmulatedDrive,
    disk: &dyn Disk,
    from: u64,
    pages: u32,
    seed: u64,
) -> Result<Corruption, EmulateError> {
    let mut draws = Draws(seed);
    let chosen = choose(disk, from, u64::from(pages), &mut draws).await?;
    if chosen.is_empty() {
        return Err(EmulateError::Blank);
    }
    for offset in &chosen {
        // NOTE: no other operation is under way: what is written here never undoes a write.
        let _hold = drive.hold().await?;
        let mut page = read(disk, *offset, PAGE_BYTES).await?;
        let at = draws.below(PAGE_BYTES) as usize;
        let flipped = 1 + draws.below(255) as u8;
        page.as_mut_slice()[at] ^= flipped;
        let data = vec![page.into_slice()];
        disk.submit(DiskOp::Write { offset: *offset, data, durable: true }).await?;
    }
    Ok(Corruption { offsets: chosen.into_iter().collect() })
}

/// Pages that hold something: at random where that finds enough, else the first ones too.
async fn choose(
    disk: &dyn Disk,
    from: u64,
    pages: u64,
    draws: &mut Draws,
) -> Result<BTreeSet<u64>, EmulateError> {
    let first = from.next_multiple_of(PAGE_BYTES);
    let end = disk.len_bytes() / PAGE_BYTES * PAGE_BYTES;
    let regions = end.saturating_sub(first).div_ceil(REGION_BYTES);
    let mut chosen = BTreeSet::new();
    if regions == 0 {
        return Ok(chosen);
    }
    let wanted = |chosen: &BTreeSet<u64>| (chosen.len() as u64) < pages;
    let mut tries = (TRIES_PER_PAGE * pages).max(LEAST_TRIES);
    while wanted(&chosen) && tries > 0 {
        tries -= 1;
        let region = first + draws.below(regions) * REGION_BYTES;
        let held = held_pages(disk, region, end, &chosen).await?;
        if !held.is_empty() {
            chosen.insert(held[draws.below(held.len() as u64) as usize]);
        }
    }
    // What lies in few places of a large drive is hardly ever hit.
    for region in 0..regions.min(MOST_IN_ORDER) {
        if !wanted(&chosen) {
            break;
        }
        let held = held_pages(disk, first + region * REGION_BYTES, end, &chosen).await?;
        let missing = (pages - chosen.len() as u64) as usize;
        chosen.extend(held.into_iter().take(missing));
    }
    Ok(chosen)
}

/// The pages of a region that are not all zero, without those that are chosen already.
async fn held_pages(
    disk: &dyn Disk,
    region: u64,
    end: u64,
    chosen: &BTreeSet<u64>,
) -> Result<Vec<u64>, EmulateError> {
    let content = read(disk, region, REGION_BYTES.min(end - region)).await?;
    let pages = content.chunks_exact(PAGE_BYTES as usize).zip((region..).step_by(PAGE_BYTES as usize));
    let held = pages.filter(|(page, offset)| page.iter().any(|b| *b != 0) && !chosen.contains(offset));
    Ok(held.map(|(_, offset)| offset).collect())
}

async fn read(disk: &dyn Disk, offset: u64, len: u64) -> Result<Buf, EmulateError> {
    Ok(disk.submit(DiskOp::Read { offset, buf: Buf::zeroed(len as usize) }).await?)
}
