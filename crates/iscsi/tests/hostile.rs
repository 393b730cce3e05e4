//! Hostile peers beside a well-behaved one: they get nowhere, and it does not notice.

#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod support;

use quoin_iscsi::{Options, pdu::opcode};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};
use support::{
    Server,
    client::{Client, pattern, read_10, write_10},
    options,
};

/// A server that is quick to lose patience, and has room for little.
fn server() -> Server {
    let options = Options {
        login_timeout: Duration::from_secs(1),
        ping_after: Duration::from_millis(300),
        max_pending_logins_of_address: 16,
        memory_bytes: 64 << 20,
        ..options()
    };
    Server::with(Server::start().target.clone(), options)
}

/// Writes and reads back, as an initiator does that has nothing to do with the others.
fn works(client: &mut Client, round: u32) {
    let data = pattern(8192);
    let lba = round % 1000 * 16;
    let command = client.command(0xA0, 8192, &write_10(lba, 16));
    client.send(command, &data);
    let (bhs, _) = client.receive();
    assert_eq!((bhs.operation(), bhs.flags & 6), (opcode::SCSI_RESPONSE, 0));
    assert!(client.execute(8192, &read_10(lba, 16)) == (0, data));
}

/// Whether the server closes the connection; waits for it.
fn is_cut_off(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut sink = vec![0; 1 << 20];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn peers_that_do_not_log_in_are_bounded_and_cut_off() {
    let server = server();
    let mut good = Client::logged_in(&server, 1, "").ready();
    let silent: Vec<_> = (0..8).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let mut half: Vec<_> = (0..8).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    // Half a login request, whose rest never comes.
    half.iter_mut().for_each(|stream| stream.write_all(&[0x43, 0x87, 0, 0, 0, 0, 1, 0, 0x80, 0, 0]).unwrap());
    let flood: Vec<_> = (0..200).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for round in 0..200 {
        works(&mut good, round);
    }
    for mut stream in silent.into_iter().chain(half).chain(flood) {
        assert!(is_cut_off(&mut stream));
    }
    let metrics = server.iscsi.metrics();
    assert!(metrics.connections_refused >= 100, "{metrics:?}");
    assert!(metrics.logins_failed >= 16, "{metrics:?}");
    works(&mut good, 0);
    drop(Client::logged_in(&server, 2, "").ready());
}

#[test]
fn peers_that_take_no_answers_hold_little_and_not_for_long() {
    let server = server();
    let mut good = Client::logged_in(&server, 1, "").ready();
    let mut bad: Vec<Client> = (2..6).map(|isid| Client::logged_in(&server, isid, "").ready()).collect();
    for client in &mut bad {
        // Reads of 64 MiB and more that are never taken, as far as the server lets them in.
        for _ in 0..200 {
            let command = client.command(0xC0, 1 << 20, &read_10(0, 2048));
            client.send(command, &[]);
        }
    }
    let started = Instant::now();
    let mut round = 0;
    while started.elapsed() < Duration::from_millis(1500) {
        works(&mut good, round);
        round += 1;
        assert!(server.iscsi.memory_bytes() <= 64 << 20);
    }
    for client in &mut bad {
        // They still talk, which is no excuse.
        assert!(is_cut_off(&mut client.stream));
    }
    works(&mut good, round);
    while server.iscsi.memory_bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn peers_that_announce_data_and_send_none_are_cut_off() {
    let server = server();
    let mut good = Client::logged_in(&server, 1, "").ready();
    let mut bad = Client::logged_in(&server, 2, "").ready();
    for _ in 0..100 {
        let command = bad.command(0xA0, 1 << 20, &write_10(0, 2048));
        bad.send(command, &[]);
    }
    for round in 0..100 {
        works(&mut good, round);
    }
    // It answers pings, and is cut off all the same.
    let ping = |bhs: &quoin_iscsi::pdu::Bhs| bhs.operation() == opcode::NOP_IN;
    bad.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut header = [0; 48];
    let started = Instant::now();
    while bad.stream.read_exact(&mut header).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(60), "it is still there");
        let bhs = quoin_iscsi::pdu::Bhs::parse(&header).unwrap();
        if ping(&bhs) {
            let mut answer = header;
            (answer[0], answer[1]) = (0x40, 0x80);
            if bad.stream.write_all(&answer).is_err() {
                break;
            }
        }
    }
    works(&mut good, 0);
}

#[test]
fn unsolicited_data_beyond_a_bound_is_answered_task_set_full() {
    let server = server();
    let keys = "InitialR2T=No\0FirstBurstLength=262144\0MaxBurstLength=1048576\0";
    let mut bad = Client::logged_in(&server, 2, keys).ready();
    let (data, mut full) = (vec![7; 256 << 10], 0);
    // Each wants 32 MiB, so that few have their turn and the others wait with what they brought.
    for _ in 0..100 {
        let command = bad.command(0xA0, 32 << 20, &[0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        bad.send(command, &data);
    }
    bad.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut header = [0; 48];
    while full == 0 && bad.stream.read_exact(&mut header).is_ok() {
        full += usize::from(header[0] & 0x3F == opcode::SCSI_RESPONSE && header[3] == 0x28);
    }
    assert!(full > 0);
}
