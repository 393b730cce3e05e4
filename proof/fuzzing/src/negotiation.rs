//! NBD negotiation as a state machine.

use crate::{Target, input::Input};
use quoin_nbd::{
    TlsMode,
    handshake::{Agreed, Directory, Found, MAX_OPTION_BYTES, Negotiation, Offer, Progress, Step},
    wire::{
        EXPORT_NAME_PADDING_BYTES, ExportNameReply, OPTION_MAGIC, OptionHeader, OptionReply, option, reply,
    },
};
use zerocopy::{FromBytes, IntoBytes};

/// Options of a client.
pub(crate) const NEGOTIATION: Target = Target {
    name: "nbd_negotiation",
    about: "a byte of modes, the client's flags, then options: number, length of data, data; their magic goes before",
    run,
    seeds,
    words: || {
        let words: [&[u8]; 8] = [
            b"IHAVEOPT",
            b"v1",
            b"locked",
            b"base:allocation",
            b"base:",
            &[0, 0, 0, 2],
            &[0, 0, 0, 1],
            &[0, 3],
        ];
        words.map(<[u8]>::to_vec).to_vec()
    },
    mutations: 3000,
};

/// The lowest bits say which [`TlsMode`]; with this one the rest of the input is sent as it is.
const RAW: u8 = 0x04;

struct Exports;

impl Directory for Exports {
    type Export = ();

    fn names(&self) -> Vec<String> {
        vec!["v1".to_owned(), "v2".to_owned()]
    }

    fn find(&self, name: &str) -> Found<()> {
        let offer =
            |read_only| Offer { size_bytes: 1 << 30, block_bytes: 512, read_only, description: "v".into() };
        match name {
            "v1" => Found::Export(offer(false), ()),
            "v2" => Found::Export(offer(true), ()),
            "locked" => Found::NeedsCertificate,
            _ => Found::Nothing,
        }
    }
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.u8();
    let tls = [TlsMode::Off, TlsMode::Optional, TlsMode::Required, TlsMode::Off][usize::from(mode & 3)];
    let stream = if mode & RAW != 0 { input.rest().to_vec() } else { stream(&mut input) };
    let at_once = negotiate(tls, &stream, stream.len().max(1));
    assert_eq!(negotiate(tls, &stream, 7), at_once, "it matters how the bytes arrive");
}

fn stream(input: &mut Input<'_>) -> Vec<u8> {
    let mut stream = u32::from(input.u8()).to_be_bytes().to_vec();
    while !input.is_empty() {
        let number = input.u8();
        let len = usize::from(input.u16());
        let data = input.take(len);
        let (option, data_bytes) = (u32::from(number).into(), (data.len() as u32).into());
        stream.extend_from_slice(OptionHeader { magic: OPTION_MAGIC.into(), option, data_bytes }.as_bytes());
        stream.extend_from_slice(data);
    }
    stream
}

/// Everything it answers to `bytes` that arrive `piece` at a time.
fn negotiate(tls: TlsMode, bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut negotiation = Negotiation::new(tls);
    let (mut start, mut end, mut out) = (0, 0, Vec::new());
    let (mut encrypted, mut structured, mut option) = (false, false, None);
    loop {
        let answered = out.len();
        let Ok(progress) = negotiation.receive(&bytes[start..end], &Exports, &mut out) else { return out };
        let (len, step) = match progress {
            Progress::Need(needed) => {
                assert_eq!(out.len(), answered, "it answers what it has not seen the end of");
                assert!(needed > end - start && needed <= MAX_OPTION_BYTES + OptionHeader::BYTES);
                if end == bytes.len() {
                    return out;
                }
                end = (end + piece).min(bytes.len());
                continue;
            }
            Progress::Took(len, step) => (len, step),
        };
        assert!(len > 0 && start + len <= end);
        if start > 0 {
            option = OptionHeader::parse(&bytes[start..end]).ok().flatten().map(|header| header.option.get());
        }
        start += len;
        let may_tell = tls != TlsMode::Required || encrypted;
        let kinds = match (&step, option) {
            (Step::Serve(_), Some(option::EXPORT_NAME)) => {
                let answer = out.len() - answered;
                let padding = answer - ExportNameReply::BYTES;
                assert!(padding == 0 || padding == EXPORT_NAME_PADDING_BYTES);
                Vec::new()
            }
            _ => reply_kinds(&out[answered..], option),
        };
        let told = kinds.iter().any(|kind| [reply::SERVER, reply::INFO, reply::META_CONTEXT].contains(kind));
        assert!(may_tell || !told, "it tells something before TLS, which it requires");
        structured |= option == Some(option::STRUCTURED_REPLY) && kinds == [reply::ACK];
        match step {
            Step::Next => {}
            Step::Abort => return out,
            Step::StartTls => {
                assert!(tls != TlsMode::Off && !encrypted && kinds == [reply::ACK]);
                negotiation.encrypted();
                (encrypted, structured) = (true, false);
            }
            Step::Serve(Agreed { structured: agreed, allocation, .. }) => {
                assert!(may_tell, "an export is served without TLS, which is required");
                assert_eq!(
                    agreed, structured,
                    "what was agreed on before TLS counts, or what was after does not"
                );
                assert!(agreed || !allocation);
                return out;
            }
        }
    }
}

