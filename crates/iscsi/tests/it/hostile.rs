//! Hostile peers beside a well-behaved one: they get nowhere, and it does not notice.

use crate::support::{
    Server,
    client::{Client, pattern, read_10, write_10},
    options, target,
};
use quoin_iscsi::{
    Options,
    pdu::{DataOut, NO_TAG, NopOut, R2t, ScsiCommand, ScsiResponse, TaskRequest, TaskResponse, opcode},
};
use quoin_target::SessionMemory;
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// After this a test has failed, however slow the machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// The session of the well-behaved initiator.
const WITNESS: u8 = 99;

/// A server that loses patience after three to four seconds and has room for little.
fn server() -> Server {
    let options =
        Options { ping_after: Duration::from_secs(1), memory: SessionMemory::new(64 * MIB), ..options() };
    Server::with(target(), options)
}

/// An initiator that has nothing to do with the others: it writes, reads back, and is content.
struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Witness {
    fn of(server: &Server) -> Self {
        let mut client = Client::logged_in(server, WITNESS, "").ready();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut rounds = 0;
            while !stopped.load(Ordering::Relaxed) {
                let data = pattern(8192);
                let lba = rounds % 1000 * 16;
                let command = client.command(0xA0, 8192, &write_10(lba, 16));
                client.send(command, &data);
                let (bhs, _) = client.receive();
                assert_eq!((bhs.operation(), bhs.flags & 6), (opcode::SCSI_RESPONSE, 0));
                assert!(client.execute(8192, &read_10(lba, 16)) == (0, data));
                rounds += 1;
                sleep(Duration::from_millis(2));
            }
            rounds
        });
        Self { stop, thread }
    }

    fn ends_content(self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.thread.join().unwrap() > 0);
    }
}

/// Waits until the server has so many sessions, looking after something meanwhile.
fn until_sessions(server: &Server, sessions: usize, mut meanwhile: impl FnMut()) {
    let started = Instant::now();
    while server.target.sessions().len() != sessions {
        assert!(started.elapsed() < DEADLINE, "{:?}", server.target.sessions());
        meanwhile();
        sleep(Duration::from_millis(10));
    }
}

/// Waits until the server closes the connection.
fn is_cut_off(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).unwrap()
}

/// Half a login request, whose rest never comes.
fn half_logged_in(server: &Server) -> TcpStream {
    let mut stream = connect(server);
    stream.write_all(&[0x43, 0x87, 0, 0, 0, 0, 1, 0, 0x80, 0, 0]).unwrap();
    stream
}

#[test]
fn connections_that_do_not_log_in_are_bounded() {
    let server = Server::with(target(), Options { max_pending_logins_of_address: 16, ..options() });
    let witness = Witness::of(&server);
    let pending: Vec<_> = (0..8).flat_map(|_| [connect(&server), half_logged_in(&server)]).collect();
    let flood: Vec<_> = (0..200).map(|_| connect(&server)).collect();
    for mut stream in flood {
        assert!(is_cut_off(&mut stream));
    }
    assert_eq!(server.iscsi.metrics().connections_refused, 200);
    // Once there is room again, who means it gets in.
    drop(pending);
    let started = Instant::now();
    while server.iscsi.metrics().logins_failed < 16 {
        assert!(started.elapsed() < DEADLINE, "{:?}", server.iscsi.metrics());
        sleep(Duration::from_millis(1));
    }
    drop(Client::logged_in(&server, 2, "").ready());
    witness.ends_content();
}

/// Initiators that no host has see nothing, and take no places that hosts need.
#[test]
fn strangers_that_stay_leave_room_for_hosts() {
    const OUT_OF_RESOURCES: (u8, u8) = (3, 2);
    let server = Server::with(target(), Options { max_connections: 16, ..options() });
    let witness = Witness::of(&server);
    let log_in = |n: u8| {
        let mut client = Client::connect(&server);
        let response = client.login_as("iqn.2026-11.test:stranger", n, 0, 0, "");
        (client, (response.status_class, response.status_detail))
    };
    // A quarter of the connections is for them.
    let mut there: Vec<_> = (0..4).map(&log_in).collect();
    assert!(there.iter().all(|(_, status)| *status == (0, 0)));
    for n in 4..20 {
        assert_eq!(log_in(n).1, OUT_OF_RESOURCES);
    }
    let _hosts: Vec<_> = (2..8).map(|isid| Client::logged_in(&server, isid, "")).collect();
    // One that leaves makes room for another.
    there.pop();
    let started = Instant::now();
    while log_in(4).1 == OUT_OF_RESOURCES {
        assert!(started.elapsed() < DEADLINE, "{:?}", server.iscsi.metrics());
        sleep(Duration::from_millis(1));
    }
    witness.ends_content();
}

