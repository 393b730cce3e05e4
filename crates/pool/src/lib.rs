//! The engine of a pool: journal, write buffer, committer, segments and metadata, in one log-structured whole.
//!
//! Promises: a write, unmap or catalog transaction that returned survives any crash; reads return what was
//! last acknowledged, or an error, never something else; a full pool refuses new data and nothing else;
//! nothing that the last durable checkpoint refers to is overwritten. A volume here is a bare address space
//! of blocks: names, sizes and identities belong to the layers above, which keep them in the catalog.
//!
//! Does not: protect from the loss of a drive (the layout is
//! `none` so far: one failed drive takes the pool offline until the drive is back).
//!
//! Assumes of drives: a durable write or a flush that returned means it; other writes may be lost or torn by
//! a power failure. `docs/architecture.md` tells how it works, `docs/format.md` what lies on the drives.

mod allocation;
mod blocks;
mod buffer;
pub mod bugs;
mod cache;
mod check;
mod checkpoint;
mod clean;
mod committer;
mod compose;
mod copy;
mod create;
mod damage;
mod deadlist;
mod destage;
mod discard;
mod error;
mod families;
mod fork;
mod format;
mod freed;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod health;
mod held;
mod journal;
mod layer;
mod layers;
mod memory;
mod meta;
#[cfg(all(test, feature = "shuttle", feature = "planted-bugs"))]
mod models;
mod open;
mod options;
mod pace;
mod pool;
mod quarantine;
mod read;
mod readers;
mod received;
mod remove;
mod reserve;
mod roots;
mod rows;
mod scrub;
mod segment_io;
mod shortage;
mod space;
mod space_report;
mod stalls;
mod stats;
mod tail;
mod tree;
mod write;

pub use check::{CheckReport, MAX_PROBLEMS, Problem, check, read_catalog};
pub use create::format;
pub use damage::Damage;
pub use error::PoolError;
pub use health::PoolState;
pub use memory::MemoryShares;
pub use meta::{ObjectKind, Transaction};
pub use options::{FormatOptions, PoolOptions};
pub use pool::Pool;
pub use scrub::{Scrub, ScrubCounts, ScrubPosition};
pub use space_report::{PoolSpace, VolumeSpace};
pub use stats::{PoolStats, RecoveryStats, Removal, VolumeStats};
