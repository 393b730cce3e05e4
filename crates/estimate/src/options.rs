//! What is to be estimated.

use quoin_base::Layout;
use quoin_reduction::Codec;

/// What is to be estimated.
#[derive(Clone, Debug)]
pub struct EstimateOptions {
    /// Bytes of a block: powers of two from 4 to 64 KiB.
    pub block_bytes: Vec<u32>,
    /// Codecs, besides none.
    pub codecs: Vec<Codec>,
    /// Layouts of drives.
    pub layouts: Vec<Layout>,
    /// Of what is to be read, so much is read: 1 for all of it.
    pub sample: f64,
    /// Threads that read, hash and compress.
    pub threads: usize,
    /// The most fingerprints of each block size that are kept, and about the most blocks that are compressed for it.
    pub most_kept: usize,
}

impl EstimateOptions {
    /// The largest block.
    pub const MOST_BLOCK_BYTES: u32 = 64 << 10;
    /// The smallest block.
    pub const LEAST_BLOCK_BYTES: u32 = 4 << 10;

    /// Whether blocks of so many bytes can be estimated.
    pub fn is_block(bytes: u64) -> bool {
        bytes.is_power_of_two()
            && (u64::from(Self::LEAST_BLOCK_BYTES)..=u64::from(Self::MOST_BLOCK_BYTES)).contains(&bytes)
    }
}

impl Default for EstimateOptions {
    fn default() -> Self {
        let layout = |columns| Layout::of_columns(columns).into_iter();
        Self {
            block_bytes: vec![4 << 10, 8 << 10, 16 << 10, 32 << 10],
            codecs: vec![Codec::Lz4, Codec::Zstd(1), Codec::Zstd(3)],
            layouts: [(1, 0), (1, 1), (1, 2), (3, 1), (4, 2), (8, 2)].into_iter().flat_map(layout).collect(),
            sample: 1.0,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            most_kept: 1 << 18,
        }
    }
}
