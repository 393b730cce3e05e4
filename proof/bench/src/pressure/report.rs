//! What a run under pressure came to.

use std::fmt::Write;

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;

use crate::pressure::timeline::{STALL, Timeline};
use crate::proc;
use crate::quoin::number;
use crate::units::show_bytes;

/// How far the last third may fall below the first, for throughput to count as steady.
const STEADY: f64 = 0.85;

/// What the engine had done at a moment.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Sample {
    /// Since the load began.
    pub(crate) at_seconds: f64,
    pub(crate) host_bytes: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) destaged_bytes: u64,
    pub(crate) cleaned_bytes: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) drive_bytes: u64,
    pub(crate) flushes: u64,
    pub(crate) checkpoints: u64,
    pub(crate) throttled_writes: u64,
    pub(crate) free_segments: u64,
    pub(crate) segments: u64,
    pub(crate) journal_extents_used: u64,
    pub(crate) journal_extents: u64,
    pub(crate) buffer_ram_bytes: u64,
    /// CPU time that the hypervisor withheld from this machine.
    pub(crate) stolen_ms: f64,
}

impl Sample {
    pub(crate) fn of(at_seconds: f64, status: &Value) -> Result<Sample> {
        let engine = |name: &str| number(status, &format!("/engine/{name}"));
        let drives = status["drives"].as_array().context("`quoin status -o json` has no list drives")?;
        let sum = |name: &str| drives.iter().filter_map(|drive| drive[name].as_u64()).sum();
        Ok(Sample {
            at_seconds,
            host_bytes: engine("written_bytes")?,
            journal_bytes: engine("journal_bytes")?,
            destaged_bytes: engine("destaged_bytes")?,
            cleaned_bytes: engine("cleaned_bytes")?,
            metadata_bytes: engine("checkpoint_bytes")?,
            drive_bytes: sum("write_bytes"),
            flushes: sum("flushes"),
            checkpoints: engine("checkpoints")?,
            throttled_writes: engine("throttled_writes")?,
            free_segments: engine("free_segments")?,
            segments: engine("segments")?,
            journal_extents_used: engine("journal_extents_used")?,
            journal_extents: engine("journal_extents")?,
            buffer_ram_bytes: engine("buffer_ram_bytes")?,
            stolen_ms: proc::stolen_seconds() * 1e3,
        })
    }

    fn since(&self, before: &Sample) -> Sample {
        Sample {
            at_seconds: self.at_seconds - before.at_seconds,
            host_bytes: self.host_bytes - before.host_bytes,
            journal_bytes: self.journal_bytes - before.journal_bytes,
            destaged_bytes: self.destaged_bytes - before.destaged_bytes,
            cleaned_bytes: self.cleaned_bytes - before.cleaned_bytes,
            metadata_bytes: self.metadata_bytes - before.metadata_bytes,
            drive_bytes: self.drive_bytes - before.drive_bytes,
            flushes: self.flushes - before.flushes,
            checkpoints: self.checkpoints - before.checkpoints,
            throttled_writes: self.throttled_writes - before.throttled_writes,
            stolen_ms: self.stolen_ms - before.stolen_ms,
            ..*self
        }
    }
}

/// What a report is made of.
pub(crate) struct Inputs {
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) version: String,
    pub(crate) commands: Vec<String>,
    pub(crate) block_bytes: u64,
    pub(crate) depth: usize,
    pub(crate) capacity_bytes: u64,
    pub(crate) usable_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) host: Timeline,
    pub(crate) probe: Timeline,
    pub(crate) samples: Vec<Sample>,
}

/// One second, host and probe beside what the engine did about then.
#[derive(Debug, Clone, Serialize)]
struct Line {
    second: usize,
    iops: u64,
    mb_per_second: f64,
    longest_ms: f64,
    probe_longest_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<Sample>,
}

/// A second in which a write of a host took longer than the drive can be blamed for.
#[derive(Debug, Clone, Serialize)]
struct OwnStall {
    second: usize,
    longest_ms: f64,
    probe_longest_ms: f64,
    /// What the engine was at.
    during: String,
}

