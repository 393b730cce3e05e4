//! What compression and deduplication save on a volume, estimated from some of its blocks.
//!
//! The engine keeps counts for the whole pool, not for each volume: a block that volumes share is no one's. So some leaves of the
//! volume's map are drawn, and of what they map some blocks, and the block table says how they are stored and how many have them.
//!
//! 1. A leaf is drawn on the way down: at each node one of the nodes below it. What was one of *n* stands for *n*, so that all
//!    leaves have the same part however uneven the map is. One fraction decides at all levels, and the fractions are spread evenly:
//!    of a map of full nodes every k-th leaf is drawn.
//! 2. Blocks are drawn from all that the drawn leaves map, laid end to end, each leaf as often as it stands for others: every k-th.
//!    So a leaf with a few blocks does not count as much as a full one.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::{GRAIN_BYTES, TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    lifecycle::slice::Slice,
    space::report::ReductionEstimate,
};
use quoin_base::{BlockNumber, VolumeId};

/// Leaves that are drawn. A small map has fewer: some are drawn more than once.
const LEAVES: u64 = 2048;
/// Blocks that are looked up.
const BLOCKS: u64 = 4096;
/// Lookups after which other tasks of the thread have a turn.
const LOOKUPS_A_TURN: u64 = 64;

/// A leaf that was drawn.
struct Drawn {
    mapped: Vec<BlockNumber>,
    /// How many leaves it stands for.
    stands_for: f64,
}

impl Drawn {
    /// How many blocks it stands for.
    fn blocks(&self) -> f64 {
        self.mapped.len() as f64 * self.stands_for
    }
}

impl Slice {
    /// What is saved on a volume, by some of its blocks. What cannot be read does not count.
    pub(crate) async fn estimate_reduction(&self, volume: VolumeId) -> Result<ReductionEstimate, PoolError> {
        let leaves = self.draw_leaves(volume).await?;
        let total: f64 = leaves.iter().map(Drawn::blocks).sum();
        let (mut blocks, mut stored, mut shared) = (0, 0.0, 0.0);
        let (mut rest, mut before) = (leaves.iter().peekable(), 0.0);
        for n in 0..BLOCKS {
            self.take_turns(n).await?;
            let at = (n as f64 + 0.5) * total / BLOCKS as f64;
            while let Some(leaf) = rest.next_if(|leaf| before + leaf.blocks() <= at) {
                before += leaf.blocks();
            }
            let Some(leaf) = rest.peek() else { break };
            let chosen = ((at - before) / leaf.stands_for) as usize;
            let Some(number) = leaf.mapped.get(chosen) else { continue };
            let place = {
                let _guard = self.enter_readers();
                readable(self.block(*number).await)?.flatten()
            };
            // One may have been given back since.
            let Some(place) = place.filter(|place| !place.location.is_none()) else { continue };
            let bytes = (u64::from(place.location.counted_grains()) * GRAIN_BYTES) as f64;
            blocks += 1;
            stored += bytes;
            shared += bytes / f64::from(place.info.count().max(1));
        }
        Ok(ReductionEstimate::new(blocks, self.buffer.block_bytes, stored, shared))
    }

    async fn draw_leaves(&self, volume: VolumeId) -> Result<Vec<Drawn>, PoolError> {
        let mut leaves = Vec::new();
        for n in 0..LEAVES {
            self.take_turns(n).await?;
            let layer = self.confirmed_layer(volume).await?;
            leaves.extend(readable(self.draw(&layer, (n as f64 + 0.5) / LEAVES as f64).await)?);
        }
        Ok(leaves)
    }

    async fn draw(&self, layer: &Layer, mut fraction: f64) -> Result<Drawn, PoolError> {
        let _guard = self.enter_readers();
        let (mut entry, mut stands_for) = (layer.map_root(), 1.0);
        for _ in 1..TREE_LEVELS {
            let nodes = self.entries(entry).await?;
            let at = fraction * nodes.len() as f64;
            // NOTE: rounding may come to the end.
            let Some(node) = nodes.get(at as usize).or(nodes.last()) else {
                return Ok(Drawn { mapped: Vec::new(), stands_for });
            };
            (entry, fraction, stands_for) = (*node, at.fract(), stands_for * nodes.len() as f64);
        }
        let leaf = self.entries(entry).await?;
        Ok(Drawn { mapped: leaf.into_iter().filter_map(ThinEntry::block).collect(), stands_for })
    }

    /// The entries of a node that lead anywhere.
    async fn entries(&self, entry: ThinEntry) -> Result<Vec<ThinEntry>, PoolError> {
        let Some(number) = entry.node() else { return Ok(Vec::new()) };
        // One that was given back since its number was met has none.
        let Some(page) = self.tree_page(number).await? else { return Ok(Vec::new()) };
        let entries = (0..TREE_FAN_OUT as usize).map(|slot| ThinEntry(page.get(slot)));
        Ok(entries.filter(|entry| !entry.is_none()).collect())
    }

    async fn take_turns(&self, lookups: u64) -> Result<(), PoolError> {
        if lookups.is_multiple_of(LOOKUPS_A_TURN) {
            self.world().yield_now().await;
            self.store.health().check()?;
        }
        Ok(())
    }
}

/// `None` for what is damaged.
fn readable<T>(found: Result<T, PoolError>) -> Result<Option<T>, PoolError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(PoolError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
