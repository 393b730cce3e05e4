//! The comparison as a document: summary, one table a row, the engine's work, commands.

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

use crate::compare::{LimitSample, Outcome, RowResult, Sample};
use crate::matrix::{Data, Limit, Peer};
use crate::stats::median;

/// A generator this busy may itself be what limits a row (cores of one thread).
const SATURATED_CORES: f64 = 0.95;

/// More than this outside target and generator is worth a remark.
const DISTURBED_CORES: f64 = 0.5;

/// The whole report.
pub(crate) fn render(outcome: &Outcome) -> String {
    let mut text = String::from("## Measured on\n\n");
    for (name, value) in &outcome.machine {
        text += &format!("- {name}: {value}\n");
    }
    text += &format!("\n{}\n", outcome.settings);
    text += "\n## Summary\n\nRatios are Quoin to the fastest tgtd of equal durability: above 1 is better for IOPS, \
             below 1 for CPU and latency. ▼ marks rows in which Quoin has fewer IOPS.\n\n";
    text += &format!("{}\n", summary(outcome));
    text += "\n## Rows\n\nLatencies in µs. CPU in µs per I/O; \"machine\" counts target, generator, kernel workers \
             and whatever else ran.\n";
    for result in &outcome.rows {
        text += &row_section(result, outcome.notes.get(result.row.id));
    }
    if let Some(table) = engine_table(outcome) {
        text += &format!(
            "\n## What Quoin's engine did during the write rows\n\nMiB per run, medians.\n\n{table}\n"
        );
    }
    text += "\n## Commands\n";
    for (who, commands) in &outcome.commands {
        text += &format!("\n{who}:\n\n```\n{}\n```\n", commands.join("\n"));
    }
    text
}

/// Medians of one target's runs.
struct Line {
    iops: f64,
    mb_per_second: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    target_us: f64,
    generator_us: f64,
    generator_cores: f64,
    machine_us: f64,
    /// Cores that neither target nor generator used: the kernel's workers, or strangers.
    elsewhere_cores: f64,
    /// Share of the bytes read that the target fetched from storage.
    from_storage: f64,
}

impl Line {
    /// Over the runs that count, or over all if none does.
    fn of(samples: &[Sample]) -> Line {
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
        }
    }
}

/// Quoin against the best that may be compared with it.
struct Verdict {
    quoin: Line,
    best: Line,
    best_name: String,
    invalid: Option<String>,
}

fn verdict(result: &RowResult) -> Option<Verdict> {
    let (_, samples) = result.peers.iter().find(|(peer, _)| *peer == Peer::Quoin)?;
    let equal = result
        .peers
        .iter()
        .filter(|(peer, _)| *peer != Peer::Quoin && result.row.inequality(*peer).is_none());
    let (best, best_name) = equal
        .map(|(peer, samples)| (Line::of(samples), peer.name()))
        .max_by(|one, other| one.0.iops.total_cmp(&other.0.iops))?;
    let all_invalid = samples.iter().all(|sample| sample.invalid.is_some());
    let invalid = samples.first().filter(|_| all_invalid).and_then(|sample| sample.invalid.clone());
    Some(Verdict { quoin: Line::of(samples), best, best_name, invalid })
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.iter().copied());
    table
}

/// Figures right-aligned, and no cell broken over lines: a Markdown row is one line.
fn finish(mut table: Table, words: &[usize]) -> Table {
    for (index, column) in table.column_iter_mut().enumerate() {
        if !words.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(3)));
    }
    table
}

