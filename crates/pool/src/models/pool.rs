//! A whole pool: writers on two lanes, readers, destage.

use super::{bench::Bench, explore, holds_but_not_with};
use crate::{Pool, bugs::Bug};
use quoin_base::{BlockIndex, ByteRange, Sequence, VolumeId};
use quoin_world::Slice as Bytes;
use shuttle::future::{block_on, yield_now};
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

const BLOCK: u64 = 8192;
const SECTOR: u64 = 512;

async fn write(pool: &Pool, volume: VolumeId, sector: u64, sectors: usize, stamp: u8) {
    let data = vec![Bytes::copy_of(&vec![stamp; sectors * SECTOR as usize])];
    pool.write(volume, sector * SECTOR, data).await.unwrap();
}

/// The first byte of each sector of the first block.
async fn stamps(pool: &Pool, volume: VolumeId) -> Vec<u8> {
    let slices = pool.read(volume, ByteRange::new(0, BLOCK)).await.unwrap();
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
    bytes.chunks(SECTOR as usize).map(|sector| sector[0]).collect()
}

async fn stop(pool: Arc<Pool>) {
    pool.close().await.unwrap();
}

#[test]
fn a_write_that_is_hardened_returns() {
    holds_but_not_with(Bug::TellBeforeHardened, 100, 50, || {
        block_on(async {
            let bench = Bench::new().await;
            let (pool, volume) = (bench.open().await, bench.volume);
            let writers = [0, 1].map(|lane| {
                let pool = pool.clone();
                bench.on(lane, async move { write(&pool, volume, lane as u64 * 16, 16, 1).await })
            });
            for writer in writers {
                writer.await.unwrap();
            }
            stop(pool).await;
        });
    });
}

/// The pool ends while a write is on its way to the journal: it is refused or done, and never waits for ever.
#[test]
fn a_write_beside_the_end_of_its_lane_returns() {
    holds_but_not_with(Bug::AppendPastEnd, 100, 50, || {
        block_on(async {
            let bench = Bench::new().await;
            let (pool, volume) = (bench.open().await, bench.volume);
            let writer = {
                let pool = pool.clone();
                let data = vec![Bytes::copy_of(&vec![1; BLOCK as usize])];
                bench.on(0, async move { drop(pool.write(volume, 0, data).await) })
            };
            pool.first().store.health().close();
            pool.first().log.journal.stop().await;
            writer.await.unwrap();
        });
    });
}

/// Two lanes write the same sectors; what replay makes of the journal is what readers saw.
#[test]
fn replay_agrees_with_the_order_that_readers_saw() {
    holds_but_not_with(Bug::SequenceBeforeShard, 40, 200, || {
        block_on(async {
            let bench = Bench::new().await;
            let (pool, volume) = (bench.open().await, bench.volume);
            let writers = [0u8, 1].map(|lane| {
                let pool = pool.clone();
                bench.on(lane.into(), async move {
                    for round in 0..2 {
                        write(&pool, volume, 0, 16, 10 * (lane + 1) + round).await;
                    }
                })
            });
            for writer in writers {
                writer.await.unwrap();
            }
            let before = stamps(&pool, volume).await;
            // All of it is in the journal only, and the next owner comes.
            pool.first().store.health().close();
            pool.first().log.journal.stop().await;
            let pool = bench.open().await;
            assert_eq!(stamps(&pool, volume).await, before, "another order after a crash");
            stop(pool).await;
        });
    });
}

