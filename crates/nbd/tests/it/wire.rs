//! What well-behaved clients do not do: a client that builds its messages byte by byte.

use crate::support::{Server, VOLUME_BYTES, nbdsh};
use quoin_nbd::{
    Options, Refused,
    wire::{Chunk, OptionReply, Request, SimpleReply, chunk, command, command_flag, option, reply},
};
use quoin_qos::{Limits, Rate};
use quoin_ram_device::RamDevice;
use quoin_target::{Access, Clock, ExportRules, RuntimeClock};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::{Nanos, Task};
use std::{
    io::{Read, Write},
    net::TcpStream,
    num::NonZeroU64,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use zerocopy::{FromBytes, IntoBytes};

const PERM: u32 = 1;
const IO: u32 = 5;
const INVAL: u32 = 22;
const NOSPC: u32 = 28;
const SHUTDOWN: u32 = 108;

struct Client {
    stream: TcpStream,
    structured: bool,
}

impl Client {
    /// Connected, greeted, and its flags sent.
    fn connect(server: &Server) -> Client {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        Client { stream, structured: false }
    }

    /// Transmission of an export has begun.
    fn open(server: &Server, export: &str, structured: bool) -> Client {
        let mut client = Client::connect(server);
        if structured {
            assert_eq!(client.option(option::STRUCTURED_REPLY, &[]).0, reply::ACK);
            let query = [&name(export)[..], &1u32.to_be_bytes(), &name("base:allocation")].concat();
            assert_eq!(client.option(option::SET_META_CONTEXT, &query).0, reply::META_CONTEXT);
            assert_eq!(client.reply().0, reply::ACK);
            client.structured = true;
        }
        client.send_option(option::GO, &[&name(export)[..], &[0, 0]].concat());
        while client.reply().0 != reply::ACK {}
        client
    }

    fn send_option(&mut self, option: u32, data: &[u8]) {
        let header = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
        self.stream.write_all(&[&header.concat(), data].concat()).unwrap();
    }

    fn reply(&mut self) -> (u32, Vec<u8>) {
        let mut header = [0; OptionReply::BYTES];
        self.stream.read_exact(&mut header).unwrap();
        let header = OptionReply::read_from_bytes(&header).unwrap();
        let mut data = vec![0; header.data_bytes.get() as usize];
        self.stream.read_exact(&mut data).unwrap();
        (header.kind.get(), data)
    }

    /// The first reply to an option, and what it says.
    fn option(&mut self, option: u32, data: &[u8]) -> (u32, String) {
        self.send_option(option, data);
        let (kind, data) = self.reply();
        (kind, String::from_utf8_lossy(&data).into_owned())
    }

    fn send(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u32, payload: &[u8]) {
        let request = Request {
            magic: 0x2560_9513.into(),
            flags: flags.into(),
            kind: kind.into(),
            cookie: cookie.into(),
            offset: offset.into(),
            len_bytes: len.into(),
        };
        self.stream.write_all(&[request.as_bytes(), payload].concat()).unwrap();
    }

    /// A chunk of a structured reply: kind, cookie, payload.
    fn chunk(&mut self) -> (u16, u64, Vec<u8>) {
        let mut header = [0; Chunk::BYTES];
        self.stream.read_exact(&mut header).unwrap();
        let header = Chunk::read_from_bytes(&header).unwrap();
        assert_eq!(header.magic.get(), 0x668E_33EF);
        let mut payload = vec![0; header.payload_bytes.get() as usize];
        self.stream.read_exact(&mut payload).unwrap();
        (header.kind.get(), header.cookie.get(), payload)
    }

    /// The error of the next reply, 0 for none, and its cookie; it must not carry data.
    fn error(&mut self) -> (u64, u32) {
        if self.structured {
            let (kind, cookie, payload) = self.chunk();
            return match kind {
                chunk::NONE => (cookie, 0),
                chunk::ERROR | chunk::ERROR_OFFSET => {
                    assert!(payload.len() > 10, "an error without a message");
                    (cookie, u32::from_be_bytes(payload[..4].try_into().unwrap()))
                }
                kind => panic!("a chunk of type {kind}"),
            };
        }
        let mut header = [0; SimpleReply::BYTES];
        self.stream.read_exact(&mut header).unwrap();
        let header = SimpleReply::read_from_bytes(&header).unwrap();
        assert_eq!(header.magic.get(), 0x6744_6698);
        (header.cookie.get(), header.error.get())
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    fn disconnect(mut self) {
        self.send(command::DISC, 0, 0, 0, 0, &[]);
        assert!(self.is_closed());
    }
}

fn name(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Another client is served as if nothing had happened.
#[track_caller]
fn assert_serves(server: &Server) {
    nbdsh(&server.uri("v1"), "", "h.pwrite(b'z' * 512, 0)\nassert h.pread(512, 0) == b'z' * 512");
}

#[test]
fn nonsense_in_negotiation_ends_only_its_connection() {
    let server = Server::start();
    let mut well_behaved = Client::open(&server, "v1", true);
    for nonsense in [
        &[0xFF; 4][..],
        b"\0\0\0\x03GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xFF\xFF\xFF\xFF",
        b"\0\0\0\x00IHAVEOPT\0\0\0\x03\0\0\0\0",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x02v9",
    ] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(nonsense).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer.len(), 18, "a greeting and nothing else for {nonsense:x?}");
    }
    well_behaved.send(command::FLUSH, 0, 7, 0, 0, &[]);
    assert_eq!(well_behaved.error(), (7, 0));
    well_behaved.disconnect();
    assert_eq!(server.nbd.metrics().negotiations_failed, 5);
    assert_serves(&server);
}

#[test]
fn options_that_are_wrong_are_refused_and_the_next_is_heard() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let long = "x".repeat(5000);
    for (number, data, expected) in [
        (99, vec![], reply::ERR_UNSUP),
        (11, vec![], reply::ERR_UNSUP),
        (option::LIST, vec![0], reply::ERR_INVALID),
        (option::STRUCTURED_REPLY, vec![0], reply::ERR_INVALID),
        (option::STARTTLS, vec![], reply::ERR_POLICY),
        (option::GO, vec![], reply::ERR_INVALID),
        (option::GO, vec![0, 0, 0, 9, b'v'], reply::ERR_INVALID),
        (option::GO, vec![0xFF; 6], reply::ERR_INVALID),
        (option::GO, [&name("v1")[..], &[0, 2, 0, 0]].concat(), reply::ERR_INVALID),
        (option::GO, [&name("v1")[..], &[0, 0, 0]].concat(), reply::ERR_INVALID),
        (option::INFO, [&name(&long)[..], &[0, 0]].concat(), reply::ERR_TOO_BIG),
        (option::INFO, vec![0, 0, 0, 1, 0xFF, 0, 0], reply::ERR_INVALID),
        (option::INFO, [&name("v9")[..], &[0, 0]].concat(), reply::ERR_UNKNOWN),
        (option::INFO, [&name("")[..], &[0, 0]].concat(), reply::ERR_UNKNOWN),
        (option::SET_META_CONTEXT, [&name("v1")[..], &[0; 4]].concat(), reply::ERR_INVALID),
        (option::STRUCTURED_REPLY, vec![], reply::ACK),
        (option::SET_META_CONTEXT, [&name("v9")[..], &[0; 4]].concat(), reply::ERR_UNKNOWN),
        (option::SET_META_CONTEXT, [&name("v1")[..], &[0xFF; 4]].concat(), reply::ERR_INVALID),
        (option::SET_META_CONTEXT, [&name("v1")[..], &[0; 4]].concat(), reply::ACK),
        (
            option::LIST_META_CONTEXT,
            [&name("v1")[..], &1u32.to_be_bytes(), &name("x:y")].concat(),
            reply::ACK,
        ),
        (option::ABORT, vec![], reply::ACK),
    ] {
        let (kind, said) = client.option(number, &data);
        assert_eq!(kind, expected, "option {number} with {data:x?}: {said}");
    }
    assert!(client.is_closed());
    assert_serves(&server);
}

