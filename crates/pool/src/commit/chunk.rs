//! Composing on workers: blocks that are whole in RAM are verified and reduced in chunks, beside the committer.
//!
//! 1. A chunk is composed once: by a worker, or by the committer if no worker has begun it when the committer
//!    wants it.
//! 2. Composing a chunk uses nothing but the chunk and the index of fingerprints: no lock of the engine, no drive.
//! 3. A block is reduced after it was verified, and packed with the checksum that it was verified by.
//! 4. A block of which another may have the content is not packed before that is looked up.

use crate::{
    buffer::{Content, TakenBlock},
    commit::{
        compose::whole,
        composed::{Composed, Composition, Form, Fresh},
        effort::Effort,
    },
    error::PoolError,
    fork::layer::Layer,
    lifecycle::slice::Slice,
    maps::fingerprints::Fingerprints,
    segment::packed::{codec_of, pack},
    store::health::Health,
};
use quoin_world::{Mutex, OneShot, offload};
use std::sync::Arc;

/// Blocks of a chunk: with 8 KiB each a tenth of a millisecond of work or two, several times what it takes to wake a worker.
const CHUNK_BLOCKS: usize = 256;
/// The same of blocks that are reduced.
const REDUCED_CHUNK_BLOCKS: usize = 32;

/// A block that one write brought whole and that is in RAM.
pub(super) struct RamBlock {
    /// Its place in the batch.
    pub at: usize,
    pub taken: TakenBlock,
    pub layer: Arc<Layer>,
}

/// A composed block, or the block as it was taken, if what RAM holds does not match the checksum of its receipt.
pub(super) type Outcome = Result<Composed, TakenBlock>;

/// How blocks are reduced.
#[derive(Clone)]
pub(super) struct Looks {
    /// They get fingerprints, and are not packed if another block may have the same. `None`: it is known that no other has.
    fingerprints: Option<Arc<Fingerprints>>,
    /// There is time to pack them.
    packs: bool,
}

impl Looks {
    /// Blocks that are not reduced.
    const NOTHING: Self = Self { fingerprints: None, packs: false };

    /// Blocks of which nothing is known yet, by what time there is.
    pub(super) fn ahead(slice: &Slice, effort: &Mutex<Effort>) -> Self {
        Self { fingerprints: Some(slice.fingerprints().clone()), packs: effort.lock().packs() }
    }

    /// Blocks that no other equals.
    pub(super) fn over(effort: &Mutex<Effort>) -> Self {
        Self { fingerprints: None, packs: effort.lock().packs() }
    }
}

/// Blocks that are given to a worker, and outcomes by place in the batch.
pub(super) struct Chunk {
    blocks: Arc<Mutex<Option<Vec<RamBlock>>>>,
    looks: Looks,
    composed: OneShot<Option<Vec<(usize, Outcome)>>>,
}

/// Gives blocks to workers. Returns the blocks if they are too few or there is no worker.
pub(super) fn send(
    slice: &Slice,
    mut blocks: Vec<RamBlock>,
    effort: &Mutex<Effort>,
) -> Result<Vec<Chunk>, Vec<RamBlock>> {
    let (world, sectors) = (slice.world(), slice.buffer.sectors_per_block());
    let is_any_reduced = blocks.iter().any(|block| block.layer.volume.is_reduced());
    let chunk_blocks = if is_any_reduced { REDUCED_CHUNK_BLOCKS } else { CHUNK_BLOCKS };
    if blocks.len() < chunk_blocks || world.workers() == 0 {
        return Err(blocks);
    }
    let mut chunks = Vec::with_capacity(blocks.len() / chunk_blocks + 1);
    while !blocks.is_empty() {
        let rest = blocks.split_off(blocks.len().min(chunk_blocks));
        let blocks = Arc::new(Mutex::new(Some(std::mem::replace(&mut blocks, rest))));
        let looks = if is_any_reduced { Looks::ahead(slice, effort) } else { Looks::NOTHING };
        let (given, how) = (blocks.clone(), looks.clone());
        let composed = offload(world, move || {
            // NOTE: the lock is not held meanwhile.
            let blocks = given.lock().take();
            blocks.map(|blocks| compose(blocks, sectors, &how))
        });
        chunks.push(Chunk { blocks, looks, composed });
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
            Ok(Composed { taken, layer: Some(layer), content: Composition::Data(Fresh::new(whole)) })
        }
        Some(None) => Ok(Composed { taken, layer: Some(layer), content: Composition::Unmapped }),
        None => Err(taken),
    }
}

