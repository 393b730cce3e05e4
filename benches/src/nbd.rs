//! NBD: Quoin beside nbdkit's file plugin, with fio's NBD engine as the generator for both.
//!
//! Every write over NBD is hardened before Quoin answers it, whatever the client asked for. nbdkit is measured twice:
//! *durable*, its `fua` filter forcing a flush of the file for each write; and *as they come*, where a write is answered
//! once it is in the page cache, which Quoin's row does not get to do.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use rustix::process::Signal;
use serde::Serialize;

use crate::drive::{self, Drive};
use crate::process::{Running, free_port, line, wait_until};
use crate::quoin::Array;
use crate::stats::median;
use crate::{Output, compare, machine, proc};

const EXPORT: &str = "bench";
const IO_BYTES: u64 = 8192;
const DEPTH: usize = 32;
const READ_PERCENT: u64 = 70;

/// What to compare, where and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory on the drive to measure; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Length of each run in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Rounds, of which medians are told.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Size of the volume and of nbdkit's file, all of which is used.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "1g")]
    set: u64,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// A further argument for `quoin serve`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    serve_arg: Vec<String>,
    /// Table for people or JSON for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Peer {
    Quoin,
    NbdkitDurable,
    NbdkitAsTheyCome,
}

const PEERS: [Peer; 3] = [Peer::Quoin, Peer::NbdkitDurable, Peer::NbdkitAsTheyCome];

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Quoin => "Quoin (durable)",
            Peer::NbdkitDurable => "nbdkit file, each write flushed",
            Peer::NbdkitAsTheyCome => "nbdkit file, writes as they come",
        }
    }
}

/// One run: what the generator saw, and what it cost the server.
#[derive(Debug, Clone, Serialize)]
struct Sample {
    peer: Peer,
    #[serde(flatten)]
    generator: Drive,
    server_us_per_io: f64,
}

struct Bench<'a> {
    options: &'a Options,
    dir: PathBuf,
    file: PathBuf,
    array: Array,
    samples: Vec<Sample>,
    commands: Vec<String>,
}

/// Measures and reports. The bar is nbdkit's rate; the figures are told whether it is reached or not.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.rounds > 0 && options.seconds > 0.0, "--rounds and --seconds must be above 0");
    std::fs::create_dir_all(&options.dir)?;
    let dir = tempfile::Builder::new().prefix("quoin-bench-nbd-").tempdir_in(&options.dir)?;
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("quoin"));
    let binary = options.quoin.clone().or_else(beside).context("name the program with --quoin")?;
    let file = dir.path().join("nbdkit.img");
    compare::write_noise(&file, options.set)?;
    let mut serve = options.serve_arg.clone();
    let port = free_port()?;
    serve.extend(["--nbd".to_owned(), port.to_string()]);
    let array = Array::create(&binary, dir.path(), options.set, &[], &serve)?;
    let mut bench =
        Bench { options, dir: dir.path().to_owned(), file, array, samples: Vec::new(), commands: Vec::new() };
    bench.fill(port)?;
    for round in 0..options.rounds {
        for index in 0..PEERS.len() {
            let peer = PEERS[(round + index) % PEERS.len()];
            let sample = bench.measure(peer, port).with_context(|| peer.name())?;
            let (iops, cpu) = (sample.generator.iops, sample.server_us_per_io);
            eprintln!("round {} {:<33} {iops:>8.0} IOPS {cpu:>6.1} µs CPU per I/O", round + 1, peer.name());
            bench.samples.push(sample);
        }
    }
    match options.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&bench.samples)?),
        Output::Table => print!("{}", bench.report()?),
    }
    Ok(true)
}

