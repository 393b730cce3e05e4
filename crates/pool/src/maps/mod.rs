//! Where blocks are: thin maps, the block table, and page numbers that came free.

pub(crate) mod blocks;
pub(crate) mod dropped;
pub(crate) mod fingerprints;
pub(crate) mod freed;
pub(crate) mod numbers;
pub(crate) mod tree;
pub(crate) mod tree_numbers;
