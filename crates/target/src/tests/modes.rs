//! Modes that are saved: across a reset and a restart, and what the others are told.

use super::{HOST, connect, device, lun, now, poll, sense};
use crate::{Access, Admission, Nexus, Notice, Target};
use quoin_ram_device::RamDevice;
use quoin_scsi::{Reply, Sense, Status};
use quoin_volume::{BlockDevice, DeviceError, Kept};
use quoin_world::Slice;
use std::sync::Arc;

const SAVES: u8 = 0x01;
const PAGE_FORMAT: u8 = 0x10;
const WRITE_10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const D_SENSE: u8 = 4;
const SWP: u8 = 8;

/// A target that shows this device, as after a restart, and two sessions that see it.
fn started(device: &Arc<RamDevice>) -> (Arc<Target<RamDevice>>, [Nexus<RamDevice>; 2]) {
    let target = Target::new("iqn.2026-11.test:target");
    target.set_host("h", &[HOST.into()], None).unwrap();
    target.map("h", lun(0), device.clone(), Access::ReadWrite).unwrap();
    let mut sessions = [connect(&target, HOST, 1), connect(&target, HOST, 2)];
    for nexus in &mut sessions {
        while sense(nexus, 0) == Some(Sense::POWER_ON_OCCURRED) {}
    }
    (target, sessions)
}

fn send(nexus: &mut Nexus<RamDevice>, cdb: &[u8], data: &[u8]) -> Reply {
    match nexus.admit(lun(0).to_wire(), cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => {
            let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
            now(request.run(data, 4096))
        }
    }
}

/// MODE SELECT of the control page.
fn select(nexus: &mut Nexus<RamDevice>, flags: u8, d_sense: u8, swp: u8) -> Option<Sense> {
    let list = [0, 0, 0, 0, 0x0A, 10, 0x22 | d_sense, 0x10, swp, 0, 0, 0, 0xFF, 0xFF, 0, 0];
    send(nexus, &[0x15, PAGE_FORMAT | flags, 0, 0, list.len() as u8, 0], &list).sense
}

/// D_SENSE and SWP of the control page, with this PC.
fn control(nexus: &mut Nexus<RamDevice>, page_control: u8) -> (u8, u8) {
    let reply = send(nexus, &[0x1A, 8, page_control << 6 | 0x0A, 0, 255, 0], &[]);
    let data = reply.data[0].to_vec();
    (data[6] & D_SENSE, data[8])
}

fn current_and_saved(nexus: &mut Nexus<RamDevice>) -> [(u8, u8); 2] {
    [control(nexus, 0), control(nexus, 3)]
}

/// Passes on what was announced to a session, and returns its unit attentions.
fn attentions(nexus: &mut Nexus<RamDevice>) -> Vec<Sense> {
    while let std::task::Poll::Ready(notice) = poll(nexus.notices().next()) {
        match notice {
            Notice::Attention { unit, sense } => nexus.attend(unit, sense),
            Notice::UnitReset { unit, .. } => drop(nexus.unit_reset(unit, false)),
            _ => panic!("another notice"),
        }
    }
    std::iter::from_fn(|| sense(nexus, 0)).collect()
}

#[test]
fn what_is_saved_comes_back_with_a_reset_and_a_restart() {
    let device = device(1);
    let (_target, [mut one, mut two]) = started(&device);
    assert_eq!(select(&mut one, SAVES, 0, SWP), None);
    assert_eq!(current_and_saved(&mut two), [(0, SWP); 2]);
    // Without SP only the current values change.
    assert_eq!(select(&mut one, 0, D_SENSE, 0), None);
    assert_eq!(current_and_saved(&mut one), [(D_SENSE, 0), (0, SWP)]);
    let unit = one.unit(lun(0).to_wire()).unwrap();
    drop(one.unit_reset(unit, true));
    assert_eq!(sense(&mut one, 0), Some(Sense::DEVICE_RESET_OCCURRED));
    assert_eq!(current_and_saved(&mut one), [(0, SWP); 2]);
    assert_eq!(send(&mut one, &WRITE_10, &[]).sense, Some(Sense::SOFTWARE_WRITE_PROTECTED));
    assert_eq!(select(&mut one, 0, D_SENSE, 0), None);

    let (_target, [mut one, _]) = started(&device);
    assert_eq!(current_and_saved(&mut one), [(0, SWP); 2]);
    // A list without pages, or none at all, saves what is current.
    for list in [&[0; 4][..], &[]] {
        assert_eq!(select(&mut one, 0, D_SENSE, SWP), None);
        let cdb = [0x15, PAGE_FORMAT | SAVES, 0, 0, list.len() as u8, 0];
        assert_eq!(send(&mut one, &cdb, list).status, Status::Good);
        assert_eq!(current_and_saved(&mut one), [(D_SENSE, SWP); 2]);
        assert_eq!(select(&mut one, SAVES, 0, 0), None);
        assert_eq!(device.kept(Kept::Settings), None, "as by default");
    }
}

#[test]
fn the_others_learn_of_what_is_saved() {
    let device = device(1);
    let (_target, [mut one, mut two]) = started(&device);
    let changed = [Sense::MODE_PARAMETERS_CHANGED];
    assert_eq!(select(&mut one, 0, D_SENSE, 0), None);
    assert_eq!(attentions(&mut two), changed);
    // Only the saved values change here, and nothing there.
    for expected in [&changed[..], &[]] {
        assert_eq!(select(&mut one, SAVES, D_SENSE, 0), None);
        assert_eq!(attentions(&mut two), expected);
    }
    assert_eq!(attentions(&mut one), []);
}

#[test]
fn what_cannot_be_saved_changes_nothing() {
    let device = device(1);
    let (_target, [mut one, mut two]) = started(&device);
    device.fail(Some(DeviceError::Offline { volume: "v1".into(), reason: "test".into() }));
    assert_eq!(select(&mut one, SAVES, 0, SWP), Some(Sense::BECOMING_READY));
    device.fail(None);
    assert_eq!(current_and_saved(&mut one), [(0, 0); 2]);
    // Nor does a list with an error, or one that is cut short.
    let mut list = vec![0, 0, 0, 0, 0x0A, 10, 0x26, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 1];
    let cdb = [0x15, PAGE_FORMAT | SAVES, 0, 0, list.len() as u8, 0];
    assert_eq!(send(&mut one, &cdb, &list).sense, Some(Sense::INVALID_FIELD_IN_PARAMETER_LIST));
    list.pop();
    assert_eq!(send(&mut one, &cdb, &list).sense, Some(Sense::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(device.kept(Kept::Settings), None);
    assert_eq!(attentions(&mut two), []);
    // A session that is kept out by a reservation saves nothing.
    assert_eq!(send(&mut two, &[0x16, 0, 0, 0, 0, 0], &[]).status, Status::Good);
    let cdb = [0x15, PAGE_FORMAT | SAVES, 0, 0, 0, 0];
    assert_eq!(send(&mut one, &cdb, &[]).status, Status::ReservationConflict);
}

#[test]
fn a_unit_whose_settings_cannot_be_read_has_the_default_ones_until_others_are_saved() {
    let device = device(1);
    now(device.keep(Kept::Settings, Some(b"?".to_vec()))).unwrap();
    let (_target, [mut one, _]) = started(&device);
    assert_eq!(current_and_saved(&mut one), [(0, 0); 2]);
    assert_eq!(send(&mut one, &WRITE_10, &[]).status, Status::Good);
    assert_eq!(select(&mut one, SAVES, 0, 0), None);
    assert_eq!(device.kept(Kept::Settings), None);
}
