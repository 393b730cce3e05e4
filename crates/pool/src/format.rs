//! Every structure the pool keeps on drives, little-endian. `docs/format.md` tells the same in prose.
//!
//! Sizes are asserted at compile time. Nothing here is trusted when it is read back: each structure carries
//! or is covered by a checksum, and the readers check it before they look at anything else.

use quoin_base::{BlockIndex, BlockNumber, Crc64, LayerId, MIB, crc64};
use quoin_drive::{GRANT_PAGE_BYTES, MOST_JOURNAL_COLUMNS, SLABS_PER_GRANT_PAGE};
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32, U64},
};

mod columns;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use columns::{ColumnEntry, NO_DRIVE};
pub(crate) use words::{BlockInfo, Dead, Location, References, SEGMENTS_END, ThinEntry};

/// The unit of metadata and of alignment on drives.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The block of a pool: the unit of mapping, checksums and reference counts.
pub(crate) const POOL_BLOCK_BYTES: u32 = 8192;
/// Writes are cut at multiples of this, so that each record is of one region.
pub(crate) const REGION_BYTES: u64 = MIB;
/// Blocks and pages lie at multiples of this in a segment's data, and are as long as multiples of it: see `quoin-reduction`, which
/// packs compressed blocks so.
pub(crate) const GRAIN_BYTES: u64 = 16;
/// 8-byte words in a metadata page.
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / 8;

pub(crate) const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"QUOINRT1");
pub(crate) const GRANT_MAGIC: u64 = u64::from_le_bytes(*b"QUOINGR1");
pub(crate) const EXTENT_MAGIC: u64 = u64::from_le_bytes(*b"QUOINJX1");
pub(crate) const BATCH_MAGIC: u64 = u64::from_le_bytes(*b"QUOINJB1");
pub(crate) const FOOTER_MAGIC: u64 = u64::from_le_bytes(*b"QUOINJF1");
pub(crate) const ROW_MAGIC: u64 = u64::from_le_bytes(*b"QUOINRW1");

/// Where a page lies and what it must hash to. All zeroes: the page does not exist and reads as zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MapEntry {
    pub location: U64,
    pub crc: U64,
}
const _: () = assert!(size_of::<MapEntry>() == 16);

/// Page spaces: each is an address space of metadata pages with a page map of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum PageSpace {
    /// Nodes of the volumes' thin maps.
    Tree = 0,
    /// The block table, 128 entries a page.
    Blocks = 1,
    /// The segment table, 16 entries a page. Its pages and those of its map lie in table slabs.
    Segments = 2,
    /// The catalog, records in pages.
    Catalog = 3,
    /// Block numbers that were dropped: a bit each.
    Dropped = 4,
}
pub(crate) const PAGE_SPACES: [PageSpace; 5] =
    [PageSpace::Tree, PageSpace::Blocks, PageSpace::Segments, PageSpace::Catalog, PageSpace::Dropped];

/// The root: the whole state of a slice hangs from it. Two slots a drive and slice, written alternately.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Root {
    pub magic: U64,
    pub version: U32,
    pub segments: U32,
    pub pool: [u8; 16],
    pub epoch: U64,
    /// Grows by one with every checkpoint; also the number by which freed things are quarantined.
    pub generation: U64,
    /// Records below this sequence are in the checkpoint.
    pub tail: U64,
    /// Sequence numbers from here on were not given out when the checkpoint was cut.
    pub next_sequence: U64,
    /// Of all spaces but the last.
    pub spaces: [MapEntry; 4],
    /// Page numbers of the page space of the trees from here on were never used.
    pub tree_end: U64,
    pub tree_free: U64,
    /// Block numbers from here on were never used. Number 0 is never used.
    pub blocks_end: U64,
    pub blocks_free: U64,
    /// Page numbers of the catalog are below.
    pub catalog_pages: U64,
    pub next_extent: U64,
    pub next_volume: U32,
    /// How many of `table` are used.
    pub table_slabs: U32,
    /// Where the segment table lies, which could not be found otherwise.
    pub table: [TableSlabEntry; MAX_TABLE_SLABS],
    /// Journal extents of lower numbers hold nothing that replay needs; 0: not recorded.
    pub first_extent: U64,
    /// 1: the pool was closed, and nothing was written after this root.
    pub closed: U32,
    /// The slice whose root it is.
    pub slice: U32,
    /// The fifth of the page spaces.
    pub dropped: MapEntry,
    /// How many block numbers were dropped and are not free in the block table yet.
    pub dropped_blocks: U64,
    /// The last catalog record of the journal that the catalog holds.
    pub applied: U64,
    /// References to blocks beyond the first of each.
    pub copies: U64,
    /// Records that the catalog's pages hold.
    pub catalog_records: U64,
    /// Layer ids from here on were not given out.
    pub next_layer: U32,
    /// So many pages of metadata may be dirty before a checkpoint is made, in force when it was written; 0: not recorded.
    pub dirty_pages: U32,
    /// Generation of the newest table of members whose losses the segment table knows.
    pub members: U64,
    /// What fingerprints are made with.
    pub fingerprint_key: [u8; 32],
    pub reserved1: [u8; 96],
    pub crc: U64,
}
/// The most table slabs of a slice.
pub(crate) const MAX_TABLE_SLABS: usize = 154;
const _: () = assert!(size_of::<Root>() == PAGE_BYTES);

