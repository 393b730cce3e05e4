//! The limits of volumes, groups and copies that errors and documents name.

use quoin_base::GIB;

/// The largest volume: 64 TiB.
pub const MAX_SIZE_BYTES: u64 = 64 * 1024 * GIB;
/// The most volumes of a group.
pub const MEMBERS_MAX: usize = 64;
/// How many copies there may be at a time.
pub const COPIES_MAX: usize = 8;
