//! The data of writes: what comes with a command, what follows unasked, what is asked for, and what may go wrong.

use crate::support::{
    Server,
    client::{Client, crc, pattern, read_10, write_10},
};
use quoin_iscsi::pdu::{
    Bhs, DataOut, NO_TAG, NopOut, R2t, Reject, ScsiCommand, ScsiResponse, TaskRequest, TaskResponse, U24,
    opcode, padding,
};
use std::io::{Read, Write};
use zerocopy::{FromBytes, IntoBytes};

const FINAL: u8 = 0x80;
const WRITE: u8 = 0x20;

/// ASC and ASCQ of an aborted command.
type Aborted = (u8, u8);
const UNEXPECTED_UNSOLICITED_DATA: Aborted = (0x0C, 0x0C);
const INCORRECT_AMOUNT_OF_DATA: Aborted = (0x0C, 0x0D);
const PROTOCOL_SERVICE_CRC_ERROR: Aborted = (0x47, 0x05);

/// Data that nobody asked for, from `offset` on.
fn unasked(command: &ScsiCommand, offset: u32, data_sn: u32, flags: u8) -> DataOut {
    DataOut {
        opcode: opcode::DATA_OUT,
        flags,
        itt: command.itt,
        ttt: NO_TAG.into(),
        data_sn: data_sn.into(),
        offset: offset.into(),
        ..DataOut::default()
    }
}

/// All the data an R2T asks for.
fn asked(r2t: &R2t) -> DataOut {
    let (itt, ttt, offset) = (r2t.itt, r2t.ttt, r2t.offset);
    DataOut { opcode: opcode::DATA_OUT, flags: FINAL, itt, ttt, offset, ..DataOut::default() }
}

fn receive_r2t(client: &mut Client) -> R2t {
    let (bhs, _) = client.receive();
    assert_eq!(bhs.operation(), opcode::R2T);
    bhs.into()
}

/// Answers R2Ts in order until the command is answered.
fn serve_r2ts(client: &mut Client, data: &[u8], segment: usize) -> u8 {
    loop {
        let (bhs, _) = client.receive();
        if bhs.operation() == opcode::SCSI_RESPONSE {
            return ScsiResponse::from(bhs).status;
        }
        assert_eq!(bhs.operation(), opcode::R2T);
        let r2t = R2t::from(bhs);
        let (start, len) = (r2t.offset.get() as usize, r2t.desired_bytes.get() as usize);
        for (data_sn, part) in data[start..start + len].chunks(segment).enumerate() {
            let at = data_sn * segment;
            let pdu = DataOut {
                flags: if at + part.len() == len { FINAL } else { 0 },
                data_sn: (data_sn as u32).into(),
                offset: ((start + at) as u32).into(),
                ..asked(&r2t)
            };
            client.send(pdu, part);
        }
    }
}

/// Receives the end of an aborted command.
fn receive_aborted(client: &mut Client, command: &ScsiCommand) -> Aborted {
    let (bhs, sense) = client.receive();
    assert_eq!((bhs.operation(), bhs.itt), (opcode::SCSI_RESPONSE, command.itt));
    assert_eq!((ScsiResponse::from(bhs).status, sense[4] & 0xF), (2, 0xB));
    (sense[14], sense[15])
}

/// The session works, and nothing was written at the start of the unit.
fn is_unharmed(client: &mut Client) -> bool {
    client.execute(8192, &read_10(0, 16)) == (0, vec![0; 8192])
}

#[test]
fn data_comes_immediately_unsolicited_and_asked_for() {
    let server = Server::start();
    let keys = "InitialR2T=No\0ImmediateData=Yes\0FirstBurstLength=65536\0MaxBurstLength=131072\0MaxOutstandingR2T=3\0";
    let mut client = Client::logged_in(&server, 1, keys).ready();
    let data = pattern(1 << 20);
    // An odd amount comes at once, the rest of the first burst by itself, the remainder when asked for.
    let command = client.command(WRITE, 1 << 20, &write_10(64, 2048));
    client.send(command, &data[..1000]);
    client.send(unasked(&command, 1000, 0, 0), &data[1000..30_000]);
    client.send(unasked(&command, 30_000, 1, FINAL), &data[30_000..65_536]);
    assert_eq!(serve_r2ts(&mut client, &data, 8192), 0);
    assert!(client.execute(1 << 20, &read_10(64, 2048)) == (0, data.clone()));
    // A first burst that ends at an odd byte.
    let command = client.command(FINAL | WRITE, 1 << 20, &write_10(64, 2048));
    client.send(command, &data[..777]);
    assert_eq!(serve_r2ts(&mut client, &data, 8192), 0);
    assert!(client.execute(1 << 20, &read_10(64, 2048)).1 == data);
}

