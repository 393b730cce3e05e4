//! SANITIZE: what becomes of the blocks, what other commands are told meanwhile, and what a failure
//! leaves.

use super::{HOST, READY, ask, connect, lun, now, one_host, poll, sense};
use crate::{Access, Admission, Nexus, Target};
use parking_lot::Mutex;
use quoin_ram_device::RamDevice;
use quoin_scsi::{Reply, Sense, Status};
use quoin_volume::{BlockDevice, DeviceError, Kept};
use quoin_world::{Slice, Task};
use std::{pin::pin, sync::Arc, task::Poll};
use uuid::Uuid;

const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const EXIT_FAILURE_MODE: u8 = 0x1F;
const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;
const MIB: u64 = 1 << 20;
const WRITE_10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn cdb(flags: u8, parameter_bytes: usize) -> [u8; 10] {
    let [high, low] = (parameter_bytes as u16).to_be_bytes();
    [0x48, flags, 0, 0, 0, 0, 0, high, low, 0]
}

fn send(nexus: &mut Nexus<RamDevice>, cdb: &[u8], data: &[u8]) -> Reply {
    match nexus.admit(lun(7).to_wire(), cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => {
            let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
            now(request.run(data, 4096))
        }
    }
}

fn overwrite(nexus: &mut Nexus<RamDevice>, flags: u8, header: u8, pattern: &[u8]) -> Reply {
    let list = [&[header, 0, 0, pattern.len() as u8][..], pattern].concat();
    send(nexus, &cdb(flags | OVERWRITE, list.len()), &list)
}

/// A unit 7 of 4 MiB full of something, whose writes let others go first if `yields`, and two
/// sessions that see it.
fn unit(yields: bool) -> (Arc<Target<RamDevice>>, Arc<RamDevice>, [Nexus<RamDevice>; 2]) {
    let target = one_host();
    let device = RamDevice::new(512).sized(4 * MIB).filled(0xEE).identified(Uuid::from_u128(7));
    let device = Arc::new(if yields { device.yielding() } else { device });
    target.map("h", lun(7), device.clone(), Access::ReadWrite).unwrap();
    let mut sessions = [connect(&target, HOST, 1), connect(&target, HOST, 2)];
    for nexus in &mut sessions {
        while sense(nexus, 7).is_some() {}
    }
    (target, device, sessions)
}

/// Where the target puts work that goes on by itself.
fn apart(target: &Target<RamDevice>) -> Arc<Mutex<Vec<Task>>> {
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let kept = tasks.clone();
    target.carry_on_with(move |task| kept.lock().push(task));
    tasks
}

