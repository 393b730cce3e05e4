//! What a pool keeps of the layers above it: catalog transactions and the catalog of a checkpoint.

use crate::Target;
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Transaction, fuzzing};

/// Either of the two.
pub(crate) const CATALOG: Target = Target {
    name: "catalog",
    about: "a byte that says which, then a catalog transaction or the catalog of a checkpoint",
    run,
    seeds,
    words: || {
        vec![
            vec![1, 1, 0],
            vec![2, 1, 0],
            vec![3, 1, 0, 0, 0],
            vec![4, 1, 0, 0, 0],
            vec![5, 1, 0, 0, 0],
            vec![0xFF; 4],
        ]
    },
    mutations: 3000,
};

fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let decode = if kind & 1 == 0 { fuzzing::transaction } else { fuzzing::catalog };
    let Some(again) = decode(bytes) else { return };
    assert_eq!(decode(&again).as_ref(), Some(&again), "it changes when it is written again");
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let kind = ObjectKind(1);
    let volume = VolumeId(3);
    let all = Transaction::new().create_volume(volume).put(kind, "0000000003", b"{\"version\":1}".to_vec());
    let all = all.delete(kind, "0000000002").delete_volume(VolumeId(2)).reserve(volume, 1 << 30);
    let other = VolumeId(4);
    let thick = Transaction::new().create_volume(volume).create_volume(other);
    let thick = thick.reserve(volume, 1 << 30).reserve(other, 4 << 20).put(kind, "0000000004", vec![0; 3]);
    let thin_again = Transaction::new().reserve(volume, 0).reserve(other, 2 << 40);
    let with = |which: u8, bytes: Vec<u8>| [&[which], &bytes[..]].concat();
    vec![
        ("transaction", with(0, fuzzing::encoded(&all))),
        ("empty", with(0, fuzzing::encoded(&Transaction::new()))),
        ("reservations", with(0, fuzzing::encoded(&thin_again))),
        ("catalog", with(1, fuzzing::encoded_catalog(&all))),
        ("catalog_of_reservations", with(1, fuzzing::encoded_catalog(&thick))),
    ]
}