#[test]
fn no_more_is_asked_for_at_once_than_agreed() {
    for (offered, agreed) in [(1, 1), (3, 3), (64, 4)] {
        let server = Server::start();
        let keys = format!("MaxOutstandingR2T={offered}\0MaxBurstLength=65536\0");
        let mut client = Client::logged_in(&server, 1, &keys).ready();
        let data = pattern(512 << 10);
        let command = client.command(FINAL | WRITE, 512 << 10, &write_10(0, 1024));
        client.send(command, &[]);
        let mut open: Vec<R2t> = (0..agreed).map(|_| receive_r2t(&mut client)).collect();
        assert!(client.is_quiet());
        let mut all = open.clone();
        // One is served, one is asked for.
        while !open.is_empty() {
            let r2t = open.remove(0);
            let at = r2t.offset.get() as usize;
            client.send(asked(&r2t), &data[at..at + r2t.desired_bytes.get() as usize]);
            if all.len() < 8 {
                open.push(receive_r2t(&mut client));
                all.extend(open.last());
                assert!(client.is_quiet());
            }
        }
        assert_eq!(ScsiResponse::from(client.receive().0).status, 0);
        for (n, r2t) in all.iter().enumerate() {
            assert_eq!((r2t.r2t_sn.get() as usize, r2t.offset.get() as usize), (n, n << 16));
            assert_eq!(r2t.desired_bytes.get(), 1 << 16);
            assert!(all[..n].iter().all(|older| older.ttt != r2t.ttt));
        }
        assert!(client.execute(512 << 10, &read_10(0, 1024)) == (0, data));
    }
}

#[test]
fn a_refused_write_swallows_what_comes_unasked() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "InitialR2T=No\0FirstBurstLength=4096\0").ready();
    let command = client.command(WRITE, 4096, &write_10(u32::MAX, 8));
    client.send(command, &[1; 512]);
    assert!(client.is_quiet());
    client.send(unasked(&command, 512, 0, FINAL), &[1; 3584]);
    let (bhs, sense) = client.receive();
    let response = ScsiResponse::from(bhs);
    assert_eq!((response.status, response.flags & 6, response.residual.get()), (2, 2, 4096));
    assert_eq!((sense[4] & 0xF, sense[14], sense[15]), (5, 0x21, 0));
    assert!(is_unharmed(&mut client));
}

#[test]
fn data_that_may_not_come_unasked_fails_its_command() {
    let server = Server::start();
    // With the command, though that was ruled out.
    let mut client = Client::logged_in(&server, 1, "ImmediateData=No\0").ready();
    let command = client.command(FINAL | WRITE, 8192, &write_10(0, 16));
    client.send(command, &[1; 512]);
    assert_eq!(receive_aborted(&mut client, &command), UNEXPECTED_UNSOLICITED_DATA);
    assert!(is_unharmed(&mut client));
    // Behind the command, though all must be asked for; answered when it has come.
    let mut client = Client::logged_in(&server, 2, "").ready();
    let command = client.command(WRITE, 8192, &write_10(0, 16));
    client.send(command, &[]);
    client.send(unasked(&command, 0, 0, 0), &[1; 4096]);
    assert!(client.is_quiet());
    client.send(unasked(&command, 4096, 1, FINAL), &[1; 4096]);
    assert_eq!(receive_aborted(&mut client, &command), UNEXPECTED_UNSOLICITED_DATA);
    assert!(is_unharmed(&mut client));
    // More than the first burst, with the command or behind it.
    let mut client = Client::logged_in(&server, 3, "InitialR2T=No\0FirstBurstLength=4096\0").ready();
    let command = client.command(FINAL | WRITE, 8192, &write_10(0, 16));
    client.send(command, &[1; 4100]);
    assert_eq!(receive_aborted(&mut client, &command), UNEXPECTED_UNSOLICITED_DATA);
    let command = client.command(WRITE, 8192, &write_10(0, 16));
    client.send(command, &[1; 1024]);
    client.send(unasked(&command, 1024, 0, FINAL), &[1; 3076]);
    assert_eq!(receive_aborted(&mut client, &command), UNEXPECTED_UNSOLICITED_DATA);
    assert!(is_unharmed(&mut client));
    // More than the command moves.
    let command = client.command(FINAL | WRITE, 512, &write_10(0, 1));
    client.send(command, &[1; 1024]);
    assert_eq!(receive_aborted(&mut client, &command), UNEXPECTED_UNSOLICITED_DATA);
    // Unasked, while something else is asked for: that is waited for.
    let command = client.command(FINAL | WRITE, 8192, &write_10(0, 16));
    client.send(command, &[]);
    let r2t = receive_r2t(&mut client);
    client.send(unasked(&command, 0, 0, FINAL), &[1; 512]);
    assert!(client.is_quiet());
    client.send(asked(&r2t), &[1; 8192]);
    assert_eq!(receive_aborted(&mut client, &command), UNEXPECTED_UNSOLICITED_DATA);
    assert!(is_unharmed(&mut client));
}

