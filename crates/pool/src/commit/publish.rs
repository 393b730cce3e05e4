//! The last step of destage: maps come to lead to what was written, and what they led to before is given up.
//!
//! A batch is in the order of its blocks. So neighbours come one after the other, and what they share is looked for once: the
//! leaf, the page of the block table that their entries are in, the page of those they replace.

use crate::{
    bugs::{Bug, planted},
    commit::{
        committer::Committer,
        composed::{Composed, Composition},
        destage::PARALLEL,
        place::{Placed, Placement},
    },
    error::PoolError,
    fork::layer::Layer,
    format::{TREE_FAN_OUT, ThinEntry},
    maps::{blocks::block_page, tree},
    meta::Page,
};
use futures_util::{StreamExt, stream};
use quoin_base::{BlockIndex, LayerId};
use quoin_world::atomic::Ordering;
use std::sync::Arc;

impl Committer {
    /// Fetches the metadata pages that [`Committer::publish`] will want, many at a time.
    pub(super) async fn prefetch(&self, batch: &[Composed]) -> Result<(), PoolError> {
        let neighbours = batch.chunk_by(|one, next| {
            let leaf = |c: &Composed| (c.taken.key.layer, c.taken.key.index.0 / TREE_FAN_OUT);
            leaf(one) == leaf(next)
        });
        let fetches: Vec<_> = neighbours.map(|blocks| self.prefetch_for(blocks)).collect();
        stream::iter(fetches).buffer_unordered(PARALLEL).collect::<Vec<_>>().await.into_iter().collect()
    }

    /// What is wanted for blocks that one leaf maps.
    async fn prefetch_for(&self, blocks: &[Composed]) -> Result<(), PoolError> {
        let slice = &self.slice;
        let mut leaf = None;
        let mut last = None;
        for composed in blocks {
            let Some(layer) = &composed.layer else { continue };
            let index = composed.taken.key.index;
            if leaf.is_none() {
                // What cannot be read is dealt with when it is changed.
                leaf = Some(slice.leaf(layer, index).await.ok().flatten());
            }
            let Some(Some(leaf)) = &leaf else { continue };
            let entry = ThinEntry(leaf.get(tree::slot(index, 0)));
            let Some(old) = entry.block().filter(|old| last != Some(block_page(*old))) else { continue };
            if self.is_mine(layer, entry) && !self.drops_unseen(layer, old) {
                last = Some(block_page(old));
                // A damaged one stays out of the way: see [`Committer::drop_reference`].
                drop(slice.metadata.pages.get(block_page(old)).await);
            }
        }
        Ok(())
    }

    /// Publishes a batch, in the order of its blocks.
    pub(super) async fn publish_all(
        &mut self,
        batch: &[Composed],
        places: &[Option<Placed>],
    ) -> Result<(), PoolError> {
        assert_eq!(batch.len(), places.len(), "every block of a batch has its place, or needs none");
        let mut leaf = LastLeaf::default();
        for (i, (composed, place)) in batch.iter().zip(places).enumerate() {
            let is_lent = place.is_some_and(|placed| placed.is.is_lent());
            if composed.taken.is_waived && is_lent {
                // NOTE: before the space is counted that the block gives back. A host may be writing it again.
                self.slice.buffer.charge_waived(composed.taken.key);
            }
            if let Some(layer) = &composed.layer {
                self.publish(layer, composed, *place, &mut leaf).await?;
            }
            if i % PARALLEL == PARALLEL - 1 {
                self.slice.world().yield_now().await;
            }
        }
        self.let_go_of_pages();
        Ok(())
    }

