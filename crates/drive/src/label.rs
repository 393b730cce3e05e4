//! The label: who a drive is. 4 KiB, little-endian, kept twice.
//!
//! Magic, version and checksum have the same place in every version of the on-disk format, so that a drive of another one
//! is recognised and refused rather than taken for a damaged one.

use crate::{
    members::{MAX_MEMBERS, MEMBERS_OFFSETS},
    writer_session::{Fences, MAX_FENCES},
};
use quoin_base::{DriveId, DriveIndex, Epoch, HolderId, LabelGeneration, Layout, PoolId, SliceId, crc64};
use quoin_world::{Buf, DiskError, Slice};
use uuid::Uuid;
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

/// The on-disk format this code reads and writes.
pub const FORMAT_VERSION: u32 = 13;
/// Size of a label.
pub const LABEL_BYTES: usize = 4096;
/// Where the two copies of the label are.
pub const LABEL_OFFSETS: [u64; 2] = [0, 65536];
/// Size of a root slot.
pub const ROOT_BYTES: usize = 4096;
/// The most slices of a pool; so many have root slots.
pub const MAX_SLICES: u8 = 16;
/// The most drives that the same journal extent lies on.
pub const MOST_JOURNAL_COLUMNS: u8 = 4;
/// Where labels, root slots and the table of members end, and grant pages begin.
pub const HEAD_BYTES: u64 = (1 << 20) + (256 << 10);
/// Size of a grant page.
pub const GRANT_PAGE_BYTES: usize = 4096;
/// How many slabs a grant page tells of.
pub const SLABS_PER_GRANT_PAGE: u32 = 4032;

/// Where the first root slot is.
const ROOTS_START_BYTES: u64 = 131_072;
/// From one root slot to the next.
const ROOT_DISTANCE_BYTES: u64 = 28 << 10;
/// A drive has room for the grant pages of so many times its first slabs.
const GROWTH: u64 = 8;
/// What slab 0 begins at a multiple of.
const SLABS_START_UNIT_BYTES: u64 = 1 << 20;

const _: () = assert!(root_offset(SliceId(MAX_SLICES - 1), 1) + ROOT_BYTES as u64 <= MEMBERS_OFFSETS[0]);
const _: () = assert!(ROOT_DISTANCE_BYTES * MAX_SLICES as u64 >= 2 * 65536, "a slice's slots are far apart");

/// Where root slot `slot`, 0 or 1, of a slice is. The first slots of all slices come before the second ones.
pub const fn root_offset(slice: SliceId, slot: usize) -> u64 {
    ROOTS_START_BYTES + (slot as u64 * MAX_SLICES as u64 + slice.0 as u64) * ROOT_DISTANCE_BYTES
}

/// Where slab 0 begins on a new drive of this size with slabs of this size: behind both copies of its grant pages, and of those
/// that it needs when it has become several times as large.
pub fn slabs_start(len_bytes: u64, slab_bytes: u32) -> u64 {
    let most_slabs = len_bytes.saturating_sub(HEAD_BYTES) / u64::from(slab_bytes.max(1));
    let pages = GROWTH * most_slabs.div_ceil(SLABS_PER_GRANT_PAGE.into()).max(1);
    (HEAD_BYTES + 2 * pages * GRANT_PAGE_BYTES as u64).next_multiple_of(SLABS_START_UNIT_BYTES)
}