#[test]
fn requests_that_cannot_be_are_answered_and_the_next_is_served() {
    let server = Server::start();
    let write = vec![1; 4096];
    for structured in [false, true] {
        let mut client = Client::open(&server, "v1", structured);
        let end = VOLUME_BYTES;
        for (kind, flags, offset, len, expected) in [
            (command::READ, 0, end, 512, INVAL),
            (command::READ, 0, u64::MAX - 100, 512, INVAL),
            (command::READ, 0, 0, (32 << 20) + 512, INVAL),
            (command::READ, command_flag::NO_HOLE, 0, 512, INVAL),
            (command::WRITE, 0, end - 512, 4096, NOSPC),
            (command::WRITE, 0x8000, 0, 4096, INVAL),
            (command::TRIM, 0, end, 512, INVAL),
            (command::WRITE_ZEROES, 0, end, 512, NOSPC),
            (command::CACHE, 0, end, 512, INVAL),
            (command::FLUSH, command_flag::DF, 0, 0, INVAL),
            (command::FLUSH, 0, 0, 0, 0),
            (command::BLOCK_STATUS, 0, 0, 0, INVAL),
            (8, 0, 0, 0, INVAL),
            (0xFFFF, 0, 0, 0, INVAL),
            (command::WRITE, command_flag::FUA, 0, 4096, 0),
            (
                command::WRITE_ZEROES,
                command_flag::NO_HOLE | command_flag::FAST_ZERO | command_flag::FUA,
                0,
                8192,
                0,
            ),
        ] {
            let payload = if kind == command::WRITE { &write[..] } else { &[] };
            client.send(kind, flags, 42, offset, len, payload);
            assert_eq!(client.error(), (42, expected), "type {kind}, flags {flags:#x}, {offset}+{len}");
        }
        client.disconnect();
        let mut client = Client::open(&server, "ro", structured);
        for kind in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            client.send(kind, 0, 43, 0, 4096, if kind == command::WRITE { &write } else { &[] });
            assert_eq!(client.error(), (43, PERM));
        }
        client.disconnect();
    }
    // A write that is too long is read over, without being kept.
    let mut client = Client::open(&server, "v1", true);
    let long = vec![7; (32 << 20) + 512];
    client.send(command::WRITE, 0, 44, 0, long.len() as u32, &long);
    assert_eq!(client.error(), (44, INVAL));
    client.send(command::FLUSH, 0, 45, 0, 0, &[]);
    assert_eq!(client.error(), (45, 0));
    client.disconnect();
    // What does not begin like a request does not end like one.
    let mut client = Client::open(&server, "v1", false);
    client.stream.write_all(&[0x55; 28]).unwrap();
    assert!(client.is_closed());
    assert_serves(&server);
}

