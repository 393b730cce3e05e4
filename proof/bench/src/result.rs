//! Rows with all their runs, and what follows from them.
//!
//! Targets are compared round by round: within a round they ran minutes apart, between rounds the drive may have become
//! twice as fast. A ratio is therefore the median of the rounds' ratios, and not the ratio of medians.

use serde::Serialize;

use crate::matrix::{Row, Target};
use crate::sample::{Figure, Sample};
use crate::stats::{Spread, median};

/// How much faster or slower than usual the bare drive may be on any file of a target for the row to count.
pub(crate) const ALIKE: f64 = 1.5;
/// A peer's store that has so small a part of the better store's rate after the first rounds is left out of the others.
const WORTH_MEASURING: f64 = 0.8;
const FIRST_ROUNDS: usize = 2;

/// All runs of one row.
pub(crate) struct RowResult {
    pub(crate) row: Row,
    pub(crate) runs: Vec<(Target, Vec<Sample>)>,
}

impl RowResult {
    pub(crate) fn new(row: Row, targets: impl IntoIterator<Item = Target>) -> RowResult {
        RowResult { row, runs: targets.into_iter().map(|target| (target, Vec::new())).collect() }
    }

    pub(crate) fn samples(&self, target: Target) -> &[Sample] {
        self.runs.iter().find(|(one, _)| *one == target).map_or(&[], |(_, samples)| samples)
    }

    /// The median and the extremes of a figure over the runs that count.
    pub(crate) fn figure(&self, target: Target, figure: Figure) -> Option<Spread> {
        let counting = self.samples(target).iter().filter(|sample| sample.invalid.is_none());
        Spread::of(counting.filter_map(|sample| figure.of(sample)))
    }

    /// The same of the ratio to another figure in the same round.
    pub(crate) fn ratio(&self, of: (Target, Figure), to: (Target, Figure)) -> Option<Spread> {
        let counting = |target| self.samples(target).iter().filter(|sample| sample.invalid.is_none());
        let ratios = counting(of.0).filter_map(|sample| {
            let other = counting(to.0).find(|other| other.round == sample.round)?;
            let divisor = to.1.of(other).filter(|value| *value > 0.0)?;
            Some(of.1.of(sample)? / divisor)
        });
        Spread::of(ratios)
    }

    /// The peer with the highest median rate.
    pub(crate) fn best_peer(&self) -> Option<Target> {
        let peers = self.runs.iter().map(|(target, _)| *target).filter(Target::is_peer);
        let rate = |peer: Target| Some((peer, self.figure(peer, Figure::Rate)?.median));
        peers.filter_map(rate).max_by(|one, other| one.1.total_cmp(&other.1)).map(|(peer, _)| peer)
    }

    /// Whether a target is to be measured in this round: a store of the peer's that is far behind the better one is not,
    /// once that is known.
    pub(crate) fn is_worth_measuring(&self, target: Target, round: usize) -> bool {
        if round < FIRST_ROUNDS || !target.is_peer() {
            return true;
        }
        let rate = |target| self.figure(target, Figure::Rate).map_or(0.0, |rate| rate.median);
        self.best_peer().is_none_or(|best| rate(target) >= WORTH_MEASURING * rate(best))
    }

    /// What the bare drive did on the slowest and on the fastest file of any target, relative to the median of all targets
    /// in the same round.
    pub(crate) fn files(&self) -> Option<Files> {
        let mut all = Vec::new();
        for (_, samples) in &self.runs {
            let many = samples.first().map_or(0, |sample| sample.probes_mb_per_second.len());
            for file in 0..many {
                let ratios = samples.iter().filter_map(|sample| {
                    let usual = self.usual_probe(sample.round)?;
                    Some(sample.probes_mb_per_second.get(file)? / usual)
                });
                all.push(median(ratios));
            }
        }
        Spread::of(all).map(|all| Files { slowest: all.min, fastest: all.max })
    }

    /// The median of the targets' probes in a round, each target's files being one.
    fn usual_probe(&self, round: usize) -> Option<f64> {
        let of_target = |(_, samples): &(Target, Vec<Sample>)| {
            let probes = &samples.iter().find(|sample| sample.round == round)?.probes_mb_per_second;
            (!probes.is_empty()).then(|| median(probes.iter().copied()))
        };
        let probes: Vec<f64> = self.runs.iter().filter_map(of_target).collect();
        Spread::of(probes).map(|probes| probes.median).filter(|probe| *probe > 0.0)
    }

    /// Why the row does not count, if it does not.
    pub(crate) fn objection(&self) -> Option<String> {
        for (target, samples) in &self.runs {
            if samples.iter().all(|sample| sample.invalid.is_some())
                && let Some(why) = samples.first().and_then(|sample| sample.invalid.as_ref())
            {
                return Some(format!("no run of {} counts: {why}", target.name()));
            }
        }
        let files = self.files()?;
        (!files.are_alike()).then(|| {
            format!(
                "the files are not alike: probes had {:.2} to {:.2} of the usual rate",
                files.slowest, files.fastest
            )
        })
    }
}

