//! Tables of members: their bytes, what may follow what, and which table a set of drives is opened with.

use super::*;
use crate::{
    Drive, DriveError, DriveSet,
    tests::{dynamic, format, join, label, pool, refusal, uuid},
};
use quoin_base::ByteRange;
use quoin_world_sim::{FaultPlan, PowerCut, SimDisk, SimWorld};
use std::sync::Arc;

fn members(count: u16) -> Members {
    let member = |index| Member {
        index: DriveIndex(index),
        drive: DriveId(uuid(100 + u128::from(index))),
        roles: Roles { journal: true, data: index % 2 == 0 },
        state: MemberState::Active,
        in_journal: true,
        votes: index < 3,
        slabs: 5 + u32::from(index),
        domain: "shelf".into(),
        failed_at: MembersGeneration(0),
        absent_since_ms: 0,
    };
    Members {
        pool: PoolId(uuid(7)),
        epoch: Epoch(4),
        generation: MembersGeneration(9),
        journal_set: 2,
        next_index: count,
        all: (0..count).map(member).collect(),
    }
}

#[test]
fn a_table_of_any_length_is_read_as_it_was_written() {
    for count in [1, 3, 55, 56, 57, 112, 113, 1792] {
        let table = members(count);
        let bytes = table.encode();
        assert_eq!(bytes.len(), usize::from(count).div_ceil(56) * MEMBERS_PAGE_BYTES);
        assert_eq!(Members::len_bytes(&bytes), bytes.len());
        assert_eq!(Members::decode(&bytes), MembersCopy::Sound(table));
        // No page may be missing, or another one.
        let short = &bytes[..bytes.len() - MEMBERS_PAGE_BYTES];
        assert!(short.is_empty() || matches!(Members::decode(short), MembersCopy::Damaged(_)));
    }
    let mixed = [
        &members(64).encode()[..4096],
        &Members { generation: MembersGeneration(8), ..members(64) }.encode()[4096..],
    ];
    assert!(matches!(Members::decode(&mixed.concat()), MembersCopy::Damaged(_)));
    assert_eq!(Members::decode(&[0; 4096]), MembersCopy::Blank);
    let bytes = members(2).encode();
    assert_eq!(&bytes[..8], b"QUOINMB1");
    assert_eq!(bytes[48..56], [2, 0, 2, 0, 0, 0, 0, 0], "next number, members, page");
    assert_eq!(bytes[56..72], *uuid(100).as_bytes());
    assert_eq!(bytes[72..85], *b"\0\0\x01\x0f\x05\0\0\0shelf", "number, state, flags, slabs, domain");
}

#[test]
fn no_bytes_make_the_parser_panic() {
    let good = members(70).encode();
    for at in 0..200 {
        for byte in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            let sum = crc64(&bytes[..CHECKSUM_OFFSET]).0.to_le_bytes();
            bytes[CHECKSUM_OFFSET..MEMBERS_PAGE_BYTES].copy_from_slice(&sum);
            Members::decode(&bytes);
            Members::decode(&bytes[..at]);
        }
    }
}

#[test]
fn a_change_that_would_lose_track_of_drives_is_refused() {
    let before = members(4);
    let next = || Members { generation: MembersGeneration(10), ..members(4) };
    let problem = |change: fn(&mut Members)| {
        let mut after = next();
        change(&mut after);
        after.change_problem(&before).unwrap_or_default()
    };
    assert_eq!(problem(|_| ()), "");
    let fail = |m: &mut Members, index| {
        m.fail(DriveIndex(index));
        m.journal_set = 3;
    };
    let mut failed = next();
    fail(&mut failed, 1);
    assert_eq!(failed.change_problem(&before), None);
    let back = Members { generation: MembersGeneration(11), journal_set: 4, ..members(4) };
    assert!(back.change_problem(&failed).unwrap().contains("drive 1"), "what failed does not come back");
    assert!(problem(|m| m.fail(DriveIndex(1))).contains("counter"), "the set has no new generation");
    assert!(problem(|m| m.generation = MembersGeneration(9)).contains("counter"));
    assert!(problem(|m| drop(m.all.pop())).contains("drive 3"));
    assert!(
        problem(|m| m.all[2].drive = DriveId(uuid(5))).contains("drive 2"),
        "numbers are never used again"
    );
    assert!(problem(|m| m.all[2].index = DriveIndex(3)).contains("numbers"));
    assert!(problem(|m| m.next_index = 3).contains("numbers"));
    assert!(problem(|m| m.all.iter_mut().for_each(|m| m.votes = false)).contains("voters"));
    assert!(problem(|m| m.all[3].state = MemberState::Gone).contains("journal"));
    let others = |m: &mut Members| {
        (0..3).for_each(|index| m.fail(DriveIndex(index)));
        (m.all[3].votes, m.journal_set) = (true, 3);
    };
    assert!(problem(others).contains("no voter would be left"));
}

