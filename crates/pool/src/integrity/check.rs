//! The offline check: walks everything a pool holds and names what is not as it must be. It changes nothing.
//!
//! It trusts nothing it has not verified: both root slots of every voter, every metadata page, every thin map,
//! every block's content, every row's head, the counts that are kept against the references that are there
//! (I7), every slab's owner, and the journal that a recovery would replay.

use crate::{
    error::PoolError,
    format::{GRAIN_BYTES, Location, MAP_LEVELS, PAGE_BYTES, PAGE_SPACES, PageSpace},
    integrity::quarantine::{LEAKED_OBJECT, Leaked},
    lifecycle::{open::Opened, options::PoolOptions, spanning::Decided},
    maps::tree::node,
    meta::{ObjectKind, Operation, PageId, SegmentState, Transaction},
    segment::io::{BadCopy, RowAt},
    space::report::{PoolSpace, VolumeSpace},
    store::{
        Store,
        roots::{RootSlot, Slot, newest},
    },
};
use hashbrown::HashMap;
use journal::{SliceToCheck, check_journal, decided_by};
use loans::Loans;
use quoin_base::{BlockNumber, ByteRange, PageNumber, SegmentGeneration, SegmentId, SliceId, VolumeId};
use quoin_drive::Drive;
use quoin_world::Compiled;
use rustc_hash::FxBuildHasher;
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

mod journal;
mod layers;
mod loans;
mod redundancy;
mod space;
mod table;
#[cfg(test)]
pub(crate) mod tests;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which structure: "segment 12", "block 93", "journal extent 7".
    pub what: String,
    /// What is wrong with it, and what follows from that.
    pub problem: String,
    /// Whether a scrub of the pool repairs it: what should be there follows from other drives.
    pub is_repairable: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.problem)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What is wrong; empty if all is well.
    pub problems: Vec<Problem>,
    /// What an interrupted write left behind, or damage that has a sound copy: opening the pool mends it.
    pub notes: Vec<Problem>,
    /// What damaged pages of maps led to that is taken and cannot be reached. Counts that are too high are notes then.
    pub(crate) leaked: Leaked,
    /// References that layers count and that were not found.
    pub(crate) missing_references: u64,
    /// Problems beyond the first [`MAX_PROBLEMS`], which are not listed.
    pub more_problems: u64,
    /// Volumes walked.
    pub volumes: u64,
    /// Metadata pages read and verified.
    pub pages: u64,
    /// Blocks whose content was read and verified.
    pub blocks: u64,
    /// Segments in use.
    pub segments: u64,
    /// Journal records that a recovery would replay, each verified.
    pub records: u64,
    /// Where rows of large writes lie whose records a recovery drops, with those behind: a drive's name, and a range of it.
    pub dropped_rows: Vec<(String, ByteRange)>,
    /// The catalog as it would be after recovery, for the layers above to check what is theirs.
    pub objects: BTreeMap<(ObjectKind, String), Vec<u8>>,
    /// The volumes there would be after recovery.
    pub volume_ids: BTreeSet<VolumeId>,
    /// The bytes promised to volumes that would have been after recovery; those without a promise may be missing.
    pub reservations: BTreeMap<VolumeId, u64>,
    /// What volumes have of the space at the checkpoint, as the walk of their maps found it.
    pub volume_space: BTreeMap<VolumeId, VolumeSpace>,
    /// What all volumes have of the space at the checkpoint.
    pub space: PoolSpace,
}

/// The most problems a report lists.
pub const MAX_PROBLEMS: usize = 1000;

impl CheckReport {
    /// True when nothing was found.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a problem that nothing repairs.
    pub fn add(&mut self, what: impl Into<String>, problem: impl Into<String>) {
        self.add_problem(Problem { what: what.into(), problem: problem.into(), is_repairable: false });
    }

    /// Adds a problem that a scrub repairs.
    fn add_repairable(&mut self, what: impl Into<String>, problem: &str) {
        let problem = format!("{problem}; a scrub repairs it");
        self.add_problem(Problem { what: what.into(), problem, is_repairable: true });
    }

