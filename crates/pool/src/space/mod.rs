//! How much host data a pool takes: always so little that checkpoint, cleaner, unmap and delete can go on.
//!
//! Every buffered block is charged a whole pool block from the moment it is appended, as if it were
//! incompressible and shared with nothing, and the charge is replaced by what it really takes when it is
//! destaged. Host data may take what remains beside the reserve and the metadata.
//!
//! Invariants, while any volume has blocks *reserved*, that is promised to it:
//! 1. What is live, what is promised and not mapped yet, the metadata it may bring along, and the headroom
//!    together stay within the limit: a reservation and a write outside any are admitted only if so.
//! 2. A write to reserved blocks may use the promise and the headroom. The headroom holds what overwrites take
//!    until what they displace is given back, so such a write may have to wait for destage. It fails only while a drive
//!    cannot read journal records that destage needs, and nothing else is left to be destaged.
//! 3. An unmapped block of a reservation is promised again from the moment the map lets go of it.
//! 4. An unmap of a map that is shared copies nodes: the first block of its record is charged as if it was written.
//!
//! And at any time:
//! 5. Only slabs that the slice holds count. A slab counts from when its grant is durable, and stops counting
//!    before it is given back. It is given back only if the remaining slabs can take all that was admitted and
//!    promised.
//! 6. What is kept spare, for what lost drives held, counts for nobody: what is admitted and promised fits on the drives
//!    that are left when as many domains are lost as are kept spare.

mod grow;
mod other_drives;
mod overhead;
pub(crate) mod report;
pub(crate) mod reserve;
mod weight;

pub(crate) use overhead::Overhead;
pub(crate) use weight::Weight;

use crate::{
    format::{MAP_FAN_OUT, PAGE_BYTES, REGION_BYTES, TREE_FAN_OUT, TREE_LEVELS},
    lifecycle::options::PoolOptions,
    meta::table_slabs_for,
};
use overhead::SharedOverhead;
use quoin_base::{BlockNumber, MIB, SECTOR_BYTES};
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

pub(crate) struct Space {
    /// What protection takes. Changes under the lock of `reserved`.
    overhead: SharedOverhead,
    /// Net slabs that the slice holds and hosts may fill. Changes under the lock of `reserved`.
    slabs: AtomicU64,
    /// Slabs of drives that the segment table holds, as of the last commit.
    table_slabs: AtomicU64,
    slab_bytes: u64,
    /// What the cleaner can fill each net slab with, of blocks.
    filled_bytes: u64,
    /// What one step of the committer may add to the dirty bytes after which a checkpoint is made.
    step_bytes: u64,
    /// What a checkpoint may write beside the catalog.
    checkpoint_bytes: u64,
    /// What the catalog takes in the next checkpoint, about: its pages, and those of the map that lead there.
    catalog_bytes: AtomicU64,
    /// The most pages of the catalog that are due before a checkpoint is made for them.
    most_catalog_pages: u64,
    block_bytes: u64,
    /// The most block numbers that there have been, about.
    numbers: AtomicU64,
    /// The least that is kept for overwrites of reserved blocks, while any are reserved.
    least_headroom: u64,
    /// Bytes host data may take, and takes, and those that metadata takes, as of the last commit.
    limit: AtomicU64,
    live: AtomicU64,
    metadata: AtomicU64,
    /// What of the limit is left beside what is live, to writes to reserved blocks and to others: each one signed word,
    /// so that a writer never sees a new limit with an old use.
    reserved_room: AtomicU64,
    free_room: AtomicU64,
    /// Whether any block is reserved.
    any_reserved: AtomicBool,
    /// Whether layers share maps.
    sharing: AtomicBool,
    /// What volumes have reserved, as of the last change, and what is about to be added. Held while the figures above
    /// change.
    reserved: Mutex<Reserved>,
    /// Bytes host data may take for as long as it only replaces what is there.
    replace_limit: AtomicU64,
}

/// What is promised to volumes.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub now: Promise,
    /// What a reservation that is not hardened yet adds.
    pub pending: Promise,
    /// Whether layers share maps, so that what is written may have to copy their nodes.
    pub sharing: bool,
}