/// Sequences, generations and extent numbers stay below: one more of them never overflows.
pub(crate) const COUNTERS_END: u64 = 1 << 62;

impl Root {
    /// Why no pool of `slabs` slabs of `slab_bytes` each can have this root, if so. No bound is tighter than what the
    /// committer keeps to by construction: an id of a segment is new only when all lower ones are in use, each with a
    /// slab of its own; the catalog lies in segments; what is free is counted once, when it comes free, and lies below
    /// the end. Pages beyond the end of their space are refused when they are loaded.
    pub(crate) fn problem(&self, slabs: u64, slab_bytes: u64) -> Option<&'static str> {
        let counters =
            [self.generation, self.tail, self.next_sequence, self.next_extent, self.first_extent, self.epoch];
        // Generously: it is for numbers that would take RAM without bound.
        let segments_end = 2 * slabs + 64;
        match () {
            () if counters.iter().any(|counter| counter.get() >= COUNTERS_END) => {
                Some("a counter is impossible")
            }
            () if self.table_slabs.get() as usize > MAX_TABLE_SLABS => Some("it names too many table slabs"),
            () if u64::from(self.segments.get()) > segments_end.min(SEGMENTS_END.into()) => {
                Some("it has more segments than slabs")
            }
            () if self.catalog_pages.get() > slabs * slab_bytes / PAGE_BYTES as u64 => {
                Some("its catalog is larger than the pool")
            }
            () if self.tree_end.get() > PAGES_END || self.tree_free.get() > self.tree_end.get() => {
                Some("its count of thin map pages is impossible")
            }
            () if self.blocks_end.get() > PAGES_END * BLOCKS_PER_PAGE
                || self.blocks_free.get() > self.blocks_end.get()
                || self.dropped_blocks.get() > self.blocks_end.get() =>
            {
                Some("its count of blocks is impossible")
            }
            () => None,
        }
    }

    /// Where the top map pages of the page spaces lie, in their order.
    pub(crate) fn page_maps(&self) -> [MapEntry; PAGE_SPACES.len()] {
        let [tree, blocks, segments, catalog] = self.spaces;
        [tree, blocks, segments, catalog, self.dropped]
    }

    pub(crate) fn set_page_maps(&mut self, maps: [MapEntry; PAGE_SPACES.len()]) {
        let [tree, blocks, segments, catalog, dropped] = maps;
        (self.spaces, self.dropped) = ([tree, blocks, segments, catalog], dropped);
    }

    /// By which of two roots the newer one is known: a root of an earlier owner is older, whatever its generation.
    pub(crate) fn age(&self) -> (u64, u64) {
        (self.epoch.get(), self.generation.get())
    }

    pub(crate) fn seal(&mut self) {
        let len = PAGE_BYTES - 8;
        self.crc = U64::new(crc64(&self.as_bytes()[..len]).0);
    }

    /// The root in these bytes, if they are one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Root> {
        let root = Root::read_from_bytes(bytes).ok()?;
        let ok = root.magic.get() == ROOT_MAGIC && crc64(&bytes[..PAGE_BYTES - 8]) == Crc64(root.crc.get());
        ok.then_some(root)
    }
}

/// Who holds which slabs of a drive.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct GrantPage {
    pub magic: U64,
    pub pool: [u8; 16],
    /// Index of the drive that it is about and on.
    pub drive: U16,
    pub reserved0: U16,
    /// Which page it is of its drive's.
    pub number: U32,
    pub epoch: U64,
    /// Grows with every change.
    pub generation: U64,
    pub reserved: U64,
    /// By slab: 0 nobody, n slice n - 1, 255 the store.
    pub holders: [u8; SLABS_PER_GRANT_PAGE as usize],
    pub crc: U64,
}
const _: () = assert!(size_of::<GrantPage>() == GRANT_PAGE_BYTES);

