//! Segments over real drives on simulated disks.

use crate::*;
use quoin_base::{ByteRange, DriveId, DriveIndex, Epoch, PoolId};
use quoin_drive::{Drive, DriveError, Fences, Label, Roles, WriterSession};
use quoin_world::{Buf, Slice};
use quoin_world_sim::{FaultPlan, SimDisk, SimOptions, SimWorld};
use std::{future::Future, sync::Arc};
use uuid::Uuid;

#[cfg(feature = "planted-bugs")]
mod bugs;
mod faults;
mod hedge;
mod read;
mod repair;
mod speed;
mod sums;
mod write;

pub(crate) const STRIP: u32 = 8192;
const SLAB_BYTES: u32 = 512 << 10;
const LEN_BYTES: u64 = 4 << 20;
/// Of each drive, the slab that holds the column.
const SLAB: u32 = 2;

fn label(index: u16) -> Label {
    Label {
        pool: PoolId(Uuid::from_u128(7)),
        pool_name: "tank".into(),
        drive: DriveId(Uuid::from_u128(100 + u128::from(index))),
        index: DriveIndex(index),
        roles: Roles { journal: true, data: true },
        len_bytes: 0,
        slab_bytes: SLAB_BYTES,
        row_bytes: 256 << 10,
        block_bytes: 8192,
        journal_slabs: 2,
        fences: Fences { epoch: Epoch(1), of: Vec::new() },
        generation: quoin_base::LabelGeneration(0),
        created_ms: 1234,
        slices: 1,
        slabs_start_bytes: 0,
        journal_columns: 1,
        layout: quoin_base::Layout::NONE,
    }
}

/// A segment on as many drives as it has columns.
pub(crate) struct Rig {
    pub(crate) world: Arc<SimWorld>,
    pub(crate) disks: Vec<Arc<SimDisk>>,
    pub(crate) columns: Columns,
    pub(crate) set: StripeSet,
}

pub(crate) fn geometry(data: u8, parity: u8) -> Geometry {
    Geometry { data, parity, strip_bytes: STRIP, row_bytes: u32::from(data) * STRIP * 2 }
}

impl Rig {
    pub(crate) fn new(seed: u64, geometry: Geometry) -> Self {
        assert!(geometry.is_possible());
        let world = SimWorld::new(seed, SimOptions::default());
        let disks: Vec<_> =
            (0..geometry.columns()).map(|at| world.disk(&format!("d{at}"), LEN_BYTES)).collect();
        let blank = disks.clone();
        let format = async move {
            let mut drives = Vec::new();
            for (at, disk) in (0..).zip(blank) {
                let label = label(at);
                let session = WriterSession::unnamed(label.epoch());
                drives.push(Drive::format(disk, label, session).await.unwrap());
            }
            drives
        };
        let columns = Columns::new(world.run(format).unwrap());
        let places = (0..geometry.columns()).map(|at| Column { drive: DriveIndex(at as u16), slab: SLAB });
        let set = StripeSet::whole(geometry, places.collect());
        Self { world, disks, columns, set }
    }

    /// Runs what `work` makes of the columns and the segment.
    pub(crate) fn run<T, F>(&self, work: impl FnOnce(Columns, StripeSet) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.world.run(work(self.columns.clone(), self.set.clone())).unwrap()
    }

    pub(crate) fn write(&self, offset: u64, data: Vec<Slice>) -> Result<Written, StripeError> {
        self.run(|columns, set| async move { columns.write_row(&set, offset, data, true).await })
    }

    /// Fills the segment's first `rows` rows of its layout with what is returned.
    pub(crate) fn fill(&self, rows: usize) -> Vec<u8> {
        let bytes = content(rows * self.set.geometry.row_bytes as usize, self.world.seed());
        for (at, row) in bytes.chunks(self.set.geometry.row_bytes as usize).enumerate() {
            let offset = at as u64 * u64::from(self.set.geometry.row_bytes);
            assert!(self.write(offset, cut(row, 12288)).unwrap().failed.is_empty());
        }
        bytes
    }

    pub(crate) fn read(&self, range: ByteRange) -> Result<Buf, StripeError> {
        self.run(|columns, set| async move { columns.read(&set, range).await })
    }

    pub(crate) fn read_without(&self, range: ByteRange, without: ColumnSet) -> Result<Buf, StripeError> {
        self.run(|columns, set| async move {
            columns.read_without(&set, range, without).await.map(|read| read.content)
        })
    }

    pub(crate) fn verify(&self, column_range: ByteRange) -> Result<bool, StripeError> {
        self.run(|columns, set| async move { columns.verify(&set, column_range).await })
    }

    /// Takes the drive of a column away.
    pub(crate) fn remove(&mut self, column: usize) {
        let mut columns = self.set.columns.to_vec();
        columns[column].drive = DriveIndex(99);
        self.set.columns = columns.into();
    }

    pub(crate) fn miss(&mut self, column: usize) {
        self.set.missing = self.set.missing.with(ColumnSet::one(column));
    }

    /// Puts something else in the place of what a column holds.
    pub(crate) fn corrupt(&self, column: usize, range: ByteRange) {
        let mut bytes = self.peek(column, range.offset, range.len as usize);
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= (at * 31 % 255 + 1) as u8);
        self.disks[column].poke(self.on_disk(column, range.offset), &bytes);
    }

    /// How many reads each drive has answered.
    pub(crate) fn reads(&self) -> Vec<(u64, u64)> {
        let counters = (0..self.disks.len()).map(|column| self.drive(column).counters());
        counters.map(|counters| (counters.reads, counters.read_bytes)).collect()
    }

    pub(crate) fn drive(&self, column: usize) -> Arc<Drive> {
        self.columns.drive(DriveIndex(column as u16)).unwrap().clone()
    }

    /// What a column holds, straight from its disk.
    pub(crate) fn peek(&self, column: usize, offset: u64, len: usize) -> Vec<u8> {
        self.disks[column].peek(self.on_disk(column, offset), len)
    }

    pub(crate) fn on_disk(&self, column: usize, offset: u64) -> u64 {
        let start = self.drive(column).label().slabs_start_bytes;
        start + u64::from(SLAB) * u64::from(SLAB_BYTES) + offset
    }
}

/// Bytes that differ from place to place.
pub(crate) fn content(len: usize, salt: u64) -> Vec<u8> {
    let word = |at: u64| (at ^ salt << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    (0..len as u64 / 8).flat_map(|at| word(at).wrapping_mul(0xD6E8_FEB8_6659_FD93).to_le_bytes()).collect()
}

/// The same in slices that are cut without regard to strips.
pub(crate) fn cut(bytes: &[u8], piece: usize) -> Vec<Slice> {
    let whole = Buf::copy_of(bytes).into_slice();
    (0..bytes.len()).step_by(piece).map(|at| whole.slice(at..bytes.len().min(at + piece))).collect()
}
