//! SCSI commands against a unit in RAM, beside a model of what they may do.

use crate::{
    Target,
    input::Input,
    ram::{BLOCKS, ram},
};
use quoin_ram_device::RamDevice;
use quoin_scsi::{Command, Geometry, Modes, Port, Reply, Status, Unit, execute, limits, mode_select};
use quoin_world::Slice;
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Commands, one after the other.
pub(crate) const COMMANDS: Target = Target {
    name: "scsi_commands",
    about: "a byte for the unit, then commands: CDB of 16 bytes, what is taken, length of data, data",
    run,
    seeds,
    words: || {
        opcodes()
            .into_iter()
            .chain([vec![0xA3, 0x0C], vec![0x4C, 2], vec![0x9E, 0x10], vec![0x9E, 0x12], vec![0x12, 1]])
            .collect()
    },
    mutations: 3000,
};

/// Operation codes that may change the medium (SBC-3).
const CHANGING: [u8; 18] = [
    0x04, 0x0A, 0x2A, 0x2E, 0x41, 0x42, 0x48, 0x53, 0x7F, 0x89, 0x8A, 0x8B, 0x8E, 0x93, 0x9C, 0xAA, 0xAE,
    0x83,
];

fn opcodes() -> Vec<Vec<u8>> {
    let codes = [
        0x00, 0x03, 0x08, 0x0A, 0x12, 0x15, 0x1A, 0x1B, 0x25, 0x28, 0x2A, 0x2E, 0x2F, 0x34, 0x35, 0x37, 0x41,
        0x42, 0x48, 0x4C, 0x4D, 0x55, 0x5A, 0x88, 0x89, 0x8A, 0x8B, 0x8E, 0x8F, 0x90, 0x91, 0x93, 0x9C, 0x9E,
        0xA0, 0xA3, 0xA8, 0xAA, 0xAE, 0xAF,
    ];
    codes.into_iter().map(|code| vec![code]).collect()
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let block_bytes = if input.u8() & 1 == 0 { 512 } else { 4096 };
    let unit = ram(block_bytes);
    let mut modes = Modes::default();
    while !input.is_empty() {
        let cdb = input.array::<16>();
        let limit_bytes = u64::from(input.u16()) * 16;
        let len = usize::from(input.u16());
        let data = input.take(len);
        one(&unit, &mut modes, &cdb, data, limit_bytes);
    }
}

fn one(unit: &RamDevice, modes: &mut Modes, cdb: &[u8; 16], data: &[u8], limit_bytes: u64) {
    let Ok(command) = Command::parse(cdb) else { return };
    let Ok(transfer) = command.transfer(Geometry::of(unit)) else { return };
    let most = limits::TRANSFER_BYTES.max(limits::PARAMETER_BYTES.into());
    assert!(transfer.out_bytes <= most, "{command:?} asks for {} bytes", transfer.out_bytes);
    let data = &data[..data.len().min(transfer.out_bytes as usize)];
    if let Command::ModeSelect(request) = command
        && let Ok(changed) = mode_select(&request, data, Geometry::of(unit), None, *modes)
    {
        *modes = changed;
    }
    let slices = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(data)] };
    let before = unit.content();
    let reply = outcome(command, unit, *modes, slices, limit_bytes);
    let after = unit.content();
    check_reply(command, &reply, transfer.in_bytes, limit_bytes, unit);
    if before != after {
        assert!(CHANGING.contains(&cdb[0]), "{command:?} changed the medium");
    }
    if reply.status == Status::Good {
        check_transfer(cdb, unit, &reply, data, limit_bytes, &before, &after);
    }
}

fn outcome(command: Command, unit: &RamDevice, modes: Modes, data: Vec<Slice>, limit_bytes: u64) -> Reply {
    let port = Port { target_name: "iqn.2026-11.test:t".into(), group: 1 };
    let known = Unit { port: &port, modes, saved: modes, read_only: false };
    let future = pin!(execute(command, unit, known, data, limit_bytes));
    match { future }.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply,
        Poll::Pending => panic!("a unit in RAM is always ready"),
    }
}

fn check_reply(command: Command, reply: &Reply, in_bytes: u64, limit_bytes: u64, unit: &RamDevice) {
    let bytes: u64 = reply.data.iter().map(|slice| slice.len() as u64).sum();
    assert!(bytes <= in_bytes, "{command:?} answers {bytes} bytes, announced were {in_bytes}");
    let block = u64::from(Geometry::of(unit).block_bytes);
    let read_limit = limit_bytes.next_multiple_of(block).max(limits::PARAMETER_BYTES.into());
    assert!(bytes <= read_limit.max(in_bytes.min(8192)), "{command:?} holds {bytes} bytes for {limit_bytes}");
    assert!(bytes <= reply.wanted_bytes.max(bytes), "{command:?}");
    match (reply.status, reply.sense) {
        (Status::CheckCondition, Some(sense)) => {
            assert!(sense.key as u8 <= 0x0F && reply.data.is_empty(), "{command:?}: {sense:?}");
            assert_eq!(sense.fixed()[0] & 0x7F, 0x70);
            assert_eq!(sense.descriptor()[0], 0x72);
        }
        (Status::CheckCondition, None) => panic!("{command:?} fails without saying why"),
        (_, sense) => assert_eq!(sense, None, "{command:?}"),
    }
}

