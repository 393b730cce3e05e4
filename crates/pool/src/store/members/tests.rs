//! The table of members in the simulated world: what power cuts and damage do to changes of it.

use super::*;
use crate::{FormatOptions, lifecycle::create::format as make};
use quoin_drive::{DriveError, MemberState, Roles, open_set};
use quoin_world::Disk;
use quoin_world_sim::{PowerCut, SimDisk, SimOptions, SimWorld};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

const DATA: quoin_drive::Roles = quoin_drive::Roles { journal: false, data: true };

struct Rig {
    world: Arc<SimWorld>,
    disks: Vec<Arc<SimDisk>>,
}

impl Rig {
    /// Two drives with data and two with the journal only.
    fn new(seed: u64) -> Self {
        let world = SimWorld::new(seed, SimOptions::default());
        let disks: Vec<_> = (0..4).map(|i| world.disk(&format!("d{i}"), 10 << 20)).collect();
        let rig = Self { world: world.clone(), disks };
        let roles = |at| Roles { journal: at > 0, data: at < 2 };
        let disks = rig
            .disks(&[0, 1, 2, 3])
            .into_iter()
            .enumerate()
            .map(|(at, disk)| crate::NewDrive::alone(disk, roles(at)));
        let disks = disks.collect();
        let options = FormatOptions {
            slab_bytes: 256 << 10,
            row_bytes: 64 << 10,
            journal_bytes: Some(3 << 20),
            ..FormatOptions::default()
        };
        rig.world.run(async move { make(&*world, disks, options).await.unwrap() }).unwrap();
        rig
    }

    fn disks(&self, pick: &[usize]) -> Vec<Arc<dyn Disk>> {
        pick.iter().map(|&at| self.disks[at].clone() as Arc<dyn Disk>).collect()
    }

    fn try_open(&self, pick: &[usize]) -> Result<Arc<Store>, PoolError> {
        let disks = self.disks(pick);
        let opened = async move { Store::take_over(open_set(disks).await?).await.map(Arc::new) };
        self.world.run(opened).unwrap()
    }

    fn open(&self) -> Arc<Store> {
        self.try_open(&[0, 1, 2, 3]).unwrap()
    }

    fn change(&self, store: &Arc<Store>, index: u16) -> Result<bool, PoolError> {
        let store = store.clone();
        self.world.run(async move { store.fail_drive(DriveIndex(index)).await }).unwrap()
    }
}

fn state(store: &Store, index: u16) -> MemberState {
    store.members().get(DriveIndex(index)).unwrap().state
}

/// Fails a drive, cuts the power meanwhile, and opens again. How many changes were in force, were found though they were not,
/// and were never heard of; an error if one that was in force is gone.
fn cut_changes(seeds: u64) -> Result<[u32; 3], String> {
    let mut counts = [0; 3];
    for seed in 0..seeds {
        let rig = Rig::new(seed);
        let store = rig.open();
        let changing = store.clone();
        rig.world.cut_power(PowerCut::AtDiskOp(seed % 12));
        let _ = rig.world.run(async move { changing.fail_drive(DriveIndex(3)).await });
        let in_force = state(&store, 3) == MemberState::Failed;
        rig.world.crash();
        rig.world.cut_power(PowerCut::Never);
        let found = rig.open();
        let is_there = state(&found, 3) == MemberState::Failed;
        match (in_force, is_there) {
            (true, false) => return Err(format!("seed {seed}: a change that was in force is gone")),
            (true, true) => counts[0] += 1,
            (false, true) => counts[1] += 1,
            (false, false) => counts[2] += 1,
        }
        // Whatever was found is settled: with or without the drive in doubt, it stays.
        let again = if is_there { rig.try_open(&[0, 1, 2]) } else { rig.try_open(&[0, 1, 2, 3]) };
        assert_eq!(state(&again.unwrap(), 3), state(&found, 3), "seed {seed}");
    }
    Ok(counts)
}

