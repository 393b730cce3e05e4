//! The cleaner: what it reads, how it leaves what it moves, and what it does about places that cannot be read.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_drive::{Drive, open_set};
use quoin_pool::{Pool, PoolError, PoolStats, Transaction};
use quoin_world::Disk;
use quoin_world_sim::{FaultPlan, SimDisk};
use std::sync::Arc;

const BLOCK: u64 = 8192;
/// Where slab 0 begins.
const SLABS_START_BYTES: u64 = 2 * MIB;
/// Blocks that stay.
const KEPT: u64 = 256;

fn open(rig: &Rig) -> (Arc<Pool>, Arc<Drive>) {
    let disks: Vec<_> = rig.disks.iter().map(|d| d.clone() as Arc<dyn Disk>).collect();
    rig.run(|world| async move {
        let drives = open_set(disks).await.unwrap();
        let pool = Pool::open(world, drives.clone(), options()).await.unwrap();
        (pool, drives[0].clone())
    })
}

/// Writes blocks of one volume in no order, each among seven of another that is deleted then.
async fn scatter(pool: &Pool) -> VolumeId {
    let (kept, gone) = (create(pool).await, create(pool).await);
    for i in 0..KEPT {
        let block = i * 101 % KEPT;
        pool.write(kept, block * BLOCK, vec![pattern(block, BLOCK as usize)]).await.unwrap();
        let others = pattern(1 << 20 | i, 7 * BLOCK as usize);
        pool.write(gone, i * 7 * BLOCK, vec![others]).await.unwrap();
    }
    pool.drain().await.unwrap();
    pool.commit(Transaction::new().delete_volume(gone)).await.unwrap();
    while !pool.being_removed().is_empty() {
        pool.drain().await.unwrap();
    }
    kept
}

/// Writes over and over, in a volume that leaves the pool little room, until the figures are as wished.
async fn press(pool: &Pool, wished: impl Fn(&PoolStats) -> bool) {
    let volume = create(pool).await;
    for i in 0..64 * MIB / BLOCK {
        if wished(&pool.stats()) {
            return;
        }
        let at = i % (14 * MIB / BLOCK) * BLOCK;
        pool.write(volume, at, vec![pattern(1 << 21 | i, BLOCK as usize)]).await.unwrap();
    }
    panic!("{:?}", pool.stats());
}

/// Drive reads that a sequential read takes, and their bytes.
async fn read_through(pool: &Pool, drive: &Drive, volume: VolumeId) -> (u64, u64) {
    let before = drive.counters();
    for at in 0..KEPT * BLOCK / MIB {
        pool.read(volume, ByteRange::new(at * MIB, MIB)).await.unwrap();
    }
    let after = drive.counters();
    (after.reads - before.reads, after.read_bytes - before.read_bytes)
}

#[test]
fn only_what_lives_is_read_and_neighbours_come_together() {
    let rig = Rig::new(1, 1, 32 * MIB);
    let (pool, drive) = open(&rig);
    rig.run(|_| async move {
        let kept = scatter(&pool).await;
        let (scattered, _) = read_through(&pool, &drive, kept).await;
        assert!(scattered > KEPT / 2, "{scattered} reads");
        let before = (drive.counters().read_bytes, pool.stats());
        press(&pool, |stats| stats.cleaned_bytes - before.1.cleaned_bytes >= KEPT * BLOCK * 3 / 4).await;
        let (stats, read_bytes) = (pool.stats(), drive.counters().read_bytes - before.0);
        let cleaned_bytes = stats.cleaned_bytes - before.1.cleaned_bytes;
        // Heads of rows too: here there are two for each block that stays. Whole rows would be ten times as much.
        assert!(read_bytes <= 4 * cleaned_bytes, "read {read_bytes} to move {cleaned_bytes}");
        let (sorted, bytes) = read_through(&pool, &drive, kept).await;
        assert!(sorted * 2 <= scattered, "{scattered} reads before, {sorted} after");
        // Without order the same blocks would lie in the same rows, with others in between.
        assert!(bytes * 8 <= KEPT * BLOCK * 9, "{bytes} bytes read");
        for block in 0..KEPT {
            assert_eq!(read(&pool, kept, block * BLOCK, BLOCK).await, *pattern(block, BLOCK as usize));
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Where on the drive a block is, behind the journal.
fn find(disk: &SimDisk, content: &[u8]) -> u64 {
    let from = SLABS_START_BYTES + 2 * MIB;
    let places = (from..disk.len_bytes() - BLOCK).step_by(4096);
    places.into_iter().find(|at| disk.peek(*at, 64) == content[..64]).expect("it was destaged")
}

#[test]
fn what_cannot_be_read_stays_where_it_is_alone() {
    let rig = Rig::new(2, 1, 32 * MIB);
    let (pool, _) = open(&rig);
    let disk = rig.disks[0].clone();
    rig.run(|_| async move {
        let kept = scatter(&pool).await;
        let bad = 5;
        let only = Some(ByteRange::new(find(&disk, &pattern(bad, 64)), 512));
        disk.set_faults(FaultPlan { read_error: 1.0, only, ..FaultPlan::default() });
        press(&pool, |stats| stats.uncleanable_segments == 1).await;
        for block in 0..KEPT {
            let found = pool.read(kept, ByteRange::new(block * BLOCK, BLOCK)).await;
            assert_eq!(matches!(found, Err(PoolError::Medium { .. })), block == bad, "block {block}");
        }
        disk.set_faults(FaultPlan::default());
        assert_eq!(read(&pool, kept, bad * BLOCK, BLOCK).await, *pattern(bad, BLOCK as usize));
        pool.close().await.unwrap();
    });
    rig.check();
}
