//! Bugs to plant, so that the simulation can show it finds them. Without the feature `planted-bugs` every
//! question is answered "no" at compile time.
//!
//! Where a bug is planted the code asks once, in one expression: a condition, or a choice between two values. What takes more
//! stands in a small function of its own at the bottom of the file, which is named for what the right code does there. So
//! a reader who wants to know what is right can pass over every `planted`.

/// A way to break the engine on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
pub enum Bug {
    /// Journal batches are written without being hardened.
    SkipJournalFlush = 1,
    /// The checkpoint's rows are not flushed before its root is written.
    SkipRowFlush = 2,
    /// A freed segment is reused before a checkpoint without it is durable.
    EarlySegmentReuse = 3,
    /// Replay accepts batches of an earlier lap of the journal.
    ReplayOldLap = 4,
    /// A write is acknowledged before its batch is hardened.
    EarlyAcknowledge = 5,
    /// The buffer entry is evicted before the map is published.
    EvictBeforePublish = 6,
    /// The journal's tail ignores records displaced by ones not yet hardened.
    TailPastDisplaced = 7,
    /// A read's checksum is not verified.
    SkipReadVerify = 8,
    /// The root always goes to the same slot, over the newest one.
    SameRootSlot = 9,
    /// A journal extent is given out again as soon as nothing in the buffer needs it.
    EarlyExtentReuse = 10,
    /// A partial write is completed with zeroes instead of what lies below.
    ZeroFill = 11,
    /// An evicted entry may be newer than what was destaged.
    EvictNewer = 12,
    /// Recovery does not flush the journal drives before it serves what it read.
    SkipRecoveryFlush = 13,
    /// Unmapping forgets to journal.
    UnjournaledUnmap = 14,
    /// The root is written before the rows it leads to are flushed.
    RootBeforeRows = 15,
    /// A read returns what is not hardened yet.
    ServeUnhardened = 16,
    /// Metadata pages are dropped from RAM though they are dirty.
    DropDirtyPages = 17,
    /// A checkpoint records a volume that is being deleted as one that lives.
    ResurrectVolumes = 18,
    /// The journal's tail ignores a catalog transaction that is hardened and not applied.
    TailPastCatalog = 19,
    /// The last batches of a journal extent are not looked at for tears.
    ReplayTorn = 20,
    /// A freed block number is used again before a checkpoint without it is durable.
    EarlyNumberReuse = 21,
    /// The cleaner forgets to tell the block table where it moved a block.
    ForgetMoves = 22,
    /// The read cache keeps the content of block numbers that are freed and used again.
    StaleCache = 23,
    /// A batch tells those who wait for it before it is hardened.
    TellBeforeHardened = 24,
    /// A write takes its sequence before it holds the buffer's shard.
    SequenceBeforeShard = 25,
    /// The tail is limited by a sequence that is read after the buffer was looked at.
    TailReadLate = 26,
    /// Room in the journal is given to two who see the same room.
    RoomTwice = 27,
    /// A reader epoch begins where a reader of an epoch long past still is.
    LapReaders = 28,
    /// Of the batches that were in flight at the end, only the last is looked at for tears.
    VerifyLastBatchOnly = 29,
    /// A batch says that those in flight before it are hardened.
    HardenedTooSoon = 30,
    /// A read does not look into the buffer again after it looked at what lies below.
    LookOnce = 31,
    /// A pending layer takes its parent's map before all of the parent's buffered blocks are destaged.
    ForkEarly = 32,
    /// A reader of a pending layer does not look into its parent's buffered blocks.
    ReadOwnOnly = 33,
    /// What a layer owns by having taken its parent in counts as somebody else's.
    ForgetAliases = 34,
    /// What a layer does not use any more of its ancestors' is not listed.
    ForgetTheDead = 35,
    /// What a layer overwrites is freed though others use it.
    FreeShared = 36,
    /// A layer changes pages of its map that others use.
    ChangeShared = 37,
    /// Records of a layer that was forked and is destaged are replayed.
    ReplayIntoForked = 38,
    /// Destage gives what it finds in RAM a new checksum, whatever was received.
    BlessFlippedBits = 39,
    /// A block that is copied by reference is not counted once more.
    ForgetToCount = 40,
    /// What is copied from is deleted while records that name it may yet be replayed.
    DeleteCopiedEarly = 41,
    /// What a child listed before its parent became a part of it is not looked through.
    KeepOldList = 51,
    /// A root that only some drives have is not written to the others before it is served.
    SkipMendRoots = 42,
    /// The cleaner tells the block table where blocks are before they are written there.
    PublishMovesEarly = 43,
    /// The number of a page of the page space of the trees is used again while a reader may come by.
    EarlyPageReuse = 44,
    /// A page of the segment table is written as it was when it got its place, not as the checkpoint leaves it.
    FixTableEarly = 45,
    /// An unmap goes to the journal a second time, a while after it was hardened.
    UnmapTwice = 46,
    /// A fork is acknowledged once its own lane is hardened, whatever others hold that came before it.
    ForkOwnLane = 47,
    /// A block whose charge was waived stays uncharged, though what it replaced is not there any more.
    KeepWaived = 48,
    /// Who opens a pool that was closed leaves the root that says so, and takes it at its word.
    StayClosed = 49,
    /// A record that is appended to a lane after its end waits to be written for ever.
    AppendPastEnd = 50,
    /// A segment with placed rows is given up though replay may find records that name it.
    ForgetNames = 56,
    /// A placed row is not hardened before its record is appended.
    PlaceVolatile = 57,
    /// A block number that was lent to a data thread is taken for another block.
    LendTwice = 58,
    /// A checkpoint takes in a part of a transaction over several slices that is not decided. Seldom: a test of the pool makes
    /// it come about.
    CheckpointUndecided = 63,
    /// A transaction over several slices is decided before all its parts are hardened. Seldom, like the one before.
    DecideEarly = 64,
    /// A decision is forgotten while a slice may still replay its part.
    ForgetDecisions = 65,
    /// Replay makes the changes of a part whose transaction nobody decided.
    ReplayUndecided = 66,
    /// A record of placed blocks counts before the row that it names is hardened.
    CountBeforeRows = 76,
    /// Replay does not verify the rows of records of which nothing tells that they counted.
    TrustPlaced = 77,
    /// A repair writes what the one before was to write, when that segment may have been freed.
    RepairLate = 171,
    /// A scrub takes parity for right where it does not agree with data.
    TrustParity = 172,
    /// What was found wrong is written again to the next column.
    RepairNextColumn = 173,
    /// A repair of a block loses what else lies in its pages. A test of the pool finds it.
    RepairOverNeighbours = 174,
    /// What the cleaner packs is told of as it was stored before.
    RepackUntold = 300,
    /// What is packed gets the checksum of another block.
    PackNextChecksum = 301,
    /// A block is taken for the twin of another because the index of fingerprints says so.
    TrustIndex = 302,
    /// A block whose number was dropped is taken for the twin of another.
    ShareDropped = 303,
    /// The layer that had the only reference to a block does not learn that it is lent.
    ForgetBearer = 304,
    /// Blocks with one reference are lent while hosts were told that what they overwrite comes free.
    LendWhenFull = 305,
    /// References are added when blocks are published, while the same batch drops others.
    ReferLate = 306,
    /// A block is exchanged for its twin in the map of a layer whose entries the maps of forks may have.
    ExchangeFrozen = 307,
    /// A change of the pool's drives is in force before the voters have it.
    MembersBeforeHardened = 100,
    /// A drive that is added is a member before its grant pages are written. A test of the pool finds it.
    MemberBeforeGrants = 101,
    /// The journal goes on on a drive that is added before the table of members has it. A test of the pool finds it.
    JoinBeforeMember = 190,
    /// The length of a drive that grows counts before the grant pages of its new slabs are hardened.
    GrowBeforeGrants = 250,
    /// A drive is gone while columns and copies of the segment table lie on it.
    GoneTooSoon = 180,
    /// A slab that a column left is used again before a checkpoint that does not name it is durable.
    ReuseLeftEarly = 181,
    /// A column that was moved, or a new copy of the segment table, counts as protection before a durable checkpoint names it. A
    /// test of the pool finds it.
    CountUnnamed = 200,
    /// A drive comes back before a checkpoint that knows of its loss is durable.
    ReturnBeforeFlags = 201,
    /// What a drive that came back lacks counts as there.
    ForgetMissed = 202,
    /// The repair delay gives up a drive that holds the last copy of something. A test of the pool finds it.
    GiveUpLast = 240,
    /// A block that cannot be read while drives are away is given up like one that is damaged. A test of the pool finds it.
    FreeUnreadable = 241,
    /// A drive that was used by itself meanwhile is taken back. A test of the pool finds it.
    TakeBackGone = 242,
    /// What is carried forward in the journal goes over what hosts wrote meanwhile. A test of the pool finds it.
    CarryOverNewer = 243,
    /// A pool is opened with whatever voters are there.
    OpenMinority = 203,
    /// What was placed for another layout of its volume is published where it lies, and its layer does not count as uneven.
    PublishAsPlaced = 204,
    /// What volumes share is laid out as the one that tolerates the fewest failures wants it.
    LowerShared = 205,
    /// A column is copied to another drive as it is, whatever the checksums of its blocks say. A test of the pool finds it.
    CopyUnverified = 183,
    /// A record of the catalog that changed is left out of the checkpoint now and then.
    LeaveOutChanged = 72,
    /// A page of the catalog is not written again though a record in it was deleted.
    KeepDeletedRecord = 73,
    /// A page of the catalog is not written again though a record moved from it to another page.
    KeepMovedRecord = 74,
    /// A lane that goes idle does not tell that its last batches are hardened. A test of the pool finds it.
    KeepDoubt = 120,
    /// A batch counts when the first of its columns has it; the others do not get it at all.
    CountOneColumn = 121,
    /// A batch that a column failed counts before the journal's set of drives without it is durable. A test of the pool finds it.
    CountBeforeLeft = 123,
    /// What recovery takes from some columns only is not written to the others.
    KeepOnOneColumn = 122,
    /// A slice gives back slabs of segments that its last checkpoint still holds.
    GiveBackEarly = 90,
    /// A slice uses slabs whose grant is not durable.
    UseUngranted = 91,
    /// What was read ahead is kept though its block number is freed and used again.
    StaleAhead = 59,
    /// A number is dropped, and nothing says so.
    LoseDropped = 67,
    /// What was dropped and is free in the block table counts as dropped still.
    MergeTwice = 68,
    /// A dropped number is used again before it is free in the block table.
    ReuseDropped = 69,
    /// A number that others may refer to is dropped without a look at how many do.
    DropLent = 70,
    /// A page that changes while a checkpoint under way has yet to write it is written as it has become.
    ChangeCutPages = 150,
    /// What is given up while a checkpoint is under way is reused once that one is durable, though it still
    /// leads there.
    FreeForFlight = 151,
    /// A root names the tail as of its writing, not of the cut.
    TailOfRoot = 152,
    /// What becomes immutable is not fenced: unmaps that are under way go on.
    GateLeftOpen = 60,
    /// A drive that hung is used again before the operations it was given up with are over.
    TakeBackEarly = 61,
    /// The place of a page of the segment table is used again before a checkpoint without it is durable.
    EarlyTableReuse = 130,
    /// The id of a layer is used again before a checkpoint without it is durable.
    ReuseLayersEarly = 131,
}

