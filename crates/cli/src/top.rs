//! `quoin top`: what hosts do to the array, in rates, refreshed in place.

use crate::{Failure, Format, Output, client::Client, output::table, size_text};
use clap::Args;
use crossterm::{
    cursor,
    event::{Event, KeyCode, KeyModifiers, poll, read},
    execute, queue,
    style::Print,
    terminal,
};
use quoin_api::{OperationStats, Stats, Status};
use serde::Serialize;
use std::{
    io::{self, IsTerminal, Write},
    thread,
    time::{Duration, Instant},
};

pub(crate) const EXAMPLES: &str = "Rates are means over one interval. Latency is from the arrival of a request to its \
    answer, as the array sees it. q ends it.\n\nExamples:\n  quoin --data /srv/a top\n  \
    quoin --data /srv/a top --interval 5\n  \
    quoin --data /srv/a top --once\n  \
    quoin --data /srv/a top -o json | jq .total.write.iops";

/// Options of `quoin top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Show one interval and exit; the default if the output is not a terminal
    #[arg(long)]
    once: bool,
}

/// The figures of the array at one moment.
struct Sample {
    stats: Stats,
    status: Status,
}

impl Sample {
    fn take(client: &Client) -> Result<Self, Failure> {
        Ok(Self { stats: client.get("/stats")?, status: client.get("/status")? })
    }
}

/// Rates over an interval.
#[derive(Debug, PartialEq, Serialize)]
struct Top {
    interval_s: f64,
    total: VolumeRates,
    volumes: Vec<VolumeRates>,
    /// Null while the pool is offline.
    fill: Option<FillRates>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct VolumeRates {
    name: String,
    read: Rates,
    write: Rates,
    unmap: Rates,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct Rates {
    iops: f64,
    bytes_per_s: f64,
    errors_per_s: f64,
    /// Null if there was no request.
    mean_latency_us: Option<f64>,
    /// 99 in a hundred were not longer.
    p99_latency_us: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct FillRates {
    buffer_percent: f64,
    journal_percent: f64,
    /// Null if no block was looked for.
    cache_hit_percent: Option<f64>,
    space_percent: f64,
}

/// Shows the rates, once or until interrupted.
pub(crate) fn top(client: &Client, output: &Output, args: &TopArgs) -> Result<(), Failure> {
    let interval = Duration::from_secs(args.interval);
    let before = Sample::take(client)?;
    if args.once || output.format == Format::Json || !io::stdout().is_terminal() {
        thread::sleep(interval);
        let top = Top::between(&before, &Sample::take(client)?);
        output.show(&top, |top| body(top).join("\n"));
        return Ok(());
    }
    let screen = Screen::open().map_err(no_terminal)?;
    let outcome = live(client, interval, before);
    drop(screen);
    match outcome {
        Err(Ended::Lost(failure)) => Err(failure),
        Err(Ended::Terminal(error)) => Err(no_terminal(error)),
        Ok(()) => Ok(()),
    }
}

enum Ended {
    Lost(Failure),
    Terminal(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Terminal(error)
    }
}

fn live(client: &Client, interval: Duration, mut before: Sample) -> Result<(), Ended> {
    loop {
        let next = Instant::now() + interval;
        // Until the next sample is due, keys are waited for.
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            if poll(left)? && is_end(&read()?) {
                return Ok(());
            }
        }
        let after = Sample::take(client).map_err(Ended::Lost)?;
        draw(&after.status, &Top::between(&before, &after))?;
        before = after;
    }
}

fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn no_terminal(error: io::Error) -> Failure {
    let why = format!("the terminal cannot be used: {error}");
    Failure::new("not shown", "the terminal", why, "use --once, or -o json")
}

/// The terminal while it shows nothing else; as it was before when dropped.
struct Screen;

impl Screen {
    fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen));
        drop(terminal::disable_raw_mode());
    }
}

