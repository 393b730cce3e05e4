//! Volumes in the slices of a pool.

use crate::rig::{Rig, SIZE, create};
use quoin_base::MIB;
use quoin_pool::Transaction;
use quoin_volume::{Folder, Tags, VolumeSpec};

#[test]
fn a_volume_near_another_one_is_in_its_slice() {
    let rig = Rig::with_slices(1, 48 * MIB, 6 * MIB, 3);
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let mut made = Vec::new();
        for name in ["v1", "v2", "v3"] {
            made.push(create(&volumes, name).await);
        }
        let slices: Vec<_> = made.iter().map(|volume| volume.id().slice().0).collect();
        assert_eq!(slices, [0, 1, 2]);
        for (name, near) in ["v4", "v5", "v6"].into_iter().zip([&made[1], &made[1], &made[2]]) {
            let spec = VolumeSpec {
                name: name.into(),
                size_bytes: SIZE,
                block_bytes: 512,
                thick: false,
                tags: Tags::new(),
                folder: Folder::default(),
                policy: Default::default(),
            };
            let volume = volumes.create_near(spec, near, Transaction::new()).await.unwrap();
            assert_eq!(volume.id().slice(), near.id().slice());
        }
    });
}
