//! Every structure is damaged once, and the check names it: by a flipped bit on the drive, and where a
//! checksum would hide nothing, by wrong content under a right checksum.

use super::*;
use crate::{
    FormatOptions, ObjectKind, Pool, PoolOptions, Scrub, ScrubCounts, ScrubPosition, Transaction,
    format::{BlockInfo, EXTENT_MAGIC, ExtentHeader, GrantPage, PageSpace, ThinEntry},
    lifecycle::{create::format as make, open::open_checkpoint},
    maps::{
        blocks::{block_page, block_word},
        tree::slot,
    },
    segment::io::SegmentIo,
};
use quoin_base::{BlockIndex, LayerId, Layout, MIB, VolumeId};
use quoin_drive::{HEAD_BYTES, LABEL_BYTES, LABEL_OFFSETS, Label, Roles, inspect_set, open_set, root_offset};
use quoin_world::{Disk, Slice as Bytes};
use quoin_world_sim::{SimDisk, SimOptions, SimWorld};
use std::future::Future;
use zerocopy::IntoBytes;

pub(crate) const SLAB: u64 = 256 << 10;
/// Where slab 0 begins.
pub(crate) const SLABS_START_BYTES: u64 = 2 * MIB;
/// The root slots of the one slice.
pub(crate) const ROOT_OFFSETS: [u64; 2] = [root_offset(SliceId(0), 0), root_offset(SliceId(0), 1)];

pub(crate) struct Rig {
    pub(crate) world: Arc<SimWorld>,
    pub(crate) disks: Vec<Arc<SimDisk>>,
    pub(crate) volume: VolumeId,
}

impl Rig {
    /// A pool with destaged data, metadata of every kind, and a journal that would be replayed.
    pub(crate) fn new() -> Self {
        Self::with_columns(1)
    }

    /// The same with a journal of so many columns.
    pub(crate) fn with_columns(journal_columns: u8) -> Self {
        Self::with(&[Roles { journal: true, data: true }; 2], journal_columns)
    }

    /// The same on drives with these roles.
    pub(crate) fn with(roles: &[Roles], journal_columns: u8) -> Self {
        Self::laid_out(roles, journal_columns, Layout::NONE)
    }

    pub(crate) fn mirrored() -> Self {
        Self::laid_out(&[Roles { journal: true, data: true }; 2], 2, Layout::mirror(1))
    }

    fn laid_out(roles: &[Roles], journal_columns: u8, layout: Layout) -> Self {
        let world = SimWorld::new(7, SimOptions { data_threads: 1, step_limit: 20_000_000 });
        let disks: Vec<_> = (0..roles.len()).map(|i| world.disk(&format!("d{i}"), 17 * MIB)).collect();
        let mut rig = Self { world: world.clone(), disks, volume: VolumeId(1) };
        let disks = rig.disks().into_iter().zip(roles.iter().copied());
        let disks = disks.map(|(disk, roles)| crate::NewDrive::alone(disk, roles)).collect();
        let options = FormatOptions {
            slab_bytes: SLAB as u32,
            row_bytes: SLAB as u32 / 4,
            journal_bytes: Some(2 * MIB),
            journal_columns,
            layout,
            ..FormatOptions::default()
        };
        rig.run(async move { make(&*world, disks, options).await.unwrap() });
        let pool = rig.open();
        rig.volume = rig.run(async move {
            let volume = pool.next_volume_id();
            let create = Transaction::new().create_volume(volume).put(ObjectKind(1), "v", b"{}".to_vec());
            pool.commit(create).await.unwrap();
            for i in 0..64u64 {
                pool.write(volume, i * 8192, vec![Bytes::copy_of(&[i as u8 + 1; 8192])]).await.unwrap();
            }
            pool.drain().await.unwrap();
            pool.write(volume, 0, vec![Bytes::copy_of(&[99; 8192])]).await.unwrap();
            pool.commit(Transaction::new().put(ObjectKind(1), "w", b"{}".to_vec())).await.unwrap();
            pool.write(volume, 8192, vec![Bytes::copy_of(&[98; 8192])]).await.unwrap();
            volume
        });
        rig.world.crash();
        rig
    }

