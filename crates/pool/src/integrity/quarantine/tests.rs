//! Pages of thin maps and deadlists damaged on the drive, at every level, whatever is then done to the volumes: the pool stays
//! online, other volumes notice nothing, and in the end everything is counted again.

use super::*;
use crate::{
    CheckReport, Pool, Transaction,
    integrity::check::tests::{Rig, SLAB, SLABS_START_BYTES},
    meta::PageId,
};
use quoin_base::BlockIndex;
use quoin_world::Slice as Bytes;
use quoin_world_sim::FaultPlan;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BLOCK: u64 = 8192;
/// In three leaves, below two nodes of level 1.
const FAR: [u64; 3] = [0, 512, 512 * 512];

/// A volume's blocks, as a host would see them: `Err` for a medium error.
async fn read(pool: &Pool, volume: VolumeId, block: u64) -> Result<u8, String> {
    match pool.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await {
        Ok(slices) => Ok(slices[0][0]),
        Err(PoolError::Medium { reason, .. }) => Err(reason),
        Err(error) => panic!("volume {volume}, block {block}: {error}"),
    }
}

async fn write(pool: &Pool, volume: VolumeId, block: u64, byte: u8) {
    pool.write(volume, block * BLOCK, vec![Bytes::copy_of(&[byte; 8192])]).await.unwrap();
}