#[test]
fn connections_that_do_not_log_in_are_cut_off() {
    let options = Options { login_timeout: Duration::from_secs(1), ..options() };
    let server = Server::with(target(), options);
    let witness = Witness::of(&server);
    let pending: Vec<_> = (0..8).flat_map(|_| [connect(&server), half_logged_in(&server)]).collect();
    for mut stream in pending {
        assert!(is_cut_off(&mut stream));
    }
    assert_eq!(server.iscsi.metrics().logins_failed, 16);
    witness.ends_content();
}

/// Waits until the server holds about what a session takes that has nothing under way.
fn until_little_is_held(server: &Server) {
    let started = Instant::now();
    while server.iscsi.memory().held_bytes() >= 2 * MIB {
        assert!(started.elapsed() < DEADLINE, "{}", server.iscsi.memory().held_bytes());
        sleep(Duration::from_millis(1));
    }
}

/// Writes of a MiB each, of which the first 8 KiB come along and the rest never comes.
fn begin_writes(client: &mut Client, lun: [u8; 8], count: usize) {
    for _ in 0..count {
        // So many blocks of 512 or of 4096 bytes.
        let blocks = if lun == [0; 8] { 2048 } else { 256 };
        let command = ScsiCommand { lun, ..client.command(0xA0, 1 << 20, &write_10(0, blocks)) };
        client.send(command, &[7; 8192]);
    }
}

/// A connection that ends when it should go on, in one of four ways.
fn ends_in_the_middle(server: &Server, number: u8) {
    match number % 4 {
        0 => drop(connect(server)),
        1 => drop(half_logged_in(server)),
        2 => drop(Client::logged_in(server, number, "")),
        _ => {
            let mut client = Client::logged_in(server, number, "").ready();
            begin_writes(&mut client, [0; 8], 20);
            assert_eq!(client.receive().0.operation(), opcode::R2T);
        }
    }
}

#[test]
fn connections_that_end_in_the_middle_leave_nothing() {
    const ROUNDS: u64 = 8;
    let server = server();
    let witness = Witness::of(&server);
    for round in 1..=ROUNDS {
        (0..80).for_each(|number| ends_in_the_middle(&server, number));
        // Half of them did not log in. They make room for those of the next round.
        let started = Instant::now();
        while server.iscsi.metrics().logins_failed < 40 * round {
            assert!(started.elapsed() < DEADLINE, "{:?}", server.iscsi.metrics());
            sleep(Duration::from_millis(1));
        }
    }
    until_sessions(&server, 1, || {});
    until_little_is_held(&server);
    let metrics = server.iscsi.metrics();
    assert_eq!((metrics.connections_refused, metrics.logins), (0, 1 + 40 * ROUNDS), "{metrics:?}");
    witness.ends_content();
}

#[test]
fn of_many_that_log_in_under_one_name_again_and_again_one_is_left() {
    let server = server();
    let witness = Witness::of(&server);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let mut client = Client::logged_in(&server, 1, "");
                    // Another one may have taken its place already.
                    let ready = NopOut { itt: 7.into(), ..client.word() };
                    if client.try_send(ready, &[]).and_then(|()| client.try_receive()).is_ok() {
                        let command = client.command(0xA0, 1 << 20, &write_10(0, 2048));
                        drop(client.try_send(command, &[7; 8192]));
                    }
                }
            });
        }
    });
    let mut last = Client::logged_in(&server, 1, "").ready();
    until_sessions(&server, 2, || {});
    assert!(last.is_quiet());
    assert_eq!(server.iscsi.metrics().logins, 1 + 8 * 25 + 1);
    drop(last);
    until_sessions(&server, 1, || {});
    until_little_is_held(&server);
    witness.ends_content();
}