/// A promise, in blocks as they lie in the pool's layout.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    pub blocks: u64,
    /// Those that are not mapped.
    pub unmapped: u64,
    /// Nodes of the maps that may have to be written, or copied, on the way to them. Full leaves are reckoned with each block.
    pub nodes: u64,
}

impl Promise {
    /// Of `blocks` to a volume that maps `mapped`, in a map that it may share.
    pub(crate) fn of(blocks: u64, mapped: u64, shares: bool) -> Self {
        let ways = TREE_LEVELS as u64 + blocks.min(FAR_PLACES) * (TREE_LEVELS as u64 - 1);
        let nodes = match (blocks, shares) {
            (0, _) => 0,
            (_, false) => ways,
            (_, true) => ways + SHARED_NODES + blocks.div_ceil(TREE_FAN_OUT),
        };
        Self { blocks, unmapped: blocks.saturating_sub(mapped), nodes }
    }

    /// The same of a volume that weighs so much.
    pub(crate) fn weighed(self, weight: Weight) -> Self {
        let Self { blocks, unmapped, nodes } = self;
        Self { blocks: weight.weigh(blocks), unmapped: weight.weigh(unmapped), nodes }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.unmapped += other.unmapped;
        self.nodes += other.nodes;
    }

    /// What it is more than another.
    pub(crate) fn beyond(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_sub(other.blocks),
            unmapped: self.unmapped.saturating_sub(other.unmapped),
            nodes: self.nodes.saturating_sub(other.nodes),
        }
    }
}

/// Metadata a new block may bring along: a leaf of its own, and its share of the tables above.
const CHARGED_METADATA_BYTES: u64 = NODE_BYTES + 512;

/// The same where maps are shared: the way to the leaf may have to be copied too.
const CHARGED_SHARED_BYTES: u64 = TREE_LEVELS as u64 * NODE_BYTES + 512;

const NODE_BYTES: u64 = 4096;

/// Places far apart that a volume's blocks may lie at: each has a way of its own from the top of the map to a leaf. A promise
/// does not say where its blocks lie.
const FAR_PLACES: u64 = 40;

/// Nodes that a shared map has beside a leaf for each of its fullest: the ways to a few places far apart, a page of a
/// deadlist.
const SHARED_NODES: u64 = 20;

/// Metadata that a reserved block may bring along, reckoned twice as all metadata is: its entries in leaf and block
/// table, an eighth of free block numbers, and its share of what is above.
const RESERVED_METADATA_BYTES: u64 = 96;

/// More bytes than any pool has: whatever would be more is this.
const TOO_MUCH: u64 = 1 << 61;

/// What headroom is at most, and which part of the pool it is in between.
const HEADROOM_MAX_BYTES: u64 = 64 * MIB;
const HEADROOM_PART: u64 = 64;

/// Whose space a write may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// What nobody was promised.
    Free,
    /// What its volume was promised.
    Reserved,
}

/// What a checkpoint writes beside the pages that are due when it begins: the top of the map, what the last transaction
/// added to the catalog, and entries of segments that it takes.
const CHECKPOINT_MORE_BYTES: u64 = 128 << 10;

/// Pages that a block makes due when it is destaged: a leaf, the page of its old number and that of its new one, and as
/// many of the map. Pages of dropped numbers are beside that: one for each of the two at the most, and as many of the map.
const BLOCK_PAGES: u64 = 6;
/// The same where the leaf and the node above it may have to be copied. What is above these many blocks have in common.
const SHARED_BLOCK_PAGES: u64 = BLOCK_PAGES + 4;
/// Blocks that one step of destage may always take.
const LEAST_STEP_BLOCKS: u64 = 8;

/// The part of the dirty metadata that the catalog may be before a checkpoint is made for it, and the least pages that are.
const CATALOG_PART: u64 = 8;
const LEAST_CATALOG_PAGES: u64 = 16;

/// A page of the block table, and one of the map.
const TABLE_PAGES: u64 = 2;

/// Of the slabs that a slice holds, the part that is in its reserve for their number alone.
const RESERVE_PART: u64 = 32;
/// What the reserve has beside two checkpoints: a row for each open segment, and one cleaning.
const RESERVE_MORE_SEGMENTS: u64 = 6;

/// Numbers for so many blocks: with those that are free, there are not twice as many.
fn numbers_for(blocks: u64) -> u64 {
    2 * blocks
}

