//! Guards: what takes a volume from under a live session is refused and names the session, unless by force; and hosts are told
//! when what they may do changes.

use crate::lab::{Lab, create};
use quoin_api::{
    Access, AccessUpdate, Deletion, ExportCreate, GroupCreate, HostChange, HostCreate, MappingCreate,
    SnapshotCreate, VolumeUpdate,
};
use quoin_array::{Array, ArrayError};
use quoin_target::{Admission, ExportClient, Lun, Nexus, NexusName};
use quoin_volume::Volume;
use std::sync::Arc;

const IQN: &str = "iqn.2026-11.test:h1";
const OTHER_IQN: &str = "iqn.2026-11.test:h1b";

async fn login(array: &Array) -> Nexus<Volume> {
    let name = NexusName { initiator: IQN.into(), isid: [0; 6], group: 1 };
    array.target().connect(name, "10.0.0.7:3333".into(), 0).await
}

/// The problem of a refusal, which must name the session.
fn in_use(outcome: Result<impl Sized, ArrayError>) -> String {
    let Err(error) = outcome else { panic!("it was not refused") };
    let problem = error.problem();
    assert_eq!((problem.status, problem.kind.as_str()), (409, "urn:quoin:problem:in-use"), "{problem}");
    assert!(problem.why.contains("10.0.0.7:3333"), "{problem}");
    assert!(problem.next.contains("--force"), "{problem}");
    problem.title
}

fn map(volume: &str) -> MappingCreate {
    MappingCreate { volume: volume.into(), host: "h1".into(), lun: None, read_only: false, writable: false }
}

fn forced() -> Deletion {
    Deletion { force: true, ..Deletion::default() }
}

async fn prepare(array: &Arc<Array>, volumes: &[&str]) {
    let initiators = vec![IQN.into(), OTHER_IQN.into()];
    array.create_host(HostCreate { name: "h1".into(), initiators, chap: None }).await.unwrap();
    for volume in volumes {
        array.create_volume(create(volume)).await.unwrap();
        array.map(map(volume)).await.unwrap();
    }
}

#[test]
fn nothing_is_taken_from_under_a_live_session_but_by_force() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        prepare(&array, &["v1", "v2", "v3"]).await;
        let session = login(&array).await;
        let unmap = Deletion { unmap: true, ..Deletion::default() };
        let shrink = |force| VolumeUpdate { size_bytes: Some(1 << 20), force, ..VolumeUpdate::default() };
        let read_only = |force| VolumeUpdate { writable: Some(false), force, ..VolumeUpdate::default() };
        let only_other =
            |force| HostChange { initiators: Some(vec![OTHER_IQN.into()]), force, ..HostChange::default() };
        let to_read_only = |force| AccessUpdate { access: Access::ReadOnly, force };

        assert_eq!(in_use(array.unmap("h1", "v1", false).await), "volume not unmapped");
        assert_eq!(in_use(array.change_host("h1", only_other(false)).await), "host not changed");
        let nobody = HostChange { initiators: Some(vec!["nobody".into()]), ..HostChange::default() };
        let problem = array.change_host("h1", nobody).await.unwrap_err().problem();
        assert_eq!((problem.status, problem.title.as_str()), (422, "host not changed"), "{problem}");
        assert_eq!(in_use(array.delete_host("h1", true, false).await), "host not deleted");
        assert_eq!(in_use(array.delete_volume("v1", unmap).await), "volume not deleted");
        assert_eq!(in_use(array.change_volume("v1", shrink(false)).await), "volume not shrunk");
        assert_eq!(in_use(array.change_volume("v1", read_only(false)).await), "volume not made read-only");
        assert_eq!(
            in_use(array.set_mapping("h1", "v1", to_read_only(false)).await),
            "mapping not made read-only"
        );

        array.change_volume("v1", shrink(true)).await.unwrap();
        array.set_mapping("h1", "v2", to_read_only(true)).await.unwrap();
        array.change_volume("v1", read_only(true)).await.unwrap();
        array.unmap("h1", "v1", true).await.unwrap();
        array.delete_volume("v2", forced()).await.unwrap();
        array.change_host("h1", only_other(true)).await.unwrap();
        let told = array.events(Default::default());
        let told = told.iter().filter(|event| event.text.contains("by force: host h1 sees")).count();
        assert_eq!(told, 6, "each change by force is told with whom it hit");
        // Its session is no host's any more: nobody is hit.
        array.delete_host("h1", true, false).await.unwrap();
        drop(session);
        array.delete_volume("v1", Deletion::default()).await.unwrap();
    });
    lab.stop(array);
}

