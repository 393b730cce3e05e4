//! Reduction of one block of data: whether it is all zeroes, which other block it equals, and how short it can be stored.
//!
//! Pure functions of bytes, and an [`Index`] in RAM: no files, no threads. What a block becomes and where it goes is decided
//! elsewhere.

mod codec;
mod fingerprint;
mod index;
mod packed;
mod zero;

pub use codec::{Codec, Compressor, Decompressor, NoCodec, NotDecompressed, most_compressed};
pub use fingerprint::{Fingerprint, FingerprintKey};
pub use index::Index;
pub use packed::{GRAIN_BYTES, LEAST_PACKED_BYTES};
pub use zero::is_zero;
