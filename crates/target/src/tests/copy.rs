//! EXTENDED COPY between units of a session: what is copied, in whose rights, and what is told of it.

use super::{HOST, connect, device, lun, now, one_host, sense};
use crate::{Access, Admission, Nexus};
use quoin_ram_device::RamDevice;
use quoin_scsi::{Reply, Sense, Status};
use quoin_volume::BlockDevice;
use quoin_world::Slice;

const BLOCK: usize = 512;

/// The parameter list of a copy between units, each named as its VPD page does.
fn list(id: u8, units: &[&[u8]], segments: &[(u16, u16, u16, u64, u64)]) -> Vec<u8> {
    let mut list = vec![id, 0];
    list.extend((32 * units.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((28 * segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    for naa in units {
        let mut target = vec![0xE4, 0, 0, 0, 1, 3, 0, 16];
        target.extend(*naa);
        target.resize(32, 0);
        list.extend(target);
    }
    for (source, destination, blocks, from, to) in segments {
        list.extend([2, 0, 0, 24]);
        list.extend(source.to_be_bytes());
        list.extend(destination.to_be_bytes());
        list.extend([0, 0]);
        list.extend(blocks.to_be_bytes());
        list.extend(from.to_be_bytes());
        list.extend(to.to_be_bytes());
    }
    list
}

fn send(nexus: &mut Nexus<RamDevice>, number: u16, cdb: &[u8], data: &[u8]) -> Reply {
    match nexus.admit(lun(number).to_wire(), cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => {
            let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
            now(request.run(data, 4096))
        }
    }
}

fn copy(nexus: &mut Nexus<RamDevice>, number: u16, list: &[u8]) -> Reply {
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    send(nexus, number, &cdb, list)
}

fn status(nexus: &mut Nexus<RamDevice>, id: u8) -> Reply {
    send(nexus, 0, &[0x84, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[])
}

/// The NAA identifier of a unit, from its VPD page 83h.
fn naa(nexus: &mut Nexus<RamDevice>, number: u16) -> Vec<u8> {
    let page = send(nexus, number, &[0x12, 1, 0x83, 0, 255, 0], &[]).data[0].to_vec();
    page[8..24].to_vec()
}

#[test]
fn blocks_go_from_one_unit_to_another() {
    let target = one_host();
    let (source, destination, hidden) = (device(2), device(3), device(4));
    target.map("h", lun(2), source.clone(), Access::ReadWrite).unwrap();
    target.map("h", lun(3), destination.clone(), Access::ReadWrite).unwrap();
    target.set_host("other", &["iqn.2026-11.test:o".into()], None).unwrap();
    target.map("other", lun(4), hidden.clone(), Access::ReadWrite).unwrap();
    let (mut nexus, mut other) = (connect(&target, HOST, 1), connect(&target, "iqn.2026-11.test:o", 1));
    for number in [0, 2, 3] {
        while sense(&mut nexus, number).is_some() {}
    }
    while sense(&mut other, 4).is_some() {}
    now(source.write(4 * BLOCK as u64, vec![Slice::copy_of(&[7; 2 * BLOCK])])).unwrap();
    let names = [naa(&mut nexus, 2), naa(&mut nexus, 3), naa(&mut other, 4)];
    let units: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    // Two segments, sent to a unit that is neither.
    let good = copy(&mut nexus, 0, &list(5, &units[..2], &[(0, 1, 1, 4, 9), (0, 1, 1, 5, 20)]));
    assert_eq!(good.status, Status::Good);
    let bytes = [8, 9, 10, 20, 21].map(|block| destination.byte(block * BLOCK as u64));
    assert_eq!(bytes, [0, 7, 0, 7, 0]);
    // Its status is told once.
    assert_eq!(status(&mut nexus, 5).data[0][..], [0, 0, 0, 8, 1, 0, 2, 0, 0, 0, 4, 0]);
    assert_eq!(status(&mut nexus, 5).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    // What the host does not see it cannot copy, and what was copied before stays.
    let failed =
        copy(&mut nexus, 0, &list(6, &units, &[(0, 1, 1, 4, 30), (2, 1, 1, 0, 31), (0, 1, 1, 4, 32)]));
    assert_eq!(failed.sense, Some(Sense::COPY_TARGET_DEVICE_NOT_REACHABLE));
    assert_eq!(status(&mut nexus, 6).data[0][..], [0, 0, 0, 8, 2, 0, 1, 0, 0, 0, 2, 0]);
    assert_eq!([30, 32].map(|block| destination.byte(block * BLOCK as u64)), [7, 0]);
    for segment in [(0, 1, 2, 2047, 0), (0, 1, 2, 0, 2047), (0, 1, 1, u64::MAX, 0)] {
        let beyond = copy(&mut nexus, 0, &list(6, &units[..2], &[segment]));
        assert_eq!(beyond.sense, Some(Sense::COPY_ABORTED), "{segment:?}");
    }
}

#[test]
fn a_copy_keeps_to_what_protects_its_units() {
    const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    let target = one_host();
    let destination = device(3);
    target.map("h", lun(3), destination.clone(), Access::ReadOnly).unwrap();
    let (mut nexus, mut second) = (connect(&target, HOST, 1), connect(&target, HOST, 2));
    for session in [&mut nexus, &mut second] {
        for number in [0, 3] {
            while sense(session, number).is_some() {}
        }
    }
    let names = [naa(&mut nexus, 0), naa(&mut nexus, 3)];
    let units: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let copying = list(1, &units, &[(0, 1, 1, 0, 0)]);
    assert_eq!(copy(&mut nexus, 0, &copying).sense, Some(Sense::WRITE_PROTECTED));
    target.map("h", lun(3), destination, Access::ReadWrite).unwrap();
    while sense(&mut nexus, 3).is_some() {}
    assert_eq!(copy(&mut nexus, 0, &copying).status, Status::Good);
    // Another session has reserved where it goes, which is not where the command was sent.
    while sense(&mut second, 3).is_some() {}
    assert_eq!(send(&mut second, 3, &RESERVE_6, &[]).status, Status::Good);
    assert_eq!(copy(&mut nexus, 0, &copying).sense, Some(Sense::COPY_TARGET_DEVICE_NOT_REACHABLE));
    assert_eq!(copy(&mut nexus, 3, &copying).status, Status::ReservationConflict);
}

fn token_cdb(action: u8, list_id: u32, list: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, action);
    cdb[6..10].copy_from_slice(&list_id.to_be_bytes());
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    cdb
}

fn with_ranges(mut list: Vec<u8>, ranges: &[(u64, u32)]) -> Vec<u8> {
    let at = list.len() - 2;
    list[at..].copy_from_slice(&(16 * ranges.len() as u16).to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    list
}

fn populate(nexus: &mut Nexus<RamDevice>, number: u16, ranges: &[(u64, u32)]) -> Reply {
    let list = with_ranges(vec![0; 16], ranges);
    send(nexus, number, &token_cdb(0x10, 7, &list), &list)
}

fn write_using(nexus: &mut Nexus<RamDevice>, token: &[u8], offset: u64, ranges: &[(u64, u32)]) -> Reply {
    let mut list = vec![0; 536];
    list[8..16].copy_from_slice(&offset.to_be_bytes());
    list[16..528].copy_from_slice(token);
    let list = with_ranges(list, ranges);
    send(nexus, 0, &token_cdb(0x11, 8, &list), &list)
}

/// RECEIVE ROD TOKEN INFORMATION.
fn information(nexus: &mut Nexus<RamDevice>, number: u16, list_id: u8) -> Reply {
    send(nexus, number, &[0x84, 7, 0, 0, 0, list_id, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], &[])
}

#[test]
fn a_token_has_what_was_there_written_elsewhere_also_by_another_host() {
    let target = one_host();
    let (source, elsewhere) = (device(2), device(3));
    target.map("h", lun(2), source.clone(), Access::ReadWrite).unwrap();
    target.set_host("other", &["iqn.2026-11.test:o".into()], None).unwrap();
    target.map("other", lun(0), elsewhere.clone(), Access::ReadWrite).unwrap();
    let (mut nexus, mut other) = (connect(&target, HOST, 1), connect(&target, "iqn.2026-11.test:o", 1));
    while sense(&mut nexus, 2).is_some() {}
    while sense(&mut other, 0).is_some() {}
    let write = |block: u64, byte: u8| {
        now(source.write(block * BLOCK as u64, vec![Slice::copy_of(&[byte; BLOCK])])).unwrap();
    };
    (0..8).for_each(|block| write(block, block as u8 + 1));
    // Blocks 6, 7 and 1 in this order.
    assert_eq!(populate(&mut nexus, 2, &[(6, 2), (1, 1)]).status, Status::Good);
    let told = information(&mut nexus, 2, 7).data[0].to_vec();
    assert_eq!((told[4], told[5], told[23], told.len()), (0x10, 1, 3, 32 + 4 + 514));
    let token = told[38..].to_vec();
    (0..8).for_each(|block| write(block, 99));
    assert_eq!(write_using(&mut other, &token, 1, &[(20, 1), (40, 1)]).status, Status::Good);
    assert_eq!([20, 40, 41].map(|block| elsewhere.byte(block * BLOCK as u64)), [8, 2, 0]);
    assert_eq!(information(&mut other, 0, 8).data[0][4..6], [0x11, 1]);
    // More than the token stands for, another token, and zeroes.
    let more = write_using(&mut other, &token, 1, &[(20, 3)]);
    assert_eq!(more.sense, Some(Sense::COPY_TARGET_DATA_UNDERRUN));
    let mut forged = token.clone();
    forged[130] ^= 1;
    assert_eq!(write_using(&mut other, &forged, 0, &[(20, 1)]).sense, Some(Sense::TOKEN_UNKNOWN));
    assert_eq!(information(&mut other, 0, 8).data[0][5], 2);
    let mut zeroes = vec![0; 512];
    zeroes[..8].copy_from_slice(&[0xFF, 0xFF, 0, 1, 0, 0, 1, 0xF8]);
    assert_eq!(write_using(&mut other, &zeroes, 0, &[(20, 1)]).status, Status::Good);
    assert_eq!([20, 40].map(|block| elsewhere.byte(block * BLOCK as u64)), [0, 2]);
    assert_eq!(populate(&mut nexus, 2, &[(2047, 2)]).sense, Some(Sense::LBA_OUT_OF_RANGE));
    assert_eq!(information(&mut nexus, 2, 9).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    // It goes when nobody uses it.
    target.tick(quoin_world::Nanos(31 * 1_000_000_000));
    assert_eq!(write_using(&mut other, &token, 0, &[(20, 1)]).sense, Some(Sense::TOKEN_UNKNOWN));
}
