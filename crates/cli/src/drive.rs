//! `quoin drive`: commands for drives.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::pairs,
    report::{list, show},
    size_text, view,
};
use clap::Subcommand;
use quoin_api::{
    Drive, DriveAdd, DriveEvacuate, DriveLocation, DriveReplace, DriveRole, DriveState, EmulateAction,
    EmulateDrive, ProblemKind,
};
use serde::Serialize;
use std::{path::Path, thread, time::Duration};

/// How often a drive that leaves is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Commands for drives.
#[derive(Subcommand, Debug)]
pub enum DriveCommand {
    /// List drives: state, fault domain, roles, space, errors
    #[command(after_help = "Examples:\n  quoin --data /srv/a drive list\n  \
                            quoin --data /srv/a drive list -o json | jq '.[] | select(.state != \"active\")'")]
    List,
    /// Show one drive
    #[command(after_help = "Examples:\n  quoin --data /srv/a drive show drive-2\n  \
                            quoin --data /srv/a drive show /dev/sdb")]
    Show {
        /// The drive: its path in the list, or the end of that path
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
    },
    /// Add a drive for data, the journal or both while the array serves
    #[command(
        after_help = "The drive is added to quoin.toml too. Its space can be used at once. A drive for the journal takes as \
                      much of it as the other ones have, and the journal goes on there at once. From then on the pool does not open without the drive.\n\nExamples:\n  \
                      quoin --data /srv/a drive add /dev/sdd\n  \
                      quoin --data /srv/a drive add /dev/sde --domain shelf-2\n  \
                      quoin --data /srv/a drive add /dev/nvme1n1 --role journal\n  \
                      truncate -s 4G /srv/b/drive-5; quoin --data /srv/a drive add /srv/b/drive-5"
    )]
    Add {
        /// File or block device on the machine of the array
        #[arg(value_name = "PATH")]
        path: std::path::PathBuf,
        /// Name of its fault domain: drives of one domain may fail together [default: the disk that it is, or is on]
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
        /// What it is for: journal, data or both [default: data, and the journal too if that lies on fewer drives than it should, or lost one]
        #[arg(long, value_name = "ROLE")]
        role: Option<DriveRole>,
        /// Overwrite what the drive holds
        #[arg(long)]
        force: bool,
    },
    /// Take a drive out for good, as if it had failed
    #[command(
        after_help = "Nothing is written to the drive any more, and the pool opens without it; what it held is computed from \
                      the other drives. Refused if data would be lost. The drive cannot return: erase it before it is added \
                      again.\n\nExamples:\n  quoin --data /srv/a drive fail drive-2\n  \
                      quoin --data /srv/a drive fail /dev/sdb"
    )]
    Fail {
        /// The drive: its path in the list, or the end of that path
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
    },
    /// Move what a drive holds to the others while hosts use the pool
    #[command(
        after_help = "Nothing new is put on the drive from then on, also after a restart of the array. It is refused, with what \
                      is lacking, if the other drives have too little space for what it holds, or are in too few fault domains \
                      for the layout. quoin drive list and quoin job list show how far it is. When nothing is left on it, \
                      remove it: quoin drive remove.\n\nExamples:\n  quoin --data /srv/a drive evacuate drive-2 --wait\n  \
                      quoin --data /srv/a drive evacuate drive-2 --cancel\n  \
                      quoin --data /srv/a drive evacuate drive-2 --narrower"
    )]
    Evacuate {
        /// The drive: its path in the list, or the end of that path
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
        /// Also if segments get fewer columns than the layout has, and so take more space
        #[arg(long, conflicts_with = "cancel")]
        narrower: bool,
        /// Have a drive stay that is being evacuated
        #[arg(long)]
        cancel: bool,
        /// Wait until nothing is left on it, with a line of progress now and then
        #[arg(long, conflicts_with = "cancel")]
        wait: bool,
    },
    /// Evacuate a drive if need be, then take it out of the pool and of quoin.toml
    #[command(
        after_help = "A drive that failed is removed as soon as the others have made up for it. A drive that was removed is \
                      blank, and can be used for anything.\n\nExamples:\n  quoin --data /srv/a drive remove drive-2 --wait\n  \
                      quoin --data /srv/a drive remove /dev/sdb"
    )]
    Remove {
        /// The drive: its path in the list, or the end of that path
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
        /// Also if segments get fewer columns than the layout has, and so take more space
        #[arg(long)]
        narrower: bool,
        /// Wait until it is removed, with a line of progress now and then
        #[arg(long)]
        wait: bool,
    },
    /// Put another drive in the place of one that serves or failed
    #[command(
        after_help = "The new drive is added in the fault domain of the old one, which is then evacuated, or made up for if it \
                      failed, and removed. If that is interrupted, give the command again.\n\nExamples:\n  \
                      quoin --data /srv/a drive replace /dev/sdb /dev/sdf --wait\n  \
                      quoin --data /srv/a drive replace drive-2 /srv/b/drive-9 --domain shelf-2"
    )]
    Replace {
        /// The drive to replace: its path in the list, or the end of that path
        #[arg(id = "drive", value_name = "OLD")]
        drive: String,
        /// File or block device on the machine of the array that takes its place
        #[arg(value_name = "NEW")]
        path: std::path::PathBuf,
        /// Name of the new drive's fault domain [default: that of the old one]
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
        /// Overwrite what the new drive holds
        #[arg(long)]
        force: bool,
        /// Also if segments get fewer columns than the layout has, and so take more space
        #[arg(long)]
        narrower: bool,
        /// Wait until the old one is removed, with a line of progress now and then
        #[arg(long)]
        wait: bool,
    },
    /// Show where a drive is: path, disk, model, serial number and WWN
    #[command(after_help = "Examples:\n  quoin --data /srv/a drive locate drive-2\n  \
                            quoin --data /srv/a drive locate /dev/disk/by-id/nvme-example -o json")]
    Locate {
        /// The drive: its path in the list, or the end of that path
        #[arg(id = "drive", value_name = "DRIVE")]
        drive: String,
    },
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
    let at = |drive: &str| format!("/drives/{}", segment(drive));
    match command {
        DriveCommand::List => list(client, output, "/drives", view::drives),
        DriveCommand::Show { drive } => show(client, output, &at(&drive), one),
        DriveCommand::Locate { drive } => locate(client, output, &at(&drive)),
        DriveCommand::Fail { drive } => {
            let drive: Drive = client.post(&format!("{}/fail", at(&drive)), &serde_json::json!({}))?;
            output.show(&drive, one);
            Ok(())
        }
        DriveCommand::Evacuate { drive, cancel: true, .. } => {
            client.delete(&format!("{}/evacuate", at(&drive)))?;
            show(client, output, &at(&drive), one)
        }
        DriveCommand::Evacuate { drive, narrower, wait, .. } => {
            let request = DriveEvacuate { narrower };
            leave(client, output, &format!("{}/evacuate", at(&drive)), &request, wait)
        }
        DriveCommand::Remove { drive, narrower, wait } => {
            let request = DriveEvacuate { narrower };
            leave(client, output, &format!("{}/remove", at(&drive)), &request, wait)
        }
        DriveCommand::Replace { drive, path, domain, force, narrower, wait } => {
            let request = DriveReplace { path: whole(&path)?, domain, force, narrower };
            leave(client, output, &format!("{}/replace", at(&drive)), &request, wait)
        }
        DriveCommand::Add { path, domain, role, force } => {
            let request = DriveAdd { path: whole(&path)?, domain, role, force };
            let drive: Drive = client.post("/drives", &request)?;
            output.show(&drive, one);
            Ok(())
        }
        DriveCommand::Emulate(command) => emulate(client, output, command),
    }
}

