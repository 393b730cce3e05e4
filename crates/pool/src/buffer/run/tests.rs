//! Runs beside blocks that are held by themselves, against an array of sectors.

use super::{RUN_BYTES, Slots};
use crate::{
    buffer::{
        BlockKey, Buffer, Content, HELD_BYTES, Piece, TakenBlock, fragment::INDEX_BYTES, held::Held,
        received::Received,
    },
    format::CopySource,
    journal::Batch,
};
use proptest::prelude::*;
use quoin_base::{BlockIndex, LayerId, Sequence, crc32c};
use quoin_world::{Slice as Bytes, atomic::Ordering};
use std::collections::BTreeSet;

const SECTORS: u16 = 16;
const BLOCK_BYTES: u64 = 8192;
/// Blocks of the region that are used, from one in its middle on.
const BLOCKS: u64 = 10;
const FIRST: u64 = 128 * 7 + 60;

#[derive(Clone, Debug)]
enum Step {
    Write { block: u64, start: u16, sectors: u16 },
    Zero { block: u64, count: u64 },
    Share { block: u64, count: u64 },
    Charge { block: u64 },
    Waive { block: u64 },
    Take { count: usize },
    Evict,
    PutBack,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let blocks = || (0..BLOCKS).prop_flat_map(|block| (Just(block), 1..=BLOCKS - block));
    let part =
        (0..BLOCKS, 0..SECTORS).prop_flat_map(|(b, start)| (Just(b), Just(start), 1..=SECTORS - start));
    let step = prop_oneof![
        2 => part.prop_map(|(block, start, sectors)| Step::Write { block, start, sectors }),
        2 => blocks().prop_map(|(block, count)| Step::Zero { block, count }),
        2 => blocks().prop_map(|(block, count)| Step::Share { block, count }),
        1 => (0..BLOCKS).prop_map(|block| Step::Charge { block }),
        1 => (0..BLOCKS).prop_map(|block| Step::Waive { block }),
        3 => (1..6_usize).prop_map(|count| Step::Take { count }),
        2 => Just(Step::Evict),
        1 => Just(Step::PutBack),
    ];
    proptest::collection::vec(step, 1..60)
}

fn key(block: u64) -> BlockKey {
    BlockKey { layer: LayerId(1), family: LayerId(1), index: BlockIndex(FIRST + block) }
}

/// What a record of this sequence copied to a block.
fn source(sequence: u64, block: u64) -> CopySource {
    CopySource { layer: LayerId(9), index: BlockIndex(1000 * sequence + block) }
}

/// What a sector holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sector {
    Data,
    Zero,
    Shared(u64),
}

type Sectors = [Option<(u64, Sector)>; SECTORS as usize];

fn seen(buffer: &Buffer, block: u64) -> Sectors {
    let mut sectors = Sectors::default();
    let shard = buffer.shard(key(block));
    for fragment in shard.fragments(key(block)).unwrap_or_default().iter() {
        let content = match &fragment.content {
            Content::Ram(_) => Sector::Data,
            Content::Shared(source) => Sector::Shared(source.index.0),
            _ => Sector::Zero,
        };
        for sector in &mut sectors[usize::from(fragment.start)..usize::from(fragment.end())] {
            assert_eq!(sector.replace((fragment.sequence.0, content)), None, "fragments overlap");
        }
    }
    sectors
}

/// The buffer, what it is to hold, and what destage has.
struct Rig {
    buffer: Buffer,
    model: [Sectors; BLOCKS as usize],
    taken: Vec<TakenBlock>,
}

impl Rig {
    fn apply(&mut self, sequence: u64, step: Step) {
        let (buffer, batch) = (&self.buffer, Batch::recovered());
        match step {
            Step::Write { block, start, sectors } => {
                let data = Bytes::copy_of(&vec![7; usize::from(sectors) * 512]);
                let len = data.len() as u64;
                let crc = crc32c(&data).0;
                let content = Content::Ram(Received::new(Held::new(data, len, BLOCK_BYTES), start, crc, 0));
                let piece = Piece { key: key(block), start, sectors, content };
                buffer.insert(&mut buffer.shard(key(block)), Sequence(sequence), &batch, [piece]);
                self.model[block as usize][usize::from(start)..usize::from(start + sectors)]
                    .fill(Some((sequence, Sector::Data)));
            }
            Step::Zero { block, count } | Step::Share { block, count } => {
                let source_of = |at| matches!(step, Step::Share { .. }).then(|| source(sequence, at));
                let mut shard = buffer.shard(key(block));
                let blocks = (key(block), count);
                buffer.insert_blocks(&mut shard, Sequence(sequence), &batch, blocks, source_of(block));
                for at in block..block + count {
                    let held = source_of(at).map_or(Sector::Zero, |source| Sector::Shared(source.index.0));
                    self.model[at as usize] = [Some((sequence, held)); SECTORS as usize];
                }
            }
            Step::Charge { block } => buffer.charge(&mut buffer.shard(key(block)), key(block)),
            Step::Waive { block } => buffer.waive(&mut buffer.shard(key(block)), &[key(block)]),
            Step::Take { count } => {
                let taken = buffer.take_oldest(count, Sequence(sequence), &BTreeSet::new());
                assert!(taken.len() <= count, "{} blocks are taken, of {count}", taken.len());
                for block in &taken {
                    let twice = self.taken.iter().any(|other| other.key == block.key);
                    assert!(!twice, "{:?} is in two batches", block.key);
                }
                self.taken.extend(taken);
            }
            Step::Evict => {
                for block in self.taken.drain(..) {
                    let gone: Vec<u64> = block.fragments.iter().map(|fragment| fragment.sequence.0).collect();
                    for sector in &mut self.model[(block.key.index.0 - FIRST) as usize] {
                        *sector = sector.filter(|(sequence, _)| !gone.contains(sequence));
                    }
                    self.buffer.evict([&block]);
                }
            }
            Step::PutBack => {
                self.taken.drain(..).for_each(|block| buffer.put_back(&block, Sequence(sequence)))
            }
        }
    }

