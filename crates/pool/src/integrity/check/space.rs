//! The check of what is reported of space: who reaches each block is found by walking all maps from their roots, each
//! node once for all that share it, and what follows from that is compared with what is reckoned from the counts.

use super::{CheckReport, Walk};
use crate::{
    fork::layers::Layers,
    format::{TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    maps::tree::node,
    meta::{CatalogImage, LayerImage},
    space::report::VolumeSpace,
};
use hashbrown::HashMap;
use quoin_base::{LayerId, PageNumber, VolumeId};
use rustc_hash::FxBuildHasher;
use std::collections::{BTreeMap, BTreeSet};

/// Which maps hold each reference to a block, as a sum of their layers' marks. What makes a reference is where it is and
/// what it says: the layer that owns it and the block.
type Reached = HashMap<(u64, ThinEntry), u64, FxBuildHasher>;

/// The nodes of one level that maps lead to, by number: the first block each maps, and which maps lead there, as
/// [`Reached`] has it.
type Nodes = BTreeMap<PageNumber, (u64, u64)>;

/// Stands for a layer in sums that tell sets of layers from each other.
fn mark(layer: LayerId) -> u64 {
    let mut mark = u64::from(layer.0).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mark = (mark ^ mark >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mark = (mark ^ mark >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mark ^ mark >> 31
}

/// The layers whose maps count: those of volumes, and those between that have two branches of volumes above them.
struct Standing<'a> {
    by_id: BTreeMap<LayerId, &'a LayerImage>,
    /// Of each layer, the nearest layers above it that stand, one for each branch.
    branches: BTreeMap<LayerId, Vec<LayerId>>,
}

impl<'a> Standing<'a> {
    fn of(image: &'a CatalogImage) -> Self {
        let parents_first = image.parents_first();
        let by_id = parents_first.iter().map(|layer| (layer.id, *layer)).collect();
        let mut branches: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
        for layer in parents_first.into_iter().rev() {
            let above = branches.get(&layer.id).map_or(0, Vec::len);
            let stands = if layer.is_leaf() || above > 1 {
                Some(layer.id)
            } else {
                branches.get(&layer.id).and_then(|above| above.first().copied())
            };
            if let Some(stands) = stands.filter(|_| layer.parent != LayerId(0)) {
                branches.entry(layer.parent).or_default().push(stands);
            }
        }
        Self { by_id, branches }
    }

    fn stands(&self, layer: &LayerImage) -> bool {
        layer.is_leaf() || self.branches.get(&layer.id).is_some_and(|above| above.len() > 1)
    }

    /// Where a layer's map begins.
    fn root(&self, layer: &LayerImage) -> ThinEntry {
        let mut at = layer;
        while at.pending {
            let Some(parent) = self.by_id.get(&at.parent) else { break };
            at = parent;
        }
        ThinEntry(at.root)
    }

    /// The layer below a volume that stands only because of it.
    fn stands_for(&self, leaf: &LayerImage) -> Option<LayerId> {
        let mut at = leaf;
        while let Some(parent) = self.by_id.get(&at.parent) {
            match self.branches.get(&parent.id).map_or(0, Vec::len) {
                0 | 1 => at = parent,
                2 => return Some(parent.id),
                _ => return None,
            }
        }
        None
    }
}

impl Walk<'_> {
    /// What is reported of each volume and of the pool.
    pub(super) async fn space(&mut self, block_bytes: u64) {
        let opened = self.opened;
        let layers = &opened.catalog.layers;
        let standing = Standing::of(&opened.catalog);
        let stand = || layers.iter().filter(|layer| standing.stands(layer));
        let roots = stand().map(|layer| (standing.root(layer), mark(layer.id)));
        let (reached_by, mapped) = self.reach(roots).await;
        let mapped_by = |entry: ThinEntry| entry.node().and_then(|root| mapped.get(&root)).copied();
        let written: BTreeMap<_, _> =
            stand().map(|layer| (layer.id, mapped_by(standing.root(layer)).unwrap_or(0))).collect();
        let mut sets: HashMap<u64, u64, FxBuildHasher> = HashMap::default();
        for set in reached_by.into_values() {
            *sets.entry(set).or_default() += 1;
        }
        let kept = Layers::from_image(&opened.catalog);
        let blocks_in = |set: u64| sets.get(&set).copied().unwrap_or(0);
        let mut all_written = 0;
        for leaf in layers.iter().filter(|layer| layer.is_leaf()) {
            let own = blocks_in(mark(leaf.id));
            let with_it = standing.stands_for(leaf).map_or(0, |below| {
                blocks_in(mark(below)) + blocks_in(mark(leaf.id).wrapping_add(mark(below)))
            });
            let reckoned = kept.space_of(&BTreeSet::from([leaf.volume]), block_bytes);
            let found = VolumeSpace {
                written_bytes: written.get(&leaf.id).copied().unwrap_or(0) * block_bytes,
                own_bytes: own * block_bytes,
                released_bytes: (own + with_it) * block_bytes,
                // At least: how many it lends at the most was looked at with the layers.
                freed_bytes: reckoned.freed_bytes,
            };
            all_written += found.written_bytes;
            let parent = standing.by_id.get(&leaf.parent);
            // What the layer below owns is the volume's alone then, and not counted so yet.
            let is_joining = parent.is_some_and(|parent| !standing.stands(parent));
            compare(self.report, leaf.volume, reckoned, found, is_joining);
            self.report.volume_space.insert(leaf.volume, found);
        }
        let space = kept.space(block_bytes);
        let unique = self.references.len() as u64 * block_bytes;
        for (what, reckoned, found) in
            [("written", space.written_bytes, all_written), ("unique", space.unique_bytes, unique)]
        {
            expect(self.report, "the space of the pool".into(), what, reckoned, found);
        }
        self.report.space = space;
    }

    /// Which maps hold each reference to a block, and how many blocks each node maps. A map is where it begins, and its mark.
    async fn reach(
        &self,
        maps: impl Iterator<Item = (ThinEntry, u64)>,
    ) -> (Reached, HashMap<PageNumber, u64, FxBuildHasher>) {
        let (mut reached_by, mut mapped) = (Reached::default(), HashMap::default());
        let mut inner = Vec::new();
        let mut nodes = Nodes::new();
        for (root, mark) in maps {
            lead_to(&mut nodes, root, 0, mark);
        }
        for level in (0..TREE_LEVELS).rev() {
            let mut below = Nodes::new();
            for (number, (first, marks)) in nodes {
                // What cannot be read was reported with the page map.
                let Ok(Some(page)) = self.opened.pages.get(node(number)).await else { continue };
                let entries = (0..TREE_FAN_OUT).map(|slot| (slot, ThinEntry(page.get(slot as usize))));
                let used = entries.filter(|(_, entry)| !entry.is_none());
                if level > 0 {
                    let children: Vec<_> = used.collect();
                    for (slot, entry) in &children {
                        lead_to(&mut below, *entry, first + slot * TREE_FAN_OUT.pow(level), marks);
                    }
                    inner.push((number, children));
                    continue;
                }
                let mut blocks = 0;
                for (slot, entry) in used {
                    blocks += 1;
                    let set = reached_by.entry((first + slot, entry)).or_default();
                    *set = set.wrapping_add(marks);
                }
                mapped.insert(number, blocks);
            }
            nodes = below;
        }
        for (number, children) in inner.into_iter().rev() {
            let mapped_by = |entry: ThinEntry| entry.node().and_then(|child| mapped.get(&child)).copied();
            let blocks = children.into_iter().filter_map(|(_, entry)| mapped_by(entry)).sum();
            mapped.insert(number, blocks);
        }
        (reached_by, mapped)
    }
}

/// Notes that maps lead to a node. Two ways of one map to a node were reported with the layers.
fn lead_to(nodes: &mut Nodes, entry: ThinEntry, first: u64, marks: u64) {
    let Some(number) = entry.node() else { return };
    let (_, sum) = nodes.entry(number).or_insert((first, 0));
    *sum = sum.wrapping_add(marks);
}

fn compare(
    report: &mut CheckReport,
    volume: VolumeId,
    reckoned: VolumeSpace,
    found: VolumeSpace,
    is_joining: bool,
) {
    let what = || format!("the space of volume {volume}");
    expect(report, what(), "written", reckoned.written_bytes, found.written_bytes);
    if !is_joining {
        expect(report, what(), "its own", reckoned.own_bytes, found.own_bytes);
    }
    expect(report, what(), "released by deleting it", reckoned.released_bytes, found.released_bytes);
}

fn expect(report: &mut CheckReport, what: String, figure: &str, reckoned: u64, found: u64) {
    if reckoned != found {
        let problem = format!("{reckoned} bytes would be reported as {figure}, and {found} are");
        report.add_unless_leaked(what, problem);
    }
}
