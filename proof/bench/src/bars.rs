//! What each row must reach, as data, and whether it did.

use comfy_table::Table;
use serde::Serialize;

use crate::idle::Idle;
use crate::markdown::{finish, table};
use crate::matrix::{IDLE, Target};
use crate::result::RowResult;
use crate::sample::Figure;
use crate::stats::Spread;

/// With what a figure of Quoin's is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    /// The same figure of the best peer.
    Peer,
    /// The rate of the bare drive.
    Bare,
    /// The same figure of a fresh pool.
    Fresh,
    /// Another figure of the same run.
    Own(Figure),
    /// Nothing: the bound is a value.
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}
use Bound::{AtLeast, AtMost};

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            AtLeast(bound) => value >= bound,
            AtMost(bound) => value <= bound,
        }
    }
}

/// One bar of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar {
    pub(crate) row: &'static str,
    figure: Figure,
    against: Against,
    bound: Bound,
}

const fn bar(row: &'static str, figure: Figure, against: Against, bound: Bound) -> Bar {
    Bar { row, figure, against, bound }
}

/// What the rows must reach.
#[rustfmt::skip]
const BARS: [Bar; 29] = [
    bar("cached-read",   Figure::Rate,          Against::Peer,                    AtLeast(3.5)),
    bar("cached-read",   Figure::CpuPerIo,      Against::Peer,                    AtMost(0.5)),
    bar("seqread-64k",   Figure::Rate,          Against::Peer,                    AtLeast(1.2)),
    bar("seqread-1m",    Figure::Rate,          Against::Peer,                    AtLeast(1.0)),
    bar("seqread-1m-d1", Figure::Rate,          Against::Bare,                    AtLeast(0.8)),
    bar("seqwrite-64k",  Figure::Rate,          Against::Peer,                    AtLeast(1.2)),
    bar("seqwrite-64k",  Figure::CpuPerMib,     Against::Peer,                    AtMost(1.0)),
    bar("seqwrite-64k",  Figure::DriveWritten,  Against::Value,                   AtMost(1.1)),
    bar("seqwrite-1m",   Figure::Rate,          Against::Peer,                    AtLeast(1.1)),
    bar("seqwrite-1m",   Figure::CpuPerMib,     Against::Peer,                    AtMost(1.0)),
    bar("seqwrite-1m",   Figure::DriveWritten,  Against::Value,                   AtMost(1.1)),
    bar("backup",        Figure::P99,           Against::Own(Figure::AloneP99),   AtMost(1.5)),
    bar("drive-read",    Figure::Rate,          Against::Peer,                    AtLeast(1.1)),
    bar("write-d1",      Figure::Rate,          Against::Peer,                    AtLeast(1.1)),
    bar("write-d32",     Figure::Rate,          Against::Peer,                    AtLeast(2.5)),
    bar("write-d32",     Figure::P99,           Against::Peer,                    AtMost(1.0)),
    bar("write-d32",     Figure::CpuPerIo,      Against::Value,                   AtMost(16.0)),
    bar("write-d128",    Figure::Rate,          Against::Bare,                    AtLeast(0.85)),
    bar("nbd-write-d1",  Figure::Rate,          Against::Peer,                    AtLeast(1.0)),
    bar("sessions",      Figure::Rate,          Against::Peer,                    AtLeast(2.5)),
    bar("sessions",      Figure::Rate,          Against::Fresh,                   AtLeast(0.95)),
    bar("long",          Figure::Rate,          Against::Peer,                    AtLeast(2.5)),
    bar("long",          Figure::P99,           Against::Peer,                    AtMost(1.0)),
    bar("long",          Figure::LateRate,      Against::Own(Figure::EarlyRate),  AtLeast(0.9)),
    bar("long",          Figure::LateDriveRead, Against::Value,                   AtMost(0.15)),
    bar("aged-read-64k", Figure::Rate,          Against::Peer,                    AtLeast(0.9)),
    bar("aged-read-64k", Figure::Rate,          Against::Bare,                    AtLeast(0.85)),
    bar("aged-read-1m",  Figure::Rate,          Against::Peer,                    AtLeast(0.9)),
    bar("aged-read-1m",  Figure::Rate,          Against::Bare,                    AtLeast(0.85)),
];

