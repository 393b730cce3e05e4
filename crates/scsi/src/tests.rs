//! Commands executed on a volume in RAM.

use crate::{
    Command, Geometry, ModeSelect, Modes, Port, Reply, Sense, SenseKey, Status, Unit, execute, mode_select,
};
use proptest::prelude::*;
use quoin_base::ByteRange;
use quoin_ram_device::RamDevice;
use quoin_volume::{BlockDevice, DeviceError, Provisioning, Thresholds};
use quoin_world::Slice;
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};
use uuid::Uuid;

const BLOCKS: u64 = 64;

/// A device in RAM that holds something everywhere.
fn ram(block_bytes: u32) -> RamDevice {
    let uuid = Uuid::from_u128(0x0193_2c07_1234_7abc_8def_0123_4567_89ab);
    RamDevice::new(block_bytes).sized(BLOCKS * u64::from(block_bytes)).filled(0xEE).identified(uuid)
}

fn run(device: &RamDevice, cdb: &[u8], data: &[u8], in_limit_bytes: u64) -> Reply {
    run_with(device, cdb, data, in_limit_bytes, Modes::default(), false)
}

/// Parses, checks and executes, as a target would.
fn run_with(
    device: &RamDevice,
    cdb: &[u8],
    data: &[u8],
    in_limit_bytes: u64,
    modes: Modes,
    read_only: bool,
) -> Reply {
    let port = Port { target_name: "iqn.2026-11.test:t".into(), group: 1 };
    let unit = Unit { port: &port, modes, saved: WRITE_PROTECT, read_only };
    let checked = Command::parse(cdb).and_then(|command| {
        let transfer = command.transfer(Geometry::of(device))?;
        unit.check_protection(&command)?;
        Ok((command, transfer))
    });
    let (command, transfer) = match checked {
        Ok(checked) => checked,
        Err(sense) => return Reply::check(sense),
    };
    let data = &data[..data.len().min(transfer.out_bytes as usize)];
    let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
    let future = pin!(execute(command, device, unit, data, in_limit_bytes));
    match { future }.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => {
            let returned = reply.data.iter().map(|slice| slice.len() as u64).sum::<u64>();
            assert!(returned <= transfer.in_bytes, "{command:?} returned more than it said");
            reply
        }
        Poll::Pending => panic!("a device in RAM is always ready"),
    }
}

fn data_of(reply: &Reply) -> Vec<u8> {
    assert_eq!((reply.status, reply.sense), (Status::Good, None));
    reply.data.iter().flat_map(|slice| slice.to_vec()).collect()
}

fn cdb16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

#[test]
fn written_blocks_are_read_back() {
    for block in [512, 4096] {
        let device = ram(block);
        let data: Vec<u8> = (0..2 * block).map(|n| n as u8).collect();
        let fua = 0x08;
        let reply = run(&device, &cdb16(0x8A, fua, 3, 2), &data, 0);
        assert_eq!((reply.status, reply.wanted_bytes), (Status::Good, 2 * u64::from(block)));
        assert_eq!(data_of(&run(&device, &cdb16(0x88, 0, 3, 2), &[], u64::MAX / 2)), data);
        // An initiator that takes less has less read, and learns what it missed.
        let reply = run(&device, &cdb16(0x88, 0, 3, 2), &[], 100);
        assert_eq!((data_of(&reply).len(), reply.wanted_bytes), (block as usize, 2 * u64::from(block)));
        // One that sends less has whole blocks written.
        run(&device, &cdb16(0x8A, 0, 10, 2), &data[..block as usize + 100], 0);
        assert_eq!(data_of(&run(&device, &cdb16(0x88, 0, 11, 1), &[], 4096))[0], 0xEE);
    }
}

#[test]
fn ranges_are_checked_before_anything_moves() {
    let device = ram(512);
    let sense = |cdb: &[u8]| run(&device, cdb, &[0; 4096], 4096).sense;
    assert_eq!(sense(&cdb16(0x88, 0, 64, 1)), Some(Sense::LBA_OUT_OF_RANGE));
    assert_eq!(sense(&cdb16(0x88, 0, u64::MAX, 1)), Some(Sense::LBA_OUT_OF_RANGE));
    assert_eq!(sense(&cdb16(0x88, 0, 64, 0)), None);
    assert_eq!(sense(&cdb16(0x88, 0, 65, 0)), Some(Sense::LBA_OUT_OF_RANGE));
    assert_eq!(sense(&cdb16(0x93, 0, 65, 0)), Some(Sense::LBA_OUT_OF_RANGE));
}

