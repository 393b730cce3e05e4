//! Looks for seeds with which a simulation finds planted bugs: the known ones first, then all from 0 on.
//!
//! 1. A bug is found by a seed below its bound that fails with the bug and passes without it. Any such seed proves that the
//!    simulation finds the bug, so the one of an earlier search, its *known seed*, is tried first.
//! 2. A known seed that no longer finds its bug is out of date, because the engine has changed. That costs a search and
//!    is not a failure.
//! 3. A search finds the lowest seed that finds the bug, however many threads it uses.

use crate::known::KnownSeeds;
use anyhow::{Result, bail, ensure};
use quoin_pool::bugs::Bug;
use std::{
    path::Path,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

/// A bug to look for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The bug.
    pub bug: Bug,
    /// Seeds, from 0 on, within which it must be found.
    pub within: u64,
}

/// How to look for bugs.
#[derive(clap::Args, Clone, Debug)]
pub struct SearchArgs {
    /// How many times the stated number of seeds each bug is given.
    #[arg(long, default_value_t = 1)]
    pub patience: u64,
    /// Only this bug.
    #[arg(long)]
    pub only: Option<String>,
    /// Write the seeds that found the bugs to the file of known seeds in the source tree.
    #[arg(long)]
    pub record: bool,
    /// Seeds run at the same time; 0: one a core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
}

impl Default for SearchArgs {
    fn default() -> SearchArgs {
        SearchArgs { patience: 1, only: None, record: false, threads: 0 }
    }
}

/// Where the known seeds of a simulation are kept.
#[derive(Clone, Copy, Debug)]
pub struct KnownFile {
    /// The file.
    pub path: &'static str,
    /// The command that writes it anew.
    pub record_with: &'static str,
}

/// A seed that found a bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Find {
    /// The seed.
    pub(crate) seed: u64,
    /// What the simulation said.
    pub(crate) violation: String,
    /// The seed was known; nothing had to be searched.
    pub(crate) is_known: bool,
}

/// What came of looking for a bug.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) name: String,
    pub(crate) within: u64,
    pub(crate) find: Option<Find>,
}

/// Looks for bugs and tells how each was found, and which known seeds are out of date. `finds` runs a seed with a bug, and
/// returns what it found if the seed passes without the bug.
///
/// # Errors
/// Some bugs were not found, there is no bug of the chosen name, or the known seeds cannot be read or written.
pub fn look_for_all(
    args: &SearchArgs,
    wanted: &[Wanted],
    file: KnownFile,
    finds: impl Fn(Bug, u64) -> Option<String> + Sync,
) -> Result<()> {
    let mut known = KnownSeeds::read(Path::new(file.path))?;
    let only = args.only.as_deref();
    let chosen: Vec<_> = wanted
        .iter()
        .filter(|wanted| only.is_none_or(|only| name_of(wanted.bug) == only))
        .map(|wanted| Wanted { within: wanted.within * args.patience, ..*wanted })
        .collect();
    ensure!(!chosen.is_empty(), "no planted bug is called {}", only.unwrap_or_default());
    let answers = look(&chosen, &known, args.threads(), finds, |answer| println!("{answer}"));
    let names: Vec<_> = wanted.iter().map(|wanted| name_of(wanted.bug)).collect();
    let stale = known.out_of_date(&answers, &names);
    if args.record {
        known.record(&answers, &names)?;
        println!("wrote {}; known seeds that changed: {}", file.path, stale.len());
    } else if !stale.is_empty() {
        println!("\nknown seeds out of date in {}:\n  {}", file.path, stale.join("\n  "));
        println!(
            "until they are recorded, every run has to search. Record them with\n  {}",
            file.record_with
        );
    }
    let missed: Vec<_> =
        answers.into_iter().filter(|answer| answer.find.is_none()).map(|answer| answer.name).collect();
    if !missed.is_empty() {
        bail!("not found: {}", missed.join(", "));
    }
    Ok(())
}

/// Looks for each bug. `tell` gets the answers in the order of the bugs, a search's as soon as it is over.
fn look(
    wanted: &[Wanted],
    known: &KnownSeeds,
    threads: usize,
    finds: impl Fn(Bug, u64) -> Option<String> + Sync,
    tell: impl Fn(&Answer),
) -> Vec<Answer> {
    let by_known = each(wanted, threads, |wanted| {
        // A seed beyond the bound would prove less than a search.
        let seed = known.of(&name_of(wanted.bug)).filter(|seed| *seed < wanted.within)?;
        let violation = finds(wanted.bug, seed)?;
        Some(Find { seed, violation, is_known: true })
    });
    let answers = wanted.iter().zip(by_known).map(|(wanted, find)| {
        let find = find.or_else(|| search(wanted.within, threads, |seed| finds(wanted.bug, seed)));
        let answer = Answer { name: name_of(wanted.bug), within: wanted.within, find };
        tell(&answer);
        answer
    });
    answers.collect()
}

