//! The load generator: patterns, phases (fill, run, verify) and what is reported of them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::filler::{Carry, Filler};
use crate::ledger::{self, Extent, Ledger};
use crate::proc;
use crate::source::{Contents, Pace, Run, Sweep, Verified};
use crate::stats::{Latencies, Side};
use quoin_initiator::{self as initiator, Capacity, Connection, Endpoint, Rng, Shape};

const SWEEP_BYTES: u32 = 256 << 10;
const SWEEP_DEPTH: usize = 8;

/// The order of addresses and the direction of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pattern {
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Random reads and writes, as `--mix` says.
    Randrw,
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
}

/// How to reach the logical unit.
#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// Address of the target's portal.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) portal: std::net::SocketAddr,
    /// The target's name.
    #[arg(long, value_name = "IQN")]
    pub(crate) target: String,
    /// Logical unit number.
    #[arg(long, default_value_t = 1)]
    pub(crate) lun: u16,
    /// Name to log in as.
    #[arg(long, value_name = "IQN", default_value = "iqn.2026-11.io.quoin:bench")]
    pub(crate) initiator: String,
}

impl At {
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint {
            portal: self.portal,
            target: self.target.clone(),
            initiator: self.initiator.clone(),
            lun: self.lun,
        }
    }
}

/// One run of load.
#[derive(Debug, Clone, Args)]
pub(crate) struct Spec {
    #[command(flatten)]
    pub(crate) at: At,
    /// Order and direction of transfers.
    #[arg(long, value_enum, default_value = "randread")]
    pub(crate) rw: Pattern,
    /// Bytes per transfer; a multiple of 512 up to 8M.
    #[arg(long, value_parser = crate::units::parse_bytes, default_value = "8k", value_name = "SIZE")]
    pub(crate) bs: u64,
    /// Transfers in flight, per session.
    #[arg(long, default_value_t = 32)]
    pub(crate) depth: usize,
    /// Share of reads in `randrw`, in percent.
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(crate) mix: u64,
    /// Transfers a second over all sessions, at equal distances; one that starts late counts from when it was due. As many
    /// as there are by default.
    #[arg(long, value_name = "IOPS")]
    pub(crate) rate: Option<f64>,
    /// Length of the measurement.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Load before the measurement, not counted.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warmup: f64,
    /// Sessions, each with its own connection, thread and part of the working set.
    #[arg(long, default_value_t = 1)]
    pub(crate) sessions: u16,
    /// Use only the first bytes of the unit; all of it by default.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE")]
    pub(crate) working_set: Option<u64>,
    /// Write all of the working set first. Implied by --verify.
    #[arg(long)]
    pub(crate) fill: bool,
    /// Read all of the working set first, to warm caches.
    #[arg(long)]
    pub(crate) preread: bool,
    /// Stamp what is written with address, version and checksum; check every read; read all back afterwards.
    #[arg(long)]
    pub(crate) verify: bool,
    /// What writes carry, unless it is to be verified.
    #[arg(long, value_enum, default_value = "stamps", conflicts_with = "verify")]
    pub(crate) carry: Carry,
    /// Save what was written where, for a later `quoin-bench verify`. Needs --verify.
    #[arg(long, requires = "verify", value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    /// Set FUA in writes.
    #[arg(long)]
    pub(crate) fua: bool,
    /// Seed of addresses and contents.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of the first session; sessions of one initiator at the same time must have different ones.
    #[arg(skip)]
    pub(crate) session: u16,
    /// First byte of the unit that is used.
    #[arg(long, value_parser = crate::units::parse_bytes, default_value = "0", value_name = "SIZE")]
    pub(crate) first: u64,
    /// Process whose CPU time and storage traffic is to be shown.
    #[arg(long, value_name = "PID")]
    pub(crate) target_pid: Option<u32>,
}

/// What a run of load came to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) pattern: Pattern,
    pub(crate) block_bytes: u64,
    pub(crate) depth: usize,
    pub(crate) sessions: u16,
    pub(crate) working_set_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) total: Side,
    pub(crate) read: Side,
    pub(crate) write: Side,
    /// CPU of this program, over the measurement.
    pub(crate) generator: Cpu,
    /// CPU of the target's process.
    pub(crate) target: Option<TargetUse>,
    /// CPU of the whole machine: target, generator, kernel threads, all else.
    pub(crate) machine: Cpu,
    pub(crate) verified: Option<Verified>,
}

/// CPU time spent.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cpu {
    pub(crate) seconds: f64,
    pub(crate) us_per_io: f64,
    /// Cores kept busy.
    pub(crate) cores: f64,
}