#[test]
fn block_erase_unmaps_every_block() {
    let (_target, device, [mut nexus, _]) = unit(false);
    for immediate in [0, IMMED] {
        now(device.write(0, vec![Slice::copy_of(&[1; 512])])).unwrap();
        // Nobody carries it on here, so that it ends before it is answered.
        assert_eq!(send(&mut nexus, &cdb(immediate | BLOCK_ERASE, 0), &[]).status, Status::Good);
        assert!(device.content().iter().all(|byte| *byte == 0));
    }
    assert_eq!(device.unmapped()[0].len, 4 * MIB);
    assert_eq!(send(&mut nexus, &cdb(EXIT_FAILURE_MODE, 0), &[]).status, Status::Good);
    assert_eq!(send(&mut nexus, &cdb(0x03, 0), &[]).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    assert_eq!(sense(&mut nexus, 7), None);
}

#[test]
fn overwrite_leaves_what_its_last_pass_wrote() {
    let (_target, device, [mut nexus, _]) = unit(false);
    assert_eq!(overwrite(&mut nexus, 0, 1, &[1, 2, 3]).status, Status::Good);
    // The pattern begins anew in every block.
    let block: Vec<u8> = [1, 2, 3].into_iter().cycle().take(512).collect();
    assert!(device.content().chunks(512).all(|found| found == block));
    for (header, left) in [(0x82, 0x5A), (0x83, 0xA5), (0x02, 0xA5)] {
        assert_eq!(overwrite(&mut nexus, 0, header, &[0xA5]).status, Status::Good);
        assert!(device.content().iter().all(|byte| *byte == left), "{header:#x}");
    }
    assert!(device.unmapped().is_empty());
    // A pass of zeroes unmaps.
    assert_eq!(overwrite(&mut nexus, 0, 1, &[0, 0]).status, Status::Good);
    assert_eq!((device.unmapped().len(), device.byte(4 * MIB - 1)), (1, 0));
    let refused = overwrite(&mut nexus, 0, 0x21, &[1]).sense;
    assert_eq!(refused, Some(Sense::INVALID_FIELD_IN_PARAMETER_LIST), "TEST");
    assert_eq!(sense(&mut nexus, 7), None);
}

#[test]
fn while_it_runs_other_commands_learn_how_far_it_has_come() {
    let (target, device, [mut nexus, mut other]) = unit(true);
    let tasks = apart(&target);
    assert_eq!(overwrite(&mut nexus, IMMED, 1, &[7]).status, Status::Good);
    let mut task = tasks.lock().pop().unwrap();
    let in_progress = |parts: u16| Some(Sense::SANITIZE_IN_PROGRESS.with_progress(parts));
    assert_eq!(sense(&mut other, 7), in_progress(0));
    // Each poll writes one MiB and begins the next.
    for done in [0, 0x4000, 0x8000] {
        assert!(poll(&mut task).is_pending());
        assert_eq!(sense(&mut other, 7), in_progress(done));
    }
    let start: [u8; 6] = [0x1B, 0, 0, 0, 1, 0];
    let reserve: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    for nexus in [&mut nexus, &mut other] {
        for cdb in [&READY[..], &start, &reserve, &WRITE_10, &cdb(BLOCK_ERASE, 0), &cdb(EXIT_FAILURE_MODE, 0)]
        {
            assert_eq!(ask(nexus, 7, cdb).sense, in_progress(0x8000), "{cdb:?}");
        }
        assert_eq!(ask(nexus, 7, &[0x12, 0, 0, 0, 36, 0]).status, Status::Good);
        assert_eq!(ask(nexus, 7, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).status, Status::Good);
        let fixed = ask(nexus, 7, &[0x03, 0, 0, 0, 18, 0]).data[0].to_vec();
        assert_eq!(fixed, [0x70, 0, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x04, 0x1B, 0, 0x80, 0x80, 0]);
        let descriptor = ask(nexus, 7, &[0x03, 1, 0, 0, 18, 0]).data[0].to_vec();
        assert_eq!(descriptor, [0x72, 2, 0x04, 0x1B, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 0x80, 0, 0]);
        assert_eq!(sense(nexus, 0), Some(Sense::POWER_ON_OCCURRED), "another unit");
    }
    // Neither a reset nor the end of the session stops it.
    let unit = nexus.unit(lun(7).to_wire()).unwrap();
    nexus.unit_reset(unit, true);
    drop(nexus);
    assert!(poll(&mut task).is_pending());
    assert_eq!(sense(&mut other, 7), in_progress(0xC000));
    assert!(poll(&mut task).is_ready());
    assert_eq!(sense(&mut other, 7), None);
    assert!(device.content().iter().all(|byte| *byte == 7));
}

#[test]
fn writes_that_were_let_in_end_before_it_begins() {
    let (target, device, [mut nexus, mut other]) = unit(false);
    let tasks = apart(&target);
    device.hold(true);
    let Admission::Run(write) = other.admit(lun(7).to_wire(), &WRITE_10) else { panic!("not admitted") };
    let Admission::Run(late) = other.admit(lun(7).to_wire(), &WRITE_10) else { panic!("not admitted") };
    let mut writing = pin!(write.run(vec![Slice::copy_of(&[9; 512])], 0));
    assert!(poll(writing.as_mut()).is_pending());
    assert_eq!(send(&mut nexus, &cdb(IMMED | BLOCK_ERASE, 0), &[]).status, Status::Good);
    let mut task = tasks.lock().pop().unwrap();
    assert!(poll(&mut task).is_pending());
    assert!(device.unmapped().is_empty());
    // One that was admitted, and whose data comes only now.
    let refused = now(late.run(vec![Slice::copy_of(&[9; 512])], 0)).sense;
    assert_eq!(refused, Some(Sense::SANITIZE_IN_PROGRESS.with_progress(0)));
    device.hold(false);
    let Poll::Ready(written) = poll(writing.as_mut()) else { panic!("it still waits") };
    assert_eq!(written.status, Status::Good);
    assert!(poll(&mut task).is_ready());
    assert_eq!(device.byte(0), 0);
}

#[test]
fn its_command_waits_for_it_until_nobody_hears_the_answer() {
    let (target, _device, [mut nexus, mut other]) = unit(false);
    let tasks = apart(&target);
    let admit = |nexus: &mut Nexus<RamDevice>| match nexus.admit(lun(7).to_wire(), &cdb(BLOCK_ERASE, 0)) {
        Admission::Run(request) => request,
        Admission::Done(reply) => panic!("{reply:?}"),
    };
    let request = admit(&mut nexus);
    let mut waiting = pin!(request.run(Vec::new(), 0));
    assert!(poll(waiting.as_mut()).is_pending());
    let mut task = tasks.lock().pop().unwrap();
    assert!(poll(&mut task).is_ready());
    let Poll::Ready(reply) = poll(waiting.as_mut()) else { panic!("it still waits") };
    assert_eq!(reply.status, Status::Good);
    let request = admit(&mut nexus);
    let mut waiting = pin!(request.run(Vec::new(), 0));
    assert!(poll(waiting.as_mut()).is_pending());
    other.let_go();
    assert!(poll(waiting.as_mut()).is_pending(), "another session");
    nexus.let_go();
    assert!(poll(waiting.as_mut()).is_ready());
    assert!(sense(&mut other, 7).is_some(), "it goes on");
    let mut task = tasks.lock().pop().unwrap();
    assert!(poll(&mut task).is_ready());
    assert_eq!(sense(&mut other, 7), None);
}

#[test]
fn a_failure_keeps_everybody_out_until_it_is_made_good() {
    let (target, device, [mut nexus, mut other]) = unit(false);
    let tasks = apart(&target);
    let failed = Some(Sense::SANITIZE_COMMAND_FAILED);
    let end = || assert!(poll(tasks.lock().pop().unwrap()).is_ready());
    let fail = |nexus: &mut Nexus<RamDevice>, flags: u8| {
        assert_eq!(overwrite(nexus, IMMED | flags, 1, &[7]).status, Status::Good);
        device.fail(Some(DeviceError::NoSpace { volume: "ram".into() }));
        end();
        device.fail(None);
    };
    fail(&mut nexus, 0);
    assert_eq!((sense(&mut other, 7), ask(&mut other, 7, &WRITE_10).sense), (failed, failed));
    assert_eq!(ask(&mut other, 7, &[0x03, 0, 0, 0, 18, 0]).data[0][12..14], [0x31, 0x03]);
    // It was restricted: only another restricted one ends it.
    let invalid = Some(Sense::INVALID_FIELD_IN_CDB);
    assert_eq!(send(&mut other, &cdb(EXIT_FAILURE_MODE, 0), &[]).sense, invalid);
    assert_eq!(send(&mut other, &cdb(AUSE | BLOCK_ERASE, 0), &[]).sense, invalid);
    assert_eq!(send(&mut other, &cdb(IMMED | BLOCK_ERASE, 0), &[]).status, Status::Good);
    end();
    assert_eq!(sense(&mut nexus, 7), None);
    fail(&mut nexus, AUSE);
    assert_eq!(sense(&mut other, 7), failed);
    assert_eq!(send(&mut other, &cdb(EXIT_FAILURE_MODE, 0), &[]).status, Status::Good);
    assert_eq!(sense(&mut nexus, 7), None);
}

/// A session with the unit after a restart.
fn restarted(device: &Arc<RamDevice>) -> (Arc<Target<RamDevice>>, Nexus<RamDevice>) {
    let target = one_host();
    target.map("h", lun(7), device.clone(), Access::ReadWrite).unwrap();
    let mut nexus = connect(&target, HOST, 1);
    assert_eq!(sense(&mut nexus, 7), Some(Sense::POWER_ON_OCCURRED));
    (target, nexus)
}

#[test]
fn after_a_restart_in_the_middle_it_has_failed() {
    let (_, device, _) = unit(true);
    let failed = Some(Sense::SANITIZE_COMMAND_FAILED);
    for flags in [0, AUSE] {
        let (target, mut nexus) = restarted(&device);
        let tasks = apart(&target);
        assert_eq!(overwrite(&mut nexus, IMMED | flags, 1, &[7]).status, Status::Good);
        // As soon as the command is answered, and until the last block is written.
        for _ in 0..4 {
            assert!(device.kept(Kept::Settings).is_some());
            let (_target, mut nexus) = restarted(&device);
            assert_eq!((sense(&mut nexus, 7), ask(&mut nexus, 7, &WRITE_10).sense), (failed, failed));
            assert_eq!(ask(&mut nexus, 7, &[0x12, 0, 0, 0, 36, 0]).status, Status::Good);
            assert!(poll(tasks.lock().last_mut().unwrap()).is_pending());
        }
        let (_target, mut nexus) = restarted(&device);
        let exit = send(&mut nexus, &cdb(EXIT_FAILURE_MODE, 0), &[]);
        if flags == AUSE {
            assert_eq!(exit.status, Status::Good);
        } else {
            assert_eq!(exit.sense, Some(Sense::INVALID_FIELD_IN_CDB));
            assert_eq!(send(&mut nexus, &cdb(BLOCK_ERASE, 0), &[]).status, Status::Good);
        }
        assert_eq!((sense(&mut nexus, 7), device.kept(Kept::Settings)), (None, None));
        assert_eq!(sense(&mut restarted(&device).1, 7), None);
    }
}

#[test]
fn its_beginning_and_its_end_are_hardened_or_it_has_failed() {
    let (target, device, [mut nexus, _]) = unit(false);
    let offline = || Some(DeviceError::Offline { volume: "ram".into(), reason: "test".into() });
    // What cannot be begun changes nothing.
    device.fail(offline());
    assert_eq!(send(&mut nexus, &cdb(BLOCK_ERASE, 0), &[]).sense, Some(Sense::BECOMING_READY));
    device.fail(None);
    assert_eq!((sense(&mut nexus, 7), device.byte(0)), (None, 0xEE));
    // Saved modes stay saved.
    let list = [0, 0, 0, 0, 0x0A, 10, 0x26, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];
    assert_eq!(send(&mut nexus, &[0x15, 0x11, 0, 0, 16, 0], &list).status, Status::Good);
    let modes = device.kept(Kept::Settings);
    let tasks = apart(&target);
    device.hold(true);
    assert_eq!(send(&mut nexus, &cdb(IMMED | AUSE | BLOCK_ERASE, 0), &[]).status, Status::Good);
    let mut task = tasks.lock().pop().unwrap();
    assert!(poll(&mut task).is_pending());
    device.fail(offline());
    device.hold(false);
    assert!(poll(&mut task).is_ready());
    let failed = Some(Sense::SANITIZE_COMMAND_FAILED);
    assert_eq!((sense(&mut nexus, 7), device.byte(0)), (failed, 0));
    // Nor can the failure be left before that is hardened.
    assert_eq!(send(&mut nexus, &cdb(EXIT_FAILURE_MODE, 0), &[]).sense, Some(Sense::BECOMING_READY));
    assert_eq!(sense(&mut nexus, 7), failed);
    device.fail(None);
    assert_eq!(send(&mut nexus, &cdb(EXIT_FAILURE_MODE, 0), &[]).status, Status::Good);
    assert_eq!((sense(&mut nexus, 7), device.kept(Kept::Settings)), (None, modes));
}

#[test]
fn what_does_not_reach_its_end_has_failed() {
    let (target, device, [mut nexus, _]) = unit(true);
    let tasks = apart(&target);
    // Dropped on the way, and overtaken by another content.
    assert_eq!(overwrite(&mut nexus, IMMED | AUSE, 1, &[7]).status, Status::Good);
    let mut task = tasks.lock().pop().unwrap();
    assert!(poll(&mut task).is_pending());
    drop(task);
    assert_eq!(sense(&mut nexus, 7), Some(Sense::SANITIZE_COMMAND_FAILED));
    assert_eq!(overwrite(&mut nexus, IMMED, 1, &[7]).status, Status::Good);
    let mut task = tasks.lock().pop().unwrap();
    assert!(poll(&mut task).is_pending());
    device.replace();
    assert!(poll(&mut task).is_ready());
    assert_eq!(sense(&mut nexus, 7), Some(Sense::MEDIUM_MAY_HAVE_CHANGED));
    assert_eq!(sense(&mut nexus, 7), Some(Sense::SANITIZE_COMMAND_FAILED));
}

#[test]
fn protection_and_reservations_hold_for_it() {
    let (target, device, [mut nexus, mut other]) = unit(false);
    assert_eq!(ask(&mut other, 7, &[0x16, 0, 0, 0, 0, 0]).status, Status::Good);
    for action in [BLOCK_ERASE, EXIT_FAILURE_MODE] {
        assert_eq!(send(&mut nexus, &cdb(action, 0), &[]).status, Status::ReservationConflict);
    }
    assert_eq!(ask(&mut other, 7, &[0x17, 0, 0, 0, 0, 0]).status, Status::Good);
    // Reserved while the list of an OVERWRITE is on its way.
    let list = [1, 0, 0, 1, 7];
    let Admission::Run(early) = nexus.admit(lun(7).to_wire(), &cdb(OVERWRITE, 5)) else {
        panic!("not admitted")
    };
    assert_eq!(ask(&mut other, 7, &[0x16, 0, 0, 0, 0, 0]).status, Status::Good);
    let reply = now(early.run(vec![Slice::copy_of(&list)], 0));
    assert_eq!(reply.status, Status::ReservationConflict);
    assert_eq!(ask(&mut other, 7, &[0x17, 0, 0, 0, 0, 0]).status, Status::Good);
    target.map("h", lun(7), device.clone(), Access::ReadOnly).unwrap();
    while sense(&mut nexus, 7).is_some() {}
    assert_eq!(send(&mut nexus, &cdb(BLOCK_ERASE, 0), &[]).sense, Some(Sense::WRITE_PROTECTED));
    assert_eq!(device.byte(0), 0xEE);
}
