//! What snapshots cost hosts. Three parts: while a snapshot of a group is taken ([`group`]), when source, snapshot and
//! the end of a long chain are read and overwritten ([`chain`]), and while a snapshot is deleted ([`delete`]). Each
//! compares with windows or volumes without snapshots on the same array in the same run, in turn.

mod chain;
mod delete;
mod group;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use comfy_table::Table;
use quoin_initiator::Connection;
use serde::Serialize;

use crate::Output;
use crate::load::At;
use crate::markdown::{finish, table};
use crate::pressure::fill_first;
use crate::quoin::{Array, Serving, binary, number};

/// What the engine maps.
const BLOCK_BYTES: u64 = 8192;
/// How long the array may take to come to rest.
const REST_LIMIT: Duration = Duration::from_secs(600);

/// The parts.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Writes to all volumes of a group while snapshots of it are taken, against windows without.
    Group(group::Options),
    /// Random reads and overwrites of a source, its snapshot and the end of a chain, against a volume without any.
    Chain(chain::Options),
    /// Writes to a source while its snapshot is deleted, against before.
    Delete(delete::Options),
}

/// What all parts take.
#[derive(Debug, Args)]
struct Common {
    /// Directory on the drive to measure; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Size of each of the array's four drives; what the data needs by default.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE")]
    drive_size: Option<u64>,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// A further argument for `quoin serve`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    serve_arg: Vec<String>,
    /// Table for people or JSON for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Also write the tables to a file, as markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// An array made for a measurement, in a directory that goes with it.
struct Bench {
    array: Array,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// Makes an array that has room for so many bytes.
    fn create(common: &Common, data_bytes: u64) -> Result<Bench> {
        std::fs::create_dir_all(&common.dir)?;
        let dir = tempfile::Builder::new().prefix("quoin-snapshots-").tempdir_in(&common.dir)?;
        let drive_bytes = match common.drive_size {
            Some(bytes) => bytes,
            // Of the segments a part is for metadata, reserve, and what the cleaner needs to work in peace.
            None => (data_bytes / 4 * 5 / 4 + (1 << 30)).next_multiple_of(1 << 20),
        };
        let binary = binary(common.quoin.as_deref())?;
        let array = Array::init(&binary, dir.path(), drive_bytes, &[], &common.serve_arg)?;
        Ok(Bench { array, _dir: dir })
    }
}

/// One thing to be reached.
#[derive(Debug, Clone, Serialize)]
struct Bar {
    of: String,
    bar: String,
    measured: String,
    met: bool,
}

impl Bar {
    fn new(of: &str, bar: &str, measured: String, met: bool) -> Bar {
        Bar { of: of.to_owned(), bar: bar.to_owned(), measured, met }
    }
}

/// Shows tables and bars; true if all bars are met.
fn tell(common: &Common, figures: Table, report: &impl Serialize, bars: &[Bar]) -> Result<bool> {
    let mut shown = table(&["of", "bar", "measured", "met"]);
    for bar in bars {
        shown.add_row([bar.of.as_str(), &bar.bar, &bar.measured, if bar.met { "yes" } else { "NO" }]);
    }
    let text = format!("{figures}\n\n{}\n", finish(shown, &[0, 1, 2, 3]));
    match common.output {
        Output::Table => print!("{text}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(report)?),
    }
    if let Some(path) = &common.markdown {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(bars.iter().all(|bar| bar.met))
}

/// Makes a volume, shows it to the generator and fills its first bytes.
fn volume(serving: &Serving<'_>, name: &str, bytes: u64, lun: u16, filled: u64) -> Result<At> {
    serving.tell(&["volume", "create", name, "--size", &bytes.to_string()])?;
    let at = serving.show(name, lun)?;
    let mut connection = Connection::login(&at.endpoint(), lun)?;
    let capacity = connection.capacity()?;
    ensure!(capacity.bytes() == bytes, "{name} has {} bytes instead of {bytes}", capacity.bytes());
    fill_first(&mut connection, capacity, filled, u64::from(lun))
        .with_context(|| format!("filling {name}"))?;
    connection.logout()?;
    Ok(at)
}

/// Waits until what was written is where it belongs: nothing is destaged or cleaned for two seconds.
fn rest(serving: &Serving<'_>) -> Result<()> {
    let began = Instant::now();
    let work = || -> Result<(u64, u64)> {
        let engine = serving.engine()?;
        Ok((engine.destaged_bytes, engine.cleaned_bytes))
    };
    let mut before = work()?;
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) || buffered(serving)? > 0 {
        ensure!(began.elapsed() < REST_LIMIT, "the array does not come to rest");
        std::thread::sleep(Duration::from_millis(100));
        let now = work()?;
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
    Ok(())
}

fn buffered(serving: &Serving<'_>) -> Result<u64> {
    number(&serving.status()?, "/engine/buffer_ram_bytes")
}

/// Measures one part; true if it reaches what it has to.
pub(crate) fn run(part: &Part) -> Result<bool> {
    match part {
        Part::Group(options) => group::run(options),
        Part::Chain(options) => chain::run(options),
        Part::Delete(options) => delete::run(options),
    }
}
