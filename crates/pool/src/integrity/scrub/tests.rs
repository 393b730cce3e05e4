//! Damage of every kind: found, named for every volume that reaches it, and gone once it is overwritten.

use super::*;
use crate::{
    Damage, PoolError, Transaction,
    format::{PAGE_BYTES, RowHeader, ThinEntry},
    integrity::check::tests::{Rig, forge},
    maps::{
        blocks::block_page,
        tree::{node, slot},
    },
};
use quoin_base::{BlockIndex, VolumeId};
use quoin_world::Slice as Bytes;
use zerocopy::IntoBytes;

const BLOCK: u64 = 8192;

async fn scrub(pool: &Arc<Pool>) -> (ScrubCounts, Vec<Damage>) {
    let scrub = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
    assert!(scrub.run().await.unwrap());
    (scrub.progress().1, pool.take_damage())
}

async fn read(pool: &Pool, volume: VolumeId, block: u64) -> Result<u8, PoolError> {
    let slices = pool.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await?;
    Ok(slices[0][0])
}

async fn is_medium(pool: &Pool, volume: VolumeId, block: u64) -> bool {
    let outcome = read(pool, volume, block).await;
    matches!(outcome, Err(PoolError::Medium { offset, unread: false, .. }) if offset == block * BLOCK)
}

async fn write(pool: &Pool, volume: VolumeId, block: u64, byte: u8) {
    pool.write(volume, block * BLOCK, vec![Bytes::copy_of(&[byte; 8192])]).await.unwrap();
}

/// The number of a volume's block.
async fn number(pool: &Pool, volume: VolumeId, block: u64) -> BlockNumber {
    let leaf = pool
        .first()
        .leaf(&pool.first().forks.of_volume(volume).unwrap(), BlockIndex(block))
        .await
        .unwrap()
        .unwrap();
    ThinEntry(leaf.get(slot(BlockIndex(block), 0))).block().unwrap()
}

fn ranges(damage: &[Damage]) -> Vec<(u32, u64, u64)> {
    damage.iter().map(|d| (d.volume.0, d.range.offset / BLOCK, d.range.len / BLOCK)).collect()
}

/// A pool with a snapshot of its volume, and a volume whose blocks another leaf maps; all of it destaged.
fn rig() -> Rig {
    forge(|pool, volume| async move {
        let snapshot = pool.next_volume_id();
        pool.commit(Transaction::new().fork(volume, snapshot)).await.unwrap();
        let other = pool.next_volume_id();
        pool.commit(Transaction::new().create_volume(other)).await.unwrap();
        for block in 0..200 {
            write(&pool, other, block, 7).await;
        }
        write(&pool, volume, 30, 30).await;
        pool.drain().await.unwrap();
    })
}

const SNAPSHOT: VolumeId = VolumeId(2);
const OTHER: VolumeId = VolumeId(3);
/// Below three nodes, the first that there were: by now the snapshot's alone.
const LEAF: PageNumber = PageNumber(4);

#[test]
fn a_sound_pool_has_no_damage_and_everything_is_read() {
    let rig = rig();
    let pool = rig.open();
    rig.run(async move {
        let (counts, damage) = scrub(&pool).await;
        assert_eq!((counts.damage(), counts.blocks, damage), (0, 64 + 200 + 1, vec![]), "{counts:?}");
        assert!(counts.pages > 12 && counts.rows > 10, "{counts:?}");
        // Stopped and gone on with.
        let half =
            Scrub::new(pool.clone(), ScrubPosition { space: 2, ..ScrubPosition::default() }, counts, 0);
        assert!(half.run().await.unwrap());
        assert_eq!(half.progress().1.blocks, counts.blocks);
        let stopped = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 1);
        stopped.stop();
        assert!(!stopped.run().await.unwrap());
    });
}

