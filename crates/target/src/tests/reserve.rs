//! Reserving a unit through sessions: what others may do then, that a preempt ends what is under way, and what is kept.

use super::{HOST, connect, device, lun, now, one_host, poll, sense};
use crate::{Access, Admission, Nexus, Notice, Target};
use quoin_ram_device::RamDevice;
use quoin_scsi::{Reply, ReservationType, Sense, Status};
use quoin_volume::{BlockDevice, DeviceError, Kept};
use quoin_world::Slice;
use std::{pin::pin, sync::Arc, task::Poll};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const WRITE_EXCLUSIVE: u8 = 1;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const WRITE_10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Sends a command with data.
fn send(nexus: &mut Nexus<RamDevice>, cdb: &[u8], data: &[u8]) -> Reply {
    match nexus.admit(lun(0).to_wire(), cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => now(request.run(slices(data), 4096)),
    }
}

fn slices(data: &[u8]) -> Vec<Slice> {
    if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] }
}

fn out_cdb(action: u8, kind: u8) -> [u8; 10] {
    [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0]
}

fn out_list(key: u64, action_key: u64) -> Vec<u8> {
    const APTPL: u8 = 1;
    [&key.to_be_bytes()[..], &action_key.to_be_bytes(), &[0, 0, 0, 0, APTPL, 0, 0, 0]].concat()
}

fn reserve_out(nexus: &mut Nexus<RamDevice>, (action, kind): (u8, u8), key: u64, action_key: u64) -> Reply {
    send(nexus, &out_cdb(action, kind), &out_list(key, action_key))
}

fn write(nexus: &mut Nexus<RamDevice>) -> Status {
    send(nexus, &WRITE_10, &[7; 512]).status
}

/// Two sessions of a host, both past their first attentions, and the device.
fn two_sessions() -> (Arc<Target<RamDevice>>, Arc<RamDevice>, [Nexus<RamDevice>; 2]) {
    let target = one_host();
    let device = device(1);
    target.unmap("h", lun(0)).unwrap();
    target.map("h", lun(0), device.clone(), Access::ReadWrite).unwrap();
    let mut sessions = [connect(&target, HOST, 1), connect(&target, HOST, 2)];
    for session in &mut sessions {
        while sense(session, 0).is_some() {}
    }
    (target, device, sessions)
}

/// Registers each with its number, and has the first one reserve the unit.
fn reserved(kind: u8) -> (Arc<Target<RamDevice>>, Arc<RamDevice>, [Nexus<RamDevice>; 2]) {
    let (target, device, mut sessions) = two_sessions();
    for (session, key) in sessions.iter_mut().zip(1..) {
        assert_eq!(reserve_out(session, (REGISTER, 0), 0, key).status, Status::Good);
    }
    assert_eq!(reserve_out(&mut sessions[0], (RESERVE, kind), 1, 0).status, Status::Good);
    (target, device, sessions)
}

#[test]
fn others_are_kept_out_before_they_send_data() {
    let (_target, _device, [mut holder, mut other]) = reserved(WRITE_EXCLUSIVE);
    assert_eq!((write(&mut holder), write(&mut other)), (Status::Good, Status::ReservationConflict));
    assert_eq!(send(&mut other, &READ_10, &[]).status, Status::Good);
    assert!(matches!(other.admit(lun(0).to_wire(), &WRITE_10), Admission::Done(_)));
}

#[test]
fn a_write_whose_data_was_on_its_way_is_kept_out_too() {
    let (_target, _device, [mut first, mut second]) = reserved(WRITE_EXCLUSIVE_REGISTRANTS);
    let Admission::Run(request) = first.admit(lun(0).to_wire(), &WRITE_10) else { panic!("it was let in") };
    assert_eq!(reserve_out(&mut second, (PREEMPT, WRITE_EXCLUSIVE), 2, 1).status, Status::Good);
    assert_eq!(now(request.run(slices(&[9; 512]), 0)).status, Status::ReservationConflict);
}