#[test]
fn failures_of_the_volume_are_told_by_their_kind() {
    let server = Server::start();
    let volume = "v1".to_owned();
    let faults = [
        (DeviceError::NoSpace { volume: volume.clone() }, NOSPC),
        (DeviceError::Medium { volume: volume.clone(), offset: 4096, reason: "a checksum".into() }, IO),
        (DeviceError::Offline { volume: volume.clone(), reason: "a drive is missing".into() }, IO),
        (DeviceError::Replaced { volume: volume.clone() }, SHUTDOWN),
        (DeviceError::Deleted { volume }, SHUTDOWN),
    ];
    for structured in [false, true] {
        let mut client = Client::open(&server, "v1", structured);
        for (fault, expected) in &faults {
            server.device("v1").fail(Some(fault.clone()));
            client.send(command::WRITE, 0, 1, 0, 4096, &[1; 4096]);
            assert_eq!(client.error(), (1, *expected), "{fault}");
            client.send(command::READ, 0, 2, 0, 8192, &[]);
            assert_eq!(client.error(), (2, *expected), "{fault}");
            client.send(command::WRITE_ZEROES, 0, 3, 0, 8192, &[]);
            assert_eq!(client.error(), (3, *expected), "{fault}");
        }
        server.device("v1").fail(None);
        client.send(command::FLUSH, 0, 4, 0, 0, &[]);
        assert_eq!(client.error(), (4, 0));
        client.disconnect();
    }
}

