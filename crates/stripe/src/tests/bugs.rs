//! What the other tests look at shows each planted bug.

use super::*;
use crate::bugs::{Bug, plant};

/// Whether a segment that is written while a drive fails, then again without that column, holds
/// what it should.
fn works() -> bool {
    let mut rig = Rig::new(1, geometry(3, 2));
    let row_bytes = rig.set.geometry.row_bytes as usize;
    let [first, second] = [1, 2].map(|salt| content(row_bytes, salt));
    rig.disks[1].fail();
    for (column, _) in rig.write(0, cut(&first, 12288)).unwrap().failed {
        rig.miss(column);
    }
    let is_known = rig.set.missing == ColumnSet::one(1);
    let reads = |rig: &Rig, row: u64, bytes: &[u8]| {
        let range = ByteRange::new(row * row_bytes as u64, row_bytes as u64);
        rig.read(range).unwrap()[..] == *bytes
    };
    let is_sound = is_known && reads(&rig, 0, &first);
    // What is wrong is written again.
    let rig_of_repair = Rig::new(3, geometry(3, 1));
    rig_of_repair.write(0, cut(&first[..row_bytes], 12288)).unwrap();
    let range = ByteRange::new(0, 8192);
    rig_of_repair.corrupt(0, range);
    let content = Slice::copy_of(&first[..8192]);
    rig_of_repair.run(|columns, set| async move {
        columns.rewrite(&set, range, ColumnSet::one(0), &content).await.unwrap();
    });
    let is_sound = is_sound && rig_of_repair.read(range).unwrap()[..] == first[..8192];
    // On drives that all work.
    let mut rig = Rig::new(2, geometry(3, 2));
    rig.miss(1);
    rig.write(row_bytes as u64, cut(&second, 12288)).unwrap();
    is_sound && reads(&rig, 1, &second)
}

#[test]
fn planted_bugs_are_found() {
    assert!(works());
    for bug in [Bug::ForgetLastParity, Bug::HideFailedColumns, Bug::ReadMissing, Bug::RewriteNextColumn] {
        plant(Some(bug));
        let works = works();
        plant(None);
        assert!(!works, "{bug:?}");
    }
}
