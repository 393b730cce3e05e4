//! What may change about a volume while it is used: size, name, tags, and whether space is kept for it.

use crate::lab::{Lab, create, trimmed};
use quoin_api::{HostCreate, MappingCreate, State, VolumeCreate, VolumeUpdate};
use quoin_array::{Array, ArrayError};
use quoin_base::{ByteRange, GIB, MIB};
use quoin_volume::{BlockDevice, DeviceError, Volume};
use quoin_world::Slice;
use std::{collections::BTreeMap, sync::Arc};

const BLOCK: u64 = 8192;

async fn write(volume: &Volume, offset: u64, byte: u8) -> Result<(), DeviceError> {
    volume.write(offset, vec![Slice::copy_of(&[byte; BLOCK as usize])]).await
}

async fn holds(volume: &Volume, offset: u64, byte: u8) -> bool {
    let slices = volume.read(ByteRange::new(offset, BLOCK)).await.unwrap();
    slices.iter().all(|slice| slice.iter().all(|found| *found == byte))
}

/// Resizes the volume, once its former tail is given back.
async fn resize(array: &Arc<Array>, size_bytes: u64, force: bool) -> Result<quoin_api::Volume, ArrayError> {
    loop {
        let update = VolumeUpdate { size_bytes: Some(size_bytes), force, ..VolumeUpdate::default() };
        match array.change_volume("v1", update).await {
            Err(error) if kind(&error) == "trimming" => trimmed(array).await,
            outcome => return outcome,
        }
    }
}

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

#[test]
fn a_volume_grows_and_shrinks_and_never_shows_what_was_cut_off() {
    let lab = Lab::new();
    let array = lab.start();
    let volume = lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let volume = array.volume("v1").unwrap();
        write(&volume, 0, 1).await.unwrap();
        assert!(matches!(write(&volume, GIB, 2).await, Err(DeviceError::OutOfRange { .. })));
        assert_eq!(resize(&array, 3 * GIB, false).await.unwrap().size_bytes, 3 * GIB);
        assert!(holds(&volume, 3 * GIB - BLOCK, 0).await);
        write(&volume, 2 * GIB, 2).await.unwrap();
        write(&volume, 3 * GIB - BLOCK, 3).await.unwrap();

        let refused = resize(&array, GIB, false).await.unwrap_err();
        assert_eq!(kind(&refused), "data-lost");
        assert!(refused.problem().to_string().contains("holds data beyond byte 1073741824"), "{refused}");
        // The refusal fenced nobody off.
        write(&volume, 2 * GIB, 4).await.unwrap();
        volume.unmap(ByteRange::new(2 * GIB, GIB)).await.unwrap();
        resize(&array, GIB, false).await.unwrap();
        assert!(matches!(write(&volume, 2 * GIB, 5).await, Err(DeviceError::OutOfRange { .. })));
        resize(&array, 3 * GIB, false).await.unwrap();
        assert!(holds(&volume, 2 * GIB, 0).await);
        for (size, said) in [(0, "is nothing"), (GIB + 1, "whole number of blocks"), (1 << 50, "too large")] {
            let error = resize(&array, size, true).await.unwrap_err();
            assert!(error.problem().detail.contains(said), "{error}");
            assert_eq!(error.problem().title, "volume not changed");
        }

        write(&volume, 2 * GIB, 6).await.unwrap();
        resize(&array, GIB, true).await.unwrap();
        // Beyond where the tail was.
        resize(&array, 4 * GIB, false).await.unwrap();
        assert!(holds(&volume, 2 * GIB, 0).await);
        write(&volume, 2 * GIB, 7).await.unwrap();
        volume
    });
    lab.until(|| !volume.is_trimming());
    lab.on_array(&array, async move |array| {
        assert!(holds(&volume, 2 * GIB, 7).await);
        assert!(holds(&volume, 0, 1).await);
        assert_eq!(array.show_volume("v1").unwrap().size_bytes, 4 * GIB);
    });
    lab.stop(array);
}

#[test]
fn a_tail_that_was_cut_off_before_a_failure_is_emptied_after_it() {
    let lab = Lab::new();
    let array = lab.start();
    let volume = lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let volume = array.volume("v1").unwrap();
        for offset in (0..GIB).step_by(8 * MIB as usize) {
            write(&volume, offset, 1).await.unwrap();
        }
        volume
    });
    lab.on_array(&array, async |array| resize(&array, MIB, true).await.unwrap());
    lab.break_drive();
    lab.wait(&array, State::Offline);
    lab.mend_drive();
    lab.wait(&array, State::Online);
    lab.until(|| !volume.is_trimming());
    lab.until(|| volume.mapped_bytes() == Some(BLOCK));
    lab.stop(array);
    // The same over a restart of the process.
    let array = lab.start();
    let volume = lab.on_array(&array, async |array| {
        resize(&array, GIB, false).await.unwrap();
        let volume = array.volume("v1").unwrap();
        for offset in (8 * MIB..GIB).step_by(8 * MIB as usize) {
            assert!(holds(&volume, offset, 0).await, "{offset}");
        }
        volume
    });
    assert!(!volume.is_trimming());
    lab.stop(array);
}

