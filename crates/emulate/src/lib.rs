//! Emulated drives: any [`Disk`](quoin_world::Disk) with the service times and the queue of another drive, and with faults
//! on command. So many drives of any speed fit on one machine.
//!
//! Promises: the content is that of the disk below, byte for byte; an operation completes when the disk below has
//! completed it and the model says so, whichever is later; on a disk below that is fast enough, rates and latencies are
//! those of the [`Emulation`], within a few percent; the same operations at the same times take the same time; an idle
//! drive takes no CPU; an emulated drive in a simulated world is as deterministic as that world.
//!
//! Does not: model caches of the drive, the order in which a drive's own queue would be worked off, garbage collection
//! of flash, or the way across a platter. Assumes of the world: [`World::sleep_precisely`](quoin_world::World) is about as
//! exact as the latencies asked for.

mod corrupt;
mod drive;
mod emulation;
mod error;
mod model;
mod opening;
mod ram;

pub use corrupt::Corruption;
pub use drive::{Condition, DriveState, EmulatedDrive};
pub use emulation::{Emulation, Milliseconds, Technology};
pub use error::EmulateError;
pub use ram::RamDisk;

#[cfg(test)]
mod tests;
