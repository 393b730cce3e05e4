//! What well-behaved initiators do not do.

#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod support;

use quoin_iscsi::pdu::{
    Bhs, DataOut, LoginRequest, LoginResponse, LogoutRequest, NO_TAG, NopOut, R2t, ScsiCommand, ScsiResponse,
    TaskRequest, TaskResponse, TextRequest, U24, opcode,
};
use std::io::{Read, Write};
use support::{
    INITIATOR, Server, TARGET,
    client::{Client, crc, pattern, read_10, write_10},
};
use zerocopy::{FromBytes, IntoBytes};

/// Answers R2Ts in order until the command is answered; checks that no more are outstanding than agreed.
fn serve_r2ts(client: &mut Client, itt: u32, data: &[u8], segment: usize) -> u8 {
    loop {
        let (bhs, _) = client.receive();
        if bhs.operation() == opcode::SCSI_RESPONSE {
            return ScsiResponse::from(bhs).status;
        }
        let r2t = R2t::from(bhs);
        assert_eq!(bhs.operation(), opcode::R2T);
        let (start, len) = (r2t.offset.get() as usize, r2t.desired_bytes.get() as usize);
        for (data_sn, part) in data[start..start + len].chunks(segment).enumerate() {
            let at = data_sn * segment;
            let pdu = DataOut {
                opcode: opcode::DATA_OUT,
                flags: if at + part.len() == len { 0x80 } else { 0 },
                itt: itt.into(),
                ttt: r2t.ttt,
                data_sn: (data_sn as u32).into(),
                offset: ((start + at) as u32).into(),
                ..DataOut::default()
            };
            client.send(pdu, part);
        }
    }
}

#[test]
fn data_comes_immediately_unsolicited_and_asked_for() {
    let server = Server::start();
    let keys = "InitialR2T=No\0ImmediateData=Yes\0FirstBurstLength=65536\0MaxBurstLength=131072\0MaxOutstandingR2T=3\0";
    let mut client = Client::logged_in(&server, 1, keys).ready();
    let data = pattern(1 << 20);
    // An odd amount comes at once, the rest of the first burst by itself, the remainder when asked for.
    let command = client.command(0x20, 1 << 20, &write_10(64, 2048));
    let itt = command.itt.get();
    client.send(command, &data[..1000]);
    for (data_sn, (start, end)) in [(1000, 30_000), (30_000, 65_536)].into_iter().enumerate() {
        let pdu = DataOut {
            opcode: opcode::DATA_OUT,
            flags: if end == 65_536 { 0x80 } else { 0 },
            itt: itt.into(),
            ttt: NO_TAG.into(),
            data_sn: (data_sn as u32).into(),
            offset: (start as u32).into(),
            ..DataOut::default()
        };
        client.send(pdu, &data[start..end]);
    }
    assert_eq!(serve_r2ts(&mut client, itt, &data, 8192), 0);
    let (status, read) = client.execute(1 << 20, &read_10(64, 2048));
    assert_eq!((status, read == data), (0, true));
    // A first burst that ends at an odd byte.
    let command = client.command(0xA0, 1 << 20, &write_10(64, 2048));
    let itt = command.itt.get();
    client.send(command, &data[..777]);
    assert_eq!(serve_r2ts(&mut client, itt, &data, 8192), 0);
    assert!(client.execute(1 << 20, &read_10(64, 2048)).1 == data);
}

#[test]
fn a_refused_write_swallows_what_comes_unasked() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "InitialR2T=No\0FirstBurstLength=4096\0").ready();
    let command = client.command(0x20, 4096, &write_10(u32::MAX, 8));
    let itt = command.itt;
    client.send(command, &[1; 512]);
    let pdu = DataOut {
        opcode: opcode::DATA_OUT,
        flags: 0x80,
        itt,
        ttt: NO_TAG.into(),
        offset: 512.into(),
        ..DataOut::default()
    };
    client.send(pdu, &[1; 3584]);
    let (bhs, sense) = client.receive();
    let response = ScsiResponse::from(bhs);
    assert_eq!((response.status, response.flags & 6, response.residual.get()), (2, 2, 4096));
    assert_eq!((sense[4] & 0xF, sense[14], sense[15]), (5, 0x21, 0));
    assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
}

