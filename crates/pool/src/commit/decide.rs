//! What the committer does next, as a function of figures alone. Its figures are gathered in `figures.rs`, and `committer.rs`
//! carries out what is decided here.
//!
//! 1. A request comes first, then a checkpoint that is due. While one is under way no other is cut. The
//!    committer waits for it if what is due has reached its limit or slabs are short; otherwise everything else
//!    goes on.
//! 2. Everything else takes turns: in a round each is done at most once, so that nothing holds up the others for ever.
//! 3. A drain only takes what it needs: forks that wait, slabs, and what is buffered.

use quoin_base::Sequence;
use std::time::Duration;

/// How full buffer or journal must be for all that is buffered to be destaged, and for the older half.
const DESTAGE_ALL_FROM: f64 = 0.7;
pub(super) const DESTAGE_HALF_FROM: f64 = 0.25;

/// A slice claims slabs ahead of need: this part of its share of the ungranted slabs, but at most `MOST_AHEAD`.
const AHEAD_PART: u64 = 8;
const MOST_AHEAD: u64 = 1024;
/// Slabs of room below which it claims more in any case.
const LEAST_ROOM: u64 = 2;

/// What the committer does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Does what was asked for first.
    Answer,
    /// Cuts a checkpoint.
    Checkpoint,
    /// Waits until the checkpoint under way is durable.
    Await,
    /// Lends block numbers to data threads.
    Lend,
    /// Gives pending layers their maps.
    Fork,
    /// Frees block numbers that were dropped.
    Merge,
    /// Takes so many ungranted slabs. 0: tells writers that wait for slabs that there are none.
    Claim(u64),
    Clean,
    /// Gives back so many slabs that others want.
    GiveBack(u64),
    /// Destages blocks that came in before this.
    Destage(Sequence),
    /// Gives back what nobody uses any more.
    Remove,
    /// All had their turn.
    EndRound,
}

/// Whose turn it is: what stands before had its turn in this round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Turn {
    Lend,
    Fork,
    Merge,
    Claim,
    Clean,
    GiveBack,
    Destage,
    Remove,
    End,
}

/// What is decided from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub is_asked: bool,
    /// What came in before this is being drained.
    pub draining: Option<Sequence>,
    pub turn: Turn,
    pub due: Due,
    pub slabs: Slabs,
    pub claims: Claims,
    pub journal: JournalFigures,
    pub buffered: Buffered,
    /// Data threads want block numbers.
    pub lacks_numbers: bool,
    /// Layers wait for their maps.
    pub awaits_forks: bool,
    /// Block numbers were dropped, and are to be freed.
    pub awaits_merging: bool,
    /// Something may be given back.
    pub any_to_remove: bool,
}

/// What the next checkpoint writes: what changed since the last was cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// One is under way.
    pub is_under_way: bool,
    /// A request for one is open.
    pub is_wanted: bool,
    pub bytes: u64,
    /// From here on it is made.
    pub most_bytes: u64,
    /// Pages of the catalog, which are not among these bytes.
    pub catalog_pages: u64,
    /// From here on it is made, too.
    pub most_catalog_pages: u64,
    /// There is anything to write.
    pub any: bool,
    /// How old the last one is, and gets while there is anything.
    pub age: Duration,
    pub most_age: Duration,
}

/// Slabs, and limits of how many are free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slabs {
    pub free: u64,
    /// What waits for a checkpoint or for readers.
    pub coming: u64,
    /// Some of it waits for a checkpoint.
    pub awaits_checkpoint: bool,
    pub checkpoint_below: u64,
    pub clean_below: u64,
}

/// Slabs that may change hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    /// Slices of the pool.
    pub slices: u64,
    /// Slabs that no slice holds.
    pub nobodys: u64,
    /// Those, and what other slices can spare.
    pub claimable: u64,
    /// How many slabs this slice waits for.
    pub wanted: u64,
    /// Slabs that this slice holds beyond what its data and its promises take.
    pub room: u64,
    /// What it is to give back to others, of what it can spare.
    pub owed: u64,
}

/// The journal, in extents unless named otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalFigures {
    pub total: u64,
    pub used: u64,
    /// How many may be used before checkpoints are made to free some.
    pub wanted: u64,
    /// What replay may find placed at the most.
    pub most_named_bytes: u64,
    /// What its tail would give back at least, if that is of interest and was looked for since the last checkpoint.
    pub tail: Option<Tail>,
}

/// What a checkpoint would give back with the tail where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Extents that come free.
    pub freed: u64,
    /// How much less replay would find placed.
    pub passed_bytes: u64,
}

