//! What is wrong on as many drives as a layout makes up for is read from the others, written again and counted.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{ByteRange, Compression, KIB, Layout, MIB, VolumeId};
use quoin_drive::{LABEL_OFFSETS, Label};
use quoin_pool::{Pool, PoolOptions, Scrub, ScrubCounts, ScrubPosition, Transaction};
use quoin_world::World;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{sync::Arc, time::Duration};

const LAYOUTS: [&str; 5] = ["mirror", "mirror-3", "raid5", "raid6", "4+2"];
const BLOCK: u64 = 8 * KIB;
const BLOCKS: u64 = 800;

/// What happens to a drive.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Damage {
    Flipped,
    Unreadable,
}

const ALL: [(Damage, Compression); 4] = [
    (Damage::Flipped, Compression::Off),
    (Damage::Unreadable, Compression::Off),
    (Damage::Flipped, Compression::Lz4),
    (Damage::Unreadable, Compression::Lz4),
];

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

/// A pool with blocks, some of them overwritten, closed; and its volume.
fn filled(seed: u64, layout: Layout) -> (Rig, VolumeId) {
    filled_with(seed, layout, Compression::Off)
}

/// The same in a volume that is compressed so: then blocks share pages.
fn filled_with(seed: u64, layout: Layout, compression: Compression) -> (Rig, VolumeId) {
    let rig = Rig::protected(seed, layout, 24 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        pool.commit(Transaction::new().compress(volume, compression)).await.unwrap();
        for round in [1, 2] {
            for block in (0..BLOCKS).step_by(round as usize) {
                pool.write(volume, block * BLOCK, vec![pattern(block + round * 1000, BLOCK as usize)])
                    .await
                    .unwrap();
            }
            pool.drain().await.unwrap();
        }
        pool.close().await.unwrap();
        volume
    });
    rig.check();
    (rig, volume)
}

fn expected(block: u64) -> Vec<u8> {
    let round = if block.is_multiple_of(2) { 2 } else { 1 };
    pattern(block + round * 1000, BLOCK as usize).to_vec()
}

/// Where a drive holds segments.
fn data_region(rig: &Rig, drive: usize) -> ByteRange {
    let disk = &rig.disks[drive];
    let label = LABEL_OFFSETS.into_iter().find_map(|at| {
        let bytes = disk.peek(at, quoin_drive::LABEL_BYTES);
        Label::in_bytes(bytes.as_slice().try_into().ok()?)
    });
    let label = label.unwrap();
    let first = label.slabs_start_bytes + u64::from(label.journal_slabs) * u64::from(label.slab_bytes);
    ByteRange::from(first..label.len_bytes)
}

fn damage(rig: &Rig, drive: usize, how: Damage, rng: &mut ChaCha8Rng) {
    let region = data_region(rig, drive);
    for _ in 0..800 {
        match how {
            Damage::Flipped => drop(rig.disks[drive].flip_bit(region)),
            Damage::Unreadable => {
                let sector = rng.random_range(0..region.len / 512 - 4);
                rig.disks[drive].spoil(ByteRange::new(region.offset + sector * 512, 2048));
            }
        }
    }
}

async fn scrub(pool: &Arc<Pool>) -> (ScrubCounts, Vec<(String, u64)>) {
    let scrub = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
    assert!(scrub.run().await.unwrap());
    assert_eq!(pool.take_damage(), [], "{:?}", scrub.notes());

    (scrub.progress().1, scrub.repairs())
}

fn repairs(counts: &ScrubCounts) -> u64 {
    counts.repaired.total()
}

