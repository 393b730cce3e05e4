//! Blocks of every kind come back as they were, and stored bytes that are wrong do no harm.

use proptest::prelude::*;
use quoin_base::{Crc32c, crc32c};
use quoin_reduction::{Codec, Compressor, Decompressor, GRAIN_BYTES, most_compressed};

const CODECS: [Codec; 4] = [Codec::Lz4, Codec::Zstd(-1), Codec::Zstd(1), Codec::Zstd(3)];

/// Text, repeated content, records with counters, and random bytes, mixed.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let random = proptest::collection::vec(any::<u8>(), 0..2048);
    let run = (any::<u8>(), 0..3000usize).prop_map(|(byte, len)| vec![byte; len]);
    let records = (any::<u32>(), 0..200u32).prop_map(|(first, count)| {
        (0..count)
            .flat_map(|at| format!("{:010}|row {at}|          ", first.wrapping_add(at)).into_bytes())
            .collect()
    });
    proptest::collection::vec(prop_oneof![random, run, records], 0..6).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn what_is_compressed_comes_back(blocks in proptest::collection::vec(block(), 1..4)) {
        // One of each for all: what they keep of a block does not show in the next.
        let (mut compressor, mut decompressor, mut stored) = (Compressor::new(), Decompressor::new(), Vec::new());
        for codec in CODECS {
            for block in &blocks {
                if !compressor.compress(codec, block, &mut stored) {
                    continue;
                }
                prop_assert!(stored.len() <= most_compressed(block.len()));
                let mut back = vec![0xaa; block.len()];
                prop_assert_eq!(decompressor.decompress(codec, &stored, &mut back), Ok(()));
                prop_assert!(&back == block, "{}", codec);
            }
        }
    }

    #[test]
    fn what_is_packed_comes_back_with_its_checksum(block in block()) {
        let (mut compressor, mut decompressor, mut stored) = (Compressor::new(), Decompressor::new(), Vec::new());
        for codec in CODECS {
            let crc = crc32c(&block);
            if !compressor.pack(codec, &block, crc, &mut stored) {
                continue;
            }
            prop_assert!(stored.len().is_multiple_of(GRAIN_BYTES) && stored.len() <= most_compressed(block.len()));
            let mut back = vec![0xaa; block.len()];
            prop_assert_eq!(decompressor.unpack(codec, &stored, &mut back), Ok(crc));
            prop_assert!(back == block, "{}", codec);
            // The checksum that it came with decides, whatever was compressed.
            prop_assert!(compressor.pack(codec, &block, Crc32c(crc.0 ^ 1), &mut stored));
            prop_assert!(decompressor.unpack(codec, &stored, &mut back).is_err());
        }
    }

    #[test]
    fn no_changed_bit_of_what_is_packed_gives_other_content(block in block(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let (mut compressor, mut decompressor, mut stored) = (Compressor::new(), Decompressor::new(), Vec::new());
        for codec in CODECS {
            if !compressor.pack(codec, &block, crc32c(&block), &mut stored) {
                continue;
            }
            let at = at.index(stored.len());
            stored[at] ^= 1 << bit;
            let mut back = vec![0; block.len()];
            // Some bits mean nothing, such as those of the zeroes.
            if decompressor.unpack(codec, &stored, &mut back).is_ok() {
                prop_assert!(back == block, "{}", codec);
            }
        }
    }

    #[test]
    fn wrong_bytes_do_no_harm(stored in proptest::collection::vec(any::<u8>(), 0..4096), len in 0..9000usize) {
        let mut decompressor = Decompressor::new();
        for codec in CODECS {
            let mut block = vec![0; len];
            drop(decompressor.decompress(codec, &stored, &mut block));
            drop(decompressor.unpack(codec, &stored, &mut block));
        }
    }

    #[test]
    fn a_block_that_was_changed_or_cut_does_no_harm(block in block(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let (mut compressor, mut decompressor, mut stored) = (Compressor::new(), Decompressor::new(), Vec::new());
        for codec in CODECS {
            if !compressor.compress(codec, &block, &mut stored) {
                continue;
            }
            let mut back = vec![0; block.len()];
            let cut = at.index(stored.len());
            prop_assert!(decompressor.decompress(codec, &stored[..cut], &mut back).is_err(), "{}", codec);
            stored[cut] ^= 1 << bit;
            drop(decompressor.decompress(codec, &stored, &mut back));
            // Another length than it had is an error, never a part of it.
            stored[cut] ^= 1 << bit;
            let mut longer = vec![0; block.len() + 1];
            prop_assert!(decompressor.decompress(codec, &stored, &mut longer).is_err(), "{}", codec);
            let mut shorter = vec![0; block.len() - 1];
            prop_assert!(decompressor.decompress(codec, &stored, &mut shorter).is_err(), "{}", codec);
        }
    }
}

#[test]
fn random_bytes_are_no_gain_and_equal_bytes_are() {
    let (mut compressor, mut stored) = (Compressor::new(), Vec::new());
    // xorshift, which no codec sees through.
    let mut state = 88_172_645_463_325_252u64;
    let random: Vec<u8> = (0..8192)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    for codec in CODECS {
        assert!(!compressor.compress(codec, &random, &mut stored), "{codec}");
        assert!(compressor.compress(codec, &[7; 8192], &mut stored), "{codec}");
        assert!(stored.len() < 128, "{codec}: {}", stored.len());
        assert!(!compressor.compress(codec, &[], &mut stored), "{codec}");
        assert!(!compressor.compress(codec, &[1], &mut stored), "{codec}");
    }
}

#[test]
fn a_gain_is_a_sixteenth_at_least() {
    assert_eq!([0, 1, 16, 17, 8192].map(most_compressed), [0, 0, 15, 15, 8192 - 512]);
}