/// Opens a set; the numbers of its drives.
fn set(world: &SimWorld, disks: &[&Arc<SimDisk>]) -> Result<(Vec<u16>, DriveSet), DriveError> {
    let picked = disks.iter().map(|disk| dynamic(disk)).collect();
    let set = world.run(DriveSet::open(picked)).unwrap()?;
    Ok((set.drives.iter().map(|drive| drive.index().0).collect(), set))
}

fn write(world: &SimWorld, disk: &Arc<SimDisk>, table: &Members) {
    let (disk, table) = (dynamic(disk), table.clone());
    let write = async move {
        let drive = Drive::open(disk).await.unwrap();
        join(drive.clone()).await;
        drive.write_members(&table).await
    };
    world.run(write).unwrap().unwrap();
}

#[test]
fn what_failed_or_left_is_not_needed_and_left_out() {
    let (world, disks) = pool(21, 3);
    let (_, DriveSet { members: first, .. }) = set(&world, &[&disks[0], &disks[1], &disks[2]]).unwrap();
    let mut failed = Members { generation: MembersGeneration(2), journal_set: 2, ..first.clone() };
    failed.fail(DriveIndex(1));
    [0, 2].iter().for_each(|&at| write(&world, &disks[at], &failed));

    let (numbers, found) = set(&world, &[&disks[2], &disks[0]]).unwrap();
    assert_eq!((numbers, found.left_out.len()), (vec![0, 2], 0));
    let (numbers, found) = set(&world, &[&disks[1], &disks[0], &disks[2]]).unwrap();
    assert_eq!((numbers, &found.members), (vec![0, 2], &failed));
    let (name, why) = &found.left_out[0];
    assert_eq!(name, "d1");
    assert!(
        why.to_string().starts_with(&format!("drive d1, number 1 ({}), is no drive of the pool", uuid(101)))
    );
    assert!(why.to_string().contains("it failed"), "{why}");
    // Its own table says that it needs the others.
    assert!(matches!(set(&world, &[&disks[1]]), Err(DriveError::Missing { total: 3, .. })));
    assert!(matches!(set(&world, &[&disks[1], &disks[0]]), Err(DriveError::Missing { total: 2, .. })));

    // A drive that never became a member, though it has the number of one.
    let stranger = world.disk("x", crate::tests::LEN_BYTES);
    let other = crate::Label { drive: DriveId(uuid(55)), ..label(2) };
    world.run(format(dynamic(&stranger), other)).unwrap().unwrap();
    let (numbers, found) = set(&world, &[&disks[0], &stranger, &disks[2]]).unwrap();
    assert_eq!((numbers, found.left_out.len()), (vec![0, 2], 1));
    assert!(found.left_out[0].1.to_string().contains("did not come to an end"));
}

/// A drive that failed may have lost its labels, or fail to read them. That says nothing of the others.
#[test]
fn what_failed_is_left_out_though_it_cannot_be_opened_and_what_is_needed_says_why_it_cannot() {
    let (world, disks) = pool(23, 3);
    let all = [&disks[0], &disks[1], &disks[2]];
    let (_, DriveSet { members: first, .. }) = set(&world, &all).unwrap();
    let mut failed = Members { generation: MembersGeneration(2), journal_set: 2, ..first };
    failed.fail(DriveIndex(1));
    [0, 2].iter().for_each(|&at| write(&world, &disks[at], &failed));
    let inspect = |disks: &[&Arc<SimDisk>]| {
        let picked = disks.iter().map(|disk| dynamic(disk)).collect();
        world.run(crate::inspect_set(picked)).unwrap().map(|drives| drives.len())
    };
    let unreadable = FaultPlan { read_error: 1.0, ..FaultPlan::default() };

    disks[1].set_faults(unreadable.clone());
    let (numbers, found) = set(&world, &all).unwrap();
    assert_eq!((numbers, found.left_out[0].0.as_str()), (vec![0, 2], "d1"));
    assert!(matches!(found.left_out[0].1, DriveError::Disk(_)), "{}", found.left_out[0].1);
    assert_eq!(inspect(&all).unwrap(), 2);
    disks[1].set_faults(FaultPlan::default());
    disks[1].poke(0, &vec![0; disks[1].peek(0, 1 << 20).len()]);
    let (numbers, found) = set(&world, &all).unwrap();
    assert_eq!((numbers, found.left_out.len()), (vec![0, 2], 1));
    assert!(matches!(found.left_out[0].1, DriveError::Blank { .. } | DriveError::Foreign { .. }));
    assert_eq!(inspect(&all).unwrap(), 2);

    // One that is needed refuses the set, for the reason that it cannot be opened.
    disks[2].set_faults(unreadable);
    let (why, missing) = match set(&world, &all).map(|_| ()).err().unwrap() {
        DriveError::NotOpened { why, missing } => (why, missing),
        other => panic!("{other}"),
    };
    assert!(why.contains("d1") && why.contains("read") && why.contains("d2"), "{why}");
    assert!(matches!(*missing, DriveError::Missing { total: 2, .. }), "{missing}");
    assert!(matches!(inspect(&all), Err(DriveError::NotOpened { .. })));
    // None can be opened.
    assert!(matches!(set(&world, &[&disks[2]]), Err(DriveError::Disk(_))));
}