/// Bytes written for each byte of the host, by who wrote them.
#[derive(Debug, Clone, Copy, Serialize)]
struct Amplification {
    journal: f64,
    destage: f64,
    cleaning: f64,
    metadata: f64,
    /// All the drives took, labels and roots too.
    drives: f64,
    /// The cleaner's part of what was written to data segments.
    cleaner_share: f64,
}

impl Amplification {
    fn of(work: &Sample) -> Amplification {
        let host = work.host_bytes.max(1) as f64;
        let segments = (work.destaged_bytes + work.cleaned_bytes).max(1) as f64;
        Amplification {
            journal: work.journal_bytes as f64 / host,
            destage: work.destaged_bytes as f64 / host,
            cleaning: work.cleaned_bytes as f64 / host,
            metadata: work.metadata_bytes as f64 / host,
            drives: work.drive_bytes as f64 / host,
            cleaner_share: work.cleaned_bytes as f64 / segments,
        }
    }

    fn text(&self) -> String {
        format!(
            "drives {:.2} = journal {:.2} + destage {:.2} + cleaning {:.2} + metadata {:.2}; cleaner's share {:.0} %",
            self.drives,
            self.journal,
            self.destage,
            self.cleaning,
            self.metadata,
            100.0 * self.cleaner_share
        )
    }
}

/// Throughput once every byte of the volume has been overwritten once, on the average.
#[derive(Debug, Clone, Copy, Serialize)]
struct Steady {
    from_second: usize,
    first_third_mb_per_second: f64,
    last_third_mb_per_second: f64,
    /// Last to first.
    ratio: f64,
    slowest_second_mb_per_second: f64,
}

impl Steady {
    fn text(&self) -> String {
        format!(
            "from second {} on: first third {:.1} MB/s, last third {:.1} MB/s, ratio {:.2}; slowest second {:.1}",
            self.from_second,
            self.first_third_mb_per_second,
            self.last_third_mb_per_second,
            self.ratio,
            self.slowest_second_mb_per_second
        )
    }

    fn not_reached() -> String {
        "not reached: the volume was not overwritten once".to_owned()
    }
}

/// What a run under pressure came to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    #[serde(skip)]
    machine: Vec<(&'static str, String)>,
    version: String,
    commands: Vec<String>,
    block_bytes: u64,
    depth: usize,
    capacity_bytes: u64,
    usable_bytes: u64,
    live_bytes: u64,
    seconds: f64,
    host_mb_per_second: f64,
    iops: f64,
    amplification: Amplification,
    /// In the steady part alone.
    steady_amplification: Option<Amplification>,
    steady: Option<Steady>,
    probe_stalls: usize,
    stalled_seconds: usize,
    own_stalls: Vec<OwnStall>,
    work: Sample,
    timeline: Vec<Line>,
}

/// What the engine did in a second, if it was sampled before and after.
fn engine_in(samples: &[Sample], second: usize) -> Option<Sample> {
    let from = samples.iter().rev().find(|s| s.at_seconds <= second as f64 + 0.5)?;
    let to = samples.iter().find(|s| s.at_seconds > second as f64 + 0.5)?;
    Some(to.since(from))
}

fn longest_ms(timeline: &Timeline, second: usize) -> f64 {
    timeline.seconds.get(second).map_or(0.0, |s| s.longest.as_secs_f64() * 1e3)
}

