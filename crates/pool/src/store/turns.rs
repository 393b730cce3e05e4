//! The turns of hosts: how much of the time columns are moved, by what that costs hosts.
//!
//! A drive's [pace](super::pace) bounds how long hosts wait for it behind what is moved. But moves take memory bandwidth and CPU
//! time of the machine as well, and many drives together take more than each. So what hosts lose is measured: while columns are
//! moved and hosts use drives, time is cut into cycles. At the end of each, nothing is moved. How long drives take for hosts then
//! is what they would take without moves; how long they take at its beginning, while columns are moved, tells what hosts lose.
//! Of the next cycles moves get as much as lets hosts lose [`MOST_LOSS`] over all.
//!
//! 1. Both are measured in the same second, so a load that grows meanwhile does not look like a loss.
//! 2. Geometric means are compared. A few operations that take a hundred times as long do not count for all others.
//! 3. The floor of the [rate](super::rate) goes before this, but nothing is moved at the end of a cycle.

use quoin_world::{Mutex, Nanos};
use std::time::Duration;

/// A cycle, and the end of it in which nothing is moved.
const CYCLE: Duration = Duration::from_millis(500);
const QUIET: Duration = Duration::from_millis(100);
/// After moves stopped, what they began is still under way for so long.
const SETTLES: Duration = Duration::from_millis(20);
/// The part of their operations that hosts may lose to moves.
const MOST_LOSS: f64 = 0.05;
/// The part of the time that moves get before anything was measured, and the least: what is not protected is not to stay so
/// because a host that does little has to wait for a drive.
const FIRST_SHARE: f64 = 0.4;
const LEAST_SHARE: f64 = 0.1;
/// What was measured counts by so much less with every cycle.
const KEPT: f64 = 0.8;
/// So many operations tell how long they take.
const LEAST_OPERATIONS: f64 = 8.0;
/// Who waits looks so often whether less was moved than the floor says.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// What hosts wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read,
    /// Durable.
    Write,
}

#[derive(Default)]
pub(super) struct Turns(Mutex<State>);

struct State {
    /// When the first cycle began, and how many have ended since.
    began: Nanos,
    cycle: u64,
    /// The part of each cycle in which columns are moved.
    share: f64,
    /// By [`Operation`], while columns are moved and while not.
    moving: [Sample; 2],
    quiet: [Sample; 2],
}

/// How long operations took.
#[derive(Clone, Copy, Default)]
struct Sample {
    operations: f64,
    /// Logarithms of nanoseconds.
    sum: f64,
}

#[derive(PartialEq, Eq)]
enum Phase {
    Moving,
    /// Moves have had their share.
    Between,
    Quiet,
}

impl Default for State {
    fn default() -> Self {
        Self {
            began: Nanos(0),
            cycle: 0,
            share: FIRST_SHARE,
            moving: Default::default(),
            quiet: Default::default(),
        }
    }
}

impl Sample {
    fn mean(&self) -> Option<f64> {
        (self.operations >= LEAST_OPERATIONS).then(|| self.sum / self.operations)
    }

    fn fade(&mut self, part: f64) {
        self.operations *= part;
        self.sum *= part;
    }
}

impl Turns {
    /// Moves begin, and with them a cycle, unless they ended just now.
    pub(super) fn begin(&self, now: Nanos) {
        let mut state = self.0.lock();
        let (cycle, _) = state.place(now);
        if cycle > state.cycle + 1 {
            *state = State { began: now, ..State::default() };
        }
    }

    /// How long moves wait now, beside hosts; `is_behind`: less was moved than is to be at least. They ask again then.
    pub(super) fn wait(&self, now: Nanos, is_behind: bool) -> Duration {
        let mut state = self.0.lock();
        state.turn_to(now);
        let (_, at) = state.place(now);
        match state.phase(at) {
            Phase::Moving => Duration::ZERO,
            Phase::Between if is_behind => Duration::ZERO,
            Phase::Between | Phase::Quiet => (CYCLE - at).min(LONGEST_SLEEP),
        }
    }

    /// Counts an operation of a host.
    pub(super) fn note(&self, operation: Operation, began: Nanos, ended: Nanos) {
        let mut state = self.0.lock();
        state.turn_to(ended);
        // NOTE: by when it began, also if it ended in another phase: else those that take longest would never count.
        let (_, from) = state.place(began);
        let will_stay = state.phase(from) == state.phase(from + SETTLES);
        let samples = match state.phase(from) {
            Phase::Moving if will_stay => &mut state.moving,
            Phase::Quiet if from >= CYCLE - QUIET + SETTLES && from + SETTLES <= CYCLE => &mut state.quiet,
            Phase::Moving | Phase::Quiet | Phase::Between => return,
        };
        let sample = &mut samples[operation as usize];
        sample.operations += 1.0;
        sample.sum += (ended.since(began).as_nanos().max(1) as f64).ln();
    }
}