/// READ and WRITE (10) and (16), decoded here once more, against the content before and after.
fn check_transfer(
    cdb: &[u8; 16],
    unit: &RamDevice,
    reply: &Reply,
    data: &[u8],
    limit_bytes: u64,
    before: &[u8],
    after: &[u8],
) {
    let be = |bytes: &[u8]| bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let (lba, blocks) = match cdb[0] {
        0x28 | 0x2A => (be(&cdb[2..6]), be(&cdb[7..9])),
        0x88 | 0x8A => (be(&cdb[2..10]), be(&cdb[10..14])),
        _ => return,
    };
    let block = Geometry::of(unit).block_bytes as usize;
    assert!(lba + blocks <= BLOCKS, "blocks {lba}+{blocks} of {BLOCKS} were good");
    let (from, len) = (lba as usize * block, blocks as usize * block);
    match cdb[0] {
        0x28 | 0x88 => {
            let read: Vec<u8> = reply.data.iter().flat_map(|slice| slice.to_vec()).collect();
            assert!(read.len() as u64 >= limit_bytes.min(len as u64), "fewer bytes than asked for and there");
            assert_eq!(read[..], before[from..from + read.len()], "read something else than what is there");
        }
        _ => {
            let whole = data.len() / block * block;
            let mut expected = before.to_vec();
            expected[from..from + whole].copy_from_slice(&data[..whole]);
            assert!(expected == after, "wrote something else than what was sent");
        }
    }
}

/// A command with the length of its data-in, and its data-out.
fn command(cdb: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = cdb.to_vec();
    bytes.resize(16, 0);
    bytes.extend_from_slice(&0x1000u16.to_le_bytes());
    bytes.extend_from_slice(&(data.len() as u16).to_le_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Commands to a unit.
fn on(unit: u8, commands: &[Vec<u8>]) -> Vec<u8> {
    [&[unit], &commands.concat()[..]].concat()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    [medium_seeds(), parameter_seeds()].concat()
}

/// Commands that read, change or describe the medium.
fn medium_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let block = [0x3C; 512];
    let unmap = [
        &[0, 38, 0, 32][..],
        &[0; 4],
        &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0],
    ]
    .concat();
    let write = command(&[0x2A, 0, 0, 0, 0, 5, 0, 0, 1], &block);
    let read = command(&[0x28, 0, 0, 0, 0, 5, 0, 0, 1], &[]);
    let write_16 = command(&[0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], &block);
    let status = command(&[0x9E, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0], &[]);
    vec![
        ("write_read", on(0, &[write, read.clone(), write_16, read])),
        ("unmap", on(0, &[command(&[0x42, 0, 0, 0, 0, 0, 0, 0, 40], &unmap), status])),
        ("write_same", on(0, &[command(&[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4], &block)])),
        ("verify", on(0, &[command(&[0x2F, 2, 0, 0, 0, 2, 0, 0, 1], &block)])),
        ("write_verify", on(1, &[command(&[0x2E, 0, 0, 0, 0, 2, 0, 0, 1], &[7; 4096])])),
        ("or_write", on(0, &[command(&[0x8B, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1], &block)])),
        ("write_atomic", on(0, &[command(&[0x9C, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1], &block)])),
        ("compare_write", on(0, &[command(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1], &[0xEE; 1024])])),
    ]
}

/// Commands about parameters of the unit.
fn parameter_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mode_page = [&[0, 0, 0, 0][..], &[0x08, 0x12], &[0; 18]].concat();
    let long_page = [&[0; 8][..], &[0x0A, 0x0A], &[0; 10]].concat();
    let short = |cdb: &[u8]| on(0, &[command(cdb, &[])]);
    vec![
        ("mode_select_6", on(0, &[command(&[0x15, 0x10, 0, 0, 24], &mode_page)])),
        ("mode_select_10", on(0, &[command(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 20], &long_page)])),
        (
            "mode_sense",
            on(
                0,
                &[
                    command(&[0x1A, 0, 0x3F, 0xFF, 255], &[]),
                    command(&[0x5A, 0, 0x3F, 0, 0, 0, 0, 1, 0], &[]),
                ],
            ),
        ),
        (
            "inquiry",
            on(
                0,
                &[
                    command(&[0x12, 0, 0, 0, 255], &[]),
                    command(&[0x12, 1, 0xB0, 0, 255], &[]),
                    command(&[0x12, 1, 0x83, 0, 255], &[]),
                ],
            ),
        ),
        (
            "capacity",
            on(1, &[command(&[0x25], &[]), command(&[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32], &[])]),
        ),
        ("log_select_reset", short(&[0x4C, 2, 0x40 | 0x19])),
        ("log_sense", short(&[0x4D, 0, 0x40 | 0x19, 0, 0, 0, 1, 4, 0])),
        ("opcodes", short(&[0xA3, 0x0C, 0, 0, 0, 0, 0, 0, 4, 0])),
        ("luns", short(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0])),
        ("sense", short(&[0x03, 1, 0, 0, 252])),
        ("defects", short(&[0x37, 0, 0x18, 0, 0, 0, 0, 0, 64])),
    ]
}
