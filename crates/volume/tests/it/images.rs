//! Copies that hosts ask for, from images: what they hold, how many commands share an image, and what is left of one.

use crate::rig::{Rig, create};
use futures_util::future::join_all;
use quoin_base::{ByteRange, MIB};
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, DeviceError, IMAGE_OBJECT, Volume};
use quoin_world::Slice;
use std::{sync::Arc, time::Duration};

const BLOCK: u64 = 8192;
/// An image that nothing asked for so long is let go of.
const LONG: Duration = Duration::from_secs(11);

fn content(tag: u64, block: u64) -> Vec<u8> {
    (tag << 32 | block).to_le_bytes().repeat(BLOCK as usize / 8)
}

async fn fill(volume: &Volume, tag: u64, blocks: std::ops::Range<u64>) {
    for block in blocks {
        volume.write(block * BLOCK, vec![Slice::copy_of(&content(tag, block))]).await.unwrap();
    }
}

async fn holds(volume: &Volume, block: u64, tag: u64, of: u64) -> bool {
    let slices = volume.read(ByteRange::new(block * BLOCK, BLOCK)).await.unwrap();
    slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>() == content(tag, of)
}

fn range(from: u64, count: u64) -> ByteRange {
    ByteRange::new(from * BLOCK, count * BLOCK)
}

async fn copy(source: &Volume, target: &Volume, from: u64, to: u64, count: u64) {
    let image = source.image(range(from, count)).await.unwrap();
    target.copy_from(to * BLOCK, &image, range(from, count)).await.unwrap();
}

#[test]
fn commands_share_an_image_while_the_source_is_as_it_was() {
    let rig = Rig::new(1);
    let (volumes, slot) = (rig.volumes.clone(), rig.slot.clone());
    rig.run(async move {
        let (v1, v2) = (create(&volumes, "v1").await, create(&volumes, "v2").await);
        fill(&v1, 1, 0..64).await;
        let images = || slot.get().unwrap().list(IMAGE_OBJECT).len();
        // Side by side, and one after the other.
        join_all((0..8).map(|n| copy(&v1, &v2, 8 * n, 8 * n, 8))).await;
        for n in 0..8 {
            copy(&v1, &v2, 8 * n, 64 + 4 * n, 4).await;
        }
        assert_eq!(images(), 1);
        // Where it changed, another one is made; elsewhere the latest one is as good.
        fill(&v1, 2, 3..4).await;
        copy(&v1, &v2, 8, 8, 8).await;
        assert_eq!(images(), 1);
        copy(&v1, &v2, 0, 0, 8).await;
        assert_eq!(images(), 2);
        slot.get().unwrap().drain().await.unwrap();
        copy(&v1, &v2, 0, 0, 8).await;
        assert_eq!(images(), 2);
        // An unmap is a change too.
        v1.unmap(range(5, 1)).await.unwrap();
        copy(&v1, &v2, 0, 96, 8).await;
        assert_eq!(images(), 3);
        for block in 0..64 {
            let tag = if block == 3 { 2 } else { 1 };
            assert!(holds(&v2, block, tag, block).await, "block {block}");
        }
        let unmapped = v2.read(range(101, 1)).await.unwrap();
        assert!(unmapped.iter().all(|slice| slice.iter().all(|byte| *byte == 0)));
        assert!(holds(&v2, 100, 1, 4).await && holds(&v2, 102, 1, 6).await);
    });
}