impl Report {
    pub(crate) fn new(inputs: Inputs) -> Result<Report> {
        let Inputs { host, probe, samples, .. } = inputs;
        let (first, last) = (samples.first().context("no sample")?, samples.last().context("no sample")?);
        let work = last.since(first);
        let timeline: Vec<Line> = (0..host.seconds.len())
            .map(|second| Line {
                second,
                iops: host.seconds[second].ios,
                mb_per_second: host.seconds[second].bytes as f64 / 1e6,
                longest_ms: longest_ms(&host, second),
                probe_longest_ms: longest_ms(&probe, second),
                engine: engine_in(&samples, second),
            })
            .collect();
        let own = host.not_shared_with(&probe);
        let own_stalls = own.iter().map(|stall| OwnStall {
            second: stall.last,
            longest_ms: stall.took.as_secs_f64() * 1e3,
            probe_longest_ms: (stall.first..=stall.last).map(|s| longest_ms(&probe, s)).fold(0.0, f64::max),
            during: engine_in(&samples, stall.last).map_or_else(String::new, |e| during(&e)),
        });
        let steady = steady(&timeline, inputs.live_bytes);
        let steady_work = steady.and_then(|s| {
            samples
                .iter()
                .find(|sample| sample.at_seconds >= s.from_second as f64)
                .map(|from| last.since(from))
        });
        let bytes: u64 = host.seconds.iter().map(|s| s.bytes).sum();
        let ios: u64 = host.seconds.iter().map(|s| s.ios).sum();
        Ok(Report {
            machine: inputs.machine,
            version: inputs.version,
            commands: inputs.commands,
            block_bytes: inputs.block_bytes,
            depth: inputs.depth,
            capacity_bytes: inputs.capacity_bytes,
            usable_bytes: inputs.usable_bytes,
            live_bytes: inputs.live_bytes,
            seconds: work.at_seconds,
            host_mb_per_second: bytes as f64 / 1e6 / work.at_seconds,
            iops: ios as f64 / work.at_seconds,
            amplification: Amplification::of(&work),
            steady_amplification: steady_work.as_ref().map(Amplification::of),
            steady,
            probe_stalls: probe.stalls.len(),
            stalled_seconds: timeline
                .iter()
                .filter(|line| line.longest_ms > STALL.as_secs_f64() * 1e3)
                .count(),
            own_stalls: own_stalls.collect(),
            work,
            timeline,
        })
    }

    /// True when no stall was the array's own and throughput held.
    pub(crate) fn holds(&self) -> bool {
        self.own_stalls.is_empty() && self.steady.is_none_or(|steady| steady.ratio >= STEADY)
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(TIMELINE);
        for line in &self.timeline {
            table.add_row(cells(line));
        }
        let mut text = format!("{table}\n");
        for (name, value) in self.summary() {
            let _ = writeln!(text, "{name:<28} {value}");
        }
        text
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("| what | |\n|---|---|\n");
        for (name, value) in
            self.machine.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).chain(self.summary())
        {
            let _ = writeln!(text, "| {name} | {value} |");
        }
        let _ = writeln!(text, "\n| {} |\n|{}", TIMELINE.join(" | "), "---|".repeat(TIMELINE.len()));
        // Twenty lines tell the course of any run.
        for line in self.timeline.iter().step_by(self.timeline.len().div_ceil(20).max(1)) {
            let _ = writeln!(text, "| {} |", cells(line).join(" | "));
        }
        let _ = writeln!(text, "\n```\n{}\n```", self.commands.join("\n"));
        text
    }

    fn summary(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            ("program".into(), self.version.clone()),
            (
                "pool".into(),
                format!(
                    "{} of segments, {} usable, {} live ({:.0} % of the segments)",
                    show_bytes(self.capacity_bytes),
                    show_bytes(self.usable_bytes),
                    show_bytes(self.live_bytes),
                    100.0 * self.live_bytes as f64 / self.capacity_bytes as f64
                ),
            ),
            (
                "load".into(),
                format!(
                    "{} random overwrites, depth {}, {} in {:.0} s ({:.1} × the capacity)",
                    show_bytes(self.block_bytes),
                    self.depth,
                    show_bytes(self.work.host_bytes),
                    self.seconds,
                    self.work.host_bytes as f64 / self.capacity_bytes as f64
                ),
            ),
            ("throughput".into(), format!("{:.1} MB/s, {:.0} IOPS", self.host_mb_per_second, self.iops)),
            ("steady".into(), self.steady.map_or_else(Steady::not_reached, |steady| steady.text())),
        ];
        for (name, a) in [("all", Some(self.amplification)), ("steady", self.steady_amplification)] {
            let Some(a) = a else { continue };
            rows.push((format!("write amplification, {name}"), a.text()));
        }
        let limit = STALL.as_millis();
        rows.push((
            format!("seconds with > {limit} ms"),
            format!(
                "{} for hosts, of which {} while the probe did not stall; the probe stalled {} times",
                self.stalled_seconds,
                self.own_stalls.len(),
                self.probe_stalls
            ),
        ));
        rows.extend(self.own_stalls.iter().map(|stall| {
            (
                "  stall".to_owned(),
                format!(
                    "second {}: {:.0} ms, probe {:.0} ms; {}",
                    stall.second, stall.longest_ms, stall.probe_longest_ms, stall.during
                ),
            )
        }));
        rows
    }
}

