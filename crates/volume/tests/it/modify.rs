//! Changes that depend on what is there: of many at once, each sees what the ones before it left.

use crate::rig::{Rig, create};
use futures_util::future::join_all;
use quoin_base::ByteRange;
use quoin_volume::BlockDevice;
use quoin_world::Slice;

/// Parts of two blocks of the pool.
const RANGE: ByteRange = ByteRange { offset: 8192 - 512, len: 1024 };

#[test]
fn none_is_lost() {
    let rig = Rig::new(1);
    let (volumes, slot) = (rig.volumes.clone(), rig.slot.clone());
    rig.run(async move {
        let volume = create(&volumes, "v1").await;
        volume.write(0, vec![Slice::copy_of(&[9; 16384])]).await.unwrap();
        slot.get().unwrap().drain().await.unwrap();
        let count = |bytes: &mut [u8]| {
            let before = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            bytes[..8].copy_from_slice(&(before.wrapping_add(1)).to_le_bytes());
            true
        };
        let first = u64::from_le_bytes([9; 8]);
        let done = join_all((0..200).map(|_| volume.modify(RANGE, count))).await;
        assert!(done.iter().all(Result::is_ok), "{done:?}");
        // One that leaves it as it is writes nothing.
        let written = volume.stats().unwrap().written_bytes;
        volume
            .modify(RANGE, |bytes| {
                bytes.fill(1);
                false
            })
            .await
            .unwrap();
        assert_eq!(volume.stats().unwrap().written_bytes, written);
        let read = volume
            .read(ByteRange::new(0, 16384))
            .await
            .unwrap()
            .iter()
            .flat_map(|s| s.to_vec())
            .collect::<Vec<_>>();
        let at = RANGE.offset as usize;
        assert_eq!(u64::from_le_bytes(read[at..at + 8].try_into().unwrap()), first + 200);
        assert!(read[..at].iter().chain(&read[at + 8..]).all(|byte| *byte == 9));
    });
}