#[test]
fn write_same_unmaps_zeroes_and_writes_patterns() {
    let device = ram(512);
    let mut pattern = [7; 512];
    pattern[0] = 1;
    assert_eq!(run(&device, &cdb16(0x93, 0x08, 2, 5), &pattern, 0).status, Status::Good);
    assert!(device.unmapped().is_empty());
    let read = data_of(&run(&device, &cdb16(0x88, 0, 1, 7), &[], 1 << 20));
    assert_eq!(
        (read[0], &read[512..1024], &read[2560..3072], read[3584 - 1]),
        (0xEE, &pattern[..], &pattern[..], 0xEE)
    );
    run(&device, &cdb16(0x93, 0x00, 2, 2), &[0; 512], 0);
    run(&device, &cdb16(0x93, 0x09, 4, 1), &[], 0);
    // No blocks: up to the end.
    assert_eq!(run(&device, &cdb16(0x93, 0, 62, 0), &pattern, 0).status, Status::Good);
    let read = data_of(&run(&device, &cdb16(0x88, 0, 61, 3), &[], 1 << 20));
    assert_eq!((read[511], &read[512..1024], &read[1024..]), (0xEE, &pattern[..], &pattern[..]));
    assert_eq!(run(&device, &cdb16(0x93, 0, 64, 0), &pattern, 0).status, Status::Good);
    assert_eq!(device.unmapped(), [ByteRange::new(1024, 1024), ByteRange::new(2048, 512)]);
}

