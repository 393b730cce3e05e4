//! Destage: the oldest buffered blocks become rows of segments, and the map leads there.

use crate::{
    buffer::TakenBlock,
    bugs::{Bug, planted},
    commit::{committer::Committer, compose::Whole},
    error::PoolError,
    fork::layer::Layer,
    format::{BlockInfo, Location, ThinEntry},
    integrity::quarantine::reads_otherwise,
    maps::{
        blocks::{BlockPlace, LOST, block_page},
        tree,
    },
};
use futures_util::{StreamExt, stream};
use quoin_base::{LayerId, Sequence};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Blocks composed, or pages fetched, at the same time.
const PARALLEL: usize = 32;
/// The most blocks of one transaction.
const BATCH_BLOCKS: u64 = 1024;

/// How often a block that cannot be read is tried at least before it is given up.
const TRIES: u32 = 3;
/// For how long it must have been tried if a fork or copy waits for it: the drive may recover.
const WAITED_FOR: Duration = Duration::from_secs(10);
/// How full buffer or journal must be if none does.
const GIVE_UP_FROM: f64 = 0.7;

/// What a taken block becomes.
enum Composition {
    Unmapped,
    Data(Whole),
    /// A block that there is, which a layer owns.
    Shared {
        number: u64,
        owner: LayerId,
    },
    /// It cannot be completed: what lies below the buffered part is damaged.
    Lost,
    /// It cannot be completed now: a drive failed to read what lies below.
    Unread,
}

struct Composed {
    taken: TakenBlock,
    /// `None`: it was given up.
    layer: Option<Arc<Layer>>,
    content: Composition,
}

/// A block number and what it stands for.
#[derive(Clone, Copy)]
struct Placed {
    number: u64,
    is: Placement,
}

#[derive(Clone, Copy)]
enum Placement {
    /// A new block, whose entry will say this.
    New(BlockPlace),
    /// A block that there is, which this layer owns too.
    Shared(LayerId),
}

impl Committer {
    /// Destages up to a batch of blocks that came in before `before`. False if there was none.
    pub(crate) async fn destage(&mut self, before: Sequence) -> Result<bool, PoolError> {
        let pool = self.pool.clone();
        let batch = pool.space.step_blocks().min(BATCH_BLOCKS);
        let pending = pool.layers.read().pending.clone();
        let mut taken = pool.buffer.take_oldest(batch as usize, before, &pending);
        pool.flip_bits_of(&mut taken);
        if taken.is_empty() {
            return Ok(false);
        }
        let tried = taken.len() as u64;
        pool.requests.not_in_a_hurry();
        self.yielded = 0;
        let composing: Vec<_> = taken.into_iter().map(|t| self.compose(t)).collect();
        let composed: Vec<_> = stream::iter(composing).buffered(PARALLEL).collect().await;
        let mut composed = composed.into_iter().collect::<Result<Vec<_>, PoolError>>()?;
        self.put_unread_back(&mut composed).await;
        self.count_stuck(if composed.is_empty() { tried } else { 0 });
        if composed.is_empty() {
            // Writers that wait for destage look again: what they wait for does not come.
            self.committed();
            return Ok(false);
        }
        let places = self.place(&composed).await?;
        let rows = self.data_rows.finish(&pool.segments);
        let written = self.write_rows(rows).await?;
        pool.counters.destaged_bytes.fetch_add(written, Ordering::Relaxed);
        if planted(Bug::EvictBeforePublish) {
            composed.iter().for_each(|c| pool.buffer.evict(&c.taken));
            pool.world.yield_now().await;
        }
        self.prefetch(&composed).await?;
        for (composed, place) in composed.iter().zip(&places) {
            if let Some(layer) = &composed.layer {
                self.publish(layer, composed, *place).await?;
            }
        }
        self.count_space();
        // The map is published: only now may a reader miss the buffer.
        for composed in &composed {
            pool.buffer.evict(&composed.taken);
        }
        pool.counters.destaged_blocks.fetch_add(composed.len() as u64, Ordering::Relaxed);
        self.committed();
        Ok(true)
    }

