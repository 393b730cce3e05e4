//! Counters of a unit: what counts, what log pages show of it, and how they are reset.

use super::{HOST, READY, connect, device, lun, now, poll, sense};
use crate::{Access, Admission, Nexus, Notice, Target};
use quoin_ram_device::RamDevice;
use quoin_scsi::{Reply, Sense, Status};
use quoin_volume::DeviceError;
use quoin_world::Slice;
use std::{sync::Arc, time::Duration};

const READ_2_BLOCKS: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0];
const WRITE_1_BLOCK: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const VERIFY_4_BLOCKS: [u8; 10] = [0x2F, 0, 0, 0, 0, 0, 0, 0, 4, 0];
const WRITE_ERRORS: u8 = 2;
const READ_ERRORS: u8 = 3;
const VERIFY_ERRORS: u8 = 5;
const NON_MEDIUM: u8 = 6;
const STATISTICS: u8 = 0x19;

fn two_sessions(device: &Arc<RamDevice>) -> (Arc<Target<RamDevice>>, [Nexus<RamDevice>; 2]) {
    let target = Target::new("iqn.2026-11.test:target");
    target.set_host("h", &[HOST.into()], None).unwrap();
    target.map("h", lun(0), device.clone(), Access::ReadWrite).unwrap();
    let mut sessions = [connect(&target, HOST, 1), connect(&target, HOST, 2)];
    sessions.iter_mut().for_each(|nexus| assert!(sense(nexus, 0).is_some()));
    (target, sessions)
}

/// Sends a command that takes 100 microseconds.
fn send(nexus: &mut Nexus<RamDevice>, cdb: &[u8], data: &[u8]) -> Reply {
    match nexus.admit(lun(0).to_wire(), cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => {
            let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
            let reply = now(request.run(data, 4096));
            request.count(&reply, Duration::from_micros(100));
            reply
        }
    }
}

/// The counters of a page's first parameters of 8 bytes each, without their headers.
fn counters(nexus: &mut Nexus<RamDevice>, page: u8) -> Vec<u64> {
    let reply = send(nexus, &[0x4D, 0, 0x40 | page, 0, 0, 0, 0, 1, 0, 0], &[]);
    assert_eq!(reply.sense, None);
    let data = reply.data[0].to_vec();
    let value = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    if page == STATISTICS {
        data[8..72].chunks(8).map(value).collect()
    } else {
        data[4..].chunks(12).map(|parameter| value(&parameter[4..])).collect()
    }
}

fn reset(nexus: &mut Nexus<RamDevice>, page: u8) -> Reply {
    send(nexus, &[0x4C, 2, 0x40 | page, 0, 0, 0, 0, 0, 0, 0], &[])
}