#[test]
fn a_preempt_is_answered_once_nothing_of_the_other_is_under_way() {
    let (_target, device, [mut first, mut second]) = reserved(WRITE_EXCLUSIVE_REGISTRANTS);
    device.hold(true);
    let Admission::Run(request) = first.admit(lun(0).to_wire(), &WRITE_10) else { panic!("it was let in") };
    let mut under_way = pin!(request.run(slices(&[9; 512]), 0));
    assert!(matches!(poll(under_way.as_mut()), Poll::Pending));
    let Admission::Run(preempt) = second.admit(lun(0).to_wire(), &out_cdb(PREEMPT, WRITE_EXCLUSIVE)) else {
        panic!("it was let in")
    };
    let mut preempt = pin!(preempt.run(slices(&out_list(2, 1)), 0));
    assert!(matches!(poll(preempt.as_mut()), Poll::Pending));
    // Nothing new comes in meanwhile.
    assert_eq!(write(&mut first), Status::ReservationConflict);
    device.hold(false);
    assert!(matches!(poll(preempt.as_mut()), Poll::Pending));
    assert_eq!(now(under_way).status, Status::Good);
    assert_eq!(now(preempt).status, Status::Good);
}

#[test]
fn who_was_preempted_is_told_and_its_commands_are_aborted() {
    let (_target, _device, [mut first, mut second]) = reserved(WRITE_EXCLUSIVE_REGISTRANTS);
    let notices = first.notices();
    let Admission::Run(preempt) =
        second.admit(lun(0).to_wire(), &out_cdb(PREEMPT_AND_ABORT, WRITE_EXCLUSIVE))
    else {
        panic!("it was let in")
    };
    let mut preempt = pin!(preempt.run(slices(&out_list(2, 1)), 0));
    assert!(matches!(poll(preempt.as_mut()), Poll::Pending));
    let Notice::Attention { unit, sense: told } = now(notices.next()) else { panic!("an attention") };
    first.attend(unit, told);
    let Notice::TasksAborted { done, .. } = now(notices.next()) else { panic!("an abort") };
    assert!(matches!(poll(preempt.as_mut()), Poll::Pending));
    drop(done);
    assert_eq!(now(preempt).status, Status::Good);
    assert_eq!(sense(&mut first, 0), Some(Sense::REGISTRATIONS_PREEMPTED));
    assert_eq!(write(&mut first), Status::ReservationConflict);
}

#[test]
fn two_who_abort_one_another_do_not_wait_for_one_another() {
    let (_target, device, [mut first, mut second]) = reserved(WRITE_EXCLUSIVE_REGISTRANTS);
    device.hold(true);
    // Something under way keeps the first preempt from its end while the second one waits for its turn.
    let Admission::Run(request) = first.admit(lun(0).to_wire(), &WRITE_10) else { panic!("it was let in") };
    let mut under_way = pin!(request.run(slices(&[9; 512]), 0));
    assert!(matches!(poll(under_way.as_mut()), Poll::Pending));
    let cdb = out_cdb(PREEMPT_AND_ABORT, WRITE_EXCLUSIVE);
    let Admission::Run(one) = second.admit(lun(0).to_wire(), &cdb) else { panic!("it was let in") };
    let Admission::Run(two) = first.admit(lun(0).to_wire(), &cdb) else { panic!("it was let in") };
    let (mut one, mut two) =
        (pin!(one.run(slices(&out_list(2, 1)), 0)), pin!(two.run(slices(&out_list(1, 2)), 0)));
    assert!(matches!(poll(one.as_mut()), Poll::Pending));
    assert!(matches!(poll(two.as_mut()), Poll::Pending));
    device.hold(false);
    assert_eq!(now(under_way).status, Status::Good);
    // The first one waits for the other session, whose command waits for nothing any more.
    assert!(matches!(poll(one.as_mut()), Poll::Pending));
    assert_eq!(now(two).status, Status::ReservationConflict);
    let notices = first.notices();
    while !matches!(now(notices.next()), Notice::TasksAborted { .. }) {}
    assert_eq!(now(one).status, Status::Good);
}

#[test]
fn reservations_are_kept_before_they_are_answered_and_are_there_after_a_restart() {
    let (_target, device, [mut first, mut second]) = reserved(WRITE_EXCLUSIVE);
    // What cannot be hardened does not count.
    device.fail(Some(DeviceError::Offline { volume: "v1".into(), reason: "a test".into() }));
    assert_eq!(reserve_out(&mut second, (CLEAR, 0), 2, 0).sense, Some(Sense::BECOMING_READY));
    device.fail(None);
    assert_eq!((write(&mut first), write(&mut second)), (Status::Good, Status::ReservationConflict));
    // Another target finds the device as it is.
    let again = one_host();
    again.unmap("h", lun(0)).unwrap();
    again.map("h", lun(0), device, Access::ReadWrite).unwrap();
    let mut sessions = [connect(&again, HOST, 1), connect(&again, HOST, 2)];
    for session in &mut sessions {
        while sense(session, 0).is_some() {}
    }
    let [mut first, mut second] = sessions;
    assert_eq!((write(&mut first), write(&mut second)), (Status::Good, Status::ReservationConflict));
    assert_eq!(reserve_out(&mut second, (CLEAR, 0), 2, 0).status, Status::Good);
    assert_eq!(write(&mut second), Status::Good);
}

