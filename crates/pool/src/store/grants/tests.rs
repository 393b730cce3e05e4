//! Grants in the simulated world: what power cuts, rot and damage do to them.

use super::*;
use quoin_base::{ByteRange, DriveId, LabelGeneration, Layout};
use quoin_drive::{Fences, GRANT_PAGE_BYTES, Label, Members, Roles, WriterSession, open_set, raise_set};
use quoin_world::Disk;
use quoin_world_sim::{FaultPlan, PowerCut, SimDisk, SimOptions, SimWorld};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const SLAB_BYTES: u32 = 8192;
const JOURNAL_SLABS: u32 = 4;
const SLICES: u8 = 3;
/// Two grant pages a drive.
const LEN_BYTES: u64 = (2 << 20) + 5000 * SLAB_BYTES as u64;

struct Rig {
    world: Arc<SimWorld>,
    disks: Vec<Arc<SimDisk>>,
}

/// Who holds what, as the slices were told.
type Model = BTreeMap<Column, SliceId>;

fn pool_id() -> PoolId {
    PoolId(uuid::Uuid::from_u128(7))
}

fn session() -> WriterSession {
    WriterSession::unnamed(Epoch::default())
}

fn label(index: u16) -> Label {
    Label {
        pool: pool_id(),
        pool_name: "tank".into(),
        drive: DriveId(uuid::Uuid::from_u128(100 + u128::from(index))),
        index: DriveIndex(index),
        // The second holds no segments.
        roles: Roles { journal: true, data: index == 0 },
        len_bytes: 0,
        slab_bytes: SLAB_BYTES,
        row_bytes: SLAB_BYTES,
        block_bytes: 8192,
        journal_slabs: JOURNAL_SLABS,
        fences: Fences::default(),
        generation: LabelGeneration(1),
        created_ms: 0,
        slices: SLICES,
        slabs_start_bytes: 0,
        journal_columns: 1,
        layout: Layout::NONE,
    }
}

impl Rig {
    fn new(seed: u64) -> Self {
        let world = SimWorld::new(seed, SimOptions::default());
        let disks: Vec<_> = (0..2).map(|i| world.disk(&format!("d{i}"), LEN_BYTES)).collect();
        let rig = Self { world, disks };
        let disks = rig.disks();
        rig.world
            .run(async move {
                let mut drives = Vec::new();
                for (index, disk) in (0..).zip(disks) {
                    drives.push(Drive::format(disk, label(index), session()).await.unwrap());
                }
                Grants::format(pool_id(), &drives, SLICES, 1666).await.unwrap();
                let labels: Vec<_> = drives.iter().map(|drive| drive.label()).collect();
                let members = Members::first(pool_id(), &labels, vec![String::new(); labels.len()]);
                super::super::members::format(&drives, &members).await.unwrap();
            })
            .unwrap();
        rig
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect()
    }

    fn try_open(&self) -> Result<(Grants, Vec<String>), PoolError> {
        let disks = self.disks();
        let opened = async move {
            let drives = open_set(disks).await.unwrap();
            let epoch = raise_set(&drives).await.unwrap();
            Grants::read(pool_id(), epoch, &drives, true).await
        };
        self.world.run(opened).unwrap()
    }

    fn open(&self) -> Grants {
        self.try_open().unwrap().0
    }

    /// Where a copy of a page of the first drive is.
    fn place(&self, page: u32, copy: usize) -> ByteRange {
        let label = Label { len_bytes: LEN_BYTES, slabs_start_bytes: 2 << 20, ..label(0) };
        ByteRange::new(label.grant_page_offset(page, copy), GRANT_PAGE_BYTES as u64)
    }
}

fn model(grants: &Grants) -> Model {
    let of = |slice: SliceId| {
        let columns = move |(drive, slabs): (DriveIndex, BTreeSet<u32>)| {
            slabs.into_iter().map(move |slab| (Column { drive, slab }, slice))
        };
        grants.granted_to(slice).into_iter().flat_map(columns)
    };
    (0..SLICES).map(SliceId).flat_map(of).collect()
}

/// What the slices were told, and what they were asking for when power failed.
#[derive(Default)]
struct Told {
    model: Model,
    /// A grant that was asked for, or slabs that were being given back.
    grant_to: Option<SliceId>,
    given_back: BTreeSet<Column>,
}

async fn work(grants: &Grants, rng: &mut ChaCha8Rng, told: &Mutex<Told>) {
    loop {
        let slice = SliceId(rng.random_range(0..SLICES));
        let held: Vec<_> =
            told.lock().model.iter().filter(|(_, by)| **by == slice).map(|(at, _)| *at).collect();
        if rng.random_bool(0.5) || held.is_empty() {
            told.lock().grant_to = Some(slice);
            let slabs = grants.grant(slice, rng.random_range(1..40)).await.0;
            let mut told = told.lock();
            told.grant_to = None;
            for slab in slabs {
                assert_eq!(told.model.insert(slab, slice), None, "{slab:?} was somebody's");
            }
        } else {
            let count = rng.random_range(1..=held.len().min(2000));
            let from = rng.random_range(0..=held.len() - count);
            let slabs = &held[from..from + count];
            told.lock().given_back = slabs.iter().copied().collect();
            grants.give_back(slice, slabs).await;
            let mut told = told.lock();
            told.given_back.clear();
            told.model.retain(|at, _| !slabs.contains(at));
        }
    }
}