/// Sends a task management request for a unit and waits for its answer. What is answered before it is of no matter.
fn manage(client: &mut Client, function: u8, lun: [u8; 8]) {
    let request = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | function,
        lun,
        itt: 9999.into(),
        referenced: NO_TAG.into(),
        cmd_sn: client.cmd_sn.into(),
        ..TaskRequest::default()
    };
    client.send(request, &[]);
    loop {
        let (bhs, _) = client.receive();
        if bhs.operation() == opcode::TASK_RESPONSE {
            assert_eq!(TaskResponse::from(bhs).response, 0);
            return;
        }
    }
}

#[test]
fn sessions_that_reset_one_unit_all_at_once_get_on_and_no_other_unit_notices() {
    const LUN_1: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];
    const ABORT_TASK_SET: u8 = 2;
    const LUN_RESET: u8 = 5;
    let server = server();
    let witness = Witness::of(&server);
    std::thread::scope(|scope| {
        for isid in 1..=4 {
            let mut client = Client::logged_in(&server, isid, "");
            scope.spawn(move || {
                for round in 0..20 {
                    begin_writes(&mut client, LUN_1, 100);
                    manage(&mut client, if round % 4 == isid { ABORT_TASK_SET } else { LUN_RESET }, LUN_1);
                    assert!(client.is_quiet(), "a task is answered that was reset");
                }
            });
        }
    });
    until_sessions(&server, 1, || {});
    until_little_is_held(&server);
    let metrics = server.iscsi.metrics();
    assert_eq!((metrics.task_requests, metrics.rejects), (4 * 20, 0), "{metrics:?}");
    witness.ends_content();
}

/// Sends until the server takes no more.
fn flood(client: &mut Client, mut one: impl FnMut(&mut Client) -> std::io::Result<()>) {
    client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..250 {
        if one(client).is_err() {
            return;
        }
    }
}

#[test]
fn peers_that_take_no_answers_hold_little_and_not_for_long() {
    let server = server();
    let witness = Witness::of(&server);
    let keys = "MaxRecvDataSegmentLength=262144\0";
    let mut bad: Vec<Client> = (0..4).map(|isid| Client::logged_in(&server, isid, keys).ready()).collect();
    for (n, client) in bad.iter_mut().enumerate() {
        match n % 2 {
            0 => flood(client, |client| {
                let command = client.command(0xC0, 1 << 20, &read_10(0, 2048));
                client.try_send(command, &[])
            }),
            _ => flood(client, |client| {
                let ping = NopOut { itt: 7.into(), ..client.word() };
                client.try_send(ping, &[1; 256 << 10])
            }),
        }
    }
    until_sessions(&server, 1, || {
        // Each of five may have begun one command beyond the limit, and has a buffer to receive with.
        assert!(
            server.iscsi.memory().held_bytes() <= (64 + 10) * MIB,
            "{}",
            server.iscsi.memory().held_bytes()
        );
    });
    let metrics = server.iscsi.metrics();
    assert_eq!(metrics.stalled + metrics.silent, 4, "{metrics:?}");
    assert!(server.iscsi.memory().held_bytes() < 2 * MIB, "{}", server.iscsi.memory().held_bytes());
    witness.ends_content();
}

#[test]
fn a_peer_that_talks_but_takes_no_answers_is_cut_off() {
    let server = Server::with(target(), Options { ping_after: Duration::from_secs(1), ..options() });
    let witness = Witness::of(&server);
    let mut bad = Client::logged_in(&server, 1, "").ready();
    // More than sockets hold, less than makes the server stop to listen.
    for _ in 0..40 {
        let command = bad.command(0xC0, 1 << 20, &read_10(0, 2048));
        bad.send(command, &[]);
    }
    until_sessions(&server, 1, || {
        let word = bad.word();
        let _ = bad.try_send(word, &[]);
    });
    let metrics = server.iscsi.metrics();
    assert_eq!((metrics.stalled, metrics.silent), (1, 0));
    witness.ends_content();
}