const TIMELINE: [&str; 12] = [
    "second",
    "MB/s",
    "IOPS",
    "longest ms",
    "probe ms",
    "destaged MB",
    "cleaned MB",
    "metadata MB",
    "checkpoints",
    "free segments",
    "journal %",
    "buffer MiB",
];

fn cells(line: &Line) -> Vec<String> {
    let mut cells = vec![
        line.second.to_string(),
        format!("{:.1}", line.mb_per_second),
        line.iops.to_string(),
        format!("{:.1}", line.longest_ms),
        format!("{:.1}", line.probe_longest_ms),
    ];
    let mb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
    match &line.engine {
        None => cells.resize(TIMELINE.len(), String::new()),
        Some(e) => cells.extend([
            mb(e.destaged_bytes),
            mb(e.cleaned_bytes),
            mb(e.metadata_bytes),
            e.checkpoints.to_string(),
            e.free_segments.to_string(),
            format!("{:.0}", 100.0 * e.journal_extents_used as f64 / e.journal_extents.max(1) as f64),
            (e.buffer_ram_bytes >> 20).to_string(),
        ]),
    }
    cells
}

fn during(e: &Sample) -> String {
    format!(
        "{:.0} ms of CPU withheld by the hypervisor, {} checkpoints ({}), {} cleaned, {} of {} segments free, journal {} \
         of {}, buffer {}, {} writes slowed",
        e.stolen_ms,
        e.checkpoints,
        show_bytes(e.metadata_bytes),
        show_bytes(e.cleaned_bytes),
        e.free_segments,
        e.segments,
        e.journal_extents_used,
        e.journal_extents,
        show_bytes(e.buffer_ram_bytes),
        e.throttled_writes
    )
}

/// Compares the first and the last third of the seconds after all was overwritten once; the last second is a part of
/// one only and does not count.
fn steady(timeline: &[Line], live_bytes: u64) -> Option<Steady> {
    let mut written = 0.0;
    let from = timeline.iter().position(|line| {
        written += line.mb_per_second * 1e6;
        written >= live_bytes as f64
    })? + 1;
    let lines = timeline.get(from..timeline.len().saturating_sub(1)).filter(|lines| lines.len() >= 3)?;
    let third = lines.len() / 3;
    let mean = |lines: &[Line]| lines.iter().map(|l| l.mb_per_second).sum::<f64>() / lines.len() as f64;
    let (first, last) = (mean(&lines[..third]), mean(&lines[lines.len() - third..]));
    Some(Steady {
        from_second: from,
        first_third_mb_per_second: first,
        last_third_mb_per_second: last,
        ratio: last / first.max(1e-9),
        slowest_second_mb_per_second: lines.iter().map(|l| l.mb_per_second).fold(f64::INFINITY, f64::min),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: usize, mb_per_second: f64) -> Line {
        Line { second, iops: 0, mb_per_second, longest_ms: 0.0, probe_longest_ms: 0.0, engine: None }
    }

    #[test]
    fn steadiness_is_judged_after_all_was_overwritten_once() {
        let rates = [900.0, 100.0, 100.0, 80.0, 70.0, 60.0, 50.0, 50.0, 3.0];
        let lines: Vec<Line> = rates.iter().enumerate().map(|(i, &r)| line(i, r)).collect();
        let steady = steady(&lines, 1_000_000_000).unwrap();
        assert_eq!(steady.from_second, 2);
        assert_eq!((steady.first_third_mb_per_second, steady.last_third_mb_per_second), (90.0, 50.0));
        assert_eq!(steady.slowest_second_mb_per_second, 50.0);
        assert!(super::steady(&lines, 10_000_000_000).is_none());
    }

    #[test]
    fn amplification_is_told_for_each_byte_of_the_host() {
        let work = Sample {
            host_bytes: 100,
            journal_bytes: 120,
            destaged_bytes: 110,
            cleaned_bytes: 90,
            metadata_bytes: 30,
            drive_bytes: 350,
            ..Sample::default()
        };
        let a = Amplification::of(&work);
        assert_eq!((a.journal, a.destage, a.cleaning, a.metadata, a.drives), (1.2, 1.1, 0.9, 0.3, 3.5));
        assert_eq!(a.cleaner_share, 0.45);
    }
}