/// How many changes, each of which makes so many `pages` due and so many of `dropped_pages` with one of the map each,
/// make no more than these bytes due.
fn within(bytes: u64, pages: u64, dropped: u64, dropped_pages: u64) -> u64 {
    let most = bytes / PAGE_BYTES as u64;
    (most.saturating_sub(2 * dropped_pages) / pages).max(most / (pages + 2 * dropped))
}

/// Whether new data fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    Fits,
    /// It will, once what is buffered has been destaged.
    Later,
    Never,
}

impl Space {
    /// Of `data_slabs` net slabs, each of which the cleaner can fill with `filled_bytes` of blocks.
    pub(crate) fn new(
        data_slabs: u64,
        slab_bytes: u64,
        block_bytes: u64,
        filled_bytes: u64,
        overhead: Overhead,
        options: &PoolOptions,
    ) -> Self {
        assert!(filled_bytes <= slab_bytes, "a slab of {slab_bytes} bytes is filled with {filled_bytes}");
        let step_bytes = options.dirty_bytes / 4;
        let least = LEAST_STEP_BLOCKS * SHARED_BLOCK_PAGES * PAGE_BYTES as u64;
        let checkpoint_bytes = options.dirty_bytes + step_bytes.max(least) + CHECKPOINT_MORE_BYTES;
        // Two of the longest writes always have room.
        let longest = REGION_BYTES.min(slab_bytes / 4);
        let least_headroom = 2 * (longest / block_bytes + 1) * (block_bytes + 2 * CHARGED_METADATA_BYTES);
        let space = Self {
            overhead: SharedOverhead::new(overhead),
            slabs: AtomicU64::new(data_slabs),
            table_slabs: AtomicU64::new(0),
            slab_bytes,
            filled_bytes,
            step_bytes,
            checkpoint_bytes,
            catalog_bytes: AtomicU64::new(0),
            most_catalog_pages: (options.dirty_bytes / CATALOG_PART / PAGE_BYTES as u64)
                .max(LEAST_CATALOG_PAGES),
            block_bytes,
            numbers: AtomicU64::new(numbers_for(data_slabs * slab_bytes / block_bytes)),
            least_headroom,
            limit: AtomicU64::new(0),
            live: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            reserved_room: AtomicU64::new(0),
            free_room: AtomicU64::new(0),
            any_reserved: AtomicBool::new(false),
            sharing: AtomicBool::new(false),
            reserved: Mutex::default(),
            replace_limit: AtomicU64::new(0),
        };
        space.update(0, 0, 0);
        space
    }

    /// Reckons with block numbers below `end`, which there are already.
    pub(crate) fn has_numbers(&self, end: BlockNumber) {
        self.numbers.fetch_max(end.0, Ordering::Relaxed);
    }

    /// What protection takes.
    pub(crate) fn overhead(&self) -> Overhead {
        self.overhead.get()
    }

    /// Net slabs that the slice holds, beside what is kept spare.
    pub(crate) fn slabs(&self) -> u64 {
        self.slabs.load(Ordering::Relaxed)
    }

    /// Net slabs that a checkpoint of so many bytes may take, including a segment that it begins last.
    fn metadata_slabs(&self, bytes: u64) -> u64 {
        let overhead = self.overhead();
        (overhead.metadata(bytes).div_ceil(self.slab_bytes)) + overhead.segment()
    }

    /// What only checkpoints, the cleaner, unmaps and deletions may use, of so many slabs.
    fn reserve_slabs(&self, slabs: u64) -> u64 {
        let overhead = self.overhead();
        let checkpoint = self.metadata_slabs(self.checkpoint_bytes);
        let open = RESERVE_MORE_SEGMENTS * overhead.segment() + overhead.open_beside();
        2 * checkpoint + open + slabs / RESERVE_PART
    }

    /// What all of so many slabs but the reserve hold when they are filled without gaps.
    fn total_of(&self, slabs: u64) -> u64 {
        // These are never free. A slice that gave slabs back holds table slabs for more until they are empty.
        let overhead = self.overhead();
        let reckoned = overhead.table(table_slabs_for(overhead.raw_for_hosts(slabs), self.slab_bytes));
        let table_slabs = reckoned.max(overhead.net(self.table_slabs.load(Ordering::Relaxed)));
        self.filled_beside(slabs, table_slabs)
    }