impl Bug {
    /// Those that the simulation of the pool finds. The others are wrong orders of steps of two threads, which only the
    /// models under a model checker see, or lie above the pool.
    pub const ALL: [Bug; 86] = [
        Bug::TrustIndex,
        Bug::ShareDropped,
        Bug::ForgetBearer,
        Bug::ReferLate,
        Bug::ExchangeFrozen,
        Bug::GrowBeforeGrants,
        Bug::ReturnBeforeFlags,
        Bug::ForgetMissed,
        Bug::OpenMinority,
        Bug::PublishAsPlaced,
        Bug::LowerShared,
        Bug::GoneTooSoon,
        Bug::ReuseLeftEarly,
        Bug::TrustParity,
        Bug::RepairNextColumn,
        Bug::CountOneColumn,
        Bug::KeepOnOneColumn,
        Bug::ChangeCutPages,
        Bug::FreeForFlight,
        Bug::TailOfRoot,
        Bug::GiveBackEarly,
        Bug::UseUngranted,
        Bug::CountBeforeRows,
        Bug::TrustPlaced,
        Bug::SkipJournalFlush,
        Bug::SkipRowFlush,
        Bug::EarlySegmentReuse,
        Bug::ReplayOldLap,
        Bug::EarlyAcknowledge,
        Bug::EvictBeforePublish,
        Bug::TailPastDisplaced,
        Bug::SkipReadVerify,
        Bug::SameRootSlot,
        Bug::EarlyExtentReuse,
        Bug::ZeroFill,
        Bug::EvictNewer,
        Bug::SkipRecoveryFlush,
        Bug::UnjournaledUnmap,
        Bug::RootBeforeRows,
        Bug::ServeUnhardened,
        Bug::DropDirtyPages,
        Bug::ResurrectVolumes,
        Bug::TailPastCatalog,
        Bug::ReplayTorn,
        Bug::EarlyNumberReuse,
        Bug::ForgetMoves,
        Bug::RepackUntold,
        Bug::PackNextChecksum,
        Bug::StaleCache,
        Bug::VerifyLastBatchOnly,
        Bug::HardenedTooSoon,
        Bug::ForkEarly,
        Bug::ReadOwnOnly,
        Bug::ForgetAliases,
        Bug::ForgetTheDead,
        Bug::FreeShared,
        Bug::ChangeShared,
        Bug::ReplayIntoForked,
        Bug::BlessFlippedBits,
        Bug::ForgetToCount,
        Bug::DeleteCopiedEarly,
        Bug::KeepOldList,
        Bug::TakeBackEarly,
        Bug::SkipMendRoots,
        Bug::PublishMovesEarly,
        Bug::EarlyPageReuse,
        Bug::FixTableEarly,
        Bug::EarlyTableReuse,
        Bug::ReuseLayersEarly,
        Bug::UnmapTwice,
        Bug::ForkOwnLane,
        Bug::KeepWaived,
        Bug::StayClosed,
        Bug::ForgetNames,
        Bug::PlaceVolatile,
        Bug::LendTwice,
        Bug::ForgetDecisions,
        Bug::ReplayUndecided,
        Bug::StaleAhead,
        Bug::LoseDropped,
        Bug::MergeTwice,
        Bug::ReuseDropped,
        Bug::DropLent,
        Bug::LeaveOutChanged,
        Bug::KeepDeletedRecord,
        Bug::KeepMovedRecord,
    ];
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants `bug`, or none, for everything that runs on this OS thread from now on.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
        let below = bug.filter(|bug| *bug == Bug::TakeBackEarly);
        quoin_drive::bugs::plant(below.map(|_| quoin_drive::bugs::Bug::TakeBackEarly));
        let below = bug.filter(|bug| *bug == Bug::RepairNextColumn);
        quoin_stripe::bugs::plant(below.map(|_| quoin_stripe::bugs::Bug::RewriteNextColumn));
    }

    /// Whether `bug` is planted on this OS thread.
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use planted::{plant, planted};

/// Whether a bug is planted: never.
#[cfg(not(feature = "planted-bugs"))]
pub const fn planted(_: Bug) -> bool {
    false
}
