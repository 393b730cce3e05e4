//! Composing on workers: blocks that are whole in RAM are verified and packed in chunks, beside the committer.
//!
//! 1. A chunk is composed once: by a worker, or by the committer if no worker has begun it when the committer
//!    wants it.
//! 2. Composing a chunk uses nothing but the chunk: no lock of the engine, no drive, no state that changes.
//! 3. A block is packed after it was verified, and with the checksum that it was verified by.

use crate::{
    buffer::{Content, TakenBlock},
    commit::effort::Effort,
    commit::{
        compose::whole,
        composed::{Composed, Composition, Form},
    },
    error::PoolError,
    fork::layer::Layer,
    segment::packed::{codec_of, pack},
    store::health::Health,
};
use quoin_world::{Mutex, OneShot, World, offload};
use std::sync::Arc;

/// Blocks of a chunk: with 8 KiB each a tenth of a millisecond of work or two, several times what it takes to wake a worker.
const CHUNK_BLOCKS: usize = 256;
/// The same of blocks that are packed.
const PACKED_CHUNK_BLOCKS: usize = 32;

/// A block that one write brought whole and that is in RAM.
pub(super) struct RamBlock {
    /// Its place in the batch.
    pub at: usize,
    pub taken: TakenBlock,
    pub layer: Arc<Layer>,
}

/// A composed block, or the block as it was taken, if what RAM holds does not match the checksum of its receipt.
pub(super) type Outcome = Result<Composed, TakenBlock>;

/// Blocks that are given to a worker, and outcomes by place in the batch.
pub(super) struct Chunk {
    blocks: Arc<Mutex<Option<Vec<RamBlock>>>>,
    packs: bool,
    composed: OneShot<Option<Vec<(usize, Outcome)>>>,
}

/// Gives blocks to workers. Returns the blocks if they are too few or there is no worker.
pub(super) fn send(
    world: &dyn World,
    mut blocks: Vec<RamBlock>,
    sectors: u16,
    effort: &Mutex<Effort>,
) -> Result<Vec<Chunk>, Vec<RamBlock>> {
    let is_any_packed =
        blocks.iter().any(|block| codec_of(block.layer.volume.compression(), false).is_some());
    let chunk_blocks = if is_any_packed { PACKED_CHUNK_BLOCKS } else { CHUNK_BLOCKS };
    if blocks.len() < chunk_blocks || world.workers() == 0 {
        return Err(blocks);
    }
    let mut chunks = Vec::with_capacity(blocks.len() / chunk_blocks + 1);
    while !blocks.is_empty() {
        let rest = blocks.split_off(blocks.len().min(chunk_blocks));
        let blocks = Arc::new(Mutex::new(Some(std::mem::replace(&mut blocks, rest))));
        let (given, packs) = (blocks.clone(), !is_any_packed || effort.lock().packs());
        let composed = offload(world, move || {
            // NOTE: the lock is not held meanwhile.
            let blocks = given.lock().take();
            blocks.map(|blocks| compose(blocks, sectors, packs))
        });
        chunks.push(Chunk { blocks, packs, composed });
    }
    Ok(chunks)
}

/// Composes a block at once.
pub(super) fn compose_one(block: RamBlock, sectors: u16) -> Outcome {
    let RamBlock { taken, layer, .. } = block;
    let content = match taken.fragments.as_slice() {
        [fragment] => match &fragment.content {
            Content::Ram(received) => whole(received, sectors),
            Content::Zero | Content::Journal(_) | Content::Placed(_) | Content::Shared(_) => None,
        },
        _ => None,
    };
    match content {
        Some(Some(whole)) => {
            Ok(Composed { taken, layer: Some(layer), content: Composition::Data(whole, Form::Untried) })
        }
        Some(None) => Ok(Composed { taken, layer: Some(layer), content: Composition::Unmapped }),
        None => Err(taken),
    }
}

fn compose(blocks: Vec<RamBlock>, sectors: u16, packs: bool) -> Vec<(usize, Outcome)> {
    let mut composed: Vec<_> =
        blocks.into_iter().map(|block| (block.at, compose_one(block, sectors))).collect();
    pack_all(composed.iter_mut().filter_map(|(_, block)| block.as_mut().ok()), packs);
    composed
}

/// Packs the blocks that are to be. `packs`: there is time for it.
pub(super) fn pack_all<'a>(blocks: impl Iterator<Item = &'a mut Composed>, packs: bool) {
    let mut to_pack = Vec::new();
    for block in blocks {
        let Some(codec) = block.codec() else { continue };
        let Composition::Data(whole, form) = &mut block.content else { continue };
        if packs {
            to_pack.push((codec, &*whole, form));
        } else {
            *form = Form::Hasty;
        }
    }
    let packed = pack(to_pack.iter().map(|(codec, whole, _)| (*codec, *whole)));
    for ((_, _, form), packed) in to_pack.into_iter().zip(packed) {
        *form = packed.map_or(Form::Incompressible, Form::Packed);
    }
}

/// Packs blocks on workers, some at a time. In their order.
pub(super) async fn pack_beside(
    world: &dyn World,
    mut blocks: Vec<Composed>,
    effort: &Mutex<Effort>,
    health: &Health,
) -> Result<Vec<Composed>, PoolError> {
    let mut chunks = Vec::new();
    while !blocks.is_empty() {
        let rest = blocks.split_off(blocks.len().min(PACKED_CHUNK_BLOCKS));
        let (mut chunk, packs) = (std::mem::replace(&mut blocks, rest), effort.lock().packs());
        // Where there is no worker, this is done here.
        chunks.push(offload(world, move || {
            pack_all(chunk.iter_mut(), packs);
            chunk
        }));
    }
    let mut packed = Vec::new();
    for chunk in chunks {
        packed.extend(chunk.await.ok_or_else(|| health.error())?);
    }
    Ok(packed)
}

/// Collects the outcomes of chunks. Composes those that no worker has begun, from the last one on, since
/// workers begin with the first.
pub(super) async fn receive(
    chunks: Vec<Chunk>,
    sectors: u16,
    health: &Health,
) -> Result<Vec<(usize, Outcome)>, PoolError> {
    let mut outcomes = Vec::new();
    for Chunk { blocks, packs, composed } in chunks.into_iter().rev() {
        let blocks = blocks.lock().take();
        outcomes.extend(match blocks {
            Some(blocks) => compose(blocks, sectors, packs),
            // A worker has them, unless the world has ended.
            None => composed.await.flatten().ok_or_else(|| health.error())?,
        });
    }
    Ok(outcomes)
}