#[test]
fn data_out_of_order_fails_its_command_only() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let command = client.command(0xA0, 8192, &write_10(0, 16));
    client.send(command, &[]);
    let r2t = R2t::from(client.receive().0);
    let pdu = DataOut {
        opcode: opcode::DATA_OUT,
        flags: 0x80,
        itt: command.itt,
        ttt: r2t.ttt,
        offset: 4096.into(),
        ..DataOut::default()
    };
    client.send(pdu, &[1; 4096]);
    let (bhs, sense) = client.receive();
    assert_eq!(
        (bhs.operation(), ScsiResponse::from(bhs).status, sense[4] & 0xF),
        (opcode::SCSI_RESPONSE, 2, 0xB)
    );
    let (status, read) = client.execute(8192, &read_10(0, 16));
    assert_eq!((status, read), (0, vec![0; 8192]));
}

#[test]
fn digests_are_checked_and_sent() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "HeaderDigest=CRC32C\0DataDigest=CRC32C\0");
    let nop = NopOut {
        opcode: 0x40 | opcode::NOP_OUT,
        flags: 0x80,
        data_len: U24::new(5),
        itt: 9.into(),
        ttt: NO_TAG.into(),
        ..NopOut::default()
    };
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

#[test]
fn a_new_login_of_the_same_name_replaces_the_session() {
    let server = Server::start();
    let mut old = Client::logged_in(&server, 1, "").ready();
    let mut other = Client::logged_in(&server, 2, "").ready();
    let mut new = Client::logged_in(&server, 1, "").ready();
    assert!(old.is_closed());
    assert_eq!(server.target.sessions().len(), 2);
    for client in [&mut other, &mut new] {
        assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
    }
}

#[test]
fn a_connection_to_join_a_session_is_refused() {
    let server = Server::start();
    let login = |isid: u8, tsih: u16, cid: u16| {
        let mut client = Client::connect(&server);
        let request = LoginRequest {
            opcode: 0x40 | opcode::LOGIN_REQUEST,
            flags: 0x87,
            isid: [0x80, 0, 0, 0, 0, isid],
            tsih: tsih.into(),
            cid: cid.into(),
            cmd_sn: 1.into(),
            ..LoginRequest::default()
        };
        client.send(request, format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0").as_bytes());
        let response = LoginResponse::from(client.receive().0);
        (response.status_class, response.status_detail, response.tsih.get(), client)
    };
    let mut first = Client::connect(&server);
    let tsih = first.login(1, "").tsih.get();
    assert_ne!(tsih, 0);
    let (class, detail, ..) = login(1, tsih, 1);
    assert_eq!((class, detail), (2, 6));
    for (isid, tsih) in [(9, tsih), (1, tsih + 1)] {
        let (class, detail, ..) = login(isid, tsih, 0);
        assert_eq!((class, detail), (2, 0x0A));
    }
    let mut first = first.ready();
    // The same connection again: the session goes on under its handle, its old connection ends.
    let (class, _, again, second) = login(1, tsih, 0);
    assert_eq!((class, again, first.is_closed()), (0, tsih, true));
    drop(second.ready());
}

#[test]
fn a_reset_by_one_session_is_a_unit_attention_in_another() {
    let server = Server::start();
    let mut one = Client::logged_in(&server, 1, "").ready();
    let mut two = Client::logged_in(&server, 2, "").ready();
    // A write of the other session that waits for its data is aborted.
    let waiting = two.command(0xA0, 8192, &write_10(0, 16));
    two.send(waiting, &[]);
    assert_eq!(two.receive().0.operation(), opcode::R2T);
    let reset = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | 5,
        itt: 77.into(),
        referenced: NO_TAG.into(),
        cmd_sn: one.cmd_sn.into(),
        ..TaskRequest::default()
    };
    one.send(reset, &[]);
    let response = TaskResponse::from(one.receive().0);
    assert_eq!((response.itt.get(), response.response), (77, 0));
    for client in [&mut one, &mut two] {
        let command = client.command(0x80, 0, &[0x00, 0, 0, 0, 0, 0]);
        client.send(command, &[]);
        let (bhs, sense) = client.receive();
        assert_eq!(bhs.itt, command.itt, "the aborted write is not answered");
        assert_eq!((sense[4] & 0xF, sense[14], sense[15]), (6, 0x29, 0x03));
        assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
    }
}

