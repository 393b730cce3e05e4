//! The block device a front end serves.

use crate::{Instruments, Thresholds};
use quoin_base::{ByteRange, Extent};
use quoin_qos::Throttle;
use quoin_world::{Buf, Slice};
use std::{future::Future, sync::Arc};
use thiserror::Error;
use uuid::Uuid;

/// How much of a device's space is reserved for it (SBC-3 §4.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provisioning {
    /// Nothing: a write takes space that others may have taken.
    Thin,
    /// All of it, whether mapped or not: no write fails for lack of space.
    Resource,
}

/// What a front end has a device keep over a restart, and alone can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Who has reserved it.
    Reservations,
    /// How it is set, and whether its content is being erased.
    Settings,
}

/// A block device with no volatile write cache: a write or unmap that returned is hardened.
///
/// Ranges are multiples of [`BlockDevice::block_bytes`], except where bytes are said. Calls may run concurrently; of two that overlap in
/// time, either may come first. Must be called on a data thread.
pub trait BlockDevice: Send + Sync + 'static {
    /// What it held at one moment.
    type Image: Send + Sync + 'static;
    /// The identity hosts see, the same for the life of the volume.
    fn uuid(&self) -> Uuid;
    /// Its name.
    fn name(&self) -> String;
    /// Its size in bytes, a multiple of the logical block.
    fn size_bytes(&self) -> u64;
    /// Its logical block: 512 or 4096 bytes.
    fn block_bytes(&self) -> u32;
    /// How often its content was replaced: a host that saw it before sees another medium.
    fn contents(&self) -> u64 {
        0
    }
    /// Where a front end that serves it counts the requests of hosts; `None` if they are not counted.
    fn instruments(&self) -> Option<&Instruments> {
        None
    }
    /// The limits of what hosts may ask of it; `None` if it can have none. Front ends ask them before they take a request on.
    fn throttle(&self) -> Option<&Arc<Throttle>> {
        None
    }
    /// How much of its space is reserved for it.
    fn provisioning(&self) -> Provisioning {
        Provisioning::Thin
    }
    /// Whether it rejects all writes, whatever rights a host has on other devices.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Whether hosts may only read it, unless their mapping or export says that they may write.
    fn is_read_only_by_default(&self) -> bool {
        false
    }
    /// Thresholds of the space it shares with others, about which hosts are notified; `None` if there are none, or if
    /// it does not depend on that space.
    fn thresholds(&self) -> Option<&Thresholds> {
        None
    }
    /// What was kept last by [`BlockDevice::keep`].
    fn kept(&self, _what: Kept) -> Option<Vec<u8>> {
        None
    }
    /// Keeps what is to be known after a restart, hardened on return; `None`: nothing.
    fn keep(
        &self,
        what: Kept,
        bytes: Option<Vec<u8>>,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;
    /// Reads a range: the slices, one after the other, are its content. Unmapped blocks read as zeroes.
    fn read(&self, range: ByteRange) -> impl Future<Output = Result<Vec<Slice>, DeviceError>> + Send;
    /// Writes the slices one after the other from byte `offset` on. Each slice starts at a multiple of 512
    /// bytes in memory (as [`Slice`]s of a [`quoin_world::Buf`] cut at multiples of 512 do) and is a
    /// multiple of 512 bytes long.
    fn write(&self, offset: u64, data: Vec<Slice>) -> impl Future<Output = Result<(), DeviceError>> + Send;
    /// The same, for up to 128 KiB, all of it or nothing: whoever reads it, and whenever power fails.
    fn write_atomic(
        &self,
        offset: u64,
        data: Vec<Slice>,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;
    /// Shows `change` the bytes of a range, at most 1 MiB, and writes them as it leaves them if it returns true. Nobody else
    /// writes to the range meanwhile.
    fn modify(
        &self,
        range: ByteRange,
        change: impl FnOnce(&mut [u8]) -> bool + Send,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;
    /// Keeps what it holds in a range, which is not changed by what is written from now on, until the image is dropped.
    fn image(&self, range: ByteRange) -> impl Future<Output = Result<Arc<Self::Image>, DeviceError>> + Send;
    /// Gives the range from byte `to` on what an image, of itself or another device, holds in `from`: a range for which it was
    /// made. If it fails, a part may be copied.
    fn copy_from(
        &self,
        to: u64,
        image: &Self::Image,
        from: ByteRange,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;
    /// Writes any bytes, parts of logical blocks included. Whatever else is written to these blocks at the same time, by
    /// whichever front end, stays; a restore or refresh comes before or after it.
    fn write_bytes(&self, offset: u64, data: Buf) -> impl Future<Output = Result<(), DeviceError>> + Send;
    /// Makes a range read as zeroes and gives its space back.
    fn unmap(&self, range: ByteRange) -> impl Future<Output = Result<(), DeviceError>> + Send;
    /// Which parts of a range are mapped: at most `limit` extents, the first from the range's beginning on,
    /// each next one behind its predecessor and of the other kind. They may end before the range does, if it
    /// has more extents or takes long to look through; ask again from there. None if `range` is empty or `limit` is 0.
    fn allocation(
        &self,
        range: ByteRange,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Extent>, DeviceError>> + Send;
}

/// Why a block device refused or failed a request. The response to the host follows from the kind.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum DeviceError {
    /// The range is not inside the volume.
    #[error("range {offset}+{len} is outside volume {volume} of {size_bytes} bytes")]
    OutOfRange {
        /// The volume's name.
        volume: String,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// The volume's size.
        size_bytes: u64,
    },
    /// The pool has no space left for new data; the same request may succeed once space is freed.
    #[error("pool is full: volume {volume} cannot take new data; free or add capacity, then retry")]
    NoSpace {
        /// The volume's name.
        volume: String,
    },
    /// Its content was replaced while the request waited; nothing of it was written.
    #[error("the content of volume {volume} was replaced by a restore or refresh")]
    Replaced {
        /// The volume's name.
        volume: String,
    },
    /// The volume rejects all I/O until an administrator intervenes.
    #[error("volume {volume} is stopped: its snapshots hold more than the snapshot reserve")]
    Stopped {
        /// The volume's name.
        volume: String,
    },
    /// The volume rejects writes.
    #[error("volume {volume} is write-protected: a template, or an immutable snapshot")]
    ReadOnly {
        /// The volume's name.
        volume: String,
    },
    /// The data of this range cannot be read back correctly.
    #[error("unrecoverable data of volume {volume} at byte {offset}: {reason}")]
    Medium {
        /// The volume's name.
        volume: String,
        /// First byte that could not be read.
        offset: u64,
        /// What was found.
        reason: String,
    },
    /// The pool is offline; the same request may succeed once it is back.
    #[error("volume {volume} is offline: {reason}")]
    Offline {
        /// The volume's name.
        volume: String,
        /// Why.
        reason: String,
    },
    /// The volume was deleted.
    #[error("volume {volume} was deleted")]
    Deleted {
        /// The volume's name.
        volume: String,
    },
}
