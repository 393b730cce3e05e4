//! What hosts set of a volume by SCSI commands, and what a restart of the array leaves of it.

use crate::lab::{Lab, create};
use quoin_api::{Deletion, HostCreate, MappingCreate};
use quoin_array::Array;
use quoin_target::{Admission, Lun, Nexus, NexusName};
use quoin_volume::Volume;
use quoin_world::Slice;
use std::sync::Arc;

const IQN: &str = "iqn.2026-11.test:h1";
const READY: [u8; 6] = [0; 6];
const POWER_ON_OCCURRED: Option<(u8, u8)> = Some((0x29, 0x01));
const SANITIZE_COMMAND_FAILED: Option<(u8, u8)> = Some((0x31, 0x03));

/// A session that has heard of its unit attentions.
async fn login(array: &Array) -> Nexus<Volume> {
    let name = NexusName { initiator: IQN.into(), isid: [0; 6], group: 1 };
    let mut nexus = array.target().connect(name, "10.0.0.7:3333".into(), 0).await;
    assert_eq!(send(&mut nexus, &READY, &[]).await.err(), POWER_ON_OCCURRED);
    nexus
}

/// Sends a command with data; returns ASC and ASCQ if it fails, or the data that came.
async fn send(nexus: &mut Nexus<Volume>, cdb: &[u8], data: &[u8]) -> Result<Vec<u8>, (u8, u8)> {
    let reply = match nexus.admit(Lun::new(0).unwrap().to_wire(), cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => {
            let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
            request.run(data, 4096).await
        }
    };
    match reply.sense_data() {
        Some(sense) => Err((sense[12], sense[13])),
        None => Ok(reply.data.iter().flat_map(|slice| slice.to_vec()).collect()),
    }
}

/// A host that sees a volume as number 0.
async fn prepare(array: &Arc<Array>) {
    let host = HostCreate { name: "h1".into(), initiators: vec![IQN.into()], chap: None };
    array.create_host(host).await.unwrap();
    array.create_volume(create("v1")).await.unwrap();
    let (volume, host) = ("v1".into(), "h1".into());
    let map = MappingCreate { volume, host, lun: Some(0), read_only: false, writable: false };
    array.map(map).await.unwrap();
}

/// SWP of the control page, with this PC.
async fn write_protect(nexus: &mut Nexus<Volume>, page_control: u8) -> Result<u8, (u8, u8)> {
    send(nexus, &[0x1A, 8, page_control << 6 | 0x0A, 0, 255, 0], &[]).await.map(|page| page[8])
}

#[test]
fn saved_modes_and_an_unfinished_sanitize_are_known_after_a_restart() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        prepare(&array).await;
        let mut nexus = login(&array).await;
        // BLOCK ERASE with IMMED and AUSE. This target has nothing that carries it on.
        array.target().carry_on_with(drop);
        send(&mut nexus, &[0x48, 0xA2, 0, 0, 0, 0, 0, 0, 0, 0], &[]).await.unwrap();
        assert_eq!(send(&mut nexus, &READY, &[]).await.err(), SANITIZE_COMMAND_FAILED);
    });
    lab.stop(array);

    let array = lab.start();
    lab.on_array(&array, async |array| {
        let mut nexus = login(&array).await;
        assert_eq!(send(&mut nexus, &READY, &[]).await.err(), SANITIZE_COMMAND_FAILED);
        send(&mut nexus, &[0x48, 0x1F, 0, 0, 0, 0, 0, 0, 0, 0], &[]).await.unwrap();
        // MODE SELECT of the control page with SP.
        let list = [0, 0, 0, 0, 0x0A, 10, 0x22, 0x10, 8, 0, 0, 0, 0xFF, 0xFF, 0, 0];
        send(&mut nexus, &[0x15, 0x11, 0, 0, 16, 0], &list).await.unwrap();
    });
    lab.stop(array);

    let array = lab.start();
    lab.on_array(&array, async |array| {
        let mut nexus = login(&array).await;
        assert_eq!(send(&mut nexus, &READY, &[]).await, Ok(Vec::new()));
        assert_eq!((write_protect(&mut nexus, 0).await, write_protect(&mut nexus, 3).await), (Ok(8), Ok(8)));
        drop(nexus);
        let deletion = Deletion { unmap: true, force: true, ..Deletion::default() };
        array.delete_volume("v1", deletion).await.unwrap();
    });
    lab.stop(array);
}

#[test]
fn the_page_of_provisioning_shows_the_space_of_the_pool() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        prepare(&array).await;
        drop(login(&array).await);
    });
    // The watcher notes it every second.
    let sets = || {
        lab.on_array(&array, async |array| {
            let mut nexus = login(&array).await;
            let page = send(&mut nexus, &[0x4D, 0, 0x4C, 0, 0, 0, 0, 0, 255, 0], &[]).await.unwrap();
            assert_eq!(page[..8], [0x8C, 0, 0, 24, 0, 1, 3, 8]);
            let sets = |at: usize| u64::from(u32::from_be_bytes(page[at..at + 4].try_into().unwrap()));
            (sets(8), sets(20))
        })
    };
    lab.until(|| sets().0 > 0);
    let (available, used) = sets();
    let usable_sets = array.status().capacity.unwrap().usable_bytes >> 20;
    assert!((usable_sets / 2..=usable_sets).contains(&available), "{available} of {usable_sets}");
    assert!(used <= usable_sets / 10, "{used}: nothing was written");
    lab.stop(array);
}
