//! A lane that waits for an extent while the journal's set of drives changes.

use super::*;
use crate::{
    FormatOptions,
    journal::{Extents, JournalParts},
    lifecycle::create::{NewDrive, format},
    store::Store,
};
use quoin_base::{DriveIndex, SliceId};
use quoin_drive::{Roles, open_set};
use quoin_world::Thread;
use quoin_world_sim::{SimOptions, SimWorld};
use std::time::Duration;

#[test]
fn a_lane_that_waits_goes_on_with_the_drives_that_are_left() {
    let world = SimWorld::new(1, SimOptions::default());
    let (journal, data) = (Roles { journal: true, data: false }, Roles { journal: false, data: true });
    let roles = [journal, journal, data];
    let disks: Vec<Arc<dyn quoin_world::Disk>> =
        (0..3).map(|i| world.disk(&format!("d{i}"), 10 << 20) as Arc<dyn quoin_world::Disk>).collect();
    let inner = world.clone();
    let (header, next) = world
        .run(async move {
            let options = FormatOptions {
                slab_bytes: 256 << 10,
                row_bytes: 64 << 10,
                journal_bytes: Some(3 << 20),
                journal_columns: 2,
                ..FormatOptions::default()
            };
            let drives = disks.iter().cloned().zip(roles).map(|(disk, roles)| NewDrive::alone(disk, roles));
            format(&*inner, drives.collect(), options).await.unwrap();
            let store = Arc::new(Store::take_over(open_set(disks).await.unwrap()).await.unwrap());
            // The first drive has a slab for one extent only.
            let slabs = [(0, 0), (1, 0), (1, 1), (1, 2)];
            let slabs = slabs.map(|(drive, slab)| Column { drive: DriveIndex(drive), slab });
            let journal = Arc::new(Journal::new(JournalParts {
                slice: SliceId(0),
                store: store.clone(),
                threads: 1,
                placed_lanes: 0,
                extents: Extents::new(2, slabs.to_vec(), [], 1),
                next_sequence: Sequence(1),
                idle_after: Duration::from_secs(1),
            }));
            let lane = journal.lanes[0].clone();
            let first = journal.next_extent_for(&lane, Sequence(1), Left::default()).await.unwrap();
            assert_eq!((first.extent.slabs.len(), first.header.set.get()), (2, 1));
            let (sender, taken) = quoin_world::one_shot();
            let waiting = journal.clone();
            inner.spawn(
                Thread::Data(0),
                Box::pin(async move {
                    let next = waiting.next_extent_for(&lane, Sequence(2), Left::of(&first)).await.unwrap();
                    sender.send((next.header, next.extent.slabs));
                }),
            );
            inner.sleep(Duration::from_millis(1)).await;
            assert!(store.fail_drive(DriveIndex(0)).await.unwrap());
            taken.await.unwrap()
        })
        .unwrap();
    assert_eq!(header.set.get(), 2);
    assert_eq!(next.iter().map(|column| column.drive.0).collect::<Vec<_>>(), [1]);
}