impl State {
    /// Which cycle that is, and where in it.
    fn place(&self, now: Nanos) -> (u64, Duration) {
        let (since, cycle) = (now.since(self.began).as_nanos() as u64, CYCLE.as_nanos() as u64);
        (since / cycle, Duration::from_nanos(since % cycle))
    }

    fn phase(&self, at: Duration) -> Phase {
        match () {
            () if at >= CYCLE - QUIET => Phase::Quiet,
            () if at >= CYCLE.mul_f64(self.share) => Phase::Between,
            () => Phase::Moving,
        }
    }

    /// If another cycle has begun, finds what share moves get in it.
    fn turn_to(&mut self, now: Nanos) {
        let (cycle, _) = self.place(now);
        if cycle <= self.cycle {
            return;
        }
        if let Some(loss) = self.loss() {
            let most = 1.0 - QUIET.div_duration_f64(CYCLE);
            self.share = (MOST_LOSS / loss.max(MOST_LOSS)).clamp(LEAST_SHARE, most);
        }
        let kept = KEPT.powi((cycle - self.cycle).min(100) as i32);
        self.moving.iter_mut().chain(&mut self.quiet).for_each(|sample| sample.fade(kept));
        self.cycle = cycle;
    }

    /// The part of its operations that a host loses while columns are moved, if it does one after the other: of reads or of writes,
    /// whichever lose more; below 0 if they are faster then. `None`: nothing tells.
    fn loss(&self) -> Option<f64> {
        let of = |(moving, quiet): (&Sample, &Sample)| Some(1.0 - (quiet.mean()? - moving.mean()?).exp());
        self.moving.iter().zip(&self.quiet).filter_map(of).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_000_000 * MS;

    /// Lets hosts do one thing after the other for so many cycles, at `quiet` ms each and `moving` while columns are moved. Returns
    /// the part of the time that moves get in the last cycles.
    fn run(turns: &Turns, cycles: u64, took: impl Fn(u64, bool) -> f64) -> f64 {
        let (mut now, end) = (START, START + cycles * CYCLE.as_nanos() as u64);
        let (mut moved, mut all) = (0.0, 0.0);
        while now < end {
            let moves = turns.wait(Nanos(now), false).is_zero();
            let nanos = (took(now - START, moves) * MS as f64) as u64;
            turns.note(Operation::Write, Nanos(now), Nanos(now + nanos));
            if now > end - (end - START) / 4 {
                all += nanos as f64;
                moved += if moves { nanos as f64 } else { 0.0 };
            }
            now += nanos;
        }
        moved / all
    }

    fn begun() -> Turns {
        let turns = Turns::default();
        turns.begin(Nanos(START));
        turns
    }

    #[test]
    fn moves_get_as_much_as_costs_hosts_little() {
        for (slower, least, most) in
            [(1.0, 0.75, 0.85), (1.05, 0.75, 0.85), (1.25, 0.22, 0.29), (2.0, 0.09, 0.13), (50.0, 0.09, 0.2)]
        {
            let share = run(&begun(), 80, |_, moves| if moves { 0.5 * slower } else { 0.5 });
            assert!((least..=most).contains(&share), "{slower} times as long: {share}");
        }
    }

    #[test]
    fn a_load_that_grows_is_no_loss() {
        let share = run(&begun(), 80, |since, _| 0.2 * (1.0 + since as f64 / (4000.0 * MS as f64)));
        assert!(share > 0.7, "{share}");
    }

    #[test]
    fn moves_go_on_with_more_when_they_cost_less() {
        let turns = begun();
        let until = 40 * CYCLE.as_nanos() as u64;
        let share = run(&turns, 160, |since, moves| if moves && since < until { 2.0 } else { 0.5 });
        assert!(share > 0.7, "{share}");
    }

    #[test]
    fn the_floor_goes_before_but_not_at_the_end_of_a_cycle() {
        let turns = begun();
        let at = |ms: u64| Nanos(START + ms * MS);
        assert_eq!(turns.wait(at(0), false), Duration::ZERO);
        assert_eq!(turns.wait(at(199), false), Duration::ZERO);
        assert_eq!(turns.wait(at(200), false), LONGEST_SLEEP);
        assert_eq!(turns.wait(at(399), true), Duration::ZERO);
        assert_eq!(turns.wait(at(400), true), LONGEST_SLEEP);
        assert_eq!(turns.wait(at(495), true), Duration::from_millis(5));
        assert_eq!(turns.wait(at(500), false), Duration::ZERO);
    }

    #[test]
    fn moves_that_begin_begin_a_cycle_and_those_that_go_on_do_not() {
        let turns = begun();
        let at = |ms: u64| Nanos(START + ms * MS);
        turns.begin(at(450));
        assert!(!turns.wait(at(450), false).is_zero());
        turns.begin(at(5450));
        assert!(turns.wait(at(5450), false).is_zero() && !turns.wait(at(5900), false).is_zero());
    }
}