    /// What so many slabs hold beside the reserve and so many net slabs of the segment table.
    fn filled_beside(&self, slabs: u64, table_slabs: u64) -> u64 {
        slabs.saturating_sub(self.reserve_slabs(slabs) + table_slabs) * self.filled_bytes
    }

    fn total(&self) -> u64 {
        self.total_of(self.slabs())
    }

    /// What is kept for overwrites of reserved blocks, while any are reserved.
    fn headroom(&self) -> u64 {
        let (least, most) = (self.least_headroom, HEADROOM_MAX_BYTES.max(self.least_headroom));
        (self.total() / HEADROOM_PART).clamp(least, most)
    }

    /// Pages that tell which block numbers were dropped.
    fn dropped_pages(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed) / (8 * PAGE_BYTES as u64) + 1
    }

    /// Free slabs below which the cleaner works.
    pub(crate) fn clean_below(&self) -> u64 {
        let few = 4 * self.overhead().segment();
        (self.reserve_slabs(self.slabs()).div_ceil(2) + few).max(self.destage_slabs() + few)
    }

    /// Free slabs below which a checkpoint is made for what it gives back.
    pub(crate) fn checkpoint_below(&self) -> u64 {
        let (low, high) = (self.destage_slabs(), self.clean_below());
        low + (high.saturating_sub(low) / 4).max(1)
    }

    /// Free slabs kept for checkpoints: below, only they take slabs.
    pub(crate) fn checkpoint_slabs(&self) -> u64 {
        self.metadata_slabs(self.checkpoint_bytes())
    }

    /// Free slabs from which the cleaner opens segments in a pool that lost drives: then checkpoints have theirs.
    pub(crate) fn clean_from(&self) -> u64 {
        self.checkpoint_slabs() + self.overhead().segment()
    }

    /// And from which destage does: then the cleaner has some.
    pub(crate) fn place_from(&self) -> u64 {
        self.clean_from() + self.overhead().segment()
    }

    /// The most that a checkpoint writes.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes + self.catalog_bytes.load(Ordering::Relaxed)
    }

    /// The most metadata, beside the catalog, that may be due when a checkpoint begins.
    pub(crate) fn most_due_bytes(&self) -> u64 {
        self.checkpoint_bytes - CHECKPOINT_MORE_BYTES
    }

    /// Takes over how many pages the catalog has, and how many of them are due. As many as may be due before a checkpoint is
    /// made are reckoned with in any case: changes come in at any time.
    pub(crate) fn update_catalog(&self, pages: u64, due: u64) {
        let due = due.max(pages.min(2 * self.most_catalog_pages));
        // On each level of the map there are as many at the most, and no more than lead to all pages.
        let above = [MAP_FAN_OUT, MAP_FAN_OUT * MAP_FAN_OUT].map(|below| due.min(pages / below + 1));
        let pages = due + above.iter().sum::<u64>();
        self.catalog_bytes.store(pages * PAGE_BYTES as u64, Ordering::Relaxed);
    }

    /// The most pages of the catalog that are due before a checkpoint is made for them. Transactions wait from twice as many
    /// on.
    pub(crate) fn most_catalog_pages(&self) -> u64 {
        self.most_catalog_pages
    }

    /// Free slabs kept for the cleaner too: below, destage waits as long as there is anything to clean.
    pub(crate) fn destage_slabs(&self) -> u64 {
        self.checkpoint_slabs() + 3 * self.overhead().segment()
    }

    /// Takes over what is live now, and how many slabs the segment table holds.
    pub(crate) fn update(&self, live_data: u64, live_meta: u64, table_slabs: u64) {
        let reserved = self.reserved.lock();
        self.table_slabs.store(table_slabs, Ordering::Relaxed);
        self.live.store(live_data, Ordering::Relaxed);
        self.metadata.store(live_meta, Ordering::Relaxed);
        self.measure(&reserved);
    }

    /// Takes over how many net slabs the slice holds now.
    pub(crate) fn resize(&self, slabs: u64) {
        self.relay(slabs, self.overhead());
    }

    /// The same, and what protection takes from now on.
    pub(crate) fn relay(&self, slabs: u64, overhead: Overhead) {
        let reserved = self.reserved.lock();
        self.overhead.set(overhead);
        self.slabs.store(slabs, Ordering::Relaxed);
        self.numbers.fetch_max(numbers_for(slabs * self.slab_bytes / self.block_bytes), Ordering::Relaxed);
        self.measure(&reserved);
    }

    fn measure(&self, reserved: &Reserved) {
        let (total, live_meta) = (self.total(), self.metadata.load(Ordering::Relaxed));
        let limit = total.saturating_sub(self.overhead().metadata(2 * live_meta));
        self.limit.store(limit / SECTOR_BYTES * SECTOR_BYTES, Ordering::Relaxed);
        // What is overwritten takes new block numbers until old ones are used again: what the metadata grew by since the
        // pool became full may take a part of what it is reckoned with, twice its size, and of the reserve.
        self.replace_limit.store(limit + live_meta / 2 + total / 128, Ordering::Relaxed);
        self.divide(reserved);
    }

    /// Takes over what is reserved now.
    pub(crate) fn update_reserved(&self, change: impl FnOnce(&mut Reserved)) {
        let mut reserved = self.reserved.lock();
        change(&mut reserved);
        self.divide(&reserved);
    }

    /// What is reserved, as of the last change.
    pub(crate) fn reserved(&self) -> Reserved {
        *self.reserved.lock()
    }

    fn divide(&self, reserved: &Reserved) {
        let any = reserved.now.blocks + reserved.pending.blocks > 0;
        let room = self.limit.load(Ordering::Relaxed) as i64 - self.live.load(Ordering::Relaxed) as i64;
        let promised = reserved.now.unmapped.saturating_mul(self.block_bytes).min(TOO_MUCH) as i64;
        // What is about to be promised once more, by a fork for instance, must not be used up meanwhile.
        let pending = reserved.pending.unmapped.saturating_mul(self.block_bytes).min(TOO_MUCH) as i64;
        let set_aside = if any { self.set_aside(reserved).min(TOO_MUCH) as i64 } else { 0 };
        self.reserved_room.store((room - promised - pending) as u64, Ordering::Release);
        self.free_room.store((room - promised - set_aside) as u64, Ordering::Release);
        // Whoever checks behind a shard's lock taken after this sees it.
        self.any_reserved.store(any, Ordering::Release);
        self.sharing.store(reserved.sharing, Ordering::Release);
    }

    /// What writes outside reservations must leave beside the promised blocks themselves.
    fn set_aside(&self, reserved: &Reserved) -> u64 {
        let blocks = reserved.now.blocks + reserved.pending.blocks;
        let nodes = reserved.now.nodes + reserved.pending.nodes;
        let pending = reserved.pending.unmapped.saturating_mul(self.block_bytes);
        let metadata = blocks
            .saturating_mul(RESERVED_METADATA_BYTES)
            .saturating_add(nodes.saturating_mul(2 * NODE_BYTES));
        let metadata = self.overhead().metadata(metadata.min(TOO_MUCH >> 16));
        pending.saturating_add(metadata).saturating_add(self.headroom())
    }

    /// Blocks that one step of destage may take.
    pub(crate) fn step_blocks(&self) -> u64 {
        within(self.step_bytes, self.block_pages(), 2, self.dropped_pages()).max(LEAST_STEP_BLOCKS)
    }

    /// Pages of the block table that may change, with what was dropped of each, until so many bytes more are due.
    pub(crate) fn table_pages_within(&self, bytes: u64) -> u64 {
        within(bytes, TABLE_PAGES, 1, self.dropped_pages())
    }

    /// The metadata that so many blocks make due at the most when they are destaged, in bytes.
    pub(crate) fn most_due_by(&self, blocks: u64) -> u64 {
        (blocks * self.block_pages() + 2 * self.dropped_pages().min(2 * blocks)) * PAGE_BYTES as u64
    }

    fn block_pages(&self) -> u64 {
        if self.is_sharing() { SHARED_BLOCK_PAGES } else { BLOCK_PAGES }
    }

    /// Whether layers share maps.
    fn is_sharing(&self) -> bool {
        self.sharing.load(Ordering::Acquire)
    }

    /// What a buffered block may take at the worst. A promise leaves no slack for what it may take beyond: then its
    /// metadata counts twice, as all metadata does.
    fn charge_bytes(&self) -> u64 {
        // NOTE: the buffer does not tell which volume a block is of.
        let block = self.overhead().heaviest().weigh(self.block_bytes);
        if self.any_reserved() {
            block + 2 * self.charged_metadata()
        } else {
            block + self.charged_metadata()
        }
    }

    fn charged_metadata(&self) -> u64 {
        self.charged_metadata_if(self.is_sharing())
    }

    /// The same if layers share maps, or not.
    fn charged_metadata_if(&self, is_sharing: bool) -> u64 {
        let bytes = if is_sharing { CHARGED_SHARED_BYTES } else { CHARGED_METADATA_BYTES };
        self.overhead().metadata(bytes)
    }

    /// Whether `new` blocks more fit beside the `charged` ones in the buffer, of which destage cannot take `stuck`: figures
    /// taken before the call.
    pub(crate) fn fit(&self, charged: u64, stuck: u64, new: u64, claim: Claim) -> Fit {
        let charge = self.charge_bytes();
        let (taken, new) = ((charged * charge) as i64, (new * charge) as i64);
        let room = |room: &AtomicU64| room.load(Ordering::Acquire) as i64;
        match claim {
            Claim::Free => {
                let room = room(&self.free_room);
                match () {
                    () if taken + new <= room => Fit::Fits,
                    () if charged > stuck && new <= room => Fit::Later,
                    () => Fit::Never,
                }
            }
            Claim::Reserved if taken == 0 || taken + new <= room(&self.reserved_room) => Fit::Fits,
            Claim::Reserved if charged > stuck => Fit::Later,
            Claim::Reserved => Fit::Never,
        }
    }

    /// Whether anything is promised, or about to be.
    pub(crate) fn any_reserved(&self) -> bool {
        self.any_reserved.load(Ordering::Acquire)
    }

    /// Whether what is live and `charged`, and all that is promised, `pending` included, fit together.
    pub(crate) fn keeps_promises(&self, pending: Promise, charged: u64) -> bool {
        let reserved = self.reserved.lock();
        self.promised(charged, &Reserved { pending, ..*reserved }) <= self.limit()
    }

    /// Whether what is live and `charged`, and all that is or is about to be promised, fit together.
    fn is_kept(&self, charged: u64) -> bool {
        let reserved = self.reserved.lock();
        self.promised(charged, &reserved) <= self.limit()
    }

    /// What the reservation of another volume may take, if so many slabs more can be had: in bytes, a multiple of the block.
    pub(crate) fn reservable_bytes(&self, charged: u64, slabs: u64) -> u64 {
        let reserved = self.reserved.lock();
        let promised = self.promised(charged, &Reserved { pending: Promise::default(), ..*reserved });
        let room = (self.limit() + self.kept_of(slabs)).saturating_sub(promised);
        let overhead = self.overhead();
        let nodes = |blocks: u64| overhead.metadata(Promise::of(blocks, 0, false).nodes * 2 * NODE_BYTES);
        let each = self.block_bytes + overhead.metadata(RESERVED_METADATA_BYTES);
        // Up to so many blocks, each brings nodes of its own.
        let few = room.saturating_sub(nodes(1)) / (each + nodes(2) - nodes(1));
        let many = room.saturating_sub(nodes(FAR_PLACES)) / each;
        let blocks = if many >= FAR_PLACES { many } else { few.min(FAR_PLACES) };
        blocks * self.block_bytes
    }

    /// What is taken, and what is not to be taken by writes without a reservation.
    fn promised(&self, charged: u64, reserved: &Reserved) -> u64 {
        let metadata = 2 * self.charged_metadata_if(reserved.sharing);
        let taken = self.live.load(Ordering::Relaxed)
            + charged * (self.overhead().heaviest().weigh(self.block_bytes) + metadata)
            + reserved.now.unmapped.saturating_mul(self.block_bytes).min(TOO_MUCH);
        taken.saturating_add(self.set_aside(reserved))
    }

    /// What host data without a reservation may take beside what is live, in bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        (self.free_room.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Whether blocks may be exchanged for others without being charged. What an exchange takes until the old block
    /// is given back is a batch of destage, for which the reserve has room.
    pub(crate) fn may_replace(&self) -> bool {
        self.live.load(Ordering::Relaxed) <= self.replace_limit.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}