/// With one copy damaged, or torn by the interruption before, a write that is interrupted must not tear the other.
#[test]
fn a_write_that_is_interrupted_leaves_an_intact_copy_whichever_was_damaged_before() {
    let mut torn = 0;
    for seed in 0..60 {
        for damaged in [0, 1] {
            let (world, disks) = pool(100 + seed, 1);
            let (_, DriveSet { members: first, drives, .. }) = set(&world, &[&disks[0]]).unwrap();
            disks[0].flip_bit(ByteRange::new(MEMBERS_OFFSETS[damaged], MEMBERS_PAGE_BYTES as u64));
            let drive = drives[0].clone();
            world
                .run(async move {
                    join(drive.clone()).await;
                    drive.read_members().await
                })
                .unwrap();
            world.cut_power(PowerCut::AtDiskOp(seed % 3));
            let (drive, next) =
                (drives[0].clone(), Members { generation: MembersGeneration(2 + seed % 2), ..first });
            let cut = world.run(async move { drive.write_members(&next).await });
            world.crash();
            world.cut_power(PowerCut::Never);
            let drive = world.run(Drive::open(dynamic(&disks[0]))).unwrap().unwrap();
            let copies = world.run(async move { drive.read_members().await }).unwrap();
            let intact = copies.iter().filter(|copy| matches!(copy, MembersCopy::Sound(_))).count();
            assert!(intact > 0, "seed {seed}, copy {damaged}: {copies:?}");
            torn += u32::from(cut.is_err() && intact < 2);
        }
    }
    assert!(torn > 10, "{torn}");
}

#[test]
fn an_interrupted_change_is_found_on_any_voter_and_every_voter_must_have_a_table() {
    let (world, disks) = pool(22, 3);
    let all = [&disks[0], &disks[1], &disks[2]];
    let (_, DriveSet { members: first, .. }) = set(&world, &all).unwrap();
    let mut next = Members { generation: MembersGeneration(2), ..first.clone() };
    next.all[0].state = MemberState::Leaving;
    write(&world, &disks[2], &next);
    assert_eq!(set(&world, &all).unwrap().1.members, next);
    // A later owner's, of a lower generation.
    let later = Members { epoch: Epoch(1), generation: MembersGeneration(1), ..first.clone() };
    write(&world, &disks[1], &later);
    assert_eq!(set(&world, &all).unwrap().1.members, later);

    // One copy is enough. Without any, it is not known what the drive knew.
    for at in MEMBERS_OFFSETS {
        let bytes = disks[1].peek(at, MEMBERS_PAGE_BYTES);
        disks[1].flip_bit(ByteRange::new(at, MEMBERS_PAGE_BYTES as u64));
        let (_, found) = set(&world, &all).unwrap();
        assert_eq!(found.members, later);
        assert_eq!(
            found.damaged,
            [format!("drive d1: the table of members at byte {at}: it does not verify")]
        );
        disks[1].poke(at, &bytes);
    }
    let both = ByteRange::new(MEMBERS_OFFSETS[0], 256 << 10);
    disks[0].set_faults(FaultPlan { read_error: 1.0, only: Some(both), ..FaultPlan::default() });
    let lost = set(&world, &all).map(|_| ()).err().unwrap().to_string();
    assert!(lost.contains("table of members on drive d0") && lost.contains("cannot be read"), "{lost}");
    disks[0].set_faults(FaultPlan::default());
    disks[0].poke(MEMBERS_OFFSETS[0], &[0; 256 << 10]);
    assert!(matches!(set(&world, &all), Err(DriveError::MembersLost { .. })), "a voter with none");

    // No drive has a table.
    disks.iter().for_each(|disk| disk.poke(MEMBERS_OFFSETS[0], &[0; 256 << 10]));
    assert!(
        refusal(set(&world, &all).map(|_| ()))
            .starts_with("none of the drives given (0 (d0), 1 (d1), 2 (d2))")
    );
}