#[test]
fn a_damaged_block_is_named_for_every_volume_that_reaches_it_until_it_is_overwritten() {
    let rig = rig();
    let pool = rig.open();
    let volume = rig.volume;
    let places = {
        let pool = pool.clone();
        rig.run(async move {
            let mut places = Vec::new();
            for (volume, block) in [(volume, 20), (volume, 21), (volume, 30), (OTHER, 5)] {
                places.push(
                    pool.first().block(number(&pool, volume, block).await).await.unwrap().unwrap().location,
                );
            }
            places
        })
    };
    places.iter().for_each(|place| rig.damage_at(&pool.first().segments.io, *place));
    rig.run(async move {
        let (counts, damage) = scrub(&pool).await;
        assert_eq!((counts.damaged_blocks, counts.damaged_pages, counts.damaged_rows), (4, 0, 0));
        let found = [(1, 20, 2), (1, 30, 1), (2, 20, 2), (3, 5, 1)];
        assert_eq!(ranges(&damage), found);
        for (volume, block) in [(volume, 20), (volume, 21), (volume, 30), (SNAPSHOT, 20), (OTHER, 5)] {
            assert!(is_medium(&pool, volume, block).await, "{volume} {block}");
        }
        assert_eq!(read(&pool, SNAPSHOT, 30).await.unwrap(), 31);
        assert_eq!((read(&pool, volume, 19).await.unwrap(), read(&pool, OTHER, 6).await.unwrap()), (20, 7));
        assert_eq!(pool.take_damage(), [], "told twice");
        for (volume, block) in [(volume, 20), (volume, 30), (OTHER, 5)] {
            write(&pool, volume, block, 99).await;
        }
        for drained in [false, true] {
            if drained {
                pool.drain().await.unwrap();
            }
            assert_eq!(read(&pool, volume, 20).await.unwrap(), 99);
            let (three, bytes) =
                (ByteRange::new(19 * BLOCK, 3 * BLOCK), |n: u64| ByteRange::new(n * BLOCK, BLOCK));
            assert_eq!(pool.still_damaged(volume, three).await.unwrap(), [bytes(21)]);
            assert_eq!(
                pool.still_damaged(SNAPSHOT, three).await.unwrap(),
                [ByteRange::new(20 * BLOCK, 2 * BLOCK)]
            );
            assert_eq!(pool.still_damaged(OTHER, bytes(5)).await.unwrap(), []);
        }
        // A part of a damaged block makes a lost one of it, which is told too.
        pool.write(volume, 21 * BLOCK + 512, vec![Bytes::copy_of(&[1; 512])]).await.unwrap();
        pool.drain().await.unwrap();
        assert!(is_medium(&pool, volume, 21).await);
        assert_eq!(pool.stats().lost_blocks, 1);
        let (counts, _) = scrub(&pool).await;
        assert_eq!(counts.damaged_blocks, 3, "20 and 21 of the snapshot, 21 of the volume");
        pool.close().await.unwrap();
    });
}

#[test]
fn a_damaged_page_that_is_in_ram_is_written_anew() {
    for (page, wanted) in [(node(LEAF), "leaf"), (block_page(BlockNumber(3)), "block table")] {
        let rig = rig();
        let pool = rig.open();
        let location = {
            let pool = pool.clone();
            rig.run(async move {
                pool.first().metadata.pages.get(page).await.unwrap().unwrap();
                Location(pool.first().metadata.pages.entry(page).await.unwrap().location.get())
            })
        };
        rig.damage_at(&pool.first().segments.io, location);
        rig.run(async move {
            let (counts, damage) = scrub(&pool).await;
            assert_eq!((counts.damaged_pages, counts.repaired_pages, damage), (1, 1, vec![]), "{wanted}");
            assert_eq!(counts.damage(), 0);
            pool.checkpoint().await.unwrap();
            let (counts, _) = scrub(&pool).await;
            assert_eq!((counts.damaged_pages, counts.damage()), (0, 0), "{wanted}");
            pool.close().await.unwrap();
        });
        let report = rig.check();
        assert!(report.is_clean(), "{wanted}: {:#?}", report.problems);
    }
}