/// What the quick look must reach. It is to find that something became several times slower, on any machine that has
/// other work to do as well: a third of what is usual or less.
#[rustfmt::skip]
const QUICK: [Bar; 4] = [
    bar("cached-read",   Figure::Rate,          Against::Bare,                    AtLeast(0.3)),
    bar("seqread-1m",    Figure::Rate,          Against::Bare,                    AtLeast(0.15)),
    bar("seqwrite-1m",   Figure::Rate,          Against::Bare,                    AtLeast(0.05)),
    bar("write-d32",     Figure::Rate,          Against::Bare,                    AtLeast(0.15)),
];

/// A bar beside what was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    pub(crate) row: &'static str,
    /// What is to be reached.
    pub(crate) bar: String,
    /// What was measured.
    pub(crate) measured: String,
    /// Whether it is met; null if the row does not count, or something the bar needs was not measured.
    pub(crate) met: Option<bool>,
}

/// All bars of these rows, in the order of the rows, and that of an idle array.
pub(crate) fn of(rows: &[RowResult], idle: Option<Idle>) -> Vec<Verdict> {
    let bars_of = |result| BARS.iter().filter(move |bar: &&Bar| bar.row == row_id(result));
    let mut verdicts: Vec<Verdict> =
        rows.iter().flat_map(|result| bars_of(result).map(|bar| bar.verdict(result))).collect();
    verdicts.extend(idle.map(of_idle));
    verdicts
}

fn row_id(result: &RowResult) -> &'static str {
    result.row.id
}

fn of_idle(idle: Idle) -> Verdict {
    let percent = idle.cores * 100.0;
    let measured = format!("{percent:.2} % over {:.0} s with {} sessions", idle.seconds, idle.sessions);
    let bar = "CPU < 1 % of a core".to_owned();
    Verdict { row: IDLE, bar, measured, met: Some(percent < 1.0) }
}

/// The bar of a row of the quick look. The best of Quoin's rounds is what counts, since what is really slower is so in
/// every round; of the bare drive's it is the median, since a drive that stalls for one of them makes nobody faster.
pub(crate) fn of_quick(result: &RowResult) -> Option<Verdict> {
    let bar = QUICK.iter().find(|bar| bar.row == result.row.id)?;
    let rate = |target| result.figure(target, Figure::Rate);
    let (quoin, bare) = (rate(result.row.subject())?, rate(Target::Bare)?);
    let ratio = quoin.max / bare.median;
    let measured = format!("{ratio:.2} ({:.0} to {:.0} MB/s)", quoin.max, bare.median);
    Some(Verdict { row: bar.row, bar: bar.text("–"), measured, met: Some(bar.bound.is_met(ratio)) })
}

impl Bar {
    /// What the figure is compared with, in words, and the value that the bound is for.
    fn measured(&self, result: &RowResult) -> Option<(String, Spread)> {
        let subject = (result.row.subject(), self.figure);
        let other = match self.against {
            Against::Value => return Some((String::new(), result.figure(subject.0, self.figure)?)),
            Against::Peer => (result.best_peer()?, self.figure),
            Against::Bare => (Target::Bare, self.figure),
            Against::Fresh => (Target::Fresh, self.figure),
            Against::Own(figure) => (subject.0, figure),
        };
        Some((other.0.name(), result.ratio(subject, other)?))
    }

    fn verdict(&self, result: &RowResult) -> Verdict {
        let (text, measured, met) = match self.measured(result) {
            None => (self.text("its peer"), "not measured".to_owned(), None),
            Some((name, spread)) => {
                (self.text(&name), spread.show(2), Some(self.bound.is_met(spread.median)))
            }
        };
        // Why it does not count is told once for all bars of the row.
        match result.objection() {
            Some(_) => {
                Verdict { row: self.row, bar: text, measured: measured + "; does not count", met: None }
            }
            None => Verdict { row: self.row, bar: text, measured, met },
        }
    }

    /// The bar in words, `peer` being the name of the peer.
    fn text(&self, peer: &str) -> String {
        let what = match self.figure {
            Figure::Rate => "rate",
            Figure::P99 | Figure::AloneP99 => "p99",
            Figure::CpuPerIo => "CPU per I/O",
            Figure::CpuPerMib => "CPU per byte",
            Figure::DriveRead => "drive bytes read per host byte",
            Figure::DriveWritten => "drive bytes written per host byte",
            Figure::EarlyRate => "rate before the wrap",
            Figure::LateRate => "rate long after the wrap",
            Figure::LateDriveRead => "drive bytes read per host byte after the wrap",
        };
        let (sign, bound) = match self.bound {
            AtLeast(bound) => ("≥", bound),
            AtMost(bound) => ("≤", bound),
        };
        match self.against {
            Against::Peer => format!("{what} {sign} {bound} × {peer}"),
            Against::Bare => format!("{what} {sign} {bound} × the bare drive's"),
            Against::Fresh => format!("{what} {sign} {bound} × that on a fresh pool"),
            Against::Own(Figure::AloneP99) => format!("{what} {sign} {bound} × that without the backup"),
            Against::Own(_) => format!("{what} {sign} {bound} × that before it"),
            Against::Value if self.figure == Figure::CpuPerIo => format!("{what} {sign} {bound} µs"),
            Against::Value => format!("{what} {sign} {bound}"),
        }
    }
}

