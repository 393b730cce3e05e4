//! A whole iSCSI session: bytes of a peer in, over a real connection, to a real server with a unit in RAM.

use crate::{
    Target,
    input::Input,
    pdu::{INITIATOR_NAME, TARGET_NAME, key_words},
    ram::ram,
};
use quoin_base::crc32c;
use quoin_iscsi::{Accepted, IscsiServer, Options, pdu::*};
use quoin_ram_device::RamDevice;
use quoin_target::{Access, Lun, Target as IscsiTarget};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{LocalSet, spawn_local},
};
use zerocopy::IntoBytes;

/// Bytes of a peer from connection to end.
pub(crate) const SESSION: Target = Target {
    name: "iscsi_session",
    about: "a byte of modes, then headers with their data: a login goes before, lengths, CmdSN and digests are mended",
    run,
    seeds,
    words: || {
        let mut words = key_words();
        words.extend([
            vec![0x01, 0x81],
            vec![0x01, 0xA0],
            vec![0x01, 0xC0],
            vec![0x05, 0x80],
            vec![0x42, 0x81],
        ]);
        words.extend([
            vec![0xFF; 4],
            vec![0x28],
            vec![0x2A],
            vec![0x8A],
            vec![0x42],
            vec![0x93],
            vec![0x55],
            vec![0xA3, 0x0C],
        ]);
        words
    },
    mutations: 400,
};

/// A login goes before what the input says.
const LOGGED_IN: u8 = 0x01;
const HEADER_DIGEST: u8 = 0x02;
const DATA_DIGEST: u8 = 0x04;
/// What the input says is sent as it is.
const RAW: u8 = 0x08;
/// The stream comes in small parts.
const IN_PARTS: u8 = 0x10;
/// CmdSN stays as it is in the input.
const OWN_CMD_SN: u8 = 0x20;
/// Unsolicited data is agreed on.
const UNSOLICITED: u8 = 0x40;

/// Nothing here takes long; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than any answer to one input comes to.
const MOST_ANSWER_BYTES: usize = 256 << 20;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.u8();
    let stream = stream(mode, input.rest());
    let parts = if mode & IN_PARTS != 0 { 37 } else { usize::MAX };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { panic!("no runtime: {:?}", runtime.err()) };
    LocalSet::new().block_on(&runtime, async {
        let ended = tokio::time::timeout(PATIENCE, converse(&stream, parts)).await;
        ended.expect("the session hangs").expect("loopback works");
    });
}

/// Sends `stream`, takes all answers, and waits until the server is done with the connection.
async fn converse(stream: &[u8], parts: usize) -> std::io::Result<()> {
    let target = IscsiTarget::new(TARGET_NAME);
    let units = [Arc::new(ram(512)), Arc::new(ram(4096))];
    target.set_host("h", &[INITIATOR_NAME.to_owned()], None).expect("a fresh target takes a host");
    for (number, unit) in (0..).zip(units) {
        target
            .map("h", Lun::new(number).expect("a small number"), unit, Access::ReadWrite)
            .expect("a fresh host takes a unit");
    }
    let server = IscsiServer::new(target, Options::new(|| 7));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (send, mut connections) = tokio::sync::mpsc::unbounded_channel();
    let accepting = {
        let server = server.clone();
        let hand_over = move |accepted: Accepted<RamDevice>| drop(send.send(spawn_local(accepted.serve())));
        spawn_local(async move { server.accept(listener, 1, hand_over).await })
    };
    let client = TcpStream::connect(address).await?;
    // No port is left waiting behind: there are many inputs.
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO))?;
    let (mut from, mut to) = client.into_split();
    let sending = async {
        for part in stream.chunks(parts.min(stream.len()).max(1)) {
            // The server may have had enough.
            if to.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = to.shutdown().await;
    };
    let receiving = async {
        let (mut buffer, mut total) = (vec![0; 64 << 10], 0);
        while let Ok(len @ 1..) = from.read(&mut buffer).await {
            total += len;
            assert!(total <= MOST_ANSWER_BYTES, "{total} bytes answered to {} sent", stream.len());
        }
    };
    tokio::join!(sending, receiving);
    drop((from, to));
    let connection = connections.recv().await.expect("a connection was accepted");
    connection.await.expect("a connection panicked");
    server.shutdown().await;
    accepting.abort();
    Ok(())
}