#[test]
fn after_a_power_cut_every_slab_is_held_by_whom_the_slices_think() {
    let (mut granted, mut given_back, mut untouched) = (0, 0, 0);
    for seed in 0..60 {
        let rig = Rig::new(seed);
        let told = Arc::new(Mutex::new(Told { model: model(&rig.open()), ..Told::default() }));
        for round in 0..6 {
            let grants = rig.open();
            let mut rng = ChaCha8Rng::seed_from_u64(seed * 100 + round);
            rig.world.cut_power(PowerCut::AtDiskOp(rng.random_range(1..12)));
            let noted = told.clone();
            let ended = rig.world.run(async move { work(&grants, &mut rng, &noted).await });
            assert!(ended.is_err(), "power fails while it works");
            rig.world.crash();
            rig.world.cut_power(PowerCut::Never);

            // What was told holds. What was asked for when power failed may have come about in part.
            let found = model(&rig.open());
            let mut told = told.lock();
            for (at, slice) in &told.model {
                let returned = told.given_back.contains(at);
                assert!(found.get(at) == Some(slice) || returned && !found.contains_key(at), "{at:?}");
            }
            let unasked: BTreeSet<_> =
                found.iter().filter(|(at, _)| !told.model.contains_key(at)).map(|(_, by)| *by).collect();
            assert!(unasked.iter().all(|by| told.grant_to == Some(*by)), "{unasked:?}");
            assert!(found.keys().all(|at| at.drive.0 == 0 && at.slab >= JOURNAL_SLABS));
            match (found.len() > told.model.len(), found.len() < told.model.len()) {
                (true, _) => granted += 1,
                (_, true) => given_back += 1,
                _ => untouched += 1,
            }
            *told = Told { model: found, ..Told::default() };
        }
    }
    assert!(granted > 5 && given_back > 5 && untouched > 5, "{granted} {given_back} {untouched}");
}

#[test]
fn one_damaged_or_unreadable_copy_is_written_anew_and_two_refuse() {
    let rig = Rig::new(1);
    let grants = rig.open();
    rig.world
        .run(async move {
            // More than there are on one page; every third slab is the first slice's.
            let some: Vec<_> =
                (12..4500).step_by(3).map(|slab| Column { drive: DriveIndex(0), slab }).collect();
            grants.give_back(SliceId(0), &some).await;
            assert_eq!(grants.grant(SliceId(2), 1400).await.0.len(), 1400);
        })
        .unwrap();
    let sound = model(&rig.open());
    assert_eq!(sound.values().filter(|by| **by == SliceId(2)).count(), 4996 / 3 + 1400);
    for (page, copy) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let place = rig.place(page, copy);
        let before = rig.disks[0].peek(place.offset, GRANT_PAGE_BYTES);
        let named = format!("drive d0: the grant page at byte {} does not verify", place.offset);
        rig.disks[0].flip_bit(place);
        let (grants, told) = rig.try_open().unwrap();
        assert_eq!((model(&grants), told), (sound.clone(), vec![named]));
        assert_eq!(rig.disks[0].peek(place.offset, GRANT_PAGE_BYTES), before);
        assert_eq!(rig.try_open().unwrap().1, [""; 0]);

        let unreadable = FaultPlan {
            read_error: 1.0,
            only: Some(ByteRange::new(place.offset, 512)),
            ..FaultPlan::default()
        };
        rig.disks[0].set_faults(unreadable);
        let (grants, told) = rig.try_open().unwrap();
        assert_eq!(model(&grants), sound);
        assert!(told.len() == 1 && told[0].contains("cannot be read"), "{told:?}");
        rig.disks[0].set_faults(FaultPlan::default());
    }
    let both = [0, 1].map(|copy| rig.place(1, copy));
    for place in both {
        rig.disks[0].flip_bit(place);
    }
    let refused = rig.try_open().err().unwrap().to_string();
    assert!(
        refused.contains("grant page 1 of drive d0") && refused.contains("neither is intact"),
        "{refused}"
    );
}