    fn add_problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.more_problems += 1;
        }
    }

    fn note(&mut self, what: String, problem: impl Into<String>) {
        self.notes.push(Problem { what, problem: problem.into(), is_repairable: true });
    }

    /// Adds what follows from pages of maps that were damaged, if any were: a note then, a problem else.
    fn add_unless_leaked(&mut self, what: String, problem: String) {
        match self.leaked.pages {
            0 => self.add(what, problem),
            _ => self.note(what, format!("{problem}; a page that led to it was damaged")),
        }
    }

    /// Compares a count with what was found. More may be counted than can be reached once pages were damaged.
    fn expect(&mut self, what: String, problem: impl FnOnce() -> String, counted: u64, found: u64) {
        match counted.cmp(&found) {
            Ordering::Equal => {}
            Ordering::Greater => self.add_unless_leaked(what, problem()),
            Ordering::Less => self.add(what, problem()),
        }
    }

    fn apply(&mut self, transaction: Transaction) {
        for operation in transaction.operations {
            match operation {
                Operation::Put { kind, key, value } => {
                    self.objects.insert((kind, key), value);
                }
                Operation::Delete { kind, key } => {
                    self.objects.remove(&(kind, key));
                }
                Operation::CreateVolume { volume: id, .. } | Operation::Fork { target: id, .. } => {
                    self.volume_ids.insert(id);
                }
                Operation::DeleteVolume(id) => {
                    self.volume_ids.remove(&id);
                    self.reservations.remove(&id);
                }
                Operation::Reserve { volume, bytes } if self.volume_ids.contains(&volume) => {
                    self.reservations.insert(volume, bytes);
                }
                Operation::Reserve { .. }
                | Operation::LayOut { .. }
                | Operation::Compress { .. }
                | Operation::Deduplicate { .. }
                | Operation::Prepare(_) => {}
            }
        }
    }

    /// Takes in what was found in a slice. `prefix` goes before what its findings name.
    fn take_in(&mut self, of_slice: CheckReport, prefix: &str) {
        let CheckReport { problems, notes, leaked, missing_references, more_problems, .. } = of_slice;
        for problem in problems {
            self.add_problem(Problem { what: format!("{prefix}{}", problem.what), ..problem });
        }
        for note in notes {
            self.note(format!("{prefix}{}", note.what), note.problem);
        }
        self.leaked.add(leaked);
        self.missing_references += missing_references;
        self.more_problems += more_problems;
        self.volumes += of_slice.volumes;
        self.pages += of_slice.pages;
        self.blocks += of_slice.blocks;
        self.segments += of_slice.segments;
        self.records += of_slice.records;
        self.dropped_rows.extend(of_slice.dropped_rows);
        for ((kind, key), value) in of_slice.objects {
            let before = self.objects.insert((kind, key.clone()), value);
            // Each slice has notes of its own on its damage.
            if before.is_some() && kind != LEAKED_OBJECT {
                self.add(format!("object {key} of kind {}", kind.0), "two slices have it");
            }
        }
        self.volume_ids.extend(of_slice.volume_ids);
        self.reservations.extend(of_slice.reservations);
        self.volume_space.extend(of_slice.volume_space);
        self.space.add(&of_slice.space);
    }

    /// Lists an error that ended a part of the walk.
    fn add_error(&mut self, what: &str, error: PoolError) {
        match error {
            PoolError::Corrupt { what, problem } => self.add(what, problem),
            error => self.add(what, error.to_string()),
        }
    }
}

/// Checks a pool that is not open. Fails only if there is no pool to check.
///
/// # Errors
/// [`PoolError::Drive`] if the drives given are not all that the pool needs, or one fails while it is read.
/// Damage is no error: the report has it.
pub fn check(drives: Vec<Arc<Drive>>) -> Compiled<'static, Result<CheckReport, PoolError>> {
    Box::pin(check_all(drives))
}

async fn check_all(drives: Vec<Arc<Drive>>) -> Result<CheckReport, PoolError> {
    let mut report = CheckReport::default();
    for drive in &drives {
        for (offset, why) in drive.label_damage().await {
            report.note(
                format!("the label at {offset} of drive {}", drive.name()),
                format!("{why}; the other copy is used"),
            );
        }
    }
    match check_slices(drives, &mut report).await {
        Err(error @ (PoolError::Corrupt { .. } | PoolError::Unopenable(_))) => {
            report.add_error("the pool", error);
        }
        outcome => outcome?,
    }
    Ok(report)
}