#[test]
fn what_was_meant_for_another_content_does_nothing() {
    let server = Server::start();
    let mut client = Client::open(&server, "v1", false);
    client.send(command::WRITE, 0, 1, 0, 4096, &[1; 4096]);
    assert_eq!(client.error(), (1, 0));
    server.device("v1").replace();
    client.send(command::WRITE, 0, 2, 0, 4096, &[2; 4096]);
    assert_eq!(client.error(), (2, SHUTDOWN));
    client.send(command::WRITE, 0, 3, 100, 10, &[2; 10]);
    assert_eq!(client.error(), (3, SHUTDOWN));
    client.send(command::TRIM, 0, 4, 0, 4096, &[]);
    assert_eq!(client.error(), (4, SHUTDOWN));
    client.send(command::READ, 0, 5, 0, 4096, &[]);
    assert_eq!(client.error(), (5, SHUTDOWN));
    client.disconnect();
    assert_eq!(server.device("v1").byte(0), 1);
}

#[test]
fn what_is_asked_is_counted_with_the_volume() {
    let server = Server::start();
    let mut client = Client::open(&server, "v1", true);
    client.send(command::WRITE, 0, 1, 0, 8192, &[1; 8192]);
    assert_eq!(client.error(), (1, 0));
    client.send(command::WRITE_ZEROES, 0, 2, 8192, 4096, &[]);
    assert_eq!(client.error(), (2, 0));
    client.send(command::READ, command_flag::DF, 3, 100, 1000, &[]);
    assert_eq!(client.chunk().0, chunk::OFFSET_DATA);
    client.send(command::TRIM, 0, 4, 0, 8192, &[]);
    assert_eq!(client.error(), (4, 0));
    server.device("v1").fail(Some(DeviceError::Deleted { volume: "v1".to_owned() }));
    client.send(command::READ, 0, 5, 0, 4096, &[]);
    assert_eq!(client.error(), (5, SHUTDOWN));
    let device = server.device("v1");
    let counted = device.instruments().unwrap().snapshot();
    let figures =
        [counted.read, counted.write, counted.unmap].map(|of| (of.bytes, of.errors, of.latency.count()));
    assert_eq!(figures, [(1000, 1, 2), (8192 + 4096, 0, 2), (0, 0, 1)]);
    client.disconnect();
}

#[test]
fn holes_are_sent_as_holes_and_data_in_one_piece_if_it_must_be() {
    let server = Server::start();
    let mut client = Client::open(&server, "v1", true);
    client.send(command::WRITE, 0, 1, 8192, 8192, &[9; 8192]);
    assert_eq!(client.error(), (1, 0));
    client.send(command::READ, 0, 2, 0, 32768, &[]);
    let chunks: Vec<_> = (0..3).map(|_| client.chunk()).collect();
    let kinds: Vec<_> =
        chunks.iter().map(|(kind, cookie, payload)| (*kind, *cookie, payload.len())).collect();
    assert_eq!(
        kinds,
        [(chunk::OFFSET_HOLE, 2, 12), (chunk::OFFSET_DATA, 2, 8 + 8192), (chunk::OFFSET_HOLE, 2, 12)]
    );
    assert_eq!(chunks[1].2[..8], 8192u64.to_be_bytes());
    assert_eq!(chunks[2].2, [&16384u64.to_be_bytes()[..], &16384u32.to_be_bytes()].concat());
    client.send(command::READ, command_flag::DF, 3, 0, 32768, &[]);
    let (kind, _, payload) = client.chunk();
    assert_eq!((kind, payload.len()), (chunk::OFFSET_DATA, 8 + 32768));
    client.send(command::READ, command_flag::DF, 4, 1 << 20, 32768, &[]);
    assert_eq!(client.chunk().0, chunk::OFFSET_HOLE);
    // Extents: one if one is enough, all if not.
    client.send(command::BLOCK_STATUS, command_flag::REQ_ONE, 5, 0, 65536, &[]);
    let (kind, _, payload) = client.chunk();
    assert_eq!((kind, payload.len()), (chunk::BLOCK_STATUS, 4 + 8));
    client.send(command::BLOCK_STATUS, 0, 6, 0, 65536, &[]);
    assert_eq!(client.chunk().2.len(), 4 + 3 * 8);
    client.disconnect();
}