    async fn compose(&self, taken: TakenBlock) -> Result<Composed, PoolError> {
        let pool = &self.pool;
        let layer = pool.layers.read().all.get(&taken.key.layer).filter(|layer| !layer.is_gone()).cloned();
        let Some(layer) = layer else {
            return Ok(Composed { taken, layer: None, content: Composition::Unmapped });
        };
        if let Some((number, owner)) = pool.shared_block(&taken.extents).await? {
            return Ok(Composed {
                taken,
                layer: Some(layer),
                content: Composition::Shared { number, owner },
            });
        }
        let content = match pool.compose(&layer, taken.key, &taken.extents).await {
            Ok(Some(data)) => Composition::Data(data),
            Ok(None) => Composition::Unmapped,
            Err(PoolError::Medium { unread: true, .. }) => Composition::Unread,
            Err(PoolError::Medium { volume, offset, reason, unread: false }) => {
                tracing::error!(%volume, offset, %reason, "a block cannot be put together any more; it is lost");
                pool.counters.lost_blocks.fetch_add(1, Ordering::Relaxed);
                pool.damaged(volume, taken.key.index, &reason);
                Composition::Lost
            }
            // A page of metadata: what it leads to is lost when it is changed.
            Err(error) if pool.is_unreadable(&error).await => {
                pool.counters.lost_blocks.fetch_add(1, Ordering::Relaxed);
                pool.damaged(layer.volume.id, taken.key.index, &error.to_string());
                Composition::Lost
            }
            Err(error) => return Err(error),
        };
        Ok(Composed { taken, layer: Some(layer), content })
    }

    /// Leaves in the buffer what could not be read, to be tried again: the drive may recover. A block is given up only
    /// when the journal fills up because of it, or when a fork or copy waits for it and its place alone is unreadable.
    async fn put_unread_back(&mut self, composed: &mut Vec<Composed>) {
        let pool = self.pool.clone();
        for mut block in std::mem::take(composed) {
            let key = block.taken.key;
            if !matches!(block.content, Composition::Unread) {
                self.unread.remove(&key);
                composed.push(block);
                continue;
            }
            let now = pool.world.now();
            let (tries, since) = self.unread.entry(key).or_insert((0, now));
            *tries += 1;
            let (tries, waited) = (*tries, now.since(*since));
            let is_lost = tries >= TRIES && pool.fill(0) > GIVE_UP_FROM
                || waited >= WAITED_FOR && pool.awaits_destage() && self.is_unreadable(&block).await;
            if is_lost {
                tracing::error!(layer = %key.layer, block = key.index, tries, "given up after failed reads; it is lost");
                pool.counters.lost_blocks.fetch_add(1, Ordering::Relaxed);
                self.unread.remove(&key);
                if let Some(layer) = &block.layer {
                    let reason = "a drive failed to read what it was written over in part";
                    pool.damaged(layer.volume.id, key.index, reason);
                }
                block.content = Composition::Lost;
                composed.push(block);
            } else {
                pool.buffer.put_back(&block.taken);
            }
        }
    }

