//! Whether what is written to volumes is deduplicated: by themselves, by policies, and of what is forked from them.

use crate::rig::{Rig, create, create_with, fork, fork_spec, snapshot};
use quoin_base::Compression;
use quoin_pool::Transaction;
use quoin_volume::{Assigned, BlockDevice, ForkSpec, OriginKind, Recovery, VolumeChange, Volumes};
use std::time::Duration;

fn policy(deduplication: Option<bool>) -> Assigned {
    Assigned { name: Some("gold".into()), deduplication, ..Assigned::default() }
}

async fn set(volumes: &Volumes, name: &str, change: VolumeChange) {
    volumes.change(name, change, Transaction::new()).await.unwrap();
}

fn to(is_on: bool) -> VolumeChange {
    VolumeChange { deduplication: Some(is_on), ..VolumeChange::default() }
}

/// What all volumes have, by name.
fn all(volumes: &Volumes) -> Vec<(String, Option<bool>)> {
    volumes.list().iter().map(|volume| (volume.name(), volume.deduplication())).collect()
}

fn expected<const N: usize>(volumes: [(&str, bool); N]) -> Vec<(String, Option<bool>)> {
    volumes.iter().map(|(name, is_on)| ((*name).to_owned(), Some(*is_on))).collect()
}

#[test]
fn a_volume_is_deduplicated_as_it_was_made_and_set_and_stays_so_when_the_pool_is_opened_anew() {
    let rig = Rig::new(1);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let off = create(&volumes, "off").await;
        let on = create_with(&volumes, "on", policy(Some(true))).await;
        create_with(&volumes, "said", policy(Some(false))).await;
        assert_eq!(all(&volumes), expected([("off", false), ("on", true), ("said", false)]));
        // Beside compression: neither changes the other.
        set(&volumes, "off", to(true)).await;
        set(&volumes, "off", VolumeChange { compression: Some(Compression::Lz4), ..Default::default() })
            .await;
        set(&volumes, "on", VolumeChange { compression: Some(Compression::Zstd), ..to(false) }).await;
        assert_eq!((off.compression(), off.deduplication()), (Some(Compression::Lz4), Some(true)));
        assert_eq!((on.compression(), on.deduplication()), (Some(Compression::Zstd), Some(false)));
        // It keeps that in the recycle bin.
        let keep = Duration::from_secs(60);
        volumes.discard(std::slice::from_ref(&off), keep, None, Transaction::new()).await.unwrap();
        volumes.recover(&off, Recovery::default(), Transaction::new()).await.unwrap();
    });
    let expected = expected([("off", true), ("on", false), ("said", false)]);
    assert_eq!(all(&rig.volumes), expected);
    rig.open();
    assert_eq!(all(&rig.volumes), expected);
    rig.slot.clear("the end");
    assert!(all(&rig.volumes).iter().all(|(_, deduplication)| deduplication.is_none()), "nobody knows");
}

#[test]
fn a_policy_deduplicates_what_hosts_write_to_and_leaves_snapshots_alone() {
    let rig = Rig::new(2);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let v1 = create_with(&volumes, "v1", policy(None)).await;
        create(&volumes, "other").await;
        let s1 = snapshot(&volumes, &v1, "s1").await;
        volumes.lay_out(&policy(Some(true)), Transaction::new()).await.unwrap();
        // A policy that does not say leaves them as they are.
        volumes.lay_out(&policy(None), Transaction::new()).await.unwrap();
        assert_eq!((v1.deduplication(), s1.deduplication()), (Some(true), Some(false)));
        // Forks are as their source, unless it is said how they are.
        let s2 = snapshot(&volumes, &v1, "s2").await;
        let clones =
            [("c1", &s1, Some(true)), ("c2", &s2, None), ("c3", &s2, Some(false)), ("c4", &s1, None)];
        for (name, source, deduplication) in clones {
            let spec = ForkSpec { deduplication, ..fork_spec(source, name, OriginKind::Clone) };
            fork(&volumes, spec).await;
        }
    });
    let (off, on) = (false, true);
    let expected = expected([
        ("v1", on),
        ("other", off),
        ("s1", off),
        ("s2", on),
        ("c1", on),
        ("c2", on),
        ("c3", off),
        ("c4", off),
    ]);
    assert_eq!(all(&rig.volumes), expected);
    rig.open();
    assert_eq!(all(&rig.volumes), expected);
}