#[test]
fn data_in_the_wrong_place_fails_its_command_when_all_has_come() {
    let server = Server::start();
    let keys = "MaxOutstandingR2T=2\0MaxBurstLength=4096\0";
    let mut client = Client::logged_in(&server, 1, keys).ready();
    let wrong: [fn(&R2t, &R2t) -> DataOut; 4] = [
        |one, _| DataOut { data_sn: 1.into(), ..asked(one) },
        |one, _| DataOut { offset: 512.into(), ..asked(one) },
        |one, two| DataOut { offset: two.offset, ..asked(one) },
        |one, _| DataOut { ttt: one.ttt.get().wrapping_add(77).into(), ..asked(one) },
    ];
    for (n, wrong) in wrong.into_iter().enumerate() {
        let command = client.command(FINAL | WRITE, 16_384, &write_10(0, 32));
        client.send(command, &[]);
        let (one, two) = (receive_r2t(&mut client), receive_r2t(&mut client));
        client.send(wrong(&one, &two), &[1; 4096]);
        assert!(client.is_quiet(), "case {n}");
        // Nothing more is asked for meanwhile.
        client.send(asked(&two), &[1; 4096]);
        if n == 3 {
            assert!(client.is_quiet());
            client.send(asked(&one), &[1; 4096]);
        }
        assert_eq!(receive_aborted(&mut client, &command), INCORRECT_AMOUNT_OF_DATA, "case {n}");
        assert!(is_unharmed(&mut client));
    }
    // Too much, too little.
    for len in [2048, 4096 + 512] {
        let command = client.command(FINAL | WRITE, 4096, &write_10(0, 8));
        client.send(command, &[]);
        let r2t = receive_r2t(&mut client);
        client.send(asked(&r2t), &vec![1; len]);
        assert_eq!(receive_aborted(&mut client, &command), INCORRECT_AMOUNT_OF_DATA);
        assert!(is_unharmed(&mut client));
    }
    // A command whose data went wrong can be aborted before all has come.
    let command = client.command(FINAL | WRITE, 8192, &write_10(0, 16));
    client.send(command, &[]);
    let (one, two) = (receive_r2t(&mut client), receive_r2t(&mut client));
    client.send(DataOut { data_sn: 9.into(), ..asked(&one) }, &[1; 4096]);
    let abort = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | 1,
        itt: 4711.into(),
        referenced: command.itt,
        cmd_sn: client.cmd_sn.into(),
        ..TaskRequest::default()
    };
    client.send(abort, &[]);
    assert_eq!(TaskResponse::from(client.receive().0).response, 0);
    client.send(asked(&two), &[1; 4096]);
    assert!(is_unharmed(&mut client));
}

/// Sends a PDU whose data has a digest, a right or a wrong one.
fn send_digest(client: &mut Client, header: impl Into<Bhs>, data: &[u8], right: bool) {
    let mut bytes = Bhs { data_len: U24::new(data.len()), ..header.into() }.as_bytes().to_vec();
    let mut padded = data.to_vec();
    padded.resize(data.len() + padding(data.len()), 0);
    let mut digest = crc(&padded);
    digest[0] ^= u8::from(!right);
    bytes.extend(padded);
    bytes.extend(digest);
    client.stream.write_all(&bytes).unwrap();
}