#[test]
fn a_damaged_page_that_is_nowhere_else_takes_what_it_describes_and_nothing_more() {
    // The leaf of the first volume.
    let rig = rig();
    let opened = rig.opened();
    let location = rig.page(&opened, node(LEAF));
    rig.damage_at(&opened.io, location);
    let (pool, volume) = (rig.open(), rig.volume);
    rig.run(async move {
        let (counts, damage) = scrub(&pool).await;
        assert_eq!((counts.damaged_pages, counts.repaired_pages), (1, 0));
        // The volume made a leaf of its own when it was written to after the fork.
        assert_eq!(ranges(&damage), [(2, 0, 512)]);
        assert!(is_medium(&pool, SNAPSHOT, 3).await);
        assert_eq!((read(&pool, volume, 3).await.unwrap(), read(&pool, OTHER, 3).await.unwrap()), (4, 7));
        pool.close().await.unwrap();
    });

    // A page of the block table.
    let rig = self::rig();
    let opened = rig.opened();
    let location = rig.page(&opened, block_page(BlockNumber(3)));
    rig.damage_at(&opened.io, location);
    let pool = rig.open();
    rig.run(async move {
        let (counts, damage) = scrub(&pool).await;
        assert_eq!((counts.damaged_pages, counts.repaired_pages), (1, 0));
        let found = ranges(&damage);
        assert!(found.contains(&(1, 0, 64)) || found.contains(&(1, 0, 30)), "{found:?}");
        assert!(is_medium(&pool, volume, 3).await && is_medium(&pool, SNAPSHOT, 63).await);
        assert_eq!(read(&pool, OTHER, 199).await.unwrap(), 7);
        write(&pool, volume, 3, 44).await;
        write(&pool, OTHER, 250, 45).await;
        pool.drain().await.unwrap();
        assert_eq!((read(&pool, volume, 3).await.unwrap(), read(&pool, OTHER, 250).await.unwrap()), (44, 45));
        assert!(is_medium(&pool, volume, 4).await && is_medium(&pool, SNAPSHOT, 3).await);
        pool.close().await.unwrap();
    });
}

/// A drive that lost writes has the heads of earlier, shorter rows. They lead to places where the other drive has data and no head.
#[test]
fn heads_of_earlier_rows_on_one_drive_are_not_written_over_what_others_have_there() {
    let rig = Rig::mirrored();
    let opened = rig.opened();
    let table = &opened.io.segments;
    let is_of_data = |segment: &crate::meta::Segment| !segment.stream.is_metadata();
    let (id, _) = table.all().into_iter().find(|(_, segment)| is_of_data(segment)).unwrap();
    let (disk, at) = rig.first_copy(&opened.io, Location::new(id, 0, PAGE_BYTES));
    let row = RowHeader::parse(&disk.peek(at, PAGE_BYTES)).unwrap();
    let earlier = |offset: u32, len_bytes: u32| {
        let mut head = row.clone();
        (head.offset, head.len_bytes, head.count) = (offset.into(), len_bytes.into(), 0.into());
        head.seal();
        disk.poke(at + u64::from(offset), head.as_bytes());
    };
    // Where the third block lies. What hosts wrote to the first two last is in the journal.
    const FIRST: u32 = 6 * PAGE_BYTES as u32;
    earlier(0, FIRST);
    earlier(FIRST, row.len_bytes.get() - FIRST);

    let pool = rig.open();
    let volume = rig.volume;
    rig.run(async move {
        // Blocks are not looked at before, which would repair what is there.
        let rows = ScrubPosition { space: REDUNDANCY, ..ScrubPosition::default() };
        let scrub = Scrub::new(pool.clone(), rows, ScrubCounts::default(), 0);
        assert!(scrub.run().await.unwrap());
        let (counts, damage) = (scrub.progress().1, pool.take_damage());
        assert_eq!((counts.damaged_blocks, damage.len()), (0, 0), "{counts:?}");
        pool.drain().await.unwrap();
        for block in 2..64 {
            assert_eq!(read(&pool, volume, block).await.unwrap(), block as u8 + 1, "block {block}");
        }
        pool.close().await.unwrap();
    });
}
