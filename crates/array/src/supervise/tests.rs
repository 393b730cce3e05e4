//! Pools that another owner takes over, on simulated drives.

use crate::{Array, ArrayOptions, EventSelection, SpacePercents};
use quoin_api::State;
use quoin_base::{Epoch, HolderId, MIB};
use quoin_drive::{Drive, Roles};
use quoin_pool::{FormatOptions, PoolOptions, Transaction};
use quoin_target::Target;
use quoin_world::{Disk, Thread, World};
use quoin_world_sim::{SimOptions, SimWorld};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

const IQN: &str = "iqn.2026-11.io.quoin:sim";

async fn until(world: &SimWorld, array: &Array, state: State) {
    while array.status().state != state {
        world.sleep(Duration::from_millis(5)).await;
    }
}

/// It would take the pool back, and the other owner would do the same.
#[test]
fn a_pool_that_another_owner_took_over_is_not_opened_again() {
    let world = SimWorld::new(1, SimOptions::default());
    let disk = world.disk("d0", 64 * MIB);
    let (inner, made) = (world.clone(), disk.clone());
    let format = async move {
        let disks = vec![(made as Arc<dyn Disk>, Roles { journal: true, data: true })];
        let options = FormatOptions {
            slab_bytes: MIB as u32,
            row_bytes: 64 << 10,
            journal_bytes: Some(16 * MIB),
            ..FormatOptions::default()
        };
        quoin_pool::format(&*inner, disks, options).await.unwrap()
    };
    let options = ArrayOptions {
        name: "sim".into(),
        pool: world.run(format).unwrap(),
        iqn: IQN.into(),
        version: "0".into(),
        portals: Vec::new(),
        nbd: Vec::new(),
        pool_options: PoolOptions { cache_bytes: 0, ..PoolOptions::default() },
        space: SpacePercents::default(),
    };
    let bay = vec![disk.clone() as Arc<dyn Disk>];
    let array = Array::new(world.clone(), Box::new(bay), Target::new(IQN), options);
    let inner = world.clone();
    let main = async move {
        inner.spawn(Thread::Background, Box::pin(array.clone().run()));
        until(&inner, &array, State::Online).await;
        let drive = array.drives().each(|slot| slot.drive().cloned()).remove(0).unwrap();
        let other = drive.attach(HolderId(Uuid::from_u128(1)));
        drop(drive);
        let epoch = Epoch(other.epoch().0 + 1);
        other.raise_epoch(epoch).await.unwrap();
        let pool = array.pool().unwrap();
        let volume = pool.next_volume_id();
        pool.commit(Transaction::new().create_volume(volume)).await.unwrap_err();
        drop(pool);
        until(&inner, &array, State::Offline).await;

        // Long after others would have been opened again.
        inner.sleep(Duration::from_secs(60)).await;
        let status = array.status();
        assert_eq!(status.state, State::Offline);
        let reason = status.reason.unwrap();
        assert!(reason.contains("another owner has taken it over") && reason.contains("restart"), "{reason}");
        let events = array.events(EventSelection::default());
        let told =
            events.iter().filter(|event| event.text.contains("does not open the pool again by itself"));
        assert_eq!(told.count(), 1);
        drop(other);
        let opened = Drive::inspect(disk).await.unwrap();
        assert_eq!(opened.epoch(), epoch, "nobody took the pool over after that");
    };
    world.run(main).unwrap();
    world.end();
}