/// Waits until nothing is being given back any more.
async fn settle(pool: &Pool) {
    for _ in 0..1000 {
        pool.drain().await.unwrap();
        let stats = pool.stats();
        if pool.being_removed().is_empty() && stats.sifting_entries + stats.joining_layers == 0 {
            return;
        }
        pool.first().world().sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it never ends: {:?}", pool.being_removed());
}

/// The nodes on the way to a block, the leaf first.
async fn way(pool: &Pool, volume: VolumeId, block: u64) -> Vec<PageNumber> {
    let mut entry = pool.first().forks.of_volume(volume).unwrap().map_root();
    let mut way = vec![entry.node().unwrap()];
    for level in (1..TREE_LEVELS).rev() {
        let page = pool.first().tree_page(way[0]).await.unwrap().unwrap();
        entry = ThinEntry(page.get(slot(BlockIndex(block), level)));
        way.insert(0, entry.node().unwrap());
    }
    way
}

/// A volume with blocks in several leaves, and another one, all destaged and the pool closed.
fn rig() -> (Rig, VolumeId, VolumeId) {
    let rig = Rig::new();
    let (pool, volume) = (rig.open(), rig.volume);
    let other = rig.run(async move {
        let other = pool.next_volume_id();
        pool.commit(Transaction::new().create_volume(other)).await.unwrap();
        for base in FAR {
            for block in 0..8 {
                write(&pool, volume, base + block, 50 + block as u8).await;
                write(&pool, other, base + block, 70 + block as u8).await;
            }
        }
        pool.close().await.unwrap();
        other
    });
    (rig, volume, other)
}

fn damage(rig: &Rig, number: PageNumber) {
    let opened = rig.opened();
    let location = rig.page(&opened, node(number));
    rig.damage_at(&opened.io, location);
}

fn texts(problems: &[crate::Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// No problem is left, and what leaked is told.
#[track_caller]
fn is_clean(report: &CheckReport, leaked: u64) {
    assert!(report.is_clean(), "{:#?}", texts(&report.problems));
    let told =
        texts(&report.notes).iter().any(|note| note.contains(&format!("of which {leaked} references stay")));
    assert!(told, "{leaked}: {:#?}", texts(&report.notes));
}

#[test]
fn a_damaged_node_of_any_level_loses_what_it_maps_and_nothing_else() {
    for level in 0..TREE_LEVELS as usize {
        let (rig, volume, other) = rig();
        let pool = rig.open();
        let way = {
            let pool = pool.clone();
            rig.run(async move {
                let way = way(&pool, volume, 3).await;
                pool.close().await.unwrap();
                way
            })
        };
        damage(&rig, way[level]);
        let pool = rig.open();
        let bases = [[true, false, false], [true, true, false], [true; 3], [true; 3]][level];
        let lost = move |block: u64| {
            FAR.iter().zip(bases).any(|(base, lost)| lost && (*base..*base + 512).contains(&block))
        };
        let checker = pool.clone();
        rig.run(async move {
            let pool = checker;
            write(&pool, volume, 3, 99).await;
            pool.write(volume, 4 * BLOCK, vec![Bytes::copy_of(&[98; 512])]).await.unwrap();
            for drained in [false, true] {
                for block in FAR.iter().flat_map(|base| (0..8).map(move |block| base + block)) {
                    let found = read(&pool, volume, block).await;
                    match block {
                        3 => assert_eq!(found, Ok(99)),
                        4 if !drained => assert!(found.is_err(), "{level}"),
                        block if lost(block) => assert!(found.is_err(), "{level} {block}: {found:?}"),
                        block => assert_eq!(found, Ok(50 + (block % 512) as u8), "{level} {block}"),
                    }
                    assert_eq!(read(&pool, other, block).await, Ok(70 + (block % 512) as u8));
                }
                pool.drain().await.unwrap();
            }
            let first = pool.take_damage();
            let span = 512u64.pow(level as u32 + 1) * BLOCK;
            let told: Vec<_> = first.iter().filter(|d| d.range.len == span).collect();
            assert!(
                told.len() == 1 && told[0].volume == volume && told[0].range.offset == 0,
                "{level}: {first:?}"
            );
            write(&pool, volume, 5, 97).await;
            write(&pool, volume, 6, 96).await;
            pool.drain().await.unwrap();
            assert_eq!(pool.take_damage(), [], "told again");
            assert_eq!((read(&pool, volume, 5).await, read(&pool, volume, 6).await), (Ok(97), Ok(96)));
            assert_eq!(pool.first().leaked().pages, 1);
            pool.close().await.unwrap();
        });
        // Open again: everything that was kept is still so, and all of it can be unmapped.
        let pool = rig.open();
        let mapped = (FAR.iter().zip(bases).filter(|(_, lost)| *lost).count() * 8) as u64 + 56;
        let ended = pool.clone();
        rig.run(async move {
            let pool = ended;
            assert_eq!((read(&pool, volume, 3).await, pool.first().leaked().pages), (Ok(99), 1));
            let end = (512 * 512 + 512) * BLOCK;
            pool.unmap(volume, ByteRange::new(0, end)).await.unwrap();
            for base in FAR {
                assert_eq!(read(&pool, volume, base + 7).await, Ok(0));
            }
            settle(&pool).await;
            assert_eq!(read(&pool, volume, 7).await, Ok(0));
            pool.close().await.unwrap();
        });
        let report = rig.check();
        match level {
            // The leaf was all that is lost, and is unmapped.
            0..=1 => is_clean(&report, mapped),
            // What was never there is lost too, far behind what was unmapped.
            _ => assert!(
                texts(&report.problems).iter().all(|p| p.contains("was lost with a damaged page")),
                "{report:#?}"
            ),
        }
        let pool = rig.open();
        rig.run(async move {
            pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
            settle(&pool).await;
            assert_eq!(read(&pool, other, 512).await, Ok(70));
            pool.close().await.unwrap();
        });
        is_clean(&rig.check(), mapped);
    }
}

#[test]
fn a_volume_with_damaged_nodes_can_be_deleted_and_what_it_took_is_counted() {
    for level in 0..TREE_LEVELS as usize {
        let (rig, volume, other) = rig();
        let pool = rig.open();
        let number = {
            let pool = pool.clone();
            rig.run(async move {
                let way = way(&pool, volume, 3).await;
                pool.close().await.unwrap();
                way[level]
            })
        };
        damage(&rig, number);
        let pool = rig.open();
        rig.run(async move {
            pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
            settle(&pool).await;
            for base in FAR {
                assert_eq!(read(&pool, other, base + 1).await, Ok(71));
            }
            pool.close().await.unwrap();
        });
        is_clean(&rig.check(), [64, 72, 80, 80][level]);
    }
}

#[test]
fn an_emptied_tail_with_a_damaged_leaf_is_empty_at_once() {
    let (rig, volume, _) = rig();
    let pool = rig.open();
    let opened = pool.clone();
    let number = rig.run(async move {
        let way = way(&opened, volume, FAR[2]).await;
        opened.close().await.unwrap();
        way[0]
    });
    drop(pool);
    damage(&rig, number);
    let pool = rig.open();
    rig.run(async move {
        let from = 600 * BLOCK;
        assert!(pool.is_mapped_from(volume, from).await.unwrap());
        pool.end_volume(volume, from).unwrap();
        pool.unmap_from(volume, from).await.unwrap();
        // Also before the damaged leaf is replaced by one that maps nothing.
        assert!(!pool.is_mapped_from(volume, from).await.unwrap());
        pool.drain().await.unwrap();
        assert!(!pool.is_mapped_from(volume, from).await.unwrap());
        assert_eq!(read(&pool, volume, 3).await, Ok(53));
        pool.close().await.unwrap();
    });
}

#[test]
fn a_drive_that_reads_nothing_is_away_and_a_place_that_it_does_not_read_is_damaged() {
    for away in [true, false] {
        let (rig, volume, _) = rig();
        let pool = rig.open();
        let opened = pool.clone();
        let location = rig.run(async move {
            let leaf = PageId::new(crate::format::PageSpace::Tree, way(&opened, volume, 3).await[0]);
            let location = Location(opened.first().metadata.pages.entry(leaf).await.unwrap().location.get());
            opened.close().await.unwrap();
            location
        });
        let columns = pool.first().segments.io.segments.stripes(location.segment()).unwrap().columns;
        drop(pool);
        let at = SLABS_START_BYTES + u64::from(columns[0].slab) * SLAB + location.offset_bytes();
        let pool = rig.open();
        let only = (!away).then(|| ByteRange::new(at, 512));
        for (index, disk) in rig.disks.iter().enumerate() {
            if usize::from(columns[0].drive.0) == index {
                disk.set_faults(FaultPlan { read_error: 1.0, only, ..FaultPlan::default() });
            }
        }
        let worker = pool.clone();
        let drained = rig.run(async move {
            write(&worker, volume, 3, 99).await;
            worker.drain().await
        });
        assert_eq!(
            (drained.is_err(), pool.first().leaked().pages),
            if away { (true, 0) } else { (false, 1) }
        );
        rig.world.crash();
        rig.disks.iter().for_each(|disk| disk.set_faults(FaultPlan::default()));
        let pool = rig.open();
        rig.run(async move {
            assert_eq!(read(&pool, volume, 3).await, Ok(99));
            assert_eq!(read(&pool, volume, 5).await.is_ok(), away);
        });
    }
}

/// A host's volume: what each block holds, and whether it may be lost by now.
type Content = BTreeMap<u64, (u8, bool)>;

/// Random work on volumes, snapshots and clones, with pages of maps and lists damaged between crashes and clean stops.
#[test]
fn whatever_is_damaged_nothing_wrong_is_read_and_everything_is_counted_in_the_end() {
    for seed in 0..150 {
        run_seed(seed);
    }
}

fn run_seed(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (rig, volume, other) = rig();
    let mut model: BTreeMap<VolumeId, Content> = BTreeMap::new();
    let mut content: Content = (0..64).map(|block| (block, (block as u8 + 1, false))).collect();
    let mut others = Content::new();
    for block in FAR.iter().flat_map(|base| (0..8).map(move |block| base + block)) {
        content.insert(block, (50 + (block % 512) as u8, false));
        others.insert(block, (70 + (block % 512) as u8, false));
    }
    model.insert(volume, content);
    model.insert(other, others);
    for _ in 0..5 {
        let pool = rig.open();
        let (mut random, mut before) = (ChaCha8Rng::seed_from_u64(rng.random()), model);
        let close = rng.random_bool(0.5);
        model = rig.run(async move {
            for _ in 0..random.random_range(1..40) {
                step(seed, &pool, &mut random, &mut before).await;
            }
            if close {
                pool.close().await.unwrap();
            }
            before
        });
        if !close {
            rig.world.crash();
        }
        let opened = rig.opened();
        let end = opened.root.tree_end.get();
        for _ in 0..rng.random_range(0..3) {
            let number = PageNumber(rng.random_range(1..end));
            let entry = {
                let (pages, io) = (opened.root.page_maps(), opened.io.clone());
                let store = crate::meta::PageStore::new(io, pages);
                rig.run(async move { store.entry(node(number)).await.unwrap() })
            };
            if entry.location.get() != 0 {
                rig.damage_at(&opened.io, Location(entry.location.get()));
                model.values_mut().flat_map(|content| content.values_mut()).for_each(|block| block.1 = true);
            }
        }
    }
    let pool = rig.open();
    rig.run(async move {
        for (volume, content) in &model {
            look(seed, &pool, *volume, content).await;
        }
        for volume in model.keys() {
            pool.commit(Transaction::new().delete_volume(*volume)).await.unwrap();
        }
        settle(&pool).await;
        pool.close().await.unwrap();
    });
    let report = rig.check();
    assert!(report.is_clean(), "seed {seed}: {:#?}", texts(&report.problems));
}

async fn look(seed: u64, pool: &Pool, volume: VolumeId, content: &Content) {
    for (block, (byte, doubtful)) in content {
        match read(pool, volume, *block).await {
            Ok(found) => assert_eq!(found, *byte, "seed {seed}: volume {volume}, block {block}"),
            Err(why) => assert!(doubtful, "seed {seed}: volume {volume}, block {block} is lost: {why}"),
        }
    }
}

async fn step(seed: u64, pool: &Pool, rng: &mut ChaCha8Rng, model: &mut BTreeMap<VolumeId, Content>) {
    let volumes: Vec<VolumeId> = model.keys().copied().collect();
    let volume = volumes[rng.random_range(0..volumes.len())];
    let block = FAR[rng.random_range(0..3)] + rng.random_range(0..8);
    match rng.random_range(0..20) {
        0..=9 => {
            let byte = rng.random_range(1..=255);
            write(pool, volume, block, byte).await;
            model.get_mut(&volume).unwrap().insert(block, (byte, false));
        }
        10..=11 => {
            pool.unmap(volume, ByteRange::new(block * BLOCK, BLOCK)).await.unwrap();
            model.get_mut(&volume).unwrap().insert(block, (0, false));
        }
        12 => {
            pool.unmap(volume, ByteRange::new(0, 2 * 512 * BLOCK)).await.unwrap();
            let below = |(block, content): (&u64, &mut (u8, bool))| {
                if *block < 1024 {
                    *content = (0, false)
                }
            };
            model.get_mut(&volume).unwrap().iter_mut().for_each(below);
        }
        13..=14 if volumes.len() < 5 => {
            let fork = pool.next_volume_id();
            pool.commit(Transaction::new().fork(volume, fork)).await.unwrap();
            model.insert(fork, model[&volume].clone());
        }
        15 if volumes.len() > 2 => {
            pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
            model.remove(&volume);
        }
        16 => pool.drain().await.unwrap(),
        17 => settle(pool).await,
        _ => look(seed, pool, volume, &model[&volume]).await,
    }
}
