//! What cannot be read because more drives are lost than the layout tolerates is listed, block by block, as reads find it.

use crate::rig::{Rig, create, fork, options, pattern};
use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_pool::{Pool, PoolError, PoolOptions};
use std::{collections::BTreeSet, time::Duration};

const WRITE: u64 = 64 << 10;
const WRITES: u64 = 60;
const BLOCK: u64 = 8 << 10;
const SECOND: u16 = 3;
/// Far behind the rest: another call looks there.
const FAR: u64 = 4 << 30;

async fn fill_at(pool: &Pool, volume: VolumeId, at: u64, tag: u64) {
    for n in 0..WRITES {
        pool.write(volume, at + n * WRITE, vec![pattern(tag + n, WRITE as usize)]).await.unwrap();
    }
}

async fn fill(pool: &Pool, volume: VolumeId, tag: u64) {
    fill_at(pool, volume, 0, tag).await;
}

/// The blocks that are listed, in order and without neighbours that are two ranges; and the drives.
async fn listed(pool: &Pool, volume: VolumeId) -> (BTreeSet<u64>, BTreeSet<u16>) {
    let (mut blocks, mut drives, mut from) = (BTreeSet::new(), BTreeSet::new(), Some(0));
    while let Some(at) = from {
        let part = pool.ranges_away(volume, at).await.unwrap();
        assert!(part.ranges.windows(2).all(|two| two[0].end() < two[1].offset), "{part:?}");
        assert!(part.next.is_none_or(|next| next > at), "{part:?}");
        blocks.extend(part.ranges.iter().flat_map(|range| range.split(BLOCK)).map(|block| block.offset));
        drives.extend(part.drives.iter().map(|drive| drive.0));
        from = part.next;
    }
    (blocks, drives)
}

/// The blocks of which reads fail.
async fn failing(pool: &Pool, volume: VolumeId) -> BTreeSet<u64> {
    let mut failed = BTreeSet::new();
    for at in [0, FAR].into_iter().flat_map(|from| (from..from + WRITES * WRITE).step_by(BLOCK as usize)) {
        match pool.read(volume, ByteRange::new(at, BLOCK)).await {
            Ok(_) => {}
            Err(PoolError::Medium { unread: true, .. }) => drop(failed.insert(at)),
            Err(error) => panic!("{at}: {error}"),
        }
    }
    failed
}

#[test]
fn what_cannot_be_read_is_listed_as_reads_find_it_until_the_drives_are_back() {
    for (seed, (text, drives)) in (31..).zip([("mirror", 4), ("2+1", 5), ("raid5", 5), ("raid6", 7)]) {
        let rig = Rig::of_drives(seed, text.parse().unwrap(), drives, 48 * MIB);
        let pool = rig.open();
        let disks = rig.disks.clone();
        let lost: Vec<u16> = if text == "raid6" { vec![0, 2, SECOND] } else { vec![0, SECOND] };
        rig.run(|_| async move {
            let (old, other) = (create(&pool).await, create(&pool).await);
            fill(&pool, old, 0).await;
            fill_at(&pool, old, FAR, 500).await;
            pool.drain().await.unwrap();
            let snapshot = fork(&pool, old).await;
            for (n, drive) in lost.iter().enumerate() {
                assert_eq!(listed(&pool, old).await, Default::default(), "{text}: {n} are lost");
                disks[*drive as usize].vanish();
                fill(&pool, other, 1000 * n as u64).await;
                pool.drain().await.unwrap();
            }
            let (blocks, drives) = listed(&pool, old).await;
            assert!(!blocks.is_empty() && blocks.len() < (2 * WRITES * WRITE / BLOCK) as usize, "{text}");
            assert!(blocks.iter().any(|at| *at >= FAR), "{text}: all of the volume is looked at");
            assert_eq!(failing(&pool, old).await, blocks, "{text}");
            assert_eq!(drives, lost.iter().copied().collect(), "{text}");
            assert_eq!(listed(&pool, snapshot).await, (blocks.clone(), drives), "{text}: it shares them");
            assert_eq!(listed(&pool, other).await.0, failing(&pool, other).await, "{text}");
            // What is overwritten or unmapped is not listed, buffered or destaged. The snapshot has what was there.
            let mut left = blocks.clone();
            let (first, last) = (left.pop_first().unwrap(), left.pop_last().unwrap());
            pool.write(old, first, vec![pattern(8, BLOCK as usize)]).await.unwrap();
            pool.unmap(old, ByteRange::new(last, BLOCK)).await.unwrap();
            assert_eq!(listed(&pool, old).await.0, left, "{text}");
            pool.drain().await.unwrap();
            assert_eq!(listed(&pool, old).await.0, left, "{text}");
            assert_eq!(failing(&pool, old).await, left, "{text}");
            assert_eq!(listed(&pool, snapshot).await.0, blocks, "{text}");
            // One of the drives is enough for the rest to follow from it.
            disks[SECOND as usize].revive();
            pool.take_back(disks[SECOND as usize].clone()).await.unwrap();
            for volume in [old, other, snapshot] {
                assert_eq!(listed(&pool, volume).await, Default::default(), "{text}");
                assert!(failing(&pool, volume).await.is_empty(), "{text}");
            }
            let nobody = VolumeId(old.0 + 1000);
            assert!(matches!(pool.ranges_away(nobody, 0).await, Err(PoolError::NoSuchVolume(_))));
        });
    }
}

#[test]
fn what_no_map_leads_to_yet_is_listed_too() {
    let rig = Rig::of_drives(41, "mirror".parse().unwrap(), 4, 48 * MIB);
    // Nothing is destaged by itself, so that what was placed stays in the buffer.
    let pool = rig.open_with(PoolOptions { destage_after: Duration::from_secs(3600), ..options() });
    let disks = rig.disks.clone();
    rig.run(|_| async move {
        let (volume, copy) = (create(&pool).await, create(&pool).await);
        fill(&pool, volume, 0).await;
        pool.drain().await.unwrap();
        // Blocks that are shared by a copy that is not destaged.
        let source = fork(&pool, volume).await;
        pool.settle_fork(source).await.unwrap();
        disks[0].vanish();
        fill(&pool, create(&pool).await, 1000).await;
        pool.drain().await.unwrap();
        disks[SECOND as usize].vanish();
        fill(&pool, create(&pool).await, 2000).await;
        let mut at = 0;
        while at < WRITES * WRITE {
            at += pool.copy_some(source, at, copy, ByteRange::new(at, WRITES * WRITE - at)).await.unwrap();
        }
        assert!(pool.stats().buffered_bytes > 0);
        let blocks = listed(&pool, copy).await.0;
        assert!(!blocks.is_empty());
        assert_eq!(blocks, failing(&pool, copy).await);
        assert_eq!(blocks, listed(&pool, volume).await.0);
    });
}