impl GrantPage {
    /// By which of two copies the newer one is known.
    pub(crate) fn age(&self) -> (u64, u64) {
        (self.epoch.get(), self.generation.get())
    }

    pub(crate) fn seal(&mut self) {
        self.crc = U64::new(crc64(&self.as_bytes()[..GRANT_PAGE_BYTES - 8]).0);
    }

    /// The page in these bytes, if they are one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<GrantPage> {
        let page = GrantPage::read_from_bytes(bytes).ok()?;
        let ok = page.magic.get() == GRANT_MAGIC
            && crc64(&bytes[..GRANT_PAGE_BYTES - 8]) == Crc64(page.crc.get())
            && page.generation.get() < COUNTERS_END;
        ok.then_some(page)
    }
}

/// The first page of a journal extent.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ExtentHeader {
    pub magic: U64,
    pub version: U32,
    pub lane: U32,
    pub pool: [u8; 16],
    pub epoch: U64,
    /// Unique for the life of the pool; grows.
    pub number: U64,
    /// Generation of the set of journal drives.
    pub set: U64,
    /// The lane's extent before this one in the same term, or 0.
    pub previous: U64,
    /// Batches in it.
    pub previous_batches: U32,
    pub reserved0: U32,
    /// The highest sequence in it.
    pub previous_last: U64,
    /// Byte of the extent at which its [`ExtentFooter`] is written when its lane goes on: the last page.
    pub footer: U64,
    /// How many slabs it lies on, each of a drive of its own. All hold the same.
    pub columns: U32,
    pub reserved1: U32,
    /// Which they are.
    pub slabs: [ExtentColumn; MOST_JOURNAL_COLUMNS as usize],
    pub reserved: [[u8; 120]; 33],
    pub crc: U64,
}
const _: () = assert!(size_of::<ExtentHeader>() == PAGE_BYTES);
const _: () = assert!(std::mem::offset_of!(ExtentHeader, slabs) == 96);

/// A slab that an extent lies on.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Default)]
#[repr(C)]
pub(crate) struct ExtentColumn {
    pub drive: U16,
    pub reserved: U16,
    pub slab: U32,
}
const _: () = assert!(size_of::<ExtentColumn>() == 8);

impl ExtentHeader {
    pub(crate) fn seal(&mut self) {
        self.crc = U64::new(crc64(&self.as_bytes()[..PAGE_BYTES - 8]).0);
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<ExtentHeader> {
        let header = ExtentHeader::read_from_bytes(bytes).ok()?;
        let ok =
            header.magic.get() == EXTENT_MAGIC && crc64(&bytes[..PAGE_BYTES - 8]) == Crc64(header.crc.get());
        ok.then_some(header)
    }
}

/// The last page of a journal extent that its lane has left. An index precedes it: the headers of all batches, in order and
/// without gaps, padded with zeroes to whole pages.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ExtentFooter {
    pub magic: U64,
    /// The extent's number: a footer of an earlier lap has another.
    pub extent: U64,
    /// CRC of the extent's header.
    pub tag: U64,
    /// The highest sequence in the extent.
    pub last: U64,
    /// Batches in the extent, all of them hardened.
    pub batches: U32,
    /// Bytes of the index without its padding.
    pub index_bytes: U32,
    pub reserved: [[u8; 253]; 16],
    pub crc: U64,
}
const _: () = assert!(size_of::<ExtentFooter>() == PAGE_BYTES);

impl ExtentFooter {
    pub(crate) fn seal(&mut self) {
        self.crc = U64::new(crc64(&self.as_bytes()[..PAGE_BYTES - 8]).0);
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<ExtentFooter> {
        let footer = ExtentFooter::read_from_bytes(bytes).ok()?;
        let ok =
            footer.magic.get() == FOOTER_MAGIC && crc64(&bytes[..PAGE_BYTES - 8]) == Crc64(footer.crc.get());
        ok.then_some(footer)
    }
}

/// The head of a batch: `records` record headers follow it, then their checksums, then, from the next
/// multiple of 4096 on, the payloads.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct BatchHeader {
    pub magic: U64,
    /// The extent's number: a batch of an earlier lap has another.
    pub extent: U64,
    pub index: U32,
    pub records: U32,
    /// Bytes of this header, the record headers and the checksums.
    pub meta_bytes: U32,
    /// Bytes to the next batch, a multiple of 4096.
    pub total_bytes: U32,
    /// [`BatchHeader::meta_crc`] of the batch before; the extent header's low CRC bits for the first.
    pub previous_crc: U32,
    /// CRC-32C of `meta_bytes` with this field zero.
    pub meta_crc: U32,
    pub epoch: U64,
    pub lane: U32,
    /// CRC of the extent's header: content that a host wrote and that looks like a batch has another.
    pub tag: U64,
    /// How many batches of the extent, from its first on, were hardened when this one was sent.
    pub hardened: U32,
}
const _: () = assert!(size_of::<BatchHeader>() == 64);

