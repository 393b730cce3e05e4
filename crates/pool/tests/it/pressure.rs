//! A pool under pressure: batches larger than a segment, a journal smaller than what waits for it, sparse
//! writes that bring more metadata than data.

use crate::rig::{Rig, SLAB, create, fork, options, pattern, read};
use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_pool::{Pool, PoolError, PoolOptions, Transaction};
use quoin_world::{Thread, World, one_shot};
use quoin_world_sim::{FaultPlan, SimDisk};
use std::{sync::Arc, time::Duration};

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
    let pool = rig.open();
    let disks = rig.disks.clone();
    let volume = rig.run(|_| async move {
        let volume = with_64_blocks(&pool).await;
        fail_to_read_the_first(&disks);
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

/// Writes blocks one behind the other from `first` on until the pool is full. Returns how many it took.
async fn fill(pool: &Pool, volume: VolumeId, first: u64) -> u64 {
    for block in first.. {
        match pool.write(volume, block * 8192, vec![pattern(block + 1, 8192)]).await {
            Ok(()) => {}
            Err(PoolError::NoSpace) => return block - first,
            Err(error) => panic!("block {block}: {error}"),
        }
    }
    0
}

#[test]
fn a_checkpoint_of_pages_far_apart_stays_within_what_is_kept_for_it() {
    // Each checkpoint asserts it. The pages of the map and of the segment table were forgotten, which placing makes dirty:
    // one for each page, where those lie far apart.
    let rig = Rig::new(23, 2, 256 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        const BLOCKS: u64 = 8_000;
        let write = async |block: u64, tag: u64| {
            pool.write(volume, block * 4 * MIB, vec![pattern(tag, 8192)]).await.unwrap();
        };
        for block in 0..BLOCKS {
            write(block, 1).await;
        }
        fork(&pool, volume).await;
        for i in 0..BLOCKS / 2 {
            write(i * 2_741 % BLOCKS, 2).await;
        }
        for i in 0..BLOCKS / 2 {
            write(i * 3_323 % BLOCKS, 3).await;
        }
        assert!(pool.stats().checkpoints > 100, "{:?}", pool.stats());
        pool.close().await.unwrap();
    });
}

#[test]
fn nobody_waits_in_a_full_pool_for_what_no_drive_reads() {
    // A write waited for ever for destage, which waited for a drive to read what a block was to be completed with.
    let rig = Rig::new(22, 2, 16 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let volume = with_64_blocks(&pool).await;
        let filled = 64 + fill(&pool, volume, 64).await;
        pool.drain().await.unwrap();
        pool.unmap(volume, ByteRange::new((filled - 40) * 8192, 40 * 8192)).await.unwrap();
        pool.drain().await.unwrap();
        fail_to_read_the_first(&disks);
        pool.write(volume, 0, vec![pattern(99, 4096)]).await.unwrap();
        assert!(pool.read(volume, ByteRange::new(0, 8192)).await.is_err());
        let began = world.now();
        let more = fill(&pool, volume, filled - 40).await;
        assert!(more > 0 && more < 90, "{more} blocks fitted");
        assert!(world.now().since(began) < Duration::from_secs(60));
        assert_eq!(read(&pool, volume, 0, 4096).await, *pattern(99, 4096));
        disks.iter().for_each(|disk| disk.set_faults(FaultPlan::default()));
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().lost_blocks, 0);
        assert_eq!(read(&pool, volume, 4096, 4096).await, pattern(1, 8192)[4096..]);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_full_pool_refuses_new_blocks_and_nothing_else() {
    let rig = Rig::new(21, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let (volume, other) = (create(&pool).await, create(&pool).await);
        pool.write(other, 0, vec![pattern(7, 65536)]).await.unwrap();
        let filled = fill(&pool, volume, 0).await;
        let refused = pool.stats().refused_writes;
        assert!(filled > 1000 && refused > 0, "{filled} blocks, {refused} refused");
        let new = |block: u64| pool.write(volume, (filled + block) * 8192, vec![pattern(1, 8192)]);
        for round in 0..3 {
            assert!(matches!(new(1000 * round).await, Err(PoolError::NoSpace)), "round {round}");
            // What is there is read and overwritten, in whole and in part, checkpoints and cleaning go on.
            for i in 0..filled {
                let block = i * [389, 1009, 2003][round as usize] % filled;
                let (at, data) = match i % 5 {
                    0 => (
                        block * 8192 + 1024,
                        pattern(block + 1 + 100_000 * round, 8192).slice(1024..1024 + 512),
                    ),
                    _ => (block * 8192, pattern(block + 1 + 100_000 * round, 8192)),
                };
                pool.write(volume, at, vec![data])
                    .await
                    .unwrap_or_else(|e| panic!("{round}: block {block}: {e}"));
            }
            assert_eq!(read(&pool, other, 0, 65536).await, *pattern(7, 65536));
            pool.checkpoint().await.unwrap();
            pool.drain().await.unwrap();
        }
        assert!(pool.stats().cleaned_bytes > 0, "{:?}", pool.stats());
        let kept = read(&pool, volume, 2003 % filled * 8192, 8192).await;
        assert_eq!(kept, *pattern(2003 % filled + 1 + 200_000, 8192));
        // Space comes back by unmapping, and by deleting a volume: writes go on.
        pool.unmap(volume, ByteRange::new(0, 64 * 8192)).await.unwrap();
        pool.drain().await.unwrap();
        assert!(new(0).await.is_ok());
        let more = fill(&pool, volume, filled + 1).await;
        pool.commit(Transaction::new().delete_volume(other)).await.unwrap();
        let mut again = new(more + 1).await;
        while again.is_err() {
            world.sleep(Duration::from_millis(10)).await;
            again = new(more + 1).await;
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn overwriting_a_full_pool_survives_unmaps_in_between() {
    // Blocks that are written, unmapped and written again while they are buffered are charged once, not never.
    let rig = Rig::new(22, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        let filled = fill(&pool, volume, 0).await;
        let mut ends = Vec::new();
        for writer in 0..8u64 {
            let (done, end) = one_shot();
            let pool = pool.clone();
            let task = async move {
                let mut refused = 0u64;
                for i in 0..1500u64 {
                    let block = (i * 7919 + writer * 31) % filled;
                    match i % 4 {
                        0 => pool.unmap(volume, ByteRange::new(block * 8192, 8192)).await.unwrap(),
                        _ => match pool.write(volume, block * 8192, vec![pattern(i, 8192)]).await {
                            Ok(()) => {}
                            Err(PoolError::NoSpace) => refused += 1,
                            Err(error) => panic!("{error}"),
                        },
                    }
                }
                done.send(refused);
            };
            world.spawn(Thread::Data(writer as usize % 2), Box::pin(task));
            ends.push(end);
        }
        for end in ends {
            end.await.unwrap();
        }
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert!(stats.live_bytes <= stats.usable_bytes + 64 * 8192, "{stats:?}");
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_slow_drive_slows_writers_without_a_cliff() {
    // Virtual time: what the drives can do falls to a hundredth, and each write takes longer, none for ever.
    for seed in 0..3 {
        let rig = Rig::new(40 + seed, 2, 24 * MIB);
        let pool = rig.open();
        let disks = rig.disks.clone();
        rig.run(|world| async move {
            let volume = create(&pool).await;
            let mut medians = Vec::new();
            for slow_ms in [0u64, 1, 4] {
                let ms = Duration::from_millis;
                disks.iter().for_each(|d| {
                    // No single operation stands still: what is waited for is what others do.
                    d.change_faults(|f| (f.latency, f.slow) = (ms(slow_ms)..=ms(2 * slow_ms), 0.0));
                });
                let mut took = many_writers(&world, &pool, volume).await;
                took.sort_unstable();
                // The beginning, until buffer and journal have filled up, is in it too.
                let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
                // The longest wait for a turn, and a few operations of these drives.
                let bound = ms(50 + 10 * slow_ms);
                assert!(longest <= bound, "{seed}: {slow_ms} ms: median {median:?}, longest {longest:?}");
                medians.push(median);
            }
            assert!(medians.is_sorted(), "{medians:?}");
            disks.iter().for_each(|d| d.set_faults(FaultPlan::default()));
            pool.close().await.unwrap();
        });
    }
}

/// Sixteen writers overwrite a few megabytes, several times what buffer and journal hold. How long each write took.
async fn many_writers(
    world: &Arc<quoin_world_sim::SimWorld>,
    pool: &Arc<Pool>,
    volume: VolumeId,
) -> Vec<Duration> {
    let mut ends = Vec::new();
    for writer in 0..16u64 {
        let (done, end) = one_shot();
        let (pool, clock) = (pool.clone(), world.clone());
        let task = async move {
            let mut took = Vec::new();
            for i in 0..100u64 {
                let block = (i * 389 + writer * 53) % 1000;
                let started = clock.now();
                pool.write(volume, block * 8192, vec![pattern(i, 8192)]).await.unwrap();
                took.push(clock.now().since(started));
            }
            done.send(took);
        };
        world.spawn(Thread::Data(writer as usize % 2), Box::pin(task));
        ends.push(end);
    }
    let mut all = Vec::new();
    for end in ends {
        all.extend(end.await.unwrap());
    }
    all
}

#[test]
fn unmapping_a_terabyte_takes_what_is_mapped_of_it() {
    const TIB: u64 = 1 << 40;
    let rig = Rig::new(24, 2, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        pool.unmap(volume, ByteRange::new(0, 16 * TIB)).await.unwrap();
        assert_eq!(pool.stats().journal_batches, 1, "nothing is mapped: only the volume was recorded");
        // Far apart; some destaged, some buffered, some of both; the first and last in part of the range only.
        let places = [0, 4 * MIB, 4 * MIB + 8192, 700 * MIB, TIB / 2, TIB - 8192, TIB, 3 * TIB];
        for (i, place) in places.iter().enumerate() {
            pool.write(volume, *place, vec![pattern(i as u64 + 1, 8192)]).await.unwrap();
            if i == 4 {
                pool.drain().await.unwrap();
            }
        }
        pool.write(volume, 700 * MIB, vec![pattern(50, 512)]).await.unwrap();
        let before = pool.stats().journal_bytes;
        pool.unmap(volume, ByteRange::new(512, TIB)).await.unwrap();
        assert!(pool.stats().journal_bytes - before < 64 << 10, "{:?}", pool.stats());
        let check = async || {
            assert_eq!(read(&pool, volume, 0, 512).await, pattern(1, 8192)[..512]);
            assert!(read(&pool, volume, 512, 7680).await.iter().all(|b| *b == 0));
            for place in [4 * MIB, 4 * MIB + 8192, 700 * MIB, TIB / 2, TIB - 8192] {
                assert!(read(&pool, volume, place, 8192).await.iter().all(|b| *b == 0), "{place}");
            }
            assert!(read(&pool, volume, TIB, 512).await.iter().all(|b| *b == 0));
            assert_eq!(read(&pool, volume, TIB + 512, 7680).await, pattern(7, 8192)[512..]);
            assert_eq!(read(&pool, volume, 3 * TIB, 8192).await, *pattern(8, 8192));
        };
        check().await;
        pool.drain().await.unwrap();
        check().await;
        assert_eq!(pool.stats().live_bytes, 3 * 8192);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_long_unmap_does_not_rely_on_another_that_is_not_hardened() {
    let rig = Rig::new(25, 2, 24 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    let (unmapping, at) = (pool.clone(), 3 * 8192);
    let volume = rig.run(|world| async move {
        let volume = create(&pool).await;
        pool.write(volume, at, vec![pattern(1, 8192)]).await.unwrap();
        // The first lane writes to the one drive, the second to the other, which stands still from now on.
        for_a_minute(&disks[1]);
        world.spawn(
            Thread::Data(1),
            Box::pin(async move {
                let _ = unmapping.unmap(volume, ByteRange::new(at, 8192)).await;
            }),
        );
        world.sleep(Duration::from_millis(1)).await;
        let batches = pool.stats().journal_batches;
        pool.unmap(volume, ByteRange::new(0, MIB << 20)).await.unwrap();
        assert!(pool.stats().journal_batches > batches, "it is acknowledged on the word of another");
        volume
    });
    rig.world.crash();
    rig.disks.iter().for_each(|disk| disk.set_faults(FaultPlan::default()));
    let pool = rig.open();
    rig.run(|_| async move {
        assert!(read(&pool, volume, at, 8192).await.iter().all(|b| *b == 0), "what was unmapped is back");
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_is_written_after_a_long_unmap_was_seen_stays() {
    // A block was unmapped as buffered first, and once more when the unmap came by its leaf.
    let rig = Rig::new(26, 2, 24 * MIB);
    let pool = rig.open_with(PoolOptions { metadata_bytes: 4096, ..options() });
    rig.run(|world| async move {
        let volume = create(&pool).await;
        let last = 150 * 4 * MIB;
        for at in (0..last).step_by(4 << 20) {
            pool.write(volume, at, vec![pattern(1, 8192)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        pool.write(volume, last, vec![pattern(2, 8192)]).await.unwrap();
        let (done, ended) = one_shot();
        let unmapping = pool.clone();
        let unmap = async move {
            unmapping.unmap(volume, ByteRange::new(0, last + 4 * MIB)).await.unwrap();
            done.send(());
        };
        world.spawn(Thread::Data(1), Box::pin(unmap));
        while read(&pool, volume, last, 8192).await.iter().any(|b| *b != 0) {
            world.sleep(Duration::from_micros(20)).await;
        }
        pool.write(volume, last, vec![pattern(3, 8192)]).await.unwrap();
        pool.drain().await.unwrap();
        assert!(pool.stats().live_bytes > 16 * 8192, "the unmap was nearly over: {:?}", pool.stats());
        ended.await.unwrap();
        assert_eq!(read(&pool, volume, last, 8192).await, *pattern(3, 8192));
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().live_bytes, 8192);
        pool.close().await.unwrap();
    });
    rig.check();
}

fn for_a_minute(disk: &SimDisk) {
    let minute = Duration::from_secs(60);
    disk.change_faults(|f| (f.latency, f.slow) = (minute..=minute, 0.0));
}

/// A volume whose first 64 blocks are written and destaged.
async fn with_64_blocks(pool: &Pool) -> VolumeId {
    let volume = create(pool).await;
    for block in 0..64 {
        pool.write(volume, block * 8192, vec![pattern(block + 1, 8192)]).await.unwrap();
    }
    pool.drain().await.unwrap();
    volume
}

/// From now on no drive reads where the first of these blocks lie.
fn fail_to_read_the_first(disks: &[Arc<SimDisk>]) {
    let only = Some(ByteRange::new(2 * MIB + 10 * u64::from(SLAB) + 4096, 16384));
    for disk in disks {
        disk.set_faults(FaultPlan { read_error: 1.0, only, ..FaultPlan::default() });
    }
}

#[test]
fn blocks_unmapped_side_by_side_share_the_way_to_their_leaf() {
    // With RAM for one page of metadata, each of them read the way anew.
    let rig = Rig::new(31, 2, 24 * MIB);
    let pool = rig.open_with(PoolOptions { metadata_bytes: 4096, ..options() });
    rig.run(|_| async move {
        let volume = create(&pool).await;
        pool.write(volume, 0, vec![pattern(1, 8192)]).await.unwrap();
        pool.drain().await.unwrap();
        let before = pool.stats();
        // Both where a leaf maps nothing else and where there is no leaf.
        for at in [8192, 4 * MIB] {
            pool.unmap(volume, ByteRange::new(at, 2 * MIB)).await.unwrap();
        }
        pool.drain().await.unwrap();
        let after = pool.stats();
        assert_eq!(after.destaged_blocks - before.destaged_blocks, 512);
        let loads = after.metadata_loads - before.metadata_loads;
        assert!(loads < 2 * 512, "{loads} for 512 blocks");
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_fork_that_waits_for_what_no_drive_reads_leaves_the_drives_alone() {
    // Each try told those who wait, who asked for the next at once.
    let rig = Rig::new(32, 2, 16 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let volume = with_64_blocks(&pool).await;
        fail_to_read_the_first(&disks);
        pool.write(volume, 0, vec![pattern(99, 4096)]).await.unwrap();
        assert!(pool.read(volume, ByteRange::new(0, 8192)).await.is_err());
        let began = (world.now(), world.progress());
        // The last ones wait until the block is given up.
        for _ in 0..10 {
            fork(&pool, volume).await;
        }
        let took = world.now().since(began.0);
        assert!(took > Duration::from_secs(1), "{took:?}");
        assert_eq!(pool.stats().lost_blocks, 1);
        let steps = world.progress().0 - began.1.0;
        // One try each 2 ms at the most, of a dozen steps or two.
        assert!(u128::from(steps) < took.as_millis() * 10, "{steps} steps in {took:?}");
        pool.close().await.unwrap();
    });
}