impl Cpu {
    pub(crate) fn new(seconds: f64, ios: u64, wall_seconds: f64) -> Cpu {
        Cpu { seconds, us_per_io: seconds * 1e6 / ios.max(1) as f64, cores: seconds / wall_seconds }
    }
}

/// What the target's process used.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TargetUse {
    pub(crate) cpu: Cpu,
    /// Bytes fetched from storage.
    pub(crate) storage_read_bytes: u64,
    /// Bytes sent to storage, or dirtied in the page cache.
    pub(crate) storage_write_bytes: u64,
}

/// One session and its part of the working set.
struct Worker {
    connection: Connection,
    capacity: Capacity,
    extent: Extent,
    contents: Contents,
    latencies: Latencies,
}

impl Worker {
    fn open(endpoint: &Endpoint, number: u16) -> Result<(Connection, Capacity)> {
        let mut connection = Connection::login(endpoint, number)?;
        let capacity = connection.capacity()?;
        Ok((connection, capacity))
    }

    fn new(spec: &Spec, number: u16) -> Result<Worker> {
        let (connection, capacity) = Worker::open(&spec.at.endpoint(), spec.session + number)?;
        let whole = capacity.bytes();
        let set = spec.working_set.unwrap_or(whole.saturating_sub(spec.first));
        ensure!(
            spec.first.saturating_add(set) <= whole,
            "the working set of {set} bytes at {} is larger than the unit's {whole}",
            spec.first
        );
        ensure!(
            spec.bs.is_multiple_of(u64::from(capacity.block_bytes)) && spec.first.is_multiple_of(spec.bs),
            "--bs {} is not a multiple of the unit's block size {}, or --first is not one of --bs",
            spec.bs,
            capacity.block_bytes
        );
        let blocks = set / spec.bs / u64::from(spec.sessions);
        ensure!(
            blocks >= 2 * spec.depth as u64,
            "the working set gives each session {blocks} blocks of {} bytes, too few for depth {}",
            spec.bs,
            spec.depth
        );
        let extent = Extent {
            start: spec.first + u64::from(number) * blocks * spec.bs,
            block_bytes: spec.bs as u32,
            blocks,
            seed: spec.seed,
        };
        let mut rng = Rng::new(spec.seed << 16 | u64::from(spec.session + number));
        let ledger = spec.verify.then(|| Ledger::new(extent));
        let filler = Filler::new(spec.carry, &mut rng);
        let contents = Contents { ledger, filler, verified: Verified::default(), rng };
        Ok(Worker { connection, capacity, extent, contents, latencies: Latencies::new() })
    }

    /// Goes through the working set once, with transfers of about so many bytes.
    fn sweep(&mut self, write: bool, about_bytes: u32) -> Result<()> {
        let block_bytes = self.extent.block_bytes;
        let io_bytes = block_bytes * (about_bytes / block_bytes).max(1);
        let end = self.extent.start + self.extent.blocks * u64::from(block_bytes);
        let mut source = Sweep { contents: &mut self.contents, write, at: self.extent.start, end, io_bytes };
        let shape = Shape {
            depth: SWEEP_DEPTH,
            largest_bytes: io_bytes as usize,
            block_bytes: self.capacity.block_bytes,
            fua: false,
        };
        initiator::run(&mut self.connection, &mut source, shape)
    }

    fn measure(&mut self, spec: &Spec, from: Instant, until: Instant) -> Result<()> {
        let mut source = Run {
            contents: &mut self.contents,
            extent: self.extent,
            pattern: spec.rw,
            mix: spec.mix,
            cursor: 0,
            from,
            until,
            pace: spec.rate.map(|rate| Pace {
                next: Instant::now(),
                every: Duration::from_secs_f64(f64::from(spec.sessions) / rate),
            }),
            latencies: &mut self.latencies,
        };
        let shape = Shape {
            depth: spec.depth,
            largest_bytes: self.extent.block_bytes as usize,
            block_bytes: self.capacity.block_bytes,
            fua: spec.fua,
        };
        initiator::run(&mut self.connection, &mut source, shape)
    }
}

/// Does something with all workers at once.
fn together(workers: &mut [Worker], act: impl Fn(&mut Worker) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(move || act(worker))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a worker panicked"))
    })
}

/// Checks what can be said about a load without the unit.
fn check(spec: &Spec) -> Result<()> {
    ensure!(
        spec.bs.is_multiple_of(512) && (512..=8 << 20).contains(&spec.bs),
        "--bs must be a multiple of 512 from 512 to 8M, not {}",
        spec.bs
    );
    ensure!(spec.depth > 0 && spec.sessions > 0, "--depth and --sessions must be at least 1");
    ensure!(
        spec.rate.is_none_or(|rate| (0.01..=1e9).contains(&rate)),
        "--rate must be a number of transfers a second"
    );
    ensure!(spec.seconds > 0.0 && spec.warmup >= 0.0, "--seconds must be above 0 and --warmup not below");
    Ok(())
}

