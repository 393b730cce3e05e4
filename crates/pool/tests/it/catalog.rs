//! The catalog is written where it changed: what a checkpoint costs does not depend on how much there is.

use crate::rig::Rig;
use quoin_base::{MIB, VolumeId};
use quoin_pool::{ObjectKind, Pool, Transaction};
use quoin_world::Slice;

const KIND: ObjectKind = ObjectKind(7);

fn key(number: u32) -> String {
    format!("{number:06}")
}

/// Creates volumes, each with an object, so many at a time.
async fn create(pool: &Pool, numbers: std::ops::Range<u32>) -> Vec<VolumeId> {
    let mut volumes = Vec::new();
    for number in numbers {
        let volume = pool.next_volume_id();
        let object = vec![number as u8; 100];
        pool.commit(Transaction::new().create_volume(volume).put(KIND, &key(number), object)).await.unwrap();
        volumes.push(volume);
    }
    pool.drain().await.unwrap();
    volumes
}

/// Pages of the catalog that checkpoints wrote since there were so many, the one included that this makes.
async fn written_since(pool: &Pool, before: u64) -> u64 {
    pool.checkpoint().await.unwrap();
    pool.stats().catalog_pages - before
}

#[test]
fn a_checkpoint_writes_as_many_pages_of_the_catalog_with_ten_volumes_as_with_many() {
    let counts = [10, 400].map(|many| {
        let rig = Rig::new(1, 1, 64 * MIB);
        let pool = rig.open();
        let inside = pool.clone();
        let counts = rig.run(|_| async move {
            let volumes = create(&inside, 0..many).await;
            let before = || inside.stats().catalog_pages;
            let nothing = written_since(&inside, before()).await;
            let from = before();
            inside.commit(Transaction::new().put(KIND, &key(5), vec![9; 100])).await.unwrap();
            let object = written_since(&inside, from).await;
            let from = before();
            inside.write(volumes[3], 0, vec![Slice::copy_of(&[1; 8192])]).await.unwrap();
            inside.drain().await.unwrap();
            let destage = written_since(&inside, from).await;
            let from = before();
            let deletion = Transaction::new().delete_volume(volumes[7]).delete(KIND, &key(7));
            inside.commit(deletion).await.unwrap();
            [nothing, object, destage, written_since(&inside, from).await]
        });
        rig.world.crash();
        rig.check();
        let pool = rig.open();
        assert_eq!(pool.list(KIND).len() as u32, many - 1);
        assert_eq!(pool.get(KIND, &key(5)), Some(vec![9; 100]));
        counts
    });
    let [few, many] = counts;
    assert_eq!(few[..3], many[..3], "nothing, an object, a block destaged");
    assert_eq!(few[..2], [0, 1]);
    assert!(many[3] <= 4, "{} pages for a deletion", many[3]);
}