#[test]
fn a_volume_is_made_near_another_one_that_there_is() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        let near = |name, near: &str| VolumeCreate { near: Some(near.into()), ..create(name) };
        array.create_volume(create("v1")).await.unwrap();
        array.create_volume(near("v2", "v1")).await.unwrap();
        assert_eq!(kind(&array.create_volume(near("v3", "v9")).await.unwrap_err()), "not-found");
        assert_eq!(array.list_volumes().unwrap().len(), 2);
    });
    lab.stop(array);
}

#[test]
fn a_new_name_and_tags_change_nothing_else() {
    let lab = Lab::new();
    let array = lab.start();
    let (before, after) = lab.on_array(&array, async |array| {
        let tags = BTreeMap::from([("app".to_owned(), "db".to_owned())]);
        let before = array.create_volume(VolumeCreate { tags, ..create("v1") }).await.unwrap();
        array.create_volume(create("v2")).await.unwrap();
        let initiators = vec!["iqn.2026-11.test:h1".to_owned()];
        array.create_host(HostCreate { name: "h1".into(), initiators, chap: None }).await.unwrap();
        let mapping = MappingCreate {
            volume: "v1".into(),
            host: "h1".into(),
            lun: Some(3),
            read_only: false,
            writable: false,
        };
        array.map(mapping).await.unwrap();

        let rename = |name: &str| VolumeUpdate { name: Some(name.into()), ..VolumeUpdate::default() };
        assert_eq!(kind(&array.change_volume("v1", rename("v2")).await.unwrap_err()), "exists");
        assert_eq!(kind(&array.change_volume("v1", rename("V")).await.unwrap_err()), "invalid");
        assert_eq!(kind(&array.change_volume("v9", rename("v8")).await.unwrap_err()), "not-found");
        array.change_volume("v1", rename("v1")).await.unwrap();
        array.change_volume("v1", rename("db1")).await.unwrap();
        assert_eq!(kind(&array.show_volume("v1").map(drop).unwrap_err()), "not-found");
        let tags = [("app", None), ("tier", Some("gold")), ("none", None)];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
        let update = VolumeUpdate { tags: Some(tags.into()), ..VolumeUpdate::default() };
        let after = array.change_volume("db1", update).await.unwrap();
        let bad = BTreeMap::from([("a b".to_owned(), Some(String::new()))]);
        let update = VolumeUpdate { tags: Some(bad), ..VolumeUpdate::default() };
        assert_eq!(kind(&array.change_volume("db1", update).await.unwrap_err()), "invalid");
        (before, after)
    });
    assert_eq!((after.uuid, after.mappings[0].lun), (before.uuid, 3));
    assert_eq!(after.tags, BTreeMap::from([("tier".to_owned(), "gold".to_owned())]));
    lab.stop(array);
    let array = lab.start();
    lab.on_array(&array, async move |array| assert_eq!(array.show_volume("db1").unwrap(), after));
    assert_eq!(array.target().hosts()[0].mappings[0].volume, "db1");
    lab.stop(array);
}

#[test]
fn a_thick_volume_has_its_space_whatever_others_take() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        let thick = |name, size_bytes| VolumeCreate { thick: true, size_bytes, ..create(name) };
        let refused = array.create_volume(thick("v9", 4 * GIB)).await.unwrap_err();
        assert_eq!((refused.problem().status, refused.problem().which.as_str()), (507, "volume v9"));
        let made = array.create_volume(thick("v1", 32 * MIB)).await.unwrap();
        assert_eq!((made.thick, made.reserved_bytes, made.mapped_bytes), (true, Some(32 * MIB), Some(0)));
        let v1 = array.volume("v1").unwrap();
        assert!(holds(&v1, 0, 0).await);
        array.create_volume(create("v2")).await.unwrap();
        let v2 = array.volume("v2").unwrap();
        let mut filled = 0;
        while filled < GIB {
            let data = Slice::copy_of(&vec![2; MIB as usize]);
            match v2.write(filled, vec![data]).await {
                Ok(()) => filled += MIB,
                Err(DeviceError::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!((MIB..GIB).contains(&filled), "{filled}");
        for round in 0..3 {
            for offset in (0..32 * MIB).step_by(MIB as usize) {
                v1.write(offset, vec![Slice::copy_of(&vec![round; MIB as usize])]).await.unwrap();
            }
        }
        let set = |thick| VolumeUpdate { thick: Some(thick), ..VolumeUpdate::default() };
        assert_eq!(array.change_volume("v2", set(true)).await.unwrap_err().problem().status, 507);
        assert_eq!(resize(&array, GIB, false).await.unwrap_err().problem().status, 507);
        let thin = array.change_volume("v1", set(false)).await.unwrap();
        assert_eq!((thin.thick, thin.reserved_bytes), (false, Some(0)));
        v2.unmap(ByteRange::new(0, 32 * MIB)).await.unwrap();
        let again = array.change_volume("v1", set(true)).await.unwrap();
        assert_eq!(again.reserved_bytes, Some(32 * MIB));
        resize(&array, MIB, true).await.unwrap();
    });
    lab.until(|| array.show_volume("v1").unwrap().reserved_bytes == Some(MIB));
    lab.stop(array);
    let array = lab.start();
    assert_eq!(array.show_volume("v1").unwrap().reserved_bytes, Some(MIB));
    lab.stop(array);
}
