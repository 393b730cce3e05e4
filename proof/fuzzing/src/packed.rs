//! A compressed block as a drive may return it, and any block compressed and read back.

use crate::{Target, input::Input};
use quoin_base::{Crc32c, crc32c};
use quoin_reduction::{Codec, Compressor, Decompressor, GRAIN_BYTES, LEAST_PACKED_BYTES};

const BLOCK_BYTES: usize = 8192;
const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd(1)];
/// The last bytes of what is stored: checksum of the content, count of zeroes.
const TRAILER_BYTES: usize = 5;

/// Blocks, packed and not.
pub(crate) const PACKED: Target = Target {
    name: "packed_block",
    about: "a byte of modes, then a block as it is stored compressed, whose checksum is mended, or one to pack, damage, and unpack",
    run,
    seeds,
    words: || vec![vec![0xFF; 15], vec![0x1F, 0, 1, 0], vec![0xF0], vec![0; 8]],
    mutations: 3000,
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.u8();
    let codec = CODECS[usize::from(mode & 1)];
    if mode & 2 == 0 { unpack(codec, mode & 4 == 0, input.rest()) } else { pack(codec, &mut input) }
}

/// Bytes of a drive: they unpack to a block that has the checksum they tell, or to nothing.
fn unpack(codec: Codec, is_mended: bool, stored: &[u8]) {
    let (mut stored, mut block) = (stored.to_vec(), vec![0xA5; BLOCK_BYTES]);
    let mut decompressor = Decompressor::new();
    if let Some(at) = stored.len().checked_sub(TRAILER_BYTES).filter(|_| is_mended) {
        let zeroes = usize::from(stored[at + 4]);
        let compressed = &stored[..at.saturating_sub(zeroes)];
        if decompressor.decompress(codec, compressed, &mut block).is_ok() {
            let Crc32c(crc) = crc32c(&block);
            stored[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        }
    }
    if let Ok(told) = decompressor.unpack(codec, &stored, &mut block) {
        assert_eq!(told, crc32c(&block));
    }
}

/// A block comes back as it was, and not at all once a bit of what is stored is another; neither is one taken for another block's.
fn pack(codec: Codec, input: &mut Input<'_>) {
    let (flipped, repeated) = (usize::from(input.u16()), usize::from(input.u8()) + 1);
    let piece = input.rest();
    let mut block: Vec<u8> = piece.iter().copied().cycle().take(piece.len() * repeated).collect();
    block.resize(BLOCK_BYTES, 0);
    let (crc, mut stored, mut back) = (crc32c(&block), Vec::new(), vec![0xA5; BLOCK_BYTES]);
    if !Compressor::new().pack(codec, &block, crc, &mut stored) {
        return;
    }
    assert!(stored.len().is_multiple_of(GRAIN_BYTES) && stored.len() >= LEAST_PACKED_BYTES);
    let mut decompressor = Decompressor::new();
    assert_eq!(decompressor.unpack(codec, &stored, &mut back), Ok(crc));
    assert!(back == block, "{codec} returns another block");
    let bit = flipped % (8 * stored.len());
    stored[bit / 8] ^= 1 << (bit % 8);
    // What the codec never reads may be another: the block is the same then.
    if decompressor.unpack(codec, &stored, &mut back).is_ok() {
        assert!(back == block, "{codec} returns another block for a changed one");
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let row = b"Once more: rows of a table are alike, and so are words of a text. ";
    let block: Vec<u8> = row.iter().copied().cycle().take(BLOCK_BYTES).collect();
    let stored = |mode: u8| {
        let mut stored = Vec::new();
        let codec = CODECS[usize::from(mode & 1)];
        assert!(Compressor::new().pack(codec, &block, crc32c(&block), &mut stored));
        [&[mode][..], &stored].concat()
    };
    vec![
        ("lz4", stored(0)),
        ("zstd", stored(1)),
        ("lz4_as_it_is", stored(4)),
        ("zstd_as_it_is", stored(5)),
        ("to_pack_by_lz4", [&[2, 9, 1, 120][..], row].concat()),
        ("to_pack_by_zstd", [&[3, 9, 1, 120][..], row].concat()),
    ]
}