/// Runs the load itself, and returns what it used of the machine.
fn measure(spec: &Spec, workers: &mut [Worker]) -> Result<Usage> {
    let from = Instant::now() + Duration::from_secs_f64(spec.warmup);
    let until = from + Duration::from_secs_f64(spec.seconds);
    let (usage, outcome) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| Usage::over(spec.target_pid, from, until));
        let outcome = together(workers, |worker| worker.measure(spec, from, until));
        (watch.join().expect("the watch panicked"), outcome)
    });
    outcome.context("under load")?;
    usage
}

/// Runs one load from login to logout.
pub(crate) fn run(spec: &Spec) -> Result<Report> {
    check(spec)?;
    let mut workers =
        (0..spec.sessions).map(|number| Worker::new(spec, number)).collect::<Result<Vec<_>>>()?;
    if spec.fill || spec.verify {
        together(&mut workers, |worker| worker.sweep(true, SWEEP_BYTES)).context("while filling")?;
    }
    if spec.preread {
        // In small pieces: a cache may well leave alone what is read in large ones.
        together(&mut workers, |worker| worker.sweep(false, 0)).context("while reading ahead")?;
    }
    let usage = measure(spec, &mut workers)?;
    if spec.verify {
        together(&mut workers, |worker| worker.sweep(false, SWEEP_BYTES)).context("while verifying")?;
    }
    let mut latencies = Latencies::new();
    let mut verified = spec.verify.then(Verified::default);
    let mut ledgers = Vec::new();
    let working_set_bytes = workers.iter().map(|w| w.extent.blocks * spec.bs).sum();
    for worker in workers {
        latencies.add(&worker.latencies);
        if let Some(verified) = &mut verified {
            verified.add(&worker.contents.verified);
        }
        ledgers.extend(worker.contents.ledger);
        worker.connection.logout()?;
    }
    if let Some(path) = &spec.ledger {
        ledger::save(path, &ledgers)?;
    }
    let ios = latencies.count();
    Ok(Report {
        pattern: spec.rw,
        block_bytes: spec.bs,
        depth: spec.depth,
        sessions: spec.sessions,
        working_set_bytes,
        seconds: spec.seconds,
        total: latencies.total(spec.bs, spec.seconds),
        read: latencies.reads(spec.bs, spec.seconds),
        write: latencies.writes(spec.bs, spec.seconds),
        generator: Cpu::new(usage.own, ios, spec.seconds),
        machine: Cpu::new(usage.machine, ios, spec.seconds),
        target: usage.target.map(|(before, after)| TargetUse {
            cpu: Cpu::new(after.cpu_seconds - before.cpu_seconds, ios, spec.seconds),
            storage_read_bytes: after.read_bytes - before.read_bytes,
            storage_write_bytes: after.write_bytes - before.write_bytes,
        }),
        verified,
    })
}

/// Counters at both ends of the measurement.
struct Usage {
    own: f64,
    machine: f64,
    target: Option<(proc::Usage, proc::Usage)>,
}

impl Usage {
    fn over(pid: Option<u32>, from: Instant, until: Instant) -> Result<Usage> {
        let sample = |at: Instant| {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            Ok::<_, anyhow::Error>((
                proc::own_cpu_seconds(),
                proc::machine_busy_seconds(),
                pid.map(proc::usage).transpose()?,
            ))
        };
        let (before, after) = (sample(from)?, sample(until)?);
        Ok(Usage { own: after.0 - before.0, machine: after.1 - before.1, target: before.2.zip(after.2) })
    }
}

/// Reads back everything a saved ledger knows of.
pub(crate) fn verify(at: &At, path: &std::path::Path) -> Result<Verified> {
    let mut verified = Verified::default();
    for (number, ledger) in ledger::load(path)?.into_iter().enumerate() {
        let (connection, capacity) = Worker::open(&at.endpoint(), number as u16)?;
        let extent = ledger.extent;
        let (ledger, filler) = (Some(ledger), Filler::Stamps);
        let contents = Contents { ledger, filler, verified: Verified::default(), rng: Rng::new(0) };
        let mut worker = Worker { connection, capacity, extent, contents, latencies: Latencies::new() };
        worker.sweep(false, SWEEP_BYTES).context("while verifying")?;
        verified.add(&worker.contents.verified);
        worker.connection.logout()?;
    }
    Ok(verified)
}
