//! Sessions of one opened drive: what they may write before and after they are fenced, and planted bugs of that.

use super::*;
use crate::{
    Drive, DriveError, Label,
    tests::{LEN_BYTES, dynamic, label, pool},
};
use quoin_world::{Slice, World};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

const PAGE: usize = 4096;

fn holder(id: u128) -> HolderId {
    HolderId(Uuid::from_u128(id))
}

#[test]
fn a_session_is_accepted_from_its_epoch_and_number_on() {
    let (a, b) = (holder(1), holder(2));
    let session = |holder, epoch, number| WriterSession { holder, epoch: Epoch(epoch), number };
    let mut fences = Fences { epoch: Epoch(3), of: vec![(a, 5)] };
    assert!(!fences.accept(session(a, 3, 4)) && fences.accept(session(a, 3, 5)));
    assert!(fences.accept(session(b, 3, 0)) && !fences.accept(session(b, 2, 9)));
    assert!(fences.accept(session(a, 4, 0)));
    assert_eq!(fences.problem(), None);
    fences.of.push(fences.of[0]);
    assert!(fences.problem().is_some(), "a holder is there twice");
}

/// One writer session writes numbers to a page, one after the other, while another takes the drive over and writes its own.
/// `Err` tells what the first one did after that.
fn taken_over(seed: u64) -> Result<(), String> {
    let (world, disks) = pool(seed, 1);
    let opened = world.run(Drive::open(dynamic(&disks[0]))).unwrap().unwrap();
    let (first, second) = (opened.attach(holder(1)), opened.attach(holder(2)));
    let page = |number: u8| vec![Slice::copy_of(&[number; PAGE])];
    let at = first.label().slabs_start_bytes + u64::from(first.label().slab_bytes) * 3;
    let clock = world.clone();
    let refusal = world
        .run(async move {
            first.raise_epoch(Epoch(2)).await.unwrap();
            let writer = async {
                for number in 1..100 {
                    if let Err(error) = first.write_slab(3, 0, page(number), true).await {
                        return Some(error);
                    }
                }
                None
            };
            let taker = async {
                clock.sleep(Duration::from_micros(300)).await;
                second.raise_epoch(Epoch(3)).await.unwrap();
                second.write_slab(3, 0, page(200), true).await.unwrap();
            };
            futures_util::future::join(writer, taker).await.0
        })
        .unwrap();
    let found = disks[0].peek(at, PAGE);
    match refusal {
        Some(DriveError::Expelled { .. }) if found.iter().all(|byte| *byte == 200) => Ok(()),
        Some(DriveError::Expelled { .. }) => Err(format!("its write of {} landed late", found[0])),
        other => Err(format!("it was not refused: {other:?}")),
    }
}

