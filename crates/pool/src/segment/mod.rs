//! Rows of open segments, reading what a location names, mending it, and the reader epochs that say when a place may be used again.

pub(crate) mod io;
pub(crate) mod mend;
pub(crate) mod opened;
pub(crate) mod packed;
pub(crate) mod placed_block;
pub(crate) mod readers;
pub(crate) mod rows;
pub(crate) mod runs;
pub(crate) mod segments;
mod table;
pub(crate) mod writers;
