//! The check of layers: what each owns is reached from its own map through nodes it owns, once; what it shares belongs
//! to its ancestors; what it lists as dead does too; and all of it is counted right.

use super::{CheckReport, Walk};
use crate::{
    fork::lists::DeadList,
    format::{DEAD_ENTRIES, Dead, TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    integrity::quarantine::LOST_NODE,
    maps::tree::node,
    meta::{CatalogImage, LayerImage, Page},
};
use hashbrown::{HashMap, HashSet};
use quoin_base::{BlockNumber, LayerId, PageNumber};
use rustc_hash::FxBuildHasher;
use std::{collections::BTreeMap, sync::Arc};

/// A node that a walk has been through.
struct Seen {
    entry: ThinEntry,
    level: u32,
    /// Blocks it leads to.
    mapped: u64,
}

/// A node that a walk is in.
struct Frame {
    entry: ThinEntry,
    level: u32,
    page: Arc<Page>,
    slot: usize,
    mapped: u64,
}

/// What was found of one layer.
#[derive(Default)]
struct Found {
    mapped: u64,
    /// Blocks it owns in its map.
    owned: u64,
    /// Blocks it owns and lists.
    listed: u64,
    /// Blocks it does not use any more of its ancestors'.
    dead: u64,
}

/// What was found of all layers so far, parents before their children.
#[derive(Default)]
pub(super) struct LayerWalk {
    nodes: HashMap<PageNumber, Seen, FxBuildHasher>,
    /// How many references each layer owns to each block that it owns.
    owners: HashMap<(BlockNumber, LayerId), u32, FxBuildHasher>,
    births: BTreeMap<LayerId, u64>,
    /// Nodes that cannot be read.
    unread: HashSet<PageNumber, FxBuildHasher>,
    mapped: BTreeMap<LayerId, u64>,
}

/// A layer with what it takes to look at it.
struct Subject<'a> {
    layer: &'a LayerImage,
    image: &'a CatalogImage,
    ancestors: Vec<LayerId>,
}

impl Subject<'_> {
    fn owner(&self, entry: ThinEntry) -> LayerId {
        let birth = entry.birth();
        self.image.aliases.get(&birth).map_or(birth, |alias| alias.owner)
    }

    fn is_own(&self, entry: ThinEntry) -> bool {
        self.owner(entry) == self.layer.id
    }

    fn name(&self) -> String {
        format!("layer {} of volume {}", self.layer.id, self.layer.volume)
    }
}

