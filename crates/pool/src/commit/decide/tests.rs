//! What the committer does next, as tables of figures and steps.

use super::*;

/// Nothing to do.
fn idle() -> Figures {
    let seconds = Duration::from_secs;
    Figures {
        is_asked: false,
        draining: None,
        turn: Turn::Lend,
        due: Due {
            is_under_way: false,
            is_wanted: false,
            bytes: 0,
            most_bytes: 100,
            catalog_pages: 0,
            most_catalog_pages: 16,
            any: false,
            age: seconds(99),
            most_age: seconds(30),
        },
        slabs: Slabs {
            free: 50,
            coming: 0,
            awaits_checkpoint: false,
            place_from: 5,
            checkpoint_below: 10,
            clean_below: 20,
        },
        claims: Claims {
            slices: 1,
            nobodys: 0,
            claimable: 0,
            wanted: 0,
            room: 30,
            owed: 0,
            cleans_after_checkpoint: false,
        },
        journal: JournalFigures { total: 16, used: 4, wanted: 8, most_named_bytes: 400, tail: None },
        buffered: Buffered {
            fill: 0.1,
            is_awaited: false,
            next: Sequence(100),
            oldest: Sequence(20),
            aged: None,
            placed: None,
        },
        waiting: Waiting::default(),
    }
}

fn with(change: impl FnOnce(&mut Figures)) -> Figures {
    let mut figures = idle();
    change(&mut figures);
    figures
}

#[test]
fn what_is_due_is_decided_from_figures() {
    let tail = |freed, passed_bytes| Some(Tail { freed, passed_bytes });
    type Change = fn(&mut Figures);
    let table: [(&str, Change, Step); 20] = [
        ("nothing", |_| (), Step::EndRound),
        ("a request", |f| f.is_asked = true, Step::Answer),
        ("much is due", |f| f.due.bytes = 100, Step::Checkpoint),
        ("one is wanted", |f| f.due.is_wanted = true, Step::Checkpoint),
        ("less is due", |f| f.due.bytes = 99, Step::EndRound),
        ("the last checkpoint is old", |f| f.due.any = true, Step::Checkpoint),
        ("it is young", |f| (f.due.any, f.due.age) = (true, Duration::from_secs(29)), Step::EndRound),
        ("few slabs, some coming", |f| (f.slabs.free, f.slabs.coming) = (9, 11), Step::EndRound),
        (
            "a checkpoint brings them",
            |f| (f.slabs.free, f.slabs.coming, f.slabs.awaits_checkpoint) = (9, 11, true),
            Step::Checkpoint,
        ),
        ("few slabs", |f| (f.slabs.free, f.slabs.coming) = (9, 10), Step::Clean),
        ("numbers are short", |f| f.waiting.lacks_numbers = true, Step::Lend),
        ("a fork waits", |f| f.waiting.awaits_forks = true, Step::Fork),
        ("much was dropped", |f| f.waiting.awaits_merging = true, Step::Merge),
        ("a layer is gone", |f| f.waiting.any_to_remove = true, Step::Remove),
        ("a writer waits", |f| f.buffered.is_awaited = true, Step::Destage(Sequence(100))),
        ("the buffer is full", |f| f.buffered.fill = 0.71, Step::Destage(Sequence(100))),
        ("it is half full", |f| f.buffered.fill = 0.5, Step::Destage(Sequence(61))),
        ("some is old", |f| f.buffered.aged = Some(Sequence(30)), Step::Destage(Sequence(30))),
        (
            "much is placed",
            |f| (f.buffered.aged, f.buffered.placed) = (Some(Sequence(30)), Some(Sequence(40))),
            Step::Destage(Sequence(40)),
        ),
        (
            "it is drained",
            |f| (f.draining, f.is_asked, f.waiting.any_to_remove) = (Some(Sequence(70)), true, true),
            Step::Destage(Sequence(70)),
        ),
    ];
    for (what, change, step) in table {
        assert_eq!(decide(&with(change)), step, "{what}");
    }

    // The journal: an eighth while it is half full, anything once it is nearly full, nothing before.
    for (used, tail, step) in [
        (8, tail(16, 0), Step::EndRound),
        (9, tail(1, 0), Step::EndRound),
        (9, tail(2, 0), Step::Checkpoint),
        (13, tail(0, 0), Step::EndRound),
        (13, tail(1, 0), Step::Checkpoint),
        (13, None, Step::EndRound),
        (4, tail(0, 99), Step::EndRound),
        (4, tail(0, 100), Step::Checkpoint),
    ] {
        let figures = with(|f| (f.journal.used, f.journal.tail) = (used, tail));
        assert_eq!(decide(&figures), step, "{used} extents used, {tail:?}");
    }

    // Nor does more of a large journal get used than an opening may have to replay.
    for (used, step) in [(100, Step::EndRound), (101, Step::Checkpoint)] {
        let journal =
            JournalFigures { total: 512, used, wanted: 100, most_named_bytes: 400, tail: tail(25, 0) };
        assert_eq!(decide(&with(|f| f.journal = journal)), step, "{used} extents used");
    }
}

