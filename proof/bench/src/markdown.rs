//! The comparison as one page: what it was measured on, a line for each row, the bars, remarks.

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

use crate::bars;
use crate::compare::Outcome;
use crate::matrix::{Data, LARGE_BYTES, Target, Work};
use crate::result::RowResult;
use crate::sample::{Figure, Sample};
use crate::stats::{Spread, median};

/// A generator whose sessions keep so much of a core busy each may itself be what limits a row.
const SATURATED_CORES: f64 = 0.95;
/// More than this outside target and generator is worth a remark.
const DISTURBED_CORES: f64 = 0.5;
/// Of a row that is to read from cache, or from the drive, less or more than this comes from the cache.
const CACHE_SHARE: f64 = 0.9;

/// The whole page.
pub(crate) fn render(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (name, value) in &outcome.machine {
        text += &format!("- {name}: {value}\n");
    }
    text += &format!("\n{}\n", outcome.settings);
    if !outcome.rows.is_empty() {
        text += &format!("\n{}\n", rows(&outcome.rows));
    }
    text += &format!("\n{}\n", bars::show(&outcome.bars));
    if !outcome.remarks.is_empty() {
        text += "\n";
    }
    for remark in &outcome.remarks {
        text += &format!("- {remark}\n");
    }
    text
}

/// A table with these columns.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.iter().copied());
    table
}

/// Figures right-aligned, and no cell broken over lines: a Markdown row is one line.
pub(crate) fn finish(mut table: Table, words: &[usize]) -> Table {
    for (index, column) in table.column_iter_mut().enumerate() {
        if !words.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(3)));
    }
    table
}

fn rows(rows: &[RowResult]) -> Table {
    let mut table = table(&[
        "row",
        "",
        "Quoin",
        "best peer",
        "its rate",
        "ratio",
        "p99 µs, both",
        "CPU µs, both",
        "drive bytes read, written",
        "bare drive",
        "files",
    ]);
    for result in rows {
        table.add_row(cells(result));
    }
    finish(table, &[0, 1, 3])
}

fn cells(result: &RowResult) -> Vec<String> {
    let (row, subject, best) = (&result.row, result.row.subject(), result.best_peer());
    let unit = if row.is_of_bytes() { "MB/s" } else { "IOPS" };
    let rate = |target| result.figure(target, Figure::Rate).map_or_else(none, |mb| rate(mb, row.io_bytes));
    let both = |figure, digits: usize| {
        let one = |target| match result.figure(target, figure) {
            Some(spread) => format!("{:.*}", digits, spread.median),
            None => none(),
        };
        format!("{} : {}", one(subject), best.map_or_else(none, one))
    };
    let cpu = if row.is_of_bytes() || row.work == Work::Beside {
        both(Figure::CpuPerMib, 0) + " a MiB"
    } else {
        both(Figure::CpuPerIo, 1)
    };
    let drive = |figure| result.figure(subject, figure).map_or_else(none, |of| format!("{:.2}", of.median));
    let ratio = best.and_then(|best| result.ratio((subject, Figure::Rate), (best, Figure::Rate)));
    vec![
        row.id.to_owned(),
        unit.to_owned(),
        rate(subject),
        best.map_or_else(none, |best| best.name()),
        best.map_or_else(none, rate),
        ratio.map_or_else(none, |ratio| format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.min, ratio.max)),
        both(Figure::P99, 0),
        cpu,
        format!("{}, {}", drive(Figure::DriveRead), drive(Figure::DriveWritten)),
        bare(result),
        result.files().map_or_else(none, |files| format!("{:.2}–{:.2}", files.slowest, files.fastest)),
    ]
}

fn none() -> String {
    "–".to_owned()
}

/// Transfers a second; of large ones, and of those of another size than the row's, MB/s.
fn rate(mb_per_second: Spread, io_bytes: u64) -> String {
    if io_bytes >= LARGE_BYTES {
        mb_per_second.show(0)
    } else {
        mb_per_second.times(1e6 / io_bytes as f64).show(0)
    }
}

fn bare(result: &RowResult) -> String {
    let io_bytes = result.row.bare().io_bytes;
    let Some(mb) = result.figure(Target::Bare, Figure::Rate) else { return none() };
    let unit = if io_bytes >= LARGE_BYTES && !result.row.is_of_bytes() { " MB/s" } else { "" };
    rate(mb, io_bytes) + unit
}