    fn check(&self) {
        for block in 0..BLOCKS {
            assert_eq!(seen(&self.buffer, block), self.model[block as usize], "block {block}");
        }
        let all = self.model.iter().flatten().flatten();
        assert_eq!(
            self.buffer.tail(Sequence(1000)).0,
            all.map(|(sequence, _)| *sequence).min().unwrap_or(1000)
        );
        let shard = self.buffer.shard(key(0));
        let alone: Slots = shard.present.values().fold(0, |all, slots| all | slots);
        let mut seen_slots = alone;
        for run in shard.runs.values().flatten() {
            assert_eq!(run.slots & seen_slots, 0, "a block is held twice");
            assert_eq!((run.charged | run.waived) & !run.slots, 0, "what is charged is there");
            assert_eq!(run.charged & run.waived, 0);
            seen_slots |= run.slots;
        }
        assert_eq!(alone.count_ones() as usize, shard.blocks.len());
        let held = shard.held.get(&LayerId(1)).copied().unwrap_or_default();
        assert_eq!(seen_slots.count_ones() as usize, held);
        let in_runs = (seen_slots & !alone).count_ones();
        assert_eq!(self.buffer.usage.run_blocks.load(Ordering::Relaxed), in_runs.into());
        let runs = shard.runs.values().flatten().count() as u64;
        let regions = shard.present.len() as u64 * INDEX_BYTES;
        let index = regions
            + shard.blocks.values().map(|block| block.fragments.len() as u64).sum::<u64>() * HELD_BYTES;
        let has_data = shard.blocks.values().flat_map(|block| &block.fragments);
        let has_data = has_data.filter(|fragment| matches!(fragment.content, Content::Ram(_))).count();
        let ram = self.buffer.ram_bytes();
        assert!(
            ram >= index + runs * RUN_BYTES && (has_data > 0 || ram == index + runs * RUN_BYTES),
            "{ram}"
        );
        let charged = (0..BLOCKS).filter(|block| shard.is_charged(key(*block))).count() as u64;
        drop(shard);
        let (counted, waived) = (self.buffer.charged_blocks(), self.buffer.waived_by_now());
        assert_eq!(charged, counted + waived);
        let uncharged = self.buffer.uncharged(&self.buffer.shard(key(0)), key(0), BLOCKS);
        assert_eq!(uncharged, BLOCKS - charged);
    }
}

proptest! {
    #[test]
    fn runs_are_the_latest_content_of_their_blocks(steps in steps()) {
        let buffer = Buffer::new(BLOCK_BYTES);
        let mut rig = Rig { buffer, model: Default::default(), taken: Vec::new() };
        let mut last = 1;
        for (sequence, step) in (1u64..).zip(steps) {
            rig.apply(sequence, step);
            rig.check();
            last = sequence + 1;
        }
        // All of it can be destaged.
        for sequence in last..last + 200 {
            rig.apply(sequence, Step::Evict);
            rig.apply(sequence, Step::Take { count: 4 });
            rig.check();
        }
        prop_assert!(rig.buffer.shard(key(0)).is_empty());
        prop_assert_eq!(rig.buffer.ram_bytes(), 0);
        prop_assert_eq!(rig.buffer.charged_blocks() + rig.buffer.waived_by_now(), 0);
        prop_assert!(rig.buffer.shard(key(0)).present.is_empty());
    }
}

#[test]
fn a_run_costs_the_same_however_many_blocks_it_holds() {
    let buffer = Buffer::new(BLOCK_BYTES);
    let first = BlockKey { index: BlockIndex(0), ..key(0) };
    let insert = |sequence| {
        let mut shard = buffer.shard(first);
        let blocks = (first, 128);
        buffer.insert_blocks(&mut shard, Sequence(sequence), &Batch::recovered(), blocks, None);
        drop(shard);
        buffer.ram_bytes()
    };
    assert_eq!((insert(1), insert(2)), (RUN_BYTES, RUN_BYTES));
}
