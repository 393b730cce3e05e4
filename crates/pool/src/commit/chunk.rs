//! Composing on workers: blocks that are whole in RAM are verified in chunks, beside the committer.
//!
//! 1. A chunk is composed once: by a worker, or by the committer if no worker has begun it when the committer
//!    wants it.
//! 2. Composing a chunk uses nothing but the chunk: no lock of the engine, no drive, no state that changes.

use crate::{
    buffer::{Content, TakenBlock},
    commit::{
        compose::whole,
        composed::{Composed, Composition},
    },
    error::PoolError,
    fork::layer::Layer,
    store::health::Health,
};
use quoin_world::{Mutex, OneShot, World, offload};
use std::sync::Arc;

/// Blocks of a chunk: with 8 KiB each a tenth of a millisecond of work or two, several times what it takes to wake a worker.
const CHUNK_BLOCKS: usize = 256;

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
    composed: OneShot<Option<Vec<(usize, Outcome)>>>,
}

/// Gives blocks to workers. Returns the blocks if they are too few or there is no worker.
pub(super) fn send(
    world: &dyn World,
    mut blocks: Vec<RamBlock>,
    sectors: u16,
) -> Result<Vec<Chunk>, Vec<RamBlock>> {
    if blocks.len() < CHUNK_BLOCKS || world.workers() == 0 {
        return Err(blocks);
    }
    let mut chunks = Vec::with_capacity(blocks.len() / CHUNK_BLOCKS + 1);
    while !blocks.is_empty() {
        let rest = blocks.split_off(blocks.len().min(CHUNK_BLOCKS));
        let blocks = Arc::new(Mutex::new(Some(std::mem::replace(&mut blocks, rest))));
        let given = blocks.clone();
        let composed = offload(world, move || {
            // NOTE: the lock is not held meanwhile.
            let blocks = given.lock().take();
            blocks.map(|blocks| compose(blocks, sectors))
        });
        chunks.push(Chunk { blocks, composed });
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
        Some(Some(whole)) => Ok(Composed { taken, layer: Some(layer), content: Composition::Data(whole) }),
        Some(None) => Ok(Composed { taken, layer: Some(layer), content: Composition::Unmapped }),
        None => Err(taken),
    }
}

fn compose(blocks: Vec<RamBlock>, sectors: u16) -> Vec<(usize, Outcome)> {
    blocks.into_iter().map(|block| (block.at, compose_one(block, sectors))).collect()
}

/// Collects the outcomes of chunks. Composes those that no worker has begun, from the last one on, since
/// workers begin with the first.
pub(super) async fn receive(
    chunks: Vec<Chunk>,
    sectors: u16,
    health: &Health,
) -> Result<Vec<(usize, Outcome)>, PoolError> {
    let mut outcomes = Vec::new();
    for Chunk { blocks, composed } in chunks.into_iter().rev() {
        let blocks = blocks.lock().take();
        outcomes.extend(match blocks {
            Some(blocks) => compose(blocks, sectors),
            // A worker has them, unless the world has ended.
            None => composed.await.flatten().ok_or_else(|| health.error())?,
        });
    }
    Ok(outcomes)
}