/// What is buffered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffered {
    /// How full the fuller of buffer and journal is.
    pub fill: f64,
    /// A writer waits for it.
    pub is_awaited: bool,
    /// The next sequence to be taken.
    pub next: Sequence,
    /// When the oldest of it came in, about.
    pub oldest: Sequence,
    /// What came in before this is old enough.
    pub aged: Option<Sequence>,
    /// What came in before this is destaged because it was placed.
    pub placed: Option<Sequence>,
}

/// What to do next.
pub(crate) fn decide(figures: &Figures) -> Step {
    let is_draining = figures.draining.is_some();
    if figures.is_asked && !is_draining {
        return Step::Answer;
    }
    match figures.due.is_under_way {
        true if needs_room(figures) => return Step::Await,
        false if checkpoint_is_due(figures) => return Step::Checkpoint,
        _ => {}
    }
    let turns = [
        (Turn::Lend, (figures.lacks_numbers && !is_draining).then_some(Step::Lend)),
        (Turn::Fork, figures.awaits_forks.then_some(Step::Fork)),
        (Turn::Merge, (figures.awaits_merging && !is_draining).then_some(Step::Merge)),
        (Turn::Claim, slabs_to_claim(figures).map(Step::Claim)),
        (Turn::Clean, cleaning_is_due(figures).then_some(Step::Clean)),
        (Turn::GiveBack, slabs_to_give_back(figures).filter(|_| !is_draining).map(Step::GiveBack)),
        (Turn::Destage, destage_before(figures).map(Step::Destage)),
        (Turn::Remove, (figures.any_to_remove && !is_draining).then_some(Step::Remove)),
    ];
    let next = turns.into_iter().filter(|(turn, _)| *turn >= figures.turn).find_map(|(_, step)| step);
    next.unwrap_or(Step::EndRound)
}

/// What to do after a destage, in this round or else in the next.
pub(crate) fn decide_after_destage(mut figures: Figures) -> Step {
    figures.turn = Turn::Remove;
    match decide(&figures) {
        Step::EndRound => {
            figures.turn = Turn::Lend;
            decide(&figures)
        }
        step => step,
    }
}

/// Whether the next checkpoint must be cut before more metadata may change or slabs be taken, so that it has room.
fn needs_room(figures: &Figures) -> bool {
    let Figures { due, slabs, .. } = figures;
    is_much_due(due) || slabs.free < slabs.checkpoint_below
}

fn is_much_due(due: &Due) -> bool {
    due.bytes >= due.most_bytes || due.catalog_pages >= due.most_catalog_pages
}

fn checkpoint_is_due(figures: &Figures) -> bool {
    let Figures { due, slabs, journal, .. } = figures;
    if due.is_wanted || is_much_due(due) {
        return true;
    }
    // One checkpoint gives back what several cleanings freed.
    if slabs.awaits_checkpoint && slabs.free < slabs.checkpoint_below {
        return true;
    }
    // What others want has been cleaned, and came free with nothing else.
    let owes = figures.claims.owed > 0 && slabs.free <= slabs.clean_below && !cleaning_is_due(figures);
    if slabs.awaits_checkpoint && owes {
        return true;
    }
    if let Some(tail) = journal.tail {
        if tail.passed_bytes > 0 && tail.passed_bytes >= journal.most_named_bytes / 4 {
            return true;
        }
        // Often enough that the journal never fills up, seldom enough that a page that changes all the time is not
        // written all the time.
        let worth = if journal.used * 4 > journal.total * 3 { 1 } else { (journal.wanted / 4).max(1) };
        if journal.is_filling() && tail.freed >= worth {
            return true;
        }
    }
    due.any && due.age >= due.most_age
}

impl JournalFigures {
    /// Whether its tail is of interest.
    pub(super) fn is_filling(&self) -> bool {
        self.used > self.wanted
    }
}

/// What waits for the next checkpoint or for readers is as good as free here.
fn cleaning_is_due(figures: &Figures) -> bool {
    let Slabs { free, coming, clean_below, .. } = figures.slabs;
    free + coming < clean_below + figures.claims.owed
}

/// How many ungranted slabs to take. A slice takes them in batches, which shrink with what is left, so that
/// every slice gets some. It takes them before cleaning is due, since they cost less.
fn slabs_to_claim(figures: &Figures) -> Option<u64> {
    let Claims { slices, nobodys, claimable, wanted, room, .. } = figures.claims;
    let Slabs { free, coming, clean_below, .. } = figures.slabs;
    let ahead = (nobodys / slices / AHEAD_PART).min(MOST_AHEAD);
    let is_low = room < ahead.max(LEAST_ROOM) || free + coming < clean_below + ahead;
    match nobodys {
        0 => (wanted > 0 && claimable == 0).then_some(0),
        // There is no other slice to leave some to.
        all if slices == 1 => Some(all),
        all if wanted > 0 => Some(wanted.max(ahead).min(all)),
        all if room < LEAST_ROOM => Some(ahead.max(LEAST_ROOM).min(all)),
        _ => Some(ahead).filter(|ahead| *ahead > 0 && is_low),
    }
}

