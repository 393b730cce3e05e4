//! What data of a user's would take on an array: read from files, directories and devices as they are, without an array.
//!
//! 1. What is estimated is only read, never written or changed.
//! 2. RAM is bounded, however much is read, but for some 250 bytes for each file: of each block size a fixed number of fingerprints
//!    is kept, those with the smallest values, which are a fair sample of all that there are. The same holds for blocks that are
//!    compressed.
//! 3. What is exact and what is a sample is told: see [`Estimate::is_exact`] and [`Reduced::unique_blocks`].

mod error;
mod extents;
mod find;
mod options;
mod page;
mod progress;
mod reduced;
mod report;
mod scan;
mod seen;

/// Which volumes store data so.
pub const WHICH_VOLUMES: &str =
    "Volumes with --compression and --dedup on store data so, in blocks of 8 KiB; all others as it is.";
/// What needs space besides.
pub const BESIDE: &str = "The journal, the reserve and room to grow come on top.";

pub use error::EstimateError;
pub use find::Skipped;
pub use options::EstimateOptions;
pub use page::page;
pub use progress::Progress;
pub use reduced::{Dedup, Laid, Range, Reduced};
pub use report::{Estimate, Scope};
pub use scan::estimate;
