//! A pool under pressure: batches larger than a segment, a journal smaller than what waits for it, sparse
//! writes that bring more metadata than data.

mod rig;

use quoin_base::{ByteRange, MIB};
use quoin_pool::{PoolError, PoolOptions};
use quoin_world::{Thread, World, one_shot};
use quoin_world_sim::FaultPlan;
use rig::{Rig, SLAB, create, options, pattern, read};
use std::time::Duration;

#[test]
fn a_batch_larger_than_a_segment_stays_live() {
    // A segment that was full before its blocks were published was taken for empty and given away.
    let rig = Rig::new(2, 2, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        for i in 0..200u64 {
            pool.write(volume, i * MIB, vec![pattern(i + 1, 8192)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        for _ in 0..3 {
            pool.checkpoint().await.unwrap();
        }
        for i in 0..200u64 {
            pool.write(volume, (1000 + i) * MIB, vec![pattern(i + 1000, 8192)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        for i in 0..200u64 {
            assert_eq!(read(&pool, volume, i * MIB, 8192).await, *pattern(i + 1, 8192), "block {i}");
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn many_overwriters_of_the_same_blocks_never_fill_the_journal_for_good() {
    // Records that waited for room pinned, through what they displaced, the very extents they waited for.
    for seed in 0..6 {
        let rig = Rig::new(seed, 2, 24 * MIB);
        let pool = rig.open();
        rig.run(|world| async move {
            let volume = create(&pool).await;
            let mut ends = Vec::new();
            for writer in 0..96u64 {
                let (done, end) = one_shot();
                let pool = pool.clone();
                let task = async move {
                    for round in 0..20u64 {
                        let data = vec![pattern(round << 8 | writer, 65536)];
                        pool.write(volume, (writer % 16) * 65536, data).await.unwrap();
                    }
                    done.send(());
                };
                world.spawn(Thread::Data(writer as usize % 2), Box::pin(task));
                ends.push(end);
            }
            let (watched, clock) = (pool.clone(), world.clone());
            let watch = async move {
                clock.sleep(Duration::from_secs(600)).await;
                panic!("seed {seed}: stuck: {:?}", watched.stats());
            };
            world.spawn(Thread::Background, Box::pin(watch));
            for end in ends {
                end.await;
            }
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn sparse_writes_fill_a_pool_and_it_stays_online() {
    // Each sector brings a leaf of its own: metadata was admitted without being charged.
    let rig = Rig::new(4, 2, 12 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        let mut written = 0u64;
        loop {
            match pool.write(volume, written * 4 * MIB, vec![pattern(written, 512)]).await {
                Ok(()) => written += 1,
                Err(PoolError::NoSpace) => break,
                Err(error) => panic!("after {written} sectors: {error}"),
            }
        }
        assert!(written > 100, "only {written}: {:?}", pool.stats());
        for i in 0..written {
            assert_eq!(read(&pool, volume, i * 4 * MIB, 512).await, *pattern(i, 512));
        }
        pool.unmap(volume, ByteRange::new(0, written * 4 * MIB)).await.unwrap();
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().live_bytes, 0);
        pool.write(volume, 0, vec![pattern(1, 8192)]).await.unwrap();
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_sector_that_cannot_be_read_keeps_its_block_in_the_buffer_and_nothing_else() {
    // Destage took the pool offline for it, again and again.
    let rig = Rig::new(9, 2, 24 * MIB);
    // All of it goes to rows, of which the first is where it is expected.
    let pool = rig.open_with(PoolOptions { keep_from_percent: 101, ..options() });
    let disks = rig.disks.clone();
    let unreadable = ByteRange::new(MIB + 8 * u64::from(SLAB) + 4096, 16384);
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        for i in 0..64u64 {
            pool.write(volume, i * 8192, vec![pattern(i + 1, 8192)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        for disk in &disks {
            disk.set_faults(FaultPlan { read_error: 1.0, only: Some(unreadable), ..FaultPlan::default() });
        }
        pool.write(volume, 0, vec![pattern(99, 4096)]).await.unwrap();
        pool.drain().await.unwrap();
        assert!(pool.read(volume, ByteRange::new(0, 8192)).await.is_err());
        assert_eq!(read(&pool, volume, 0, 4096).await, *pattern(99, 4096));
        pool.write(volume, 40 * 8192, vec![pattern(7, 8192)]).await.unwrap();
        pool.close().await.unwrap();
        volume
    });
    rig.disks.iter().for_each(|disk| disk.set_faults(FaultPlan::default()));
    let pool = rig.open();
    rig.run(|_| async move {
        pool.drain().await.unwrap();
        assert_eq!(read(&pool, volume, 0, 4096).await, *pattern(99, 4096));
        assert_eq!(read(&pool, volume, 4096, 4096).await, pattern(1, 8192)[4096..]);
        assert_eq!(read(&pool, volume, 40 * 8192, 8192).await, *pattern(7, 8192));
        assert_eq!(pool.stats().lost_blocks, 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_read_that_takes_long_holds_writers_up_and_does_no_harm() {
    // What was freed could not be used again for its sake, and the reserve was used up instead.
    let rig = Rig::new(10, 2, 16 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        let write = async |round: u64| {
            for i in 0..400u64 {
                let block = i * 389 % 400;
                pool.write(volume, block * 8192, vec![pattern(round << 16 | block, 8192)]).await.unwrap();
            }
        };
        write(0).await;
        pool.drain().await.unwrap();
        let slow = Duration::from_secs(2)..=Duration::from_secs(3);
        disks.iter().for_each(|d| d.change_faults(|f| f.latency = slow.clone()));
        let (sender, read_ended) = one_shot();
        let reader = pool.clone();
        world.spawn(
            Thread::Data(1),
            Box::pin(async move {
                sender.send(reader.read(volume, ByteRange::new(0, MIB)).await.map(|_| ()));
            }),
        );
        world.sleep(Duration::from_millis(1)).await;
        disks.iter().for_each(|d| d.set_faults(FaultPlan::default()));
        for round in 1..20 {
            write(round).await;
        }
        read_ended.await.unwrap().unwrap();
        assert_eq!(read(&pool, volume, 8192, 8192).await, *pattern(19 << 16 | 1, 8192));
        pool.close().await.unwrap();
    });
    rig.check();
}