async fn check_slices(drives: Vec<Arc<Drive>>, report: &mut CheckReport) -> Result<(), PoolError> {
    let store = Arc::new(Store::inspect(drives).await?);
    store.damaged().iter().for_each(|what| report.note("the pool's drives".into(), what.clone()));
    for what in store.older_members().await {
        report.note("the table of members".into(), what);
    }
    let is_one = store.slices().count() == 1;
    let prefix = |slice: SliceId| if is_one { String::new() } else { format!("slice {slice}: ") };
    let mut slices = Vec::new();
    for slice in store.slices() {
        check_roots(&store, slice, report).await;
        match SliceToCheck::open(&store, slice).await {
            Ok(slice) => slices.push(slice),
            Err(error @ (PoolError::Corrupt { .. } | PoolError::Unopenable(_))) if !is_one => {
                let mut of_slice = CheckReport::default();
                of_slice.add_error("its checkpoint", error);
                report.take_in(of_slice, &prefix(slice));
            }
            Err(error) => return Err(error),
        }
    }
    let decided = decided_by(&slices).await?;
    report.space.settled = true;
    for slice in &slices {
        let mut of_slice = CheckReport::default();
        check_slice(slice, &decided, &mut of_slice).await;
        report.take_in(of_slice, &prefix(slice.id));
    }
    Ok(())
}

async fn check_slice(slice: &SliceToCheck, decided: &Decided, report: &mut CheckReport) {
    let opened = &slice.opened;
    report.leaked = Leaked::of(&opened.catalog.objects);
    let mut walk = Walk {
        unreachable_references: 0,
        unread_nodes: Vec::new(),
        unreached: BTreeSet::new(),
        opened,
        report,
        live: HashMap::default(),
        references: HashMap::default(),
        loans: Loans::default(),
        tree_pages: BTreeSet::new(),
    };
    walk.page_maps().await;
    walk.layers().await;
    walk.orphaned_tree_pages().await;
    walk.space(block_bytes(opened)).await;
    walk.block_table().await;
    walk.loans();
    walk.leaks();
    walk.segments().await;
    let leaves = || opened.catalog.layers.iter().filter(|l| l.is_leaf());
    report.volume_ids = leaves().map(|l| l.volume).collect();
    for leaf in leaves().filter(|leaf| leaf.volume.slice() != slice.id) {
        report.add(format!("volume {}", leaf.volume), "its id is of another slice");
    }
    report.reservations = leaves().map(|l| (l.volume, l.reserved_bytes)).collect();
    report.objects = opened.catalog.objects.clone();
    check_journal(slice, decided, report).await;
    check_promises(opened, report);
}

type Objects = BTreeMap<(ObjectKind, String), Vec<u8>>;

/// The objects in the catalog of a pool that is not open, as they would be after recovery. Nothing but catalog and journal
/// is looked at.
///
/// # Errors
/// [`PoolError::Drive`] if drives are missing or fail, [`PoolError::Unopenable`] or [`PoolError::Corrupt`] if
/// a slice's root, catalog or journal cannot be made out.
pub fn read_catalog(drives: Vec<Arc<Drive>>) -> Compiled<'static, Result<Objects, PoolError>> {
    Box::pin(recovered_catalog(drives))
}

async fn recovered_catalog(drives: Vec<Arc<Drive>>) -> Result<Objects, PoolError> {
    let store = Arc::new(Store::inspect(drives).await?);
    let mut slices = Vec::new();
    for slice in store.slices() {
        slices.push(SliceToCheck::open(&store, slice).await?);
    }
    let decided = decided_by(&slices).await?;
    let mut report = CheckReport::default();
    for slice in &slices {
        let objects = slice.opened.catalog.objects.clone();
        let mut of_slice = CheckReport { objects, ..CheckReport::default() };
        check_journal(slice, &decided, &mut of_slice).await;
        report.take_in(of_slice, "");
    }
    match report.problems.into_iter().next() {
        Some(Problem { what, problem, .. }) => Err(PoolError::Corrupt { what, problem }),
        None => Ok(report.objects),
    }
}