    /// Lets the map lead to what was placed, and gives up what it led to before.
    async fn publish(
        &mut self,
        layer: &Arc<Layer>,
        composed: &Composed,
        placed: Option<Placed>,
        last: &mut LastLeaf,
    ) -> Result<(), PoolError> {
        let index = composed.taken.key.index;
        if let Composition::Kept = composed.content {
            return Ok(());
        }
        // The leaf to change. If the block is to be unmapped, it is changed only if it maps the block.
        let leaf = match placed {
            Some(_) => self.leaf_to_publish(layer, index, last).await?,
            None => match self.leaf_as_it_is(layer, index, last).await {
                Ok(Some(leaf)) if leaf.get(tree::slot(index, 0)) == 0 => return Ok(()),
                Ok(None) => return Ok(()),
                Ok(Some(_)) | Err(_) => self.leaf_to_publish(layer, index, last).await?,
            },
        };
        let slot = tree::slot(index, 0);
        let old = ThinEntry(leaf.get(slot));
        debug_assert!(
            !composed.taken.is_waived
                || placed.is_none()
                || old.block().is_some() && self.is_mine(layer, old),
            "a block takes space that it was not charged for: {:?} over {old:?}",
            composed.taken.key
        );
        // NOTE: the block table before the map. What a map leads to must have an entry.
        let new = match placed {
            Some(Placed { number, is }) => {
                layer.owned_blocks.fetch_add(1);
                layer.births.fetch_add(1);
                match is {
                    Placement::New(place, fingerprint) => {
                        if place.info.is_lent() {
                            layer.lend(1);
                        }
                        self.add_block(number, place, fingerprint).await?;
                    }
                    Placement::Repeated => {
                        layer.lend(1);
                        self.slice.forks.read().copies.fetch_add(1, Ordering::Relaxed);
                    }
                    Placement::Shared if planted(Bug::ReferLate) => self.share_block(layer, number).await?,
                    Placement::Shared => {}
                }
                match &composed.content {
                    Composition::Data(fresh) => {
                        self.slice.front.cache.fill_written(number, &fresh.whole, old.block())
                    }
                    Composition::Placed { block, .. } => block.publish(),
                    _ => {}
                }
                ThinEntry::of_block(number, layer.id)
            }
            None => ThinEntry(0),
        };
        // From here on readers find the new block.
        leaf.set(slot, new.0);
        match (old.block(), placed) {
            (None, Some(_)) => layer.mapped_blocks.fetch_add(1),
            (Some(_), None) => layer.mapped_blocks.fetch_sub(1),
            _ => 0,
        };
        match old.block() {
            None => Ok(()),
            // What the layer owns is freed. What an ancestor owns is listed: others may still reach it.
            Some(_) if self.is_mine(layer, old) || planted(Bug::FreeShared) => {
                self.free_replaced(layer, old).await
            }
            Some(_) => self.bury(layer, old).await,
        }
    }

    async fn leaf_to_publish(
        &mut self,
        layer: &Arc<Layer>,
        index: BlockIndex,
        last: &mut LastLeaf,
    ) -> Result<Arc<Page>, PoolError> {
        let of = (layer.id, index.0 / TREE_FAN_OUT);
        if let LastLeaf::ToChange(_, leaf) = &*last
            && last.is_of(of)
        {
            return Ok(leaf.clone());
        }
        let leaf = self.leaf_to_change(layer, index).await?;
        *last = LastLeaf::ToChange(of, leaf.clone());
        Ok(leaf)
    }

    /// The leaf that maps a block, if there is one. It may not be the layer's own.
    async fn leaf_as_it_is(
        &self,
        layer: &Layer,
        index: BlockIndex,
        last: &mut LastLeaf,
    ) -> Result<Option<Arc<Page>>, PoolError> {
        let of = (layer.id, index.0 / TREE_FAN_OUT);
        match &*last {
            LastLeaf::ToChange(_, leaf) if last.is_of(of) => Ok(Some(leaf.clone())),
            LastLeaf::AsItIs(_, leaf) if last.is_of(of) => Ok(leaf.clone()),
            _ => {
                let leaf = self.slice.leaf(layer, index).await?;
                *last = LastLeaf::AsItIs(of, leaf.clone());
                Ok(leaf)
            }
        }
    }
}

/// The leaf that was looked for last in a batch, and which one that is: no leaf goes while a batch is published, and
/// none comes but those to change.
#[derive(Default)]
enum LastLeaf {
    #[default]
    None,
    /// `None`: there is no such leaf.
    AsItIs((LayerId, u64), Option<Arc<Page>>),
    ToChange((LayerId, u64), Arc<Page>),
}

impl LastLeaf {
    fn is_of(&self, leaf: (LayerId, u64)) -> bool {
        matches!(self, Self::AsItIs(of, _) | Self::ToChange(of, _) if *of == leaf)
    }
}