fn summary(outcome: &Outcome) -> Table {
    let mut table = table(&[
        "row",
        "Quoin IOPS",
        "best equal tgtd",
        "its IOPS",
        "IOPS ratio",
        "CPU ratio",
        "p99 ratio",
        "limit",
        "",
    ]);
    for result in &outcome.rows {
        let limit = bare_iops(result);
        let Some(Verdict { quoin, best, best_name, invalid }) = verdict(result) else {
            let lines = result.peers.iter().map(|(peer, samples)| (Line::of(samples), peer));
            if let Some((best, peer)) = lines
                .filter(|(_, peer)| result.row.inequality(**peer).is_none())
                .max_by(|one, other| one.0.iops.total_cmp(&other.0.iops))
            {
                let iops = format!("{:.0}", best.iops);
                table.add_row([result.row.id, "–", &peer.name(), &iops, "–", "–", "–", &limit, ""]);
            }
            continue;
        };
        let mark = match invalid {
            Some(_) => "INVALID",
            None if quoin.iops < best.iops => "▼",
            None => "",
        };
        table.add_row([
            result.row.id.to_owned(),
            format!("{:.0}", quoin.iops),
            best_name,
            format!("{:.0}", best.iops),
            ratio(quoin.iops, best.iops),
            ratio(quoin.target_us, best.target_us),
            ratio(quoin.p99, best.p99),
            limit,
            mark.to_owned(),
        ]);
    }
    finish(table, &[0, 2, 7])
}

fn ratio(of: f64, to: f64) -> String {
    if to > 0.0 { format!("{:.2}", of / to) } else { "–".to_owned() }
}

fn limit_iops(samples: &[LimitSample]) -> f64 {
    median(samples.iter().map(|sample| match sample {
        LimitSample::Drive(drive) => drive.iops,
        LimitSample::Echo(echo) => echo.iops,
    }))
}

fn limit_p50(samples: &[LimitSample]) -> f64 {
    median(samples.iter().map(|sample| match sample {
        LimitSample::Drive(drive) => drive.latency_us.p50,
        LimitSample::Echo(echo) => echo.latency_us.p50,
    }))
}

/// What the drive, or for cached rows the wire, would give.
fn bare_iops(result: &RowResult) -> String {
    result
        .limits
        .first()
        .map_or_else(String::new, |(limit, samples)| format!("{:.0} ({})", limit_iops(samples), limit.name()))
}

fn row_section(result: &RowResult, note: Option<&String>) -> String {
    let row = &result.row;
    let mut table = table(&[
        "target",
        "IOPS",
        "MB/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "CPU target",
        "generator",
        "machine",
        "remarks",
    ]);
    for (peer, samples) in &result.peers {
        let line = Line::of(samples);
        let mut remarks: Vec<String> = row.inequality(*peer).map(str::to_owned).into_iter().collect();
        if line.generator_cores > SATURATED_CORES {
            remarks.push("generator saturated".to_owned());
        }
        let astray = match row.data {
            Data::Drive => line.from_storage < 0.9,
            Data::Cached => line.from_storage > 0.1,
        };
        if astray && !row.writes() {
            remarks.push(format!("{:.0} % from the drive", line.from_storage * 100.0));
        }
        if line.elsewhere_cores > DISTURBED_CORES {
            remarks.push(format!("{:.1} cores went elsewhere", line.elsewhere_cores));
        }
        let invalid = samples.iter().filter_map(|sample| sample.invalid.as_ref());
        remarks.extend(invalid.map(|why| format!("INVALID: {why}")));
        remarks.dedup();
        let mut cells = vec![peer.name(), format!("{:.0}", line.iops), format!("{:.1}", line.mb_per_second)];
        cells.extend([line.p50, line.p99, line.p999, line.max].map(|us| format!("{us:.0}")));
        cells.extend([line.target_us, line.generator_us, line.machine_us].map(|us| format!("{us:.1}")));
        cells.push(remarks.join("; "));
        table.add_row(cells);
    }
    for (limit, samples) in &result.limits {
        table.add_row(limit_cells(limit, samples, row.io_bytes));
    }
    let mut text = format!("\n### {}: {}\n\n{}\n", row.id, row.title, finish(table, &[0, 10]));
    if let Some(verdict) = verdict(result) {
        text += &format!("\n{}\n", conclusion(result, &verdict, note));
    }
    text
}