    /// Overwrites blocks whose numbers share a page of the block table that is not in RAM.
    fn drop_some(&self) {
        let volume = self.volume;
        let pool = self.try_open_with(PoolOptions { metadata_bytes: 0, ..Self::options() }).unwrap();
        self.run(async move {
            for i in (100..300).chain(100..110) {
                pool.write(volume, i * 8192, vec![Bytes::copy_of(&[i as u8; 8192])]).await.unwrap();
                if i == 299 {
                    pool.drain().await.unwrap();
                }
            }
            pool.drain().await.unwrap();
            assert_eq!(pool.stats().dropped_bytes, 10 * 8192);
        });
        self.world.crash();
    }

    pub(crate) fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.disks.iter().map(|d| d.clone() as Arc<dyn Disk>).collect()
    }

    pub(crate) fn run<T: Send + 'static>(&self, main: impl Future<Output = T> + Send + 'static) -> T {
        self.world.run(main).unwrap()
    }

    pub(crate) fn open(&self) -> Arc<Pool> {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> Result<Arc<Pool>, PoolError> {
        self.try_open_with(Self::options())
    }

    fn options() -> PoolOptions {
        PoolOptions { dirty_bytes: 256 << 10, buffer_bytes: MIB, ..PoolOptions::default() }
    }

    fn try_open_with(&self, options: PoolOptions) -> Result<Arc<Pool>, PoolError> {
        let (disks, world) = (self.disks(), self.world.clone());
        self.run(async move { Pool::open(world, open_set(disks).await.unwrap(), options).await })
    }

    pub(crate) fn check(&self) -> CheckReport {
        let disks = self.disks();
        self.run(async move { check(inspect_set(disks).await.unwrap()).await.unwrap() })
    }

    pub(crate) fn opened(&self) -> Opened {
        let disks = self.disks();
        self.run(async move {
            let store = Store::inspect(inspect_set(disks).await.unwrap()).await.unwrap();
            open_checkpoint(Arc::new(store), SliceId(0)).await.unwrap()
        })
    }

    /// Flips a bit in the middle of what lies at `location`.
    fn damage(&self, opened: &Opened, location: Location) {
        self.damage_at(&opened.io, location);
    }

    pub(crate) fn damage_at(&self, io: &SegmentIo, location: Location) {
        let (disk, at) = self.first_copy(io, location);
        flip(disk, at + location.len_bytes() / 2);
    }

    /// Where the first column of a segment has what lies at `location`, if that is all data or a copy.
    pub(crate) fn first_copy(&self, io: &SegmentIo, location: Location) -> (&SimDisk, u64) {
        let columns = io.segments.stripes(location.segment()).unwrap().columns;
        let at = SLABS_START_BYTES + u64::from(columns[0].slab) * SLAB + location.offset_bytes();
        (&self.disks[usize::from(columns[0].drive.0)], at)
    }

    /// Flips a bit in the middle of copies of a page, or of its only copy: those whose number is wanted. Returns how many
    /// copies there are.
    pub(crate) fn damage_page(&self, opened: &Opened, id: PageId, wanted: impl Fn(usize) -> bool) -> usize {
        let (columns, offset) = opened.io.copies(self.page(opened, id)).unwrap();
        for (_, column) in columns.iter().enumerate().filter(|(number, _)| wanted(*number)) {
            let at = SLABS_START_BYTES + u64::from(column.slab) * SLAB + offset;
            flip(&self.disks[usize::from(column.drive.0)], at + PAGE_BYTES as u64 / 2);
        }
        columns.len()
    }

    pub(crate) fn page(&self, opened: &Opened, id: PageId) -> Location {
        let (pages, io) = (opened.root.page_maps(), opened.io.clone());
        let entry = self.run(async move { crate::meta::PageStore::new(io, pages).entry(id).await.unwrap() });
        assert_ne!(entry.location.get(), 0, "{id:?} has no place");
        Location(entry.location.get())
    }

    #[track_caller]
    fn names(&self, expected: &str) {
        let report = self.check();
        let found: Vec<_> = report.problems.iter().chain(&report.notes).map(ToString::to_string).collect();
        assert!(found.iter().any(|p| p.contains(expected)), "nothing names {expected:?}: {found:#?}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.world.end();
    }
}

pub(crate) fn flip(disk: &SimDisk, at: u64) {
    let byte = disk.peek(at, 1)[0];
    disk.poke(at, &[byte ^ 0x10]);
}

#[test]
fn a_sound_pool_is_clean_and_everything_was_looked_at() {
    let rig = Rig::new();
    let report = rig.check();
    assert!(report.is_clean(), "{:#?}", report.problems);
    assert_eq!((report.volumes, report.blocks, report.records), (1, 64, 3), "{report:?}");
    assert_eq!(report.objects.len(), 2);
    assert_eq!(report.volume_ids.len(), 1);
    assert!(report.pages > 12 && report.segments >= 3, "{report:?}");
}

#[test]
fn damaged_metadata_pages_of_every_space_and_level_are_named() {
    for space in PAGE_SPACES {
        for level in 0..=MAP_LEVELS {
            let rig = Rig::new();
            if space == PageSpace::Dropped {
                rig.drop_some();
            }
            let opened = rig.opened();
            let index = match (space, level) {
                (PageSpace::Tree, 0) => PageNumber(1),
                _ => PageNumber(0),
            };
            rig.damage_page(&opened, PageId { space, level, index }, |_| true);
            rig.names(&format!("of the {space:?} space"));
        }
    }
}

#[test]
fn a_damaged_copy_of_a_page_that_has_another_is_a_note_and_the_pool_mends_it() {
    let pages = PAGE_SPACES.iter().flat_map(|space| {
        (0..=MAP_LEVELS).map(|level| PageId { space: *space, level, index: PageNumber(0) })
    });
    for (id, copy) in pages.filter(|id| id.is_kept_twice()).flat_map(|id| [(id, 0), (id, 1)]) {
        let rig = Rig::new();
        if id.space == PageSpace::Dropped {
            rig.drop_some();
        }
        let opened = rig.opened();
        assert_eq!(rig.damage_page(&opened, id, |number| number == copy), 2);
        let report = rig.check();
        assert!(report.is_clean(), "{id}, copy {copy}: {:#?}", report.problems);
        rig.names(&format!("the copy of {id} at byte"));
        let pool = rig.open();
        rig.run(async move {
            let scrub = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
            assert!(scrub.run().await.unwrap());
            // Some were mended by the checkpoint that a scrub begins with.
            let counts = scrub.progress().1;
            assert_eq!((counts.damage(), counts.damaged_blocks), (0, 0), "{id}, copy {copy}");
            pool.checkpoint().await.unwrap();
            pool.close().await.unwrap();
        });
        let report = rig.check();
        assert!(report.is_clean() && report.notes.is_empty(), "{id}, copy {copy}: {:#?}", report.notes);
    }
}

#[test]
fn what_was_dropped_takes_space_and_is_no_problem_unless_something_leads_there() {
    let rig = Rig::new();
    rig.drop_some();
    let report = rig.check();
    assert!(report.is_clean(), "{:#?}", report.problems);

    // The number of a block that the map leads to.
    let pool = rig.open();
    rig.run(async move {
        let bits = PageId::new(PageSpace::Dropped, PageNumber(0));
        let page = pool.first().metadata.pages.change(bits).await.unwrap();
        page.set(0, page.get(0) | 1 << 40);
        pool.checkpoint().await.unwrap();
    });
    rig.world.crash();
    rig.names("block 40: it is counted to have 1 references and has 2");
    rig.names("the dropped numbers: 10 are recorded and 11 are found");
}

#[test]
fn a_damaged_block_is_named() {
    let rig = Rig::new();
    let opened = rig.opened();
    let pages = crate::meta::PageStore::new(opened.io.clone(), opened.root.page_maps());
    let page = rig.run(async move { pages.get(block_page(BlockNumber(5))).await.unwrap().unwrap() });
    rig.damage(&opened, Location(page.get(block_word(BlockNumber(5)) + 2)));
    rig.names("block 5: its content in segment");
}

#[test]
fn a_damaged_row_head_is_named() {
    let rig = Rig::new();
    let opened = rig.opened();
    for (id, segment) in opened.io.segments.all() {
        if segment.written_bytes > 0 {
            let rig = Rig::new();
            rig.damage(&opened, Location::new(id, 0, PAGE_BYTES));
            rig.names(&format!("the row at 0 of segment {id}"));
        }
    }
}

#[test]
fn a_damaged_label_is_named_and_left_as_it_is() {
    for at in LABEL_OFFSETS {
        let rig = Rig::new();
        flip(&rig.disks[1], at + 30);
        let before = rig.disks[1].peek(at, 4096);
        rig.names(&format!("the label at {at} of drive d1"));
        assert_eq!(rig.disks[1].peek(at, 4096), before);
    }
}

#[test]
fn damaged_roots_are_named() {
    for (slot, at) in ROOT_OFFSETS.iter().enumerate() {
        let rig = Rig::new();
        flip(&rig.disks[0], at + 40);
        rig.names(&format!("root slot {slot} of drive d0"));
    }
    let rig = Rig::new();
    for disk in &rig.disks {
        for at in ROOT_OFFSETS {
            flip(disk, at + 40);
        }
    }
    rig.names("no valid root");
}

/// Where the extent with the newest records begins on its disk.
fn newest_extent(rig: &Rig) -> (Arc<SimDisk>, u64) {
    let mut newest = None;
    for disk in &rig.disks {
        for slab in 0..8 {
            let at = SLABS_START_BYTES + slab * SLAB;
            let Some(header) = ExtentHeader::parse(&disk.peek(at, PAGE_BYTES)) else { continue };
            assert_eq!(header.magic.get(), EXTENT_MAGIC);
            if newest.as_ref().is_none_or(|(number, _, _)| *number < header.number.get()) {
                newest = Some((header.number.get(), disk.clone(), at));
            }
        }
    }
    let (_, disk, at) = newest.unwrap();
    (disk, at)
}

/// Where the batches of an extent begin.
fn batches(disk: &SimDisk, extent: u64) -> Vec<u64> {
    let mut at = extent + PAGE_BYTES as u64;
    let mut found = Vec::new();
    loop {
        let head = disk.peek(at, 64);
        if head[..8] != *b"QUOINJB1" {
            return found;
        }
        found.push(at);
        at += u64::from(u32::from_le_bytes([head[28], head[29], head[30], head[31]]));
    }
}

#[test]
fn damage_to_the_journal_is_named() {
    // The last batch is left alone: damage there cannot be told from a write that was never acknowledged.
    let rig = Rig::new();
    let (disk, extent) = newest_extent(&rig);
    let heads = batches(&disk, extent);
    assert!(heads.len() >= 4, "{heads:?}");
    flip(&disk, extent + 100);
    rig.names("its header is unreadable");

    let rig = Rig::new();
    let (disk, _) = newest_extent(&rig);
    flip(&disk, heads[heads.len() - 2] + 20);
    rig.names("is unreadable, yet batch");

    // The payload of a write and that of a catalog record, further back.
    let rig = Rig::new();
    let (disk, _) = newest_extent(&rig);
    flip(&disk, heads[heads.len() - 3] + PAGE_BYTES as u64 + 77);
    rig.names("its payload does not verify");
    let rig = Rig::new();
    let (disk, _) = newest_extent(&rig);
    flip(&disk, heads[heads.len() - 2] + PAGE_BYTES as u64 + 7);
    rig.names("its checksum differs");
}

#[test]
fn slabs_that_are_not_granted_and_damaged_grant_pages_are_named() {
    let rig = Rig::new();
    rig.disks[0].flip_bit(ByteRange::new(HEAD_BYTES, PAGE_BYTES as u64));
    rig.names(&format!("the pool's drives: drive d0: the grant page at byte {HEAD_BYTES} does not verify"));
    assert!(rig.check().is_clean(), "the other copy is sound");
    assert_eq!(rig.open().mended().len(), 1);
    assert_eq!(rig.check().notes.len(), 0, "it was written anew");

    let segments = rig.opened().io.segments.all();
    let in_use =
        segments.iter().find(|(_, s)| s.live_grains > 0 && s.stripes.columns[0].drive.0 == 0).unwrap();
    let slab = in_use.1.stripes.columns[0].slab;
    let label = rig.disks[0].peek(LABEL_OFFSETS[0], LABEL_BYTES);
    let label = Label::in_bytes(label.as_slice().try_into().unwrap()).unwrap();
    for at in [0, 1].map(|copy| label.grant_page_offset(0, copy)) {
        let mut page = GrantPage::parse(&rig.disks[0].peek(at, PAGE_BYTES)).unwrap();
        page.holders[slab as usize] = 0;
        page.seal();
        rig.disks[0].poke(at, page.as_bytes());
    }
    rig.names(&format!("slab {slab} of drive 0 is not granted to the slice"));
    assert!(rig.try_open().is_err());
}

/// Changes metadata behind the committer's back, in a way that every checksum covers.
pub(crate) fn forge<F>(forge: impl FnOnce(Arc<Pool>, VolumeId) -> F) -> Rig
where
    F: Future<Output = ()> + Send + 'static,
{
    let rig = Rig::new();
    let pool = rig.open();
    let forged = forge(pool.clone(), rig.volume);
    rig.run(async move {
        pool.drain().await.unwrap();
        forged.await;
        pool.checkpoint().await.unwrap();
    });
    rig.world.crash();
    rig
}

#[test]
fn wrong_counts_under_right_checksums_are_named() {
    let rig = forge(|pool, _| async move {
        let page = pool.first().metadata.pages.change(block_page(BlockNumber(7))).await.unwrap();
        let info = BlockInfo(page.get(block_word(BlockNumber(7)) + 3));
        page.set(block_word(BlockNumber(7)) + 3, info.counted(2).0);
    });
    rig.names("block 7: it is counted to have 2 references and has 1");

    let rig = forge(|pool, _| async move {
        let page = pool.first().metadata.pages.change(block_page(BlockNumber(7))).await.unwrap();
        page.set(block_word(BlockNumber(7)) + 3, 0);
    });
    rig.names("block 7: it is counted to have 0 references and has 1");

    let rig = forge(|pool, volume| async move {
        pool.first().forks.of_volume(volume).unwrap().mapped_blocks.fetch_add(3);
    });
    rig.names("it is recorded to have 67 mapped blocks and has 64");

    let rig = forge(|pool, _| async move {
        let place = pool.first().block(BlockNumber(7)).await.unwrap().unwrap();
        pool.first().segments.table.add(place.location);
    });
    rig.names("live grains and holds");
}

#[test]
fn wrong_links_under_right_checksums_are_named() {
    let rig = forge(|pool, volume| async move {
        let layer = pool.first().forks.of_volume(volume).unwrap();
        let leaf = pool.first().leaf(&layer, BlockIndex(3)).await.unwrap().unwrap();
        let (third, fourth) = (leaf.get(3), leaf.get(4));
        assert_ne!(third, fourth);
        let root = ThinEntry(layer.root.load(std::sync::atomic::Ordering::Relaxed)).node().unwrap();
        // Another way to the same child.
        let page = pool.first().metadata.pages.change(node(root)).await.unwrap();
        page.set(9, page.get(0));
    });
    rig.names("two places lead to it");

    let rig = forge(|pool, _| async move {
        // Within the numbers in use: a page that was used and no node leads to any more.
        let layer = pool.first().forks.of_volume(VolumeId(1)).unwrap();
        let root = ThinEntry(layer.root.load(std::sync::atomic::Ordering::Relaxed)).node().unwrap();
        pool.first().metadata.pages.change(node(root)).await.unwrap().set(0, 0);
    });
    rig.names("no layer leads to it; its space is leaked");

    let rig = forge(|pool, volume| async move {
        let layer = pool.first().forks.of_volume(volume).unwrap();
        let root = ThinEntry(layer.root.load(std::sync::atomic::Ordering::Relaxed)).node().unwrap();
        pool.first()
            .metadata
            .pages
            .change(node(root))
            .await
            .unwrap()
            .set(0, ThinEntry::of_block(BlockNumber(900), LayerId(1)).0);
    });
    rig.names("node 900 of layer 1 of volume 1: it is missing");
}

#[test]
fn figures_of_space_that_do_not_fit_the_maps_are_named() {
    // A snapshot that lost a block to each side since, and one that both overwrote.
    let forked = |spoil: fn(&Pool, VolumeId, VolumeId)| {
        forge(move |pool, volume| async move {
            let snapshot = pool.next_volume_id();
            pool.commit(Transaction::new().fork(volume, snapshot)).await.unwrap();
            for (volume, block) in [(volume, 3), (volume, 5), (snapshot, 4), (snapshot, 5)] {
                pool.write(volume, block * 8192, vec![Bytes::copy_of(&[7; 8192])]).await.unwrap();
            }
            pool.drain().await.unwrap();
            spoil(&pool, volume, snapshot);
        })
    };
    let report = forked(|_, _, _| {}).check();
    assert!(report.is_clean(), "{:#?}", report.problems);
    let (own_bytes, released_bytes) = (2 * 8192, 4 * 8192);
    let own =
        VolumeSpace { written_bytes: 64 * 8192, own_bytes, released_bytes, freed_bytes: released_bytes };
    assert_eq!(report.volume_space.values().collect::<Vec<_>>(), [&own, &own]);
    let pool = report.space;
    assert_eq!((pool.written_bytes, pool.own_bytes, pool.shared_bytes), (128 * 8192, 4 * 8192, 64 * 8192));
    assert_eq!((pool.unique_bytes, pool.removing_bytes, pool.settled), (68 * 8192, 0, true));

    let rig = forked(|pool, volume, _| {
        pool.first().forks.of_volume(volume).unwrap().mapped_blocks.fetch_add(1);
    });
    rig.names("the space of volume 1: 532480 bytes would be reported as written, and 524288 are");
    rig.names("the space of the pool: 1056768 bytes would be reported as written, and 1048576 are");
    let rig = forked(|pool, volume, _| {
        pool.first().forks.of_volume(volume).unwrap().owned_blocks.fetch_add(1);
    });
    rig.names("the space of volume 1: 24576 bytes would be reported as its own, and 16384 are");
    rig.names(
        "the space of volume 1: 40960 bytes would be reported as released by deleting it, and 32768 are",
    );
    rig.names("the space of the pool: 565248 bytes would be reported as unique, and 557056 are");
    let rig = forked(|pool, volume, snapshot| {
        let parent = pool.first().forks.of_volume(volume).unwrap().parent().unwrap();
        let layer = pool.first().forks.of_volume(snapshot).unwrap();
        layer.lists.lock().dead_blocks.insert(parent.id, 1);
    });
    rig.names(
        "the space of volume 1: 24576 bytes would be reported as released by deleting it, and 32768 are",
    );
}

#[test]
fn a_block_with_as_many_references_as_there_can_be_is_stored_again() {
    forge(|pool, volume| async move {
        pool.commit(Transaction::new().deduplicate(volume, true)).await.unwrap();
        let write = async |block: u64| {
            pool.write(volume, block * 8192, vec![Bytes::copy_of(&[77; 8192])]).await.unwrap();
            pool.drain().await.unwrap();
            pool.stats().deduplicated_blocks
        };
        write(200).await;
        let slice = pool.first();
        let leaf =
            slice.leaf(&slice.forks.of_volume(volume).unwrap(), BlockIndex(200)).await.unwrap().unwrap();
        let number = ThinEntry(leaf.get(slot(BlockIndex(200), 0))).block().unwrap();
        let page = slice.metadata.pages.change(block_page(number)).await.unwrap();
        let info = BlockInfo(page.get(block_word(number) + 3));
        page.set(block_word(number) + 3, info.counted(BlockInfo::MOST / 2).0);
        // Those that come next are references to the one that is stored now.
        assert_eq!((write(201).await, write(202).await, write(203).await), (0, 1, 2));
        slice.metadata.pages.change(block_page(number)).await.unwrap();
        page.set(block_word(number) + 3, info.0);
    });
}