#[test]
fn an_image_holds_what_was_there_and_shares_it() {
    let rig = Rig::new(2);
    let (volumes, slot) = (rig.volumes.clone(), rig.slot.clone());
    rig.run(async move {
        let (v1, v2) = (create(&volumes, "v1").await, create(&volumes, "v2").await);
        fill(&v1, 1, 0..32).await;
        let image = v1.image(range(0, 32)).await.unwrap();
        fill(&v1, 2, 0..32).await;
        let before = slot.get().unwrap().stats().written_bytes;
        v2.copy_from(0, &image, range(0, 32)).await.unwrap();
        // Also within the volume, over what the image was made of.
        v1.copy_from(8 * BLOCK, &image, range(0, 16)).await.unwrap();
        assert_eq!(slot.get().unwrap().stats().written_bytes, before, "no data was written");
        for block in 0..32 {
            assert!(holds(&v2, block, 1, block).await, "block {block}");
        }
        assert!(holds(&v1, 8, 1, 0).await && holds(&v1, 23, 1, 15).await);
        assert!(holds(&v1, 7, 2, 7).await && holds(&v1, 24, 2, 24).await);
        // It may be copied where blocks lie differently, as data.
        v2.copy_from(64 * BLOCK + 512, &image, range(0, 2)).await.unwrap();
        let moved = v2.read(ByteRange::new(64 * BLOCK + 512, BLOCK)).await.unwrap();
        assert_eq!(moved.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(), content(1, 0));
        let beyond = v2.copy_from(MIB - BLOCK, &image, range(0, 2)).await;
        assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })), "{beyond:?}");
    });
}

#[test]
fn images_go_when_nobody_asks_for_them() {
    let rig = Rig::new(3);
    let (volumes, slot, world) = (rig.volumes.clone(), rig.slot.clone(), rig.world.clone());
    rig.run(async move {
        use quoin_world::World;
        let (v1, v2) = (create(&volumes, "v1").await, create(&volumes, "v2").await);
        fill(&v1, 1, 0..8).await;
        let images = || slot.get().unwrap().list(IMAGE_OBJECT).len();
        let held = v1.image(range(0, 8)).await.unwrap();
        copy(&v1, &v2, 0, 0, 8).await;
        assert!(!volumes.has_idle_images());
        world.sleep(LONG).await;
        // Somebody still has it.
        assert!(!volumes.has_idle_images());
        drop(held);
        assert!(volumes.has_idle_images());
        volumes.delete_idle_images().await.unwrap();
        assert_eq!((images(), volumes.has_idle_images()), (0, false));
        assert!(holds(&v2, 7, 1, 7).await);
        // The source may be deleted while it has one.
        copy(&v1, &v2, 0, 8, 8).await;
        volumes.delete(&[v1], Transaction::new()).await.unwrap();
        volumes.delete_idle_images().await.unwrap();
        assert_eq!(images(), 0);
        assert!(holds(&v2, 15, 1, 7).await);
    });
    let pool = rig.slot.clear("it is closed").unwrap();
    rig.run(async move { pool.close().await }).unwrap();
    assert_eq!(rig.check(), (vec![], 0));
}

#[test]
fn what_a_crash_left_of_images_is_deleted() {
    let rig = Rig::new(4);
    let volumes = rig.volumes.clone();
    let (v1, v2): (Arc<Volume>, Arc<Volume>) = rig.run(async move {
        let (v1, v2) = (create(&volumes, "v1").await, create(&volumes, "v2").await);
        fill(&v1, 1, 0..8).await;
        copy(&v1, &v2, 0, 0, 8).await;
        (v1, v2)
    });
    rig.open();
    assert_eq!(rig.volumes.list().len(), 2);
    let (volumes, slot) = (rig.volumes.clone(), rig.slot.clone());
    rig.run(async move {
        // The image of the opening before is of no use any more, and another is made.
        copy(&v1, &v2, 0, 8, 8).await;
        assert_eq!(slot.get().unwrap().list(IMAGE_OBJECT).len(), 2);
        volumes.delete_idle_images().await.unwrap();
        assert_eq!(slot.get().unwrap().list(IMAGE_OBJECT).len(), 1);
        copy(&v1, &v2, 0, 16, 8).await;
        for block in 0..24 {
            assert!(holds(&v2, block, 1, block % 8).await, "block {block}");
        }
    });
    let pool = rig.slot.clear("it is closed").unwrap();
    rig.run(async move { pool.close().await }).unwrap();
    assert_eq!(rig.check(), (vec![], 1));
}
