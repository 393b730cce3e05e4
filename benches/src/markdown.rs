//! The comparison as a document: summary, one table a row, the engine's work, commands.

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

use crate::bars;
use crate::compare::{LimitSample, Outcome, RowResult, Sample};
use crate::line::{Line, SATURATED_CORES, Verdict, limit_iops, limit_p50, verdict};
use crate::matrix::{Data, Limit, Peer};
use crate::stats::median;

/// More than this outside target and generator is worth a remark.
const DISTURBED_CORES: f64 = 0.5;

/// The whole report.
pub(crate) fn render(outcome: &Outcome) -> String {
    let mut text = String::from("## Measured on\n\n");
    for (name, value) in &outcome.machine {
        text += &format!("- {name}: {value}\n");
    }
    text += &format!("\n{}\n", outcome.settings);
    let bars = bars::of(outcome);
    if !bars.is_empty() {
        text += &format!("\n## Bars\n\n{}\n", bars::show(&bars));
    }
    text += "\n## Summary\n\nRatios are Quoin to the fastest peer of equal durability: above 1 is better for IOPS, \
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
    text += &commands(outcome);
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

fn summary(outcome: &Outcome) -> Table {
    let mut table = table(&[
        "row",
        "Quoin IOPS",
        "best equal peer",
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
    for (peer, samples) in result.peers.iter().filter(|(_, samples)| !samples.is_empty()) {
        let line = Line::of(samples);
        let mut remarks: Vec<String> = row.inequality(*peer).map(str::to_owned).into_iter().collect();
        if line.generator_cores > SATURATED_CORES && !row.several {
            remarks.push("generator saturated".to_owned());
        }
        let astray = match row.data {
            Data::Drive => line.from_storage < 0.9,
            Data::Cached => line.from_storage > 0.1,
        };
        if astray && !row.writes() {
            remarks.push(format!("{:.0} % from the drive", line.from_storage * 100.0));
        }
        if line.machine_cores > SATURATED_CORES * cores() {
            remarks.push("machine saturated".to_owned());
        }
        if let Some(hits) = line.hit_ratio.filter(|_| !row.writes()) {
            remarks.push(format!("{:.1} % cache hits", hits * 100.0));
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
        text += &format!("\n\n▼ Behind: {why}");
    }
    text
}

fn engine_table(outcome: &Outcome) -> Option<Table> {
    let mut table = table(&[
        "row",
        "written",
        "journal",
        "wraps",
        "kept",
        "destaged",
        "cleaned",
        "checkpoints",
        "to the drives",
    ]);
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
            mib(engine(|e| e.kept_bytes)),
            mib(engine(|e| e.destaged_bytes)),
            mib(engine(|e| e.cleaned_bytes)),
            format!("{:.0}", engine(|e| e.checkpoints)),
            mib(of(&|sample| sample.report.target.map_or(0, |target| target.storage_write_bytes))),
        ]);
        any = true;
    }
    any.then(|| finish(table, &[0]))
}

/// Cores of this machine.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// What was run: Quoin's commands and the bare file's in full; of tgtd's, which differ in a few words, one in full and of
/// the others those words. Folded away, since it is long.
fn commands(outcome: &Outcome) -> String {
    let mut text = String::from("\n<details>\n<summary>Commands</summary>\n");
    let mut first: Option<&Vec<String>> = None;
    for (who, commands) in &outcome.commands {
        let lines: Vec<&String> = match first {
            Some(first) if who.starts_with("tgtd") => {
                commands.iter().filter(|line| !first.contains(line) && !line.contains("portal=")).collect()
            }
            _ => commands.iter().collect(),
        };
        if first.is_none() && who.starts_with("tgtd") {
            first = Some(commands);
        }
        let lines: Vec<&str> = lines.into_iter().map(String::as_str).collect();
        text += &format!("\n{who}:\n\n```\n{}\n```\n", lines.join("\n"));
    }
    text + "\n</details>\n"
}
