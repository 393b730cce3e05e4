//! How blocks are stored: as they are, or packed by a codec.
//!
//! 1. What is stored has a checksum in the block table. Whoever moves or repairs it needs no more than that.
//! 2. The content has one of its own: of a plain block it is the same, a packed one has it in its last bytes. It goes unchanged from
//!    the receipt of a write to whoever reads it.

use crate::{
    bugs::{Bug, planted},
    format::BlockInfo,
};
use quoin_base::{Compression, Crc32c, crc32c};
use quoin_reduction::{Codec, Compressor, Decompressor};
use quoin_world::{Buf, Slice as Bytes};
use std::cell::RefCell;

/// Level of Zstandard.
const ZSTD_LEVEL: i8 = 1;

/// A whole block's content and its checksum.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub data: Bytes,
    pub crc: u32,
}

/// A block as it is stored packed.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub stored: Bytes,
    /// Of what is stored.
    pub crc: u32,
    pub algorithm: u8,
}

/// What codecs of a thread keep from block to block: nothing that matters to the next one.
#[derive(Default)]
struct Codecs {
    compressor: Compressor,
    decompressor: Decompressor,
    out: Vec<u8>,
}

thread_local! {
    static CODECS: RefCell<Codecs> = RefCell::default();
}

/// The codec that packs what hosts write, or what the cleaner writes again; `None`: none does.
pub(crate) fn codec_of(compression: Compression, is_again: bool) -> Option<Codec> {
    match compression {
        Compression::Off => None,
        Compression::Zstd if is_again => Some(Codec::Zstd(ZSTD_LEVEL)),
        Compression::Lz4 | Compression::Zstd => Some(Codec::Lz4),
    }
}

/// How the block table calls what a codec packed.
pub(crate) fn algorithm_of(codec: Codec) -> u8 {
    match codec {
        Codec::Lz4 => BlockInfo::LZ4,
        Codec::Zstd(_) => BlockInfo::ZSTD,
    }
}

/// Packs blocks, each by a codec, into one buffer. In their order; `None` for what is better stored as it is.
pub(crate) fn pack<'a>(blocks: impl Iterator<Item = (Codec, &'a Whole)>) -> Vec<Option<Packed>> {
    let mut all = Vec::new();
    let places: Vec<_> = CODECS.with_borrow_mut(|Codecs { compressor, out, .. }| {
        let mut pack = |(codec, Whole { data, crc }): (Codec, &Whole)| {
            let is_shorter = compressor.pack(codec, data, Crc32c(checksum_to_pack(*crc)), out);
            is_shorter.then(|| {
                let from = all.len();
                all.extend_from_slice(out);
                (from..all.len(), algorithm_of(codec))
            })
        };
        blocks.map(&mut pack).collect()
    });
    let all = Buf::copy_of(&all).into_slice();
    let packed = |(range, algorithm)| {
        let stored = all.slice(range);
        Packed { crc: crc32c(&stored).0, stored, algorithm }
    };
    places.into_iter().map(|place| place.map(packed)).collect()
}

/// The checksum of a content. With the bug, another.
fn checksum_to_pack(crc: u32) -> u32 {
    if planted(Bug::PackNextChecksum) && crc.is_multiple_of(16) { !crc } else { crc }
}

/// The content of a block of so many bytes that is stored so; `None` if that is not what was stored.
pub(crate) fn content_of(
    info: BlockInfo,
    stored: Bytes,
    block_bytes: u64,
    is_checked: bool,
) -> Option<Whole> {
    if is_checked && !info.verifies(&stored) {
        return None;
    }
    let codec = match info.algorithm() {
        BlockInfo::PLAIN => return Some(Whole { data: stored, crc: info.crc() }),
        BlockInfo::LZ4 => Codec::Lz4,
        BlockInfo::ZSTD => Codec::Zstd(ZSTD_LEVEL),
        _ => return None,
    };
    let mut content = Buf::unfilled(block_bytes as usize);
    let unpacked =
        CODECS.with_borrow_mut(|codecs| codecs.decompressor.unpack(codec, &stored, content.as_mut_slice()));
    match unpacked {
        Ok(Crc32c(crc)) => Some(Whole { data: content.into_slice(), crc }),
        Err(error) => {
            tracing::error!(%error, "a block whose stored bytes verify does not unpack to what it was");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::References;

    #[test]
    fn what_is_packed_unpacks_to_what_it_was_and_what_is_changed_does_not() {
        let text: Vec<u8> = (0..8192u32).map(|i| b"what hosts write "[i as usize % 17]).collect();
        let data = Buf::copy_of(&text).into_slice();
        let whole = Whole { crc: crc32c(&data).0, data };
        for codec in [Codec::Lz4, Codec::Zstd(ZSTD_LEVEL)] {
            let packed = pack([(codec, &whole)].into_iter()).pop().flatten().unwrap();
            let info = BlockInfo::new(packed.crc, References::Count(3), packed.algorithm);
            let content = content_of(info, packed.stored.clone(), 8192, true).unwrap();
            assert_eq!((&content.data[..], content.crc), (&text[..], whole.crc));
            let mut wrong = Buf::copy_of(&packed.stored);
            wrong.as_mut_slice()[20] ^= 1;
            let wrong = wrong.into_slice();
            assert!(content_of(info, wrong.clone(), 8192, true).is_none());
            // The content has a checksum of its own.
            assert!(
                content_of(info.stored_as(crc32c(&wrong).0, info.algorithm()), wrong, 8192, true).is_none()
            );
            assert!(
                content_of(info.stored_as(info.crc(), BlockInfo::LOST), packed.stored, 8192, true).is_none()
            );
        }
    }

    #[test]
    fn what_does_not_get_shorter_is_not_packed() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        let data = Buf::copy_of(&Vec::from_iter((0..8192).map(|_| random()))).into_slice();
        let whole = Whole { crc: crc32c(&data).0, data };
        let packed = pack([(Codec::Lz4, &whole), (Codec::Zstd(1), &whole)].into_iter());
        assert!(packed.iter().all(Option::is_none));
    }
}
