//! Reservations and settings that survive a restart go with their volume, and with nothing else.

use crate::rig::{Rig, create, snapshot};
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, Kept, RESERVATIONS_OBJECT, Recovery, SETTINGS_OBJECT};
use std::time::Duration;

fn kept() -> Option<Vec<u8>> {
    Some(br#"{"version":1}"#.to_vec())
}

fn settings() -> Option<Vec<u8>> {
    Some(br#"{"version":1,"write_protect":true}"#.to_vec())
}

#[test]
fn they_are_there_when_the_pool_is_opened_again() {
    let rig = Rig::new(1);
    let volumes = rig.volumes.clone();
    let volume = rig.run(async move {
        let volume = create(&volumes, "v1").await;
        volume.keep(Kept::Reservations, kept()).await.unwrap();
        volume.keep(Kept::Settings, settings()).await.unwrap();
        // A snapshot is another volume, which nobody reserved.
        assert_eq!(snapshot(&volumes, &volume, "s1").await.kept(Kept::Reservations), None);
        volume
    });
    rig.open();
    assert_eq!((volume.kept(Kept::Reservations), volume.kept(Kept::Settings)), (kept(), settings()));
    let again = volume.clone();
    rig.run(async move { again.keep(Kept::Reservations, None).await.unwrap() });
    rig.open();
    assert_eq!((volume.kept(Kept::Reservations), volume.kept(Kept::Settings)), (None, settings()));
    // The offline check knows them, and finds those of no volume.
    let nobodys = Transaction::new().put(SETTINGS_OBJECT, "4000000000", settings().unwrap());
    for (changes, found) in [(Transaction::new(), 0), (nobodys, 1)] {
        rig.open();
        let slot = rig.slot.clone();
        rig.run(async move { slot.get().unwrap().commit(changes).await.unwrap() });
        let pool = rig.slot.clear("it is closed").unwrap();
        rig.run(async move { pool.close().await }).unwrap();
        let (problems, _) = rig.check();
        assert_eq!(problems.len(), found, "{problems:?}");
    }
}

#[test]
fn they_go_with_the_volume() {
    let rig = Rig::new(1);
    let (volumes, slot) = (rig.volumes.clone(), rig.slot.clone());
    rig.run(async move {
        let volume = create(&volumes, "v1").await;
        volume.keep(Kept::Reservations, kept()).await.unwrap();
        volume.keep(Kept::Settings, settings()).await.unwrap();
        let pool = slot.get().unwrap();
        assert_eq!(pool.list(RESERVATIONS_OBJECT).len(), 1);
        volumes.delete(std::slice::from_ref(&volume), Transaction::new()).await.unwrap();
        assert_eq!(pool.list(RESERVATIONS_OBJECT).len() + pool.list(SETTINGS_OBJECT).len(), 0);
        // Whoever is late leaves nothing behind.
        assert!(volume.keep(Kept::Reservations, kept()).await.is_err());
        assert_eq!(pool.list(RESERVATIONS_OBJECT).len(), 0);
    });
}

#[test]
fn they_come_back_with_a_volume_from_the_recycle_bin() {
    let rig = Rig::new(1);
    let volumes = rig.volumes.clone();
    let volume = rig.run(async move {
        let volume = create(&volumes, "v1").await;
        volume.keep(Kept::Reservations, kept()).await.unwrap();
        let keep = Duration::from_secs(60);
        volumes.discard(std::slice::from_ref(&volume), keep, None, Transaction::new()).await.unwrap();
        volume
    });
    rig.open();
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let again = volumes.recover(&volume, Recovery::default(), Transaction::new()).await.unwrap();
        assert_eq!(again.kept(Kept::Reservations), kept());
    });
}