/// How many free slabs to give back, if others want any.
fn slabs_to_give_back(figures: &Figures) -> Option<u64> {
    let may_go = figures.slabs.free.saturating_sub(figures.slabs.clean_below);
    Some(figures.claims.owed.min(may_go)).filter(|slabs| *slabs > 0)
}

/// The sequence up to which blocks are to be destaged now, if any are.
fn destage_before(figures: &Figures) -> Option<Sequence> {
    let Buffered { fill, is_awaited, next, oldest, aged, placed } = figures.buffered;
    if figures.draining.is_some() {
        return figures.draining;
    }
    let pressed = match () {
        () if is_awaited || fill > DESTAGE_ALL_FROM => Some(next),
        // The older half: what is overwritten soon may yet be spared.
        () if fill > DESTAGE_HALF_FROM => Some(Sequence(oldest.0 + (next.0 - oldest.0.min(next.0)) / 2 + 1)),
        () => aged,
    };
    pressed.max(placed)
}

#[cfg(test)]
mod tests {
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
                checkpoint_below: 10,
                clean_below: 20,
            },
            claims: Claims { slices: 1, nobodys: 0, claimable: 0, wanted: 0, room: 30, owed: 0 },
            journal: JournalFigures { total: 16, used: 4, wanted: 8, most_named_bytes: 400, tail: None },
            buffered: Buffered {
                fill: 0.1,
                is_awaited: false,
                next: Sequence(100),
                oldest: Sequence(20),
                aged: None,
                placed: None,
            },
            lacks_numbers: false,
            awaits_forks: false,
            awaits_merging: false,
            any_to_remove: false,
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
            ("numbers are short", |f| f.lacks_numbers = true, Step::Lend),
            ("a fork waits", |f| f.awaits_forks = true, Step::Fork),
            ("much was dropped", |f| f.awaits_merging = true, Step::Merge),
            ("a layer is gone", |f| f.any_to_remove = true, Step::Remove),
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
                |f| (f.draining, f.is_asked, f.any_to_remove) = (Some(Sequence(70)), true, true),
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
            (
                "little is due, and a writer waits",
                |f| f.buffered.is_awaited = true,
                Step::Destage(Sequence(100)),
            ),
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
        let table: [(&str, Change, Step); 11] = [
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
            ("others are short", |c| c.owed = 4, Step::GiveBack(4)),
        ];
        for (what, change, step) in table {
            assert_eq!(decide(&of_three(change)), step, "{what}");
        }
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
        assert_eq!(
            decide(&Figures { draining: Some(Sequence(7)), ..owing(50, 0, false, 6) }),
            Step::Destage(Sequence(7))
        );
    }

    #[test]
    fn in_a_round_each_has_its_turn_once() {
        let mut figures = with(|f| {
            (f.lacks_numbers, f.awaits_forks, f.any_to_remove) = (true, true, true);
            f.awaits_merging = true;
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
            (Turn::End, Step::EndRound),
        ];
        for (turn, step) in turns {
            figures.turn = turn;
            assert_eq!(decide(&figures), step);
            // Neither waits for a turn.
            assert_eq!(decide(&Figures { is_asked: true, ..figures }), Step::Answer);
            assert_eq!(
                decide(&Figures { due: Due { bytes: 100, ..figures.due }, ..figures }),
                Step::Checkpoint
            );
        }
        // The next batch is taken early only if destage has the next turn.
        assert_eq!(decide_after_destage(figures), Step::Remove);
        figures.any_to_remove = false;
        assert_eq!(decide_after_destage(figures), Step::Lend);
        (figures.lacks_numbers, figures.awaits_forks) = (false, false);
        assert_eq!(decide_after_destage(figures), Step::Merge);
        figures.awaits_merging = false;
        assert_eq!(decide_after_destage(figures), Step::Claim(9));
        figures.claims.nobodys = 0;
        assert_eq!(decide_after_destage(figures), Step::Clean);
        figures.slabs.free = 50;
        assert_eq!(decide_after_destage(figures), Step::GiveBack(4));
        figures.claims.owed = 0;
        assert_eq!(decide_after_destage(figures), destage);
        (figures.awaits_forks, figures.any_to_remove) = (true, true);
        figures.draining = Some(Sequence(7));
        figures.turn = Turn::Lend;
        assert_eq!(decide(&figures), Step::Fork);
        figures.turn = Turn::Remove;
        assert_eq!(decide(&figures), Step::EndRound);
    }
}