#[test]
fn beside_a_checkpoint_all_goes_on_that_the_next_has_room_for() {
    type Change = fn(&mut Figures);
    let table: [(&str, Change, Step); 9] = [
        ("nothing", |_| (), Step::EndRound),
        ("a request", |f| f.is_asked = true, Step::Answer),
        ("another is wanted", |f| f.due.is_wanted = true, Step::EndRound),
        ("the last is old", |f| f.due.any = true, Step::EndRound),
        ("little is due, and a writer waits", |f| f.buffered.is_awaited = true, Step::Destage(Sequence(100))),
        (
            "much is due, and a writer waits",
            |f| (f.due.bytes, f.buffered.is_awaited) = (100, true),
            Step::Await,
        ),
        ("much of the catalog is due", |f| f.due.catalog_pages = 16, Step::Await),
        ("few slabs are left", |f| f.slabs.free = 9, Step::Await),
        (
            "the journal is filling",
            |f| (f.journal.used, f.journal.tail) = (13, Some(Tail { freed: 9, passed_bytes: 0 })),
            Step::EndRound,
        ),
    ];
    for (what, change, step) in table {
        let mut figures = with(change);
        figures.due.is_under_way = true;
        assert_eq!(decide(&figures), step, "{what}");
    }
}

#[test]
fn slabs_are_claimed_in_batches_before_they_run_short() {
    let of_three = |change: fn(&mut Claims)| {
        with(|f| {
            (f.claims.slices, f.claims.nobodys, f.claims.claimable) = (3, 240, 260);
            change(&mut f.claims);
        })
    };
    type Change = fn(&mut Claims);
    let table: [(&str, Change, Step); 12] = [
        ("plenty", |_| (), Step::EndRound),
        ("less room than a batch", |c| c.room = 9, Step::Claim(10)),
        ("no room, and few are left", |c| (c.room, c.nobodys) = (1, 20), Step::Claim(2)),
        ("some room, and few are left", |c| (c.room, c.nobodys) = (2, 20), Step::EndRound),
        ("someone waits", |c| c.wanted = 4, Step::Claim(10)),
        ("someone waits for many", |c| c.wanted = 999, Step::Claim(240)),
        ("there are none yet", |c| (c.wanted, c.nobodys) = (4, 0), Step::EndRound),
        ("there are none", |c| (c.wanted, c.nobodys, c.claimable) = (4, 0, 0), Step::Claim(0)),
        ("none are left", |c| (c.room, c.nobodys) = (0, 0), Step::EndRound),
        ("it is the only slice", |c| (c.slices, c.nobodys) = (1, 7), Step::Claim(7)),
        ("a large drive was added", |c| (c.slices, c.nobodys) = (1, 1 << 20), Step::Claim(32_256)),
        ("others are short", |c| c.owed = 4, Step::GiveBack(4)),
    ];
    for (what, change, step) in table {
        assert_eq!(decide(&of_three(change)), step, "{what}");
    }
    // Nor does it make a checkpoint or wait for one, if slabs are all that is short.
    let short = |change: fn(&mut Figures)| {
        let mut figures = of_three(|_| ());
        (figures.slabs.free, figures.slabs.awaits_checkpoint) = (9, true);
        change(&mut figures);
        decide(&figures)
    };
    assert_eq!(short(|_| ()), Step::Claim(10));
    assert_eq!(short(|f| f.due.is_under_way = true), Step::Claim(10));
    assert_eq!(short(|f| f.turn = Turn::Clean), Step::Checkpoint);
    assert_eq!(short(|f| f.claims.nobodys = 0), Step::Checkpoint);
    assert_eq!(short(|f| f.due.bytes = 100), Step::Checkpoint);
    assert_eq!(short(|f| (f.due.is_under_way, f.due.bytes) = (true, 100)), Step::Await);
    // Rather than clean it takes more, while many slabs are ungranted.
    let few = |nobodys| {
        let mut figures = of_three(|_| ());
        (figures.claims.nobodys, figures.slabs.free) = (nobodys, 19);
        decide(&figures)
    };
    assert_eq!([few(240), few(48), few(20)], [Step::Claim(10), Step::Claim(2), Step::Clean]);
}