/// The bars as a table for people.
pub(crate) fn show(verdicts: &[Verdict]) -> Table {
    let mut table = table(&["row", "bar", "measured", "met"]);
    for verdict in verdicts {
        let met = match verdict.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "–",
        };
        table.add_row([verdict.row, &verdict.bar, &verdict.measured, met]);
    }
    finish(table, &[0, 1, 2, 3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{QUICK as QUICK_ROWS, ROWS};
    use crate::result::tests::of as result_of;
    use crate::tgtd::Store;

    const PEER: Target = Target::Tgtd(Store::RDWR_SYNC_DIRECT);

    #[test]
    fn every_bar_is_of_a_row_that_measures_what_it_needs() {
        for bar in BARS.iter().chain(&QUICK) {
            let row = ROWS.into_iter().find(|row| row.id == bar.row).expect(bar.row);
            assert!(
                bar.against != Against::Fresh || row.targets().any(|t| t == Target::Fresh),
                "{}",
                bar.row
            );
        }
        assert!(QUICK_ROWS.iter().all(|row| QUICK.iter().any(|bar| bar.row == *row)));
    }

    #[test]
    fn a_bar_is_met_by_the_median_of_the_rounds() {
        let result = |quoin: &[f64]| {
            result_of("write-d32", &[(Target::Quoin, quoin), (PEER, &[100.0; 3]), (Target::Bare, &[1.0; 3])])
        };
        let rate = |quoin: &[f64]| of(&[result(quoin)], None)[0].clone();
        let good = rate(&[200.0, 250.0, 300.0]);
        assert_eq!((good.row, good.met), ("write-d32", Some(true)));
        assert_eq!(good.bar, "rate ≥ 2.5 × tgtd rdwr sync+direct");
        assert_eq!(good.measured, "2.50 (2.00–3.00)");
        assert_eq!(rate(&[200.0, 249.0, 300.0]).met, Some(false));

        let all = of(&[result(&[300.0; 3])], None);
        assert_eq!(all.iter().map(|v| v.met).collect::<Vec<_>>(), [Some(true); 3], "p99 and CPU, too");
        assert_eq!(all[2].bar, "CPU per I/O ≤ 16 µs");
    }

    #[test]
    fn what_was_not_measured_or_does_not_count_is_not_met() {
        let mut alone = result_of("write-d32", &[(Target::Quoin, &[1.0]), (Target::Bare, &[1.0])]);
        assert_eq!(of(&[alone], None)[0].met, None);
        alone = result_of("write-d32", &[(Target::Quoin, &[300.0]), (PEER, &[1.0]), (Target::Bare, &[1.0])]);
        alone.runs[0].1[0].probes_mb_per_second = vec![1.0];
        let verdict = &of(&[alone], None)[0];
        assert_eq!(verdict.met, None);
        assert!(verdict.measured.ends_with("does not count"), "{}", verdict.measured);
    }

    #[test]
    fn the_quick_look_takes_the_best_round_but_no_stall_of_the_drive() {
        let quick = |quoin: &[f64], bare: &[f64]| {
            let result = result_of("write-d32", &[(Target::Quoin, quoin), (Target::Bare, bare)]);
            of_quick(&result).unwrap().met
        };
        assert_eq!(quick(&[1.0, 50.0, 1.0], &[100.0; 3]), Some(true));
        assert_eq!(quick(&[1.0, 5.0, 1.0], &[100.0; 3]), Some(false));
        assert_eq!(quick(&[1.0, 5.0, 1.0], &[100.0, 0.1, 100.0]), Some(false));
    }

    #[test]
    fn an_idle_array_is_judged_too() {
        let idle = Idle { seconds: 20.0, sessions: 5, cpu_seconds: 0.4, cores: 0.02 };
        assert_eq!(of(&[], Some(idle))[0].met, Some(false));
    }
}
