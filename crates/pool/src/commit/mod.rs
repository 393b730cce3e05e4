//! The committer and its work: destage, checkpoints, cleaning, removal of what nobody uses any more.

pub(crate) mod checkpoint;
mod chunk;
pub(crate) mod clean;
pub(crate) mod committer;
pub(crate) mod compose;
pub(crate) mod decide;
pub(crate) mod destage;
pub(crate) mod figures;
mod flight;
pub(crate) mod gather;
pub(crate) mod publish;
pub(crate) mod remove;
pub(crate) mod requests;
pub(crate) mod slabs;