/// What goes over the wire.
fn stream(mode: u8, script: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut cmd_sn = 0;
    let mut digests = (false, false);
    if mode & LOGGED_IN != 0 {
        digests = (mode & HEADER_DIGEST != 0, mode & DATA_DIGEST != 0);
        let text = login_text(mode);
        push(&mut stream, login(text.len()).into(), &[], text.as_bytes(), (false, false));
    }
    if mode & RAW != 0 {
        stream.extend_from_slice(script);
        return stream;
    }
    let mut input = Input::new(script);
    while !input.is_empty() {
        let Some(mut bhs) = Bhs::parse(&input.array::<BHS_BYTES>()) else {
            unreachable!("it is as long as one")
        };
        let additional = input.take(bhs.ahs_bytes());
        let data = input.take(bhs.data_len.get());
        bhs.ahs_words = (additional.len() / 4) as u8;
        bhs.data_len = U24::new(data.len());
        let numbered = !matches!(bhs.operation(), opcode::DATA_OUT | opcode::SNACK);
        if mode & OWN_CMD_SN == 0 && numbered {
            bhs.rest[4..8].copy_from_slice(&u32::to_be_bytes(cmd_sn));
            cmd_sn += u32::from(!bhs.is_immediate());
        }
        push(&mut stream, bhs, &additional[..additional.len() / 4 * 4], data, digests);
    }
    stream
}

fn login_text(mode: u8) -> String {
    let digest = |bit| if mode & bit != 0 { "CRC32C" } else { "None" };
    let no_r2t = if mode & UNSOLICITED != 0 { "No" } else { "Yes" };
    format!(
        "InitiatorName={INITIATOR_NAME}\0TargetName={TARGET_NAME}\0SessionType=Normal\0AuthMethod=None\0\
         HeaderDigest={}\0DataDigest={}\0InitialR2T={no_r2t}\0ImmediateData=Yes\0MaxOutstandingR2T=4\0\
         FirstBurstLength=8192\0",
        digest(HEADER_DIGEST),
        digest(DATA_DIGEST),
    )
}