#[test]
fn tasks_are_aborted_by_tag() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let waiting = client.command(0xA0, 8192, &write_10(0, 16));
    client.send(waiting, &[]);
    assert_eq!(client.receive().0.operation(), opcode::R2T);
    let mut abort = |referenced: u32| {
        let request = TaskRequest {
            opcode: 0x40 | opcode::TASK_REQUEST,
            flags: 0x80 | 1,
            itt: 78.into(),
            referenced: referenced.into(),
            cmd_sn: client.cmd_sn.into(),
            ..TaskRequest::default()
        };
        client.send(request, &[]);
        TaskResponse::from(client.receive().0).response
    };
    assert_eq!(abort(waiting.itt.get()), 0);
    assert_eq!(abort(waiting.itt.get()), 1);
    assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
}

#[test]
fn unknown_initiators_see_no_unit() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let request = LoginRequest { opcode: 0x43, flags: 0x87, cmd_sn: 1.into(), ..LoginRequest::default() };
    client.send(request, format!("InitiatorName=iqn.2026-11.test:nobody\0TargetName={TARGET}\0").as_bytes());
    assert_eq!(LoginResponse::from(client.receive().0).status_class, 0);
    let (status, luns) = client.execute(256, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!((status, luns), (0, vec![0; 8]));
    let (status, inquiry) = client.execute(36, &[0x12, 0, 0, 0, 36, 0]);
    assert_eq!((status, inquiry[0]), (0, 0x7F));
    assert_eq!(client.execute(512, &read_10(0, 1)).0, 2);
    assert_eq!(server.target.sessions()[0].host, None);
}

#[test]
fn discovery_names_the_target_and_where_it_is() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let request = LoginRequest { opcode: 0x43, flags: 0x87, cmd_sn: 1.into(), ..LoginRequest::default() };
    client.send(request, format!("InitiatorName={INITIATOR}\0SessionType=Discovery\0").as_bytes());
    assert_eq!(LoginResponse::from(client.receive().0).status_class, 0);
    let text = TextRequest {
        opcode: opcode::TEXT_REQUEST,
        flags: 0x80,
        itt: 2.into(),
        ttt: NO_TAG.into(),
        cmd_sn: 1.into(),
        ..TextRequest::default()
    };
    client.send(text, b"SendTargets=All\0");
    let (_, answer) = client.receive();
    let expected = format!("TargetName={TARGET}\0TargetAddress={},1\0", server.address);
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
    let logout = LogoutRequest {
        opcode: opcode::LOGOUT_REQUEST,
        flags: 0x80,
        itt: 3.into(),
        cmd_sn: 2.into(),
        ..LogoutRequest::default()
    };
    client.send(logout, &[]);
    assert_eq!(client.receive().0.operation(), opcode::LOGOUT_RESPONSE);
    assert!(client.is_closed());
}

#[test]
fn unknown_operations_are_rejected_without_harm() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let bogus = Bhs { opcode: 0x40 | 0x1C, flags: 0x80, ..Bhs::default() };
    client.send(bogus, &[]);
    let (bhs, header) = client.receive();
    assert_eq!((bhs.operation(), bhs.specific[0]), (opcode::REJECT, 5));
    assert_eq!(Bhs::read_from_bytes(&header).unwrap(), bogus);
    assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
}

#[test]
fn garbage_harms_nobody_else() {
    let server = Server::start();
    let mut witness = Client::logged_in(&server, 1, "").ready();
    for seed in 0..200u32 {
        let mut client = Client::connect(&server);
        if seed % 2 == 1 {
            let response = client.login(2 + (seed % 50) as u8, "InitialR2T=No\0");
            assert_eq!(response.status_class, 0);
        }
        let mut bytes = pattern(4096 + seed as usize);
        bytes.iter_mut().enumerate().for_each(|(n, b)| *b = b.wrapping_add((seed * (n as u32 >> 5)) as u8));
        for (n, header) in bytes.chunks_mut(48).enumerate() {
            // Mostly plausible headers: known operations, short data, sequence numbers that fit.
            if seed % 4 == 3 && header.len() == 48 {
                header[0] = [0x41, 0x01, 0x42, 0x44, 0x05, 0x40, 0x46][n % 7];
                header[4..8].copy_from_slice(&[0, 0, 0, 0]);
                header[24..28].copy_from_slice(&1u32.wrapping_add(n as u32).to_be_bytes());
            }
        }
        // The server may hang up at any byte.
        let _ = client.stream.write_all(&bytes);
    }
    assert_eq!(witness.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
}

#[test]
fn shutdown_asks_for_logout() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let asked = std::thread::spawn(move || client.receive().0.operation());
    drop(server);
    assert_eq!(asked.join().unwrap(), opcode::ASYNC_MESSAGE);
}