/// The kinds of the replies that `bytes` are.
fn reply_kinds(mut bytes: &[u8], option: Option<u32>) -> Vec<u32> {
    let mut kinds = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = OptionReply::read_from_prefix(bytes).expect("replies have headers");
        assert_eq!(Some(header.option.get()), option, "a reply to another option");
        kinds.push(header.kind.get());
        bytes = &rest[header.data_bytes.get() as usize..];
    }
    assert!(option.is_none() || !kinds.is_empty(), "no reply to option {option:?}");
    kinds
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let counted = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let one =
        |number: u32, data: &[u8]| [&[number as u8][..], &(data.len() as u16).to_le_bytes(), data].concat();
    let info = |number: u32, name: &str, kinds: &[u16]| {
        let kinds: Vec<u8> =
            [kinds.len() as u16].iter().chain(kinds).flat_map(|kind| kind.to_be_bytes()).collect();
        one(number, &[counted(name), kinds].concat())
    };
    let context = |number: u32, name: &str, queries: &[&str]| {
        let queries: Vec<u8> = queries.iter().flat_map(|query| counted(query)).collect();
        let count = (queries.len() as u32).min(1).to_be_bytes().to_vec();
        one(number, &[counted(name), count, queries].concat())
    };
    let with = |mode: u8, flags: u8, options: &[Vec<u8>]| [&[mode, flags][..], &options.concat()].concat();
    let structured = one(option::STRUCTURED_REPLY, &[]);
    let set = context(option::SET_META_CONTEXT, "v1", &["base:allocation"]);
    let go = info(option::GO, "v1", &[3]);
    let tls = one(option::STARTTLS, &[]);
    vec![
        ("go", with(0, 3, &[structured.clone(), set.clone(), go.clone()])),
        ("export_name", with(0, 3, &[one(option::EXPORT_NAME, b"v1")])),
        ("export_name_padded", with(0, 1, &[structured.clone(), one(option::EXPORT_NAME, b"v2")])),
        ("not_fixed", with(0, 0, &[one(option::EXPORT_NAME, b"v1")])),
        ("list_abort", with(0, 3, &[one(option::LIST, &[]), one(option::ABORT, &[])])),
        ("info", with(0, 3, &[info(option::INFO, "v2", &[0, 1, 2, 3]), info(option::INFO, "locked", &[])])),
        ("contexts", with(0, 3, &[structured.clone(), context(option::LIST_META_CONTEXT, "v1", &[])])),
        ("unknown", with(0, 3, &[one(77, b"x"), one(4, &[])])),
        ("tls", with(1, 3, &[structured.clone(), tls.clone(), structured, set, go.clone()])),
        ("tls_forgets", with(2, 3, &[go.clone(), tls.clone(), go.clone()])),
        ("tls_twice", with(2, 3, &[tls.clone(), tls, go])),
        ("raw", [&[RAW][..], &3u32.to_be_bytes(), b"IHAVEOPT", &2u32.to_be_bytes(), &[0; 4]].concat()),
    ]
}