#[test]
fn a_change_in_force_survives_and_one_in_doubt_is_settled() {
    let [in_force, found, never] = cut_changes(120).unwrap();
    assert!(in_force > 5 && found > 5 && never > 0, "{in_force} {found} {never}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_change_in_force_before_it_is_hardened_is_noticed() {
    crate::bugs::plant(Some(Bug::MembersBeforeHardened));
    let outcome = cut_changes(120);
    crate::bugs::plant(None);
    assert!(outcome.unwrap_err().contains("a change that was in force is gone"));
}

#[test]
fn a_pool_goes_on_without_a_drive_of_the_journal_and_no_other_refusal_is_taken_for_that() {
    let rig = Rig::new(1);
    let store = rig.open();
    assert_eq!(store.members().voters().count(), 4);
    let refused = |index| rig.change(&store, index).unwrap_err().to_string();
    assert!(refused(0).contains("drive d0: it holds data that no other drive has"));
    assert!(refused(9).contains("it has no such drive"));
    let set = store.members().journal_set;
    assert!(rig.change(&store, 2).unwrap() && !rig.change(&store, 2).unwrap(), "it is told of once");
    let members = store.members();
    assert_eq!((members.journal_set, members.voters().count()), (set + 1, 3));
    assert!(store.drives().any(|drive| drive.index().0 == 2), "what is under way there may end");
    assert!(store.journal_slabs(quoin_base::SliceId(0)).iter().all(|at| at.drive.0 != 2));

    // Away, it is not waited for. Back, it is left out. The others are needed.
    let store = rig.try_open(&[0, 1, 3]).unwrap();
    assert_eq!(store.drives().map(|drive| drive.index().0).collect::<Vec<_>>(), [0, 1, 3]);
    assert!(rig.open().drives().all(|drive| drive.index().0 != 2));
    let missing = rig.try_open(&[0, 1, 2]).err().unwrap();
    assert!(matches!(missing, PoolError::Drive(DriveError::Missing { total: 3, .. })), "{missing}");

    // The last but one with data and journal is left.
    let store = rig.open();
    rig.change(&store, 3).unwrap();
    assert_eq!(store.members().in_journal().count(), 1);
}

#[test]
fn a_change_that_cannot_be_hardened_takes_the_pool_offline() {
    let rig = Rig::new(2);
    let store = rig.open();
    rig.disks[0].change_faults(|plan| plan.write_error = 1.0);
    assert!(rig.change(&store, 3).is_err());
    assert_eq!(state(&store, 3), MemberState::Active, "it is not in force");
    assert!(store.health().is_failed() && rig.change(&store, 2).is_err());
    rig.disks[0].change_faults(|plan| plan.write_error = 0.0);
    // The other voters had it.
    assert_eq!(state(&rig.open(), 3), MemberState::Failed);
}

#[test]
fn an_added_drive_has_the_session_and_the_fences_of_the_others() {
    let rig = Rig::new(8);
    let (disks, new) = (rig.disks(&[0, 1, 2, 3]), rig.world.disk("new", 10 << 20));
    let holder = |id| quoin_base::HolderId(uuid::Uuid::from_u128(id));
    let added = async move {
        let opened = open_set(disks).await.unwrap();
        let store =
            Store::take_over(opened.iter().map(|drive| drive.attach(holder(1))).collect()).await.unwrap();
        for drive in store.drives() {
            drive.fence(holder(2), 5).await.unwrap();
        }
        let index = store
            .add_drive(new, String::new(), DATA, (quoin_base::DriveId(uuid::Uuid::from_u128(9)), 0))
            .await
            .unwrap();
        let [new, old] = [index, DriveIndex(0)].map(|drive| store.columns.drive(drive).unwrap().clone());
        assert_eq!((new.writer_session(), new.fences()), (old.writer_session(), old.fences()));
        assert_eq!(new.writer_session().holder, holder(1));

        // An owner that takes over the new drive expels this one there too.
        new.attach(holder(3)).raise_epoch(Epoch(store.epoch().0 + 1)).await.unwrap();
        assert!(new.is_expelled() && store.is_expelled() && !old.is_expelled());
    };
    rig.world.run(added).unwrap();
}

#[test]
fn an_addition_that_may_count_says_that_the_drive_is_to_be_kept() {
    let rig = Rig::new(9);
    let store = rig.open();
    let new = rig.world.disk("new", 10 << 20);
    rig.disks[0].change_faults(|plan| plan.write_error = 1.0);
    let adding = store.clone();
    let id = quoin_base::DriveId(uuid::Uuid::from_u128(9));
    let failed = rig
        .world
        .run(async move { adding.add_drive(new, String::new(), DATA, (id, 0)).await })
        .unwrap()
        .unwrap_err();
    assert!(failed.to_string().contains("whether drive new was added: keep it attached"), "{failed}");
    assert!(store.health().is_failed());
}

#[test]
fn a_voter_that_fails_while_a_change_is_written_to_it_is_done_without() {
    let rig = Rig::new(6);
    let store = rig.open();
    let before = store.members();
    rig.disks[2].change_faults(|plan| plan.write_error = 1.0);
    assert!(rig.change(&store, 3).unwrap());
    assert_eq!([2, 3].map(|drive| state(&store, drive)), [MemberState::Failed; 2]);
    let after = store.members();
    assert!(!store.health().is_failed() && after.generation == before.generation.next().next());
    assert!(after.journal_set > before.journal_set + 1, "the set of the first attempt may be on a drive");
    rig.disks[2].change_faults(|plan| plan.write_error = 0.0);
    let found = rig.open();
    assert_eq!([2, 3].map(|drive| state(&found, drive)), [MemberState::Failed; 2]);

    // One that alone has something in the journal is not.
    let rig = Rig::new(7);
    let store = rig.open();
    store.ask_before_doing_without(Box::new(|drive, _| drive.0 == 2));
    rig.disks[2].change_faults(|plan| plan.write_error = 1.0);
    rig.change(&store, 3).unwrap_err();
    assert!(store.health().is_failed());
}

#[test]
fn a_change_that_is_abandoned_takes_the_pool_offline_once_it_is_being_written() {
    let (mut early, mut abandoned) = (0, 0);
    for polls in 0..12 {
        let rig = Rig::new(polls);
        let store = rig.open();
        let changing = store.clone();
        let outcome = rig.world.run(async move {
            let mut change = std::pin::pin!(changing.fail_drive(DriveIndex(3)));
            for _ in 0..polls {
                if let Poll::Ready(outcome) = poll_once(change.as_mut()).await {
                    return Some(outcome);
                }
            }
            None
        });
        match outcome.unwrap() {
            Some(changed) => assert!(changed.unwrap() && !store.health().is_failed()),
            None if polls == 0 => early += u32::from(!store.health().is_failed()),
            None => {
                assert!(store.health().is_failed(), "{polls}: its generation may be used again");
                abandoned += 1;
            }
        }
    }
    assert!(early == 1 && abandoned > 2, "{abandoned}");
}

/// Polls a future once. If it waits, returns when something wakes it.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(Poll::Pending);
        }
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Poll::Ready(output)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[test]
fn the_next_opening_appoints_voters_for_those_that_are_lost() {
    let rig = Rig::new(3);
    let store = rig.open();
    let unvoted = store.clone();
    let change = async move {
        unvoted
            .change_members(|members| {
                members.get_mut(DriveIndex(1)).unwrap().votes = false;
                Ok(())
            })
            .await
    };
    rig.world.run(change).unwrap().unwrap();
    assert_eq!(store.voters().len(), 3);
    assert_eq!(rig.open().voters().len(), 4);
}

