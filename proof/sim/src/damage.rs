//! Damage that drives take while they lie still: flipped bits and sectors that cannot be read any more.

use crate::{
    choices::Faults,
    scenario::{Scenario, log_uniform},
};
use quoin_base::{ByteRange, SliceId};
use quoin_drive::{HEAD_BYTES, MAX_SLICES, ROOT_BYTES, root_offset, slabs_start};
use quoin_world::{Thread, World};
use quoin_world_sim::{SimDisk, SimWorld};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{sync::Arc, time::Duration};

/// Bits that flip, or places that become unreadable, in one boot at the most.
const MOST_HITS: u64 = 60;
/// The same where the layout makes up for it.
const MOST_HITS_MADE_UP_FOR: u64 = 1000;
/// The most sectors that become unreadable together.
const MOST_SECTORS: u64 = 16;
/// The unit in which drives lose sectors.
const SECTOR_BYTES: u64 = 512;

/// Where a drive holds data segments: what is damaged there is covered by a checksum elsewhere.
pub(crate) fn data_region(scenario: &Scenario, drive: usize) -> ByteRange {
    let (len_bytes, _) = scenario.drives[drive];
    let first = journal_region(scenario, drive).end();
    ByteRange::new(first.min(len_bytes), len_bytes.saturating_sub(first))
}

/// Where a drive holds the journal.
pub(crate) fn journal_region(scenario: &Scenario, drive: usize) -> ByteRange {
    let (len_bytes, roles) = scenario.drives[drive];
    let journal_bytes = if roles.journal { scenario.format.journal_bytes.unwrap_or(0) } else { 0 };
    ByteRange::new(slabs_start(len_bytes, scenario.format.slab_bytes), journal_bytes)
}

/// Where drives have their root slots.
pub(crate) fn root_slots() -> ByteRange {
    let (first, last) = (root_offset(SliceId(0), 0), root_offset(SliceId(MAX_SLICES - 1), 1));
    ByteRange::from(first..last + ROOT_BYTES as u64)
}

/// Damages the roots of the one drive that this seed chose for it. The others have them, so that nothing may come of it.
pub(crate) fn damage_roots(seed: u64, slices: u8, disks: &[Arc<SimDisk>], rng: &mut ChaCha8Rng) {
    let victim = &disks[seed as usize % disks.len()];
    for (slice, slot) in (0..slices).flat_map(|slice| [(slice, 0), (slice, 1)]) {
        if rng.random_bool(0.8) {
            victim.flip_bit(ByteRange::new(root_offset(SliceId(slice), slot), ROOT_BYTES as u64));
        }
    }
}

/// The drive whose part of the journal this seed damages.
pub(crate) fn column_victim(seed: u64, scenario: &Scenario) -> usize {
    let journal_drives = scenario.drives.iter().filter(|(_, roles)| roles.journal).count();
    seed as usize % journal_drives
}

/// Damages what one drive has of the journal, or sets it back to what it was before an earlier boot. Others have it all.
///
/// It is set back only to what it was when the pool was closed. After a power failure it may hold a batch that no other
/// drive has. If damage hides that batch at the next opening, the pool goes on without it, and it must not come back.
pub(crate) fn damage_column(
    victim: &SimDisk,
    journal: ByteRange,
    was_closed: bool,
    old: &mut Vec<u8>,
    rng: &mut ChaCha8Rng,
) {
    let keeps = old.is_empty() || rng.random_bool(0.3);
    let kept = (keeps && was_closed).then(|| victim.peek(journal.offset, journal.len as usize));
    match rng.random_range(0..4) {
        0 => victim.poke(journal.offset, &vec![0; journal.len as usize]),
        1 if !old.is_empty() => victim.poke(journal.offset, old),
        2 => (0..log_uniform(rng, 1, 3000)).for_each(|_| _ = victim.flip_bit(journal)),
        _ => {
            for _ in 0..log_uniform(rng, 1, 300) {
                let sectors = log_uniform(rng, 1, 64);
                let first = rng.random_range(0..=journal.len / SECTOR_BYTES - sectors);
                let range = ByteRange::new(journal.offset + first * SECTOR_BYTES, sectors * SECTOR_BYTES);
                victim.spoil(range);
            }
        }
    }
    *old = kept.unwrap_or_else(|| std::mem::take(old));
}

/// Damages drives again and again while the pool is at work, as the seed's faults have it.
pub(crate) fn spawn(world: &Arc<SimWorld>, scenario: &Scenario, disks: &[Arc<SimDisk>], seed: u64) {
    let drives: Vec<_> = disks
        .iter()
        .enumerate()
        .filter(|(i, _)| scenario.may_be_spoiled(*i))
        .map(|(i, disk)| (disk.clone(), data_region(scenario, i), journal_region(scenario, i)))
        .collect();
    let (task_world, faults) = (world.clone(), scenario.faults);
    // Of few drives more, for all of it must be made up for.
    let most_hits = if scenario.is_made_up_for() { MOST_HITS_MADE_UP_FOR } else { MOST_HITS };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    world.spawn(
        Thread::Background,
        Box::pin(async move {
            for _ in 0..log_uniform(&mut rng, 1, most_hits) {
                task_world.sleep(Duration::from_micros(log_uniform(&mut rng, 10, 20_000))).await;
                let (disk, data, journal) = &drives[rng.random_range(0..drives.len())];
                if faults == Faults::Rot {
                    if data.len > 0 {
                        disk.flip_bit(*data);
                    }
                    continue;
                }
                let region = match rng.random_range(0..20) {
                    0 => ByteRange::new(0, HEAD_BYTES),
                    1..=3 => *journal,
                    _ => *data,
                };
                let sectors = log_uniform(&mut rng, 1, MOST_SECTORS).min(region.len / SECTOR_BYTES);
                if sectors > 0 {
                    let first = rng.random_range(0..=region.len / SECTOR_BYTES - sectors);
                    let range = ByteRange::new(first * SECTOR_BYTES, sectors * SECTOR_BYTES);
                    disk.spoil(ByteRange::new(region.offset + range.offset, range.len));
                }
            }
        }),
    );
}
