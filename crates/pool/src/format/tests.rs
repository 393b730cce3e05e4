//! Packed words come apart as they were put together, and a flipped bit is noticed in every structure.

use super::*;
use quoin_base::{PageNumber, SegmentId};

#[test]
fn packed_words_come_apart_as_they_were_put_together() {
    let l = Location::new(SegmentId(7), 16 * 1024 * 1024 - 8192, 8192);
    assert_eq!((l.segment(), l.offset_bytes(), l.len_bytes()), (SegmentId(7), 16 * 1024 * 1024 - 8192, 8192));
    let l = Location::new(SegmentId(SEGMENTS_END - 1), (1 << 31) - 16, 16);
    assert_eq!(
        (l.segment(), l.offset_bytes(), l.len_bytes()),
        (SegmentId(SEGMENTS_END - 1), (1 << 31) - 16, 16)
    );
    assert_eq!((l.table_slab(), l.range().end()), (None, 1 << 31));
    let l = Location::in_table_slab(MAX_TABLE_SLABS as u32, 16_383);
    assert_eq!((l.table_slab(), l.offset_bytes()), (Some(MAX_TABLE_SLABS as u32), 16_383 * 4096));
    let t = ThinEntry::of_block(BlockNumber((1 << 39) - 1), LayerId((1 << 24) - 1));
    assert_eq!((t.block(), t.birth()), (Some(BlockNumber((1 << 39) - 1)), LayerId((1 << 24) - 1)));
    let listed = [t.dead(), t.as_dead_page().dead()];
    assert_eq!(listed, [Dead::Block(BlockNumber((1 << 39) - 1)), Dead::Page(PageNumber((1 << 39) - 1))]);
    assert!(ThinEntry(1 << 40).is_none() && ThinEntry(1 << 40).block().is_none() && !t.is_none());
    let b = BlockInfo::new(0xdead_beef, References::Count(5), 3);
    assert_eq!((b.crc(), b.count(), b.bearer(), b.algorithm()), (0xdead_beef, 5, None, 3));
    let most = b.counted(BlockInfo::MOST);
    assert_eq!(
        (most.crc(), most.count(), most.bearer(), most.algorithm()),
        (0xdead_beef, BlockInfo::MOST, None, 3)
    );
    let borne = BlockInfo::new(0xdead_beef, References::Sole(LayerId(LAYERS_END - 1)), 15);
    assert_eq!((borne.crc(), borne.count(), borne.bearer()), (0xdead_beef, 1, Some(LayerId(LAYERS_END - 1))));
    let again = borne.stored_as(7, 2);
    assert_eq!((again.crc(), again.bearer(), again.algorithm()), (7, borne.bearer(), 2));
}

#[test]
fn a_flipped_bit_is_noticed_in_every_structure() {
    let mut root: Root = zeroed();
    root.magic = U64::new(ROOT_MAGIC);
    root.seal();
    let mut extent: ExtentHeader = zeroed();
    extent.magic = U64::new(EXTENT_MAGIC);
    extent.seal();
    let mut row: RowHeader = zeroed();
    row.magic = U64::new(ROW_MAGIC);
    row.seal();
    for at in [0, 100, 4000, 4095] {
        let flip = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 4;
            bytes
        };
        assert!(Root::parse(root.as_bytes()).is_some() && Root::parse(&flip(root.as_bytes())).is_none());
        assert!(ExtentHeader::parse(extent.as_bytes()).is_some());
        assert!(ExtentHeader::parse(&flip(extent.as_bytes())).is_none());
        assert!(
            RowHeader::parse(row.as_bytes()).is_some() && RowHeader::parse(&flip(row.as_bytes())).is_none()
        );
    }
}
