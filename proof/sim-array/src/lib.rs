//! The array on a simulated world, seed by seed: hosts read and write volumes, administrators change them, and the
//! power fails at any moment.
//!
//! A seed decides drives, load, what administrators do and how each boot ends; [`run_seed`] runs it. What a host reads
//! is explained by the same history of sectors as in `quoin-sim`. Of what administrators change a model says:
//!
//! 1. What was acknowledged is there, also after a crash.
//! 2. What was not acknowledged took effect as a whole or not at all.
//! 3. Nothing else changes.
//! 4. From the moment a snapshot is retained, or a volume made a template, its content stays, byte by byte.
//! 5. A write to a thick volume is never refused for lack of space.
//! 6. A snapshot reserve deletes and stops only what it may, and says what it deleted.
//!
//! Runs the real `quoin-array`, `quoin-volume` and what is below them. Does not show: races between instructions of two
//! threads, front ends, failing drives.

mod admin;
mod boot;
#[cfg(feature = "planted-bugs")]
pub mod bugs;
mod catalog;
mod change;
mod episode;
mod groups;
mod host;
mod model;
mod moves;
mod reserve;
mod scenario;
mod schedule;
mod seed;
mod shared;
mod totals;
mod vol;

pub use seed::run_seed;
pub use totals::Totals;