/// What is promised to volumes and not mapped fits beside what is used, both at the checkpoint.
fn check_promises(opened: &Opened, report: &mut CheckReport) {
    // What the journal takes back may be used otherwise since, for instance by slices that were given the slabs.
    let after_replay = |volume| report.reservations.get(&volume).copied().unwrap_or(0);
    let promised = opened.promised_bytes_of(|leaf| leaf.reserved_bytes.min(after_replay(leaf.volume)));
    let live = opened.io.segments.usage().net_live_data;
    // The most that any opening lets host data take.
    let space = opened.space(&PoolOptions { dirty_bytes: 0, ..PoolOptions::default() });
    let room = space.limit().saturating_sub(live);
    // What drives held that were lost or leave was promised before.
    let store = &opened.io.store;
    let has_lost = store.lost_drives().next().is_some() || !store.leaving().is_empty();
    if promised > room && !has_lost {
        let problem =
            format!("{promised} bytes are promised to volumes and not used yet, and {room} are left");
        report.add("the space accounting", problem);
    }
}

fn block_bytes(opened: &Opened) -> u64 {
    opened.io.store.block_bytes().into()
}

/// Both slots of every voter: one holds the newest root, the other the one before, or nothing yet.
async fn check_roots(store: &Store, slice: SliceId, report: &mut CheckReport) {
    let slots = store.root_slots(slice).await;
    let newest = newest(&slots);
    for RootSlot { drive, number, content: slot } in &slots {
        let of_slice = if slice.0 == 0 { String::new() } else { format!(" of slice {slice}") };
        let what = || format!("root slot {number}{of_slice} of drive {drive}");
        match slot {
            Slot::Damaged => report
                .note(what(), "it does not verify; a checkpoint was being written, or the drive is damaged"),
            Slot::Unreadable(why) => report.note(what(), format!("it cannot be read ({why})")),
            Slot::Root(_) | Slot::Blank => {}
        }
        let Some(newest) = newest.filter(|newest| newest.generation.get() as usize % 2 == *number) else {
            continue;
        };
        if slot.root().is_none_or(|root| root.age() != newest.age()) {
            let generation = newest.generation.get();
            report.note(what(), format!("it should hold checkpoint {generation}, as another slot does"));
        }
    }
}

struct Walk<'a> {
    opened: &'a Opened,
    report: &'a mut CheckReport,
    /// Grains that locations count, and how many there are, by segment.
    live: HashMap<u32, (u64, u32), FxBuildHasher>,
    /// References to each block from the thin maps.
    references: HashMap<BlockNumber, u32, FxBuildHasher>,
    loans: Loans,
    /// Pages of the page space of the trees that a thin map reached.
    tree_pages: BTreeSet<PageNumber>,
    /// Blocks that the table has and nothing leads to.
    unreached: BTreeSet<BlockNumber>,
    /// Pages of the page space of the trees that cannot be read.
    unread_nodes: Vec<(PageNumber, PoolError)>,
    /// References that the block table counts and that nothing leads to.
    unreachable_references: u64,
}