/// Receives a PDU that has data, whose digest must be right.
fn receive_digest(client: &mut Client) -> (Bhs, Vec<u8>) {
    let (bhs, data) = client.receive();
    let mut digest = [0; 4];
    client.stream.read_exact(&mut digest).unwrap();
    let mut padded = data.clone();
    padded.resize(data.len() + padding(data.len()), 0);
    assert_eq!(digest, crc(&padded));
    (bhs, data)
}

#[test]
fn data_with_a_wrong_digest_is_rejected_and_fails_its_command_when_all_has_come() {
    const DATA_DIGEST_ERROR: u8 = 2;
    let server = Server::start();
    let keys = "DataDigest=CRC32C\0MaxBurstLength=4096\0MaxOutstandingR2T=2\0";
    let mut client = Client::logged_in(&server, 1, keys);
    let attention = client.command(FINAL, 0, &[0; 6]);
    client.send(attention, &[]);
    receive_digest(&mut client);
    let rejected = |client: &mut Client, header: Bhs| {
        let (bhs, copy) = receive_digest(client);
        assert_eq!((bhs.operation(), Reject::from(bhs).reason), (opcode::REJECT, DATA_DIGEST_ERROR));
        assert_eq!(Bhs::read_from_bytes(&copy).unwrap(), header);
    };
    let aborted = |client: &mut Client, command: &ScsiCommand| {
        let (bhs, sense) = receive_digest(client);
        assert_eq!((bhs.operation(), bhs.itt), (opcode::SCSI_RESPONSE, command.itt));
        assert_eq!((sense[4] & 0xF, (sense[14], sense[15])), (0xB, PROTOCOL_SERVICE_CRC_ERROR));
    };
    // Asked for.
    let command = client.command(FINAL | WRITE, 8192, &write_10(0, 16));
    client.send(command, &[]);
    let (one, two) = (receive_r2t(&mut client), receive_r2t(&mut client));
    send_digest(&mut client, asked(&one), &[1; 4096], false);
    rejected(&mut client, Bhs { data_len: U24::new(4096), ..asked(&one).into() });
    assert!(client.is_quiet());
    send_digest(&mut client, asked(&two), &[1; 4096], true);
    aborted(&mut client, &command);
    // With the command.
    let command = client.command(FINAL | WRITE, 512, &write_10(0, 1));
    send_digest(&mut client, command, &[1; 512], false);
    rejected(&mut client, Bhs { data_len: U24::new(512), ..command.into() });
    aborted(&mut client, &command);
    assert!(client.is_quiet());
    assert_eq!(server.iscsi.metrics().digest_errors, 2);
    // With anything else it ends the connection: nobody else could tell that it is missing.
    let ping = NopOut { itt: 5.into(), ..client.word() };
    send_digest(&mut client, ping, &[1; 4], false);
    rejected(&mut client, Bhs { data_len: U24::new(4), ..ping.into() });
    assert!(client.is_closed());
    // Nothing of it was written.
    assert!(is_unharmed(&mut Client::logged_in(&server, 2, "").ready()));
}

#[test]
fn digests_are_checked_and_sent() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "HeaderDigest=CRC32C\0DataDigest=CRC32C\0");
    let nop = NopOut { itt: 9.into(), data_len: U24::new(5), ..client.word() };
    let data = *b"hello\0\0\0";
    let mut bytes = nop.as_bytes().to_vec();
    bytes.extend(crc(nop.as_bytes()));
    bytes.extend(data);
    bytes.extend(crc(&data));
    client.stream.write_all(&bytes).unwrap();
    let mut answer = [0; 64];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..48][0] & 0x3F, opcode::NOP_IN);
    assert_eq!(answer[48..52], crc(&answer[..48]));
    assert_eq!((&answer[52..60], &answer[60..]), (&data[..], &crc(&data)[..]));
    // A header that does not match its digest ends the connection.
    bytes[20] ^= 1;
    client.stream.write_all(&bytes).unwrap();
    assert!(client.is_closed());
    while server.iscsi.metrics().digest_errors != 1 {
        std::thread::yield_now();
    }
}
