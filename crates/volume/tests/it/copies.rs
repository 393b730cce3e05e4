//! Copies of ranges on simulated drives: what they hold, what they keep from happening, and what is left after a crash.

use crate::rig::{Rig, create, snapshot};
use quoin_base::{ByteRange, MIB};
use quoin_pool::Transaction;
use quoin_volume::{
    BlockDevice, COPIES_MAX, CopySpec, DeviceError, RangeCopy, Replacement, Volume, VolumeChange,
    VolumeError, Volumes,
};
use quoin_world::Slice;
use std::{sync::Arc, time::Duration};

const BLOCK: u64 = 8192;

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

fn blocks(source: &Arc<Volume>, target: &Arc<Volume>, from: u64, to: u64, count: u64) -> CopySpec {
    let (source, target) = (source.clone(), target.clone());
    let (from_bytes, to_bytes, length_bytes) = (from * BLOCK, to * BLOCK, Some(count * BLOCK));
    CopySpec { source, target, from_bytes, to_bytes, length_bytes }
}

async fn begin(volumes: &Volumes, spec: CopySpec) -> Result<RangeCopy, VolumeError> {
    volumes.begin_copy(spec, |_| Transaction::new()).await
}

async fn end(volumes: &Volumes, copy: &RangeCopy) {
    let settled = volumes.settle_copies().await.unwrap();
    volumes.end_copy(copy.record().id, &settled, Transaction::new()).await.unwrap();
}

async fn copy_all(copy: &RangeCopy) -> Result<(), DeviceError> {
    copy.settle().await?;
    let mut done = 0;
    while done < copy.record().length_bytes {
        done += copy.step(done).await?;
    }
    assert_eq!(done, copy.record().length_bytes);
    Ok(())
}

#[test]
fn what_is_copied_is_what_the_source_held_also_within_one_volume() {
    let rig = Rig::new(1);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let (v1, v2) = (create(&volumes, "v1").await, create(&volumes, "v2").await);
        fill(&v1, 1, 0..16).await;
        let into = begin(&volumes, blocks(&v1, &v2, 4, 8, 12)).await.unwrap();
        let within = begin(&volumes, blocks(&v1, &v1, 0, 2, 14)).await.unwrap();
        fill(&v1, 2, 4..6).await;
        assert_eq!((volumes.list().len(), volumes.copies().len()), (2, 2));
        copy_all(&into).await.unwrap();
        copy_all(&within).await.unwrap();
        for block in 0..12 {
            assert!(holds(&v2, 8 + block, 1, 4 + block).await, "block {block}");
        }
        for block in 0..14 {
            assert!(holds(&v1, 2 + block, 1, block).await, "block {block}");
        }
        // The source may go.
        let both = [into, within];
        end(&volumes, &both[1]).await;
        volumes.delete(&[v1], Transaction::new()).await.unwrap();
        end(&volumes, &both[0]).await;
        assert!(holds(&v2, 8, 1, 4).await && volumes.copies().is_empty());
        volumes.delete(&[v2], Transaction::new()).await.unwrap();
    });
    let pool = rig.slot.clear("it is closed").unwrap();
    rig.run(async move { pool.close().await }).unwrap();
    assert_eq!(rig.check(), (vec![], 0));
}

#[test]
fn nothing_takes_a_target_away_and_there_are_no_more_copies_than_may_be() {
    let rig = Rig::new(2);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let (v1, v2) = (create(&volumes, "v1").await, create(&volumes, "v2").await);
        let s1 = snapshot(&volumes, &v2, "s1").await;
        let mut copies = Vec::new();
        for n in 0..COPIES_MAX as u64 - 1 {
            copies.push(begin(&volumes, blocks(&v1, &v2, 0, 4 * n, 4)).await.unwrap());
        }
        copies.push(begin(&volumes, blocks(&v1, &s1, 0, 0, 4)).await.unwrap());
        let more = begin(&volumes, blocks(&v1, &v2, 0, 0, 4)).await.err();
        assert!(matches!(more, Some(VolumeError::TooManyCopies { .. })), "{more:?}");
        let end_of_last = 4 * (COPIES_MAX as u64 - 1) * BLOCK;
        let change = |size_bytes, template| {
            volumes.change(
                "v2",
                VolumeChange { size_bytes, template, force: true, ..VolumeChange::default() },
                Transaction::new(),
            )
        };
        let restore = Replacement { target: v2.clone(), source: v1.clone(), refreshes: false };
        let year = Duration::from_secs(365 * 86_400);
        for refused in [
            volumes.delete(&[v1.clone(), v2.clone()], Transaction::new()).await.err(),
            change(Some(end_of_last - 512), None).await.err(),
            change(None, Some(true)).await.err(),
            volumes.hold(vec![restore]).await.err(),
            volumes.retain(std::slice::from_ref(&s1), year, Transaction::new()).await.err(),
        ] {
            assert!(matches!(refused, Some(VolumeError::CopiedInto { .. })), "{refused:?}");
        }
        assert!(volumes.is_copied_into(&v2) && !volumes.is_copied_into(&v1));
        change(Some(end_of_last), None).await.unwrap();
        for copy in &copies {
            end(&volumes, copy).await;
        }
        change(None, Some(true)).await.unwrap();
        let template = begin(&volumes, blocks(&v1, &v2, 0, 0, 4)).await.err();
        assert!(matches!(template, Some(VolumeError::IsTemplate { .. })), "{template:?}");
        volumes.delete(&[v1, v2, s1], Transaction::new()).await.unwrap();
    });
}