/// The longest name of a pool, in bytes of UTF-8.
pub const POOL_NAME_MAX_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"QUOINDRV";
const ROLE_JOURNAL: u32 = 1;
const ROLE_DATA: u32 = 2;
const CHECKSUM_OFFSET: usize = LABEL_BYTES - 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFence {
    holder: [u8; 16],
    lowest: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLabel {
    magic: [u8; 8],
    version: U32,
    index: U16,
    reserved0: U16,
    pool: [u8; 16],
    drive: [u8; 16],
    pool_name: [u8; POOL_NAME_MAX_BYTES],
    len_bytes: U64,
    slab_bytes: U32,
    row_bytes: U32,
    block_bytes: U32,
    journal_slabs: U32,
    epoch: U64,
    generation: U64,
    reserved1: U64,
    created_ms: U64,
    roles: U32,
    slices: U32,
    slabs_start: U64,
    journal_columns: U32,
    fences: U32,
    fence: [RawFence; MAX_FENCES],
    data_columns: u8,
    parity_columns: u8,
    reserved: [u8; 3126],
    checksum: U64,
}

const _: () = assert!(size_of::<RawLabel>() == LABEL_BYTES);
const _: () = assert!(std::mem::offset_of!(RawLabel, version) == 8);
const _: () = assert!(std::mem::offset_of!(RawLabel, roles) == 168);
const _: () = assert!(std::mem::offset_of!(RawLabel, slabs_start) == 176);
const _: () = assert!(std::mem::offset_of!(RawLabel, fence) == 192);
const _: () = assert!(std::mem::offset_of!(RawLabel, checksum) == CHECKSUM_OFFSET);

/// Epochs and generations stay below: one more of them never overflows.
pub(crate) const COUNTERS_END: u64 = 1 << 62;

/// What a drive is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roles {
    /// It holds journal extents.
    pub journal: bool,
    /// It holds segments.
    pub data: bool,
}

impl Roles {
    pub(crate) fn to_bits(self) -> u32 {
        u32::from(self.journal) * ROLE_JOURNAL + u32::from(self.data) * ROLE_DATA
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self { journal: bits & ROLE_JOURNAL != 0, data: bits & ROLE_DATA != 0 }
    }
}

/// Who a drive is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The pool it is part of.
    pub pool: PoolId,
    /// The pool's name, at most [`POOL_NAME_MAX_BYTES`].
    pub pool_name: String,
    /// The drive's own identity.
    pub drive: DriveId,
    /// Its number in the pool, which no other drive of it ever had or gets.
    pub index: DriveIndex,
    /// What it is used for.
    pub roles: Roles,
    /// Its size: what lies behind is not used. It grows, and never becomes less.
    pub len_bytes: u64,
    /// Size of a slab; a multiple of `row_bytes`.
    pub slab_bytes: u32,
    /// How much of a slab one row takes; a multiple of `block_bytes`.
    pub row_bytes: u32,
    /// The pool's block size; a multiple of 4096.
    pub block_bytes: u32,
    /// How many of its first slabs are journal extents; 0 without that role.
    pub journal_slabs: u32,
    /// Which writer sessions may write. The epoch is the highest owner's term that the drive has seen.
    pub fences: Fences,
    /// How many times the label was written.
    pub generation: LabelGeneration,
    /// When the drive was initialised, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// How many slices the pool has, at most [`MAX_SLICES`].
    pub slices: u8,
    /// Where slab 0 begins: behind the room for grant pages, see [`slabs_start`]. It stays there when the drive grows.
    pub slabs_start_bytes: u64,
    /// On how many drives each journal extent of the pool lies, at most [`MOST_JOURNAL_COLUMNS`].
    pub journal_columns: u8,
    /// How the pool protects what it has no other instruction for.
    pub layout: Layout,
}

/// What one copy of the label turned out to be.
pub(crate) enum Copy {
    Valid(Box<Label>),
    OtherVersion(u32),
    Damaged(String),
    Absent,
    /// The drive failed to read it.
    Unreadable(DiskError),
}

impl Label {
    /// The label in these bytes, if they are an intact copy of one. For looking at drives that nobody has opened.
    pub fn in_bytes(bytes: &[u8; LABEL_BYTES]) -> Option<Label> {
        match Self::decode(bytes) {
            Copy::Valid(label) => Some(*label),
            Copy::OtherVersion(_) | Copy::Damaged(_) | Copy::Absent | Copy::Unreadable(_) => None,
        }
    }

    /// The highest term of a pool's owner that the drive has seen.
    pub fn epoch(&self) -> Epoch {
        self.fences.epoch
    }