/// One record of the journal.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RecordHeader {
    pub sequence: U64,
    pub volume: U32,
    pub reserved0: U32,
    /// First sector of the volume.
    pub sector: U64,
    pub sectors: U32,
    pub kind: u8,
    pub flags: u8,
    /// How many checksums belong to it: one for each pool block its payload touches.
    pub crcs: U16,
    /// Where its payload begins, in bytes from the batch header.
    pub payload_offset: U32,
    /// Bytes of the payload, a multiple of 512; bytes that count for a catalog record are in `sector`.
    pub payload_bytes: U32,
    /// Of a copy: where its first block comes from, a [`CopySource`]. Of a placed write: where its first block lies.
    pub source: U64,
    pub metro_epoch: U64,
    pub metro_sequence: U64,
}
const _: () = assert!(size_of::<RecordHeader>() == 64);

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// The payload is now the content of the range.
    Write = 1,
    /// The range reads as zeroes.
    Unmap = 2,
    /// A catalog transaction.
    Catalog = 3,
    /// The content of the range lies in a row that was written at the same time: `source` is the [`Location`] of its first
    /// block, behind which the others follow.
    Placed = 4,
    /// The range's blocks are now those that a map leads to.
    Copy = 5,
    /// A segment was opened for placed rows: see [`OpenedSegment`].
    Segment = 6,
    /// All batches of the extent before this one are hardened. `sequence` is the highest of theirs.
    Watermark = 7,
}

impl RecordKind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Write),
            2 => Some(Self::Unmap),
            3 => Some(Self::Catalog),
            4 => Some(Self::Placed),
            5 => Some(Self::Copy),
            6 => Some(Self::Segment),
            7 => Some(Self::Watermark),
            _ => None,
        }
    }
}

/// A block of a layer, that is copied from for instance: index 40 bits, layer 24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopySource {
    pub layer: LayerId,
    pub index: BlockIndex,
}

impl CopySource {
    pub(crate) fn pack(self) -> u64 {
        self.index.0 | u64::from(self.layer.0) << 40
    }

    pub(crate) fn unpack(word: u64) -> Self {
        Self { layer: LayerId((word >> 40) as u32), index: BlockIndex(word & ((1 << 40) - 1)) }
    }

    /// The block that is so many behind it.
    pub(crate) fn plus(self, blocks: u64) -> Self {
        Self { index: self.index.plus(blocks), ..self }
    }
}

/// The head of a row: which blocks or pages it was written with, for the cleaner.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RowHeader {
    pub magic: U64,
    pub pool: [u8; 16],
    pub segment: U32,
    pub segment_generation: U32,
    /// Byte offset of the row in the segment's data.
    pub offset: U32,
    /// Bytes of the row, this header included.
    pub len_bytes: U32,
    pub count: U32,
    pub stream: u8,
    pub reserved: [u8; 11],
    pub crc: U64,
    pub contents: [RowContent; ROW_CONTENTS],
}
/// The most blocks or pages a row can hold.
pub(crate) const ROW_CONTENTS: usize = 252;
const _: () = assert!(size_of::<RowHeader>() == PAGE_BYTES);

/// A block or page that a row was written with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RowContent {
    /// A block number, or a packed page id in the metadata streams.
    pub name: U64,
    /// Of a block: the address that it was destaged for, a packed [`CopySource`]. A hint, by which the cleaner puts
    /// neighbours together: layers become parts of others, and a block may be mapped elsewhere too. 0 for a page.
    pub address: U64,
}
const _: () = assert!(size_of::<RowContent>() == 16);

impl RowContent {
    /// Of a metadata row.
    pub(crate) fn page(packed: u64) -> Self {
        Self { name: packed.into(), address: U64::ZERO }
    }

    /// Of a data row.
    pub(crate) fn block(number: BlockNumber, address: CopySource) -> Self {
        Self { name: number.0.into(), address: address.pack().into() }
    }