#[test]
fn flooding_slow_and_half_open_clients_hold_up_nobody() {
    let options = Options { stall_timeout: Duration::from_millis(800), ..Options::default() };
    let server = Server::start_with(None, options);
    // Asks for much and takes nothing.
    let mut greedy = Client::open(&server, "v1", false);
    greedy.send(command::WRITE, 0, 0, 0, 1 << 20, &vec![5; 1 << 20]);
    assert_eq!(greedy.error(), (0, 0));
    let flood = greedy.stream.try_clone().unwrap();
    let flooder = thread::spawn(move || {
        let mut flood = Client { stream: flood, structured: false };
        flood.stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        for cookie in 0..2000 {
            let request = Request {
                magic: 0x2560_9513.into(),
                cookie: cookie.into(),
                len_bytes: (1 << 20).into(),
                ..Request::default()
            };
            if flood.stream.write_all(request.as_bytes()).is_err() {
                return;
            }
        }
    });
    // Begins a write and stops.
    let mut stopped = Client::open(&server, "v1", false);
    stopped.send(command::WRITE, 0, 0, 0, 1 << 20, &[0; 1000]);
    // Sends byte by byte, which is slow but not wrong.
    let mut dribbling = Client::open(&server, "v1", false);
    let request = Request { magic: 0x2560_9513.into(), kind: command::FLUSH.into(), ..Request::default() };
    for byte in request.as_bytes() {
        dribbling.stream.write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_millis(40));
        if byte == &0x13 {
            assert_serves(&server);
        }
    }
    assert_eq!(dribbling.error(), (0, 0));
    assert_serves(&server);
    assert!(stopped.is_closed(), "a client that stopped in the middle is dropped");
    flooder.join().unwrap();
    // Silent and idle is not stalled.
    let mut idle = Client::open(&server, "v1", false);
    thread::sleep(Duration::from_millis(1200));
    idle.send(command::FLUSH, 0, 9, 0, 0, &[]);
    assert_eq!(idle.error(), (9, 0));
    idle.disconnect();
}

#[test]
fn negotiation_has_a_time_limit_and_connections_a_number() {
    let options = Options {
        handshake_timeout: Duration::from_millis(300),
        max_connections: 3,
        max_negotiations: 2,
        ..Options::default()
    };
    let server = Server::start_with(None, options);
    let mut silent = Client::connect(&server);
    assert!(silent.is_closed());
    let mut served: Vec<_> = (0..3).map(|_| Client::open(&server, "v1", false)).collect();
    let mut fourth = TcpStream::connect(server.address).unwrap();
    assert!(matches!(fourth.read(&mut [0; 1]), Ok(0) | Err(_)), "there is no place for it");
    served.pop().unwrap().disconnect();
    while server.exports.get("v1").unwrap().clients().len() > 2 {
        thread::sleep(Duration::from_millis(5));
    }
    served.push(Client::open(&server, "v1", false));
    for mut client in served {
        client.send(command::FLUSH, 0, 1, 0, 0, &[]);
        assert_eq!(client.error(), (1, 0));
    }
}

