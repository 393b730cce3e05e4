//! The vocabulary every layer shares: identifiers, byte ranges, layouts, checksums and instruments that measure.
//!
//! Promises: each identifier is its own type, so that a block number is never passed where a segment is
//! meant; checksums are the ones named in the on-disk format. Does no I/O and knows no layer.

mod checksum;
mod compression;
mod id;
mod layout;
pub mod metrics;
mod range;

pub use checksum::{Crc32c, Crc64, crc32c, crc64};
pub use compression::{Compression, NoCompression};
pub use id::{
    BlockIndex, BlockNumber, CheckpointGeneration, DriveId, DriveIndex, Epoch, GrantGeneration, HolderId,
    LabelGeneration, LayerId, MembersGeneration, PageNumber, PoolId, SegmentGeneration, SegmentId, Sequence,
    SliceId, VolumeId,
};
pub use layout::{Layout, NoLayout};
pub use range::{ByteRange, Extent};

/// Bytes in one KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in one MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in one GiB.
pub const GIB: u64 = 1 << 30;
/// The unit in which hosts and the journal address volumes: one 512-byte sector.
pub const SECTOR_BYTES: u64 = 512;
