//! What becomes of the pool, on simulated drives: others take it over, and those that use it do not keep it.

use crate::{Array, EventSelection, simulated};
use quoin_api::{HostCreate, MappingCreate, ScrubUpdate, Severity, State, VolumeCreate};
use quoin_base::{Epoch, HolderId, MIB};
use quoin_drive::Drive;
use quoin_pool::{FormatOptions, Transaction};
use quoin_volume::BlockDevice;
use quoin_world::{Slice, Thread, World, one_shot};
use quoin_world_sim::{SimDisk, SimWorld};
use std::{future::Future, sync::Arc, time::Duration};
use uuid::Uuid;

async fn until(world: &SimWorld, array: &Array, state: State) {
    while array.status().state != state {
        world.sleep(Duration::from_millis(5)).await;
    }
}

/// An array in a simulated world, and its drive.
fn array() -> (Arc<SimWorld>, Arc<SimDisk>, Arc<Array>) {
    let format = FormatOptions { journal_bytes: Some(16 * MIB), ..FormatOptions::default() };
    let (world, mut disks, array) = simulated::array(1, 64 * MIB, format);
    (world, disks.remove(0), array)
}

/// It would take the pool back, and the other owner would do the same.
#[test]
fn a_pool_that_another_owner_took_over_is_not_opened_again() {
    let (world, disk, array) = array();
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

/// Runs the array until `work` with it is done.
fn with_array<F: Future<Output = ()> + Send + 'static>(
    work: impl FnOnce(Arc<SimWorld>, Arc<Array>) -> F + Send + 'static,
) {
    let (world, _, array) = array();
    let inner = world.clone();
    let main = async move {
        inner.spawn(Thread::Background, Box::pin(array.clone().run()));
        until(&inner, &array, State::Online).await;
        work(inner, array).await;
    };
    world.run(main).unwrap();
    world.end();
}

/// Closing the pool waits until all have let go of it, with the turn that the request waits for.
#[test]
fn a_request_that_stops_a_scrub_does_not_keep_the_pool_while_it_waits() {
    with_array(async |world: Arc<SimWorld>, array: Arc<Array>| {
        array.create_volume(VolumeCreate::new("v1", MIB)).await.unwrap();
        let data = vec![Slice::copy_of(&[1; 65_536])];
        array.volume("v1").unwrap().write(0, data).await.unwrap();
        world.sleep(Duration::from_secs(60)).await;
        let slow = ScrubUpdate { rate_bytes_s: Some(1), ..ScrubUpdate::default() };
        array.change_scrubs(slow).await.unwrap();
        array.start_scrub().await.unwrap();
        let turn = array.catalog().turn().await;
        // The task that keeps the pool open waits for its turn as well.
        array.log().record(Severity::Info, "test", "an event to be saved");
        world.sleep(Duration::from_secs(3)).await;
        assert!(array.scrubs().is_running());
        let pool = array.pool().unwrap();
        let handles = Arc::strong_count(&pool);
        let (asked, (sender, answered)) = (array.clone(), one_shot());
        let stop = async move { sender.send(asked.stop_scrub().await.is_ok()) };
        world.spawn(Thread::Background, Box::pin(stop));
        world.sleep(Duration::from_secs(3)).await;
        assert!(!array.scrubs().is_running());
        assert!(Arc::strong_count(&pool) < handles, "the scrub has let go of it, and the request as well");
        drop((turn, pool));
        assert!(answered.await.unwrap());
    });
}

/// What the mappings took away is hidden, whatever goes wrong with other hosts.
#[test]
fn an_error_about_a_host_leaves_no_other_with_more_than_its_mappings() {
    with_array(async |_, array: Arc<Array>| {
        array.create_volume(VolumeCreate::new("v1", MIB)).await.unwrap();
        for name in ["h1", "h2"] {
            let initiators = vec![format!("iqn.2026-11.test:{name}")];
            array.create_host(HostCreate { name: name.into(), initiators, chap: None }).await.unwrap();
            let (volume, host) = ("v1".to_owned(), name.to_owned());
            let mapping = MappingCreate { volume, host, lun: Some(1), read_only: false, writable: false };
            array.map(mapping).await.unwrap();
        }
        let turn = array.catalog().turn().await;
        array.hosts().change(&turn, array.volumes(), |access| {
            let mut first = access.host("h1").unwrap().clone();
            first.initiators = vec!["no name of an initiator".to_owned()];
            access.add_host(first);
            let second = access.mappings_of_host("h2").remove(0);
            access.remove_mapping(&second);
        });
        let shown = array.target().hosts();
        let shown: Vec<_> = shown.iter().map(|host| (host.name.as_str(), host.mappings.len())).collect();
        assert_eq!(shown, [("h2", 0)], "the first is not shown to initiators that it had");
    });
}