    /// Whether a block cannot be read again and again while every drive reads other places.
    async fn is_unreadable(&self, block: &Composed) -> bool {
        let Some(layer) = &block.layer else { return false };
        for drive in self.pool.io.columns.drives() {
            if !reads_otherwise(drive).await {
                return false;
            }
        }
        for _ in 0..TRIES {
            match self.pool.compose(layer, block.taken.key, &block.taken.extents).await {
                Err(PoolError::Medium { unread: true, .. }) => {}
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    /// Notes that of `tried` blocks none could be read, or with 0 that one was destaged, and tells writers whether anything
    /// they may wait for can be. What lies in a fork on top of an unread block cannot either.
    fn count_stuck(&mut self, tried: u64) {
        let charged = self.pool.buffer.charged_blocks();
        self.tried_in_vain = if tried > 0 { self.tried_in_vain + tried } else { 0 };
        let stuck = if self.tried_in_vain >= charged { charged } else { 0 };
        self.pool.counters.stuck_blocks.store(stuck, Ordering::Release);
    }

    /// Plans rows for the data, under new block numbers. In the order of `composed`; `None` for what needs no
    /// block.
    async fn place(&mut self, composed: &[Composed]) -> Result<Vec<Option<Placed>>, PoolError> {
        let pool = self.pool.clone();
        let mut places = Vec::with_capacity(composed.len());
        for block in composed {
            let place = match &block.content {
                Composition::Unmapped | Composition::Unread => None,
                Composition::Shared { number, owner } => {
                    Some(Placed { number: *number, is: Placement::Shared(*owner) })
                }
                Composition::Lost => {
                    let place = BlockPlace { location: Location(0), info: BlockInfo::new(0, 1, LOST) };
                    Some(Placed { number: self.take_block_number().await?, is: Placement::New(place) })
                }
                Composition::Data(Whole { data, crc }) => {
                    let number = self.take_block_number().await?;
                    let generation = self.generation + 1;
                    let location = self
                        .data_rows
                        .place(&pool.segments, number, data.len(), generation, &pool.readers)
                        .ok_or_else(out_of_slabs)?;
                    self.data_rows.push_data(data.clone());
                    let info = BlockInfo::new(*crc, 1, BlockInfo::STORED);
                    Some(Placed { number, is: Placement::New(BlockPlace { location, info }) })
                }
            };
            places.push(place);
        }
        Ok(places)
    }

    /// Fetches the metadata pages that [`Committer::publish`] will want, many at a time.
    async fn prefetch(&self, composed: &[Composed]) -> Result<(), PoolError> {
        let fetches: Vec<_> = composed.iter().map(|c| self.prefetch_one(c)).collect();
        stream::iter(fetches).buffer_unordered(PARALLEL).collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn prefetch_one(&self, composed: &Composed) -> Result<(), PoolError> {
        let pool = &self.pool;
        let Some(layer) = &composed.layer else { return Ok(()) };
        let index = composed.taken.key.index;
        if let Composition::Shared { number, .. } = composed.content {
            drop(pool.pages.get(block_page(number)).await);
        }
        // What cannot be read is dealt with when it is changed.
        let Ok(Some(leaf)) = pool.leaf(layer, index).await else { return Ok(()) };
        if let Some(old) = ThinEntry(leaf.get(tree::slot(index, 0))).block() {
            // A damaged one stays out of the way: see [`Committer::drop_reference`].
            drop(pool.pages.get(block_page(old)).await);
        }
        Ok(())
    }

    /// Lets the map lead to what was placed, and gives up what it led to before.
    async fn publish(
        &mut self,
        layer: &Arc<Layer>,
        composed: &Composed,
        placed: Option<Placed>,
    ) -> Result<(), PoolError> {
        let index = composed.taken.key.index;
        let leaf = match placed {
            Some(_) => self.leaf_to_change(layer, index).await?,
            None => match self.pool.leaf(layer, index).await {
                Ok(Some(leaf)) if leaf.get(tree::slot(index, 0)) == 0 => return Ok(()),
                Ok(None) => return Ok(()),
                Ok(Some(_)) | Err(_) => self.leaf_to_change(layer, index).await?,
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
        let new = match placed {
            Some(Placed { number, is }) => {
                layer.owned_blocks.fetch_add(1, Ordering::Relaxed);
                layer.births.fetch_add(1, Ordering::Relaxed);
                match is {
                    Placement::New(place) => self.add_block(number, place).await?,
                    Placement::Shared(owner) => self.share_block(layer, number, owner).await?,
                }
                if let Composition::Data(whole) = &composed.content {
                    self.pool.cache.fill_written(number, &whole.data, old.block());
                }
                ThinEntry::new(number, layer.id)
            }
            None => ThinEntry(0),
        };
        leaf.set(slot, new.0);
        match (old.block(), placed) {
            (None, Some(_)) => layer.mapped_blocks.fetch_add(1, Ordering::Relaxed),
            (Some(_), None) => layer.mapped_blocks.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        match old.block() {
            None => Ok(()),
            Some(_) if self.is_mine(layer, old) || planted(Bug::FreeShared) => self.free(layer, old).await,
            Some(_) => self.bury(layer, old).await,
        }
    }
}

pub(crate) fn out_of_slabs() -> PoolError {
    PoolError::corrupt("the space accounting", "no slab is free for what was admitted")
}