/// New voters have no table. Whenever the opening that appoints them is interrupted, the next one finds a table whose
/// voters all have one.
#[test]
fn an_opening_that_appoints_voters_may_be_interrupted_anywhere() {
    let (mut cut, mut appointed) = (0, 0);
    for seed in 0..150 {
        let rig = Rig::new(1000 + seed);
        let store = rig.open();
        let change = async move {
            store
                .change_members(|members| {
                    [1, 3].iter().for_each(|at| members.get_mut(DriveIndex(*at)).unwrap().votes = false);
                    Ok(())
                })
                .await
        };
        rig.world.run(change).unwrap().unwrap();
        rig.world.crash();
        for at in [1, 3] {
            rig.disks[at].poke(MEMBERS_OFFSETS[0], &[0; 256 << 10]);
        }
        // Power fails twice.
        for delay in [seed % 60, seed % 7 * 9] {
            rig.world.cut_power(PowerCut::AtDiskOp(delay));
            let disks = rig.disks(&[0, 1, 2, 3]);
            let opened = async move { Store::take_over(open_set(disks).await?).await.map(drop) };
            let opened = rig.world.run(opened);
            cut += u32::from(opened.is_err());
            rig.world.crash();
            rig.world.cut_power(PowerCut::Never);
            if let Ok(opened) = opened {
                opened.unwrap();
            }
        }
        let voters =
            rig.try_open(&[0, 1, 2, 3]).unwrap_or_else(|error| panic!("seed {seed}: {error}")).voters().len();
        assert_eq!(voters, 4);
        appointed += 1;
    }
    assert!(cut > 100 && appointed == 150, "{cut}");
}

