//! A world that is one number: from its seed follow the order in which tasks run, how long each disk
//! operation takes, which ones fail, and what a power cut leaves on the drives.
//!
//! ```
//! # use quoin_world_sim::{SimOptions, SimWorld};
//! # use quoin_world::{Buf, Disk, DiskOp, Slice};
//! let world = SimWorld::new(7, SimOptions::default());
//! let disk = world.disk("drive-0", 1 << 30);
//! let write = DiskOp::Write { offset: 0, data: vec![Slice::copy_of(&[1; 4096])], durable: true };
//! world.run({ let disk = disk.clone(); async move { disk.submit(write).await } }).unwrap().unwrap();
//! world.crash();
//! let read = DiskOp::Read { offset: 0, buf: Buf::zeroed(4096) };
//! let after = world.run(async move { disk.submit(read).await }).unwrap().unwrap();
//! assert_eq!(after[0], 1);
//! ```
//!
//! Promises: the same seed, options and code give the same run, shown by [`SimWorld::trace_hash`]; a future
//! is polled only as its thread, never two at once; breaking a rule of [`Disk`] panics.
//!
//! Its network is pairs of streams of bytes, which delay and split what is sent, and can be cut ([`SimWorld::link`]).
//!
//! Does not: run threads in parallel (races between instructions of two threads are not seen). Assumes of engines:
//! all their nondeterminism comes through [`World`](quoin_world::World).

mod disk;
mod executor;
mod fault;
mod medium;
mod net;
mod trace;
mod truth;

use quoin_world::Disk;

pub use disk::SimDisk;
pub use executor::{PowerCut, SimOptions, SimWorld, Stopped};
pub use fault::{FaultPlan, Injected};
pub use medium::Image;
pub use net::{Cut, LinkPlan, LinkSwitch, SimStream};