/// The whole path of a drive on this machine.
fn whole(path: &Path) -> Result<String, Failure> {
    let shown = path.display().to_string();
    let absolute = std::path::absolute(path).map_err(|error| {
        let why = format!("cannot tell the full path of {shown}: {error}");
        Failure::new("drive not added", format!("drive {shown}"), why, "give an absolute path")
    })?;
    Ok(absolute.display().to_string())
}

/// Has a drive leave, and waits until it has if that is asked for.
fn leave<T: Serialize>(
    client: &Client,
    output: &Output,
    at: &str,
    request: &T,
    wait: bool,
) -> Result<(), Failure> {
    let mut drive: Drive = client.post(at, request)?;
    let (path, mut told) = (drive.path.clone(), String::new());
    while wait && drive.state != DriveState::Removed && !is_evacuated(&drive) {
        if let Some(leaving) = &drive.leaving {
            let line = format!("drive {path}: {}", view::leaving(leaving));
            if line != told {
                output.say(&line);
                told = line;
            }
        }
        thread::sleep(LOOK_EVERY);
        let now = client.get::<Drive>(&format!("/drives/{}", segment(&path)));
        drive = match now {
            Ok(now) if now.leaving.is_none() && now.state == DriveState::Active => {
                let why = "its evacuation was cancelled";
                return Err(Failure::new(
                    "drive not evacuated",
                    format!("drive {path}"),
                    why,
                    "give the command again",
                ));
            }
            Ok(now) => now,
            Err(failure) if failure.problem.status == ProblemKind::NotFound.status() => {
                Drive { state: DriveState::Removed, online: false, leaving: None, next: None, ..drive }
            }
            Err(failure) => return Err(failure),
        };
    }
    output.show(&drive, one);
    Ok(())
}