#[test]
fn a_stop_answers_what_was_begun_and_refuses_what_comes_then() {
    let mut server = Server::start();
    let mut client = Client::open(&server, "v1", true);
    server.device("v1").hold(true);
    client.send(command::WRITE, 0, 1, 0, 4096, &[1; 4096]);
    while server.nbd.metrics().requests < 1 {
        thread::sleep(Duration::from_millis(5));
    }
    server.stop();
    // It is the stop that makes the difference, and it takes a moment to be heard.
    let mut cookie = 2;
    loop {
        client.send(command::FLUSH, 0, cookie, 0, 0, &[]);
        match client.error() {
            (answered, SHUTDOWN) => break assert_eq!(answered, cookie),
            (answered, 0) => assert_eq!(answered, cookie),
            other => panic!("{other:?}"),
        }
        cookie += 1;
        thread::sleep(Duration::from_millis(5));
    }
    server.device("v1").hold(false);
    assert_eq!(client.error(), (1, 0), "what was begun is finished and told");
    assert!(client.is_closed());
}

#[test]
fn an_export_taken_away_ends_its_connections_and_no_others() {
    let server = Server::start();
    let mut gone = Client::open(&server, "v2", false);
    let mut stays = Client::open(&server, "v1", false);
    assert_eq!(server.exports.get("v2").unwrap().clients().len(), 1);
    server.exports.retain(|name| name != "v2");
    assert!(gone.is_closed());
    stays.send(command::FLUSH, 0, 1, 0, 0, &[]);
    assert_eq!(stays.error(), (1, 0));
    let mut client = Client::connect(&server);
    let (kind, said) = client.option(option::INFO, &[&name("v2")[..], &[0, 0]].concat());
    assert_eq!(kind, reply::ERR_UNKNOWN, "{said}");
    stays.disconnect();
}

/// From now on a volume moves this many bytes a second.
fn limit(device: &RamDevice, per_s: u64) {
    let bytes = NonZeroU64::new(per_s).map(|per_s| Rate { per_s, burst: Duration::ZERO });
    device.throttle().unwrap().configure(&[Limits { ios: None, bytes }], None, Nanos::default());
}

