//! How what is written to volumes is compressed: by themselves, by policies, and of what is forked from them.

use crate::rig::{Rig, create, create_with, fork, fork_spec, snapshot};
use quoin_base::{ByteRange, Compression};
use quoin_pool::Transaction;
use quoin_volume::{Assigned, BlockDevice, ForkSpec, OriginKind, Recovery, Volume, VolumeChange, Volumes};
use quoin_world::Slice;
use std::{sync::Arc, time::Duration};

const BLOCK: u64 = 8192;
const BLOCKS: u64 = 40;

fn policy(compression: Option<Compression>) -> Assigned {
    Assigned { name: Some("gold".into()), compression, ..Assigned::default() }
}

async fn clone(
    volumes: &Volumes,
    source: &Arc<Volume>,
    name: &str,
    compression: Option<Compression>,
) -> Arc<Volume> {
    fork(volumes, ForkSpec { compression, ..fork_spec(source, name, OriginKind::Clone) }).await
}

async fn set(volumes: &Volumes, name: &str, compression: Compression) {
    let change = VolumeChange { compression: Some(compression), ..VolumeChange::default() };
    volumes.change(name, change, Transaction::new()).await.unwrap();
}

async fn write(volume: &Volume, byte: u8) {
    for block in 0..BLOCKS {
        volume.write(block * BLOCK, vec![Slice::copy_of(&[byte; BLOCK as usize])]).await.unwrap();
    }
}

async fn holds(volume: &Volume, byte: u8) -> bool {
    let slices = volume.read(ByteRange::new(0, BLOCKS * BLOCK)).await.unwrap();
    slices.iter().all(|slice| slice.iter().all(|found| *found == byte))
}

/// Those of all volumes, by name.
fn all(volumes: &Volumes) -> Vec<(String, Option<Compression>)> {
    volumes.list().iter().map(|volume| (volume.name(), volume.compression())).collect()
}

#[test]
fn a_volume_is_compressed_as_it_was_made_and_set_and_stays_so_when_the_pool_is_opened_anew() {
    let rig = Rig::new(1);
    let (volumes, slot) = (rig.volumes.clone(), rig.slot.clone());
    let before = rig.run(async move {
        let pool = slot.get().unwrap();
        let off = create(&volumes, "off").await;
        let lz4 = create_with(&volumes, "lz4", policy(Some(Compression::Lz4))).await;
        assert_eq!((off.compression(), lz4.compression()), (Some(Compression::Off), Some(Compression::Lz4)));
        write(&off, 1).await;
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().compressed_blocks, 0);
        write(&lz4, 2).await;
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().compressed_blocks, BLOCKS);
        // While hosts use it: what comes from then on.
        set(&volumes, "off", Compression::Zstd).await;
        set(&volumes, "lz4", Compression::Off).await;
        write(&off, 3).await;
        write(&lz4, 4).await;
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().compressed_blocks, 2 * BLOCKS);
        assert!(holds(&off, 3).await && holds(&lz4, 4).await);
        // It keeps that in the recycle bin.
        let keep = Duration::from_secs(60);
        volumes.discard(std::slice::from_ref(&off), keep, None, Transaction::new()).await.unwrap();
        volumes.recover(&off, Recovery::default(), Transaction::new()).await.unwrap();
        all(&volumes)
    });
    let expected = [("off".to_owned(), Some(Compression::Zstd)), ("lz4".to_owned(), Some(Compression::Off))];
    assert_eq!(before, expected);
    rig.open();
    assert_eq!(all(&rig.volumes), expected);
    rig.slot.clear("the end");
    assert!(all(&rig.volumes).iter().all(|(_, compression)| compression.is_none()), "nobody knows");
}

#[test]
fn a_policy_compresses_what_hosts_write_to_and_leaves_snapshots_alone() {
    let rig = Rig::new(2);
    let volumes = rig.volumes.clone();
    let before = rig.run(async move {
        let v1 = create_with(&volumes, "v1", policy(None)).await;
        create(&volumes, "other").await;
        let s1 = snapshot(&volumes, &v1, "s1").await;
        volumes.lay_out(&policy(Some(Compression::Lz4)), Transaction::new()).await.unwrap();
        // A policy that does not say leaves them as they are.
        volumes.lay_out(&policy(None), Transaction::new()).await.unwrap();
        assert_eq!((v1.compression(), s1.compression()), (Some(Compression::Lz4), Some(Compression::Off)));
        // Forks are as their source, unless it is said how they are.
        let s2 = snapshot(&volumes, &v1, "s2").await;
        assert_eq!(s2.compression(), Some(Compression::Lz4));
        clone(&volumes, &s1, "c1", Some(Compression::Zstd)).await;
        clone(&volumes, &s2, "c2", None).await;
        all(&volumes)
    });
    let (off, lz4, zstd) = (Some(Compression::Off), Some(Compression::Lz4), Some(Compression::Zstd));
    let expected = [("v1", lz4), ("other", off), ("s1", off), ("s2", lz4), ("c1", zstd), ("c2", lz4)];
    assert_eq!(before, expected.map(|(name, compression)| (name.to_owned(), compression)));
    rig.open();
    assert_eq!(all(&rig.volumes), before);
}
