//! What well-behaved initiators do not do.

use crate::support::{
    INITIATOR, SECOND_INITIATOR, Server, TARGET,
    client::{Client, pattern, read_10, write_10},
    options, target,
};
use quoin_iscsi::{
    Options, Portal,
    pdu::{
        AsyncMessage, Bhs, DataOut, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse, NO_TAG, R2t,
        Reject, ScsiCommand, ScsiResponse, TaskRequest, TaskResponse, TextRequest, TextResponse, U24, opcode,
    },
};
use quoin_target::{Clock, RuntimeClock};
use quoin_world::{Nanos, Task};
use std::{
    collections::BTreeSet,
    io::Write,
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};
use zerocopy::{FromBytes, IntoBytes};

/// After this a test has failed, however slow the machine.
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn a_new_login_of_the_same_name_replaces_the_session() {
    let server = Server::start();
    let mut old = Client::logged_in(&server, 1, "").ready();
    let mut other = Client::logged_in(&server, 2, "").ready();
    let mut elsewhere = Client::connect(&server);
    assert_eq!(elsewhere.login_as(SECOND_INITIATOR, 1, 0, 0, "").status_class, 0);
    let mut elsewhere = elsewhere.ready();
    // What the old session has begun ends with it.
    let waiting = old.command(0xA0, 512, &write_10(0, 1));
    old.send(waiting, &[]);
    assert_eq!(old.receive().0.operation(), opcode::R2T);
    let mut new = Client::logged_in(&server, 1, "").ready();
    assert!(old.is_closed());
    assert_eq!(server.target.sessions().len(), 3);
    for client in [&mut other, &mut elsewhere, &mut new] {
        assert_eq!(client.execute(512, &read_10(0, 1)), (0, vec![0; 512]));
    }
}

/// A clock that has gone for an hour.
struct Late(RuntimeClock);

impl Clock for Late {
    fn now(&self) -> Nanos {
        Nanos(self.0.now().0 + Duration::from_secs(3600).as_nanos() as u64)
    }

    fn sleep(&self, duration: Duration) -> Task {
        self.0.sleep(duration)
    }
}

#[test]
fn a_command_that_comes_with_the_end_of_login_comes_then() {
    let clock = Arc::new(Late(RuntimeClock::default()));
    let server = Server::with(target(), Options { clock, ..options() });
    let mut client = Client::connect(&server);
    let names = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    let login = LoginRequest {
        opcode: 0x40 | opcode::LOGIN_REQUEST,
        flags: 0x87,
        isid: [0x80, 0, 0, 0, 0, 1],
        cmd_sn: client.cmd_sn.into(),
        data_len: U24::new(names.len()),
        ..LoginRequest::default()
    };
    let mut bytes = [login.as_bytes(), names.as_bytes()].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    // INQUIRY: unlike other commands it is run, whatever there is to be told first.
    bytes.extend_from_slice(client.command(0xC0, 36, &[0x12, 0, 0, 0, 36, 0]).as_bytes());
    client.stream.write_all(&bytes).unwrap();
    assert_eq!(LoginResponse::from(client.receive().0).status_class, 0);
    assert_eq!(client.receive().0.operation(), opcode::DATA_IN);
    let traffic = || server.target.traffic()[0].clone();
    let began = Instant::now();
    while traffic().answered == 0 {
        assert!(began.elapsed() < DEADLINE, "the command does not count as answered");
    }
    assert!(traffic().latency < DEADLINE, "{:?}", traffic());
}

