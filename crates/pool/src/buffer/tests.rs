//! The fragments of a block against an array of its sectors.

use super::{BlockKey, Buffer, Content, HELD_BYTES, Piece};
use crate::{
    buffer::{fragment::INDEX_BYTES, held::Held, received::Received},
    journal::Batch,
};
use proptest::prelude::*;
use quoin_base::{BlockIndex, LayerId, Sequence, crc32c};
use quoin_world::Slice as Bytes;
use std::collections::{BTreeMap, BTreeSet};

const SECTORS: u16 = 16;
const BLOCK_BYTES: u64 = 8192;

/// What is done to one of two blocks.
#[derive(Clone, Debug)]
enum Step {
    Write { block: u64, start: u16, sectors: u16 },
    Unmap { block: u64, start: u16, sectors: u16 },
    Take,
    Evict,
    PutBack,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range =
        (0..2u64, 0..SECTORS).prop_flat_map(|(block, start)| (Just(block), Just(start), 1..=SECTORS - start));
    let step = prop_oneof![
        4 => range.clone().prop_map(|(block, start, sectors)| Step::Write { block, start, sectors }),
        1 => range.prop_map(|(block, start, sectors)| Step::Unmap { block, start, sectors }),
        2 => Just(Step::Take),
        1 => Just(Step::Evict),
        1 => Just(Step::PutBack),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Blocks far apart, so that they are in shards of their own.
const APART: u64 = 12_345;

fn key(block: u64) -> BlockKey {
    BlockKey { layer: LayerId(1), family: LayerId(1), index: BlockIndex(block) }
}

/// Sequence and first byte of each sector that the buffer covers.
fn covered(buffer: &Buffer, block: u64) -> Vec<Option<(u64, u8)>> {
    let mut sectors = vec![None; SECTORS.into()];
    for fragment in buffer.shard(key(block * APART)).fragments(key(block * APART)).unwrap_or_default().iter()
    {
        for n in 0..fragment.sectors {
            let byte = match &fragment.content {
                Content::Ram(received) => received.sectors(fragment.start + n, 1)[0],
                _ => 0,
            };
            let sector = &mut sectors[usize::from(fragment.start + n)];
            assert_eq!(*sector, None, "fragments overlap");
            *sector = Some((fragment.sequence.0, byte));
        }
    }
    sectors
}

proptest! {
    #[test]
    fn fragments_are_the_latest_content_of_their_sectors(steps in steps()) {
        let buffer = Buffer::new(BLOCK_BYTES);
        let batch = Batch::recovered();
        let mut model = [const { [None; SECTORS as usize] }; 2];
        let mut taken = Vec::new();
        // What the data of each write takes: for the first fragment that holds any of it, and for each more.
        let mut held = BTreeMap::new();
        for (sequence, step) in (1u64..).zip(steps) {
            match step {
                Step::Write { block, start, sectors } | Step::Unmap { block, start, sectors } => {
                    let is_write = matches!(step, Step::Write { .. });
                    let stamp = if is_write { sequence as u8 } else { 0 };
                    let data = vec![stamp; usize::from(sectors) * 512];
                    let data = Held::new(Bytes::copy_of(&data), data.len() as u64, BLOCK_BYTES);
                    let received = Received::new(data.clone(), start, crc32c(data.bytes()).0, 0);
                    if is_write {
                        held.insert(sequence, (received.hold(), received.hold()));
                        assert_eq!(received.release() + received.release(), held[&sequence].0 + held[&sequence].1);
                    }
                    let content = if is_write { Content::Ram(received) } else { Content::Zero };
                    let piece = Piece { key: key(block * APART), start, sectors, content };
                    buffer.insert(&mut buffer.shard(key(block * APART)), Sequence(sequence), &batch, [piece]);
                    let end = usize::from(start + sectors);
                    model[block as usize][usize::from(start)..end].fill(Some((sequence, stamp)));
                }
                Step::Take => taken.extend(buffer.take_oldest(10, Sequence(sequence), &BTreeSet::new())),
                Step::PutBack => taken.drain(..).for_each(|block| buffer.put_back(&block, Sequence(sequence))),
                Step::Evict => for block in taken.drain(..) {
                    let gone: Vec<u64> = block.fragments.iter().map(|fragment| fragment.sequence.0).collect();
                    buffer.evict([&block]);
                    for sector in &mut model[(block.key.index.0 / APART) as usize] {
                        *sector = sector.filter(|(sequence, _)| !gone.contains(sequence));
                    }
                },
            }
            let (mut ram, mut seen) = (0, BTreeSet::new());
            for block in [0, 1] {
                prop_assert_eq!(&covered(&buffer, block)[..], &model[block as usize][..]);
                let shard = buffer.shard(key(block * APART));
                ram += INDEX_BYTES * u64::from(shard.fragments(key(block * APART)).is_some());
                for fragment in shard.fragments(key(block * APART)).unwrap_or_default().iter() {
                    let (first, more) = held.get(&fragment.sequence.0).copied().unwrap_or_default();
                    ram += HELD_BYTES + if seen.insert(fragment.sequence) { first } else { more };
                }
            }
            prop_assert_eq!(buffer.ram_bytes(), ram);
            let lowest = model.iter().flatten().flatten().map(|(sequence, _)| *sequence).min();
            prop_assert_eq!(buffer.tail(Sequence(1000)).0, lowest.unwrap_or(1000));
        }
    }
}

/// What a write brought for each of some whole blocks, all in one buffer.
fn pieces(blocks: std::ops::Range<u64>) -> Vec<Piece> {
    let len = (blocks.end - blocks.start) * BLOCK_BYTES;
    let data = Bytes::copy_of(&vec![7; len as usize]);
    let first = blocks.start;
    let piece = |block: u64| {
        let start = ((block - first) * BLOCK_BYTES) as usize;
        let data = data.slice(start..start + BLOCK_BYTES as usize);
        let received = Received::new(Held::new(data, len, BLOCK_BYTES), 0, 0, 0);
        Piece { key: key(block), start: 0, sectors: SECTORS, content: Content::Ram(received) }
    };
    blocks.map(piece).collect()
}

#[test]
fn a_mostly_overwritten_write_counts_for_as_long_as_its_buffer_is_kept() {
    let (buffer, batch) = (Buffer::new(BLOCK_BYTES), Batch::recovered());
    let insert = |sequence, blocks| {
        buffer.insert(&mut buffer.shard(key(0)), Sequence(sequence), &batch, pieces(blocks));
        buffer.ram_bytes()
    };
    let index = 128 * HELD_BYTES + INDEX_BYTES;
    assert_eq!(insert(1, 0..128), index + (1 << 20));
    for block in 0..127 {
        let overwritten = (block + 1) * BLOCK_BYTES;
        assert_eq!(insert(2 + block, block..block + 1), index + (1 << 20) + overwritten);
    }
    assert_eq!(insert(200, 127..128), index + (1 << 20));
    for taken in buffer.take_oldest(128, Sequence(1000), &BTreeSet::new()) {
        buffer.evict([&taken]);
    }
    assert_eq!(buffer.ram_bytes(), 0);
}

#[test]
fn what_is_put_back_lets_all_others_have_a_turn() {
    let (buffer, batch) = (Buffer::new(BLOCK_BYTES), Batch::recovered());
    for (sequence, block) in [(1, 0), (2, 1)] {
        let mut shard = buffer.shard(key(block));
        buffer.insert(&mut shard, Sequence(sequence), &batch, pieces(block..block + 1));
    }
    let take = || {
        let taken = buffer.take_oldest(1, Sequence(3), &BTreeSet::new());
        assert_eq!(taken.len(), 1);
        taken.into_iter().next().unwrap()
    };
    let first = take();
    buffer.put_back(&first, Sequence(2));
    let second = take();
    assert_ne!(first.key, second.key);
    buffer.put_back(&second, Sequence(2));
    assert_eq!(take().key, first.key);
    assert_eq!(buffer.tail(Sequence(3)), Sequence(1), "its record is as old as it was");
}

#[test]
fn a_block_that_comes_to_be_shared_while_it_is_destaged_is_charged_until_it_leaves() {
    let (buffer, batch) = (Buffer::new(BLOCK_BYTES), Batch::recovered());
    let mut shard = buffer.shard(key(0));
    buffer.insert(&mut shard, Sequence(1), &batch, pieces(0..1));
    buffer.waive(&mut shard, &[key(0)]);
    drop(shard);
    assert_eq!((buffer.charged_blocks(), buffer.waived_by_now()), (0, 1));
    let taken = buffer.take_oldest(1, Sequence(9), &BTreeSet::new());
    assert!(taken[0].is_waived);
    buffer.charge_waived(key(0));
    buffer.charge_waived(key(7));
    assert_eq!((buffer.charged_blocks(), buffer.waived_by_now()), (1, 0));
    buffer.evict(taken.iter());
    assert_eq!((buffer.charged_blocks(), buffer.waived_by_now()), (0, 0));
}

#[test]
fn a_charged_block_may_come_unless_it_is_stuck_as_it_is() {
    let (buffer, batch) = (Buffer::new(BLOCK_BYTES), Batch::recovered());
    let insert = |sequence, block: u64| {
        let mut shard = buffer.shard(key(block));
        buffer.insert(&mut shard, Sequence(sequence), &batch, pieces(block..block + 1));
    };
    let may_come = || buffer.any_charged(|tried, newest| tried == key(0) && newest <= Sequence(1));
    assert!(!may_come(), "nothing is charged");
    insert(1, 0);
    assert!(!may_come());
    insert(2, 1);
    assert!(may_come(), "another block was not tried");
    buffer.waive(&mut buffer.shard(key(1)), &[key(1)]);
    assert!(!may_come(), "that one gives nobody room");
    insert(3, 0);
    assert!(may_come(), "it was written again since it was tried");
}
