//! iSCSI before there is a session: frames, text, login.

use crate::{Target, input::Input};
use quoin_iscsi::{
    login::{Login, Step},
    pdu::{
        BHS_BYTES, Bhs, CONTINUE, FINAL, Frame, Framing, IMMEDIATE, LoginRequest, Parsed, U24, opcode,
        padding,
    },
    text::{self, MAX_TEXT_BYTES, Text},
};
use quoin_scsi::Port;
use zerocopy::{FromBytes, IntoBytes};

/// Splitting a byte stream into PDUs.
pub(crate) const FRAMES: Target = Target {
    name: "iscsi_frames",
    about: "a byte of digests, then a stream of PDUs",
    run: frames,
    seeds: frame_seeds,
    words: || vec![vec![0x43, 0x87], vec![0x01, 0xA1], vec![0x05, 0x80], vec![0xFF; 4]],
    mutations: 3000,
};

/// Text keys.
pub(crate) const TEXT: Target = Target {
    name: "iscsi_text",
    about: "the data of a text request",
    run: keys,
    seeds: || vec![("login", login_text().into_bytes()), ("discovery", b"SendTargets=All\0".to_vec())],
    words: key_words,
    mutations: 3000,
};

/// Login as a state machine.
pub(crate) const LOGIN: Target = Target {
    name: "iscsi_login",
    about: "login requests: flags, stage and length of each, then its text",
    run: login,
    seeds: login_seeds,
    words: key_words,
    mutations: 3000,
};

pub(crate) const TARGET_NAME: &str = "iqn.2026-11.test:t";
pub(crate) const INITIATOR_NAME: &str = "iqn.2026-11.test:i";

fn frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.u8();
    let stream = input.rest();
    let framing = Framing {
        header_digest: mode & 1 != 0,
        data_digest: mode & 2 != 0,
        max_data_bytes: 8 << (mode >> 4),
    };
    let mut at = 0;
    while let Ok(parsed) = Frame::parse(&stream[at..], framing) {
        match parsed {
            Parsed::Need(bytes) => {
                assert!(bytes > stream.len() - at, "it needs {bytes} bytes, which are there");
                break;
            }
            Parsed::Whole(frame) | Parsed::BadData(frame) => {
                assert!(frame.end >= BHS_BYTES && at + frame.end <= stream.len());
                let data = frame.data(&stream[at..]);
                assert!(data.len() <= framing.max_data_bytes);
                assert_eq!(Bhs::parse(frame.bhs.as_bytes()), Some(frame.bhs));
                at += frame.end;
            }
        }
    }
}

fn frame_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut stream = Vec::new();
    for (operation, len) in [(opcode::LOGIN_REQUEST, 5), (opcode::NOP_OUT, 0), (opcode::DATA_OUT, 8)] {
        let bhs =
            Bhs { opcode: operation | IMMEDIATE, flags: FINAL, data_len: U24::new(len), ..Bhs::default() };
        stream.extend_from_slice(bhs.as_bytes());
        stream.extend(std::iter::repeat_n(b'x', len + padding(len)));
    }
    let with = |mode: u8, stream: &[u8]| [&[mode], stream].concat();
    vec![
        ("plain", with(0xA0, &stream)),
        ("digests", with(0xA3, &stream)),
        ("short", with(0xA0, &stream[..60])),
    ]
}

fn keys(bytes: &[u8]) {
    let Ok(pairs) = text::parse(bytes) else { return };
    let mut again = Text::default();
    for (key, value) in &pairs {
        again.push(key, value);
    }
    if let Some((key, _)) = pairs.first() {
        assert!(again.value(key).is_some(), "{key:?} is lost");
    }
    let again = again.into_bytes();
    assert_eq!(text::parse(&again).as_deref(), Ok(&pairs[..]), "text changes when it is written again");
}

