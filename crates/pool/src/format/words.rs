//! Words that name something: a place in a segment, an entry of a thin map, what the block table says of a block.

use super::{DEAD_PAGE, GRAIN_BYTES, LAYERS_END, PAGE_BYTES, POOL_BLOCK_BYTES};
use quoin_base::{BlockNumber, ByteRange, LayerId, PageNumber, SegmentId, crc32c};
use std::fmt;

/// Bits of a location: of the length, of the offset, and what is left of the segment.
const LEN_BITS: u32 = 10;
const OFFSET_BITS: u32 = 27;
const SEGMENT_BITS: u32 = u64::BITS - OFFSET_BITS - LEN_BITS;
/// Locations of a segment number from here on are in table slabs.
const TABLE_SLABS: u32 = 1 << (SEGMENT_BITS - 1);
/// Numbers of segments are below.
pub(crate) const SEGMENTS_END: u32 = TABLE_SLABS;
const _: () = assert!(POOL_BLOCK_BYTES as u64 <= GRAIN_BYTES << LEN_BITS, "a block has a location");

/// Where a block or page lies: segment 27 bits, offset within the segment's data 27, length less one 10, both in grains of 16
/// bytes. Segment 0 is never used, so that 0 means "nowhere".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub(crate) struct Location(pub u64);

impl Location {
    pub(crate) fn new(segment: SegmentId, offset_bytes: u64, len_bytes: usize) -> Self {
        let (offset, len) = (offset_bytes / GRAIN_BYTES, len_bytes as u64 / GRAIN_BYTES);
        assert!(
            offset < 1 << OFFSET_BITS
                && (1..=1 << LEN_BITS).contains(&len)
                && (1..2 * SEGMENTS_END).contains(&segment.0)
                && offset_bytes.is_multiple_of(GRAIN_BYTES)
                && (len_bytes as u64).is_multiple_of(GRAIN_BYTES),
            "no location has {len_bytes} bytes from {offset_bytes} of segment {segment} on"
        );
        Self(u64::from(segment.0) << (OFFSET_BITS + LEN_BITS) | offset << LEN_BITS | (len - 1))
    }

    /// A page of a table slab, by its position in the root's list, from 1 on.
    pub(crate) fn in_table_slab(number: u32, page: u64) -> Self {
        Self::new(SegmentId(TABLE_SLABS | number), page * PAGE_BYTES as u64, PAGE_BYTES)
    }

    /// The number of the table slab that it is in; `None` if it is in a segment.
    pub(crate) fn table_slab(self) -> Option<u32> {
        let number = self.segment().0;
        (number & TABLE_SLABS != 0).then_some(number & !TABLE_SLABS)
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn segment(self) -> SegmentId {
        SegmentId((self.0 >> (OFFSET_BITS + LEN_BITS)) as u32)
    }

    pub(crate) fn offset_bytes(self) -> u64 {
        (self.0 >> LEN_BITS & ((1 << OFFSET_BITS) - 1)) * GRAIN_BYTES
    }

    /// Its length in grains.
    pub(crate) fn grains(self) -> u32 {
        (self.0 & ((1 << LEN_BITS) - 1)) as u32 + 1
    }

    /// What it counts in its segment, in grains: its length, and what names it in the head of its row. That is reckoned with only
    /// for what is not whole pages: rows of whole pages are so long that their heads are next to nothing.
    pub(crate) fn counted_grains(self) -> u32 {
        self.grains() + u32::from(!self.len_bytes().is_multiple_of(PAGE_BYTES as u64))
    }

    /// The bytes of its segment's data that it names.
    pub(crate) fn range(self) -> ByteRange {
        ByteRange::new(self.offset_bytes(), self.len_bytes())
    }

    /// The place of the same length that is so many of them behind it.
    pub(crate) fn plus(self, count: u64) -> Self {
        let offset = self.offset_bytes() + count * self.len_bytes();
        Self::new(self.segment(), offset, self.len_bytes() as usize)
    }

    /// Whether a place of the same length begins where it ends.
    pub(crate) fn is_followed_by(self, next: Self) -> bool {
        next.segment() == self.segment()
            && next.grains() == self.grains()
            && next.offset_bytes() == self.offset_bytes() + self.len_bytes()
    }

    pub(crate) fn len_bytes(self) -> u64 {
        u64::from(self.grains()) * GRAIN_BYTES
    }
}

/// An entry of a thin map: number 40 bits, birth 24. The number is that of a block in a leaf, of a page of the tree
/// space above and in a layer's root; the birth is the layer that made the mapping or the page. 0: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord, Hash)]
pub(crate) struct ThinEntry(pub u64);

impl ThinEntry {
    /// Leads to a block: in a leaf, or in a list.
    pub(crate) fn of_block(number: BlockNumber, birth: LayerId) -> Self {
        Self::new(number.0, birth)
    }

    /// Leads to a node: in a node above it, or in a layer's root.
    pub(crate) fn of_node(number: PageNumber, birth: LayerId) -> Self {
        Self::new(number.0, birth)
    }

