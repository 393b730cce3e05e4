//! Large writes go to segments as they come in, and survive what other writes survive.

use crate::rig::{Rig, create, fork, options, pattern, read, settle};
use futures_util::{StreamExt, stream};
use quoin_base::{ByteRange, KIB, Layout, MIB};
use quoin_drive::open_set;
use quoin_pool::{Pool, PoolError, PoolOptions};
use quoin_world::{Disk, Slice, World};
use std::time::Duration;

/// A write that begins and ends in the middle of a block.
const AT: u64 = MIB - 4096;
const LEN: usize = (256 + 8) << 10;

fn placing() -> PoolOptions {
    PoolOptions { place_from: 16 * KIB, ..options() }
}

/// Numbers are lent when a first large write asked for them; that one goes to the journal.
async fn warm_up(world: &dyn World, pool: &quoin_pool::Pool, volume: quoin_base::VolumeId) {
    pool.write(volume, 0, vec![pattern(99, 64 << 10)]).await.unwrap();
    while pool.stats().placed_bytes == 0 {
        world.sleep(Duration::from_millis(1)).await;
        pool.write(volume, 0, vec![pattern(99, 64 << 10)]).await.unwrap();
    }
}

#[test]
fn a_large_write_is_written_once_and_read_before_and_after_destage_crash_and_closing() {
    let rig = Rig::new(1, 2, 16 * MIB);
    let pool = rig.open_with(placing());
    let (volume, content) = rig.run(|world| async move {
        let volume = create(&pool).await;
        warm_up(&*world, &pool, volume).await;
        pool.drain().await.unwrap();
        let before = pool.stats();
        let mut content = pattern(1, LEN).to_vec();
        // Its ends lie within blocks.
        pool.write(volume, AT, vec![Slice::copy_of(&content)]).await.unwrap();
        let after = pool.stats();
        let placed = after.placed_bytes - before.placed_bytes;
        assert!((256 << 10..=(256 + 8 * 8) << 10).contains(&placed), "{placed}");
        assert!(after.journal_bytes - before.journal_bytes < 64 << 10, "{after:?}");
        assert_eq!(read(&pool, volume, AT, LEN as u64).await, content);
        // Over a part of a placed block, before and after it is published.
        for at in [40 << 10, 100 << 10] {
            pool.write(volume, AT + at as u64, vec![pattern(2, 512)]).await.unwrap();
            content[at..at + 512].copy_from_slice(&pattern(2, 512));
            assert_eq!(read(&pool, volume, AT, LEN as u64).await, content);
            pool.drain().await.unwrap();
            assert_eq!(read(&pool, volume, AT, LEN as u64).await, content);
        }
        pool.write(volume, 2 * MIB, vec![pattern(3, 128 << 10)]).await.unwrap();
        pool.write(volume, 2 * MIB + 512, vec![pattern(4, 1024)]).await.unwrap();
        (volume, content)
    });
    rig.world.crash();
    rig.check();
    for boot in 0..3 {
        let pool = rig.open_with(placing());
        let content = content.clone();
        rig.run(|_| async move {
            assert_eq!(read(&pool, volume, AT, LEN as u64).await, content);
            assert_eq!(read(&pool, volume, 2 * MIB + 512, 1024).await, *pattern(4, 1024));
            assert_eq!(read(&pool, volume, 2 * MIB + 1536, 4096).await, pattern(3, 128 << 10)[1536..5632]);
            assert_eq!(
                read(&pool, volume, 2 * MIB + (64 << 10), 8192).await,
                pattern(3, 128 << 10)[64 << 10..72 << 10]
            );
            if boot == 1 {
                pool.close().await.unwrap();
            }
        });
        if boot != 1 {
            rig.world.crash();
        }
        rig.check();
    }
}