/// Overwrites the screen in place, so that nothing flickers.
fn draw(status: &Status, top: &Top) -> io::Result<()> {
    // What does not fit the terminal is cut off.
    let (columns, rows) = terminal::size()?;
    let head = format!("{}  {}  {}", status.name, status.state, status.reason.as_deref().unwrap_or_default());
    let lines = [vec![head, String::new()], body(top)].concat();
    let mut out = io::stdout().lock();
    for (row, line) in (0..rows).zip(lines.iter().flat_map(|line| line.split('\n'))) {
        let cut: String = line.chars().take(columns.into()).collect();
        queue!(out, cursor::MoveTo(0, row), Print(cut), terminal::Clear(terminal::ClearType::UntilNewLine))?;
    }
    queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
    out.flush()
}

/// What people see.
fn body(top: &Top) -> Vec<String> {
    let fill = match &top.fill {
        None => "the pool is offline".to_owned(),
        Some(fill) => format!(
            "buffer {:.0} %   journal {:.0} %   read cache hits {}   space {:.0} %",
            fill.buffer_percent,
            fill.journal_percent,
            fill.cache_hit_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %")),
            fill.space_percent
        ),
    };
    let header =
        ["volume", "read iops", "read/s", "mean", "p99", "write iops", "write/s", "mean", "p99", "errors/s"];
    let row = |volume: &VolumeRates| {
        let VolumeRates { name, read, write, unmap } = volume;
        let errors = read.errors_per_s + write.errors_per_s + unmap.errors_per_s;
        let of = |rates: &Rates| {
            vec![
                format!("{:.0}", rates.iops),
                size_text(rates.bytes_per_s as u64),
                latency(rates.mean_latency_us),
                latency(rates.p99_latency_us),
            ]
        };
        [vec![name.clone()], of(read), of(write), vec![format!("{errors:.0}")]].concat()
    };
    let rows = top.volumes.iter().chain([&top.total]).map(row).collect();
    vec![fill, String::new(), table(&header, rows, "no volumes")]
}

fn latency(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us >= 10_000.0 => format!("{:.1} ms", us / 1000.0),
        Some(us) => format!("{us:.0} µs"),
    }
}

impl Top {
    fn between(before: &Sample, after: &Sample) -> Self {
        let (earlier, now) = (&before.stats, &after.stats);
        // A restart counts from zero.
        let restarted = now.uptime_ms < earlier.uptime_ms;
        let since_ms = if restarted { now.uptime_ms } else { now.uptime_ms - earlier.uptime_ms };
        let interval_s = since_ms.max(1) as f64 / 1e3;
        let none = OperationStats::default();
        let mut sums = [(); 3].map(|()| OperationStats::default());
        // Each volume by itself, and all of them together.
        let volumes = now.volumes.iter().map(|volume| {
            let earlier = earlier.volumes.iter().find(|other| other.uuid == volume.uuid && !restarted);
            let differences = [
                since(&volume.read, earlier.map_or(&none, |v| &v.read)),
                since(&volume.write, earlier.map_or(&none, |v| &v.write)),
                since(&volume.unmap, earlier.map_or(&none, |v| &v.unmap)),
            ];
            sums.iter_mut().zip(&differences).for_each(|(sum, difference)| add(sum, difference));
            VolumeRates::of(volume.name.clone(), &differences, interval_s)
        });
        let volumes = volumes.collect();
        let fill = FillRates::between(&before.status, &after.status);
        Self { interval_s, total: VolumeRates::of("total".to_owned(), &sums, interval_s), volumes, fill }
    }
}

