//! What each row must reach, and whether it did.

use comfy_table::Table;
use serde::Serialize;

use crate::compare::{Outcome, RowResult};
use crate::line::{self, Line};
use crate::markdown::{finish, table};
use crate::matrix::{Limit, Peer};
use crate::tgtd::Store;

/// One bar of one row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Bar {
    pub(crate) row: &'static str,
    /// What is to be reached.
    pub(crate) bar: String,
    /// What was measured.
    pub(crate) measured: String,
    /// Whether it is met; null if the runs do not count, or something it needs was not measured.
    pub(crate) met: Option<bool>,
}

impl Bar {
    fn new(row: &'static str, bar: &str, measured: String, met: bool) -> Bar {
        Bar { row, bar: bar.to_owned(), measured, met: Some(met) }
    }
}

/// The bars of all rows that were measured, in the order of the report.
pub(crate) fn of(outcome: &Outcome) -> Vec<Bar> {
    let mut bars = Vec::new();
    for result in &outcome.rows {
        let mut of_row = Ratios::of(result).map(|ratios| ratios.bars()).unwrap_or_default();
        if let Some(why) = line::objection(result) {
            for bar in &mut of_row {
                bar.met = None;
                bar.measured += &format!("; does not count: {why}");
            }
        }
        bars.append(&mut of_row);
    }
    if let Some(idle) = outcome.idle {
        let percent = idle.cores * 100.0;
        let measured = format!("{percent:.2} % over {:.0} s with {} sessions", idle.seconds, idle.sessions);
        bars.push(Bar::new("idle", "< 1 % of a core", measured, percent < 1.0));
    }
    bars
}

/// The bars as a table for people.
pub(crate) fn show(bars: &[Bar]) -> Table {
    let mut table = table(&["row", "bar", "measured", "met"]);
    for bar in bars {
        let met = match bar.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "–",
        };
        table.add_row([bar.row, &bar.bar, &bar.measured, met]);
    }
    finish(table, &[0, 1, 2, 3])
}

/// A row's medians, where there are any.
struct Ratios<'a> {
    result: &'a RowResult,
    quoin: Line,
    /// The best peer of equal durability.
    best: Option<(Line, String)>,
}

impl<'a> Ratios<'a> {
    fn of(result: &'a RowResult) -> Option<Ratios<'a>> {
        let quoin = line::of_peer(result, Peer::Quoin)?;
        Some(Ratios { result, quoin, best: line::best_equal(result) })
    }

    fn bars(&self) -> Vec<Bar> {
        let id = self.result.row.id;
        let bars = match id {
            "cached-read-d32" => vec![self.cpu_to_best(id, 0.5), self.rate_or_saturated(id)],
            "cached-read-d1" => vec![self.above_limits(id, "echo", 25.0)],
            "drive-read-d32" => vec![self.near_the_drive(id)],
            "write-d32" => vec![self.to_best(id, 2.5), self.cpu_all_in(id)],
            "write-d1" => vec![self.above_limits(id, "flushed write of the bare file + echo", 50.0)],
            "seqread-64k" | "seqread-1m" | "seqwrite-64k" | "seqwrite-1m" | "several-read"
            | "several-write" => {
                vec![self.to_best(id, 1.0)]
            }
            _ => Vec::new(),
        };
        bars.into_iter().flatten().collect()
    }

    fn to_best(&self, id: &'static str, times: f64) -> Option<Bar> {
        let (best, name) = self.best.as_ref()?;
        let ratio = self.quoin.iops / best.iops;
        let wraps = self.quoin.wraps.filter(|_| self.result.row.least_wraps > 0);
        let wraps = wraps.map_or(String::new(), |wraps| format!("; journal wrapped {wraps:.0} times"));
        let whom = if self.result.row.several { "one alone" } else { name };
        let measured = format!("{ratio:.2} × ({:.0} to {:.0}){wraps}", self.quoin.iops, best.iops);
        Some(Bar::new(id, &format!("IOPS ≥ {times} × {whom}"), measured, ratio >= times))
    }

    fn cpu_to_best(&self, id: &'static str, times: f64) -> Option<Bar> {
        let (best, name) = self.best.as_ref()?;
        let ratio = self.quoin.target_us / best.target_us;
        let measured = format!("{ratio:.2} × ({:.1} to {:.1} µs)", self.quoin.target_us, best.target_us);
        Some(Bar::new(id, &format!("CPU per I/O ≤ {times} × {name}"), measured, ratio <= times))
    }

    fn rate_or_saturated(&self, id: &'static str) -> Option<Bar> {
        let (best, name) = self.best.as_ref()?;
        let ratio = self.quoin.iops / best.iops;
        let generator = self.quoin.generator_cores;
        let hits = self.quoin.hit_ratio.map_or(String::new(), |hits| format!("; {:.1} % hits", hits * 100.0));
        let measured = format!(
            "{ratio:.2} × ({:.0} to {:.0}); generator {:.0} % of its core{hits}",
            self.quoin.iops,
            best.iops,
            generator * 100.0
        );
        let met = ratio >= 1.5 || generator > line::SATURATED_CORES;
        Some(Bar::new(id, &format!("IOPS ≥ 1.5 × {name}, or the generator saturated"), measured, met))
    }

    fn cpu_all_in(&self, id: &'static str) -> Option<Bar> {
        let (own, rest) = (self.quoin.target_us, self.quoin.machine_us - self.quoin.generator_us);
        let measured = format!("{own:.1} µs; {rest:.1} µs with all the machine did but the generator");
        Some(Bar::new(
            id,
            "CPU per I/O, journal, destage and checkpoints included, ≤ 20 µs",
            measured,
            own <= 20.0,
        ))
    }

    fn above_limits(&self, id: &'static str, what: &str, slack_us: f64) -> Option<Bar> {
        let limits: f64 = self.result.limits.iter().map(|(_, samples)| line::limit_p50(samples)).sum();
        let above = self.quoin.p50 - limits;
        let hits = self.quoin.hit_ratio.filter(|_| !self.result.row.writes());
        let hits = hits.map_or(String::new(), |hits| format!("; {:.1} % hits", hits * 100.0));
        let measured = format!("{above:+.0} µs ({:.0} to {limits:.0} µs, medians){hits}", self.quoin.p50);
        (limits > 0.0).then(|| {
            Bar::new(id, &format!("latency ≤ {what} + {slack_us:.0} µs"), measured, above <= slack_us)
        })
    }

    fn near_the_drive(&self, id: &'static str) -> Option<Bar> {
        let (_, samples) = self.result.limits.iter().find(|(limit, _)| matches!(limit, Limit::Drive(_)))?;
        let bare = self.quoin.iops / line::limit_iops(samples);
        let aio = line::of_peer(self.result, Peer::Tgtd(Store::AIO)).map(|aio| self.quoin.iops / aio.iops);
        let hits = self.quoin.hit_ratio.unwrap_or(0.0) * 100.0;
        let measured = match aio {
            Some(aio) => format!("{bare:.2} × io_uring, {aio:.2} × tgtd aio; {hits:.1} % hits"),
            None => format!("{bare:.2} × io_uring; {hits:.1} % hits"),
        };
        let met = bare >= 0.9 || aio.is_some_and(|aio| aio >= 1.2);
        Some(Bar::new(id, "IOPS ≥ 0.9 × the bare file by io_uring, or ≥ 1.2 × tgtd aio", measured, met))
    }
}