fn compose(blocks: Vec<RamBlock>, sectors: u16, looks: &Looks) -> Vec<(usize, Outcome)> {
    let mut composed: Vec<_> =
        blocks.into_iter().map(|block| (block.at, compose_one(block, sectors))).collect();
    reduce(composed.iter_mut().filter_map(|(_, block)| block.as_mut().ok()), looks);
    composed
}

/// Reduces the blocks that are to be.
fn reduce<'a>(blocks: impl Iterator<Item = &'a mut Composed>, looks: &Looks) {
    let mut to_pack = Vec::new();
    for block in blocks {
        let Some((fresh, volume)) = block.unreduced() else { continue };
        if let Some(fingerprints) = looks.fingerprints.as_ref().filter(|_| volume.is_deduplicated()) {
            let fingerprint = fingerprints.of(&fresh.whole.data);
            fresh.fingerprint = Some(fingerprint);
        }
        let Some(codec) = codec_of(volume.compression(), false) else {
            fresh.form = Form::Plain;
            continue;
        };
        let may_be_there = |fingerprint| looks.fingerprints.as_ref().is_some_and(|f| f.may_have(fingerprint));
        if fresh.fingerprint.is_some_and(may_be_there) {
            continue;
        }
        if looks.packs {
            to_pack.push((codec, fresh));
        } else {
            fresh.form = Form::Hasty;
        }
    }
    let packed = pack(to_pack.iter().map(|(codec, fresh)| (*codec, &fresh.whole)));
    for ((_, fresh), packed) in to_pack.into_iter().zip(packed) {
        fresh.form = packed.map_or(Form::Incompressible, Form::Packed);
    }
}

/// Reduces blocks on workers, some at a time. In their order.
pub(super) async fn reduce_beside(
    slice: &Slice,
    mut blocks: Vec<Composed>,
    looks: impl Fn() -> Looks,
) -> Result<Vec<Composed>, PoolError> {
    let mut chunks = Vec::new();
    while !blocks.is_empty() {
        let rest = blocks.split_off(blocks.len().min(REDUCED_CHUNK_BLOCKS));
        let (mut chunk, looks) = (std::mem::replace(&mut blocks, rest), looks());
        // Where there is no worker, this is done here.
        chunks.push(offload(slice.world(), move || {
            reduce(chunk.iter_mut(), &looks);
            chunk
        }));
    }
    let mut reduced = Vec::new();
    for chunk in chunks {
        reduced.extend(chunk.await.ok_or_else(|| slice.store.health().error())?);
    }
    Ok(reduced)
}

/// Collects the outcomes of chunks. Composes those that no worker has begun, from the last one on, since
/// workers begin with the first.
pub(super) async fn receive(
    chunks: Vec<Chunk>,
    sectors: u16,
    health: &Health,
) -> Result<Vec<(usize, Outcome)>, PoolError> {
    let mut outcomes = Vec::new();
    for Chunk { blocks, looks, composed } in chunks.into_iter().rev() {
        let blocks = blocks.lock().take();
        outcomes.extend(match blocks {
            Some(blocks) => compose(blocks, sectors, &looks),
            // A worker has them, unless the world has ended.
            None => composed.await.flatten().ok_or_else(|| health.error())?,
        });
    }
    Ok(outcomes)
}