impl Walk<'_> {
    /// All layers.
    pub(super) async fn layers(&mut self) {
        let image = &self.opened.catalog;
        let by_id: BTreeMap<LayerId, &LayerImage> = image.layers.iter().map(|l| (l.id, l)).collect();
        let mut walk = LayerWalk::default();
        for layer in image.parents_first() {
            let parent = |layer: &&LayerImage| by_id.get(&layer.parent).copied();
            let ancestors = std::iter::successors(parent(&layer), parent).map(|layer| layer.id).collect();
            let subject = Subject { layer, image, ancestors };
            self.report.volumes += u64::from(layer.is_leaf());
            let mut found = Found::default();
            self.map(&subject, &mut walk, &mut found).await;
            self.list(&subject, &mut walk, &mut found, layer.lists.sifting, true).await;
            self.list(&subject, &mut walk, &mut found, layer.lists.dead, false).await;
            compare(self.report, &subject, &walk, &found);
            walk.mapped.insert(layer.id, found.mapped);
        }
        for layer in by_id.values() {
            expect(
                self.report,
                format!("layer {}", layer.id),
                "births",
                layer.births,
                walk.births.remove(&layer.id),
            );
        }
        for (id, alias) in &image.aliases {
            expect(self.report, format!("former layer {id}"), "births", alias.births, walk.births.remove(id));
        }
        for id in walk.births.keys() {
            self.report.add(format!("layer {id}"), "what it bore is in use, yet there is no such layer");
        }
        self.tree_pages.extend(walk.nodes.keys());
        self.loans.owners = walk.owners;
        let beyond_first: u64 = self.references.values().map(|count| u64::from(*count) - 1).sum();
        let copies = image.copies;
        expect(self.report, "the pool".into(), "references beyond the first", copies, Some(beyond_first));
    }

    /// The map of a layer, through the nodes that it owns.
    async fn map(&mut self, subject: &Subject<'_>, walk: &mut LayerWalk, found: &mut Found) {
        let mut frames: Vec<Frame> = Vec::new();
        let mut shared = HashSet::<PageNumber, FxBuildHasher>::default();
        let mut next =
            Some((ThinEntry(subject.layer.root), TREE_LEVELS - 1)).filter(|(root, _)| !root.is_none());
        loop {
            if let Some((entry, level)) = next.take() {
                match self.enter(subject, walk, &mut shared, entry, level).await {
                    Ok(frame) => frames.push(frame),
                    Err(mapped) => match frames.last_mut() {
                        Some(above) => above.mapped += mapped,
                        None => found.mapped += mapped,
                    },
                }
            }
            let Some(frame) = frames.last_mut() else { break };
            if frame.slot < TREE_FAN_OUT as usize {
                let entry = ThinEntry(frame.page.get(frame.slot));
                frame.slot += 1;
                if entry.0 == 0 {
                    continue;
                }
                match (entry.block(), frame.level.checked_sub(1)) {
                    (None, _) => self.report.add(subject.name(), "an entry of its map has no number"),
                    (Some(_), Some(below)) => next = Some((entry, below)),
                    (Some(block), None) => {
                        frame.mapped += 1;
                        self.entry(subject, walk, found, entry, block);
                    }
                }
                continue;
            }
            let Some(Frame { entry, level, mapped, .. }) = frames.pop() else { break };
            walk.nodes.insert(entry.node().unwrap_or_default(), Seen { entry, level, mapped });
            match frames.last_mut() {
                Some(above) => above.mapped += mapped,
                None => found.mapped += mapped,
            }
        }
    }

    /// Goes into a node that the layer owns; or what a node that it does not own maps.
    async fn enter(
        &mut self,
        subject: &Subject<'_>,
        walk: &mut LayerWalk,
        shared: &mut HashSet<PageNumber, FxBuildHasher>,
        entry: ThinEntry,
        level: u32,
    ) -> Result<Frame, u64> {
        let number = entry.node().unwrap_or_default();
        let what = format!("node {number} of {}", subject.name());
        if number == LOST_NODE {
            let why = "what was mapped there was lost with a damaged page; overwrite or unmap it";
            self.report.add(format!("a part of the map of {}", subject.name()), why);
            return Err(0);
        }
        if !subject.is_own(entry) {
            let seen = walk.nodes.get(&number).filter(|seen| seen.entry == entry && seen.level == level);
            if !subject.ancestors.contains(&subject.owner(entry))
                || seen.is_none() && !walk.unread.contains(&number)
            {
                self.report.add(what.clone(), "no layer that it comes from has such a node");
            }
            if !shared.insert(number) {
                self.report.add(what, "two places lead to it");
            }
            return Err(seen.map_or(0, |seen| seen.mapped));
        }
        if !self.tree_pages.insert(number) {
            self.report.add(what, "two places lead to it");
            return Err(0);
        }
        *walk.births.entry(entry.birth()).or_default() += 1;
        match self.opened.pages.get(node(number)).await {
            Ok(Some(page)) => Ok(Frame { entry, level, page, slot: 0, mapped: 0 }),
            Ok(None) => {
                walk.unread.insert(number);
                self.report.add(what, "it is missing; what it maps is lost");
                Err(0)
            }
            Err(_) => {
                // Reported with the page map.
                walk.unread.insert(number);
                Err(0)
            }
        }
    }

    fn entry(
        &mut self,
        subject: &Subject<'_>,
        walk: &mut LayerWalk,
        found: &mut Found,
        entry: ThinEntry,
        block: BlockNumber,
    ) {
        if subject.is_own(entry) {
            found.owned += 1;
            self.own_block(subject, walk, entry, block);
        } else if !walk.owners.contains_key(&(block, subject.owner(entry)))
            || !subject.ancestors.contains(&subject.owner(entry))
        {
            let why = "it is mapped, yet no layer that this one comes from owns it";
            self.report.add_unless_leaked(format!("block {block} of {}", subject.name()), why.into());
        }
    }

    fn own_block(
        &mut self,
        subject: &Subject<'_>,
        walk: &mut LayerWalk,
        entry: ThinEntry,
        block: BlockNumber,
    ) {
        *self.references.entry(block).or_default() += 1;
        *walk.births.entry(entry.birth()).or_default() += 1;
        *walk.owners.entry((block, subject.layer.id)).or_default() += 1;
    }

    /// An entry of a list that is still to be sifted, of what the layer owns itself: no map leads there any more.
    fn listed_own(
        &mut self,
        subject: &Subject<'_>,
        walk: &mut LayerWalk,
        found: &mut Found,
        entry: ThinEntry,
    ) {
        match entry.dead() {
            Dead::Page(number) => {
                self.tree_pages.insert(number);
                *walk.births.entry(entry.birth()).or_default() += 1;
            }
            Dead::Block(number) => {
                found.listed += 1;
                self.own_block(subject, walk, entry, number);
            }
        }
    }

    /// A list of a layer: of what is dead, or of what is still to be sifted.
    async fn list(
        &mut self,
        subject: &Subject<'_>,
        walk: &mut LayerWalk,
        found: &mut Found,
        list: DeadList,
        sifting: bool,
    ) {
        let what = format!("a deadlist of {}", subject.name());
        let (mut at, mut left) = (list.head, list.entries);
        let mut blocks: BTreeMap<LayerId, u64> = BTreeMap::new();
        let mut listed: HashMap<(Dead, LayerId), u32, FxBuildHasher> = HashMap::default();
        while at != PageNumber(0) {
            if !self.tree_pages.insert(at) {
                return self.report.add(what, format!("two places lead to its page {at}"));
            }
            let Ok(Some(page)) = self.opened.pages.get(node(at)).await else {
                return self.report.add(what, format!("its page {at} is missing; space is leaked"));
            };
            let count = (page.get(1) as usize).min(DEAD_ENTRIES);
            left = left.wrapping_sub(count as u64);
            for entry in (0..count).map(|i| ThinEntry(page.get(2 + i))) {
                let named = entry.dead();
                let is_page = matches!(named, Dead::Page(_));
                if !is_page {
                    *blocks.entry(subject.owner(entry)).or_default() += 1;
                }
                if sifting && subject.is_own(entry) {
                    self.listed_own(subject, walk, found, entry);
                    continue;
                }
                // The same block may be listed once for each of its references that the owner has.
                let owner = subject.owner(entry);
                let times = listed.entry((named, owner)).or_default();
                *times += 1;
                if !walk.is_there(named, owner, *times) || !subject.ancestors.contains(&owner) {
                    let why =
                        format!("it lists {named}, which no layer that this one comes from owns so often");
                    self.report.add_unless_leaked(what.clone(), why);
                }
                found.dead += u64::from(!is_page);
            }
            at = PageNumber(page.get(0));
        }
        if left != 0 {
            self.report.add_unless_leaked(
                what.clone(),
                format!("it is counted to have {} entries, {left} too many", list.entries),
            );
        }
        let lists = &subject.layer.lists;
        let mut counted = if sifting { lists.sifting_blocks.clone() } else { lists.dead_blocks.clone() };
        counted.retain(|_, blocks| *blocks > 0);
        if !subject.layer.gone && blocks != counted {
            let problem = format!("the blocks in it are counted as {counted:?} and are {blocks:?}");
            self.report.add_unless_leaked(what, problem);
        }
    }
}

