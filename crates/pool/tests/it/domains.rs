//! Fault domains: columns are kept apart by them, and drives are taken out by hand.

use crate::rig::{Rig, create, options as rig_options, pattern, read};
use quoin_base::{DriveIndex, Layout, MIB};
use quoin_drive::{Roles, open_set};
use quoin_pool::{FormatOptions, NewDrive, Pool, PoolError, format};
use quoin_world::Disk;
use quoin_world_sim::{SimOptions, SimWorld};

const SLAB: u32 = 256 << 10;
const WRITE: u64 = 256 << 10;
const WRITES: u64 = 60;

fn format_options(layout: Layout, journal_columns: u8) -> FormatOptions {
    FormatOptions {
        slab_bytes: SLAB,
        row_bytes: SLAB / 4,
        journal_bytes: Some(4 * MIB),
        layout,
        journal_columns,
        ..FormatOptions::default()
    }
}

/// A rig whose drives are in these domains, and the outcome of making a pool of them.
fn make(domains: &[&str], options: FormatOptions) -> (Rig, Result<(), PoolError>) {
    let world = SimWorld::new(11, SimOptions { data_threads: 2, step_limit: 20_000_000 });
    let disks: Vec<_> = (0..domains.len()).map(|i| world.disk(&format!("d{i}"), 40 * MIB)).collect();
    let roles = Roles { journal: true, data: true };
    let drives = disks.iter().zip(domains).map(|(disk, domain)| NewDrive {
        disk: disk.clone(),
        roles,
        domain: (*domain).to_owned(),
    });
    let drives = drives.collect();
    let rig = Rig { world, disks };
    let made = rig.run(|world| async move { format(&*world, drives, options).await.map(drop) });
    (rig, made)
}

#[test]
fn all_drives_of_a_domain_may_be_taken_out_and_then_no_other() {
    for slices in [1, 2] {
        let options = FormatOptions { slices, ..format_options(Layout::mirror(1), 2) };
        let (rig, made) = make(&["a", "a", "b", "c"], options);
        made.unwrap();
        let pool = rig.open();
        let volume = rig.run(|_| async move {
            let before = pool.protection();
            assert_eq!((before.domains, before.tolerates, before.journal_columns), (3, 1, 2), "{before:?}");
            let volume = create(&pool).await;
            for at in 0..WRITES {
                pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            assert!(pool.drive_space().iter().all(|of| of.used_bytes > 0 && of.used_bytes <= of.data_bytes));
            // Both drives of one domain: nothing has both its columns there.
            assert!(pool.fail_drive(DriveIndex(0)).await.unwrap());
            assert!(pool.fail_drive(DriveIndex(1)).await.unwrap());
            assert!(!pool.fail_drive(DriveIndex(1)).await.unwrap(), "it is out already");
            let after = pool.protection();
            assert!(after.degraded_segments > 0 && after.degraded_bytes > MIB, "{after:?}");
            assert_eq!((after.domains, after.tolerates, after.layout_now), (2, 0, Layout::mirror(1)));
            let refused = pool.fail_drive(DriveIndex(2)).await.unwrap_err().to_string();
            assert!(
                refused.contains("without drive d2: ") && refused.contains(" segments with "),
                "{refused}"
            );
            for at in 0..WRITES {
                assert!(read(&pool, volume, at * WRITE, WRITE).await == pattern(at, WRITE as usize).to_vec());
            }
            pool.close().await.unwrap();
            volume
        });
        // Without the drives that are out.
        let left: Vec<_> =
            rig.disks[2..].iter().map(|disk| disk.clone() as std::sync::Arc<dyn Disk>).collect();
        rig.run(|world| async move {
            let pool = Pool::open(world, open_set(left).await.unwrap(), rig_options()).await.unwrap();
            for at in 0..WRITES {
                assert!(read(&pool, volume, at * WRITE, WRITE).await == pattern(at, WRITE as usize).to_vec());
            }
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn what_a_layout_lacks_is_said() {
    let refused = |domains: &[&str], layout: &str, columns| {
        let (_rig, made) = make(domains, format_options(layout.parse().unwrap(), columns));
        made.unwrap_err().to_string()
    };
    let why = refused(&["a", "a", "a", ""], "raid6", 3);
    assert!(why.contains("layout raid6 (4+2) needs 6 fault domains"), "{why}");
    assert!(why.contains("are in 2: add drives in 4 more, or choose mirror"), "{why}");
    let why = refused(&["a", "a"], "mirror", 1);
    assert!(why.contains("mirror (2 copies) needs 2 fault domains") && why.contains("choose none"), "{why}");
    let why = refused(&["a", "b", "c"], "mirror", 4);
    assert!(why.contains("a journal on 4 drives side by side") && why.contains("in 1 more"), "{why}");
    let why = refused(&["a-name-that-is-longer-than-32-bytes"], "none", 1);
    assert!(why.contains("has 35 bytes; at most 32 are possible"), "{why}");
    assert!(refused(&["a\nb"], "none", 1).contains("control characters"));
}

#[test]
fn what_drives_hold_is_reckoned_by_domain() {
    let world = SimWorld::new(1, SimOptions::default());
    let roles = Roles { journal: true, data: true };
    let drive = |domain: &str| NewDrive {
        domain: domain.into(),
        ..NewDrive::alone(world.disk("d", 40 * MIB), roles)
    };
    let held = |layout: &str, domains: &[&str]| {
        let drives: Vec<_> = domains.iter().map(|domain| drive(domain)).collect();
        format_options(layout.parse().unwrap(), 1).data_bytes(&drives).unwrap()
    };
    let one = held("none", &[""]);
    assert!(one > 32 * MIB && one < 36 * MIB, "{one}");
    assert_eq!(held("mirror", &["", ""]), one);
    assert_eq!(held("raid5", &["", "", "", ""]), 3 * one);
    // Three drives that fail together, and one: a mirror has a copy of everything on the one.
    assert_eq!(held("mirror", &["a", "a", "a", ""]), one);
    assert_eq!(held("mirror", &["a", "a"]), 0);
    world.end();
}