/// What a session was told by others.
fn announced(nexus: &Nexus<RamDevice>) -> Vec<Sense> {
    let next = || match poll(nexus.notices().next()) {
        std::task::Poll::Ready(Notice::Attention { sense, .. }) => Some(sense),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn commands_count_in_the_pages_of_their_kind() {
    let device = device(1);
    let (_target, [mut one, mut two]) = two_sessions(&device);
    send(&mut one, &READ_2_BLOCKS, &[]);
    send(&mut two, &READ_2_BLOCKS, &[]);
    send(&mut two, &WRITE_1_BLOCK, &[7; 512]);
    send(&mut two, &VERIFY_4_BLOCKS, &[]);
    send(&mut two, &READY, &[]);
    // COMPARE AND WRITE: two blocks are received, and one is written.
    let compare = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    assert_eq!(send(&mut one, &compare, &[7; 1024]).status, Status::Good);
    // WRITE SAME: one is received, and eight are written.
    let same = [0x41, 0, 0, 0, 0, 8, 0, 0, 8, 0];
    assert_eq!(send(&mut one, &same, &[7; 512]).status, Status::Good);
    assert_eq!(counters(&mut one, READ_ERRORS), [2048, 0]);
    assert_eq!(counters(&mut one, WRITE_ERRORS), [512 * 10, 0]);
    assert_eq!(counters(&mut one, VERIFY_ERRORS), [2048, 0]);
    assert_eq!(counters(&mut two, STATISTICS), [2, 3, 4, 4, 200, 300, 0, 0]);
}

#[test]
fn errors_of_the_unit_count_and_those_of_hosts_do_not() {
    let device = device(1);
    let (_target, [mut one, _two]) = two_sessions(&device);
    let volume = || "v1".to_owned();
    device.fail(Some(DeviceError::Medium { volume: volume(), offset: 512, reason: "test".into() }));
    for cdb in [READ_2_BLOCKS, VERIFY_4_BLOCKS, WRITE_1_BLOCK] {
        let found = send(&mut one, &cdb, &[7; 512]).sense;
        assert_eq!(found, Some(Sense::UNRECOVERED_READ_ERROR.with_information(1)));
    }
    device.fail(Some(DeviceError::Offline { volume: volume(), reason: "test".into() }));
    send(&mut one, &READ_2_BLOCKS, &[]);
    // A full pool, a range beyond the end, and a comparison that fails are no errors of the unit.
    device.fail(Some(DeviceError::NoSpace { volume: volume() }));
    send(&mut one, &WRITE_1_BLOCK, &[7; 512]);
    device.fail(None);
    send(&mut one, &[0x28, 0, 0xFF, 0, 0, 0, 0, 0, 2, 0], &[]);
    send(&mut one, &[0x2F, 2, 0, 0, 0, 0, 0, 0, 1, 0], &[7; 512]);
    for page in [READ_ERRORS, WRITE_ERRORS, VERIFY_ERRORS] {
        assert_eq!(counters(&mut one, page), [0, 1], "page {page:#x}");
    }
    assert_eq!(counters(&mut one, NON_MEDIUM), [1]);
    assert_eq!(counters(&mut one, STATISTICS)[..4], [2, 2, 0, 0]);
}

#[test]
fn a_reset_is_of_the_named_pages_and_told_to_the_others() {
    let device = device(1);
    let (_target, [mut one, mut two]) = two_sessions(&device);
    send(&mut one, &READ_2_BLOCKS, &[]);
    assert_eq!(reset(&mut one, READ_ERRORS).status, Status::Good);
    assert_eq!(counters(&mut one, READ_ERRORS), [0, 0]);
    assert_eq!(counters(&mut one, STATISTICS)[..2], [1, 0], "another page");
    assert_eq!((announced(&two), announced(&one)), (vec![Sense::LOG_PARAMETERS_CHANGED], vec![]));
    let list = [&[0x19, 0, 0, 68, 0, 1, 2, 64][..], &[0; 64]].concat();
    let cdb = [0x4C, 0, 0x40, 0, 0, 0, 0, 0, list.len() as u8, 0];
    assert_eq!(send(&mut two, &cdb, &list[..71]).sense, Some(Sense::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(counters(&mut one, STATISTICS)[0], 1);
    assert_eq!(send(&mut two, &cdb, &list).status, Status::Good);
    assert_eq!(counters(&mut one, STATISTICS), [0; 8]);
    assert_eq!(announced(&one), [Sense::LOG_PARAMETERS_CHANGED]);
    // What changes nothing, and what is refused, is not told.
    send(&mut one, &READ_2_BLOCKS, &[]);
    assert_eq!(send(&mut one, &[0x4C, 0, 0x40, 0, 0, 0, 0, 0, 0, 0], &[]).status, Status::Good);
    assert_eq!(reset(&mut one, 0x0D).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    assert_eq!(reset(&mut one, 0x2F).status, Status::Good);
    assert_eq!((counters(&mut one, READ_ERRORS), announced(&two)), (vec![1024, 0], vec![]));
    assert_eq!(reset(&mut one, 0).status, Status::Good);
    assert_eq!(counters(&mut one, READ_ERRORS), [0, 0]);
    // A session that a reservation keeps out reads the counters, but does not reset them.
    assert_eq!(send(&mut two, &[0x16, 0, 0, 0, 0, 0], &[]).status, Status::Good);
    assert_eq!(reset(&mut one, 0).status, Status::ReservationConflict);
    assert_eq!(counters(&mut one, NON_MEDIUM), [0]);
}

#[test]
fn counters_survive_a_reset_of_the_unit() {
    let device = device(1);
    let (_target, [mut one, _two]) = two_sessions(&device);
    send(&mut one, &READ_2_BLOCKS, &[]);
    let unit = one.unit(lun(0).to_wire()).unwrap();
    drop(one.unit_reset(unit, true));
    assert_eq!(sense(&mut one, 0), Some(Sense::DEVICE_RESET_OCCURRED));
    assert_eq!(counters(&mut one, READ_ERRORS), [1024, 0]);
}