impl FillRates {
    fn between(before: &Status, after: &Status) -> Option<Self> {
        let (now, capacity) = (after.engine.as_ref()?, after.capacity.as_ref()?);
        let (hits, misses) =
            before.engine.as_ref().map_or((0, 0), |engine| (engine.cache_hits, engine.cache_misses));
        // The pool may have been opened anew.
        let hits = now.cache_hits.checked_sub(hits).unwrap_or(now.cache_hits);
        let misses = now.cache_misses.checked_sub(misses).unwrap_or(now.cache_misses);
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        Some(Self {
            buffer_percent: percent(now.buffer_ram_bytes, now.buffer_limit_bytes),
            journal_percent: percent(now.journal_extents_used, now.journal_extents),
            cache_hit_percent: (hits + misses > 0).then(|| percent(hits, hits + misses)),
            space_percent: capacity.used_percent,
        })
    }
}

fn since(after: &OperationStats, before: &OperationStats) -> OperationStats {
    OperationStats {
        count: after.count.saturating_sub(before.count),
        errors: after.errors.saturating_sub(before.errors),
        bytes: after.bytes.saturating_sub(before.bytes),
        latency: after.latency.since(&before.latency),
    }
}

fn add(sum: &mut OperationStats, other: &OperationStats) {
    sum.count += other.count;
    sum.errors += other.errors;
    sum.bytes += other.bytes;
    sum.latency.merge(&other.latency);
}

impl VolumeRates {
    fn of(name: String, [read, write, unmap]: &[OperationStats; 3], interval_s: f64) -> Self {
        let rates = |sum: &OperationStats| Rates {
            iops: sum.count as f64 / interval_s,
            bytes_per_s: sum.bytes as f64 / interval_s,
            errors_per_s: sum.errors as f64 / interval_s,
            mean_latency_us: sum.latency.mean_us(),
            p99_latency_us: sum.latency.quantile_us(0.99),
        };
        Self { name, read: rates(read), write: rates(write), unmap: rates(unmap) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_api::{Latency, VolumeStats};

    fn stats(uptime_ms: u64, count: u64) -> Stats {
        let latency =
            Latency::new(count * 50_000, [(40_000, count * 98 / 100), (2_000_000, count - count * 98 / 100)]);
        let write = OperationStats { count, errors: 0, bytes: count * 8192, latency };
        let volume = VolumeStats {
            name: "v1".into(),
            uuid: uuid::Uuid::from_u128(1),
            size_bytes: 1 << 30,
            mapped_bytes: None,
            read: OperationStats::default(),
            write,
            unmap: OperationStats::default(),
        };
        Stats { uptime_ms, volumes: vec![volume] }
    }

    fn sample(uptime_ms: u64, count: u64) -> Sample {
        let status = r#"{"ready":false,"state":"offline","since_ms":0,"reason":null,"name":"a","pool":
            "0f4e7a1c-22b9-4a6e-9d55-7d3f7f1f2a10","iqn":"iqn.2026-11.test:a","portals":[],"nbd":[],"version":"0",
            "uptime_s":1,"objects":{"volumes":1,"snapshots":0,"groups":0,"hosts":0,"mappings":0,"sessions":0,"exports":0},"offline_volumes":[],"capacity":null,
            "integrity":{"damaged_ranges":0},"recovery":null,"engine":null,"drives":[]}"#;
        Sample { stats: stats(uptime_ms, count), status: serde_json::from_str(status).unwrap() }
    }

    #[test]
    fn rates_are_those_of_the_interval() {
        let top = Top::between(&sample(10_000, 1000), &sample(12_000, 5000));
        let write = &top.volumes[0].write;
        assert_eq!((write.iops, write.bytes_per_s), (2000.0, 2000.0 * 8192.0));
        assert_eq!((write.mean_latency_us, write.p99_latency_us), (Some(50.0), Some(2000.0)));
        assert_eq!(top.volumes[0].read.mean_latency_us, None);
        assert_eq!((top.total.write.iops, top.fill.is_none()), (2000.0, true));
        let text = body(&top).join("\n");
        assert!(text.contains("v1") && text.contains("15.6 MiB") && text.contains("2000 µs"), "{text}");
        // After a restart, counters begin at zero.
        assert_eq!(Top::between(&sample(99_000, 9000), &sample(4000, 400)).total.write.iops, 100.0);
    }
}
