//! The check of loans: who bears a block alone is known, and of each layer as many references count as lent as are.

use super::Walk;
use crate::{format::BlockInfo, meta::CatalogImage};
use hashbrown::{HashMap, HashSet};
use quoin_base::{BlockNumber, LayerId};
use rustc_hash::FxBuildHasher;
use std::collections::BTreeMap;

/// What was found of the references to blocks.
#[derive(Default)]
pub(super) struct Loans {
    /// How many references each layer owns to each block that it owns.
    pub owners: HashMap<(BlockNumber, LayerId), u32, FxBuildHasher>,
    /// Blocks whose references count as lent.
    lent: HashSet<BlockNumber, FxBuildHasher>,
}

impl Loans {
    /// Notes what the block table says of a block in use. The reason if somebody else bears it.
    pub(super) fn note(
        &mut self,
        number: BlockNumber,
        info: BlockInfo,
        catalog: &CatalogImage,
    ) -> Option<String> {
        let Some(bearer) = info.bearer() else {
            self.lent.insert(number);
            return None;
        };
        let owner = catalog.aliases.get(&bearer).map_or(bearer, |alias| alias.owner);
        let owned = self.owners.get(&(number, owner)).copied().unwrap_or(0);
        (owned != 1).then(|| {
            format!("layer {owner} is recorded to have its only reference and has {owned} references")
        })
    }
}

impl Walk<'_> {
    /// That as many of each layer's references count as lent as are. Where pages are damaged more may count.
    pub(super) fn loans(&mut self) {
        let mut lent: BTreeMap<LayerId, u64> = BTreeMap::new();
        for ((block, owner), references) in &self.loans.owners {
            if self.loans.lent.contains(block) {
                *lent.entry(*owner).or_default() += u64::from(*references);
            }
        }
        let is_sound = self.report.leaked.pages == 0 && self.report.problems.is_empty();
        for layer in &self.opened.catalog.layers {
            let (counted, found) = (layer.lent_blocks, lent.get(&layer.id).copied().unwrap_or(0));
            if found > counted || is_sound && found < counted {
                let problem = format!("it is recorded to share {counted} blocks and shares {found}");
                self.report.add(format!("layer {} of volume {}", layer.id, layer.volume), problem);
            }
        }
    }
}
