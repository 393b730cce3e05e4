//! Space that is to be kept for the loss of drives, on simulated drives: less is kept for want of room, and all again later.

use crate::{Array, EventSelection, simulated};
use quoin_api::{PoolUpdate, Severity, State, VolumeCreate};
use quoin_base::{ByteRange, DriveIndex, GIB, MIB};
use quoin_pool::FormatOptions;
use quoin_volume::BlockDevice;
use quoin_world::{Slice, Thread, World};
use quoin_world_sim::SimWorld;
use std::{sync::Arc, time::Duration};

const WRITE: u64 = 64 << 10;

/// An array with a mirror over four drives.
fn array() -> (Arc<SimWorld>, Arc<Array>) {
    let format = FormatOptions {
        layout: "mirror".parse().unwrap(),
        journal_bytes: Some(8 * MIB),
        journal_columns: 2,
        ..FormatOptions::default()
    };
    let (world, _, array) = simulated::array(4, 48 * MIB, format);
    (world, array)
}

/// The severities of the events with this text.
fn told(array: &Array, text: &str) -> Vec<Severity> {
    let events = array.events(EventSelection { limit: 1000, ..EventSelection::default() });
    events.iter().filter(|event| event.text.contains(text)).map(|event| event.severity).collect()
}

const NOT_FREE: &str = "that is to be kept for the loss of drives is not free";
const FREE_AGAIN: &str = "that is to be kept for the loss of drives is free again";

#[test]
fn less_is_kept_for_want_of_room_it_is_told_once_and_tried_again() {
    let (world, array) = array();
    let inner = world.clone();
    let main = async move {
        inner.spawn(Thread::Background, Box::pin(array.clone().run()));
        while array.status().state != State::Online {
            inner.sleep(Duration::from_millis(5)).await;
        }
        let one = PoolUpdate { spare_domains: Some(1), ..PoolUpdate::default() };
        let spare = array.change_pool(one).await.unwrap().spare;
        assert_eq!((spare.domains, spare.kept_domains), (1, 1));
        array.create_volume(VolumeCreate::new("v1", GIB)).await.unwrap();
        let volume = array.volume("v1").unwrap();
        let mut end = 0;
        while volume.write(end, vec![Slice::copy_of(&[7; WRITE as usize])]).await.is_ok() {
            end += WRITE;
        }
        assert!(end > MIB);
        // The space is there for what a drive held that fails. When that one is removed, nothing can be kept for another.
        assert!(array.pool().unwrap().fail_drive(DriveIndex(3)).await.unwrap());
        let removed = async |pool: &quoin_pool::Pool| pool.remove_drive(DriveIndex(3)).await.unwrap();
        while !removed(&*array.pool().unwrap()).await {
            inner.sleep(Duration::from_millis(100)).await;
        }
        inner.sleep(Duration::from_secs(200)).await;
        let spare = array.show_pool().unwrap().spare;
        assert_eq!((spare.domains, spare.kept_domains, spare.bytes), (1, 0, 0));
        assert_eq!(told(&array, NOT_FREE), [Severity::Warning], "it is told once, and tried three times");
        // With room it is kept within a minute.
        volume.unmap(ByteRange::new(0, end / 8 * 7)).await.unwrap();
        array.pool().unwrap().drain().await.unwrap();
        assert!(told(&array, FREE_AGAIN).is_empty());
        inner.sleep(Duration::from_secs(62)).await;
        assert_eq!(array.show_pool().unwrap().spare.kept_domains, 1);
        inner.sleep(Duration::from_secs(200)).await;
        assert_eq!(told(&array, FREE_AGAIN), [Severity::Notice]);
        assert_eq!(told(&array, NOT_FREE).len(), 1);
    };
    world.run(main).unwrap();
    world.end();
}
