//! A single load's report for people.

use comfy_table::{Table, presets};

use crate::load::Report;
use crate::source::Verified;
use crate::units::show_bytes;

/// The report as text.
pub(crate) fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["", "IOPS", "MB/s", "mean µs", "p50", "p99", "p99.9", "max"]);
    for (name, side) in [("read", &report.read), ("write", &report.write), ("total", &report.total)] {
        if side.ios > 0 {
            let us = &side.latency_us;
            let mut row =
                vec![name.to_owned(), format!("{:.0}", side.iops), format!("{:.1}", side.mb_per_second)];
            row.extend([us.mean, us.p50, us.p99, us.p999, us.max].map(|us| format!("{us:.1}")));
            table.add_row(row);
        }
    }
    let pattern = format!("{:?}", report.pattern).to_lowercase();
    let mut text = format!(
        "{pattern}, {} blocks, depth {} × {} session(s), working set {}, {} s\n{table}\n",
        show_bytes(report.block_bytes),
        report.depth,
        report.sessions,
        show_bytes(report.working_set_bytes),
        report.seconds
    );
    let mut cpu = |who: &str, cpu: &crate::load::Cpu| {
        text += &format!("CPU {who:<10} {:>8.2} µs per I/O, {:.2} cores\n", cpu.us_per_io, cpu.cores);
    };
    if let Some(target) = &report.target {
        cpu("target", &target.cpu);
    }
    cpu("generator", &report.generator);
    cpu("machine", &report.machine);
    if let Some(target) = &report.target {
        text += &format!(
            "Storage        {} read, {} written by the target\n",
            show_bytes(target.storage_read_bytes),
            show_bytes(target.storage_write_bytes)
        );
    }
    if let Some(verified) = &report.verified {
        text += &format!("Verified       {} blocks, {} mismatches\n", verified.blocks, verified.mismatches);
    }
    text
}

/// Tells on stderr what was wrong with the data; true if nothing was.
pub(crate) fn explain(verified: &Verified) -> bool {
    for example in &verified.examples {
        eprintln!("quoin-bench: wrong data at {example}");
    }
    if verified.mismatches > verified.examples.len() as u64 {
        eprintln!("quoin-bench: … {} mismatches in all", verified.mismatches);
    }
    verified.mismatches == 0
}