/// Waits until so many requests wait for the limits of a volume.
#[track_caller]
fn until_limited(device: &RamDevice, count: u64) {
    let began = Instant::now();
    while device.throttle().unwrap().view().waiting != count {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", device.throttle().unwrap().view());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_write_that_waited_is_refused_if_its_export_is_read_only_by_then() {
    let server = Server::start();
    let device = server.device("v1");
    let access = |access| server.exports.set("v1", device.clone(), ExportRules::default(), access);
    let mut client = Client::open(&server, "v1", false);
    limit(&device, 1024);
    client.send(command::WRITE, 0, 1, 0, 1024, &[1; 1024]);
    assert_eq!(client.error(), (1, 0));
    // One that waits for a limit, and one that waits for its data.
    client.send(command::WRITE, 0, 2, 0, 512, &[2; 512]);
    until_limited(&device, 1);
    access(Access::ReadOnly);
    assert_eq!(client.error(), (2, PERM));
    limit(&device, u64::MAX);
    access(Access::Default);
    client.send(command::WRITE, 0, 3, 0, 1024, &[3; 512]);
    while server.nbd.metrics().requests < 3 {
        thread::sleep(Duration::from_millis(5));
    }
    access(Access::ReadOnly);
    client.stream.write_all(&[3; 512]).unwrap();
    assert_eq!(client.error(), (3, PERM));
    assert_eq!(device.byte(0), 1);
    client.disconnect();
}

/// One of the sessions that wait looks after the time for all of them.
#[test]
fn a_session_that_ends_amid_its_wait_for_limits_holds_up_no_other() {
    let server = Server::start();
    let device = server.device("v1");
    let mut gone = Client::open(&server, "v1", false);
    let mut stays = Client::open(&server, "ro", false);
    limit(&device, 512);
    device.hold(true);
    gone.send(command::WRITE, 0, 1, 0, 1024, &[1; 1024]);
    gone.send(command::WRITE, 0, 2, 0, 512, &[2; 512]);
    until_limited(&device, 1);
    stays.send(command::READ, 0, 3, 0, 512, &[]);
    until_limited(&device, 2);
    // The connection ends, and what it runs does not.
    server.exports.retain(|name| name != "v1");
    assert_eq!(stays.error(), (3, 0));
    stays.stream.read_exact(&mut [0; 512]).unwrap();
    device.hold(false);
    assert!(gone.is_closed());
    stays.disconnect();
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
fn a_request_that_comes_with_the_end_of_negotiation_comes_then() {
    let clock = Arc::new(Late(RuntimeClock::default()));
    let server = Server::start_with(None, Options { clock, ..Options::default() });
    let mut client = Client::connect(&server);
    let data = [&name("v1")[..], &[0, 0]].concat();
    let len = (data.len() as u32).to_be_bytes();
    let read = Request {
        magic: 0x2560_9513.into(),
        flags: 0.into(),
        kind: command::READ.into(),
        cookie: 1.into(),
        offset: 0.into(),
        len_bytes: 512.into(),
    };
    let go = [&b"IHAVEOPT"[..], &option::GO.to_be_bytes(), &len, &data].concat();
    client.stream.write_all(&[&go, read.as_bytes()].concat()).unwrap();
    while client.reply().0 != reply::ACK {}
    assert_eq!(client.error(), (1, 0));
    client.stream.read_exact(&mut [0; 512]).unwrap();
    let counted = server.device("v1").instruments().unwrap().snapshot();
    let latency = counted.read.latency.sum();
    assert!(counted.read.latency.count() == 1 && latency < Duration::from_secs(60), "{latency:?}");
    client.disconnect();
}

/// Waits until so many refusals were told.
#[track_caller]
fn until(told: &Mutex<Vec<Refused>>, count: usize) -> Vec<Refused> {
    let began = Instant::now();
    loop {
        let told = told.lock().unwrap().clone();
        if told.len() >= count {
            return told;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{told:?}");
        thread::yield_now();
    }
}

#[test]
fn each_refusal_is_told_once_and_who_only_looks_is_not_refused() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let refused = Box::new(move |refused| list.lock().unwrap().push(refused));
    let server = Server::start_with(None, Options { refused, max_negotiations: 2, ..Options::default() });
    // One client that asks for the same in three ways, and then for another.
    let mut client = Client::connect(&server);
    let go = |export: &str| [&name(export)[..], &[0, 0]].concat();
    assert_eq!(client.option(option::INFO, &go("v9")).0, reply::ERR_UNKNOWN);
    assert_eq!(client.option(option::GO, &go("v9")).0, reply::ERR_UNKNOWN);
    assert_eq!(client.option(option::GO, &go("v8")).0, reply::ERR_UNKNOWN);
    client.send_option(option::EXPORT_NAME, b"v9");
    assert!(client.is_closed());
    let why = "there is no such export";
    let refusals = until(&told, 2);
    let exports: Vec<_> = refusals.iter().map(|refused| refused.export.as_deref()).collect();
    assert_eq!(exports, [Some("v9"), Some("v8")]);
    assert!(refusals.iter().all(|refused| refused.why == why), "{refusals:?}");

    // Nonsense is told of, and what it was; greeting and leaving is not.
    drop(Client::connect(&server));
    let mut client = Client::connect(&server);
    client.stream.write_all(&[b'x'; 16]).unwrap();
    let refusals = until(&told, 3);
    assert_eq!(refusals[2].why, "what the client sent is not NBD");
    assert!(refusals[2].detail.is_some() && refusals[2].export.is_none(), "{refusals:?}");
    assert!(client.is_closed());

    // More clients than may negotiate.
    let began = Instant::now();
    let mut negotiating = Vec::new();
    while told.lock().unwrap().len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(20));
        negotiating.push(TcpStream::connect(server.address).unwrap());
        thread::yield_now();
    }
    assert_eq!(told.lock().unwrap()[3].why, "too many clients negotiate");
}