impl Bench<'_> {
    /// Makes the export and gives the volume the file's content.
    fn fill(&mut self, port: SocketAddr) -> Result<()> {
        let serving = self.array.serve()?;
        self.commands.push(serving.command.clone());
        self.commands.push(serving.export(EXPORT)?);
        let mut copy = Command::new("nbdcopy");
        copy.arg(&self.file).arg(uri(port));
        let output = copy.output().context("cannot run nbdcopy; install Debian's package 'libnbd-bin'")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {}", line(&copy), said.trim());
        Ok(())
    }

    fn measure(&mut self, peer: Peer, port: SocketAddr) -> Result<Sample> {
        File::open(&self.file)?.sync_all()?;
        match peer {
            Peer::Quoin => {
                let serving = self.array.serve()?;
                self.load(peer, serving.process.pid(), port)
            }
            Peer::NbdkitDurable | Peer::NbdkitAsTheyCome => {
                let port = free_port()?;
                let nbdkit = self.nbdkit(peer, port)?;
                self.load(peer, nbdkit.pid(), port)
            }
        }
    }

    fn nbdkit(&mut self, peer: Peer, port: SocketAddr) -> Result<Running> {
        let mut command = Command::new("nbdkit");
        command.args([
            "--foreground",
            "--ipaddr",
            &port.ip().to_string(),
            "--port",
            &port.port().to_string(),
        ]);
        command.args(["--exportname", EXPORT]);
        if peer == Peer::NbdkitDurable {
            command.arg("--filter=fua");
        }
        command.arg("file").arg(&self.file);
        if peer == Peer::NbdkitDurable {
            command.arg("fuamode=force");
        }
        let log = self.dir.join("nbdkit.log");
        let mut process = Running::start("nbdkit", &command, Signal::TERM, File::create(&log)?)?;
        wait_until("nbdkit answers", Duration::from_secs(10), || {
            process.check_alive()?;
            Ok(std::net::TcpStream::connect(port).is_ok())
        })
        .with_context(|| format!("nbdkit did not start; its log is {}", log.display()))?;
        self.remember(line(&command).replace(&port.port().to_string(), "PORT"));
        Ok(process)
    }

    fn load(&mut self, peer: Peer, pid: u32, port: SocketAddr) -> Result<Sample> {
        let command = fio(&self.dir, port, self.options.set, self.options.seconds);
        self.remember(line(&command).replace(&port.port().to_string(), "PORT"));
        let before = proc::usage(pid)?;
        let generator = drive::measure(command)?;
        let after = proc::usage(pid)?;
        let ios = generator.iops * self.options.seconds;
        let server_us_per_io = (after.cpu_seconds - before.cpu_seconds) * 1e6 / ios;
        Ok(Sample { peer, generator, server_us_per_io })
    }

    fn remember(&mut self, command: String) {
        if !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }

    fn report(&self) -> Result<String> {
        let figures = |peer: Peer, figure: &dyn Fn(&Sample) -> f64| {
            median(self.samples.iter().filter(|sample| sample.peer == peer).map(figure))
        };
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let header = [
            "server",
            "IOPS",
            "p50 µs",
            "p99 µs",
            "CPU server",
            "CPU generator",
            "Quoin's IOPS to it",
            "Quoin's CPU to it",
        ];
        table.set_header(header);
        let (iops, cpu) = (|s: &Sample| s.generator.iops, |s: &Sample| s.server_us_per_io);
        for peer in PEERS {
            let ratio = |figure: &dyn Fn(&Sample) -> f64| match peer {
                Peer::Quoin => "–".to_owned(),
                _ => format!("{:.2}", figures(Peer::Quoin, figure) / figures(peer, figure)),
            };
            table.add_row([
                peer.name().to_owned(),
                format!("{:.0}", figures(peer, &iops)),
                format!("{:.0}", figures(peer, &|s| s.generator.latency_us.p50)),
                format!("{:.0}", figures(peer, &|s| s.generator.latency_us.p99)),
                format!("{:.1}", figures(peer, &cpu)),
                format!("{:.1}", figures(peer, &|s| s.generator.cpu.us_per_io)),
                ratio(&iops),
                ratio(&cpu),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut about = machine::describe(&self.options.dir);
        about.extend([
            ("fio", drive::version()?),
            ("nbdkit", nbdkit_version()?),
            ("Quoin", self.array.version()?),
        ]);
        let about: Vec<_> = about.iter().map(|(name, value)| format!("- {name}: {value}")).collect();
        Ok(format!(
            "NBD, 8 KiB random, {READ_PERCENT} % reads, depth {DEPTH}, one connection: {} round(s) of {} s, medians; {} of \
             data. CPU in µs per I/O.\n\n{table}\n\n{}\n\n{}\n",
            self.options.rounds,
            self.options.seconds,
            crate::units::show_bytes(self.options.set),
            about.join("\n"),
            self.commands.iter().map(|command| format!("    {command}")).collect::<Vec<_>>().join("\n"),
        ))
    }
}

fn uri(port: SocketAddr) -> String {
    format!("nbd://{port}/{EXPORT}")
}

fn fio(dir: &Path, port: SocketAddr, bytes: u64, seconds: f64) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=nbd", "--ioengine=nbd", "--rw=randrw", "--time_based", "--lat_percentiles=1"]);
    command.args([format!("--rwmixread={READ_PERCENT}"), format!("--bs={IO_BYTES}")]);
    command.args([format!("--iodepth={DEPTH}"), format!("--size={bytes}"), format!("--runtime={seconds}")]);
    command.args(["--randrepeat=0", "--norandommap", "--output-format=json"]);
    command.arg(format!("--uri={}", uri(port))).arg(format!("--directory={}", dir.display()));
    command
}

fn nbdkit_version() -> Result<String> {
    let output = Command::new("nbdkit")
        .arg("--version")
        .output()
        .context("cannot run nbdkit; install Debian's package 'nbdkit'")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
