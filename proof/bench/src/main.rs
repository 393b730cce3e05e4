//! Puts load on iSCSI targets and compares them.
//!
//! Promises: figures come from measurement only; the generator's own CPU is always shown beside the target's; what
//! is verified is verified byte by byte. Knows nothing of Quoin but its command line: every target is a process and
//! a portal.

mod bars;
mod bench;
mod compare;
mod drive;
mod files;
mod filler;
mod idle;
mod layouts;
mod ledger;
mod load;
mod long;
mod machine;
mod markdown;
mod matrix;
mod nbdkit;
mod offload;
mod pages;
mod pressure;
mod proc;
mod process;
mod quoin;
mod recovery;
mod reduction;
mod report;
mod result;
mod sample;
mod savings;
mod served;
mod snapshots;
mod source;
mod stats;
mod tgtd;
mod turns;
mod units;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::json;

#[derive(Debug, Parser)]
#[command(name = "quoin-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put load on one logical unit and show what came of it.
    ///
    /// Example: quoin-bench load --portal 127.0.0.1:3260 --target iqn.2026-11.io.quoin:array --lun 1
    /// --rw randrw --bs 8k --depth 32 --mix 70 --seconds 10 --verify
    #[command(verbatim_doc_comment)]
    Load {
        #[command(flatten)]
        spec: load::Spec,
        /// Table for people or JSON for programs.
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Read back what an earlier `load --verify --ledger FILE` wrote.
    Verify {
        #[command(flatten)]
        at: load::At,
        /// The ledger that the load saved.
        #[arg(long, value_name = "FILE")]
        ledger: PathBuf,
    },
    /// Compare Quoin with its peers, tgtd and nbdkit, and with the bare drive; exits with 1 if a row does not reach what
    /// it must, or does not count.
    ///
    /// Examples: quoin-bench compare; quoin-bench compare --rounds 1 --seconds 2 --rows write,read -o json;
    /// quoin-bench compare --quick
    #[command(verbatim_doc_comment)]
    Compare(compare::Options),
    /// Overwrite a pool that is nearly full of live data, for long; exits with 1 if hosts were stalled by the array or
    /// throughput did not hold.
    ///
    /// Example: quoin-bench pressure --drive-size 1g --markdown pressure.md
    #[command(verbatim_doc_comment)]
    Pressure(pressure::Options),
    /// Kill the array under the same load over little data and over much; exits with 1 if recovery does not take the
    /// same time.
    ///
    /// Example: quoin-bench recovery --data 256m --times 20
    #[command(verbatim_doc_comment)]
    Recovery(recovery::Options),
    /// What layouts cost hosts: random writes, reads, reads while a drive is missing, and the rebuild, on emulated drives.
    ///
    /// Examples: quoin-bench layouts; quoin-bench layouts --dir /dev/shm --layouts mirror,raid5,raid6,6+2 --rounds 5
    #[command(verbatim_doc_comment)]
    Layouts(layouts::Options),
    /// What compression and deduplication cost hosts, and what they save, on what looks like pages of a database.
    ///
    /// Examples: quoin-bench reduction; quoin-bench reduction --rounds 5 --seconds 20 -o json
    #[command(verbatim_doc_comment)]
    Reduction(reduction::Options),
    /// What compression saves on your own data, beside what the codecs could save at best, btrfs and qcow2; as root.
    ///
    /// Examples: quoin-bench savings database.img; quoin-bench savings --alone --layouts mirror database.img text.img
    #[command(verbatim_doc_comment)]
    Savings(savings::Options),
    /// Copy from one logical unit to another, and zero the copy: by reading and writing, and by the commands that have the array
    /// do it. What the second unit holds is overwritten.
    ///
    /// Example: quoin-bench offload --portal 127.0.0.1:3260 --target iqn.2026-11.io.quoin:array --lun 1 --to-lun 2
    #[command(verbatim_doc_comment)]
    Offload(offload::Options),
    /// What snapshots cost hosts: while one is taken, when source, snapshot and the end of a long chain are used, and while
    /// one is deleted; exits with 1 if it is more than it may be.
    ///
    /// Examples: quoin-bench snapshots group --case 1g:100k --snapshots 50; quoin-bench snapshots chain --depth 100;
    /// quoin-bench snapshots delete --blocks 3m
    #[command(verbatim_doc_comment, subcommand)]
    Snapshots(snapshots::Part),
    /// Serve a file with tgtd on a free port until standard input ends; prints portal and pid as JSON.
    Tgtd {
        /// The file to serve.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Backing store: rdwr, rdwr-direct, rdwr-sync, rdwr-sync-direct or aio.
        #[arg(long, value_parser = tgtd::Store::parse, default_value = "rdwr")]
        store: tgtd::Store,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// How `compare` ends if all ran and a bar is not met.
const NOT_REACHED: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let compares = matches!(cli.command, Command::Compare(_));
    match run(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) if compares => ExitCode::from(NOT_REACHED),
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quoin-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False when all ran but the data was wrong or a row is invalid.
fn run(cli: Cli) -> Result<bool> {
    match cli.command {
        Command::Load { spec, output } => {
            let report = load::run(&spec)?;
            match output {
                Output::Table => print!("{}", report::table(&report)),
                Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
            }
            Ok(report.verified.is_none_or(|verified| report::explain(&verified)))
        }
        Command::Verify { at, ledger } => {
            let verified = load::verify(&at, &ledger)?;
            println!("{} blocks verified, {} mismatches", verified.blocks, verified.mismatches);
            Ok(report::explain(&verified))
        }
        Command::Compare(options) => compare::run(&options),
        Command::Pressure(options) => pressure::run(&options),
        Command::Recovery(options) => recovery::run(&options),
        Command::Layouts(options) => layouts::run(&options),
        Command::Reduction(options) => reduction::run(&options),
        Command::Offload(options) => offload::run(&options),
        Command::Savings(options) => savings::run(&options),
        Command::Snapshots(part) => snapshots::run(&part),
        Command::Tgtd { file, store } => {
            let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let tgtd = tgtd::Tgtd::start(dir, &file, store)?;
            let pid = tgtd.process.pid();
            println!("{}", json!({ "portal": tgtd.portal, "target": tgtd::TARGET, "lun": 1, "pid": pid }));
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
            Ok(true)
        }
    }
}