#[test]
fn a_connection_joins_no_session_but_may_replace_that_of_its_own() {
    let server = Server::start();
    let login = |initiator: &str, isid: u8, tsih: u16, cid: u16| {
        let mut client = Client::connect(&server);
        let response = client.login_as(initiator, isid, tsih, cid, "");
        ((response.status_class, response.status_detail), response.tsih.get(), client)
    };
    let mut first = Client::connect(&server);
    let tsih = first.login(1, "").tsih.get();
    assert_ne!(tsih, 0);
    let mut first = first.ready();
    // Another connection of the session: it has one, as was agreed.
    let (status, ..) = login(INITIATOR, 1, tsih, 1);
    assert_eq!(status, (2, 6));
    // Sessions that there are not, or that are not its own.
    for (initiator, isid, tsih) in
        [(INITIATOR, 9, tsih), (INITIATOR, 1, tsih + 1), (SECOND_INITIATOR, 1, tsih)]
    {
        let (status, _, mut client) = login(initiator, isid, tsih, 0);
        assert_eq!(status, (2, 0x0A));
        assert!(client.is_closed());
    }
    let mut discovery = Client::connect(&server);
    let response = discovery.login_as(INITIATOR, 1, tsih, 0, "SessionType=Discovery\0");
    assert_eq!((response.status_class, response.status_detail), (2, 0x0A));
    // None of that has touched it.
    assert_eq!(first.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
    // The same connection again: the session goes on under its handle without its tasks.
    let waiting = first.command(0xA0, 512, &write_10(0, 1));
    first.send(waiting, &[]);
    assert_eq!(first.receive().0.operation(), opcode::R2T);
    let (status, again, second) = login(INITIATOR, 1, tsih, 0);
    assert_eq!((status, again, first.is_closed()), ((0, 0), tsih, true));
    assert_eq!(second.ready().execute(512, &read_10(0, 1)), (0, vec![0; 512]));
    // Once it has ended, so has its handle.
    let started = Instant::now();
    while !server.target.sessions().is_empty() {
        assert!(started.elapsed() < DEADLINE);
        std::thread::yield_now();
    }
    let (status, ..) = login(INITIATOR, 1, tsih, 0);
    assert_eq!(status, (2, 0x0A));
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

/// A reset of one unit while another session has its window full of writes to two that wait for their data.
#[test]
fn a_reset_ends_many_tasks_of_its_unit_and_no_others() {
    const LUN_1: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];
    let server = Server::start();
    let mut one = Client::logged_in(&server, 1, "").ready();
    let mut two = Client::logged_in(&server, 2, "").ready();
    // The other unit tells of its start, too.
    let attention = ScsiCommand { lun: LUN_1, ..two.command(0x80, 0, &[0; 6]) };
    two.send(attention, &[]);
    assert_eq!(two.receive().0.operation(), opcode::SCSI_RESPONSE);
    let mut waiting = Vec::new();
    for number in 0..240 {
        // 4096 bytes are 8 blocks of the one unit and a block of the other.
        let (lun, blocks) = if number % 2 == 0 { ([0; 8], 8) } else { (LUN_1, 1) };
        let write = ScsiCommand { lun, ..two.command(0xA0, 4096, &write_10(number, blocks)) };
        two.send(write, &[]);
        let bhs = two.receive().0;
        assert_eq!(bhs.operation(), opcode::R2T);
        waiting.push((write, R2t::from(bhs)));
    }
    let reset = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | 5,
        itt: 77.into(),
        referenced: NO_TAG.into(),
        cmd_sn: one.cmd_sn.into(),
        ..TaskRequest::default()
    };
    one.send(reset, &[]);
    assert_eq!(TaskResponse::from(one.receive().0).response, 0);
    let data = |(write, r2t): &(ScsiCommand, R2t)| DataOut {
        opcode: opcode::DATA_OUT,
        flags: 0x80,
        lun: r2t.lun,
        itt: write.itt,
        ttt: r2t.ttt,
        ..DataOut::default()
    };
    // The data of all of them comes. Half of the tasks are gone, and that half is not answered.
    for task in &waiting {
        two.send(data(task), &[9; 4096]);
    }
    let wanted: BTreeSet<u32> =
        waiting.iter().filter(|(write, _)| write.lun == LUN_1).map(|(write, _)| write.itt.get()).collect();
    let answered: BTreeSet<u32> = (0..wanted.len())
        .map(|_| {
            let response = ScsiResponse::from(two.receive().0);
            assert_eq!(response.status, 0);
            response.itt.get()
        })
        .collect();
    assert_eq!(answered, wanted);
    let mut two = two.ready();
    assert_eq!(two.execute(512, &read_10(0, 1)), (0, vec![0; 512]), "a task that was reset wrote its data");
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

/// The event of an asynchronous message, its first and its third parameter.
fn event(client: &mut Client) -> (u8, u16, u16) {
    let (bhs, _) = client.receive();
    assert_eq!(bhs.operation(), opcode::ASYNC_MESSAGE);
    let message = AsyncMessage::from(bhs);
    (message.event, message.parameter_1.get(), message.parameter_3.get())
}

fn logout(client: &mut Client, reason: u8, cid: u16) -> LogoutResponse {
    let request = LogoutRequest {
        opcode: 0x40 | opcode::LOGOUT_REQUEST,
        flags: 0x80 | reason,
        itt: 3.into(),
        cid: cid.into(),
        cmd_sn: client.cmd_sn.into(),
        ..LogoutRequest::default()
    };
    client.send(request, &[]);
    let (bhs, _) = client.receive();
    assert_eq!(bhs.operation(), opcode::LOGOUT_RESPONSE);
    bhs.into()
}

/// The limits are such that the test would not end if it came to them.
#[test]
fn shutdown_asks_for_logout_and_waits_for_nothing_else() {
    let hour = Duration::from_secs(3600);
    let server = Server::with(target(), Options { logout_time: hour, login_timeout: hour, ..options() });
    let mut client = Client::logged_in(&server, 1, "").ready();
    let mut discovery = Client::connect(&server);
    assert_eq!(discovery.login_as(INITIATOR, 2, 0, 0, "SessionType=Discovery\0").status_class, 0);
    let mut silent = Client::connect(&server);
    let stopped = std::thread::spawn(move || drop(server));
    assert_eq!(event(&mut client), (1, 0, 3600));
    assert!(discovery.is_closed() && silent.is_closed());
    // What was begun can be brought to its end.
    assert_eq!(client.execute(512, &read_10(0, 1)), (0, vec![0; 512]));
    assert_eq!(logout(&mut client, 0, 0).response, 0);
    assert!(client.is_closed());
    stopped.join().unwrap();
}

#[test]
fn shutdown_cuts_off_who_does_not_log_out_and_says_so() {
    let server = Server::with(target(), Options { logout_time: Duration::from_millis(200), ..options() });
    let mut client = Client::connect(&server);
    assert_eq!(client.login_as(INITIATOR, 1, 0, 17, "").status_class, 0);
    let stopped = std::thread::spawn(move || drop(server));
    assert_eq!(event(&mut client), (1, 0, 1));
    assert_eq!(event(&mut client), (2, 17, 0));
    assert!(client.is_closed());
    stopped.join().unwrap();
}

/// A portal group that is closed shuts down like the server; a discovery session through it ends at once.
#[test]
fn a_portal_that_is_closed_asks_for_logout_and_accepts_nothing_more() {
    let server = Server::with(target(), Options { logout_time: Duration::from_millis(200), ..options() });
    let portal = Portal { address: server.address, group: 1 };
    let other = Portal { address: "127.0.0.9:3260".parse().unwrap(), group: 2 };
    server.iscsi.set_portals(vec![portal, other]);
    let mut client = Client::logged_in(&server, 1, "").ready();
    server.iscsi.set_portals(vec![portal]);
    assert_eq!(client.execute(512, &read_10(0, 1)), (0, vec![0; 512]), "the other portal was closed");
    server.iscsi.set_portals(vec![other]);
    // Open again, for others, before the session has heard of it.
    server.iscsi.set_portals(vec![portal, other]);
    assert_eq!(event(&mut client), (1, 0, 1));
    assert_eq!(client.execute(512, &read_10(0, 1)), (0, vec![0; 512]));
    assert_eq!(event(&mut client), (2, 0, 0));
    assert!(client.is_closed());
    let closed = Instant::now();
    while TcpStream::connect(server.address).is_ok() {
        assert!(closed.elapsed() < DEADLINE, "the portal still accepts connections");
    }
}

#[test]
fn logout_closes_what_there_is_and_nothing_else() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    assert_eq!(client.login_as(INITIATOR, 1, 0, 17, "").status_class, 0);
    let mut client = client.ready();
    // No such connection; nothing is recovered at level 0.
    assert_eq!(logout(&mut client, 1, 18).response, 1);
    assert_eq!(logout(&mut client, 2, 17).response, 2);
    assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
    assert_eq!(logout(&mut client, 1, 17).response, 0);
    assert!(client.is_closed());
}

