//! Names of blocks in the write buffer.

use quoin_base::{BlockIndex, LayerId};

/// A block of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    pub layer: LayerId,
    /// The layer's: blocks of all layers of a tree that have the same index are in one shard.
    pub family: LayerId,
    pub index: BlockIndex,
}

impl BlockKey {
    /// The block that is so many behind it.
    pub(crate) fn plus(self, blocks: u32) -> Self {
        Self { index: self.index.plus(blocks.into()), ..self }
    }
}