fn push(stream: &mut Vec<u8>, bhs: Bhs, additional: &[u8], data: &[u8], digests: (bool, bool)) {
    let header = [bhs.as_bytes(), additional].concat();
    let data = [data, &[0; 3][..padding(data.len())]].concat();
    stream.extend_from_slice(&header);
    if digests.0 {
        stream.extend_from_slice(&crc32c(&header).0.to_le_bytes());
    }
    stream.extend_from_slice(&data);
    if digests.1 && !data.is_empty() {
        stream.extend_from_slice(&crc32c(&data).0.to_le_bytes());
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let with = |mode: u8, pdus: &[(Bhs, &[u8])]| {
        let bytes = pdus.iter().flat_map(|(bhs, data)| [bhs.as_bytes(), data].concat());
        std::iter::once(mode).chain(bytes).collect::<Vec<u8>>()
    };
    let text = login_text(UNSOLICITED);
    let (login, nop, abort) = (login(text.len()), nop(), abort());
    let reset = TaskRequest { flags: FINAL | 5, itt: 7.into(), ..abort };
    let ready = command(0x80, 1, 0, &[0], 0);
    let inquiry = command(0xC0, 2, 255, &[0x12, 0, 0, 0, 255], 0);
    let read = command(0xC0, 3, 4096, &[0x28, 0, 0, 0, 0, 1, 0, 0, 8], 0);
    let immediate = command(0xA0, 4, 512, &[0x2A, 0, 0, 0, 0, 2, 0, 0, 1], 512);
    let asked = command(0xA0, 5, 1024, &[0x2A, 0, 0, 0, 0, 4, 0, 0, 2], 0);
    let unasked = command(0x20, 6, 1024, &[0x2A, 0, 0, 0, 0, 8, 0, 0, 2], 512);
    let unmap = command(0xA0, 8, 24, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24], 24);
    let out = |itt: u32, ttt: u32, offset: u32, len: usize| {
        let (itt, ttt, offset) = (itt.into(), ttt.into(), offset.into());
        Bhs::from(DataOut {
            opcode: opcode::DATA_OUT,
            flags: FINAL,
            itt,
            ttt,
            offset,
            data_len: U24::new(len),
            ..DataOut::default()
        })
    };
    let sectors = [0x5A; 1024];
    let ranges =
        [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0]].concat();
    let pdus: Vec<(Bhs, &[u8])> = vec![
        (ready, &[]),
        (inquiry, &[]),
        (read, &[]),
        (immediate, &sectors[..512]),
        (asked, &[]),
        (out(5, 1, 0, 1024), &sectors),
        (unmap, &ranges),
        (abort.into(), &[]),
        (reset.into(), &[]),
        (nop.into(), b"ping"),
        (logout().into(), &[]),
    ];
    let mode = LOGGED_IN | UNSOLICITED;
    vec![
        ("all", with(LOGGED_IN, &pdus)),
        ("digests", with(LOGGED_IN | HEADER_DIGEST | DATA_DIGEST, &pdus)),
        (
            "unsolicited",
            with(mode, &[(unasked, &sectors[..512]), (out(6, NO_TAG, 512, 512), &sectors[..512])]),
        ),
        ("own_login", with(0, &[(login.into(), text.as_bytes()), (discover().into(), b"SendTargets=")])),
        ("parts", with(LOGGED_IN | IN_PARTS, &pdus[..4])),
        ("raw", [&[LOGGED_IN | RAW][..], Bhs::from(nop).as_bytes(), b"ping"].concat()),
    ]
}

/// A login whose text has this length.
fn login(text_len: usize) -> LoginRequest {
    LoginRequest {
        opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
        flags: 0x87,
        data_len: U24::new(text_len),
        isid: [0x80, 0, 0, 0, 0, 1],
        ..LoginRequest::default()
    }
}

/// A NOP-Out that asks for its four bytes back.
fn nop() -> NopOut {
    NopOut {
        opcode: opcode::NOP_OUT,
        flags: FINAL,
        itt: 9.into(),
        ttt: NO_TAG.into(),
        data_len: U24::new(4),
        ..NopOut::default()
    }
}

/// Closes the session.
fn logout() -> LogoutRequest {
    LogoutRequest { opcode: opcode::LOGOUT_REQUEST, flags: FINAL, itt: 99.into(), ..LogoutRequest::default() }
}

/// Asks for the targets.
fn discover() -> TextRequest {
    TextRequest {
        opcode: opcode::TEXT_REQUEST,
        flags: FINAL,
        itt: 5.into(),
        ttt: NO_TAG.into(),
        data_len: U24::new(12),
        ..TextRequest::default()
    }
}

/// Aborts one task.
fn abort() -> TaskRequest {
    TaskRequest {
        opcode: opcode::TASK_REQUEST | IMMEDIATE,
        flags: FINAL | 1,
        itt: 6.into(),
        referenced: 2.into(),
        ..TaskRequest::default()
    }
}

fn command(flags: u8, itt: u32, expected: u32, cdb: &[u8], data_len: usize) -> Bhs {
    let mut command = ScsiCommand {
        opcode: opcode::SCSI_COMMAND,
        flags,
        itt: itt.into(),
        expected_bytes: expected.into(),
        data_len: U24::new(data_len),
        ..ScsiCommand::default()
    };
    command.cdb[..cdb.len()].copy_from_slice(cdb);
    command.into()
}
