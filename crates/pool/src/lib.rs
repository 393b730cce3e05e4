//! The engine of a pool: slices, each a log with journal, write buffer, committer, segments and metadata of its own,
//! over the drives that they share. A pool has one slice so far.
//!
//! Promises: a write, unmap or catalog transaction that returned survives any crash; reads return what was
//! last acknowledged, or an error, never something else; a full pool refuses new data and nothing else;
//! nothing that the last durable checkpoint refers to is overwritten. A volume here is a bare address space
//! of blocks: names, sizes and identities belong to the layers above, which keep them in the catalog.
//!
//! Does not: fill what a drive that failed held on other drives. Where the layout does not survive a drive that fails, the
//! pool goes offline until the drive is back.
//!
//! Assumes of drives: a durable write or a flush that returned means it; other writes may be lost or torn by
//! a power failure. `docs/architecture.md` tells how it works, `docs/format.md` what lies on the drives.

mod buffer;
pub mod bugs;
mod commit;
mod error;
mod fork;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host;
mod integrity;
mod journal;
mod lifecycle;
mod maps;
mod meta;
#[cfg(all(test, feature = "shuttle", feature = "planted-bugs"))]
mod models;
mod segment;
mod space;
mod store;

pub use error::PoolError;
pub use integrity::{
    away::RangesAway,
    check::{CheckReport, MAX_PROBLEMS, Problem, check, read_catalog},
    damage::Damage,
    scrub::{Scrub, ScrubCounts, ScrubPosition},
};
pub use lifecycle::{
    create::{NewDrive, format},
    evacuation::{Balance, Evacuation, RebuildRate},
    growing::Growth,
    layouts::{LayoutUse, VolumeLayout},
    memory::MemoryShares,
    options::{FormatOptions, PoolOptions},
    pool::Pool,
    protection::{DriveSpace, Protection},
    reducing::Reduction,
    spare::Spare,
    stats::{PoolStats, RecoveryStats, Removal, SliceSpace, VolumeStats},
};
pub use meta::{ObjectKind, Transaction};
pub use quoin_stripe::{HedgedReads, Hedging};
pub use space::report::{PoolSpace, ReductionEstimate, VolumeSpace};
pub use store::{
    DriveExtent, DriveGrowth, DriveLen,
    health::PoolState,
    repairs::{RepairCounts, RepairKind},
};
