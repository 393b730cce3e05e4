//! A pool that is nearly full of live data, overwritten at random for as long as it takes to turn it over several times:
//! whether throughput holds, what each host byte costs on the drives, and whether hosts are ever held up longer than
//! the drive itself holds up a small write.

mod probe;
mod report;
mod timeline;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::Output;
use crate::machine;
use crate::quoin::{Array, Serving, binary, number};
use quoin_initiator::{self as initiator, Capacity, Connection, Io, Next, Rng, Shape, Source};

use probe::Probe;
use report::{Report, Sample};
use timeline::Timeline;

const FILL_BYTES: u32 = 1 << 20;
const FILL_DEPTH: usize = 4;
/// How often the engine is asked what it has done.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What pool to put under what pressure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory on the drive to measure; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Size of each of the array's four drives.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "1g")]
    drive_size: u64,
    /// Live data, in percent of what all data segments could hold.
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u64).range(1..=100))]
    live: u64,
    /// How many times that capacity is overwritten.
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    times: f64,
    /// Bytes of a write.
    #[arg(long, value_parser = crate::units::parse_bytes, default_value = "8k", value_name = "SIZE")]
    bs: u64,
    /// Writes in flight.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// End after so many seconds though less was overwritten.
    #[arg(long)]
    seconds: Option<f64>,
    /// Seed of the addresses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// A further argument for `quoin init`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    init_arg: Vec<String>,
    /// A further argument for `quoin serve`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    serve_arg: Vec<String>,
    /// Table for people or JSON for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Keep the array's log there; QUOIN_LOG says what it holds.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Also write the report to a file, as markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Random writes over the whole unit until so much is written, or so late.
struct Overwrite<'a> {
    blocks: u64,
    io_bytes: u32,
    left_bytes: u64,
    until: Option<Instant>,
    rng: Rng,
    timeline: &'a mut Timeline,
}

impl Source for Overwrite<'_> {
    fn wants_data(&self) -> bool {
        false
    }

    fn next(&mut self, now: Instant) -> Next {
        if self.left_bytes < u64::from(self.io_bytes) || self.until.is_some_and(|until| now >= until) {
            return Next::Done;
        }
        self.left_bytes -= u64::from(self.io_bytes);
        let offset = self.rng.below(self.blocks) * u64::from(self.io_bytes);
        Next::Start(Io { write: true, offset, len: self.io_bytes })
    }

    fn fill(&mut self, _: Io, data: &mut [u8]) {
        unique(&mut self.rng, data);
    }

    fn completed(&mut self, io: Io, _: &[u8], started: Instant, _: Instant) -> Result<()> {
        // What came before it in the same turn took its time too.
        self.timeline.record(started, Instant::now(), u64::from(io.len));
        Ok(())
    }
}

/// Writes the unit from beginning to end.
struct Fill {
    at: u64,
    end: u64,
    rng: Rng,
}

impl Source for Fill {
    fn wants_data(&self) -> bool {
        false
    }

    fn next(&mut self, _: Instant) -> Next {
        let len = (self.end - self.at).min(u64::from(FILL_BYTES)) as u32;
        if len == 0 {
            return Next::Done;
        }
        let io = Io { write: true, offset: self.at, len };
        self.at += u64::from(len);
        Next::Start(io)
    }

    fn fill(&mut self, _: Io, data: &mut [u8]) {
        unique(&mut self.rng, data);
    }

    fn completed(&mut self, _: Io, _: &[u8], _: Instant, _: Instant) -> Result<()> {
        Ok(())
    }
}

/// Contents that nothing on the way can shorten.
fn unique(rng: &mut Rng, data: &mut [u8]) {
    data.chunks_mut(512).step_by(8).for_each(|sector| rng.fill(&mut sector[..16]));
}

/// Writes all of the unit once.
pub(crate) fn fill(connection: &mut Connection, capacity: Capacity, seed: u64) -> Result<()> {
    fill_first(connection, capacity, capacity.bytes(), seed)
}

/// Writes so many bytes of the unit once, from its beginning.
pub(crate) fn fill_first(
    connection: &mut Connection,
    capacity: Capacity,
    bytes: u64,
    seed: u64,
) -> Result<()> {
    let mut source = Fill { at: 0, end: bytes.min(capacity.bytes()), rng: Rng::new(seed) };
    let shape = Shape {
        depth: FILL_DEPTH,
        largest_bytes: FILL_BYTES as usize,
        block_bytes: capacity.block_bytes,
        fua: false,
    };
    initiator::run(connection, &mut source, shape).context("while filling")
}

