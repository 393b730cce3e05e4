//! Damaged pages of thin maps and deadlists: what the committer needs and cannot read it replaces, so that damage stays where
//! it is.
//!
//! 1. A damaged leaf is replaced by one whose entries all lead to one lost block, with a reference each: they read as medium
//!    errors until they are overwritten or unmapped, and are counted as every entry is.
//! 2. A damaged node above is replaced by one whose entries all lead to [`LOST_NODE`], which is never there. What changes
//!    something below one of them replaces that one in turn.
//! 3. Whoever else shares a damaged page keeps leading to it. It is given back with its last user, like a sound one.
//! 4. The blocks and pages that a damaged page led to are not given back: nobody knows them. Their space stays taken. They
//!    stay counted as their layer's, so that what is counted beyond what can be reached is just what leaked: the check proves
//!    that. When a layer is removed, what is left of its counts goes to [`Leaked::references`].
//! 5. All this is kept by the checkpoint that holds the new pages, in an object of the catalog for each: before, a crash
//!    leaves everything as it was, and the next one to meet the damaged page does it again.
//!
//! Example: a leaf of layer 7 that mapped 40 blocks is damaged, and block 3 of it is written to.
//! 1. Layer 7 was recorded to own 100 blocks; it gets a leaf of 512 references to a lost block and owns 612.
//! 2. Block 3 is published: one lost reference less, one block more.
//! 3. The walk of the map finds 572, the record says 612: 40 references leaked. As many blocks in the block table have one
//!    reference more than lead to them.

use crate::{
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    fork::lists::DeadList,
    format::{BlockInfo, DEAD_PAGE, Location, References, TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    integrity::damage::Damage,
    lifecycle::slice::Slice,
    maps::{
        blocks::BlockPlace,
        tree::{Spot, node, slot},
    },
    meta::{ObjectKind, Page},
};
use quoin_base::{ByteRange, PageNumber, VolumeId};
use quoin_world::atomic::Ordering;
use std::{collections::BTreeMap, sync::Arc};

#[cfg(test)]
mod tests;

/// The node that entries of a replaced node lead to: a number that no page has.
pub(crate) const LOST_NODE: PageNumber = PageNumber(DEAD_PAGE - 1);
/// Objects that tell what was replaced, one for each page, and what removed layers left behind.
pub(crate) const LEAKED_OBJECT: ObjectKind = ObjectKind(40);
/// The key of the latter.
const REMOVED: &str = "removed";

/// How often the drive is asked for a page before that counts as unreadable.
const TRIES: u32 = 5;

/// What is known to be taken and not reachable any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaked {
    /// Damaged pages that were replaced or given up.
    pub pages: u64,
    /// Blocks that they may have led to at most.
    pub blocks_at_most: u64,
    /// References to blocks that layers which are gone owned and nobody can reach.
    pub references: u64,
}

impl Leaked {
    /// Takes in what is known of another slice.
    pub(crate) fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.blocks_at_most += other.blocks_at_most;
        self.references += other.references;
    }

    /// As the objects of a catalog tell.
    pub(crate) fn read<'a>(objects: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut leaked = Self::default();
        for (key, value) in objects {
            if key == REMOVED {
                leaked.references = number_of(value, "references");
            } else {
                leaked.pages += 1;
                leaked.blocks_at_most += number_of(value, "blocks_at_most");
            }
        }
        leaked
    }

    pub(crate) fn of(objects: &BTreeMap<(ObjectKind, String), Vec<u8>>) -> Self {
        let own = objects.iter().filter(|((kind, _), _)| *kind == LEAKED_OBJECT);
        Self::read(own.map(|((_, key), value)| (key.as_str(), value.as_slice())))
    }
}