#[test]
fn what_others_want_is_cleaned_and_given_back() {
    let owing = |free, coming, awaits_checkpoint, owed| {
        with(|f| {
            (f.claims.slices, f.claims.owed) = (3, owed);
            (f.slabs.free, f.slabs.coming) = (free, coming);
            f.slabs.awaits_checkpoint = awaits_checkpoint;
        })
    };
    // Slabs below which it cleans: 20.
    assert_eq!(decide(&owing(50, 0, false, 6)), Step::GiveBack(6));
    assert_eq!(decide(&owing(26, 0, false, 6)), Step::GiveBack(6));
    // Too few are free: it cleans, and then gives back what is there.
    let mut figures = owing(23, 0, false, 6);
    assert_eq!(decide(&figures), Step::Clean);
    figures.turn = Turn::GiveBack;
    assert_eq!(decide(&figures), Step::GiveBack(3));
    // What it cleaned comes free with the next checkpoint.
    assert_eq!(decide(&owing(20, 6, true, 6)), Step::Checkpoint);
    assert_eq!(decide(&owing(20, 6, true, 0)), Step::EndRound);
    assert_eq!(decide(&owing(20, 5, true, 6)), Step::Clean);
    // Others are not told of less before a checkpoint had it clean again.
    let mut figures = owing(20, 0, false, 6);
    figures.claims.cleans_after_checkpoint = true;
    assert_eq!(decide(&figures), Step::Checkpoint);
    figures.due.is_under_way = true;
    assert_eq!(decide(&figures), Step::Clean);
    (figures.due.is_under_way, figures.claims.owed) = (false, 0);
    assert_eq!(decide(&figures), Step::EndRound);
    assert_eq!(
        decide(&Figures { draining: Some(Sequence(7)), ..owing(50, 0, false, 6) }),
        Step::Destage(Sequence(7))
    );
}

#[test]
fn in_a_round_each_has_its_turn_once() {
    let mut figures = with(|f| {
        (f.waiting.lacks_numbers, f.waiting.awaits_forks, f.waiting.any_to_remove) = (true, true, true);
        (f.waiting.awaits_merging, f.waiting.converts) = (true, true);
        // More is cleaned than what others want.
        (f.slabs.free, f.slabs.clean_below) = (5, 2);
        (f.claims.nobodys, f.claims.owed) = (9, 4);
        f.buffered.is_awaited = true;
    });
    let destage = Step::Destage(Sequence(100));
    let turns = [
        (Turn::Lend, Step::Lend),
        (Turn::Fork, Step::Fork),
        (Turn::Merge, Step::Merge),
        (Turn::Claim, Step::Claim(9)),
        (Turn::Clean, Step::Clean),
        (Turn::GiveBack, Step::GiveBack(3)),
        (Turn::Destage, destage),
        (Turn::Remove, Step::Remove),
        (Turn::Convert, Step::Convert),
        (Turn::End, Step::EndRound),
    ];
    for (turn, step) in turns {
        figures.turn = turn;
        assert_eq!(decide(&figures), step);
        // Neither waits for a turn.
        assert_eq!(decide(&Figures { is_asked: true, ..figures }), Step::Answer);
        assert_eq!(decide(&Figures { due: Due { bytes: 100, ..figures.due }, ..figures }), Step::Checkpoint);
    }
    // The next batch is taken early only if destage has the next turn.
    assert_eq!(decide_after_destage(figures), Step::Remove);
    (figures.waiting.any_to_remove, figures.waiting.converts) = (false, false);
    assert_eq!(decide_after_destage(figures), Step::Lend);
    (figures.waiting.lacks_numbers, figures.waiting.awaits_forks) = (false, false);
    assert_eq!(decide_after_destage(figures), Step::Merge);
    figures.waiting.awaits_merging = false;
    assert_eq!(decide_after_destage(figures), Step::Claim(9));
    figures.claims.nobodys = 0;
    assert_eq!(decide_after_destage(figures), Step::Clean);
    figures.slabs.free = 50;
    assert_eq!(decide_after_destage(figures), Step::GiveBack(4));
    figures.claims.owed = 0;
    assert_eq!(decide_after_destage(figures), destage);
    (figures.waiting.awaits_forks, figures.waiting.any_to_remove) = (true, true);
    figures.draining = Some(Sequence(7));
    figures.turn = Turn::Lend;
    assert_eq!(decide(&figures), Step::Fork);
    figures.turn = Turn::Remove;
    assert_eq!(decide(&figures), Step::EndRound);
}
