//! The world on Linux: a thread per core, each with a single-threaded tokio runtime and an io_uring, and
//! disks that are files or block devices opened for direct I/O.
//!
//! Promises: a disk operation is submitted from and completed on the thread that asked for it, without
//! another thread; all operations that the ready tasks of one executor turn start go to the kernel in one
//! system call; a buffer lives until the kernel is done with it; one process has a disk open at a time.
//!
//! Does not: retry what a drive refuses, cache, or schedule between disks. Assumes of the kernel: io_uring
//! (5.19 or newer) and direct I/O on the file system of the disks.
//!
//! A panic in a spawned task ends the process: what the task left behind in shared state cannot be trusted,
//! and a restart recovers all that was acknowledged.

// The ring is shared memory with the kernel, which reads and writes buffers behind the compiler's back.
// It costs 4 µs of CPU per 8 KiB read where a thread pool's `pread` costs 15.
#![allow(unsafe_code)]

mod disk;
mod error;
mod huge_pages;
mod poll;
mod ring;
mod time_slice;
mod timer;
mod workers;
mod world;

pub use disk::{OpenOptions, open_disk};
pub use error::{OpenError, StartError};
pub use huge_pages::{HugePages, limit_huge_pages, reserve_huge_pages};
pub use world::{LinuxWorld, block_on};
