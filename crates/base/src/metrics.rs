//! Instruments cheap enough for the data path: counters, gauges and latency histograms.
//!
//! A layer owns its instruments in a struct of its own and hands out snapshots; names, labels and exposition are
//! the business of whoever shows them. Recording takes no lock and allocates nothing. Counters and histograms are kept
//! in several *shards*, each on cache lines of its own, and a thread always uses the same one, so that two data threads
//! do not pass a line to and fro.
//!
//! Everything is relaxed: a snapshot taken while others record may lack what is recorded at that moment, and two
//! instruments may be one event apart. Counters only grow.

mod counter;
mod gauge;
mod histogram;
mod shard;

pub use counter::Counter;
pub use gauge::Gauge;
pub use histogram::{LatencyHistogram, LatencySnapshot};
