//! Medians: one line for each target of a row, and the verdict over them.

use crate::compare::{LimitSample, RowResult, Sample};
use crate::matrix::Peer;
use crate::stats::median;

/// A generator this busy may itself be what limits a row (cores of one thread).
pub(crate) const SATURATED_CORES: f64 = 0.95;

/// Medians of one target's runs.
pub(crate) struct Line {
    pub(crate) iops: f64,
    pub(crate) mb_per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    pub(crate) target_us: f64,
    pub(crate) generator_us: f64,
    pub(crate) generator_cores: f64,
    pub(crate) machine_us: f64,
    /// Cores that neither target nor generator used: the kernel's workers, or strangers.
    pub(crate) elsewhere_cores: f64,
    /// Share of the bytes read that the target fetched from storage.
    pub(crate) from_storage: f64,
    /// Cores kept busy by everything together.
    pub(crate) machine_cores: f64,
    /// Of Quoin: the share of blocks found in the read cache, if any were read.
    pub(crate) hit_ratio: Option<f64>,
    /// Of Quoin: how many times the journal was gone through.
    pub(crate) wraps: Option<f64>,
}

impl Line {
    /// Over the runs that count, or over all if none does.
    pub(crate) fn of(samples: &[Sample]) -> Line {
        let mut used: Vec<&Sample> = samples.iter().filter(|sample| sample.invalid.is_none()).collect();
        if used.is_empty() {
            used = samples.iter().collect();
        }
        let of = |at: fn(&Sample) -> f64| median(used.iter().map(|sample| at(sample)));
        Line {
            iops: of(|s| s.report.total.iops),
            mb_per_second: of(|s| s.report.total.mb_per_second),
            p50: of(|s| s.report.total.latency_us.p50),
            p99: of(|s| s.report.total.latency_us.p99),
            p999: of(|s| s.report.total.latency_us.p999),
            max: of(|s| s.report.total.latency_us.max),
            target_us: of(|s| s.report.target.map_or(0.0, |target| target.cpu.us_per_io)),
            generator_us: of(|s| s.report.generator.us_per_io),
            generator_cores: of(|s| s.report.generator.cores),
            machine_us: of(|s| s.report.machine.us_per_io),
            elsewhere_cores: of(|s| {
                let known = s.report.target.map_or(0.0, |target| target.cpu.cores) + s.report.generator.cores;
                s.report.machine.cores - known
            }),
            from_storage: of(|s| {
                let read = s.report.read.ios * s.report.block_bytes;
                s.report.target.map_or(0.0, |target| target.storage_read_bytes as f64 / read.max(1) as f64)
            }),
            machine_cores: of(|s| s.report.machine.cores),
            hit_ratio: optional(&used, |s| s.engine.and_then(|engine| engine.hit_ratio())),
            wraps: optional(&used, |s| s.engine.map(|engine| engine.journal_wraps as f64)),
        }
    }
}

/// Quoin against the best that may be compared with it.
pub(crate) struct Verdict {
    pub(crate) quoin: Line,
    pub(crate) best: Line,
    pub(crate) best_name: String,
    pub(crate) invalid: Option<String>,
}

pub(crate) fn verdict(result: &RowResult) -> Option<Verdict> {
    let quoin = of_peer(result, Peer::Quoin)?;
    let (best, best_name) = best_equal(result)?;
    Some(Verdict { quoin, best, best_name, invalid: objection(result) })
}

/// A peer's medians, if it was measured.
pub(crate) fn of_peer(result: &RowResult, peer: Peer) -> Option<Line> {
    let (_, samples) = result.peers.iter().find(|(one, samples)| *one == peer && !samples.is_empty())?;
    Some(Line::of(samples))
}

/// The fastest peer that may be compared with Quoin, and its name.
pub(crate) fn best_equal(result: &RowResult) -> Option<(Line, String)> {
    let equal = result.peers.iter().filter(|(peer, samples)| {
        *peer != Peer::Quoin && result.row.inequality(*peer).is_none() && !samples.is_empty()
    });
    equal
        .map(|(peer, samples)| (Line::of(samples), peer.name()))
        .max_by(|one, other| one.0.iops.total_cmp(&other.0.iops))
}

/// Why none of Quoin's runs counts, or none of those with which it is compared, if that is so.
pub(crate) fn objection(result: &RowResult) -> Option<String> {
    let none_counts = |samples: &Vec<Sample>| samples.iter().all(|sample| sample.invalid.is_some());
    let samples = result.peers.iter().map(|(_, samples)| samples);
    samples.filter(|samples| none_counts(samples)).find_map(|samples| samples.first()?.invalid.clone())
}

/// The median over the runs that have such a value.
fn optional(samples: &[&Sample], at: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = samples.iter().filter_map(|sample| at(sample)).collect();
    (!values.is_empty()).then(|| median(values))
}

/// The rate a limit allows.
pub(crate) fn limit_iops(samples: &[LimitSample]) -> f64 {
    median(samples.iter().map(|sample| match sample {
        LimitSample::Drive(drive) => drive.iops,
        LimitSample::Echo(echo) => echo.iops,
    }))
}

/// The median latency of a limit.
pub(crate) fn limit_p50(samples: &[LimitSample]) -> f64 {
    median(samples.iter().map(|sample| match sample {
        LimitSample::Drive(drive) => drive.latency_us.p50,
        LimitSample::Echo(echo) => echo.latency_us.p50,
    }))
}