#[test]
fn a_page_of_another_place_and_impossible_holders_are_refused() {
    let rig = Rig::new(2);
    let page = |number, copy| rig.disks[0].peek(rig.place(number, copy).offset, GRANT_PAGE_BYTES);
    let write = |number, bytes: &[u8]| {
        [0, 1].iter().for_each(|&copy| rig.disks[0].poke(rig.place(number, copy).offset, bytes));
    };
    let (first, second) = (page(0, 0), page(1, 0));
    write(1, &first);
    assert!(rig.try_open().is_err(), "the first page in the place of the second");
    write(1, &second);
    let refused = |slab: usize, by: u8| {
        let mut page = GrantPage::parse(&first).unwrap();
        page.holders[slab] = by;
        page.seal();
        write(0, page.as_bytes());
        rig.try_open().err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused(0, 1).contains("slab 0 cannot be held by 1"), "a journal slab");
    assert!(refused(10, SLICES + 1).contains("slab 10 cannot be held by 4"), "no such slice");
    assert_eq!(refused(10, SLICES), "");
}

#[test]
fn a_slice_gets_what_nobody_holds_and_nothing_else() {
    let rig = Rig::new(3);
    let grants = rig.open();
    rig.world
        .run(async move {
            assert_eq!(grants.nobodys(), 0);
            assert_eq!(grants.grant(SliceId(1), 5).await.0, [], "the slices hold all");
            let at = |slab| Column { drive: DriveIndex(0), slab };
            grants.give_back(SliceId(0), &[at(9), at(4899), at(12)]).await;
            // The second drive holds no segments.
            assert_eq!(grants.nobodys(), 3);
            let granted = grants.grant(SliceId(1), 2).await.0;
            assert_eq!((granted, grants.nobodys()), (vec![at(9), at(12)], 1));
            assert_eq!(grants.grant(SliceId(2), 9).await.0, [at(4899)]);
            assert_eq!(grants.nobodys(), 0);
        })
        .unwrap();
    let held = model(&rig.open());
    assert_eq!(held.values().filter(|by| **by == SliceId(0)).count(), 4996 / 3 - 3);
}

#[test]
fn slices_begin_with_as_much_of_every_drive_and_one_with_all() {
    let drives: Vec<_> = (0..3).map(|index| (Label { roles: both(), ..label(index) }, 40)).collect();
    for (slices, each) in [(1, 5), (2, 9), (3, 24)] {
        let holders = first_holders(&drives, slices, each);
        for slice in (0..slices).map(SliceId) {
            let of = |drive: usize| holders[drive].iter().filter(|by| **by == holder(slice)).count();
            let counts = [of(0), of(1), of(2)];
            match slices {
                1 => assert_eq!(counts, [36; 3]),
                _ => assert!(
                    counts.iter().sum::<usize>() == each && counts.iter().all(|n| n.abs_diff(each / 3) <= 2),
                    "{slices} slices, {each} each: {counts:?}"
                ),
            }
        }
        let journal = |of: &Vec<u8>| of[..4].iter().all(|by| *by == STORE) && !of[4..].contains(&STORE);
        assert!(holders.iter().all(journal));
    }
    let no_data = vec![(Label { roles: Roles { journal: true, data: false }, ..label(0) }, 40)];
    assert!(first_holders(&no_data, 1, 5)[0][4..].iter().all(|by| *by == NOBODY));
}

#[test]
fn a_batch_comes_from_all_drives() {
    let world = SimWorld::new(4, SimOptions::default());
    let disks: Vec<_> = (0..3).map(|i| world.disk(&format!("d{i}"), LEN_BYTES)).collect();
    world
        .run(async move {
            let mut drives = Vec::new();
            for (index, disk) in (0..).zip(disks) {
                let label = Label { roles: both(), ..label(index) };
                drives.push(Drive::format(disk, label, session()).await.unwrap());
            }
            let grants = Grants::format(pool_id(), &drives, 2, 24).await.unwrap();
            assert_eq!(grants.nobodys(), 3 * 4996 - 48);
            let granted = grants.grant(SliceId(1), 30).await.0;
            let of = |drive| granted.iter().filter(|at| at.drive == DriveIndex(drive)).count();
            assert_eq!([of(0), of(1), of(2)], [10; 3]);
        })
        .unwrap();
}

fn both() -> Roles {
    Roles { journal: true, data: true }
}

#[test]
fn of_a_drive_that_fails_nothing_is_granted_and_nothing_taken_back() {
    let rig = Rig::new(4);
    let grants = rig.open();
    let at = |slab| Column { drive: DriveIndex(0), slab };
    let fail = |probability| rig.disks[0].change_faults(|plan| plan.write_error = probability);
    let grants = rig
        .world
        .run(async move {
            assert_eq!(grants.give_back(SliceId(0), &[at(9)]).await.len(), 0);
            grants
        })
        .unwrap();
    fail(1.0);
    rig.world
        .run(async move {
            let (granted, failed) = grants.grant(SliceId(1), 1).await;
            assert_eq!((granted, failed.into_keys().collect()), (vec![], vec![DriveIndex(0)]));
            assert_eq!(grants.nobodys(), 1, "nobody holds it still");
            let failed = grants.give_back(SliceId(0), &[at(12)]).await;
            assert_eq!((failed.len(), grants.nobodys()), (1, 1));
        })
        .unwrap();
    fail(0.0);
    assert_eq!(rig.open().nobodys(), 1);
}