impl Walk<'_> {
    fn take(&mut self, location: Location) {
        let (grains, contents) = self.live.entry(location.segment().0).or_default();
        *grains += u64::from(location.counted_grains());
        *contents += 1;
    }

    /// Every page of every space, map pages included: each is where the page above says, and verifies.
    async fn page_maps(&mut self) {
        for space in PAGE_SPACES {
            let mut level = vec![PageNumber(0)];
            for depth in (0..=MAP_LEVELS).rev() {
                let mut below = Vec::new();
                for index in level {
                    let id = PageId { space, level: depth, index };
                    let entry = match self.opened.pages.entry(id).await {
                        Ok(entry) => entry,
                        Err(_) => continue, // its parent was reported
                    };
                    if entry.location.get() == 0 {
                        continue;
                    }
                    let location = Location(entry.location.get());
                    if location.table_slab().is_none() {
                        self.take(location);
                    }
                    self.copies(id, location, entry.crc.get()).await;
                    let end = PageNumber(self.opened.root.catalog_pages.get());
                    if id == PageId::new(PageSpace::Catalog, index) && index >= end {
                        self.report.add(format!("page {index} of the catalog"), "it lies beyond the end");
                    }
                    match self.opened.pages.get(id).await {
                        Ok(Some(page)) if depth > 0 => {
                            below.extend(page.those_below(id).into_iter().map(|id| id.index));
                        }
                        Ok(_) => {}
                        Err(error) if id == node(index) => self.unread_nodes.push((index, error)),
                        Err(error) => self.report.add_error(&format!("page {index} of {space:?}"), error),
                    }
                    self.report.pages += 1;
                }
                level = below;
            }
        }
    }

    /// Names the copies of a page that cannot be used while another can.
    async fn copies(&mut self, id: PageId, at: Location, crc: u64) {
        let Ok((bad, copies)) = self.opened.io.bad_copies(at, crc).await else { return };
        for BadCopy { what, .. } in if bad.len() < copies { bad } else { Vec::new() } {
            let problem = "another is used; a scrub, or the next checkpoint that changes it, writes it anew";
            self.report.note(format!("the copy of {id} {what}"), problem);
        }
    }

    /// Pages of the page space of the trees that cannot be read, and those that no layer leads to.
    async fn orphaned_tree_pages(&mut self) {
        for (index, error) in std::mem::take(&mut self.unread_nodes) {
            if self.tree_pages.contains(&index) {
                self.report.add_error("a page of the page space of trees", error)
            } else {
                // A page that led there was damaged too.
                self.report
                    .add_unless_leaked(format!("page {index} of the page space of trees"), error.to_string())
            }
        }
        let end = PageNumber(self.opened.root.tree_end.get());
        for index in PageNumber(1).until(end) {
            let exists = self.opened.pages.exists(node(index)).await.unwrap_or(false);
            if exists && !self.tree_pages.contains(&index) {
                self.report.add_unless_leaked(
                    format!("page {index} of the page space of trees"),
                    "no layer leads to it; its space is leaked".into(),
                );
            }
        }
    }

    /// Every segment: live as counted, rows with heads where they must be.
    async fn segments(&mut self) {
        let io = self.opened.io.clone();
        for (id, segment) in io.segments.all() {
            let (live, contents) = self.live.remove(&id.0).unwrap_or_default();
            if segment.state == SegmentState::Free {
                if live > 0 {
                    self.report.add(
                        format!("segment {id}"),
                        format!("it is free, yet {live} grains of it are in use"),
                    );
                }
                continue;
            }
            self.report.segments += 1;
            if live != u64::from(segment.live_grains) {
                self.report.add(
                    format!("segment {id}"),
                    format!("it is counted to hold {} live grains and holds {live}", segment.live_grains),
                );
            }
            if contents != segment.live_contents {
                self.report.add(
                    format!("segment {id}"),
                    format!(
                        "it is counted to hold {} live contents and holds {contents}",
                        segment.live_contents
                    ),
                );
            }
            if segment.written_bytes > io.segments.segment_bytes(segment.stripes.geometry) {
                self.report.add(format!("segment {id}"), "more is recorded to be written than it can hold");
                continue;
            }
            self.rows(id, segment.generation, segment.written_bytes).await;
        }
        for (id, (live, _)) in std::mem::take(&mut self.live) {
            let bytes = live * GRAIN_BYTES;
            self.report
                .add(format!("segment {id}"), format!("it does not exist, yet {bytes} bytes lie in it"));
        }
    }

    /// The rows of a segment: their heads, and whether parity and copies agree with the data.
    async fn rows(&mut self, id: SegmentId, generation: SegmentGeneration, written_bytes: u64) {
        let mut at = RowAt { segment: id, generation, offset: 0 };
        while at.offset < written_bytes {
            let what = format!("the row at {} of segment {id}", at.offset);
            let head = match self.opened.io.read_range(id, ByteRange::new(at.offset, PAGE_BYTES as u64)).await
            {
                Ok(head) => head,
                Err(error) => return self.report.add_error(&what, error),
            };
            let head = match at.head_in(&head) {
                Some(head) => head,
                None => match self.head_elsewhere(at, &what).await {
                    Some(head) => head,
                    None => {
                        let problem = "its head does not verify; the segment cannot be cleaned";
                        return self.report.add(what, problem);
                    }
                },
            };
            let range = ByteRange::new(at.offset, head.len_bytes.get().into());
            self.redundancy(id, range, &what).await;
            at.offset = range.end();
        }
    }
}
