//! Space that hosts leave free, so that what a lost drive held can be made again on the others, however full the pool is.

use crate::rig::{Rig, create, pattern, read};
use quoin_base::{DriveIndex, Layout, MIB, VolumeId};
use quoin_pool::{Pool, PoolError, PoolState, Spare};
use quoin_world::World;
use std::{sync::Arc, time::Duration};

const WRITE: u64 = 64 << 10;

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

/// Writes to a volume until there is no space. Returns how many writes there are.
async fn fill(pool: &Pool, volume: VolumeId) -> u64 {
    for at in 0.. {
        match pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await {
            Ok(()) => {}
            Err(PoolError::NoSpace) => return at,
            Err(error) => panic!("write {at}: {error}"),
        }
    }
    unreachable!()
}

/// Whether no segment lacks a column after so long.
async fn is_rebuilt(world: &dyn World, pool: &Pool) -> bool {
    for _ in 0..300 {
        if pool.protection().degraded_segments == 0 {
            return true;
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    false
}

async fn all_is_there(pool: &Arc<Pool>, volume: VolumeId, writes: u64) {
    for at in 0..writes {
        assert!(read(pool, volume, at * WRITE, WRITE).await == pattern(at, WRITE as usize).to_vec(), "{at}");
    }
}

#[test]
fn a_full_pool_with_a_spare_domain_has_room_after_the_loss_of_a_drive_and_another_has_not() {
    for (seed, text) in (1..).zip(["mirror", "2+1", "raid5", "mirror-3"]) {
        for spare in [1, 0] {
            let rig = Rig::protected(seed, layout(text), 24 * MIB);
            let pool = rig.open();
            let volume = rig.run(|world| async move {
                pool.set_spare(spare).await.unwrap();
                let kept = pool.spare();
                assert_eq!((kept.domains, kept.used, kept.bytes > 0), (spare, 0, spare > 0), "{text}");
                let volume = create(&pool).await;
                let writes = fill(&pool, volume).await;
                let before = pool.stats();
                assert!(pool.fail_drive(DriveIndex(1)).await.unwrap(), "{text}");
                let (rebuilt, after) = (is_rebuilt(&*world, &pool).await, pool.stats());
                // What was admitted has no room any more, and no write has that needs space.
                if spare == 0 {
                    assert!(after.usable_bytes < after.live_bytes, "{text}: {before:?}, {after:?}");
                    return None;
                }
                assert!(rebuilt, "{text}: {:?}", pool.protection());
                // Hosts have what they had, and go on.
                assert!(matches!(pool.state(), PoolState::Online));
                let kept = pool.spare();
                assert_eq!((kept.domains, kept.used, kept.bytes), (1, 1, 0), "{text}");
                assert!(after.usable_bytes + MIB >= before.usable_bytes, "{text}: {before:?}, {after:?}");
                for at in 0..writes {
                    pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
                }
                all_is_there(&pool, volume, writes).await;
                assert_eq!(pool.protection().tolerates, layout(text).parity(), "{text}");
                // Removed, it is no loss any more that the spare domain is for, and there is no room for another one.
                for _ in 0..600 {
                    if pool.remove_drive(DriveIndex(1)).await.unwrap() {
                        break;
                    }
                    world.sleep(Duration::from_millis(100)).await;
                }
                assert_eq!(pool.spare(), Spare::default(), "{text}");
                assert!(matches!(pool.set_spare(1).await, Err(PoolError::Refused(_))), "{text}");
                pool.close().await.unwrap();
                Some((volume, writes))
            });
            let Some((volume, writes)) = volume else { continue };
            let rig = rig.without(1);
            rig.check();
            let pool = rig.open();
            rig.run(|_| async move {
                all_is_there(&pool, volume, writes).await;
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn more_is_kept_spare_only_while_it_is_free_and_there_are_domains_for_it() {
    let refused = |text: &str, spare: u8| {
        let rig = match text {
            "none" => Rig::new(1, 3, 24 * MIB),
            _ => Rig::protected(1, layout(text), 24 * MIB),
        };
        let pool = rig.open();
        rig.run(|_| async move {
            let why = pool.set_spare(spare).await.unwrap_err().to_string();
            assert_eq!(pool.spare(), Spare::default());
            why
        })
    };
    assert!(refused("none", 1).contains("layout none protects nothing"));
    let why = refused("mirror", 2);
    assert!(why.contains("2 more must be there") && why.contains("in 3"), "{why}");

    let rig = Rig::protected(2, layout("mirror"), 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        let writes = fill(&pool, volume).await;
        let why = pool.set_spare(1).await.unwrap_err().to_string();
        assert!(
            why.contains("the largest fault domain holds takes") && why.contains("bytes are free"),
            "{why}"
        );
        assert_eq!(pool.spare(), Spare::default());
        // Room is made for it, and with that it is refused to hosts.
        pool.unmap(volume, quoin_base::ByteRange::new(0, writes / 2 * WRITE)).await.unwrap();
        pool.drain().await.unwrap();
        pool.set_spare(1).await.unwrap();
        let kept = pool.spare();
        assert!(kept.domains == 1 && kept.bytes > 0, "{kept:?}");
        let again = fill(&pool, volume).await;
        assert!(again < writes, "{again} of {writes}");
        // Given up, hosts get it.
        pool.set_spare(0).await.unwrap();
        pool.write(volume, again * WRITE, vec![pattern(again, WRITE as usize)]).await.unwrap();
        pool.close().await.unwrap();
    });
    rig.check();
}