/// Whether a drive that is not removed afterwards has left.
fn is_evacuated(drive: &Drive) -> bool {
    drive.leaving.as_ref().is_some_and(|leaving| leaving.is_done && !leaving.removes)
}

fn emulate(client: &Client, output: &Output, command: EmulateCommand) -> Result<(), Failure> {
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

/// Where a drive is. Fails if that is not known.
fn locate(client: &Client, output: &Output, at: &str) -> Result<(), Failure> {
    let drive: Drive = client.get(at)?;
    let Some(location) = &drive.location else {
        return Err(Failure::new(
            "drive not located",
            format!("drive {}", drive.path),
            drive.reason.unwrap_or_else(|| "it is not open".to_owned()),
            "attach it; where it was last is in the log and in quoin.toml",
        ));
    };
    output.show(location, |location| pairs(location_rows(location)));
    Ok(())
}

fn location_rows(location: &DriveLocation) -> Vec<(&'static str, String)> {
    let kind = if location.is_device { "device" } else { "file" };
    let mut rows = vec![(kind, location.path.clone()), ("disk", location.disk.clone())];
    rows.extend(location.model.clone().map(|model| ("model", model)));
    rows.extend(location.serial.clone().map(|serial| ("serial", serial)));
    rows.extend(location.wwn.clone().map(|wwn| ("wwn", wwn)));
    rows
}

fn one(drive: &Drive) -> String {
    let number = drive.number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let mut rows = vec![
        ("drive", drive.path.clone()),
        ("number", number),
        ("state", view::drive_state(drive)),
        ("domain", drive.domain.clone().unwrap_or_else(|| "its own".to_owned())),
        ("roles", view::drive_roles(drive)),
        ("size", view::optional_size(drive.size_bytes)),
    ];
    if let (Some(data), Some(used)) = (drive.data_bytes, drive.used_bytes) {
        let free = size_text(data.saturating_sub(used));
        rows.push(("data", format!("{} of {} in segments, {free} free", size_text(used), size_text(data))));
    }
    if let Some(leaving) = &drive.leaving {
        rows.push(("leaving", view::leaving(leaving)));
    }
    rows.push(("errors", drive.errors.to_string()));
    for (name, latency) in [("reads", &drive.read_latency), ("writes", &drive.write_latency)] {
        let quantile = |quantile| latency.as_ref().and_then(|latency| latency.quantile_us(quantile));
        if let (Some(latency), Some(middle), Some(most)) = (latency, quantile(0.5), quantile(0.99)) {
            rows.push((name, format!("{}, p50 {middle:.0} us, p99 {most:.0} us", latency.count())));
        }
    }
    rows.push(("votes", if drive.votes { "yes" } else { "no" }.to_owned()));
    rows.extend(drive.location.iter().flat_map(location_rows));
    if let Some(emulated) = &drive.emulated {
        rows.push(("emulated", view::emulated(emulated)));
        rows.push(("corrupted", format!("{} pages since the array started", emulated.corrupted_pages)));
    }
    rows.extend(drive.next.clone().map(|next| ("next", next)));
    pairs(rows)
}