#[test]
fn text_may_come_and_go_in_parts() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let mut say = |flags: u8, ttt: u32, text: &[u8]| {
        let request = TextRequest {
            opcode: 0x40 | opcode::TEXT_REQUEST,
            flags,
            itt: 2.into(),
            ttt: ttt.into(),
            cmd_sn: client.cmd_sn.into(),
            ..TextRequest::default()
        };
        client.send(request, text);
        let (bhs, answer) = client.receive();
        (
            bhs.operation(),
            bhs.flags,
            TextResponse::from(bhs).ttt.get(),
            String::from_utf8_lossy(&answer).into_owned(),
        )
    };
    let (operation, flags, ttt, answer) = say(0x40, NO_TAG, b"X-com.exam");
    assert_eq!((operation, flags, answer.as_str()), (opcode::TEXT_RESPONSE, 0, ""));
    assert_ne!(ttt, NO_TAG);
    // All of a text, but not the last one.
    let (_, flags, ttt, answer) = say(0, ttt, b"ple.x=1\0");
    assert_eq!((flags, answer.as_str()), (0, "X-com.example.x=NotUnderstood\0"));
    assert_ne!(ttt, NO_TAG);
    let (_, flags, ttt, answer) = say(0x80, ttt, b"");
    assert_eq!((flags, ttt, answer.as_str()), (0x80, NO_TAG, ""));
    // The last one cannot be continued.
    assert_eq!(say(0xC0, NO_TAG, b"X-com.example.y=1\0").0, opcode::REJECT);
    assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
}

