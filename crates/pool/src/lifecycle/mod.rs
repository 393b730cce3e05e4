//! A pool from its making to its end: creating, opening, options, memory, and what it reports of itself.

pub(crate) mod absence;
mod adding;
pub(crate) mod converting;
pub(crate) mod counters;
pub(crate) mod create;
mod dirty_limit;
pub(crate) mod evacuation;
pub(crate) mod growing;
pub(crate) mod layouts;
pub(crate) mod memory;
mod missing;
mod on_drives;
pub(crate) mod open;
pub(crate) mod options;
mod pledge;
pub(crate) mod pool;
pub(crate) mod protection;
pub(crate) mod recovered;
mod reduction;
mod report;
mod settling;
pub(crate) mod slice;
mod slowness;
pub(crate) mod spanning;
pub(crate) mod spare;
pub(crate) mod stats;
pub(crate) mod transactions;