    /// Whole slabs in a drive of this label.
    pub fn slabs(&self) -> u32 {
        let slabs = self.len_bytes.saturating_sub(self.slabs_start_bytes) / u64::from(self.slab_bytes.max(1));
        u32::try_from(slabs).unwrap_or(u32::MAX)
    }

    /// Grant pages of a drive of this label, each of which it has twice.
    pub fn grant_pages(&self) -> u32 {
        self.slabs().div_ceil(SLABS_PER_GRANT_PAGE)
    }

    /// The most grant pages that there is room for, each twice.
    pub fn most_grant_pages(&self) -> u32 {
        let room = self.slabs_start_bytes.saturating_sub(HEAD_BYTES) / (2 * GRANT_PAGE_BYTES as u64);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// The most slabs that its grant pages can tell of, however long it becomes.
    pub fn most_slabs(&self) -> u32 {
        self.most_grant_pages().saturating_mul(SLABS_PER_GRANT_PAGE)
    }

    /// Where a copy, 0 or 1, of a grant page is: the room for first copies comes before that for second ones.
    pub fn grant_page_offset(&self, page: u32, copy: usize) -> u64 {
        let pages_before = copy as u64 * u64::from(self.most_grant_pages()) + u64::from(page);
        HEAD_BYTES + pages_before * GRANT_PAGE_BYTES as u64
    }

    /// Why no drive can have this label, if so.
    pub(crate) fn problem(&self) -> Option<String> {
        let unit = |name: &str, value: u32, of: u32| {
            (value == 0 || of == 0 || !value.is_multiple_of(of))
                .then(|| format!("{name} {value} is not a multiple of {of}"))
        };
        if self.pool_name.len() > POOL_NAME_MAX_BYTES || self.pool_name.contains('\0') {
            return Some(format!(
                "the pool's name takes more than {POOL_NAME_MAX_BYTES} bytes or holds a zero byte"
            ));
        }
        if usize::from(self.index.0) >= MAX_MEMBERS {
            return Some(format!("no pool has a drive with number {}", self.index));
        }
        if self.epoch().0 >= COUNTERS_END || self.generation.0 >= COUNTERS_END {
            return Some(format!("epoch {} or generation {} is impossible", self.epoch(), self.generation));
        }
        if self.journal_slabs > self.slabs() || self.roles.journal != (self.journal_slabs > 0) {
            return Some(format!(
                "{} of {} slabs as journal do not fit its role",
                self.journal_slabs,
                self.slabs()
            ));
        }
        if !(1..=MAX_SLICES).contains(&self.slices) {
            return Some(format!("{} slices are not from 1 to {MAX_SLICES}", self.slices));
        }
        if !(1..=MOST_JOURNAL_COLUMNS).contains(&self.journal_columns) {
            let columns = self.journal_columns;
            return Some(format!("{columns} journal columns are not from 1 to {MOST_JOURNAL_COLUMNS}"));
        }
        let start = self.slabs_start_bytes;
        if !start.is_multiple_of(SLABS_START_UNIT_BYTES) || self.grant_pages() > self.most_grant_pages() {
            return Some(format!("slabs that begin at byte {start} leave no room for its grant pages"));
        }
        unit("block size", self.block_bytes, 4096)
            .or_else(|| self.fences.problem())
            .or_else(|| unit("row size", self.row_bytes, self.block_bytes))
            .or_else(|| unit("slab size", self.slab_bytes, self.row_bytes))
    }

    /// The label as it is on a drive.
    pub(crate) fn encode(&self) -> Slice {
        let mut raw = RawLabel::new_zeroed();
        raw.magic = MAGIC;
        raw.version = FORMAT_VERSION.into();
        raw.index = self.index.0.into();
        raw.pool = *self.pool.0.as_bytes();
        raw.drive = *self.drive.0.as_bytes();
        raw.pool_name[..self.pool_name.len()].copy_from_slice(self.pool_name.as_bytes());
        raw.len_bytes = self.len_bytes.into();
        raw.slab_bytes = self.slab_bytes.into();
        raw.row_bytes = self.row_bytes.into();
        raw.block_bytes = self.block_bytes.into();
        raw.journal_slabs = self.journal_slabs.into();
        raw.epoch = self.epoch().0.into();
        raw.generation = self.generation.0.into();
        raw.created_ms = self.created_ms.into();
        raw.roles = self.roles.to_bits().into();
        raw.slices = u32::from(self.slices).into();
        raw.slabs_start = self.slabs_start_bytes.into();
        raw.journal_columns = u32::from(self.journal_columns).into();
        (raw.data_columns, raw.parity_columns) = (self.layout.data(), self.layout.parity());
        raw.fences = (self.fences.of.len() as u32).into();
        for (raw, (holder, lowest)) in raw.fence.iter_mut().zip(&self.fences.of) {
            *raw = RawFence { holder: *holder.0.as_bytes(), lowest: (*lowest).into() };
        }
        raw.checksum = crc64(&raw.as_bytes()[..CHECKSUM_OFFSET]).0.into();
        Buf::copy_of(raw.as_bytes()).into_slice()
    }

    /// Reads one copy. Any bytes of any length are fine.
    pub(crate) fn decode(bytes: &[u8]) -> Copy {
        let Ok((raw, _)) = RawLabel::ref_from_prefix(bytes) else { return Copy::Absent };
        if raw.magic != MAGIC {
            return Copy::Absent;
        }
        if raw.checksum.get() != crc64(&raw.as_bytes()[..CHECKSUM_OFFSET]).0 {
            return Copy::Damaged("its checksum does not match".into());
        }
        // Of another version only what all versions have in common is looked at.
        if raw.version.get() != FORMAT_VERSION {
            return Copy::OtherVersion(raw.version.get());
        }
        // The checksum tells that it was written so, not that it makes sense.
        let name_len = raw.pool_name.iter().position(|&b| b == 0).unwrap_or(POOL_NAME_MAX_BYTES);
        let Ok(pool_name) = std::str::from_utf8(&raw.pool_name[..name_len]) else {
            return Copy::Damaged("the pool's name is not UTF-8".into());
        };
        let Some(fenced) = raw.fence.get(..raw.fences.get() as usize) else {
            return Copy::Damaged("its fences are impossible".into());
        };
        let fence = |raw: &RawFence| (HolderId(Uuid::from_bytes(raw.holder)), raw.lowest.get());
        let fences = Fences { epoch: Epoch(raw.epoch.get()), of: fenced.iter().map(fence).collect() };
        let Some(layout) = Layout::of_columns((raw.data_columns, raw.parity_columns)) else {
            return Copy::Damaged(format!(
                "layout {}+{} is impossible",
                raw.data_columns, raw.parity_columns
            ));
        };
        let label = Label {
            pool: PoolId(Uuid::from_bytes(raw.pool)),
            pool_name: pool_name.to_owned(),
            drive: DriveId(Uuid::from_bytes(raw.drive)),
            index: DriveIndex(raw.index.get()),
            roles: Roles::from_bits(raw.roles.get()),
            len_bytes: raw.len_bytes.get(),
            slab_bytes: raw.slab_bytes.get(),
            row_bytes: raw.row_bytes.get(),
            block_bytes: raw.block_bytes.get(),
            journal_slabs: raw.journal_slabs.get(),
            fences,
            generation: LabelGeneration(raw.generation.get()),
            created_ms: raw.created_ms.get(),
            slices: u8::try_from(raw.slices.get()).unwrap_or(0),
            slabs_start_bytes: raw.slabs_start.get(),
            journal_columns: u8::try_from(raw.journal_columns.get()).unwrap_or(0),
            layout,
        };
        match label.problem() {
            None => Copy::Valid(Box::new(label)),
            Some(why) => Copy::Damaged(why),
        }
    }
}