/// How the bare drive fared on the files of the targets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Files {
    pub(crate) slowest: f64,
    pub(crate) fastest: f64,
}

impl Files {
    fn are_alike(&self) -> bool {
        self.slowest * ALIKE >= 1.0 && self.fastest <= ALIKE
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::matrix::ROWS;
    use crate::tgtd::Store;

    const SYNC: Target = Target::Tgtd(Store::RDWR_SYNC);
    const DIRECT: Target = Target::Tgtd(Store::RDWR_SYNC_DIRECT);

    /// Runs of these rates, one for each round.
    pub(crate) fn of(row: &str, runs: &[(Target, &[f64])]) -> RowResult {
        let row = ROWS.into_iter().find(|one| one.id == row).expect("there is such a row");
        let sample = |(round, &rate): (usize, &f64)| Sample {
            round,
            mb_per_second: rate,
            p99_us: 100.0,
            cpu_us_per_io: 10.0,
            probes_mb_per_second: vec![50.0],
            ..Sample::default()
        };
        let runs = runs
            .iter()
            .map(|(target, rates)| (*target, rates.iter().enumerate().map(sample).collect::<Vec<_>>()));
        RowResult { row, runs: runs.collect() }
    }

    #[test]
    fn ratios_are_those_of_the_same_round() {
        // The drive was twice as fast in the second round; the ratio of medians would be 2.
        let mut result =
            of("write-d32", &[(Target::Quoin, &[100.0, 200.0, 100.0]), (DIRECT, &[50.0, 100.0, 51.0])]);
        let ratio = |result: &RowResult| result.ratio((Target::Quoin, Figure::Rate), (DIRECT, Figure::Rate));
        let spread = ratio(&result).unwrap();
        assert_eq!((spread.median, spread.max), (2.0, 2.0));
        result.runs[0].1[1].invalid = Some("why".to_owned());
        result.runs[1].1.truncate(2);
        assert_eq!(ratio(&result).unwrap(), Spread { median: 2.0, min: 2.0, max: 2.0 });
        result.runs[1].1.clear();
        assert_eq!(ratio(&result), None);
    }

    #[test]
    fn the_better_store_is_the_peer_and_the_other_is_soon_left_out() {
        let result = of(
            "write-d32",
            &[
                (Target::Quoin, &[1.0]),
                (SYNC, &[79.0, 79.0]),
                (DIRECT, &[100.0, 100.0]),
                (Target::Bare, &[1.0]),
            ],
        );
        assert_eq!(result.best_peer(), Some(DIRECT));
        assert!(result.is_worth_measuring(SYNC, 1));
        assert!(!result.is_worth_measuring(SYNC, 2));
        assert!([DIRECT, Target::Quoin, Target::Bare].iter().all(|t| result.is_worth_measuring(*t, 2)));
    }

    #[test]
    fn a_row_of_one_slow_file_does_not_count() {
        let mut result =
            of("write-d32", &[(Target::Quoin, &[1.0; 3]), (DIRECT, &[1.0; 3]), (Target::Bare, &[1.0; 3])]);
        assert_eq!(result.objection(), None);
        // In one round of three it may be chance.
        result.runs[0].1[0].probes_mb_per_second = vec![50.0, 5.0];
        result.runs[0].1[1].probes_mb_per_second = vec![50.0, 45.0];
        result.runs[0].1[2].probes_mb_per_second = vec![60.0, 55.0];
        assert_eq!(result.files(), Some(Files { slowest: 0.9, fastest: 1.0 }));
        assert_eq!(result.objection(), None);
        result.runs[0].1[1].probes_mb_per_second = vec![50.0, 6.0];
        assert!(result.objection().unwrap().contains("0.12 to 1.00"), "{:?}", result.objection());
        // Where the bare drive's own file was the slow one, it is that which is named.
        let mut result =
            of("write-d32", &[(Target::Quoin, &[1.0; 3]), (DIRECT, &[1.0; 3]), (Target::Bare, &[1.0; 3])]);
        result.runs[2].1.iter_mut().for_each(|sample| sample.probes_mb_per_second = vec![5.0]);
        assert_eq!(result.files(), Some(Files { slowest: 0.1, fastest: 1.0 }));
    }

    #[test]
    fn a_row_counts_as_long_as_one_run_of_each_does() {
        let mut result = of("write-d32", &[(Target::Quoin, &[1.0, 2.0]), (Target::Bare, &[1.0, 1.0])]);
        result.runs[0].1[0].invalid = Some("it was put off".to_owned());
        assert_eq!(result.objection(), None);
        result.runs[0].1[1].invalid = Some("it was put off".to_owned());
        assert!(result.objection().unwrap().contains("no run of Quoin counts: it was put off"));
    }
}