/// The lowest seed that finds a bug.
fn search(within: u64, threads: usize, finds: impl Fn(u64) -> Option<String> + Sync) -> Option<Find> {
    let next = AtomicU64::new(0);
    let lowest: Mutex<Option<Find>> = Mutex::new(None);
    let is_lower = |seed: u64, lowest: &Option<Find>| lowest.as_ref().is_none_or(|find| seed < find.seed);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    // NOTE: seeds are given out in order. All below one that finds the bug are over or under way
                    // by then, and those under way go on.
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= within
                        || !is_lower(seed, &lowest.lock().unwrap_or_else(PoisonError::into_inner))
                    {
                        break;
                    }
                    let Some(violation) = finds(seed) else { continue };
                    let mut lowest = lowest.lock().unwrap_or_else(PoisonError::into_inner);
                    if is_lower(seed, &lowest) {
                        *lowest = Some(Find { seed, violation, is_known: false });
                    }
                }
            });
        }
    });
    lowest.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What `work` returns for each item, worked out on several threads.
fn each<T: Sync, R: Send + Sync>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Option<R> + Sync,
) -> Vec<Option<R>> {
    let next = AtomicUsize::new(0);
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((item, slot)) = items.get(index).zip(results.get(index)) else { break };
                    if let Some(result) = work(item) {
                        let _ = slot.set(result);
                    }
                }
            });
        }
    });
    results.into_iter().map(OnceLock::into_inner).collect()
}

fn name_of(bug: Bug) -> String {
    format!("{bug:?}")
}

impl SearchArgs {
    fn threads(&self) -> usize {
        match self.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Answer { name, within, find } = self;
        let Some(Find { seed, violation, is_known }) = find else {
            return write!(f, "{name:<20} NOT FOUND within {within} seeds");
        };
        let how = if *is_known { "known" } else { "searched" };
        let violation = violation.lines().next().unwrap_or_default();
        write!(f, "{name:<20} found by seed {seed:>4} of {within:>4} ({how}): {violation}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BUG: Bug = Bug::ZeroFill;

    /// The seed that is found, the seeds that were run, and whether the known one did it.
    fn looked(within: u64, known: &str, finding: &[u64], threads: usize) -> (Option<Find>, BTreeSet<u64>) {
        let known = KnownSeeds::parse(known).unwrap();
        let ran = Mutex::new(BTreeSet::new());
        let finds = |bug, seed| {
            assert_eq!(bug, BUG);
            ran.lock().unwrap().insert(seed);
            finding.contains(&seed).then(|| format!("by {seed}"))
        };
        let answers = look(&[Wanted { bug: BUG, within }], &known, threads, finds, |_| {});
        assert_eq!(answers.len(), 1);
        (answers[0].find.clone(), ran.into_inner().unwrap())
    }

    fn find(seed: u64, is_known: bool) -> Option<Find> {
        Some(Find { seed, violation: format!("by {seed}"), is_known })
    }

    #[test]
    fn a_known_seed_spares_the_search() {
        assert_eq!(looked(10, "ZeroFill 7", &[3, 7], 2), (find(7, true), BTreeSet::from([7])));
    }

    #[test]
    fn a_known_seed_that_finds_nothing_leads_to_a_search_from_0() {
        assert_eq!(looked(10, "ZeroFill 7", &[3], 1), (find(3, false), BTreeSet::from([0, 1, 2, 3, 7])));
        assert_eq!(looked(10, "EvictNewer 7", &[3], 1), (find(3, false), BTreeSet::from([0, 1, 2, 3])));
        assert_eq!(looked(4, "ZeroFill 2", &[], 3), (None, (0..4).collect()));
    }

    #[test]
    fn a_known_seed_beyond_the_bound_does_not_count() {
        assert_eq!(looked(4, "ZeroFill 4", &[4], 2), (None, (0..4).collect()));
    }

    #[test]
    fn the_lowest_seed_wins_on_several_threads() {
        let higher_found: OnceLock<bool> = OnceLock::new();
        let finds = |seed| match seed {
            // Ends after a higher seed has found the bug.
            2 => higher_found.wait().then(|| "late".to_owned()),
            3.. => Some("early".to_owned()).inspect(|_| _ = higher_found.set(true)),
            _ => None,
        };
        let found = search(100, 2, finds);
        assert_eq!(found, Some(Find { seed: 2, violation: "late".to_owned(), is_known: false }));
    }

    #[test]
    fn each_bug_gets_its_own_answer() {
        let wanted = Bug::ALL.map(|bug| Wanted { bug, within: 10 });
        let known = KnownSeeds::parse("SkipRowFlush 9\nReplayOldLap 4").unwrap();
        let finds = |bug, seed| (seed == bug as u64 % 10).then(String::new);
        let answers = look(&wanted, &known, 3, finds, |_| {});
        for (wanted, answer) in wanted.iter().zip(answers) {
            assert_eq!(answer.name, name_of(wanted.bug));
            assert_eq!(answer.find.map(|find| find.seed), Some(wanted.bug as u64 % 10));
        }
    }
}