#[test]
fn what_cannot_be_taken_is_rejected_and_the_session_goes_on() {
    const SNACK: u8 = 3;
    const TOO_MANY_IMMEDIATE: u8 = 6;
    const TASK_IN_PROGRESS: u8 = 7;
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let reason = |client: &mut Client, sent: Bhs| {
        let (bhs, copy) = client.receive();
        assert_eq!(bhs.operation(), opcode::REJECT);
        assert_eq!(Bhs::read_from_bytes(&copy).unwrap(), sent);
        Reject::from(bhs).reason
    };
    // Nothing is sent twice at level 0.
    let snack = Bhs { opcode: opcode::SNACK, flags: 0x80, ..Bhs::default() };
    client.send(snack, &[]);
    assert_eq!(reason(&mut client, snack), SNACK);
    // A tag that is in use.
    let write = client.command(0xA0, 512, &write_10(0, 1));
    client.send(write, &[]);
    let r2t = R2t::from(client.receive().0);
    let again = ScsiCommand { itt: write.itt, ..client.command(0xC0, 512, &read_10(0, 1)) };
    client.send(again, &[]);
    assert_eq!(reason(&mut client, again.into()), TASK_IN_PROGRESS);
    let data =
        DataOut { opcode: opcode::DATA_OUT, flags: 0x80, itt: write.itt, ttt: r2t.ttt, ..DataOut::default() };
    client.send(data, &[0; 512]);
    assert_eq!(ScsiResponse::from(client.receive().0).status, 0);
    // Commands beside the window, as far as they go.
    let immediate = |client: &mut Client| {
        let command = client.command(0xA0, 512, &write_10(0, 1));
        client.cmd_sn -= 1;
        let command = ScsiCommand { opcode: 0x40 | opcode::SCSI_COMMAND, ..command };
        client.send(command, &[]);
        command
    };
    for _ in 0..64 {
        immediate(&mut client);
        assert_eq!(client.receive().0.operation(), opcode::R2T);
    }
    let one_more = immediate(&mut client);
    assert_eq!(reason(&mut client, one_more.into()), TOO_MANY_IMMEDIATE);
    assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
    assert_eq!(server.iscsi.metrics().rejects, 3);
}

