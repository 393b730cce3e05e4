//! Drives whose file systems are full: the pool stays online, refuses writes, reads, and goes on when there is room.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{ByteRange, DriveIndex, MIB, VolumeId};
use quoin_drive::open_set;
use quoin_pool::{Pool, PoolError, PoolOptions, PoolState, Transaction};
use quoin_world::{Disk, World};
use quoin_world_sim::{PowerCut, SimDisk};
use std::{sync::Arc, time::Duration};

/// Where slab 0 begins.
const SLABS_START_BYTES: u64 = 2 * MIB;

const LEN: usize = 64 << 10;

/// No more rows can be written; the journal can.
fn fill(disks: &[Arc<SimDisk>], full: bool) {
    let data = ByteRange::new(SLABS_START_BYTES + 2 * MIB, 64 * MIB);
    disks.iter().for_each(|disk| disk.change_faults(|faults| faults.no_room = full.then_some(data)));
}

async fn until_short(world: &dyn World, pool: &Pool, short: bool) {
    for _ in 0..1000 {
        if pool.drives_without_room().is_empty() != short {
            return;
        }
        world.sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain");
}

#[test]
fn writes_are_refused_reads_go_on_and_all_heals_when_there_is_room() {
    let rig = Rig::new(1, 1, 16 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    let inner = pool.clone();
    let volume = rig.run(|world| async move {
        let volume = create(&inner).await;
        inner.write(volume, 0, vec![pattern(1, LEN)]).await.unwrap();
        inner.drain().await.unwrap();
        fill(&disks, true);
        inner.write(volume, 0, vec![pattern(2, LEN)]).await.unwrap();
        inner.write(volume, MIB, vec![pattern(3, LEN)]).await.unwrap();
        until_short(&*world, &inner, true).await;
        assert_eq!(inner.drives_without_room(), ["d0"]);
        for _ in 0..50 {
            let refused = inner.write(volume, 2 * MIB, vec![pattern(4, LEN)]).await;
            assert!(matches!(refused, Err(PoolError::NoSpace)), "{refused:?}");
            assert_eq!(inner.state(), PoolState::Online);
            assert!(read(&inner, volume, 0, LEN as u64).await == pattern(2, LEN).to_vec());
            assert!(read(&inner, volume, MIB, LEN as u64).await == pattern(3, LEN).to_vec());
            world.sleep(Duration::from_millis(100)).await;
        }
        // A fork that would have to wait for the committer is refused too; those before are made.
        let mut forks = 0;
        let refused = loop {
            let snapshot = inner.next_volume_id();
            match inner.commit(Transaction::new().fork(volume, snapshot)).await {
                Ok(()) => forks += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, PoolError::NoSpace), "{refused:?}");
        assert_eq!(forks, 8, "as many as a read looks through");
        // Space is given back as far as the journal holds it; then that is refused, and nobody waits.
        let mut refused = 0;
        for n in 0..4000u64 {
            match inner.unmap(volume, ByteRange::new(8 * MIB + n % 64 * 8192, 8192)).await {
                Ok(()) => {}
                Err(PoolError::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        println!("{refused} unmaps refused");
        fill(&disks, false);
        until_short(&*world, &inner, false).await;
        inner.write(volume, 2 * MIB, vec![pattern(4, LEN)]).await.unwrap();
        inner.drain().await.unwrap();
        volume
    });
    rig.run(|_| async move {
        assert!(read(&pool, volume, 0, LEN as u64).await == pattern(2, LEN).to_vec());
        assert!(read(&pool, volume, 2 * MIB, LEN as u64).await == pattern(4, LEN).to_vec());
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_is_acknowledged_survives_a_power_cut_and_a_stop_meanwhile() {
    for cut in [false, true] {
        let rig = Rig::new(2, 1, 16 * MIB);
        let pool = rig.open();
        let disks = rig.disks.clone();
        let volume = rig.run(|world| async move {
            let volume = create(&pool).await;
            pool.drain().await.unwrap();
            fill(&disks, true);
            pool.write(volume, 0, vec![pattern(1, LEN)]).await.unwrap();
            until_short(&*world, &pool, true).await;
            if !cut {
                let stopped = pool.close().await;
                assert!(stopped.is_err(), "it cannot be destaged");
            }
            volume
        });
        if cut {
            rig.world.crash();
        }
        rig.world.cut_power(PowerCut::Never);
        // It opens without room, too.
        let pool = rig.open();
        let disks = rig.disks.clone();
        rig.run(|world| async move {
            assert!(read(&pool, volume, 0, LEN as u64).await == pattern(1, LEN).to_vec());
            until_short(&*world, &pool, true).await;
            fill(&disks, false);
            until_short(&*world, &pool, false).await;
            pool.write(volume, 0, vec![pattern(2, LEN)]).await.unwrap();
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn drives_are_added_and_refused_but_never_waited_for_while_the_committer_waits_for_room() {
    let rig = Rig::of_drives(3, "mirror".parse().unwrap(), 4, 48 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    let added = rig.world.disk("added", 48 * MIB);
    let inner = (pool.clone(), added.clone());
    let volume = rig.run(|world| async move {
        let (pool, added) = inner;
        let volume = create(&pool).await;
        pool.write(volume, 0, vec![pattern(1, LEN)]).await.unwrap();
        pool.drain().await.unwrap();
        disks[0].vanish();
        fill(&disks[1..], true);
        pool.write(volume, 0, vec![pattern(3, LEN)]).await.unwrap();
        until_short(&*world, &pool, true).await;
        disks[0].revive();
        // What comes back would have to wait for the committer. Then nobody could add a drive.
        let refused = pool.take_back(disks[0].clone()).await.unwrap_err().to_string();
        assert!(refused.contains("no room: make some there first"), "{refused}");
        // It is read from meanwhile, and is no drive to be given up.
        pool.set_repair_delay(Duration::ZERO);
        for _ in 0..50 {
            assert!(pool.finish_taking_back(DriveIndex(0)).await.is_err());
            assert!(pool.give_up_absent().await.unwrap().is_empty());
        }
        let checkpoints = pool.stats().checkpoints;
        pool.add_drive(&*world, added, "added".to_owned()).await.unwrap();
        assert!(pool.remove_drive(DriveIndex(1)).await.is_err(), "it serves");
        fill(&disks[1..], false);
        until_short(&*world, &pool, false).await;
        pool.drain().await.unwrap();
        pool.finish_taking_back(DriveIndex(0)).await.unwrap();
        pool.settle_copies(Duration::ZERO).await.unwrap();
        // What was refused is not done later.
        let made = pool.stats().checkpoints - checkpoints;
        assert!(made < 20, "{made} checkpoints");
        volume
    });
    rig.run(|_| async move {
        assert!(read(&pool, volume, 0, LEN as u64).await == pattern(3, LEN).to_vec());
        pool.close().await.unwrap();
    });
}

/// How a pool of drives that is full loses some, and gets others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Story {
    /// One fails, and another is added.
    Added,
    /// One fails while another is away, which comes back.
    Back,
    /// One fails, and a volume is deleted.
    Deleted,
    /// One fails, and all of a volume is unmapped.
    Unmapped,
}

impl Story {
    fn rig(self, seed: u64) -> Rig {
        let (layout, drives) = match self {
            Self::Back => ("mirror-3", 4),
            Self::Added | Self::Deleted | Self::Unmapped => ("mirror", 3),
        };
        Rig::with_journal_bytes(seed, layout.parse().unwrap(), drives, (40 * MIB, 16 * MIB))
    }

    /// Whether there is room for all that was written, in the end.
    fn ends_with_room(self) -> bool {
        self != Self::Back
    }

    /// Whether half of what is written goes to a volume that is given up.
    fn halves(self) -> bool {
        matches!(self, Self::Deleted | Self::Unmapped)
    }
}

/// Fills a pool, overwrites what it has, and loses drives meanwhile. Returns whether slabs were short.
fn loses_drives_when_full(seed: u64, story: Story) -> bool {
    let rig = story.rig(seed);
    // Much of what hosts wrote is buffered when a drive is lost.
    let often = PoolOptions { buffer_bytes: 8 * MIB, destage_after: Duration::from_secs(10), ..options() };
    let pool = rig.open_with(often.clone());
    let added = rig.world.disk("added", 40 * MIB);
    let (disk, lost): (Arc<dyn Disk>, _) = (added.clone(), rig.disks[0].clone());
    let (volume, blocks, tag, was_short) = rig.run(|world| async move {
        let (volume, other) = (create(&pool).await, create(&pool).await);
        let mut blocks = 0;
        while pool.write(volume, blocks * LEN as u64, vec![pattern(blocks, LEN)]).await.is_ok() {
            if story.halves()
                && pool.write(other, blocks * LEN as u64, vec![pattern(blocks, LEN)]).await.is_err()
            {
                break;
            }
            blocks += 1;
        }
        let mut was_short = false;
        for at in 0..4 * blocks {
            if at == seed * 7 % blocks {
                if story == Story::Back {
                    lost.vanish();
                    pool.miss_drive(DriveIndex(0)).await.unwrap();
                }
                assert!(pool.fail_drive(DriveIndex(1)).await.unwrap());
            }
            let block = at * 5 % blocks;
            match pool.write(volume, block * LEN as u64, vec![pattern(block, LEN)]).await {
                Ok(()) => {}
                Err(PoolError::NoSpace) => world.sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
            was_short |= pool.is_short_of_slabs();
        }
        assert_eq!(pool.state(), PoolState::Online);
        all_is_there(&pool, volume, blocks, 0).await;
        // Nothing waits for slabs without an end, and volumes can be deleted.
        for outcome in [pool.settle_copies(Duration::ZERO).await, pool.drain().await] {
            assert!(matches!(outcome, Ok(()) | Err(PoolError::NoSpace)), "{outcome:?}");
        }
        match story {
            Story::Unmapped => pool.unmap(other, ByteRange::new(0, blocks * LEN as u64)).await.unwrap(),
            _ => pool.commit(Transaction::new().delete_volume(other)).await.unwrap(),
        }
        match story {
            // What was given up is room enough.
            Story::Deleted | Story::Unmapped => {}
            // More is there than it has room for with one drive less, which failed.
            Story::Back => {
                lost.revive();
                take_back(&*world, &pool, lost).await;
            }
            Story::Added => {
                pool.add_drive(&*world, disk, "added".to_owned()).await.unwrap();
                pool.set_balancing(true);
            }
        }
        let tag = u64::from(story.ends_with_room());
        if story.ends_with_room() {
            write_all_again(&*world, &pool, volume, blocks).await;
            assert!(!pool.is_short_of_slabs());
        }
        closes(&pool, story).await;
        (volume, blocks, tag, was_short)
    });
    // The drives that there are by now.
    let mut disks = rig.disks();
    disks.remove(1);
    if story == Story::Added {
        disks.push(added);
    }
    rig.run(|world| async move {
        let pool = Pool::open(world, open_set(disks).await.unwrap(), often).await.unwrap();
        all_is_there(&pool, volume, blocks, tag).await;
        closes(&pool, story).await;
    });
    was_short
}

/// With one drive less than it was filled with it may have no room still.
async fn closes(pool: &Pool, story: Story) {
    match pool.close().await {
        Err(PoolError::NoSpace) if !story.ends_with_room() => {}
        closed => closed.unwrap(),
    }
}

async fn all_is_there(pool: &Pool, volume: VolumeId, blocks: u64, tag: u64) {
    for block in 0..blocks {
        let expected = pattern(block + tag, LEN).to_vec();
        assert!(read(pool, volume, block * LEN as u64, LEN as u64).await == expected, "{block}");
    }
}

/// Waits with each write until it is admitted: what is there moves to other drives, little by little.
async fn write_all_again(world: &dyn World, pool: &Pool, volume: VolumeId, blocks: u64) {
    for block in 0..blocks {
        let write = || pool.write(volume, block * LEN as u64, vec![pattern(block + 1, LEN)]);
        let mut written = write().await;
        for _ in 0..600 {
            if written.is_ok() {
                break;
            }
            world.sleep(Duration::from_millis(100)).await;
            written = write().await;
        }
        assert!(written.is_ok(), "{written:?}, {:?}", pool.stats());
    }
}

async fn take_back(world: &dyn World, pool: &Pool, disk: Arc<SimDisk>) {
    let mut taken = pool.take_back(disk).await;
    for _ in 0..100 {
        match taken {
            Ok(_) => return,
            Err(PoolError::Refused(_)) => world.sleep(Duration::from_secs(1)).await,
            Err(error) => panic!("{error}"),
        }
        taken = pool.finish_taking_back(DriveIndex(0)).await.map(|drive| drive.unwrap());
    }
    panic!("{taken:?}");
}

#[test]
fn a_full_pool_that_loses_a_drive_refuses_writes_until_there_is_room() {
    let short = (1..9).filter(|seed| loses_drives_when_full(*seed, Story::Added)).count();
    assert!(short > 0, "slabs were never short");
}

#[test]
fn a_drive_comes_back_to_a_full_pool_that_lost_another() {
    let short = (1..9).filter(|seed| loses_drives_when_full(*seed, Story::Back)).count();
    println!("{short}");
    assert!(short > 0, "slabs were never short");
}

#[test]
fn deleting_and_unmapping_make_room_in_a_full_pool_that_lost_a_drive() {
    for story in [Story::Deleted, Story::Unmapped] {
        let short = (1..9).filter(|seed| loses_drives_when_full(*seed, story)).count();
        assert!(short > 0, "slabs were never short");
    }
}
