//! Drives whose file systems are full: the pool stays online, refuses writes, reads, and goes on when there is room.

use crate::rig::{Rig, create, pattern, read};
use quoin_base::{ByteRange, MIB};
use quoin_pool::{Pool, PoolError, PoolState, Transaction};
use quoin_world::World;
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
