//! Commands executed on a volume in RAM.

use crate::{Command, Geometry, Port, Reply, Sense, SenseKey, Status, execute};
use proptest::prelude::*;
use quoin_base::{ByteRange, Extent};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::Slice;
use std::{
    pin::pin,
    sync::Mutex,
    task::{Context, Poll, Waker},
};
use uuid::Uuid;

const BLOCKS: usize = 64;

struct Ram {
    block_bytes: u32,
    bytes: Mutex<Vec<u8>>,
    unmapped: Mutex<Vec<ByteRange>>,
    failure: Option<DeviceError>,
}

impl Ram {
    fn new(block_bytes: u32) -> Ram {
        let bytes = Mutex::new(vec![0xEE; BLOCKS * block_bytes as usize]);
        Ram { block_bytes, bytes, unmapped: Mutex::default(), failure: None }
    }

    fn part<T>(&self, range: ByteRange, use_it: impl FnOnce(&mut [u8]) -> T) -> Result<T, DeviceError> {
        assert!(range.is_aligned(self.block_bytes.into()) && !range.is_empty(), "{range:?}");
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(use_it(&mut self.bytes.lock().unwrap()[range.offset as usize..range.end() as usize])),
        }
    }
}

impl BlockDevice for Ram {
    fn uuid(&self) -> Uuid {
        Uuid::from_u128(0x0193_2c07_1234_7abc_8def_0123_4567_89ab)
    }
    fn name(&self) -> String {
        "ram".into()
    }
    fn size_bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }
    async fn read(&self, range: ByteRange) -> Result<Vec<Slice>, DeviceError> {
        self.part(range, |bytes| vec![Slice::copy_of(bytes)])
    }
    async fn write(&self, offset: u64, data: Vec<Slice>) -> Result<(), DeviceError> {
        let data: Vec<u8> = data.iter().flat_map(|slice| slice.to_vec()).collect();
        self.part(ByteRange::new(offset, data.len() as u64), |bytes| bytes.copy_from_slice(&data))
    }
    async fn unmap(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.unmapped.lock().unwrap().push(range);
        self.part(range, |bytes| bytes.fill(0))
    }
    /// Mapped is what is not zero.
    async fn allocation(&self, range: ByteRange, limit: usize) -> Result<Vec<Extent>, DeviceError> {
        let mut extents = Vec::new();
        for range in range.split(self.block_bytes.into()) {
            let mapped = self.part(range, |bytes| bytes.iter().any(|byte| *byte != 0))?;
            Extent { range, mapped }.push(&mut extents);
        }
        extents.truncate(limit);
        Ok(extents)
    }
}

/// Parses, checks and executes, as a target would.
fn run(device: &Ram, cdb: &[u8], data: &[u8], in_limit_bytes: u64) -> Reply {
    let checked = Command::parse(cdb).and_then(|command| {
        let transfer = command.transfer(Geometry::of(device))?;
        Ok((command, transfer))
    });
    let (command, transfer) = match checked {
        Ok(checked) => checked,
        Err(sense) => return Reply::check(sense),
    };
    let data = &data[..data.len().min(transfer.out_bytes as usize)];
    let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
    let port = Port { target_name: "iqn.2026-11.test:t".into(), group: 1 };
    let future = pin!(execute(command, device, &port, data, in_limit_bytes));
    match { future }.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply,
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
        let device = Ram::new(block);
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
    let device = Ram::new(512);
    let sense = |cdb: &[u8]| run(&device, cdb, &[0; 4096], 4096).sense;
    assert_eq!(sense(&cdb16(0x88, 0, 64, 1)), Some(Sense::LBA_OUT_OF_RANGE));
    assert_eq!(sense(&cdb16(0x88, 0, u64::MAX, 1)), Some(Sense::LBA_OUT_OF_RANGE));
    assert_eq!(sense(&cdb16(0x88, 0, 64, 0)), None);
    assert_eq!(sense(&cdb16(0x88, 0, 65, 0)), Some(Sense::LBA_OUT_OF_RANGE));
    assert_eq!(sense(&cdb16(0x93, 0, 0, 0)), Some(Sense::INVALID_FIELD_IN_CDB));
}

