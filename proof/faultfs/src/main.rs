//! `quoin-faultfs`: mounts drives that fail on command, and sends them their commands.

use anyhow::Result;
use clap::{Parser, Subcommand};
use quoin_faultfs::{Command, Mounted, Options};
use std::path::PathBuf;

/// A file system of drive files that lose un-flushed writes, tear, fail and corrupt on command
///
/// Example: quoin-faultfs mount ./backing ./drives --control ./control.sock &
///          quoin-faultfs tell ./control.sock power-cut --seed 7 --mode tear
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
enum Cli {
    /// Mount the files of a directory as drives; runs until unmounted (umount, fusermount3 -u)
    Mount {
        /// Directory that holds the drive files
        backing: PathBuf,
        /// Directory the drives appear in
        mountpoint: PathBuf,
        /// Unix socket to take commands on
        #[arg(long)]
        control: PathBuf,
        /// MiB a drive holds before it writes of its own accord
        #[arg(long, default_value_t = 256)]
        cache_mib: u64,
    },
    /// Send a command to a control socket and print the answer
    Tell {
        /// The control socket
        control: PathBuf,
        #[command(subcommand)]
        command: TellCommand,
    },
}

#[derive(Subcommand)]
enum TellCommand {
    #[command(flatten)]
    Drives(Command),
}

fn main() -> Result<()> {
    match Cli::parse() {
        Cli::Mount { backing, mountpoint, control, cache_mib } => {
            let mounted =
                Mounted::new(&backing, &mountpoint, Options { cache_limit_bytes: cache_mib << 20 })?;
            quoin_faultfs::serve(mounted.shelf().clone(), &control)?;
            let ended = mounted.wait();
            std::fs::remove_file(&control)?;
            Ok(ended?)
        }
        Cli::Tell { control, command: TellCommand::Drives(command) } => {
            println!("{:#}", quoin_faultfs::ask(&control, &command)?);
            Ok(())
        }
    }
}