#[test]
fn a_unit_that_nobody_sees_for_a_while_stays_reserved() {
    let (target, device, sessions) = reserved(WRITE_EXCLUSIVE);
    drop(sessions);
    target.unmap("h", lun(0)).unwrap();
    target.map("h", lun(5), super::device(5), Access::ReadWrite).unwrap();
    target.map("h", lun(0), device, Access::ReadWrite).unwrap();
    let mut other = connect(&target, HOST, 3);
    while sense(&mut other, 0).is_some() {}
    assert_eq!(write(&mut other), Status::ReservationConflict);
}

#[test]
fn reserve_ends_with_its_session_and_at_a_reset() {
    const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    let (_target, _device, [mut first, mut second]) = two_sessions();
    assert_eq!(send(&mut first, &RESERVE_6, &[]).status, Status::Good);
    assert_eq!((write(&mut first), write(&mut second)), (Status::Good, Status::ReservationConflict));
    let unit = first.unit(lun(0).to_wire()).unwrap();
    drop(first.unit_reset(unit, true));
    assert_eq!(write(&mut second), Status::Good);
    assert_eq!(sense(&mut first, 0), Some(Sense::DEVICE_RESET_OCCURRED));
    assert_eq!(send(&mut first, &RESERVE_6, &[]).status, Status::Good);
    assert_eq!(write(&mut second), Status::ReservationConflict);
    drop(first);
    assert_eq!(write(&mut second), Status::Good);
}

#[test]
fn an_administrator_sees_and_ends_what_is_reserved() {
    let (target, device, [mut first, mut second]) = reserved(WRITE_EXCLUSIVE);
    let view = target.reservations(&device);
    assert_eq!((view.kind, view.is_kept), (Some(ReservationType::WriteExclusive), true));
    let listed: Vec<_> = view.registrations.iter().map(|one| (one.isid[5], one.key, one.holds)).collect();
    assert_eq!(listed, [(1, 1, true), (2, 2, false)]);
    assert_eq!(write(&mut second), Status::ReservationConflict);

    // Without consent nothing changes.
    assert_eq!(now(target.clear_reservations(&device, |found| *found != view)).unwrap(), view);
    assert_eq!(write(&mut second), Status::ReservationConflict);

    let notices = [first.notices(), second.notices()];
    now(target.clear_reservations(&device, |_| true)).unwrap();
    for (session, notices) in [&mut first, &mut second].into_iter().zip(notices) {
        let Notice::Attention { unit, sense: told } = now(notices.next()) else { panic!("an attention") };
        session.attend(unit, told);
        assert_eq!(sense(session, 0), Some(Sense::RESERVATIONS_PREEMPTED));
        assert_eq!(write(session), Status::Good);
    }
    assert!(target.reservations(&device).is_empty());
    assert_eq!(device.kept(Kept::Reservations), None);
}

#[test]
fn an_administrator_ends_what_cannot_be_read_although_no_host_sees_the_volume() {
    let (target, device) = (Target::<RamDevice>::new("iqn.2026-11.test:array"), device(1));
    now(device.keep(Kept::Reservations, Some(b"{".to_vec()))).unwrap();
    assert!(target.reservations(&device).is_unreadable);
    now(target.clear_reservations(&device, |_| true)).unwrap();
    assert!(target.reservations(&device).is_empty());
    assert_eq!(device.kept(Kept::Reservations), None);
}

#[test]
fn what_is_reserved_stays_if_its_end_cannot_be_hardened() {
    let (target, device, [_, mut second]) = reserved(WRITE_EXCLUSIVE);
    device.fail(Some(DeviceError::Offline { volume: device.name(), reason: "test".into() }));
    assert!(now(target.clear_reservations(&device, |_| true)).is_err());
    device.fail(None);
    assert_eq!(write(&mut second), Status::ReservationConflict);
    assert_eq!(target.reservations(&device).registrations.len(), 2);
}