#[test]
fn an_export_is_not_taken_from_its_clients_but_by_force_and_changes_under_them() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let export = |name: &str, read_only, writable| ExportCreate {
            volume: "v1".into(),
            name: Some(name.into()),
            read_only,
            writable,
            allow: Vec::new(),
            tls_clients: Vec::new(),
        };
        let both = array.create_export(export("both", true, true)).await.unwrap_err();
        assert_eq!(both.problem().status, 422);
        array.create_export(export("e", false, false)).await.unwrap();
        let address = "10.0.0.7:3333".to_owned();
        let client = ExportClient { address, tls_name: None, encrypted: false, since_ms: 0 };
        let served = array.exports().get("e").unwrap();
        let connected = served.connect(client);
        let set = |access, force| AccessUpdate { access, force };

        assert_eq!(in_use(array.delete_export("e", false).await), "export not deleted");
        assert_eq!(
            in_use(array.set_export("e", set(Access::ReadOnly, false)).await),
            "export not made read-only"
        );
        assert!(!served.is_read_only());
        let view = array.set_export("e", set(Access::ReadOnly, true)).await.unwrap();
        assert_eq!((view.read_only, view.access, view.clients.len()), (true, Access::ReadOnly, 1));
        assert!(served.is_read_only(), "the client that stayed connected meets it");
        // To let it write harms nobody.
        array.set_export("e", set(Access::Default, false)).await.unwrap();
        assert!(!served.is_read_only());
        array.delete_export("e", true).await.unwrap();
        drop(connected);
    });
    lab.stop(array);
}

#[test]
fn a_member_of_a_group_is_not_deleted_by_mistake() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        prepare(&array, &[]).await;
        array.create_volume(create("v1")).await.unwrap();
        let group = GroupCreate { name: "g".into(), volumes: vec!["v1".into()] };
        array.create_group(group).await.unwrap();
        let refused = array.delete_volume("v1", Deletion::default()).await.unwrap_err().problem();
        assert_eq!(refused.kind, "urn:quoin:problem:in-group");
        assert!(refused.next.contains("quoin group remove g v1"), "{refused}");
        array.delete_volume("v1", forced()).await.unwrap();
        assert!(array.show_group("g").unwrap().volumes.is_empty());
    });
    lab.stop(array);
}

/// Sends a command descriptor block without data to LUN `lun`; its status and sense key, code and qualifier.
async fn send(nexus: &mut Nexus<Volume>, lun: u16, cdb: &[u8]) -> Result<Vec<u8>, (u8, u8, u8)> {
    let lun = Lun::new(lun).unwrap().to_wire();
    let reply = match nexus.admit(lun, cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => request.run(Vec::new(), 1 << 20).await,
    };
    match reply.sense {
        Some(sense) => {
            let bytes = sense.fixed();
            Err((bytes[2] & 0xF, bytes[12], bytes[13]))
        }
        None => Ok(reply.data.iter().flat_map(|slice| slice.iter().copied()).collect()),
    }
}