impl LayerWalk {
    /// Whether the walk met what a list names, for the `times`th time: a block of this owner, or a page, which is there once.
    fn is_there(&self, named: Dead, owner: LayerId, times: u32) -> bool {
        match named {
            Dead::Page(page) => (self.nodes.contains_key(&page) || self.unread.contains(&page)) && times == 1,
            Dead::Block(number) => self.owners.get(&(number, owner)).is_some_and(|owned| *owned >= times),
        }
    }
}

fn compare(report: &mut CheckReport, subject: &Subject<'_>, walk: &LayerWalk, found: &Found) {
    let LayerImage { mapped_blocks, owned_blocks, gone, pending, parent, .. } = *subject.layer;
    let what = || subject.name();
    expect(report, what(), "owned blocks", owned_blocks, Some(found.owned + found.listed));
    report.missing_references += owned_blocks.saturating_sub(found.owned + found.listed);
    if gone || pending {
        return;
    }
    expect(report, what(), "mapped blocks", mapped_blocks, Some(found.mapped));
    // What the parent maps is used still, or listed.
    if let Some(&inherited) = walk.mapped.get(&parent) {
        let used = found.mapped - found.owned;
        if report.leaked.pages == 0 {
            expect(report, what(), "dead blocks", inherited.saturating_sub(used), Some(found.dead));
        }
    }
}

fn expect(report: &mut CheckReport, what: String, counted: &str, recorded: u64, found: Option<u64>) {
    let found = found.unwrap_or(0);
    let problem = || format!("it is recorded to have {recorded} {counted} and has {found}");
    report.expect(what, problem, recorded, found);
}