/// A number of a JSON object without depth; 0 if it has none of this name.
fn number_of(json: &[u8], name: &str) -> u64 {
    let json = String::from_utf8_lossy(json);
    let rest = json.split_once(&format!("\"{name}\":")).map_or("", |(_, rest)| rest);
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

impl Slice {
    /// A page of the page space of the trees. `None` if it was given back.
    pub(crate) async fn tree_page(&self, number: PageNumber) -> Result<Option<Arc<Page>>, PoolError> {
        match number {
            LOST_NODE => Err(PoolError::corrupt("a part of the map", "the page that led to it was damaged")),
            number => self.metadata.pages.get(node(number)).await,
        }
    }

    /// At most so many bytes are taken by blocks that damaged metadata led to: they are never given back.
    pub(crate) fn lost_space_bytes(&self) -> u64 {
        self.leaked().blocks_at_most * self.buffer.block_bytes
    }

    /// What is known to be taken and not reachable any more.
    pub(crate) fn leaked(&self) -> Leaked {
        let objects = self.metadata.catalog.list(LEAKED_OBJECT);
        Leaked::read(objects.iter().map(|(key, value)| (key.as_str(), value.as_slice())))
    }

    /// The volumes whose maps lead through a node.
    async fn volumes_through(&self, family: &Layer, number: PageNumber, spot: Spot) -> Vec<VolumeId> {
        let of_family = |layer: &&Arc<Layer>| layer.family == family.family;
        let leaves: Vec<_> = self.forks.read().volumes.values().filter(of_family).cloned().collect();
        let mut volumes = Vec::new();
        for layer in leaves {
            let mut entry = layer.map_root();
            for level in (spot.level + 1..TREE_LEVELS).rev() {
                let Some(above) = entry.node() else { break };
                let Ok(Some(page)) = self.tree_page(above).await else {
                    entry = ThinEntry(0);
                    break;
                };
                entry = ThinEntry(page.get(slot(spot.block, level)));
            }
            if entry.node() == Some(number) || layer.id == family.id {
                volumes.push(layer.volume.id);
            }
        }
        volumes
    }
}

impl Committer {
    /// A page of the page space of the trees, or why it is damaged.
    pub(crate) async fn tree_page_or_damage(
        &self,
        number: PageNumber,
    ) -> Result<Result<Arc<Page>, String>, PoolError> {
        let mut tries = 1;
        loop {
            match self.slice.tree_page(number).await {
                Ok(Some(page)) => return Ok(Ok(page)),
                Ok(None) => return Ok(Err(format!("page {number} of the thin maps is missing"))),
                Err(error @ PoolError::Corrupt { .. }) => return Ok(Err(error.to_string())),
                Err(error) if self.slice.store.is_unreadable(&error).await => {
                    return Ok(Err(error.to_string()));
                }
                Err(error) if tries == TRIES || self.slice.store.health().is_failed() => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    /// A page in the place of one that is damaged, whose entries are lost. Its parent is to lead there.
    pub(crate) async fn replace_damaged(
        &mut self,
        layer: &Layer,
        damaged: ThinEntry,
        spot: Spot,
        why: &str,
    ) -> Result<ThinEntry, PoolError> {
        let slice = self.slice.clone();
        let number = self.take_tree_page().await?;
        let page = slice.metadata.pages.change(node(number)).await?;
        let entry = match spot.level {
            0 => self.lost_block(layer).await?,
            _ => ThinEntry::of_node(LOST_NODE, layer.id),
        };
        (0..TREE_FAN_OUT as usize).for_each(|slot| page.set(slot, entry.0));
        layer.births.fetch_add(1);
        let old = damaged.node().unwrap_or(LOST_NODE);
        if old != LOST_NODE {
            self.note_damaged(layer, old, spot, why).await;
            let dead = damaged.as_dead_page();
            if self.is_mine(layer, damaged) {
                self.free(layer, dead).await?
            } else {
                self.bury(layer, dead).await?
            }
        }
        Ok(ThinEntry::of_node(number, layer.id))
    }

    /// A block whose content is lost, with a reference from each entry of a leaf.
    async fn lost_block(&mut self, layer: &Layer) -> Result<ThinEntry, PoolError> {
        let number = self.take_block_number().await?;
        let info = BlockInfo::new(0, References::Count(TREE_FAN_OUT as u32), BlockInfo::LOST);
        self.add_block(number, BlockPlace { location: Location(0), info }, None).await?;
        for count in [&layer.owned_blocks, &layer.births, &layer.mapped_blocks] {
            count.fetch_add(TREE_FAN_OUT);
        }
        layer.lend(TREE_FAN_OUT);
        self.slice.forks.read().copies.fetch_add(TREE_FAN_OUT - 1, Ordering::Relaxed);
        Ok(ThinEntry::of_block(number, layer.id))
    }

    /// Keeps for the next checkpoint, and tells, that what a node led to is lost.
    pub(crate) async fn note_damaged(&mut self, layer: &Layer, number: PageNumber, spot: Spot, why: &str) {
        let slice = self.slice.clone();
        let (first, blocks) = spot.span();
        let at_most = blocks.min(layer.mapped_blocks.load(Ordering::Relaxed)).max(1);
        self.keep_leaked(layer, number, spot.level, (first.0, blocks), at_most);
        let range =
            ByteRange::new(first.offset_bytes(slice.buffer.block_bytes), blocks * slice.buffer.block_bytes);
        for volume in slice.volumes_through(layer, number, spot).await {
            slice.damage().note(Damage { volume, range, reason: why.to_owned() });
        }
        let volume = layer.volume.id;
        tracing::error!(%volume, first_byte = range.offset, bytes = range.len, %why, "a part of a thin map is damaged and given up");
    }

    /// Gives up what is left of a list whose first page is damaged: what it names is never given back.
    pub(crate) async fn give_up_list(
        &mut self,
        layer: &Layer,
        list: &mut DeadList,
        why: &str,
    ) -> Result<(), PoolError> {
        tracing::error!(layer = %layer.id, entries = list.entries, %why, "a deadlist is damaged; what it lists stays taken");
        self.keep_leaked(layer, list.head, 0, (0, 0), list.entries);
        self.drop_tree_page(list.head).await?;
        *list = DeadList::default();
        Ok(())
    }

    fn keep_leaked(
        &self,
        layer: &Layer,
        page: PageNumber,
        level: u32,
        span: (u64, u64),
        blocks_at_most: u64,
    ) {
        let (volume, layer, page, (first, blocks)) = (layer.volume.id.0, layer.id.0, page.0, span);
        let key = format!("{:016x}-{page:010x}", self.first_without().0);
        let json = format!(
            r#"{{"version":1,"volume":{volume},"layer":{layer},"page":{page},"level":{level},"first_block":{first},"blocks":{blocks},"blocks_at_most":{blocks_at_most}}}"#
        );
        self.slice.metadata.catalog.put(LEAKED_OBJECT, &key, json.into_bytes());
        self.slice.requests.catalog_changed();
    }

    /// Takes over the references that a layer which is gone still counts: nobody can reach them.
    pub(crate) fn inherit_leaked(&self, layer: &Layer) {
        let owned = layer.owned_blocks.swap(0);
        if owned == 0 {
            return;
        }
        let references = self.slice.leaked().references + owned;
        let json = format!(r#"{{"version":1,"references":{references}}}"#);
        self.slice.metadata.catalog.put(LEAKED_OBJECT, REMOVED, json.into_bytes());
    }
}
