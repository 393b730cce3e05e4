//! Changing a pool's drive where its structures are, and making the checksums above right again.
//!
//! Where things lie is found by looking at the image, not by the engine's own code: a page that ends in the
//! CRC-64 of the rest is a label, root or extent header; rows and batches have their magic numbers; a metadata
//! page is one whose CRC-64 stands in another. So a change of a leaf is followed by changes of all pages up to
//! the root, as if the engine had written them.

use crate::{input::Input, world::Base};
use quoin_base::{crc32c, crc64};
use quoin_world_sim::SimDisk;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const PAGE: usize = 4096;
const SEAL: usize = PAGE - 8;
const ROW_MAGIC: &[u8] = b"QUOINRW1";
pub(crate) const BATCH_MAGIC: &[u8] = b"QUOINJB1";
pub(crate) const EXTENT_MAGIC: &[u8] = b"QUOINJX1";
/// Where a row head, and where a batch, has its checksum.
const ROW_CRC: usize = 56;
const META_CRC: usize = 36;
/// Checksums stand in pages no deeper than this below the root.
const DEEPEST: usize = 16;

/// What a page is, as far as mending goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// It ends in its own checksum.
    Sealed,
    Row,
    Batch,
    /// Others hold its checksum.
    Referred,
}

/// Where everything lies.
pub(crate) struct Atlas {
    pub(crate) places: Vec<(u64, Kind)>,
    kinds: BTreeMap<u64, Kind>,
    /// By page, where its checksum stands: page and offset in it.
    holders: BTreeMap<u64, Vec<(u64, usize)>>,
    /// Extent headers.
    pub(crate) extents: Vec<u64>,
    slab_bytes: u64,
}

impl Atlas {
    /// Of a drive with the pool `base`.
    pub(crate) fn new(disk: &SimDisk, len_bytes: u64, slab_bytes: u64) -> Self {
        let pages: BTreeMap<u64, Vec<u8>> = (0..len_bytes / PAGE as u64)
            .map(|page| (page * PAGE as u64, disk.peek(page * PAGE as u64, PAGE)))
            .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
            .collect();
        let by_crc: BTreeMap<u64, u64> = pages.iter().map(|(at, page)| (crc64(page).0, *at)).collect();
        let mut kinds = BTreeMap::new();
        let mut holders: BTreeMap<u64, Vec<(u64, usize)>> = BTreeMap::new();
        for (at, page) in &pages {
            if word(page, SEAL) == crc64(&page[..SEAL]).0 {
                kinds.insert(*at, Kind::Sealed);
            } else if page.starts_with(ROW_MAGIC) {
                kinds.insert(*at, Kind::Row);
            } else if page.starts_with(BATCH_MAGIC) {
                kinds.insert(*at, Kind::Batch);
            }
            for offset in (0..PAGE).step_by(8) {
                if let Some(held) = by_crc.get(&word(page, offset)).filter(|held| *held != at) {
                    holders.entry(*held).or_default().push((*at, offset));
                }
            }
        }
        for at in holders.keys() {
            kinds.entry(*at).or_insert(Kind::Referred);
        }
        let places = kinds.iter().map(|(at, kind)| (*at, *kind)).collect();
        let extents =
            pages.iter().filter(|(_, page)| page.starts_with(EXTENT_MAGIC)).map(|(at, _)| *at).collect();
        Self { places, kinds, holders, extents, slab_bytes }
    }

    /// Writes `bytes` into the page at `at`; `mend`: and makes all checksums right.
    pub(crate) fn change(&self, disk: &SimDisk, at: u64, offset: usize, bytes: &[u8], mend: bool) {
        let bytes = &bytes[..bytes.len().min(PAGE - offset)];
        disk.poke(at + offset as u64, bytes);
        if mend {
            self.mend(disk, at, &mut BTreeSet::new(), 0);
        }
    }