/// Measures, reports, and says whether the array stood it: true if there was no stall of its own and throughput held.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.depth > 0 && options.times > 0.0, "--depth and --times must be above 0");
    ensure!(
        options.bs.is_multiple_of(4096) && (4096..=1 << 20).contains(&options.bs),
        "--bs must be a multiple of 4096 up to 1M, not {}",
        options.bs
    );
    std::fs::create_dir_all(&options.dir)?;
    let dir = tempfile::Builder::new().prefix("quoin-pressure-").tempdir_in(&options.dir)?;
    let binary = binary(options.quoin.as_deref())?;
    let mut array =
        Array::init(&binary, dir.path(), options.drive_size, &options.init_arg, &options.serve_arg)?;
    let serving = array.serve()?;
    let capacity_bytes = number(&serving.status()?, "/capacity/total_bytes")?;
    let usable_bytes = number(&serving.status()?, "/capacity/usable_bytes")?;
    let live_bytes = capacity_bytes * options.live / 100 / options.bs * options.bs;
    let mut commands = vec![serving.command.clone()];
    commands.append(&mut serving.map_volume(live_bytes)?);
    let probe = Probe::create(dir.path())?;
    let measured = measure(options, &serving, &probe, capacity_bytes)?;
    drop(serving);
    if let Some(path) = &options.log {
        std::fs::copy(&array.log, path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    array.commands.append(&mut commands);
    let report = Report::new(report::Inputs {
        machine: machine::describe(&options.dir),
        version: array.version()?,
        commands: array.commands.clone(),
        block_bytes: options.bs,
        depth: options.depth,
        capacity_bytes,
        usable_bytes,
        live_bytes,
        host: measured.host,
        probe: measured.probe,
        samples: measured.samples,
    })?;
    if let Some(path) = &options.markdown {
        std::fs::write(path, report.markdown())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match options.output {
        Output::Table => print!("{}", report.table()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(report.holds())
}

struct Measured {
    host: Timeline,
    probe: Timeline,
    samples: Vec<Sample>,
}

fn measure(options: &Options, serving: &Serving<'_>, probe: &Probe, capacity_bytes: u64) -> Result<Measured> {
    let mut connection = Connection::login(&serving.at().endpoint(), 0)?;
    let capacity = connection.capacity()?;
    fill(&mut connection, capacity, options.seed)?;

    let zero = Instant::now();
    let (mut host, mut drive) = (Timeline::since(zero), Timeline::since(zero));
    let stop = AtomicBool::new(false);
    let mut source = Overwrite {
        blocks: capacity.bytes() / options.bs,
        io_bytes: options.bs as u32,
        left_bytes: (capacity_bytes as f64 * options.times) as u64,
        until: options.seconds.map(|seconds| zero + Duration::from_secs_f64(seconds)),
        rng: Rng::new(options.seed + 1),
        timeline: &mut host,
    };
    let shape = Shape {
        depth: options.depth,
        largest_bytes: options.bs as usize,
        block_bytes: capacity.block_bytes,
        fua: false,
    };
    let (samples, probed, written) = thread::scope(|scope| {
        let sampler = scope.spawn(|| watch(serving, zero, &stop));
        let prober = scope.spawn(|| probe.run(&mut drive, &stop));
        let written = initiator::run(&mut connection, &mut source, shape);
        stop.store(true, Ordering::Relaxed);
        (sampler.join().expect("the sampler panicked"), prober.join().expect("the probe panicked"), written)
    });
    written.context("while overwriting")?;
    probed?;
    connection.logout()?;
    Ok(Measured { host, probe: drive, samples: samples? })
}

/// Asks the engine every second, and once at each end.
fn watch(serving: &Serving<'_>, zero: Instant, stop: &AtomicBool) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for turn in 1.. {
        samples.push(Sample::of(zero.elapsed().as_secs_f64(), &serving.status()?)?);
        let next = zero + SAMPLE_EVERY * turn;
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        if stop.load(Ordering::Relaxed) {
            samples.push(Sample::of(zero.elapsed().as_secs_f64(), &serving.status()?)?);
            break;
        }
    }
    Ok(samples)
}
