//! Packing what is moved: what was stored in haste, before its volume was compressed, or by a lighter codec.
//!
//! 1. Only the committer changes how a block is stored, and in the same step in which it moves it: what the block table says of a
//!    place and of what is stored there changes together.
//! 2. What does not verify is moved as it is, with its checksum.

use crate::{
    commit::{committer::Committer, gather::LiveBlock},
    error::PoolError,
    format::BlockInfo,
    segment::packed::{Packed, algorithm_of, codec_of, content_of, pack},
};
use quoin_base::{Compression, LayerId};
use quoin_reduction::Codec;
use quoin_world::{Slice as Bytes, offload};
use std::collections::BTreeMap;

/// Blocks that a worker packs one after the other.
const CHUNK_BLOCKS: usize = 32;

/// A block that may become shorter.
struct Candidate {
    /// Its place among those that are moved.
    at: usize,
    info: BlockInfo,
    stored: Bytes,
    codec: Codec,
}

impl Candidate {
    /// The block packed, if that is shorter than it is now.
    fn pack(&self, block_bytes: u64) -> Option<Packed> {
        let whole = content_of(self.info, self.stored.clone(), block_bytes, true)?;
        let packed = pack([(self.codec, &whole)].into_iter()).pop().flatten();
        packed.filter(|packed| packed.stored.len() < self.stored.len())
    }
}

impl Committer {
    /// Packs blocks that are to be moved as their volumes want it, where that makes them shorter.
    pub(super) async fn repack(&self, blocks: &mut [LiveBlock]) -> Result<(), PoolError> {
        let slice = &self.slice;
        let mut candidates = self.to_repack(blocks);
        let block_bytes = slice.buffer.block_bytes;
        let mut chunks = Vec::new();
        while !candidates.is_empty() {
            let rest = candidates.split_off(candidates.len().min(CHUNK_BLOCKS));
            let chunk = std::mem::replace(&mut candidates, rest);
            // Hosts that wait for slabs come first.
            if self.effort().lock().packs() {
                chunks.push(offload(slice.world(), move || {
                    let packed = |candidate: &Candidate| (candidate.at, candidate.pack(block_bytes));
                    chunk.iter().map(packed).collect::<Vec<_>>()
                }));
            }
        }
        for chunk in chunks {
            let packed = chunk.await.ok_or_else(|| slice.store.health().error())?;
            for (at, packed) in packed {
                let Some(Packed { stored, crc, algorithm }) = packed else { continue };
                blocks[at].becomes = blocks[at].place.info.stored_as(crc, algorithm);
                blocks[at].stored = Some(stored);
                slice.counters.destage.reduction.recompressed_blocks.add(1);
            }
        }
        Ok(())
    }

    /// The blocks of compressed volumes that are not stored by the codec that is wanted.
    fn to_repack(&self, blocks: &[LiveBlock]) -> Vec<Candidate> {
        let layers = self.slice.forks.read();
        let mut wanted: BTreeMap<LayerId, Compression> = BTreeMap::new();
        let mut candidates = Vec::new();
        for (at, block) in blocks.iter().enumerate() {
            let Some(stored) = &block.stored else { continue };
            let compression = *wanted.entry(block.address.layer).or_insert_with(|| {
                let owner = layers.all.get(&layers.owner(block.address.layer));
                owner.map_or(Compression::Off, |owner| owner.volume.compression())
            });
            let Some(codec) = codec_of(compression, true) else { continue };
            // What Zstandard packed stays so.
            let info = block.place.info;
            if !info.is_lost() && info.algorithm() < algorithm_of(codec) {
                candidates.push(Candidate { at, info, stored: stored.clone(), codec });
            }
        }
        candidates
    }
}