#[test]
fn write_same_unmaps_zeroes_and_writes_patterns() {
    let device = Ram::new(512);
    let mut pattern = [7; 512];
    pattern[0] = 1;
    assert_eq!(run(&device, &cdb16(0x93, 0x08, 2, 5), &pattern, 0).status, Status::Good);
    assert!(device.unmapped.lock().unwrap().is_empty());
    let read = data_of(&run(&device, &cdb16(0x88, 0, 1, 7), &[], 1 << 20));
    assert_eq!(
        (read[0], &read[512..1024], &read[2560..3072], read[3584 - 1]),
        (0xEE, &pattern[..], &pattern[..], 0xEE)
    );
    run(&device, &cdb16(0x93, 0x00, 2, 2), &[0; 512], 0);
    run(&device, &cdb16(0x93, 0x09, 4, 1), &[], 0);
    assert_eq!(*device.unmapped.lock().unwrap(), [ByteRange::new(1024, 1024), ByteRange::new(2048, 512)]);
}

#[test]
fn unmap_checks_every_range_first() {
    let device = Ram::new(512);
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
    assert!(device.unmapped.lock().unwrap().is_empty());
    assert_eq!(unmap(&list(&[(1, 1), (9, 0), (63, 1)])), None);
    assert_eq!(*device.unmapped.lock().unwrap(), [ByteRange::new(512, 512), ByteRange::new(63 * 512, 512)]);
    assert_eq!(unmap(&[0; 4]), Some(Sense::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(unmap(&[]), None);
}

#[test]
fn verify_names_the_first_byte_that_differs() {
    let device = Ram::new(512);
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
    let device = Ram { failure: Some(failure), ..Ram::new(512) };
    let reply = run(&device, &cdb16(0x8A, 0, 0, 1), &[0; 512], 0);
    assert_eq!(reply.sense.map(|sense| sense.key), Some(SenseKey::DataProtect));
}

#[test]
fn identification_is_as_published() {
    let device = Ram::new(512);
    let page = |page: u8| data_of(&run(&device, &[0x12, 1, page, 1, 0, 0], &[], 256));
    assert_eq!(page(0x00), [0, 0, 0, 6, 0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2]);
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
    let limits = page(0xB0);
    assert_eq!((limits.len(), limits[4], &limits[28..32]), (64, 1, &[0, 0, 0, 16][..]));
    let standard = data_of(&run(&device, &[0x12, 0, 0, 0, 96, 0], &[], 96));
    assert_eq!((standard.len(), &standard[8..32]), (96, &b"QUOIN   volume          "[..]));
}

#[test]
fn capacity_and_mode_pages() {
    for (block, exponent) in [(512, 4), (4096, 1)] {
        let device = Ram::new(block);
        let capacity = data_of(&run(&device, &cdb16(0x9E, 0x10, 0, 32), &[], 32));
        assert_eq!((capacity[7], capacity[13], capacity[14]), (63, exponent, 0xC0));
        assert_eq!(capacity[8..12], block.to_be_bytes());
        let mode = data_of(&run(&device, &[0x1A, 0, 0x08, 0, 255, 0], &[], 255));
        assert_eq!((mode[0] as usize, mode[2], mode[3]), (mode.len() - 1, 0x10, 8));
        assert_eq!(mode[12..15], [0x08, 18, 0], "the write cache is off");
    }
    let device = Ram::new(512);
    assert_eq!(run(&device, &[0x1A, 0, 0xC8, 0, 255, 0], &[], 255).sense, Some(Sense::SAVING_NOT_SUPPORTED));
    assert_eq!(run(&device, &[0x1A, 0, 0x02, 0, 255, 0], &[], 255).sense, Some(Sense::INVALID_FIELD_IN_CDB));
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
        let reply = run(&Ram::new(512), &cdb, &data, 4096);
        prop_assert_eq!(reply.status == Status::CheckCondition, reply.sense.is_some());
    }
}
