//! Large writes are placed: their blocks go into rows of segments as they come in, and at the same time the journal gets
//! records of where they lie. They are written once, and destage only lets the map lead there.
//!
//! 1. A record counts when it and its row are hardened, whichever is last. Of a batch that nothing tells to count, replay
//!    verifies what its records lead to, as it verifies payloads.
//! 2. The rows of a thread land in order, so that what the segment table calls written has no gaps. A segment's opening is
//!    in the same lane as the records that name it, before them.
//! 3. A block has its number before it is written, for the head of its row: see [`Numbers`].
//! 4. What is placed takes slabs before what it overwrites gives any back. So hosts place only while more slabs are free
//!    than destage, cleaner and checkpoints may need; else the journal takes the write.
//! 5. After a crash, destage writes anew what replay finds placed. How much that may be is bounded: a checkpoint passes the
//!    records before.
//!
//! Several writes that come in together share a row, as records share a batch.
//!
//! What is placed lies there as it came in. So large writes of compressed volumes are not placed, unless destage has no time to pack
//! what the journal would bring it: that is packed later, as what destage stores in haste.

use crate::{
    format::{Location, POOL_BLOCK_BYTES},
    maps::numbers::Numbers,
    meta::SegmentTable,
    segment::placed_block::{PlacedBlock, PlacedSpace},
    store::Store,
};
use quoin_base::{BlockNumber, GIB, SegmentId, Sequence};
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::{collections::VecDeque, sync::Arc};

mod queue;
mod rows;
mod write;

use queue::Queue;

/// Block numbers lent to hosts at most, and in a small pool: so many for each slab, or this part of all blocks. Where there are
/// none, the journal takes the write, so they are to last while the committer is busy.
const MOST_NUMBERS: u64 = 32_768;
const NUMBERS_OF_SLAB: u64 = 8;
const NUMBERS_PART: u64 = 32;
/// The most that replay may find placed.
const MOST_NAMED_BYTES: u64 = GIB;
/// Records are counted together until they are of so many bytes.
const COUNTED_TOGETHER_BYTES: u64 = 4 << 20;

pub(crate) struct Placer {
    queues: Vec<Queue>,
    space: Arc<PlacedSpace>,
    /// Bytes placed up to which record, of what replay would find.
    named: Mutex<VecDeque<(Sequence, u64)>>,
    named_bytes: AtomicU64,
    /// Bytes of writes that are being placed.
    being_placed: AtomicU64,
    /// Writes long enough to be placed that hosts wait for, placed or not.
    large_writes: AtomicU64,
    /// Destage has no time to pack much of what it could.
    is_hasty: AtomicBool,
}

impl Placer {
    pub(crate) fn new(threads: usize, segments: Arc<SegmentTable>, store: &Store) -> Self {
        let queues: Vec<_> = (0..threads).map(|_| Queue::default()).collect();
        queues.iter().for_each(|queue| store.health().wake_also(queue.wake.clone()));
        let slabs = segments.fair_slabs(store);
        let of_blocks = slabs * segments.slab_bytes() / u64::from(POOL_BLOCK_BYTES) / NUMBERS_PART;
        let numbers = Numbers::new(MOST_NUMBERS.min(of_blocks.max(slabs * NUMBERS_OF_SLAB)) as usize);
        Self {
            queues,
            space: Arc::new(PlacedSpace::new(segments, numbers)),
            named: Mutex::default(),
            named_bytes: AtomicU64::new(0),
            being_placed: AtomicU64::new(0),
            large_writes: AtomicU64::new(0),
            is_hasty: AtomicBool::new(false),
        }
    }

    /// Notes whether destage has time to pack. While it has, large writes of compressed volumes go through the journal to it.
    pub(crate) fn set_hasty(&self, is_hasty: bool) {
        self.is_hasty.store(is_hasty, Ordering::Relaxed);
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        self.space.numbers()
    }

    /// A block that replay found placed.
    pub(crate) fn found(&self, location: Location, crc: u32) -> Arc<PlacedBlock> {
        self.space.segments().add(location);
        self.block(location, crc, None)
    }

    fn block(&self, location: Location, crc: u32, number: Option<BlockNumber>) -> Arc<PlacedBlock> {
        Arc::new(PlacedBlock::new(self.space.clone(), location, crc, number))
    }

    /// Has open segments sealed to which nothing is being added: slabs are few, and what is dead in them may be needed.
    pub(crate) fn seal_idle(&self) {
        self.queues.iter().for_each(Queue::seal_idle);
    }

    /// Waits until no row is on its way any more. The store was closed.
    pub(crate) async fn ended(&self) {
        for queue in &self.queues {
            queue.until_ended().await;
        }
    }

    /// Counts what the record of `sequence` names. Called before that can be on a drive. True from time to time: the
    /// committer is to look how much it is.
    pub(crate) fn name(&self, segment: SegmentId, sequence: Sequence, bytes: u64) -> bool {
        self.space.segments().name(segment, sequence);
        self.named_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut named = self.named.lock();
        match named.back_mut() {
            Some((last, together)) if *together < COUNTED_TOGETHER_BYTES => {
                (*last, *together) = ((*last).max(sequence), *together + bytes);
                false
            }
            _ => {
                named.push_back((sequence, bytes));
                true
            }
        }
    }

    /// Replay does not find records below `tail` any more.
    pub(crate) fn passed(&self, tail: Sequence) {
        let mut named = self.named.lock();
        while let Some((_, bytes)) = named.pop_front_if(|(last, _)| *last < tail) {
            let before = self.named_bytes.fetch_sub(bytes, Ordering::Relaxed);
            assert!(before >= bytes, "records below {tail} name {bytes} bytes, and all name {before}");
        }
    }

    /// How much replay would find placed.
    pub(crate) fn named_bytes(&self) -> u64 {
        self.named_bytes.load(Ordering::Relaxed)
    }

    /// How much less with a tail there.
    pub(crate) fn named_below(&self, tail: Sequence) -> u64 {
        self.named.lock().iter().take_while(|(last, _)| *last < tail).map(|(_, bytes)| bytes).sum()
    }

    /// The newest record beside which so many bytes were placed since.
    pub(crate) fn last_before(&self, bytes: u64) -> Option<Sequence> {
        let named = self.named.lock();
        let mut since = 0;
        for (last, more) in named.iter().rev() {
            if since >= bytes {
                return Some(*last);
            }
            since += more;
        }
        None
    }
}
