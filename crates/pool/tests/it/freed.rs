//! Volumes that come and go leave nothing behind in RAM.

use crate::rig::{Rig, create, pattern, read, settle};
use quoin_base::MIB;
use quoin_pool::Transaction;
use quoin_world::World;
use std::time::Duration;

#[test]
fn numbers_of_pages_that_came_free_are_forgotten_once_no_reader_can_come_by() {
    let rig = Rig::new(3, 2, 48 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let kept = create(&pool).await;
        pool.write(kept, 0, vec![pattern(1, 8192)]).await.unwrap();
        for round in 0..4u64 {
            let volume = create(&pool).await;
            // Each block has a leaf of its own, whose number comes free with the volume.
            for i in 0..300u64 {
                pool.write(volume, i * 4 * MIB, vec![pattern(round << 16 | i, 8192)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
            settle(&*world, &pool).await;
            pool.checkpoint().await.unwrap();
            world.sleep(Duration::from_secs(2)).await;
            let left = pool.stats().freed_pages_ram_bytes;
            assert_eq!(left, 0, "round {round}: {left} bytes for numbers that nobody asks for");
        }
        assert_eq!(read(&pool, kept, 0, 8192).await, *pattern(1, 8192));
        pool.close().await.unwrap();
    });
    rig.check();
}
