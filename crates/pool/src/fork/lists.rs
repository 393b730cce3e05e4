//! What a layer lists: blocks of its ancestors that are not in its map any more.

use quoin_base::{LayerId, PageNumber};
use std::{collections::BTreeMap, mem};

/// A list of entries in pages of the page space of the trees, the page written last first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadList {
    /// 0: the list is empty.
    pub head: PageNumber,
    pub entries: u64,
}

impl DeadList {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == PageNumber(0)
    }
}

/// What a layer lists, for the committer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// What its ancestors own, was there at the fork, and is not in its map any more.
    pub dead: DeadList,
    /// How many blocks of the list `dead` each ancestor owns.
    pub dead_blocks: BTreeMap<LayerId, u64>,
    /// What was listed as dead before its parent became a part of it, and has yet to be looked through.
    pub sifting: DeadList,
    /// How many of these blocks each layer owns. No map leads to those that this layer owns itself.
    pub sifting_blocks: BTreeMap<LayerId, u64>,
}

impl Lists {
    /// How many blocks of this ancestor are not in the map any more.
    pub(crate) fn dropped(&self, ancestor: LayerId) -> u64 {
        let of = |blocks: &BTreeMap<LayerId, u64>| blocks.get(&ancestor).copied().unwrap_or(0);
        of(&self.dead_blocks) + of(&self.sifting_blocks)
    }

    /// Whether it counts blocks that this layer owns.
    pub(crate) fn names(&self, owner: LayerId) -> bool {
        self.dead_blocks.contains_key(&owner) || self.sifting_blocks.contains_key(&owner)
    }

    /// Counts what one layer owned as another's.
    pub(crate) fn rename(&mut self, from: LayerId, to: LayerId) {
        for blocks in [&mut self.dead_blocks, &mut self.sifting_blocks] {
            if let Some(moved) = blocks.remove(&from) {
                *blocks.entry(to).or_default() += moved;
            }
        }
    }

    /// Takes over what its parent listed, which becomes a part of it. What it listed itself has to be looked through: blocks that
    /// the parent owned are its own now, and nobody else has them.
    pub(crate) fn inherit(&mut self, parents: Lists) {
        assert!(
            self.sifting.is_empty() && parents.sifting.is_empty(),
            "lists are looked through before layers become one"
        );
        self.sifting = mem::replace(&mut self.dead, parents.dead);
        self.sifting_blocks = mem::replace(&mut self.dead_blocks, parents.dead_blocks);
    }

    /// Forgets what is to be looked through: what a planted bug does.
    pub(crate) fn sift_nothing(&mut self) {
        self.sifting = DeadList::default();
        self.sifting_blocks.clear();
    }

    /// Notes that a block of this owner was looked through.
    pub(crate) fn sifted(&mut self, owner: LayerId) {
        if let Some(blocks) = self.sifting_blocks.get_mut(&owner) {
            *blocks = blocks.saturating_sub(1);
        }
    }
}
