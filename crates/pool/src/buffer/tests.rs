//! The extents of a block against an array of its sectors.

use super::{BlockKey, Buffer, Content, Piece};
use crate::{journal::Batch, received::Received};
use proptest::prelude::*;
use quoin_base::{LayerId, Sequence, crc32c};
use quoin_world::Slice;
use std::collections::BTreeSet;

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

fn key(block: u64) -> BlockKey {
    BlockKey { layer: LayerId(1), family: LayerId(1), index: block }
}

/// Sequence and first byte of each sector that the buffer covers.
fn covered(buffer: &Buffer, block: u64) -> Vec<Option<(u64, u8)>> {
    let mut sectors = vec![None; SECTORS.into()];
    for extent in buffer.shard(key(block)).extents(key(block)).unwrap_or_default() {
        for n in 0..extent.sectors {
            let byte = match &extent.content {
                Content::Ram(received) => received.sectors(extent.start + n, 1)[0],
                _ => 0,
            };
            let sector = &mut sectors[usize::from(extent.start + n)];
            assert_eq!(*sector, None, "extents overlap");
            *sector = Some((extent.sequence.0, byte));
        }
    }
    sectors
}

proptest! {
    #[test]
    fn extents_are_the_latest_content_of_their_sectors(steps in steps()) {
        let buffer = Buffer::new(BLOCK_BYTES);
        let batch = Batch::recovered();
        let mut model = [const { [None; SECTORS as usize] }; 2];
        let mut taken = Vec::new();
        for (sequence, step) in (1u64..).zip(steps) {
            match step {
                Step::Write { block, start, sectors } | Step::Unmap { block, start, sectors } => {
                    let is_write = matches!(step, Step::Write { .. });
                    let stamp = if is_write { sequence as u8 } else { 0 };
                    let data = vec![stamp; usize::from(sectors) * 512];
                    let received = || Received::new(Slice::copy_of(&data), start, crc32c(&data).0, 0);
                    let content = if is_write { Content::Ram(received()) } else { Content::Zero };
                    let piece = Piece { key: key(block), start, sectors, content };
                    buffer.insert(&mut buffer.shard(key(block)), Sequence(sequence), &batch, [piece]);
                    let end = usize::from(start + sectors);
                    model[block as usize][usize::from(start)..end].fill(Some((sequence, stamp)));
                }
                Step::Take => taken.extend(buffer.take_oldest(10, Sequence(sequence), &BTreeSet::new())),
                Step::PutBack => taken.drain(..).for_each(|block| buffer.put_back(&block)),
                Step::Evict => for block in taken.drain(..) {
                    let gone: Vec<u64> = block.extents.iter().map(|extent| extent.sequence.0).collect();
                    buffer.evict(&block);
                    for sector in &mut model[block.key.index as usize] {
                        *sector = sector.filter(|(sequence, _)| !gone.contains(sequence));
                    }
                },
            }
            let mut ram = 0;
            for block in [0, 1] {
                prop_assert_eq!(&covered(&buffer, block)[..], &model[block as usize][..]);
                let shard = buffer.shard(key(block));
                ram += shard.extents(key(block)).unwrap_or_default().iter().map(|e| super::ram_bytes(&e.content, e.sectors)).sum::<u64>();
            }
            prop_assert_eq!(buffer.ram_bytes(), ram);
            let lowest = model.iter().flatten().flatten().map(|(sequence, _)| *sequence).min();
            prop_assert_eq!(buffer.tail(Sequence(1000)).0, lowest.unwrap_or(1000));
        }
    }
}