    /// The number of the block, in a data row.
    pub(crate) fn block_number(&self) -> BlockNumber {
        BlockNumber(self.name.get())
    }
}

impl RowHeader {
    fn digest(&self) -> u64 {
        let mut copy = *self;
        copy.crc = U64::ZERO;
        crc64(copy.as_bytes()).0
    }

    pub(crate) fn seal(&mut self) {
        self.crc = U64::new(self.digest());
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Box<RowHeader>> {
        let header = Box::new(RowHeader::read_from_bytes(bytes).ok()?);
        let ok = header.magic.get() == ROW_MAGIC
            && header.digest() == header.crc.get()
            && header.count.get() as usize <= ROW_CONTENTS;
        ok.then_some(header)
    }
}

/// One entry of the segment table.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SegmentEntry {
    pub state: u8,
    pub stream: u8,
    pub data: u8,
    pub parity: u8,
    pub row_bytes: U32,
    /// Grows each time the segment is opened.
    pub generation: U32,
    /// Grains of it that live blocks or pages take.
    pub live_grains: U32,
    /// Bytes of rows written.
    pub written_bytes: U64,
    /// Bit *n*: column *n* does not hold what it should.
    pub missing: U64,
    pub strip_bytes: U32,
    /// Generation of the first checkpoint with its last row.
    pub written_in: U32,
    /// Drive and slab of each column.
    pub columns: [ColumnEntry; MAX_COLUMNS],
    /// The layout that it was opened for, columns of data and of parity; 0 and 0: the pool's.
    pub layout: [u8; 2],
    /// How many live blocks or pages take these grains.
    pub live_contents: U32,
}
/// The most columns of a segment, those of parity included.
pub(crate) const MAX_COLUMNS: usize = 35;
/// A slab with pages of the segment table, in the root: the same pages in each column.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct TableSlabEntry {
    /// Behind the last that is used, those of drive [`NO_DRIVE`].
    pub columns: [ColumnEntry; 4],
}
const _: () = assert!(size_of::<SegmentEntry>() == 256);

/// Segment table entries in a page.
pub(crate) const SEGMENTS_PER_PAGE: usize = PAGE_BYTES / size_of::<SegmentEntry>();

/// Layer ids are below.
pub(crate) const LAYERS_END: u32 = 1 << 24;
/// An entry of a deadlist with this bit, which no block number has, names a page of the page space of the trees.
pub(crate) const DEAD_PAGE: u64 = 1 << 39;
/// Entries in a page of a deadlist, behind the number of the next page and their count.
pub(crate) const DEAD_ENTRIES: usize = PAGE_WORDS - 2;

/// Thin map entries in a leaf, and page numbers in a node above.
pub(crate) const TREE_FAN_OUT: u64 = PAGE_WORDS as u64;
/// Levels of a thin map, the leaves being level 0.
pub(crate) const TREE_LEVELS: u32 = 4;
/// Blocks that a thin map can address.
pub(crate) const MAX_BLOCKS: u64 = TREE_FAN_OUT.pow(TREE_LEVELS);
/// Entries of the block table in a page; an entry is four words.
pub(crate) const BLOCKS_PER_PAGE: u64 = (PAGE_WORDS / 4) as u64;
/// Entries of the page map in a page; an entry is two words.
pub(crate) const MAP_FAN_OUT: u64 = (PAGE_WORDS / 2) as u64;
/// Levels of the page map above the pages it maps: 2^32 pages a space.
pub(crate) const MAP_LEVELS: u8 = 4;
/// Page numbers of a space are below.
pub(crate) const PAGES_END: u64 = MAP_FAN_OUT.pow(MAP_LEVELS as u32);

/// The head of a piece of a catalog record. In a page of the catalog follow: how many pieces (2), then for each its head and
/// its content, then zeroes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PieceHead {
    /// The same for all pieces of a record, and for no others of the checkpoint.
    pub record: U32,
    /// Which piece it is.
    pub piece: U16,
    /// How many the record has: all but the last fill a page.
    pub pieces: U16,
    pub len_bytes: U16,
}
/// Bytes of a [`PieceHead`], and of what is before the first in a page.
pub(crate) const PIECE_HEAD_BYTES: usize = size_of::<PieceHead>();
pub(crate) const RECORD_PAGE_HEAD_BYTES: usize = 2;
const _: () = assert!(PIECE_HEAD_BYTES == 10);

/// A zeroed structure to fill in.
pub(crate) fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}