#[test]
fn reads_return_what_was_written_and_write_it_again() {
    for (seed, text) in (1..).zip(LAYOUTS) {
        for (how, compression) in ALL {
            let (rig, volume) = filled_with(seed, layout(text), compression);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let victims: Vec<_> = (0..usize::from(layout(text).parity())).collect();
            victims.iter().for_each(|drive| damage(&rig, *drive, how, &mut rng));
            let pool = rig.open();
            let untouched = rig.disks.len() - 1;
            rig.run(|_| async move {
                for turn in [1, 2] {
                    for block in 0..BLOCKS {
                        let content = read(&pool, volume, block * BLOCK, BLOCK).await;
                        assert!(content == expected(block), "{text} {how:?} {turn}: {block}");
                    }
                }
                let stats = pool.stats();
                let repaired = stats.repaired_data + stats.repaired_copies;
                assert!(repaired > 0, "{text} {how:?}: {stats:?}");
                assert_eq!((stats.medium_errors, stats.lost_blocks), (0, 0));
                let told = pool.take_repairs();
                let of = |name: &str| told.iter().find(|(drive, _)| drive == name).map(|(_, counts)| *counts);
                assert!(victims.iter().any(|drive| of(&format!("d{drive}")).is_some()), "{told:?}");
                assert_eq!(of(&format!("d{untouched}")), None, "{told:?}");
                let sum: u64 = told.iter().map(|(_, counts)| counts.total() - counts.metadata).sum();
                assert_eq!(sum, repaired);
                assert_eq!(pool.take_repairs(), []);
                // Nothing is left to repair of what was read.
                for block in 0..BLOCKS {
                    read(&pool, volume, block * BLOCK, BLOCK).await;
                }
                let again = pool.stats();
                assert_eq!(again.repaired_data + again.repaired_copies, repaired, "{text} {how:?}");
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn a_scrub_repairs_everything_and_the_next_finds_nothing() {
    for (seed, text) in (1..).zip(LAYOUTS) {
        for (how, compression) in ALL {
            let (rig, volume) = filled_with(seed + 10, layout(text), compression);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let parity = usize::from(layout(text).parity());
            (0..parity).for_each(|drive| damage(&rig, drive, how, &mut rng));
            assert!(!rig.problems().is_empty(), "{text} {how:?}");
            let pool = rig.open();
            rig.run(|_| async move {
                let (counts, by_drive) = scrub(&pool).await;
                assert_eq!((counts.damage(), counts.failed_reads), (0, 0), "{text} {how:?}: {counts:?}");
                let by_kind = [counts.repaired.data, counts.repaired.copies, counts.repaired.parity];
                match layout(text).data() {
                    1 => assert!(by_kind[0] == 0 && by_kind[1] > 0 && by_kind[2] == 0, "{text}: {by_kind:?}"),
                    // Metadata lies in mirrors.
                    _ => assert!(by_kind[0] > 0 && by_kind[2] > 0, "{text} {how:?}: {by_kind:?}"),
                }

                for (drive, count) in &by_drive {
                    let number: usize = drive[1..].parse().unwrap();
                    assert!((0..parity).contains(&number) && *count > 0, "{text} {how:?}: {by_drive:?}");
                }
                assert!(!by_drive.is_empty());
                pool.checkpoint().await.unwrap();
                let (counts, by_drive) = scrub(&pool).await;
                assert_eq!((counts.damage(), repairs(&counts), by_drive), (0, 0, vec![]), "{text} {how:?}");
                for block in 0..BLOCKS {
                    assert!(read(&pool, volume, block * BLOCK, BLOCK).await == expected(block));
                }
                pool.close().await.unwrap();
            });
            assert_eq!(rig.problems(), [""; 0], "{text} {how:?}");
        }
    }
}

/// Also what lies in segments that hosts were writing to a moment ago, and goes on while they write to others.
#[test]
fn a_scrub_compares_segments_that_were_open() {
    // With so much room that nothing is cleaned, which seals what is open.
    let rig = Rig::protected(41, layout("raid5"), 128 * MIB);
    let pool = rig.open_with(PoolOptions { place_from: 16 * KIB, ..options() });
    let disks = rig.disks.clone();
    let slabs = data_region(&rig, 1);
    rig.run(|world| async move {
        let volume = create(&pool).await;
        // A large write is placed by the thread that it came on, in a segment that stays open. The first ones are not.
        for _ in 0..20 {
            pool.write(volume, 0, vec![pattern(1, MIB as usize)]).await.unwrap();
            world.sleep(Duration::from_millis(5)).await;
        }
        assert!(pool.stats().placed_bytes > 0, "{:?}", pool.stats());
        for _ in 0..20_000 {
            disks[1].flip_bit(slabs);
        }
        let writer = async {
            for at in 0..64 {
                pool.write(volume, 8 * MIB + at * BLOCK, vec![pattern(at, BLOCK as usize)]).await.unwrap();
            }
        };
        let ((counts, _), ()) = futures_util::future::join(scrub(&pool), writer).await;
        assert!(counts.damage() == 0 && repairs(&counts) > 0, "{counts:?}");
        assert!(read(&pool, volume, 0, MIB).await == pattern(1, MIB as usize).to_vec());
        pool.close().await.unwrap();
    });
    // Parity and what is dead included.
    assert_eq!(rig.problems(), [""; 0]);
}

#[test]
fn what_a_drive_holds_that_goes_away_meanwhile_is_not_damaged() {
    let mut failed_reads = 0;
    for after in 0..40 {
        let (rig, volume) = filled(51, layout("mirror"));
        let (pool, disk) = (rig.open(), rig.disks[0].clone());
        failed_reads += rig.run(|world| async move {
            let goes = async {
                world.sleep(Duration::from_micros(500 * after)).await;
                disk.vanish();
            };
            let (counts, ()) = futures_util::future::join(scrub(&pool), goes).await;
            let counts = counts.0;
            assert_eq!((counts.damage(), counts.damaged_pages, repairs(&counts)), (0, 0, 0), "{counts:?}");
            for block in 0..BLOCKS {
                assert!(read(&pool, volume, block * BLOCK, BLOCK).await == expected(block), "{block}");
            }
            counts.failed_reads
        });
    }
    assert!(failed_reads > 0, "some of it was being read just then");
}

/// Other drives are damaged than before, so that what was repaired is needed.
#[test]
fn what_was_repaired_is_good_for_repairs() {
    for (seed, text) in (1..).zip(LAYOUTS) {
        let (rig, volume) = filled_with(seed + 20, layout(text), Compression::Lz4);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parity = usize::from(layout(text).parity());
        for turn in 0..3 {
            for victim in 0..parity {
                damage(&rig, (turn * parity + victim) % rig.disks.len(), Damage::Flipped, &mut rng);
            }
            let pool = rig.open();
            rig.run(|_| async move {
                let (counts, _) = scrub(&pool).await;
                assert_eq!(counts.damage(), 0, "{text} {turn}: {counts:?}");
                assert!(repairs(&counts) > 0);
                for block in 0..BLOCKS {
                    assert!(read(&pool, volume, block * BLOCK, BLOCK).await == expected(block));
                }
                pool.close().await.unwrap();
            });
            assert_eq!(rig.problems(), [""; 0], "{text} {turn}");
        }
    }
}

#[test]
fn what_cannot_be_made_up_for_is_damage_and_the_rest_is_repaired() {
    let (rig, volume) = filled(31, layout("raid5"));
    // One more than it makes up for.
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    (0..2).for_each(|drive| {
        damage(&rig, drive, Damage::Flipped, &mut rng);
        damage(&rig, drive, Damage::Flipped, &mut rng);
    });
    let pool = rig.open();
    rig.run(|_| async move {
        let (mut read_right, mut failed) = (0, 0);
        for block in 0..BLOCKS {
            match pool.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await {
                Ok(content) => {
                    let content: Vec<u8> = content.iter().flat_map(|slice| slice.to_vec()).collect();
                    assert!(content == expected(block), "{block}");
                    read_right += 1;
                }
                Err(_) => failed += 1,
            }
        }
        assert!(read_right > 0 && failed > 0, "{read_right} right, {failed} failed");
        let scrub = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
        assert!(scrub.run().await.unwrap());
        let counts = scrub.progress().1;
        assert!(counts.damaged_blocks > 0 && repairs(&counts) > 0, "{counts:?}");
        pool.close().await.unwrap();
    });
}

/// Whether reads repair what is wrong on a drive for good, a scrub repairs the rest, and the next finds nothing.
#[cfg(feature = "planted-bugs")]
fn is_repaired(seed: u64) -> bool {
    let (rig, volume) = filled_with(seed, layout("raid5"), Compression::Lz4);
    damage(&rig, 0, Damage::Flipped, &mut ChaCha8Rng::seed_from_u64(seed));
    let pool = rig.open();
    let is_sound = rig.run(|_| async move {
        let mut repaired = Vec::new();
        for _ in 0..2 {
            for block in 0..BLOCKS {
                if pool.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await.is_err() {
                    return false;
                }
            }
            repaired.push(pool.stats().repaired_data);
        }
        let left_by_reads = repaired[1] - repaired[0];
        let mut second = 0;
        for _ in 0..2 {
            let scrub = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
            scrub.run().await.unwrap();
            let counts = scrub.progress().1;
            second = counts.damage() + repairs(&counts);
            pool.checkpoint().await.unwrap();
        }
        for block in 0..BLOCKS {
            let Ok(content) = pool.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await else {
                return false;
            };
            let content: Vec<u8> = content.iter().flat_map(|slice| slice.to_vec()).collect();
            if content != expected(block) {
                return false;
            }
        }
        pool.close().await.unwrap();
        left_by_reads + second == 0
    });
    is_sound && rig.problems().is_empty()
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_of_repairs_are_found() {
    use quoin_pool::bugs::{Bug, plant};
    assert!(is_repaired(41));
    for bug in [Bug::RepairLate, Bug::TrustParity, Bug::RepairNextColumn, Bug::RepairOverNeighbours] {
        plant(Some(bug));
        let is_repaired = is_repaired(41);
        plant(None);
        assert!(!is_repaired, "{bug:?}");
    }
}
