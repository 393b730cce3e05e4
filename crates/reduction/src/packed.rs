//! A block as it is stored compressed: byte-tight but for a few bytes, and with the checksum of its content.
//!
//! ```text
//! compressed bytes | zeroes | CRC-32C of the content, 4 bytes little-endian | how many zeroes, 1 byte
//! ```
//!
//! 1. The length is a multiple of [`GRAIN_BYTES`], which is how finely a place in a row can be named, and at least
//!    [`LEAST_PACKED_BYTES`]: what names a block takes space, too, and with more blocks in it a row would be names for the most part.
//! 2. The checksum is the one that the content was received with. It goes through compression and back unchanged, so that an error
//!    of either, or of the RAM in between, is found. What is stored has a checksum of its own, in the block table: whoever moves or
//!    repairs it needs not decompress it.

use crate::{Codec, Compressor, Decompressor, NotDecompressed, most_compressed};
use quoin_base::{Crc32c, crc32c};

/// Stored blocks begin at multiples of this, and are as long as multiples of it.
pub const GRAIN_BYTES: usize = 16;
/// The least that a block takes.
pub const LEAST_PACKED_BYTES: usize = 256;
/// Checksum and count of zeroes.
const TRAILER_BYTES: usize = 5;

impl Compressor {
    /// Has `out` hold a block as it is stored compressed. `crc` is that of its content. False, and `out` is as it may be: it is
    /// better stored as it is.
    pub fn pack(&mut self, codec: Codec, block: &[u8], crc: Crc32c, out: &mut Vec<u8>) -> bool {
        if !self.compress(codec, block, out) {
            return false;
        }
        let len = (out.len() + TRAILER_BYTES).max(LEAST_PACKED_BYTES).next_multiple_of(GRAIN_BYTES);
        if len > most_compressed(block.len()) {
            return false;
        }
        let zeroes = len - TRAILER_BYTES - out.len();
        out.resize(len - TRAILER_BYTES, 0);
        out.extend_from_slice(&crc.0.to_le_bytes());
        out.push(zeroes as u8);
        true
    }
}

impl Decompressor {
    /// Fills `block` with the content of what was packed to `stored`, and returns its checksum.
    ///
    /// # Errors
    /// If these bytes were not packed from a block of this length, or its content is not what it was.
    pub fn unpack(
        &mut self,
        codec: Codec,
        stored: &[u8],
        block: &mut [u8],
    ) -> Result<Crc32c, NotDecompressed> {
        let wrong = || NotDecompressed::new(codec, stored.len(), block.len());
        let Some((rest, [c0, c1, c2, c3, zeroes])) = stored.split_last_chunk() else { return Err(wrong()) };
        let zeroes = usize::from(*zeroes);
        let len = rest.len().checked_sub(zeroes);
        let compressed = len.and_then(|len| rest.get(..len)).ok_or_else(wrong)?;
        self.decompress(codec, compressed, block)?;
        let crc = Crc32c(u32::from_le_bytes([*c0, *c1, *c2, *c3]));
        if crc32c(block) == crc {
            Ok(crc)
        } else {
            Err(NotDecompressed::new(codec, stored.len(), block.len()))
        }
    }
}