#[test]
fn what_a_pool_may_do_without_is_what_it_goes_on_without() {
    let rig = Rig::new(4);
    let store = rig.open();
    let may = |store: &Store| ["d0", "d1", "d2", "d3", "x"].map(|drive| store.may_do_without(drive));
    assert_eq!(may(&store), [false, false, true, true, false]);
    assert_eq!(store.data_drive_count(), 2);
    // Drive 3 alone has something in the journal.
    store.ask_before_doing_without(Box::new(|drive, _| drive.0 == 3));
    assert_eq!(may(&store), [false, false, true, false, false]);
    assert!(rig.change(&store, 3).unwrap_err().to_string().contains("is on no other"));
    rig.change(&store, 2).unwrap();
    assert_eq!(may(&store), [false, false, true, false, false], "it is without it already");
}

#[test]
fn a_drive_that_only_lacks_room_is_not_given_up() {
    let rig = Rig::new(5);
    let store = rig.open();
    let going_on = store.clone();
    let outcome = rig.world.run(async move {
        let failure = DriveError::NoRoom { drive: "d2".into() };
        going_on.do_without(DriveIndex(2), failure.into()).await
    });
    assert!(matches!(outcome.unwrap(), Err(PoolError::Drive(DriveError::NoRoom { .. }))));
    assert_eq!(state(&store, 2), MemberState::Active);
}

#[test]
fn a_drive_that_is_back_is_not_lost_for_what_it_failed_before() {
    let rig = Rig::new(6);
    let store = rig.open();
    let (going_on, disk) = (store.clone(), rig.disks[2].clone());
    let outcome = rig.world.run(async move {
        assert!(going_on.miss_drive(DriveIndex(2)).await.unwrap());
        let drive = going_on.open_absent(disk).await.unwrap();
        going_on.take_back(drive).await.unwrap();
        // Told of only now.
        let failure = DriveError::Failed { drive: "d2".into(), cause: "it was away".into() };
        going_on.do_without(DriveIndex(2), failure.into()).await
    });
    outcome.unwrap().unwrap();
    assert_eq!(state(&store, 2), MemberState::Active);
}

#[test]
fn a_drive_that_votes_in_the_place_of_another_has_the_table_and_every_root() {
    let rig = Rig::new(7);
    let store = rig.open();
    let disk = rig.world.disk("added", 10 << 20);
    let (changing, added) = (store.clone(), disk.clone());
    rig.world
        .run(async move {
            let (store, id) = (changing, quoin_base::DriveId(uuid::Uuid::from_u128(9)));
            let new = store.add_drive(added, String::new(), DATA, (id, 0)).await.unwrap();
            store.set_leaving(DriveIndex(3), true).await.unwrap();
            store.appoint_beside(DriveIndex(3)).await.unwrap();
            let members = store.members();
            let votes = |index| members.get(index).unwrap().votes;
            assert!(votes(new) && !votes(DriveIndex(3)));
            assert_eq!(members.get(DriveIndex(3)).unwrap().state, MemberState::Leaving);
            // The table in force before the change: the next one goes to it as to the others.
            let [first, _] = store.drive(new).unwrap().read_members().await;
            assert!(matches!(first, MembersCopy::Sound(_)));
            let slots = store.root_slots(quoin_base::SliceId(0)).await;
            let newest = crate::store::roots::newest(&slots).unwrap();
            let has_it = |drive: &str| {
                let is_newest = |root: &crate::format::Root| root.age() == newest.age();
                slots.iter().any(|slot| slot.drive == drive && slot.content.root().is_some_and(is_newest))
            };
            assert!(["d0", "d1", "d2", "added"].into_iter().all(has_it));
            assert!(!slots.iter().any(|slot| slot.drive == "d3"));
        })
        .unwrap();
    let disks = [rig.disks(&[0, 1, 2, 3]), vec![disk as Arc<dyn Disk>]].concat();
    let opened = async move { Store::take_over(open_set(disks).await?).await.map(|_| ()) };
    rig.world.run(opened).unwrap().unwrap();
}