fn limit_cells(limit: &Limit, samples: &[LimitSample], io_bytes: u64) -> Vec<String> {
    let of = |at: &dyn Fn(&LimitSample) -> f64| median(samples.iter().map(at));
    let us = |at: fn(&crate::stats::Percentiles) -> f64| {
        let value = of(&|sample| match sample {
            LimitSample::Drive(drive) => at(&drive.latency_us),
            LimitSample::Echo(echo) => at(&echo.latency_us),
        });
        format!("{value:.0}")
    };
    let server = of(&|sample| match sample {
        LimitSample::Drive(drive) => drive.cpu.us_per_io,
        LimitSample::Echo(echo) => echo.server.us_per_io,
    });
    let client = match limit {
        Limit::Drive(_) => "–".to_owned(),
        Limit::Echo(_) => format!(
            "{:.1}",
            of(&|sample| if let LimitSample::Echo(echo) = sample { echo.client.us_per_io } else { 0.0 })
        ),
    };
    let iops = limit_iops(samples);
    vec![
        limit.name(),
        format!("{iops:.0}"),
        format!("{:.1}", iops * io_bytes as f64 / 1e6),
        us(|p| p.p50),
        us(|p| p.p99),
        us(|p| p.p999),
        us(|p| p.max),
        format!("{server:.1}"),
        client,
        "–".to_owned(),
        "limit".to_owned(),
    ]
}

fn conclusion(result: &RowResult, verdict: &Verdict, note: Option<&String>) -> String {
    let Verdict { quoin, best, best_name, invalid } = verdict;
    let mut text = format!(
        "Quoin to {best_name}: IOPS × {}, CPU per I/O × {}, p99 × {}.",
        ratio(quoin.iops, best.iops),
        ratio(quoin.target_us, best.target_us),
        ratio(quoin.p99, best.p99)
    );
    if result.row.depth == 1 {
        let bare: f64 = result.limits.iter().map(|(_, samples)| limit_p50(samples)).sum();
        let names: Vec<String> = result.limits.iter().map(|(limit, _)| limit.name()).collect();
        text += &format!(" Median latency above {}: {:.0} µs.", names.join(" + "), quoin.p50 - bare);
    }
    if let Some(why) = invalid {
        text += &format!(" **INVALID**: {why}.");
    }
    if quoin.iops < best.iops {
        let why = note.map_or("not explained yet", String::as_str);
        text += &format!("\n\n▼ Below tgtd: {why}");
    }
    text
}

fn engine_table(outcome: &Outcome) -> Option<Table> {
    let mut table =
        table(&["row", "written", "journal", "wraps", "destaged", "cleaned", "checkpoints", "to the drives"]);
    let mut any = false;
    for result in outcome.rows.iter().filter(|result| result.row.writes()) {
        let Some((_, samples)) = result.peers.iter().find(|(peer, _)| *peer == Peer::Quoin) else { continue };
        let of = |at: &dyn Fn(&Sample) -> u64| median(samples.iter().map(|sample| at(sample) as f64));
        let engine =
            |at: fn(&crate::quoin::Engine) -> u64| of(&|sample| sample.engine.as_ref().map_or(0, at));
        let mib = |bytes: f64| format!("{:.0}", bytes / f64::from(1 << 20));
        table.add_row([
            result.row.id.to_owned(),
            mib(of(&|sample| sample.report.write.ios * sample.report.block_bytes)),
            mib(engine(|e| e.journal_bytes)),
            format!("{:.0}", engine(|e| e.journal_wraps)),
            mib(engine(|e| e.destaged_bytes)),
            mib(engine(|e| e.cleaned_bytes)),
            format!("{:.0}", engine(|e| e.checkpoints)),
            mib(of(&|sample| sample.report.target.map_or(0, |target| target.storage_write_bytes))),
        ]);
        any = true;
    }
    any.then(|| finish(table, &[0]))
}
