//! Any bytes: what is parsed is parsed, what is not is refused, and nothing panics.

use proptest::prelude::*;
use quoin_nbd::{
    TlsMode,
    handshake::{Directory, Found, MAX_OPTION_BYTES, Negotiation, Offer, Progress, Step},
    operation::{Operation, Terms},
    wire::{OptionReply, Request},
};
use zerocopy::{FromBytes, IntoBytes};

struct Exports;

impl Directory for Exports {
    type Export = ();

    fn names(&self) -> Vec<String> {
        vec!["v1".to_owned()]
    }

    fn find(&self, name: &str) -> Found<()> {
        let offer =
            Offer { size_bytes: 1 << 30, block_bytes: 512, read_only: false, description: String::new() };
        match name {
            "v1" => Found::Export(offer, ()),
            "secret" => Found::NeedsCertificate,
            _ => Found::Nothing,
        }
    }
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("v1".to_owned()), Just("secret".to_owned()), "[a-z]{0,4}"];
    let counted = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let info = (name.clone(), prop::collection::vec(0u16..5, 0..4)).prop_map(move |(name, kinds)| {
        let kinds: Vec<u8> =
            [kinds.len() as u16].iter().chain(&kinds).flat_map(|k| k.to_be_bytes()).collect();
        [counted(&name), kinds].concat()
    });
    let query = prop_oneof![Just("base:allocation"), Just("base:"), Just("x:y")];
    let context = (name, prop::collection::vec(query, 0..3)).prop_map(move |(name, queries)| {
        let count = (queries.len() as u32).to_be_bytes().to_vec();
        let queries = queries.into_iter().flat_map(counted).collect();
        [counted(&name), count, queries].concat()
    });
    let data = prop_oneof![info, context, prop::collection::vec(any::<u8>(), 0..40), Just(Vec::new())];
    let damage = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (0u32..12, data, damage).prop_map(|(number, data, damage)| {
        let header = [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        let mut bytes = [header, data].concat();
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

/// Everything a negotiation answers to `bytes` that arrive `piece` at a time, and whether it went on to the end.
fn answers(tls: TlsMode, bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut negotiation = Negotiation::new(tls);
    let (mut start, mut end, mut out) = (0, 0, Vec::new());
    loop {
        match negotiation.receive(&bytes[start..end], &Exports, &mut out) {
            Err(_) => return (out, false),
            Ok(Progress::Need(needed)) => {
                assert!(needed > end - start && needed <= MAX_OPTION_BYTES + 16);
                if end == bytes.len() {
                    return (out, true);
                }
                end = (end + piece).min(bytes.len());
            }
            Ok(Progress::Took(len, step)) => {
                assert!(len > 0 && start + len <= end);
                start += len;
                match step {
                    Step::Next => {}
                    Step::StartTls => negotiation.encrypted(),
                    Step::Serve(agreed) => {
                        assert!(agreed.structured || !agreed.allocation);
                        return (out, true);
                    }
                    Step::Abort => return (out, true),
                }
            }
        }
    }
}

fn mode() -> impl Strategy<Value = TlsMode> {
    prop_oneof![Just(TlsMode::Off), Just(TlsMode::Optional), Just(TlsMode::Required)]
}

proptest! {
    #[test]
    fn any_bytes_are_negotiated_or_refused(tls in mode(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        answers(tls, &bytes, 7);
    }

    #[test]
    fn it_does_not_matter_how_options_arrive(
        tls in mode(),
        flags in 0u32..4,
        options in prop::collection::vec(option(), 0..8),
        piece in 1usize..50,
    ) {
        let bytes = [flags.to_be_bytes().to_vec(), options.concat()].concat();
        let at_once = answers(tls, &bytes, bytes.len());
        prop_assert_eq!(&answers(tls, &bytes, piece), &at_once);
        // Where TLS is required and does not come, nothing but that is said.
        let asks_for_tls = options.iter().any(|option| option.get(11) == Some(&5));
        if tls == TlsMode::Required && !asks_for_tls && flags & 1 == 1 {
            let mut rest = &at_once.0[..];
            while let Ok((header, tail)) = OptionReply::read_from_prefix(rest) {
                prop_assert!([1, 0x8000_0005].contains(&header.kind.get()), "{:?}", header);
                rest = &tail[header.data_bytes.get() as usize..];
            }
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_request_is_what_its_terms_allow(
        bytes in prop::array::uniform28(any::<u8>()),
        kind in 0u16..10,
        flags in 0u16..64,
        offset in prop_oneof![0u64..1 << 31, any::<u64>()],
        len in prop_oneof![0u32..1 << 17, any::<u32>()],
        switches in any::<[bool; 4]>(),
    ) {
        let [read_only, structured, allocation, constrained] = switches;
        let terms = Terms { size_bytes: 1 << 30, block_bytes: 512, read_only, structured, allocation, constrained };
        let mut random = Request::read_from_bytes(&bytes).unwrap();
        let _ = Operation::of(&random, &terms);
        prop_assert_eq!(Request::parse(&bytes).is_err(), random.magic.get() != 0x2560_9513);
        (random.kind, random.flags) = (kind.into(), flags.into());
        (random.offset, random.len_bytes) = (offset.into(), len.into());
        random.magic = 0x2560_9513.into();
        prop_assert_eq!(Request::parse(random.as_bytes()), Ok(Some(random)));
        prop_assert_eq!(Request::parse(&random.as_bytes()[..27]), Ok(None));
        let range = match Operation::of(&random, &terms) {
            Ok(Operation::Write(range) | Operation::Trim(range) | Operation::WriteZeroes(range)) => {
                prop_assert!(!read_only);
                range
            }
            Ok(Operation::Read { range, .. } | Operation::Cache(range)) => range,
            Ok(Operation::BlockStatus { range, .. }) => {
                prop_assert!(allocation && !range.is_empty());
                range
            }
            Ok(Operation::Flush | Operation::Disconnect) => return Ok(()),
            Err(failure) => {
                prop_assert!(!failure.message.is_empty());
                return Ok(());
            }
        };
        prop_assert!(range.end() <= terms.size_bytes && range.offset == offset && range.len == u64::from(len));
        prop_assert!(!constrained || range.is_aligned(512));
    }
}
