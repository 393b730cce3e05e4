//! What is found on a drive of unknown content.

use crate::{
    Target,
    input::Input,
    world::{Bench, DRIVE_BYTES, base},
};
use quoin_base::{SECTOR_BYTES, crc64};
use quoin_drive::{Label, probe};

/// Both copies of a label.
pub(crate) const LABEL: Target = Target {
    name: "drive_label",
    about: "a byte of modes, then what is written over the first bytes of both copies; checksums are mended",
    run,
    seeds,
    words: || vec![b"QUOINDRV".to_vec(), vec![0xFF; 8], vec![0; 8], vec![0, 16, 0, 0]],
    mutations: 1500,
};

/// Where the copies are, and where the checksum is in them.
const COPIES: [u64; 2] = [0, 65536];
const CHECKSUM: usize = 4088;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.u8();
    let bench = Bench::new(if mode & 1 == 0 { DRIVE_BYTES } else { u64::from(mode) * 64 * SECTOR_BYTES });
    if mode & 1 == 0 {
        bench.disk.restore(base().drive.clone());
    }
    for (copy, at) in COPIES.into_iter().enumerate() {
        let mut label = bench.disk.peek(0, CHECKSUM + 8);
        let len = usize::from(input.u16());
        let bytes = input.take(len.min(CHECKSUM));
        label[..bytes.len()].copy_from_slice(bytes);
        if mode & (2 << copy) == 0 {
            let crc = crc64(&label[..CHECKSUM]).0;
            label[CHECKSUM..].copy_from_slice(&crc.to_le_bytes());
        }
        if at + label.len() as u64 <= quoin_world::Disk::len_bytes(&*bench.disk) {
            bench.disk.poke(at, &label);
        }
    }
    let _ = bench.run(|_, disk| async move { probe(&disk).await.map_err(|error| error.to_string()) });
    if let Ok(pool) = bench.open() {
        let label: &Label = &bench.run(|_, disk| async move {
            let drives = quoin_drive::inspect_set(vec![disk]).await.expect("it was just opened");
            drives[0].label()
        });
        assert!(label.block_bytes > 0 && label.row_bytes > 0 && label.slab_bytes > 0);
        assert_eq!(pool.id(), label.pool);
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let bench = Bench::new(DRIVE_BYTES);
    bench.disk.restore(base().drive.clone());
    let label = bench.disk.peek(0, 184);
    let copy = [&(label.len() as u16).to_le_bytes()[..], &label].concat();
    vec![
        ("both", [&[0][..], &copy, &copy].concat()),
        ("one_torn", [&[2][..], &copy, &copy].concat()),
        ("small_drive", [&[0x21][..], &copy].concat()),
    ]
}