#[test]
fn a_peer_that_announces_data_and_sends_none_is_cut_off() {
    let server = server();
    let witness = Witness::of(&server);
    let mut bad = Client::logged_in(&server, 1, "").ready();
    for _ in 0..100 {
        let command = bad.command(0xA0, 1 << 20, &write_10(0, 2048));
        bad.send(command, &[]);
    }
    // It takes what is asked of it, and answers pings.
    bad.stream.set_read_timeout(Some(DEADLINE)).unwrap();
    while let Ok((bhs, _)) = bad.try_receive() {
        assert_eq!(bhs.operation(), opcode::R2T);
    }
    until_sessions(&server, 1, || {});
    let metrics = server.iscsi.metrics();
    assert_eq!((metrics.stalled, metrics.silent), (1, 0));
    witness.ends_content();
}

#[test]
fn a_peer_that_sends_its_data_drop_by_drop_is_cut_off() {
    let server = server();
    let mut bad = Client::logged_in(&server, 1, "").ready();
    let command = bad.command(0xA0, 1 << 20, &write_10(0, 2048));
    bad.send(command, &[]);
    let r2t = R2t::from(bad.receive().0);
    let mut data_sn = 0u32;
    until_sessions(&server, 0, || {
        let drop = DataOut {
            opcode: opcode::DATA_OUT,
            itt: command.itt,
            ttt: r2t.ttt,
            data_sn: data_sn.into(),
            offset: data_sn.into(),
            ..DataOut::default()
        };
        data_sn += 1;
        let _ = bad.try_send(drop, &[1]);
    });
    assert_eq!(server.iscsi.metrics().stalled, 1);
}

#[test]
fn a_peer_that_answers_no_pings_is_cut_off() {
    let server = server();
    let witness = Witness::of(&server);
    let dead = Client::logged_in(&server, 1, "").ready();
    until_sessions(&server, 1, || {});
    let metrics = server.iscsi.metrics();
    assert_eq!((metrics.stalled, metrics.silent), (0, 1));
    drop(dead);
    witness.ends_content();
}

#[test]
fn unsolicited_data_beyond_a_bound_is_answered_task_set_full() {
    let server = Server::with(target(), Options { memory: SessionMemory::new(64 * MIB), ..options() });
    let witness = Witness::of(&server);
    let keys = "InitialR2T=No\0FirstBurstLength=262144\0MaxBurstLength=1048576\0";
    let mut bad = Client::logged_in(&server, 1, keys).ready();
    // Each wants 32 MiB, so that few have their turn and the others wait with what they brought.
    let write_16 = [0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    for _ in 0..100 {
        let command = bad.command(0xA0, 32 << 20, &write_16);
        bad.send(command, &[7; 256 << 10]);
    }
    loop {
        let (bhs, _) = bad.receive();
        if bhs.operation() == opcode::SCSI_RESPONSE {
            assert_eq!(ScsiResponse::from(bhs).status, 0x28);
            break;
        }
        assert_eq!(bhs.operation(), opcode::R2T);
    }
    assert!(server.iscsi.memory().held_bytes() <= (64 + 34) * MIB, "{}", server.iscsi.memory().held_bytes());
    // What was let in can be given up, and the session goes on.
    let clear = TaskRequest {
        opcode: 0x40 | opcode::TASK_REQUEST,
        flags: 0x80 | 4,
        itt: 9999.into(),
        referenced: NO_TAG.into(),
        cmd_sn: bad.cmd_sn.into(),
        ..TaskRequest::default()
    };
    bad.send(clear, &[]);
    let response = loop {
        let (bhs, _) = bad.receive();
        if bhs.operation() == opcode::TASK_RESPONSE {
            break TaskResponse::from(bhs).response;
        }
    };
    assert_eq!(response, 0);
    let command = bad.command(0xA0, 256 << 10, &write_10(100_000, 512));
    bad.send(command, &[7; 256 << 10]);
    assert_eq!(ScsiResponse::from(bad.receive().0).status, 0);
    assert!(bad.execute(256 << 10, &read_10(100_000, 512)) == (0, vec![7; 256 << 10]));
    witness.ends_content();
}
