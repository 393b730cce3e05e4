//! The committer and its work: destage, checkpoints, cleaning, removal of what nobody uses any more.

mod block_table;
pub(crate) mod checkpoint;
mod chunk;
pub(crate) mod clean;
pub(crate) mod committer;
pub(crate) mod compose;
mod composed;
pub(crate) mod decide;
pub(crate) mod destage;
mod dropped;
pub(crate) mod figures;
mod flight;
pub(crate) mod flips;
pub(crate) mod gather;
mod in_vain;
mod lending;
pub(crate) mod publish;
pub(crate) mod remove;
pub(crate) mod requests;
mod retries;
pub(crate) mod slabs;
mod tree;
mod write_rows;
