//! `quoin drive`: commands for drives.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::pairs,
    view,
};
use clap::Subcommand;
use quoin_api::{Drive, EmulateAction, EmulateDrive};

/// Commands for drives.
#[derive(Subcommand, Debug)]
pub enum DriveCommand {
    /// Make an emulated drive fail, slow down, hang, corrupt data, or return
    #[command(subcommand)]
    Emulate(EmulateCommand),
}

/// What an emulated drive is told to do. A drive is named by its path in `quoin status`, or by the end of that path.
#[derive(Subcommand, Debug)]
pub enum EmulateCommand {
    /// Let every operation of the drive fail
    #[command(after_help = "Examples:\n  quoin --data /srv/a drive emulate fail drive-2\n  \
                            quoin --data /srv/a drive emulate return drive-2")]
    Fail {
        /// The drive
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
    },
    /// Make everything take longer
    #[command(after_help = "Examples:\n  quoin --data /srv/a drive emulate slow drive-2 --factor 20")]
    Slow {
        /// The drive
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
        /// How many times as long everything takes
        #[arg(long, value_name = "N", default_value_t = 10,
              value_parser = clap::value_parser!(u32).range(2..=10_000))]
        factor: u32,
    },
    /// Let operations wait until the drive returns
    #[command(after_help = "What is submitted meanwhile reaches the drive when it returns.\n\nExamples:\n  \
                            quoin --data /srv/a drive emulate hang drive-2")]
    Hang {
        /// The drive
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
    },
    /// Flip bits at rest in the data area, silently
    #[command(
        after_help = "Only pages of 4 KiB that hold something are changed, one byte in each. The event of the change \
                      says which. A read or a scrub finds what was in use.\n\nExamples:\n  \
                      quoin --data /srv/a drive emulate corrupt drive-2 --pages 8 --seed 1\n  \
                      quoin --data /srv/a scrub start"
    )]
    Corrupt {
        /// The drive
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
        /// How many pages
        #[arg(long, value_name = "N", default_value_t = 1,
              value_parser = clap::value_parser!(u32).range(1..=10_000))]
        pages: u32,
        /// Number from which it follows which pages and bits [default: a random one]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
        seed: Option<u64>,
    },
    /// Pull the drive: its operations fail, and it cannot be opened
    #[command(after_help = "Examples:\n  quoin --data /srv/a drive emulate detach drive-2")]
    Detach {
        /// The drive
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
    },
    /// Let the drive work as configured again, with its content as it is
    #[command(after_help = "Examples:\n  quoin --data /srv/a drive emulate return drive-2")]
    Return {
        /// The drive
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: DriveCommand) -> Result<(), Failure> {
    let DriveCommand::Emulate(command) = command;
    let plain = |action| EmulateDrive { action, factor: None, pages: None, seed: None };
    let (drive, request) = match command {
        EmulateCommand::Fail { drive } => (drive, plain(EmulateAction::Fail)),
        EmulateCommand::Hang { drive } => (drive, plain(EmulateAction::Hang)),
        EmulateCommand::Detach { drive } => (drive, plain(EmulateAction::Detach)),
        EmulateCommand::Return { drive } => (drive, plain(EmulateAction::Return)),
        EmulateCommand::Slow { drive, factor } => {
            (drive, EmulateDrive { factor: Some(factor), ..plain(EmulateAction::Slow) })
        }
        EmulateCommand::Corrupt { drive, pages, seed } => {
            (drive, EmulateDrive { pages: Some(pages), seed, ..plain(EmulateAction::Corrupt) })
        }
    };
    let drive: Drive = client.post(&format!("/drives/{}/emulate", segment(&drive)), &request)?;
    output.show(&drive, one);
    Ok(())
}

fn one(drive: &Drive) -> String {
    let mut rows = vec![("drive", drive.path.clone()), ("state", view::drive_state(drive))];
    if let Some(emulated) = &drive.emulated {
        rows.push(("emulated", view::emulated(emulated)));
        rows.push(("corrupted", format!("{} pages since the array started", emulated.corrupted_pages)));
    }
    pairs(rows)
}
