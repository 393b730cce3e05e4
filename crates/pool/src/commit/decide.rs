//! What the committer does next, as a function of figures alone. Its figures are gathered in `figures.rs`, and `committer.rs`
//! carries out what is decided here.
//!
//! 1. A request comes first, then a checkpoint that is due. While one is under way no other is cut. The
//!    committer waits for it if what is due has reached its limit or slabs are short; otherwise everything else
//!    goes on.
//! 2. Everything else takes turns: in a round each is done at most once, so that nothing holds up the others for ever.
//! 3. A drain only takes what it needs: forks that wait, slabs, and what is buffered.

use quoin_base::Sequence;
use quoin_drive::SLABS_PER_GRANT_PAGE;
use std::time::Duration;

/// How full buffer or journal must be for all that is buffered to be destaged, and for the older half.
const DESTAGE_ALL_FROM: f64 = 0.7;
pub(super) const DESTAGE_HALF_FROM: f64 = 0.25;

/// A slice claims slabs ahead of need: this part of its share of the ungranted slabs, but at most `MOST_AHEAD`.
const AHEAD_PART: u64 = 8;
const MOST_AHEAD: u64 = 1024;
/// The most that the only slice of a pool claims at once, of a large drive that was added. So many are on few grant pages,
/// which are written side by side.
const MOST_AT_ONCE: u64 = 8 * SLABS_PER_GRANT_PAGE as u64;
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
    /// Moves blocks to segments of another layout.
    Convert,
    /// Makes shorter what volumes have.
    Reduce,
    /// Notes which blocks have which content.
    Learn,
    /// All had their turn.
    EndRound,
}

/// Whose turn it is: what stands before had its turn in this round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Turn {
    #[default]
    Lend,
    Fork,
    Merge,
    Claim,
    Clean,
    GiveBack,
    Destage,
    Remove,
    Convert,
    Reduce,
    Learn,
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
    pub waiting: Waiting,
}

/// What else waits for the committer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// Data threads want block numbers.
    pub lacks_numbers: bool,
    /// Layers wait for their maps.
    pub awaits_forks: bool,
    /// Block numbers were dropped, and are to be freed.
    pub awaits_merging: bool,
    /// Something may be given back.
    pub any_to_remove: bool,
    /// What is live in some segment is to lie elsewhere.
    pub relocates: bool,
    /// What some layer owns is to be laid out otherwise.
    pub converts: bool,
    /// What some volume has is to be reduced.
    pub reduces: bool,
    /// Which blocks have which content is not known of all.
    pub learns: bool,
    /// Destage waits for slabs.
    pub is_short: bool,
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
    /// From so many free ones on, data of a pool that lost drives is placed.
    pub place_from: u64,
    pub checkpoint_below: u64,
    pub clean_below: u64,
}

/// Net slabs that may change hands.
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
    /// Nothing can be cleaned for them before a checkpoint.
    pub cleans_after_checkpoint: bool,
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
    if let Some(step) = checkpoint_step(figures) {
        // Claiming ungranted slabs costs less than a checkpoint, if slabs are all that is short.
        let plenty = Slabs { free: u64::MAX / 2, ..figures.slabs };
        let claimed = slabs_to_claim(figures).filter(|slabs| *slabs > 0 && figures.turn <= Turn::Claim);
        return match claimed {
            Some(slabs) if checkpoint_step(&Figures { slabs: plenty, ..*figures }).is_none() => {
                Step::Claim(slabs)
            }
            Some(_) | None => step,
        };
    }
    let turns = [
        (Turn::Lend, (figures.waiting.lacks_numbers && !is_draining).then_some(Step::Lend)),
        (Turn::Fork, figures.waiting.awaits_forks.then_some(Step::Fork)),
        (Turn::Merge, (figures.waiting.awaits_merging && !is_draining).then_some(Step::Merge)),
        (Turn::Claim, slabs_to_claim(figures).map(Step::Claim)),
        (Turn::Clean, cleaning_is_due(figures).then_some(Step::Clean)),
        (Turn::GiveBack, slabs_to_give_back(figures).filter(|_| !is_draining).map(Step::GiveBack)),
        (Turn::Destage, destage_before(figures).map(Step::Destage)),
        (Turn::Remove, (figures.waiting.any_to_remove && !is_draining).then_some(Step::Remove)),
        (Turn::Convert, (figures.waiting.converts && !is_draining).then_some(Step::Convert)),
        (Turn::Reduce, (figures.waiting.reduces && !is_draining).then_some(Step::Reduce)),
        (Turn::Learn, (figures.waiting.learns && !is_draining).then_some(Step::Learn)),
    ];
    let next = turns.into_iter().filter(|(turn, _)| *turn >= figures.turn).find_map(|(_, step)| step);
    next.unwrap_or(Step::EndRound)
}

/// Whether a checkpoint comes before everything else.
fn checkpoint_step(figures: &Figures) -> Option<Step> {
    if figures.due.is_under_way {
        needs_room(figures).then_some(Step::Await)
    } else {
        checkpoint_is_due(figures).then_some(Step::Checkpoint)
    }
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
    // One checkpoint gives back what several cleanings freed. Without slabs it may free what the last one wrote, and no more.
    let is_tight = slabs.awaits_checkpoint && slabs.free < slabs.checkpoint_below;
    let is_in_vain = figures.waiting.is_short && slabs.free + slabs.coming < slabs.place_from;
    if is_tight && (!is_in_vain || due.age >= due.most_age) {
        return true;
    }
    // What others want has been cleaned, and came free with nothing else.
    let owes = figures.claims.owed > 0 && slabs.free <= slabs.clean_below && !cleaning_is_due(figures);
    if slabs.awaits_checkpoint && owes {
        return true;
    }
    // Before others are told that it can spare less.
    if figures.claims.owed > 0 && figures.claims.cleans_after_checkpoint {
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
    figures.waiting.relocates || free + coming < clean_below + figures.claims.owed
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
        // There is no other slice to leave some to, but the committer has other things to do in between.
        all if slices == 1 => Some(all.min(MOST_AT_ONCE)),
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
mod tests;
