//! Atomic writes: after a power failure all of one is there, or nothing.

use crate::rig::{Rig, create, options, pattern, read};
use futures_util::future::join_all;
use quoin_base::{Layout, MIB};
use quoin_pool::{PoolError, PoolOptions};
use quoin_world_sim::PowerCut;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Each reaches from one region into the next.
const LEN: u64 = 48 << 10;
const WRITERS: u64 = 4;

fn at(writer: u64) -> u64 {
    (writer + 1) * MIB - LEN / 3
}

/// Data of which each sector says which write it is of.
fn tagged(tag: u64) -> Vec<u8> {
    pattern(tag, LEN as usize).to_vec()
}

#[test]
fn a_power_failure_leaves_all_of_it_or_nothing() {
    let mut found_new = 0;
    for cut in (10..900).step_by(13) {
        let rig = Rig::protected(cut, Layout::NONE, 48 * MIB);
        let pool = rig.open_with(PoolOptions { buffer_bytes: 4 * MIB, ..options() });
        let (pool_of_load, volume) = (pool.clone(), rig.run(|_| async move { create(&pool).await }));
        let acknowledged: Arc<[AtomicU64]> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let noted = acknowledged.clone();
        rig.world.cut_power(PowerCut::AtDiskOp(cut));
        let ended = rig.world.run(async move {
            let load = (0..WRITERS).map(|writer| {
                let (pool, noted) = (pool_of_load.clone(), noted.clone());
                async move {
                    for tag in 1.. {
                        let data = vec![quoin_world::Slice::copy_of(&tagged(tag))];
                        pool.write_atomic(volume, at(writer), data).await.unwrap();
                        noted[writer as usize].store(tag, Ordering::Relaxed);
                    }
                }
            });
            join_all(load).await;
        });
        assert!(ended.is_err(), "power fails while it works");
        rig.world.crash();
        rig.world.cut_power(PowerCut::Never);
        let pool = rig.open();
        let found = rig.run(|_| async move {
            let mut found = Vec::new();
            for writer in 0..WRITERS {
                found.push(read(&pool, volume, at(writer), LEN).await);
            }
            found
        });
        for (writer, found) in found.into_iter().enumerate() {
            let last = acknowledged[writer].load(Ordering::Relaxed);
            let before = if last == 0 { vec![0; LEN as usize] } else { tagged(last) };
            // What was under way may be there, but then all of it.
            let is_new = found == tagged(last + 1);
            found_new += u64::from(is_new);
            assert!(
                is_new || found == before,
                "cut {cut}, writer {writer}: neither write {last} nor the next"
            );
        }
    }
    assert!(found_new > 0, "some that were under way had arrived");
}

#[test]
fn a_full_pool_takes_what_replaces_blocks_of_two_leaves() {
    let rig = Rig::protected(1, Layout::NONE, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        // Leaves of the map meet at every fourth MiB, and regions at every one.
        let across = 4 * MIB - 8192;
        let write =
            async |offset: u64, tag: u64| pool.write_atomic(volume, offset, vec![pattern(tag, 16384)]).await;
        write(across, 1).await.unwrap();
        let mut offset = 8 * MIB;
        let full = loop {
            match pool.write(volume, offset, vec![pattern(2, 65536)]).await {
                Ok(()) => offset += 65536,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, PoolError::NoSpace), "{full}");
        pool.drain().await.unwrap();
        for tag in 3..40 {
            write(across, tag).await.unwrap();
            assert_eq!(read(&pool, volume, across, 16384).await, pattern(tag, 16384).to_vec());
            pool.drain().await.unwrap();
        }
        // Nothing of one that does not fit is written.
        let mut beyond = offset.next_multiple_of(MIB) + MIB - 8192;
        let refused = loop {
            match write(beyond, 7).await {
                Ok(()) => beyond += MIB,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, PoolError::NoSpace), "{refused}");
        assert!(read(&pool, volume, beyond, 16384).await.iter().all(|byte| *byte == 0));
        let long = pool.write_atomic(volume, 0, vec![pattern(1, 192 << 10)]).await;
        assert!(matches!(long, Err(PoolError::Refused(_))), "{long:?}");
    });
}