/// What a reader has to know of a row besides its line.
pub(crate) fn remarks(result: &RowResult) -> Vec<String> {
    let (row, subject) = (&result.row, result.row.subject());
    let samples = result.samples(subject);
    let of = |at: fn(&Sample) -> Option<f64>| Spread::of(samples.iter().filter_map(at)).map(|of| of.median);
    let mut remarks: Vec<String> =
        result.objection().map(|why| format!("does not count: {why}")).into_iter().collect();
    let cores = median(samples.iter().map(|sample| sample.generator_cores)) / f64::from(row.sessions);
    if cores > SATURATED_CORES {
        remarks.push("the load generator's core was busy all the time".to_owned());
    }
    if let Some(cores) = of(|sample| sample.elsewhere_cores).filter(|cores| *cores > DISTURBED_CORES) {
        remarks.push(format!("{cores:.1} cores were busy beside target and generator"));
    }
    if let Some(hits) = of(|sample| sample.hit_ratio).filter(|_| !row.writes()) {
        let cached = row.data == Data::Cached;
        if cached && hits < CACHE_SHARE || !cached && hits > 1.0 - CACHE_SHARE {
            remarks.push(format!("{:.0} % of the blocks came from the cache", hits * 100.0));
        }
    }
    if let Some(parts) = samples.iter().rev().find_map(|sample| sample.parts) {
        remarks.push(format!(
            "in the last round the log wrapped after {:.0} s; {:.0} MB/s before and {:.0} MB/s long after; then {:.2} bytes were \
             written to the drives for each of the host's",
            parts.wrapped_at_seconds, parts.early_mb_per_second, parts.late_mb_per_second, parts.late_drive_written
        ));
    }
    let stream = |target| {
        let of = result.samples(target).iter().filter_map(|sample| sample.beside);
        Spread::of(of.map(|beside| beside.stream_mb_per_second))
    };
    let alone = |target| result.ratio((target, Figure::P99), (target, Figure::AloneP99));
    for target in [Some(subject), result.best_peer()].into_iter().flatten() {
        if let Some((stream, p99)) = stream(target).zip(alone(target)) {
            remarks.push(format!(
                "{}: the backup had {:.0} MB/s; the log's p99 was {:.2} × that without it",
                target.name(),
                stream.median,
                p99.median
            ));
        }
    }
    let invalid = result.runs.iter().flat_map(|(target, samples)| {
        samples.iter().filter_map(move |sample| Some((target, sample.round, sample.invalid.as_ref()?)))
    });
    remarks.extend(invalid.map(|(target, round, why)| {
        format!("round {} of {} does not count: {why}", round + 1, target.name())
    }));
    remarks.into_iter().map(|remark| format!("{}: {remark}.", row.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::of as result_of;
    use crate::sample::Beside;
    use crate::tgtd::Store;

    const PEER: Target = Target::Tgtd(Store::RDWR_SYNC_DIRECT);

    #[test]
    fn a_row_is_one_line_with_rate_ratio_and_spread() {
        let result = result_of(
            "write-d32",
            &[
                (Target::Quoin, &[81.92, 163.84, 81.92]),
                (PEER, &[40.96, 40.96, 20.48]),
                (Target::Bare, &[8.192; 3]),
            ],
        );
        let cells = cells(&result);
        assert_eq!(cells[2], "10000 (10000–20000)");
        assert_eq!(cells[3..6], ["tgtd rdwr sync+direct", "5000 (2500–5000)", "4.00 (2.00–4.00)"]);
        assert_eq!(cells[7..], ["10.0 : 10.0", "–, –", "1000", "1.00–1.00"]);
        assert!(remarks(&result).is_empty());
    }

    #[test]
    fn a_bare_drive_with_larger_transfers_is_told_in_bytes() {
        let result = result_of("write-d128", &[(Target::Quoin, &[81.92]), (Target::Bare, &[500.0])]);
        assert_eq!(bare(&result), "500 MB/s");
    }

    #[test]
    fn what_a_row_hides_is_remarked() {
        let mut result =
            result_of("backup", &[(Target::Quoin, &[1.0, 1.0]), (PEER, &[1.0]), (Target::Bare, &[1.0, 1.0])]);
        result.runs[0].1[0].beside =
            Some(Beside { alone_iops: 9.0, alone_p99_us: 50.0, stream_mb_per_second: 300.0 });
        result.runs[0].1[1].invalid = Some("it was put off".to_owned());
        result.runs[0].1[0].generator_cores = 2.0;
        let remarks = remarks(&result).join("\n");
        assert!(remarks.contains("Quoin: the backup had 300 MB/s; the log's p99 was 2.00 ×"), "{remarks}");
        assert!(remarks.contains("round 2 of Quoin does not count: it was put off"), "{remarks}");
        assert!(remarks.contains("generator's core"), "{remarks}");
    }
}