/// A write that waits for its data holds back who must follow it, and nobody else.
#[test]
fn ordered_tasks_wait_for_older_ones_and_hold_back_younger_ones() {
    const ORDERED: u8 = 2;
    const HEAD_OF_QUEUE: u8 = 3;
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let send = |client: &mut Client, attribute: u8, lun: u8| {
        let command = client.command(0x80 | attribute, 0, &[0x00, 0, 0, 0, 0, 0]);
        client.send(ScsiCommand { lun: [0, lun, 0, 0, 0, 0, 0, 0], ..command }, &[]);
        command.itt.get()
    };
    let answered = |client: &mut Client| {
        let (bhs, _) = client.receive();
        assert_eq!(bhs.operation(), opcode::SCSI_RESPONSE);
        (bhs.itt.get(), ScsiResponse::from(bhs).status)
    };
    // The other unit's attention.
    send(&mut client, 1, 1);
    assert_eq!(answered(&mut client).1, 2);
    let write = client.command(0xA0 | 1, 512, &write_10(0, 1));
    client.send(write, &[]);
    let r2t = R2t::from(client.receive().0);
    let ordered = send(&mut client, ORDERED, 0);
    let younger = send(&mut client, 1, 0);
    let elsewhere = send(&mut client, 1, 1);
    assert_eq!(answered(&mut client), (elsewhere, 0));
    let head = send(&mut client, HEAD_OF_QUEUE, 0);
    assert_eq!(answered(&mut client), (head, 0));
    let data =
        DataOut { opcode: opcode::DATA_OUT, flags: 0x80, itt: write.itt, ttt: r2t.ttt, ..DataOut::default() };
    client.send(data, &[1; 512]);
    for itt in [write.itt.get(), ordered, younger] {
        assert_eq!(answered(&mut client), (itt, 0));
    }
    // An ordered task that is aborted lets go of those behind it.
    let write = client.command(0xA0 | ORDERED, 512, &write_10(0, 1));
    client.send(write, &[]);
    assert_eq!(client.receive().0.operation(), opcode::R2T);
    let younger = send(&mut client, 1, 0);
    let abort = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | 1,
        itt: 99.into(),
        referenced: write.itt,
        cmd_sn: client.cmd_sn.into(),
        ..TaskRequest::default()
    };
    client.send(abort, &[]);
    let mut answers = [client.receive().0, client.receive().0].map(|bhs| (bhs.operation(), bhs.itt.get()));
    answers.sort_unstable();
    assert_eq!(answers, [(opcode::SCSI_RESPONSE, younger), (opcode::TASK_RESPONSE, 99)]);
    // No ACA, and attributes that there are not.
    send(&mut client, 4, 0);
    let (bhs, sense) = client.receive();
    assert_eq!((ScsiResponse::from(bhs).status, sense[4] & 0xF, sense[14]), (2, 5, 0x49));
    send(&mut client, 5, 0);
    assert_eq!(client.receive().0.operation(), opcode::REJECT);
    send(&mut client, 1, 0);
    assert_eq!(answered(&mut client).1, 0);
}

#[test]
fn clearing_the_task_set_ends_the_tasks_of_this_session_alone() {
    let server = Server::start();
    let mut one = Client::logged_in(&server, 1, "").ready();
    let mut two = Client::logged_in(&server, 2, "").ready();
    let mut waiting = Vec::new();
    for client in [&mut one, &mut two] {
        let write = client.command(0xA0 | 1, 512, &write_10(0, 1));
        client.send(write, &[]);
        waiting.push((write, R2t::from(client.receive().0)));
    }
    let clear = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | 4,
        itt: 77.into(),
        referenced: NO_TAG.into(),
        cmd_sn: one.cmd_sn.into(),
        ..TaskRequest::default()
    };
    one.send(clear, &[]);
    assert_eq!(TaskResponse::from(one.receive().0).response, 0);
    let (write, r2t) = &waiting[1];
    let data =
        DataOut { opcode: opcode::DATA_OUT, flags: 0x80, itt: write.itt, ttt: r2t.ttt, ..DataOut::default() };
    two.send(data, &[1; 512]);
    assert_eq!(ScsiResponse::from(two.receive().0).status, 0);
    assert_eq!(one.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
}