    fn new(number: u64, birth: LayerId) -> Self {
        assert!(
            number > 0 && number < 1 << 39 && birth.0 > 0 && birth.0 < LAYERS_END,
            "no entry of a map has number {number} and birth {birth}"
        );
        Self(number | u64::from(birth.0) << 40)
    }

    /// The entry by which a list names the node that this one leads to.
    pub(crate) fn as_dead_page(self) -> Self {
        Self(self.0 | DEAD_PAGE)
    }

    fn number(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }

    /// Whether it leads nowhere.
    pub(crate) fn is_none(self) -> bool {
        self.number() == 0
    }

    /// The block that an entry of a leaf leads to.
    pub(crate) fn block(self) -> Option<BlockNumber> {
        (!self.is_none()).then(|| BlockNumber(self.number()))
    }

    /// The node that an entry of a node above, or of a layer's root, leads to.
    pub(crate) fn node(self) -> Option<PageNumber> {
        (!self.is_none()).then(|| PageNumber(self.number()))
    }

    /// What an entry of a list names.
    pub(crate) fn dead(self) -> Dead {
        match self.number() & DEAD_PAGE {
            0 => Dead::Block(BlockNumber(self.number())),
            _ => Dead::Page(PageNumber(self.number() & !DEAD_PAGE)),
        }
    }

    pub(crate) fn birth(self) -> LayerId {
        LayerId((self.0 >> 40) as u32)
    }
}

/// What an entry of a deadlist names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Dead {
    Block(BlockNumber),
    /// A page of the page space of the trees.
    Page(PageNumber),
}

/// The number as the entry holds it, a page's with [`DEAD_PAGE`].
impl fmt::Display for Dead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(number) => number.fmt(f),
            Self::Page(number) => (number.0 | DEAD_PAGE).fmt(f),
        }
    }
}

/// The fourth word of a block table entry: checksum of what is stored 32 bits, references 28, how it is stored 4. The references
/// are a number; or, with [`BORNE`] beside it, the layer whose is the only one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockInfo(pub u64);

const BORNE: u32 = 1 << 27;
const _: () = assert!(LAYERS_END <= BORNE);

/// The references to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum References {
    /// One, and there was no other since the block came to be. The layer bore it: see [`ThinEntry::birth`].
    Sole(LayerId),
    /// So many, of whatever layers.
    Count(u32),
}

impl References {
    fn pack(self) -> u32 {
        match self {
            Self::Sole(layer) => {
                assert!(layer.0 > 0 && layer.0 < LAYERS_END, "no block is borne by layer {layer}");
                BORNE | layer.0
            }
            Self::Count(count) => {
                assert!(count <= BlockInfo::MOST, "no block has {count} references");
                count
            }
        }
    }
}

impl BlockInfo {
    /// Content stored as it is.
    pub(crate) const PLAIN: u8 = 0;
    /// Content packed by LZ4, and by Zstandard.
    pub(crate) const LZ4: u8 = 1;
    pub(crate) const ZSTD: u8 = 2;
    /// Content that is lost: completing a partial write met unreadable data.
    pub(crate) const LOST: u8 = 15;
    /// The most references a block can have.
    pub(crate) const MOST: u32 = BORNE - 1;

    pub(crate) fn new(crc: u32, references: References, algorithm: u8) -> Self {
        assert!(algorithm < 16, "no block is stored by {algorithm}");
        Self(u64::from(crc) | u64::from(references.pack()) << 32 | u64::from(algorithm) << 60)
    }

    fn references_bits(self) -> u32 {
        (self.0 >> 32) as u32 & (BORNE | Self::MOST)
    }

    /// The layer that bore its only reference, if it never had another.
    pub(crate) fn bearer(self) -> Option<LayerId> {
        let bits = self.references_bits();
        (bits & BORNE != 0).then_some(LayerId(bits & !BORNE))
    }

    pub(crate) fn crc(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn count(self) -> u32 {
        match self.bearer() {
            Some(_) => 1,
            None => self.references_bits(),
        }
    }

    /// Whether the references to it count as lent: there is another, or was.
    pub(crate) fn is_lent(self) -> bool {
        self.bearer().is_none()
    }

    /// Whether stored bytes are what they were.
    pub(crate) fn verifies(self, stored: &[u8]) -> bool {
        !self.is_lost() && crc32c(stored).0 == self.crc()
    }

    /// Whether its content is nowhere.
    pub(crate) fn is_lost(self) -> bool {
        self.algorithm() == Self::LOST
    }

    /// Of the same block, stored otherwise.
    pub(crate) fn stored_as(self, crc: u32, algorithm: u8) -> Self {
        Self(self.0 & !(u64::from(u32::MAX) | 15 << 60) | u64::from(crc) | u64::from(algorithm) << 60)
    }

    /// The same with so many references, of whatever layers.
    pub(crate) fn counted(self, count: u32) -> Self {
        Self::new(self.crc(), References::Count(count), self.algorithm())
    }

    pub(crate) fn algorithm(self) -> u8 {
        (self.0 >> 60) as u8
    }
}
