//! The committer and its work: destage, checkpoints, cleaning, removal of what nobody uses any more.

mod block_numbers;
mod block_table;
pub(crate) mod checkpoint;
mod checkpoints;
mod chunk;
pub(crate) mod clean;
mod cleaning;
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
mod looks;
pub(crate) mod publish;
pub(crate) mod remove;
pub(crate) mod requests;
mod retries;
pub(crate) mod slabs;
mod tree;
mod write_rows;