#[test]
fn what_was_placed_is_seen_through_forks_and_given_back() {
    let rig = Rig::new(2, 1, 32 * MIB);
    let pool = rig.open_with(placing());
    rig.run(|world| async move {
        let volume = create(&pool).await;
        warm_up(&*world, &pool, volume).await;
        pool.write(volume, MIB, vec![pattern(1, 512 << 10)]).await.unwrap();
        let snapshot = fork(&pool, volume).await;
        pool.write(volume, MIB, vec![pattern(2, 512 << 10)]).await.unwrap();
        assert_eq!(read(&pool, snapshot, MIB, 512 << 10).await, *pattern(1, 512 << 10));
        settle(&*world, &pool).await;
        assert_eq!(read(&pool, snapshot, MIB, 512 << 10).await, *pattern(1, 512 << 10));
        assert_eq!(read(&pool, volume, MIB, 512 << 10).await, *pattern(2, 512 << 10));
        pool.unmap(volume, ByteRange::new(0, 4 * MIB)).await.unwrap();
        pool.commit(quoin_pool::Transaction::new().delete_volume(snapshot)).await.unwrap();
        settle(&*world, &pool).await;
        assert_eq!(pool.stats().live_bytes, 0, "{:?}", pool.stats());
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_pool_that_is_filled_and_overwritten_with_large_writes_serves_and_keeps_its_reserve() {
    let rig = Rig::new(3, 2, 16 * MIB);
    let pool = rig.open_with(placing());
    let (volume, pieces) = rig.run(|world| async move {
        let volume = create(&pool).await;
        warm_up(&*world, &pool, volume).await;
        let mut pieces = 0u64;
        let full = loop {
            match pool.write(volume, pieces * (64 << 10), vec![pattern(pieces, 64 << 10)]).await {
                Ok(()) => pieces += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, PoolError::NoSpace), "{full}");
        let stats = pool.stats();
        assert!(stats.live_bytes + stats.buffered_bytes > stats.usable_bytes / 2, "{stats:?}");
        for round in 1..4 {
            for piece in 0..pieces {
                let data = vec![pattern(round << 20 | piece, 64 << 10)];
                pool.write(volume, piece * (64 << 10), data).await.unwrap();
            }
        }
        for piece in 0..pieces {
            let now = read(&pool, volume, piece * (64 << 10), 64 << 10).await;
            assert!(now == *pattern(3 << 20 | piece, 64 << 10), "piece {piece}");
        }
        let stats = pool.stats();
        assert!(stats.placed_bytes > 0 && stats.journal_bytes > stats.placed_bytes / 8, "{stats:?}");
        (volume, pieces)
    });
    rig.world.crash();
    rig.check();
    let pool = rig.open_with(placing());
    rig.run(|_| async move {
        for piece in 0..pieces {
            let now = read(&pool, volume, piece * (64 << 10), 64 << 10).await;
            assert!(now == *pattern(3 << 20 | piece, 64 << 10), "piece {piece}");
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn zeroes_take_no_space() {
    let rig = Rig::new(4, 1, 16 * MIB);
    let pool = rig.open_with(placing());
    rig.run(|world| async move {
        let volume = create(&pool).await;
        warm_up(&*world, &pool, volume).await;
        let mut content = pattern(1, 256 << 10).to_vec();
        content[64 << 10..192 << 10].fill(0);
        pool.write(volume, MIB, vec![Slice::copy_of(&content)]).await.unwrap();
        pool.drain().await.unwrap();
        assert_eq!(read(&pool, volume, MIB, 256 << 10).await, content);
        assert_eq!(pool.volume_stats(volume).unwrap().mapped_bytes, (64 + 128) << 10);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn large_writes_end_while_a_drive_has_no_room() {
    let rig = Rig::new(5, 1, 16 * MIB);
    rig.disks.iter().for_each(|disk| disk.make_sparse());
    let pool = rig.open_with(placing());
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        warm_up(&*world, &pool, volume).await;
        pool.drain().await.unwrap();
        let no_room = |full: bool| {
            let rows = ByteRange::new(4 * MIB, 64 * MIB);
            disks.iter().for_each(|disk| disk.change_faults(|faults| faults.no_room = full.then_some(rows)));
        };
        no_room(true);
        // The first finds out, in the middle of it; the others are told.
        let mut written = 0;
        for round in 0..20 {
            match pool.write(volume, MIB, vec![pattern(round, 512 << 10)]).await {
                Ok(()) => written = round,
                Err(PoolError::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
            world.sleep(Duration::from_millis(20)).await;
        }
        assert!(!pool.drives_without_room().is_empty());
        assert_eq!(read(&pool, volume, 0, 64 << 10).await, *pattern(99, 64 << 10));
        no_room(false);
        while !pool.drives_without_room().is_empty() {
            world.sleep(Duration::from_millis(100)).await;
        }
        println!("round {written} was the last to be written");
        pool.write(volume, MIB, vec![pattern(100, 512 << 10)]).await.unwrap();
        assert_eq!(read(&pool, volume, MIB, 512 << 10).await, *pattern(100, 512 << 10));
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Where a drive holds this content, and which.
fn place_of(rig: &Rig, content: &[u8]) -> (usize, u64) {
    let page = 4096;
    for (drive, disk) in rig.disks.iter().enumerate() {
        for at in (0..disk.len_bytes()).step_by(page) {
            if disk.peek(at, page) == content[..page] {
                return (drive, at);
            }
        }
    }
    panic!("no drive holds it")
}

/// Recovery drops a batch whose row it does not find. If that row is there later, the batch must not come back: what it
/// said was long replaced by then.
#[test]
fn a_batch_that_recovery_dropped_stays_dropped() {
    let rig = Rig::new(6, 2, 16 * MIB);
    let pool = rig.open_with(placing());
    let dropped = pattern(1, 64 << 10);
    let content = dropped.clone();
    let volume = rig.run(|world| async move {
        let volume = create(&pool).await;
        warm_up(&*world, &pool, volume).await;
        pool.drain().await.unwrap();
        let before = pool.stats().placed_bytes;
        pool.write(volume, MIB, vec![content]).await.unwrap();
        assert!(pool.stats().placed_bytes > before);
        volume
    });
    rig.world.crash();
    let (drive, at) = place_of(&rig, &dropped);
    rig.disks[drive].poke(at, &[0; 4096]);
    for (boot, torn) in [1, 0, 0].into_iter().enumerate() {
        let pool = rig.open_with(placing());
        assert_eq!(pool.recovery().torn_batches, torn, "boot {boot}");
        rig.run(|_| async move {
            assert!(read(&pool, volume, MIB, 64 << 10).await.iter().all(|byte| *byte == 0), "boot {boot}");
        });
        rig.world.crash();
        // The drive finds the row again.
        rig.disks[drive].poke(at, &dropped[..4096]);
    }
    rig.check();
}

/// What one host writes in sequence is placed on all drives alike at all times, and the journal takes none of it.
#[test]
fn large_writes_in_sequence_keep_all_drives_busy() {
    const WRITE: u64 = 64 << 10;
    const AT_ONCE: usize = 32;
    let layout: Layout = "mirror".parse().unwrap();
    let rig = Rig::of_drives(21, layout, 8, 48 * MIB);
    let disks = rig.disks();
    let windows = rig.run(move |world| async move {
        let set = open_set(disks).await.unwrap();
        let drives = set.clone();
        let pool = Pool::open(world.clone(), set, PoolOptions { buffer_bytes: 4 * MIB, ..placing() });
        let pool = pool.await.unwrap();
        let volume = create(&pool).await;
        warm_up(&*world, &pool, volume).await;
        pool.drain().await.unwrap();
        let journal_before = pool.stats().journal_bytes;
        let counted = || drives.iter().map(|drive| drive.counters().write_bytes).collect::<Vec<_>>();
        let (mut windows, mut before) = (Vec::new(), counted());
        for window in 0..12 {
            let write =
                async |at: u64| pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await;
            let writes: Vec<_> = (window * 64..(window + 1) * 64).map(write).collect();
            let written: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
            assert!(written.into_iter().all(|written| written.is_ok()));
            let now = counted();
            windows.push(now.iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<_>>());
            before = now;
        }
        let journal = pool.stats().journal_bytes - journal_before;
        assert!(journal < 12 * 64 * WRITE / 10, "{journal} bytes went to the journal");
        pool.close().await.unwrap();
        windows
    });
    for of_drives in &windows {
        let sum: u64 = of_drives.iter().sum();
        let is_fair = |bytes: &u64| bytes * 8 < sum * 7 / 4 && bytes * 8 > sum / 2;
        assert!(of_drives.iter().all(is_fair), "{windows:?}");
    }
    rig.check();
}