#[test]
fn after_a_crash_a_copy_is_there_to_be_ended_and_not_to_be_gone_on_with() {
    let rig = Rig::new(3);
    let volumes = rig.volumes.clone();
    let copy = rig.run(async move {
        let (v1, v2) = (create(&volumes, "v1").await, create(&volumes, "v2").await);
        fill(&v1, 1, 0..64).await;
        let copy = begin(&volumes, blocks(&v1, &v2, 0, 0, 64)).await.unwrap();
        copy.settle().await.unwrap();
        copy.step(0).await.unwrap();
        copy
    });
    rig.slot.clear("a crash");
    rig.world.crash();
    let (problems, hidden) = rig.check();
    assert!(hidden == 1 && problems.is_empty(), "{problems:?}");
    rig.open();
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let v2 = volumes.get("v2").unwrap();
        assert_eq!((volumes.list().len(), volumes.copies()), (2, vec![copy.record().clone()]));
        for refused in [copy.settle().await, copy.step(0).await.map(drop)] {
            assert!(matches!(refused, Err(DeviceError::Offline { .. })), "{refused:?}");
        }
        let refused = volumes.delete(std::slice::from_ref(&v2), Transaction::new()).await;
        assert!(matches!(refused, Err(VolumeError::CopiedInto { .. })), "{refused:?}");
        end(&volumes, &copy).await;
        assert!(holds(&v2, 0, 1, 0).await, "what was copied stays");
        volumes.delete(&[v2], Transaction::new()).await.unwrap();
    });
    let pool = rig.slot.clear("it is closed").unwrap();
    rig.run(async move { pool.close().await }).unwrap();
    assert_eq!(rig.check(), (vec![], 0));
}

/// A pool of two volumes, of which v1 has something in its first 16 blocks, closed.
fn filled() -> Rig {
    let rig = Rig::new(4);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let v1 = create(&volumes, "v1").await;
        create(&volumes, "v2").await;
        fill(&v1, 1, 0..16).await;
    });
    let pool = rig.slot.clear("it is closed").unwrap();
    rig.run(async move { pool.close().await }).unwrap();
    rig
}

/// Copies these blocks of v1 to this byte of v2, and tells of which byte of v1 it says that it cannot be read.
fn damaged_byte(rig: &Rig, blocks_of_v1: std::ops::Range<u64>, to_bytes: u64) -> u64 {
    rig.open();
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let (v1, v2) = (volumes.get("v1").unwrap(), volumes.get("v2").unwrap());
        let count = blocks_of_v1.end - blocks_of_v1.start;
        let spec = CopySpec { to_bytes, ..blocks(&v1, &v2, blocks_of_v1.start, 0, count) };
        let copy = begin(&volumes, spec).await.unwrap();
        let failed = copy_all(&copy).await;
        let Err(DeviceError::Medium { volume, offset, .. }) = &failed else { panic!("{failed:?}") };
        assert_eq!(volume, "v1");
        end(&volumes, &copy).await;
        *offset
    })
}

#[test]
fn damage_is_told_of_the_source_and_of_its_byte() {
    let rig = filled();
    let begin_of_9 = &content(1, 9)[..512];
    for at in (0..33 * MIB).step_by(4096).filter(|at| rig.disk.peek(*at, 512) == begin_of_9) {
        rig.disk.poke(at + 100, &[7]);
    }
    // Moved by half a block, so that it has to be read.
    assert_eq!(damaged_byte(&rig, 0..16, 4096), 9 * BLOCK);
}

#[test]
fn a_damaged_map_is_told_of_the_source() {
    for to_bytes in [0, 4096] {
        let rig = filled();
        let is_leaf = |page: &[u8]| {
            let is_set = |entry: &[u8]| entry.iter().any(|byte| *byte != 0);
            let mut entries = page.chunks(8);
            entries.by_ref().take(16).all(is_set) && !entries.any(is_set)
        };
        let leaves: Vec<_> =
            (0..33 * MIB).step_by(4096).filter(|at| is_leaf(&rig.disk.peek(*at, 4096))).collect();
        assert!(!leaves.is_empty());
        for at in leaves {
            rig.disk.poke(at + 100, &[7]);
        }
        assert_eq!(damaged_byte(&rig, 2..16, to_bytes), 2 * BLOCK);
    }
}