const TEST_UNIT_READY: [u8; 6] = [0; 6];
/// MODE SENSE(6) of the caching page.
const MODE_SENSE: [u8; 6] = [0x1A, 8, 8, 0, 64, 0];
/// UNMAP without a parameter list: refused on a write-protected unit, else good.
const UNMAP: [u8; 10] = [0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const MODE_PARAMETERS_CHANGED: (u8, u8, u8) = (6, 0x2A, 1);
const WRITE_PROTECTED: (u8, u8, u8) = (7, 0x27, 0);

/// Hears what there is to hear of a unit.
async fn heard(nexus: &mut Nexus<Volume>, lun: u16) -> Vec<(u8, u8, u8)> {
    let mut heard = Vec::new();
    while let Err(sense) = send(nexus, lun, &TEST_UNIT_READY).await {
        heard.push(sense);
    }
    heard
}

/// Whether the unit says that it is write-protected, in both ways.
async fn is_protected(nexus: &mut Nexus<Volume>, lun: u16) -> bool {
    let said = send(nexus, lun, &MODE_SENSE).await.unwrap()[2] & 0x80 != 0;
    let refused = match send(nexus, lun, &UNMAP).await {
        Ok(_) => false,
        Err(sense) => {
            assert_eq!(sense, WRITE_PROTECTED);
            true
        }
    };
    assert_eq!(said, refused, "MODE SENSE and commands differ");
    said
}

#[test]
fn hosts_may_only_read_a_snapshot_unless_it_or_their_mapping_is_writable() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        prepare(&array, &["v1"]).await;
        let take = |name: &str, writable| SnapshotCreate {
            volume: "v1".into(),
            name: Some(name.into()),
            tags: Default::default(),
            writable,
            retain_s: None,
        };
        assert!(!array.create_snapshot(take("plain", false)).await.unwrap().writable);
        assert!(array.create_snapshot(take("made", true)).await.unwrap().writable);
        array.create_snapshot(take("mapped", false)).await.unwrap();
        let read_only = |mapping: quoin_api::Mapping| mapping.read_only;
        assert!(read_only(array.map(map("plain")).await.unwrap()));
        assert!(!read_only(array.map(map("made")).await.unwrap()));
        let writable = MappingCreate { writable: true, ..map("mapped") };
        assert!(!read_only(array.map(writable).await.unwrap()));
        let both = MappingCreate { read_only: true, writable: true, ..map("v1") };
        assert_eq!(array.map(both).await.unwrap_err().problem().status, 422);

        let mut host = login(&array).await;
        let mut protected = Vec::new();
        for lun in 0..4 {
            heard(&mut host, lun).await;
            protected.push(is_protected(&mut host, lun).await);
        }
        assert_eq!(protected, [false, true, false, false], "v1, plain, made, mapped");

        // It changes while the host is logged in, and the host is told once.
        let set = |access, force| AccessUpdate { access, force };
        array.set_mapping("h1", "plain", set(Access::ReadWrite, false)).await.unwrap();
        assert_eq!(heard(&mut host, 1).await, [MODE_PARAMETERS_CHANGED]);
        assert!(!is_protected(&mut host, 1).await);
        array.set_mapping("h1", "plain", set(Access::Default, true)).await.unwrap();
        assert_eq!(heard(&mut host, 1).await, [MODE_PARAMETERS_CHANGED]);
        assert!(is_protected(&mut host, 1).await);
        let writable = VolumeUpdate { writable: Some(true), ..VolumeUpdate::default() };
        assert!(array.change_volume("plain", writable).await.unwrap().writable);
        assert_eq!(heard(&mut host, 1).await, [MODE_PARAMETERS_CHANGED]);
        assert!(!is_protected(&mut host, 1).await);
        // What changes nothing for the host is not told.
        array.set_mapping("h1", "plain", set(Access::ReadWrite, false)).await.unwrap();
        assert_eq!(heard(&mut host, 1).await, []);
        // A volume that comes from no other is not read-only for having been a snapshot.
        array.promote_snapshot("made").await.unwrap();
        assert!(!is_protected(&mut host, 2).await);
    });
    lab.stop(array);
    let array = lab.start();
    let shown: Vec<_> =
        array.list_mappings().unwrap().into_iter().map(|m| (m.volume, m.access, m.read_only)).collect();
    let expected = [
        ("v1", Access::Default, false),
        ("plain", Access::ReadWrite, false),
        ("made", Access::Default, false),
        ("mapped", Access::ReadWrite, false),
    ];
    assert_eq!(shown, expected.map(|(volume, access, read_only)| (volume.to_owned(), access, read_only)));
    lab.stop(array);
}