/// A client writes sectors 0 and 1, `together` or one after the other, again and again, while all of it is destaged: nobody
/// sees the second without the first, or less than was acknowledged. Before each time it leaves sector 0 in the buffer, so
/// that the reader has one part of the block from there and one from below.
fn reads_beside_destage(together: bool) {
    block_on(async {
        let bench = Bench::new().await;
        let (pool, volume) = (bench.open().await, bench.volume);
        write(&pool, volume, 0, 16, 1).await;
        pool.drain().await.unwrap();
        write(&pool, volume, 0, 1, 2).await;
        let acknowledged = Arc::new(AtomicU8::new(1));
        let writer = {
            let (pool, acknowledged) = (pool.clone(), acknowledged.clone());
            bench.on(0, async move {
                for stamp in [3, 5] {
                    if together {
                        write(&pool, volume, 0, 2, stamp).await;
                    } else {
                        write(&pool, volume, 0, 1, stamp).await;
                        write(&pool, volume, 1, 1, stamp).await;
                    }
                    acknowledged.store(stamp, Ordering::SeqCst);
                    pool.drain().await.unwrap();
                    write(&pool, volume, 0, 1, stamp + 1).await;
                }
            })
        };
        let reader = {
            let (pool, acknowledged) = (pool.clone(), acknowledged.clone());
            bench.on(1, async move {
                for _ in 0..40 {
                    let least = acknowledged.load(Ordering::SeqCst);
                    let seen = stamps(&pool, volume).await;
                    assert!(seen[0] >= seen[1], "{seen:?}: the second without the first");
                    assert!(seen[1] >= least, "{seen:?}: {least} was acknowledged");
                    assert!(seen[2..].iter().all(|stamp| *stamp == 1), "{seen:?}");
                }
            })
        };
        for _ in 0..2 {
            pool.drain().await.unwrap();
        }
        writer.await.unwrap();
        reader.await.unwrap();
        stop(pool).await;
    });
}

#[test]
fn reads_are_of_one_moment_while_blocks_are_destaged() {
    explore(60, || reads_beside_destage(false));
    // Few orders show it: of five seeds, three showed it within 2,400 schedules.
    holds_but_not_with(Bug::LookOnce, 60, 200, || reads_beside_destage(true));
}

/// Whatever is being written, no record that is in the buffer only lies below the tail that a checkpoint finds.
#[test]
fn the_tail_is_never_above_what_is_buffered() {
    holds_but_not_with(Bug::TailReadLate, 40, 400, || {
        block_on(async {
            let bench = Bench::new().await;
            let (pool, volume) = (bench.open().await, bench.volume);
            let writers = [0, 1].map(|lane| {
                let pool = pool.clone();
                bench.on(lane, async move { write(&pool, volume, lane as u64 * 4096, 16, 1).await })
            });
            let looking = {
                let pool = pool.clone();
                bench.on(1, async move { pool.first().log.tail(&pool.first().buffer) })
            };
            let tail = looking.await.unwrap();
            for writer in writers {
                writer.await.unwrap();
            }
            let lowest = pool.first().buffer.tail(Sequence(u64::MAX));
            assert!(tail <= lowest, "a checkpoint would trim to {tail:?} and lose {lowest:?}");
            stop(pool).await;
        });
    });
}

/// Two writers ask for room in the journal where there is room for one.
#[test]
fn room_in_the_journal_is_given_once() {
    holds_but_not_with(Bug::RoomTwice, 40, 20, || {
        block_on(async {
            let bench = Bench::new().await;
            let pool = bench.open().await;
            let len = 64 << 10;
            let limit = pool.first().log.journal.fill(len + 8192);
            let keepers = [0, 1].map(|lane| {
                let pool = pool.clone();
                bench.on(lane, async move {
                    let room = pool.first().log.journal.keep_room(len, limit);
                    yield_now().await;
                    assert!(pool.first().log.journal.fill(0) < limit, "more is kept than there is");
                    room.is_some()
                })
            });
            let mut kept = false;
            for keeper in keepers {
                kept |= keeper.await.unwrap();
            }
            assert!(kept, "room that is there is refused");
            stop(pool).await;
        });
    });
}

/// Destage evicts what it took while newer content comes in.
#[test]
fn what_comes_while_a_block_is_destaged_stays() {
    holds_but_not_with(Bug::EvictNewer, 60, 10, || {
        block_on(async {
            let bench = Bench::new().await;
            let (pool, volume) = (bench.open().await, bench.volume);
            write(&pool, volume, 0, 16, 1).await;
            let writer = {
                let pool = pool.clone();
                bench.on(0, async move { write(&pool, volume, 0, 8, 2).await })
            };
            pool.drain().await.unwrap();
            writer.await.unwrap();
            let expected = [[2; 8], [1; 8]].concat();
            assert_eq!(stamps(&pool, volume).await, expected);
            pool.drain().await.unwrap();
            let key = pool.first().forks.of_volume(volume).unwrap().block(BlockIndex(0));
            assert!(pool.first().buffer.shard(key).fragments(key).is_none(), "left behind after a drain");
            assert_eq!(pool.first().buffer.ram_bytes(), 0);
            assert_eq!(stamps(&pool, volume).await, expected);
            stop(pool).await;
        });
    });
}