    fn mend(&self, disk: &SimDisk, at: u64, on_the_way: &mut BTreeSet<u64>, depth: usize) {
        if depth > DEEPEST || !on_the_way.insert(at) {
            return;
        }
        let mut page = disk.peek(at, PAGE);
        match self.kinds.get(&at) {
            Some(Kind::Sealed) => {
                let crc = crc64(&page[..SEAL]).0;
                disk.poke(at + SEAL as u64, &crc.to_le_bytes());
                if self.extents.contains(&at) {
                    self.mend_batches(disk, at);
                }
            }
            Some(Kind::Row) => {
                page[ROW_CRC..ROW_CRC + 8].fill(0);
                disk.poke(at + ROW_CRC as u64, &crc64(&page).0.to_le_bytes());
            }
            Some(Kind::Batch) => {
                let extent = self.extents.iter().rev().find(|extent| **extent < at);
                extent.iter().for_each(|extent| self.mend_batches(disk, **extent));
            }
            Some(Kind::Referred) | None => {
                let crc = crc64(&page).0;
                for (holder, offset) in self.holders.get(&at).into_iter().flatten() {
                    disk.poke(holder + *offset as u64, &crc.to_le_bytes());
                    self.mend(disk, *holder, on_the_way, depth + 1);
                }
            }
        }
        on_the_way.remove(&at);
    }

    /// The chain of batches behind an extent's header, as far as there are any.
    pub(crate) fn mend_batches(&self, disk: &SimDisk, extent: u64) {
        let crc = word(&disk.peek(extent, PAGE), SEAL);
        let (mut previous, mut at) = (crc as u32, PAGE as u64);
        while at + PAGE as u64 <= self.slab_bytes {
            let head = disk.peek(extent + at, 64);
            let (meta, total) = (u64::from(half(&head, 24)), u64::from(half(&head, 28)));
            if !head.starts_with(BATCH_MAGIC) || meta < 64 || at + meta > self.slab_bytes {
                break;
            }
            let mut bytes = disk.peek(extent + at, meta as usize);
            bytes[32..36].copy_from_slice(&previous.to_le_bytes());
            bytes[52..60].copy_from_slice(&crc.to_le_bytes());
            bytes[META_CRC..META_CRC + 4].fill(0);
            previous = crc32c(&bytes).0;
            bytes[META_CRC..META_CRC + 4].copy_from_slice(&previous.to_le_bytes());
            disk.poke(extent + at, &bytes[..64]);
            if total == 0 || !total.is_multiple_of(PAGE as u64) {
                break;
            }
            at += total;
        }
    }

    /// Makes the changes an input says, thirteen bytes each.
    pub(crate) fn edit(&self, disk: &SimDisk, input: &mut Input<'_>) {
        const WITHOUT_MENDING: u8 = 0x04;
        const WHOLE_PAGE: u8 = 0x08;
        const ADD: u8 = 0x10;
        let place = |number: usize| self.places[number % self.places.len()].0;
        let mut left = 32;
        while !input.is_empty() && left > 0 {
            left -= 1;
            let at = place(usize::from(input.u16()));
            let offset = usize::from(input.u16()) % PAGE;
            let kind = input.u8();
            let value = input.u64();
            let mend = kind & WITHOUT_MENDING == 0;
            if kind & WHOLE_PAGE != 0 {
                let page = disk.peek(place(value as usize), PAGE);
                self.change(disk, at, 0, &page, mend);
                continue;
            }
            let width = 1 << (kind & 3);
            let mut bytes = disk.peek(at, PAGE + 8)[offset..offset + 8].to_vec();
            let old = word(&bytes, 0);
            let new = if kind & ADD != 0 { old.wrapping_add(value) } else { value };
            bytes[..width].copy_from_slice(&new.to_le_bytes()[..width]);
            self.change(disk, at, offset, &bytes[..width], mend);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    word(bytes, at) as u32
}

/// Of the pool that [`Base`] holds.
pub(crate) fn atlas_of(base: &Base) -> Atlas {
    use crate::world::{Bench, DRIVE_BYTES, SLAB_BYTES};
    let bench = Bench::new(DRIVE_BYTES);
    bench.disk.restore(base.drive.clone());
    Atlas::new(&bench.disk, DRIVE_BYTES, SLAB_BYTES.into())
}