#[test]
fn unmap_checks_every_range_first() {
    let device = ram(512);
    let list = |ranges: &[(u64, u32)]| {
        let mut list = vec![0; 8];
        for (lba, blocks) in ranges {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        let len = list.len() as u16;
        list[..2].copy_from_slice(&(len - 2).to_be_bytes());
        list[2..4].copy_from_slice(&(len - 8).to_be_bytes());
        list
    };
    let unmap = |list: &[u8]| {
        let [high, low] = (list.len() as u16).to_be_bytes();
        run(&device, &[0x42, 0, 0, 0, 0, 0, 0, high, low, 0], list, 0).sense
    };
    assert_eq!(unmap(&list(&[(1, 1), (64, 1)])), Some(Sense::LBA_OUT_OF_RANGE));
    assert!(device.unmapped().is_empty());
    assert_eq!(unmap(&list(&[(1, 1), (9, 0), (63, 1)])), None);
    assert_eq!(device.unmapped(), [ByteRange::new(512, 512), ByteRange::new(63 * 512, 512)]);
    assert_eq!(unmap(&[0; 4]), Some(Sense::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(unmap(&[]), None);
}

#[test]
fn verify_names_the_first_byte_that_differs() {
    let device = ram(512);
    let mut data = vec![0xEE; 1024];
    let verify = |flags: u8, data: &[u8]| run(&device, &cdb16(0x8F, flags, 4, 2), data, 0).sense;
    assert_eq!(verify(2, &data), None);
    assert_eq!(verify(6, &data[..512]), None);
    assert_eq!(verify(0, &[]), None);
    data[600] = 0;
    assert_eq!(verify(2, &data), Some(Sense::MISCOMPARE.with_information(600)));
    assert_eq!(verify(2, &data[..512]), Some(Sense::INCORRECT_AMOUNT_OF_DATA));
}

#[test]
fn device_errors_become_sense_data() {
    let failure = DeviceError::NoSpace { volume: "ram".into() };
    let device = ram(512);
    device.fail(Some(failure));
    let reply = run(&device, &cdb16(0x8A, 0, 0, 1), &[0; 512], 0);
    assert_eq!(reply.sense.map(|sense| sense.key), Some(SenseKey::DataProtect));
}

#[test]
fn identification_is_as_published() {
    let device = ram(512);
    let page = |page: u8| data_of(&run(&device, &[0x12, 1, page, 1, 0, 0], &[], 256));
    assert_eq!(page(0x00), [0, 0, 0, 8, 0x00, 0x80, 0x83, 0x86, 0x8F, 0xB0, 0xB1, 0xB2]);
    assert_eq!(page(0x86)[4..8], [0, 7, 0, 1]);
    assert_eq!(&page(0x80)[4..], b"01932c0712347abc8def0123456789ab");
    let identification = page(0x83);
    // The NAA designator comes first: type 6, our company identifier, the last 100 bits of the UUID.
    assert_eq!(identification[4..8], [0x01, 0x03, 0, 16]);
    assert_eq!(
        identification[8..24],
        [0x60, 0x25, 0x15, 0x57, 0x12, 0x34, 0x7a, 0xbc, 0x8d, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab]
    );
    let name = b"iqn.2026-11.test:t,t,0x0001\0";
    assert!(identification.windows(name.len()).any(|window| window == name));
    assert_eq!(page(0xB2), [0, 0xB2, 0, 4, 0, 0xE4, 2, 0]);
    assert_eq!(page(0xB1)[4..12], [0, 1, 0, 0x40, 0, 0, 0, 0], "WABEREQ");
    let limits = page(0xB0);
    assert_eq!((limits.len(), limits[4], &limits[28..32]), (64, 0, &[0, 0, 0, 16][..]));
    let standard = data_of(&run(&device, &[0x12, 0, 0, 0, 96, 0], &[], 96));
    assert_eq!((standard.len(), &standard[8..32]), (96, &b"QUOIN   volume          "[..]));
}

#[test]
fn capacity_and_mode_pages() {
    // Physical blocks of 4096 bytes: some programs take no longer ones.
    for (block, exponent) in [(512, 3), (4096, 0)] {
        let device = ram(block);
        let capacity = data_of(&run(&device, &cdb16(0x9E, 0x10, 0, 32), &[], 32));
        assert_eq!((capacity[7], capacity[13], capacity[14]), (63, exponent, 0xC0));
        assert_eq!(capacity[8..12], block.to_be_bytes());
        let mode = data_of(&run(&device, &[0x1A, 0, 0x08, 0, 255, 0], &[], 255));
        assert_eq!((mode[0] as usize, mode[2], mode[3]), (mode.len() - 1, 0x10, 8));
        assert_eq!(mode[12..15], [0x08, 18, 0], "the write cache is off");
    }
    let device = ram(512);
    assert_eq!(run(&device, &[0x1A, 0, 0xC8, 0, 255, 0], &[], 255).sense, Some(Sense::SAVING_NOT_SUPPORTED));
    assert_eq!(run(&device, &[0x1A, 0, 0x02, 0, 255, 0], &[], 255).sense, Some(Sense::INVALID_FIELD_IN_CDB));
}

#[test]
fn thresholds_of_space_are_shown_where_the_standard_has_them() {
    for (block, exponent) in [(512, 11), (4096, 8)] {
        let thresholds = Thresholds::default();
        thresholds.set(vec![600 << 20, 800 << 20, 1000 << 20]);
        let device = ram(block).with_thresholds(thresholds);
        let vpd = data_of(&run(&device, &[0x12, 1, 0xB2, 1, 0, 0], &[], 256));
        assert_eq!(vpd, [0, 0xB2, 0, 4, exponent, 0xE4, 2, 0]);
        let sense = |pc: u8, page: u8, subpage: u8| {
            data_of(&run(&device, &[0x1A, 8, pc << 6 | page, subpage, 255, 0], &[], 255))
        };
        let page = sense(0, 0x1C, 2);
        assert_eq!(page[4..8], [0x5C, 2, 0, 12 + 3 * 8]);
        assert_eq!(page[8..20], [0; 12], "the attention is for all");
        for (descriptor, sets) in page[20..].chunks(8).zip([600u32, 800, 1000]) {
            assert_eq!(descriptor[..4], [0x81, 2, 0, 0]);
            assert_eq!(descriptor[4..], sets.to_be_bytes());
        }
        assert_eq!(sense(1, 0x1C, 2)[8..], [0; 36], "nothing of it may be changed");
        assert_eq!(sense(0, 1, 0)[4..14], [1, 10, 0xC0, 0, 0, 0, 0, 0x80, 0, 0], "LBPERE");
        // Selecting what is there already changes nothing.
        let request = ModeSelect { saves: false, long: false, parameter_bytes: page.len() as u32 };
        let list = [&[0, 0, 0, 0], &page[4..]].concat();
        let bytes = device.thresholds().map(Thresholds::bytes);
        let select = |list: &[u8], thresholds: Option<&[u64]>| {
            mode_select(&request, list, Geometry::of(&device), thresholds, Modes::default())
        };
        assert_eq!(select(&list, bytes.as_deref()), Ok(Modes::default()));
        assert_eq!(select(&list, None), Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST));
    }
    let none = run(&ram(512), &[0x1A, 8, 0x1C, 2, 255, 0], &[], 255);
    assert_eq!(none.sense, Some(Sense::INVALID_FIELD_IN_CDB));
}

#[test]
fn a_unit_whose_space_is_kept_says_so() {
    let thick = ram(512).thick();
    let vpd = data_of(&run(&thick, &[0x12, 1, 0xB2, 1, 0, 0], &[], 256));
    assert_eq!(vpd, [0, 0xB2, 0, 4, 0, 0xE6, 1, 0]);
    // ANCHOR is what such a unit does anyhow, and what a thin one cannot.
    let unmap = |device: &RamDevice| {
        let list =
            [&[0, 22, 0, 16, 0, 0, 0, 0][..], &4u64.to_be_bytes(), &2u32.to_be_bytes(), &[0; 4]].concat();
        run(device, &[0x42, 1, 0, 0, 0, 0, 0, 0, 24, 0], &list, 0).sense
    };
    let write_same =
        |device: &RamDevice, flags: u8| run(device, &cdb16(0x93, flags, 8, 1), &[0; 512], 0).sense;
    assert_eq!((unmap(&thick), write_same(&thick, 0x18)), (None, None));
    assert_eq!(write_same(&thick, 0x10), Some(Sense::INVALID_FIELD_IN_CDB), "ANCHOR without UNMAP");
    let thin = ram(512);
    let refused = Some(Sense::INVALID_FIELD_IN_CDB);
    assert_eq!((unmap(&thin), write_same(&thin, 0x18)), (refused, refused));
    assert!(thin.unmapped().is_empty());
    run(&thin, &cdb16(0x93, 0x08, 4, 2), &[0; 512], 0);
    for (device, unmapped) in [(&thick, 2), (&thin, 1)] {
        let status = data_of(&run(device, &cdb16(0x9E, 0x12, 4, 24), &[], 24));
        assert_eq!((&status[8..20], status[20]), (&[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2][..], unmapped));
    }
}

const DESCRIPTOR_SENSE: Modes = Modes { descriptor_sense: true, write_protect: false };
const WRITE_PROTECT: Modes = Modes { descriptor_sense: false, write_protect: true };

#[test]
fn mode_pages_are_selected_by_page_and_subpage() {
    let device = ram(512);
    let pages = |page: u8, subpage: u8| {
        let reply = run(&device, &[0x1A, 8, page, subpage, 255, 0], &[], 255);
        if reply.sense.is_some() {
            return Vec::new();
        }
        let (data, mut at, mut found) = (data_of(&reply), 4, Vec::new());
        assert_eq!(usize::from(data[0]), data.len() - 1);
        while at < data.len() {
            let long = data[at] & 0x40 != 0;
            found.push((data[at] & 0x3F, if long { data[at + 1] } else { 0 }));
            at += if long { 4 + usize::from(data[at + 3]) } else { 2 + usize::from(data[at + 1]) };
        }
        assert_eq!(at, data.len());
        found
    };
    assert_eq!(pages(0x3F, 0), [(1, 0), (8, 0), (0x0A, 0), (0x1C, 0)]);
    assert_eq!(pages(0x3F, 0xFF), [(1, 0), (8, 0), (0x0A, 0), (0x0A, 1), (0x1C, 0)]);
    assert_eq!(pages(0x0A, 0xFF), [(0x0A, 0), (0x0A, 1)]);
    assert_eq!(pages(0x0A, 1), [(0x0A, 1)]);
    assert_eq!(pages(0x0A, 2), []);
    assert_eq!(pages(0x3F, 1), []);
    let control = |pc: u8, modes: Modes| {
        data_of(&run_with(&device, &[0x1A, 8, pc << 6 | 0x0A, 0, 255, 0], &[], 255, modes, false))
    };
    assert_eq!(control(0, Modes::default())[4..9], [0x8A, 10, 0x22, 0x10, 0], "PS");
    assert_eq!(control(0, DESCRIPTOR_SENSE)[6], 0x26);
    assert_eq!((control(0, WRITE_PROTECT)[8], control(0, WRITE_PROTECT)[2]), (8, 0x90));
    assert_eq!(control(1, WRITE_PROTECT)[4..16], [0x8A, 10, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(control(2, WRITE_PROTECT)[8], 0);
    let saved = control(3, DESCRIPTOR_SENSE);
    assert_eq!((saved[2], &saved[4..9]), (0x10, &[0x8A, 10, 0x22, 0x10, 8][..]), "what is saved");
    // Without DBD, and of all pages: those that cannot be saved are shown as they are.
    let all = data_of(&run(&device, &[0x1A, 0, 0xC0 | 0x3F, 0xFF, 255, 0], &[], 255));
    let current = data_of(&run(&device, &[0x1A, 0, 0x3F, 0xFF, 255, 0], &[], 255));
    let differs: Vec<usize> = (0..all.len()).filter(|at| all[*at] != current[*at]).collect();
    assert_eq!((all.len(), all[3], differs), (current.len(), 8, vec![48]));
    for (page, subpage) in [(1, 0), (8, 0), (0x1C, 0), (0x0A, 1), (0x0A, 0xFF)] {
        let reply = run(&device, &[0x5A, 8, 0xC0 | page, subpage, 0, 0, 0, 0, 255, 0], &[], 255);
        assert_eq!(reply.sense, Some(Sense::SAVING_NOT_SUPPORTED), "{page:#x}/{subpage:#x}");
    }
}

#[test]
fn mode_select_changes_what_may_be_changed_and_nothing_else() {
    let geometry = Geometry { size_bytes: 64 * 512, block_bytes: 512, provisioning: Provisioning::Thin };
    let select = |list: &[u8]| {
        let request = ModeSelect { saves: false, long: false, parameter_bytes: list.len() as u32 };
        mode_select(&request, list, geometry, None, Modes::default())
    };
    let mut control = [0x0A, 10, 0x26, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];
    let with = |page: &[u8]| [&[0, 0, 0, 0][..], page].concat();
    assert_eq!(select(&[]), Ok(Modes::default()));
    assert_eq!(select(&with(&[])), Ok(Modes::default()));
    assert_eq!(select(&with(&control)), Ok(DESCRIPTOR_SENSE));
    // PS is reserved here. A host may send back what MODE SENSE returned.
    control[0] |= 0x80;
    assert_eq!(select(&with(&control)), Ok(DESCRIPTOR_SENSE));
    // What MODE SENSE returned, with the block descriptor, is taken back.
    let mut given = [&[0, 0, 0x10, 8, 0, 0, 0, 64, 0, 0, 2, 0][..], &control].concat();
    assert_eq!(select(&given), Ok(DESCRIPTOR_SENSE));
    given[7] = 0;
    assert_eq!(select(&given), Ok(DESCRIPTOR_SENSE), "a count of 0 changes nothing");
    given[7] = 63;
    assert_eq!(select(&given), Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST));
    given[7..12].copy_from_slice(&[64, 0, 0, 16, 0]);
    assert_eq!(select(&given), Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST), "another block length");
    // The write cache, which a host may want to switch on.
    let mut caching = [0; 20];
    (caching[0], caching[1]) = (8, 18);
    assert_eq!(select(&with(&caching)), Ok(Modes::default()));
    caching[2] = 4;
    assert_eq!(select(&with(&caching)), Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST));
    assert_eq!(select(&with(&[0x02, 2, 0, 0])), Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST));
    assert_eq!(select(&with(&[0x0A, 9, 0x26])), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(select(&with(&control[..8])), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(select(&[0, 0, 0]), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
    let list = [vec![0; 8], vec![0x4A, 1, 0, 28, 0, 0, 20], vec![0; 25], control.to_vec()].concat();
    let long = ModeSelect { saves: true, long: true, parameter_bytes: list.len() as u32 };
    assert_eq!(mode_select(&long, &list, geometry, None, WRITE_PROTECT), Ok(DESCRIPTOR_SENSE));
    let device = ram(512);
    assert_eq!(run(&device, &[0x15, 0x01, 0, 0, 16, 0], &[], 0).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    assert_eq!(run(&device, &[0x15, 0, 0, 0, 16, 0], &[], 0).sense, Some(Sense::INVALID_FIELD_IN_CDB));
}

#[test]
fn a_write_protected_unit_is_read_only() {
    let device = ram(512);
    let sense = |cdb: &[u8], modes, read_only| run_with(&device, cdb, &[0; 512], 512, modes, read_only).sense;
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for cdb in [&cdb16(0x8A, 0, 0, 1)[..], &cdb16(0x8E, 0, 0, 1), &cdb16(0x93, 0, 0, 1), &unmap] {
        assert_eq!(sense(cdb, Modes::default(), true), Some(Sense::WRITE_PROTECTED));
        assert_eq!(sense(cdb, WRITE_PROTECT, false), Some(Sense::SOFTWARE_WRITE_PROTECTED));
    }
    assert_eq!(sense(&cdb16(0x88, 0, 0, 1), WRITE_PROTECT, true), None);
    assert_eq!(data_of(&run(&device, &cdb16(0x88, 0, 0, 1), &[], 512))[0], 0xEE);
    assert_eq!(
        data_of(&run_with(&device, &[0x1A, 8, 8, 0, 255, 0], &[], 255, Modes::default(), true))[2],
        0x90
    );
}

#[test]
fn sense_goes_out_as_the_unit_is_set() {
    let device = ram(512);
    let reply = run_with(&device, &cdb16(0x8F, 2, 0, 1), &[0; 512], 0, DESCRIPTOR_SENSE, false);
    assert_eq!(reply.sense_data().unwrap()[..4], [0x72, 0x0E, 0x1D, 0]);
    assert_eq!(run(&device, &cdb16(0x8F, 2, 0, 1), &[0; 512], 0).sense_data().unwrap()[0], 0xF0);
}

#[test]
fn lba_status_tells_what_is_mapped() {
    let device = ram(512);
    let unmapped =
        [vec![0, 22, 0, 16, 0, 0, 0, 0], vec![0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 5, 0, 0, 0, 0]].concat();
    assert_eq!(run(&device, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmapped, 0).status, Status::Good);
    let status = |lba: u64, allocation: u32| {
        let mut cdb = cdb16(0x9E, 0x12, lba, allocation);
        cdb[1] = 0x12;
        let data = data_of(&run(&device, &cdb, &[], allocation.into()));
        assert_eq!(u32::from_be_bytes(data[..4].try_into().unwrap()) as usize, data.len() - 4);
        let descriptor = |d: &[u8]| (d[7], d[11], d[12]);
        data[8..].chunks(16).map(descriptor).collect::<Vec<_>>()
    };
    assert_eq!(status(3, 512), [(3, 7, 0), (10, 5, 1), (15, 49, 0)]);
    assert_eq!(status(12, 24), [(12, 3, 1)]);
    assert_eq!(run(&device, &cdb16(0x9E, 0x12, 64, 24), &[], 24).sense, Some(Sense::LBA_OUT_OF_RANGE));
}

#[test]
fn what_is_supported_is_reported() {
    let device = ram(512);
    let ask = |flags: u8, opcode: u8, action: u8, allocation: u8| {
        run(&device, &[0xA3, 0x0C, flags, opcode, 0, action, 0, 0, 0, allocation, 0, 0], &[], 255)
    };
    // One command, with the timeouts descriptor: no figure but the recommendation.
    let one = data_of(&ask(0x81, 0x88, 0, 255));
    assert_eq!((one[1], one[3], one[4], one.len()), (0x83, 16, 0x88, 32));
    assert_eq!(one[20..], [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60]);
    assert_eq!(ask(1, 0x9E, 0x10, 255).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    assert_eq!(ask(2, 0x88, 0, 255).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    assert_eq!(data_of(&ask(3, 0xA3, 0x0D, 255))[..4], [0, 3, 0, 12]);
    assert_eq!(data_of(&ask(3, 0xA3, 0x1F, 255))[1], 1, "not supported");
    // SET TARGET PORT GROUPS, as INQUIRY says (TPGS 01b).
    let set = [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
    assert_eq!(run(&device, &set, &[0; 8], 255).sense, Some(Sense::INVALID_OPERATION_CODE));
    assert_eq!(data_of(&ask(3, 0xA4, 0x0A, 255))[1], 1, "not supported");
    assert_eq!(data_of(&run(&device, &[0x12, 0, 0, 0, 96, 0], &[], 96))[5] & 0x30, 0x10);
    // LOG SELECT and MODE SELECT with the bits that they know.
    assert_eq!(data_of(&ask(1, 0x4C, 0, 255))[4..], [0x4C, 2, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0]);
    assert_eq!(data_of(&ask(1, 0x15, 0, 255))[4..6], [0x15, 0x11]);
    let functions = |flags: u8, allocation: u8| {
        run(&device, &[0xA3, 0x0D, flags, 0, 0, 0, 0, 0, 0, allocation, 0, 0], &[], 255)
    };
    assert_eq!(data_of(&functions(0, 255)), [0xD8, 0, 0, 0]);
    assert_eq!(data_of(&functions(0x80, 255)).len(), 16);
    assert_eq!(functions(0, 3).sense, Some(Sense::INVALID_FIELD_IN_CDB));
    let log =
        |page: u8, subpage: u8| run(&device, &[0x4D, 0, 0x40 | page, subpage, 0, 0, 0, 0, 255, 0], &[], 255);
    assert_eq!(data_of(&log(0, 0)), [0, 0, 0, 7, 0, 2, 3, 5, 6, 0x19, 0x2F]);
    assert_eq!(data_of(&log(0x2F, 0)), [0xAF, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0xFF, 0]);
    assert_eq!(log(0x0D, 0).sense, Some(Sense::INVALID_FIELD_IN_CDB));
}

/// A transport keeps memory for what a command may return, and an allocation length may be any number.
#[test]
fn a_long_allocation_length_costs_no_memory() {
    let geometry = Geometry::of(&ram(512));
    let in_bytes = |cdb: &[u8]| Command::parse(cdb).unwrap().transfer(geometry).unwrap().in_bytes;
    for (opcode, action) in [(0x9E, 0x10), (0x9E, 0x12), (0x84, 0x00), (0x84, 0x03), (0x84, 0x07)] {
        assert_eq!(in_bytes(&cdb16(opcode, action, 0, u32::MAX)), 64 << 10, "{opcode:#x}/{action:#x}");
        assert_eq!(in_bytes(&cdb16(opcode, action, 0, 100)), 100);
    }
    for (opcode, action) in [(0xA3, 0x0A), (0xA3, 0x0C), (0xA3, 0x0D), (0xB7, 0)] {
        let cdb = [opcode, action, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0];
        assert_eq!(in_bytes(&cdb), 64 << 10, "{opcode:#x}/{action:#x}");
    }
}

#[test]
fn write_and_verify_compares_what_was_stored() {
    let device = ram(512);
    let data: Vec<u8> = (0..1024u32).map(|n| n as u8).collect();
    assert_eq!(run(&device, &cdb16(0x8E, 2, 4, 2), &data, 0).status, Status::Good);
    assert_eq!(data_of(&run(&device, &cdb16(0x88, 0, 4, 2), &[], 1024)), data);
    // Less than two blocks were sent: the one that was is written and compared.
    assert_eq!(run(&device, &cdb16(0x8E, 2, 8, 2), &data[..700], 0).status, Status::Good);
}

proptest! {
    #[test]
    fn any_command_with_any_data_is_answered(
        opcode in prop_oneof![Just(0x42u8), Just(0x93), Just(0x8F), Just(0x8E), Just(0xA3), Just(0x5A), any::<u8>()],
        mut cdb in any::<[u8; 16]>(),
        low: u8,
        data in proptest::collection::vec(any::<u8>(), 0..3000),
    ) {
        cdb[0] = opcode;
        // Often a range inside the unit.
        if low & 1 == 1 {
            cdb[2..16].fill(0);
            (cdb[9], cdb[13]) = (low >> 2, low & 3);
        }
        let reply = run(&ram(512), &cdb, &data, 4096);
        prop_assert_eq!(reply.status == Status::CheckCondition, reply.sense.is_some());
    }
}
