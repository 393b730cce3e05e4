//! Folders, filters and templates.

use crate::lab::{Lab, create};
use quoin_api::{HostCreate, MappingCreate, VolumeCreate, VolumeKind, VolumeUpdate};
use quoin_array::{ArrayError, VolumeSelection};
use quoin_base::{ByteRange, MIB};
use quoin_target::NexusName;
use quoin_volume::{BlockDevice, DeviceError, Volume};
use quoin_world::Slice;

const INITIATOR: &str = "iqn.2026-11.test:h1";

async fn write(volume: &Volume, byte: u8) -> Result<(), DeviceError> {
    volume.write(0, vec![Slice::copy_of(&[byte; 8192])]).await
}

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

fn template(template: bool) -> VolumeUpdate {
    VolumeUpdate { template: Some(template), ..VolumeUpdate::default() }
}

#[test]
fn volumes_are_filed_and_found_again() {
    let lab = Lab::new();
    let array = lab.start();
    let before = lab.on_array(&array, async |array| {
        for (name, folder) in [("pg-1", "prod/sql"), ("pg-2", "/prod/"), ("web", "")] {
            array.create_volume(VolumeCreate { folder: folder.into(), ..create(name) }).await.unwrap();
        }
        let bad = VolumeCreate { folder: "a//b".into(), ..create("v9") };
        let refused = array.create_volume(bad).await.unwrap_err();
        assert_eq!((kind(&refused).as_str(), refused.problem().status), ("invalid", 422));
        let into = |folder: &str| VolumeUpdate { folder: Some(folder.into()), ..VolumeUpdate::default() };
        assert_eq!(kind(&array.change_volume("web", into("A")).await.unwrap_err()), "invalid");
        assert_eq!(array.change_volume("web", into("test/web")).await.unwrap().folder, "test/web");
        assert_eq!(array.change_volume("web", into("/")).await.unwrap().folder, "");
        array.list_folders().unwrap()
    });
    let folders: Vec<_> = before.iter().map(|f| (f.path.as_str(), f.volumes, f.volumes_below)).collect();
    assert_eq!(folders, [("/", 1, 3), ("prod", 1, 2), ("prod/sql", 1, 1)]);
    let told = array.events(quoin_array::EventSelection { limit: 2, ..Default::default() });
    assert_eq!(told[0].text, "removed from its folder");
    assert_eq!(told[1].text, "moved to folder test/web");
    lab.stop(array);
    let array = lab.start();
    assert_eq!(array.list_folders().unwrap(), before);
    let select = |field: &str, value: &str| {
        let query = [(field.to_owned(), value.to_owned()), ("sort".to_owned(), "-name".to_owned())];
        let found = VolumeSelection::parse(&query).unwrap().of(array.list_volumes().unwrap());
        found.into_iter().map(|volume| volume.name).collect::<Vec<_>>()
    };
    assert_eq!(select("folder", "prod"), ["pg-2", "pg-1"]);
    assert_eq!(select("name", "?eb"), ["web"]);
    lab.stop(array);
}

#[test]
fn nobody_writes_to_a_template() {
    let lab = Lab::new();
    let array = lab.start();
    let volume = lab.on_array(&array, async |array| {
        array.create_volume(create("gold")).await.unwrap();
        let volume = array.volume("gold").unwrap();
        write(&volume, 1).await.unwrap();
        let initiators = vec![INITIATOR.to_owned()];
        array.create_host(HostCreate { name: "h1".into(), initiators, chap: None }).await.unwrap();
        let map = MappingCreate {
            volume: "gold".into(),
            host: "h1".into(),
            lun: Some(1),
            read_only: false,
            writable: false,
        };
        array.map(map).await.unwrap();

        let name = NexusName { initiator: INITIATOR.into(), isid: [0; 6], group: 1 };
        let session = array.target().connect(name, "127.0.0.1:9".into(), 0).await;
        let refused = array.change_volume("gold", template(true)).await.unwrap_err();
        assert_eq!(kind(&refused), "in-use");
        assert!(refused.to_string().contains("gold is in use: host h1 sees gold as LUN 1"), "{refused}");
        write(&volume, 2).await.unwrap();
        drop(session);
        let made = array.change_volume("gold", template(true)).await.unwrap();
        assert_eq!(made.kind, VolumeKind::Template);

        for refused in [write(&volume, 3).await, volume.unmap(ByteRange::new(0, 8192)).await] {
            assert_eq!(refused, Err(DeviceError::ReadOnly { volume: "gold".into() }));
        }
        let size = |size_bytes| VolumeUpdate { size_bytes: Some(size_bytes), ..VolumeUpdate::default() };
        for bytes in [MIB, 1 << 40] {
            let refused = array.change_volume("gold", size(bytes)).await.unwrap_err();
            assert_eq!(kind(&refused), "template");
            assert!(refused.problem().next.contains("--no-template"), "{refused}");
        }
        volume
    });
    lab.stop(array);
    let array = lab.start();
    lab.on_array(&array, async move |array| {
        let again = array.volume("gold").unwrap();
        assert_eq!(write(&again, 4).await, Err(DeviceError::ReadOnly { volume: "gold".into() }));
        let held = again.read(ByteRange::new(0, 8192)).await.unwrap();
        assert!(held.iter().all(|slice| slice.iter().all(|byte| *byte == 2)));
        let update = VolumeUpdate { size_bytes: Some(2 << 30), ..template(false) };
        let back = array.change_volume("gold", update).await.unwrap();
        assert_eq!((back.kind, back.size_bytes), (VolumeKind::Volume, 2 << 30));
        write(&again, 5).await.unwrap();
        again.write((2 << 30) - 512, vec![Slice::copy_of(&[6; 512])]).await.unwrap();
    });
    drop(volume);
    lab.stop(array);
}

#[test]
fn a_template_is_made_by_force_under_a_writer() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("gold")).await.unwrap();
        let initiators = vec![INITIATOR.to_owned()];
        array.create_host(HostCreate { name: "h1".into(), initiators, chap: None }).await.unwrap();
        let map = MappingCreate {
            volume: "gold".into(),
            host: "h1".into(),
            lun: None,
            read_only: false,
            writable: false,
        };
        array.map(map).await.unwrap();
        let name = NexusName { initiator: INITIATOR.into(), isid: [0; 6], group: 1 };
        let _session = array.target().connect(name, "127.0.0.1:9".into(), 0).await;
        let forced = VolumeUpdate { force: true, ..template(true) };
        assert_eq!(array.change_volume("gold", forced).await.unwrap().kind, VolumeKind::Template);
    });
    lab.stop(array);
}
