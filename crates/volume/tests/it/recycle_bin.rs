//! What comes out of the recycle bin is another object than what went in: who holds the old one does nothing to the new one.

use crate::rig::{Rig, create};
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, Recovery, Volume, VolumeError, Volumes};
use std::{sync::Arc, time::Duration};

async fn discard(volumes: &Volumes, volume: &Arc<Volume>) {
    let keep = Duration::from_secs(60);
    volumes.discard(std::slice::from_ref(volume), keep, None, Transaction::new()).await.unwrap();
}

async fn recover(volumes: &Volumes, volume: &Volume) -> Arc<Volume> {
    volumes.recover(volume, Recovery::default(), Transaction::new()).await.unwrap()
}

#[test]
fn a_volume_that_was_restored_and_deleted_again_is_not_purged_for_its_first_deletion() {
    let rig = Rig::new(1);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let first = create(&volumes, "v1").await;
        discard(&volumes, &first).await;
        let second = recover(&volumes, &first).await;
        discard(&volumes, &second).await;
        let purged = volumes.purge(std::slice::from_ref(&first), Transaction::new()).await;
        assert!(matches!(purged, Err(VolumeError::NotFound { .. })), "{purged:?}");
        let again = volumes.recover(&first, Recovery::default(), Transaction::new()).await;
        assert!(matches!(again, Err(VolumeError::NotFound { .. })), "{:?}", again.err());
        assert_eq!(recover(&volumes, &second).await.uuid(), first.uuid());
    });
}

#[test]
fn a_host_that_sees_a_restored_volume_again_looks_at_it_anew() {
    let rig = Rig::new(1);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let first = create(&volumes, "v1").await;
        discard(&volumes, &first).await;
        let second = recover(&volumes, &first).await;
        discard(&volumes, &second).await;
        let third = recover(&volumes, &second).await;
        let seen = [&first, &second, &third].map(|volume| volume.contents());
        assert!(seen.is_sorted() && seen[0] < seen[1] && seen[1] < seen[2], "{seen:?}");
    });
}