#[test]
fn a_session_that_was_taken_over_from_changes_nothing_more() {
    (0..100).for_each(|seed| assert_eq!(taken_over(seed), Ok(()), "seed {seed}"));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn fences_that_do_not_drain_or_do_not_refuse_are_found() {
    use crate::bugs::{Bug, plant};
    for bug in [Bug::FenceWithoutDrain, Bug::AcceptExpelled] {
        plant(Some(bug));
        let found = (0..100).any(|seed| taken_over(seed).is_err());
        plant(None);
        assert!(found, "{bug:?}");
    }
}

/// Also on a new drive, which accepts every writer session.
#[test]
fn nothing_is_written_by_a_holder_whose_session_has_not_begun() {
    let world = quoin_world_sim::SimWorld::new(1, quoin_world_sim::SimOptions::default());
    let disk = world.disk("d", LEN_BYTES);
    let label = Label { fences: Fences::default(), ..label(0) };
    let write = |drive: &Arc<Drive>| drive.write_slab(3, 0, vec![Slice::copy_of(&[1; PAGE])], true);
    world
        .run(async move {
            let begun = WriterSession { holder: holder(1), epoch: Epoch(0), number: 0 };
            let made = Drive::format(dynamic(&disk), label, begun).await.unwrap();
            write(&made).await.unwrap();
            let other = made.attach(holder(2));
            let opened = Drive::open(dynamic(&disk)).await.unwrap();
            for drive in [&other, &opened] {
                let refused = write(drive).await.unwrap_err();
                assert!(refused.to_string().contains("has no writer session on it"), "{refused}");
                assert!(matches!(drive.flush().await, Err(DriveError::NoWriterSession { .. })));
                let fence = drive.fence(holder(1), 1).await;
                assert!(matches!(fence, Err(DriveError::NoWriterSession { .. })));
                assert!(!drive.is_expelled() && !drive.is_failed());
            }
            other.fence(holder(2), 1).await.unwrap();
            opened.raise_epoch(Epoch(1)).await.unwrap();
            for drive in [&made, &other, &opened] {
                write(drive).await.unwrap();
            }
            made.fence(holder(2), 2).await.unwrap();
            assert!(other.is_expelled() && !made.is_expelled());
        })
        .unwrap();
}

#[test]
fn one_holder_is_fenced_for_good_and_others_go_on() {
    let (world, disks) = pool(1, 1);
    let opened = world.run(Drive::open(dynamic(&disks[0]))).unwrap().unwrap();
    let (a, b) = (opened.attach(holder(1)), opened.attach(holder(2)));
    let page = || vec![Slice::copy_of(&[1; PAGE])];
    world
        .run(async move {
            let early = a.write_slab(3, 0, page(), true).await;
            assert!(
                matches!(early, Err(DriveError::NoWriterSession { .. })),
                "its writer session has not begun"
            );
            a.raise_epoch(Epoch(2)).await.unwrap();
            // A second holder joins; the first one goes on.
            b.fence(holder(2), 1).await.unwrap();
            for drive in [&a, &b] {
                drive.write_slab(3, 0, page(), true).await.unwrap();
            }
            b.fence(holder(1), 1).await.unwrap();
            let refused = a.write_slab(3, 0, page(), true).await.unwrap_err();
            assert!(refused.to_string().contains("another owner has taken"), "{refused}");
            assert!(!a.is_failed(), "nothing is wrong with the drive");
            b.write_slab(3, 0, page(), true).await.unwrap();
            let same = b.fence(holder(1), 1).await;
            assert!(matches!(same, Err(DriveError::WriterSessionFenced { current: 1, asked: 1, .. })));
        })
        .unwrap();
    world.crash();
    let opened = world.run(Drive::open(dynamic(&disks[0]))).unwrap().unwrap();
    let kept = Fences { epoch: Epoch(2), of: vec![(holder(2), 1), (holder(1), 1)] };
    assert_eq!(opened.fences(), kept);
    let a = opened.attach(holder(1));
    world
        .run(async move {
            assert!(
                matches!(a.fence(holder(2), 2).await, Err(DriveError::NoWriterSession { .. })),
                "its writer session has not begun"
            );
            a.fence(holder(1), 2).await.unwrap();
            let late = opened.attach(holder(1));
            late.fence(holder(1), 3).await.unwrap();
            let fenced = a.fence(holder(2), 2).await;
            assert!(matches!(fenced, Err(DriveError::Expelled { .. })), "it is fenced itself");
            assert!(a.is_expelled() && !late.is_expelled());
            let a = late;
            for id in 3..=MAX_FENCES as u128 {
                a.fence(holder(id), 1).await.unwrap();
            }
            let one_more = a.fence(holder(99), 1).await;
            assert!(matches!(one_more, Err(DriveError::TooManyFences { .. })));
            a.raise_epoch(Epoch(3)).await.unwrap();
            assert!(a.fences().of.is_empty(), "a higher epoch refuses them all");
            a.write_slab(3, 0, vec![Slice::copy_of(&[2; PAGE])], true).await.unwrap();
        })
        .unwrap();
}