fn login_text() -> String {
    format!(
        "InitiatorName={INITIATOR_NAME}\0TargetName={TARGET_NAME}\0SessionType=Normal\0AuthMethod=None\0\
         HeaderDigest=CRC32C,None\0DataDigest=None,CRC32C\0MaxConnections=1\0InitialR2T=No\0ImmediateData=Yes\0\
         MaxRecvDataSegmentLength=65536\0MaxBurstLength=262144\0FirstBurstLength=65536\0MaxOutstandingR2T=4\0\
         DefaultTime2Wait=2\0DefaultTime2Retain=0\0ErrorRecoveryLevel=0\0DataPDUInOrder=Yes\0\
         DataSequenceInOrder=Yes\0"
    )
}

pub(crate) fn key_words() -> Vec<Vec<u8>> {
    let text = login_text();
    let keys = text.split('\0').filter(|pair| !pair.is_empty()).map(|pair| format!("{pair}\0").into_bytes());
    let more = [
        "CHAP_A=5\0",
        "CHAP_N=i\0",
        "CHAP_R=0x00\0",
        "AuthMethod=CHAP,None\0",
        "SendTargets=\0",
        "=Reject\0",
    ];
    keys.chain(more.iter().map(|word| word.as_bytes().to_vec())).collect()
}

/// The next login request of an input, with its text.
pub(crate) fn next_request<'a>(input: &mut Input<'a>) -> (LoginRequest, &'a [u8]) {
    let mut header: [u8; BHS_BYTES] = [0; BHS_BYTES];
    header[0] = opcode::LOGIN_REQUEST | IMMEDIATE;
    // Flags, versions and, rarely of use to it, the rest of the header.
    header[1..4].copy_from_slice(&input.array::<3>());
    header[8..16].copy_from_slice(&[0x80, 0, 0, 0, 0, 1, 0, 0]);
    let len = usize::from(input.u16());
    let data = input.take(len);
    let Ok(request) = LoginRequest::read_from_bytes(&header) else { unreachable!("it is as long as one") };
    (request, data)
}

/// A login request as [`next_request`] reads it.
pub(crate) fn login_request(flags: u8, text: &str) -> Vec<u8> {
    let len = (text.len() as u16).to_le_bytes();
    [&[flags, 0, 0], &len[..], text.as_bytes()].concat()
}

fn login(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut login = Login::new(Port { target_name: TARGET_NAME.into(), group: 1 });
    let mut sent = 0;
    while !input.is_empty() {
        let (request, data) = next_request(&mut input);
        let step = login.receive(&request, data);
        sent += 1;
        match step {
            Step::Respond(response, answer) => {
                assert_eq!(response.opcode, opcode::LOGIN_RESPONSE);
                assert!(answer.len() <= MAX_TEXT_BYTES && text::parse(&answer).is_ok());
                assert!(response.flags & FINAL == 0 || response.flags & CONTINUE == 0);
            }
            Step::Done(response, _, established) => {
                assert!(response.flags & FINAL != 0 && response.status_class == 0);
                assert!(!established.initiator.is_empty(), "somebody without a name is logged in");
                let params = &established.params;
                assert!(params.max_burst_bytes > 0 && params.max_send_data_bytes >= 512);
                assert!(params.unsolicited_bytes() as usize <= MAX_TEXT_BYTES * 16);
                return;
            }
            Step::Refuse(response, why) => {
                assert!(response.status_class != 0 && !why.is_empty());
                return;
            }
        }
        assert!(sent < 1000 || !input.is_empty());
    }
}

fn login_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let request = login_request;
    let all = login_text();
    let (names, operational) = all.split_at(all.find("HeaderDigest").unwrap_or(0));
    let (first, second) = names.split_at(20);
    let discovery = format!("InitiatorName={INITIATOR_NAME}\0SessionType=Discovery\0AuthMethod=None\0");
    vec![
        ("at_once", request(0x87, &all)),
        ("two_stages", [request(0x81, names), request(0x87, operational)].concat()),
        (
            "continued",
            [request(0x40, first), request(0x81, second), request(0x04, operational), request(0x87, "")]
                .concat(),
        ),
        ("discovery", request(0x87, &discovery)),
    ]
}