#[test]
fn numbers_of_commands_have_no_gaps_and_come_once() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    // Long done, and beyond the window: neither is answered.
    for cmd_sn in [client.cmd_sn - 1, client.cmd_sn + 1000] {
        let command = client.command(0x80, 0, &[0x00, 0, 0, 0, 0, 0]);
        client.cmd_sn -= 1;
        client.send(ScsiCommand { cmd_sn: cmd_sn.into(), ..command }, &[]);
    }
    assert_eq!(client.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
    // A gap within: with one connection, what is missing never comes.
    client.cmd_sn += 1;
    let command = client.command(0x80, 0, &[0x00, 0, 0, 0, 0, 0]);
    client.send(command, &[]);
    assert!(client.is_closed());
}

/// The two ways to write the number of a unit (SAM-5 §4.7) name the same one.
#[test]
fn a_unit_is_reset_by_whatever_name_its_tasks_have() {
    const FLAT_0: [u8; 8] = [0x40, 0, 0, 0, 0, 0, 0, 0];
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let waiting = ScsiCommand { lun: FLAT_0, ..client.command(0xA0, 512, &write_10(0, 1)) };
    client.send(waiting, &[]);
    let r2t = R2t::from(client.receive().0);
    assert_eq!((r2t.opcode, r2t.lun), (opcode::R2T, FLAT_0));
    let reset = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | 5,
        itt: 77.into(),
        referenced: NO_TAG.into(),
        cmd_sn: client.cmd_sn.into(),
        ..TaskRequest::default()
    };
    client.send(reset, &[]);
    assert_eq!(TaskResponse::from(client.receive().0).response, 0);
    let data = DataOut {
        opcode: opcode::DATA_OUT,
        flags: 0x80,
        itt: waiting.itt,
        ttt: r2t.ttt,
        ..DataOut::default()
    };
    client.send(data, &[1; 512]);
    let mut client = client.ready();
    assert_eq!(client.execute(512, &read_10(0, 1)), (0, vec![0; 512]));
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

/// Who does not run yet waits for a HEAD OF QUEUE task, though that came later.
#[test]
fn a_head_of_queue_that_waits_for_its_data_goes_first() {
    let server = Server::start();
    let mut client = Client::logged_in(&server, 1, "").ready();
    let write = |client: &mut Client, attribute: u8| {
        let command = client.command(0xA0 | attribute, 512, &write_10(0, 1));
        client.send(command, &[]);
        let r2t = R2t::from(client.receive().0);
        let (itt, ttt) = (command.itt, r2t.ttt);
        DataOut { opcode: opcode::DATA_OUT, flags: 0x80, itt, ttt, ..DataOut::default() }
    };
    let data_of_simple = write(&mut client, 1);
    let ordered = client.command(0xC0 | 2, 512, &read_10(0, 1));
    client.send(ordered, &[]);
    let data_of_head = write(&mut client, 3);
    client.send(data_of_simple, &[1; 512]);
    assert!(client.is_quiet());
    client.send(data_of_head, &[3; 512]);
    assert_eq!(client.receive().0.itt, data_of_head.itt);
    assert_eq!(client.receive().0.itt, data_of_simple.itt);
    let (bhs, read) = client.receive();
    assert_eq!((bhs.itt, read), (ordered.itt, vec![1; 512]));
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
