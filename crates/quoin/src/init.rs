//! `quoin init`: makes an array.

use crate::{
    data::DataDir,
    domains::{DomainChoice, InDomain, domains},
    overwrite::{kept_pools, require_names},
    protect::{Protected, choose},
};
use quoin_array::is_target_name;
use quoin_base::{GIB, Layout, MIB, PoolId};
use quoin_cli::{Failure, Global, Output, Size, TOKEN_FILE, parse_size, parse_spare};
use quoin_config::{Config, DriveConfig, EventsConfig, ServeConfig, SpaceConfig};
use quoin_drive::{DriveError, DriveWatch, MAX_SLICES, MOST_JOURNAL_COLUMNS, Patience, Probe, Roles, probe};
use quoin_emulate::Emulation;
use quoin_pool::{FormatOptions, NewDrive};
use quoin_world::{Disk, Thread};
use quoin_world_linux::{LinuxWorld, OpenOptions, block_on, open_disk};
use std::{fs, os::unix::fs::DirBuilderExt, path::PathBuf, sync::Arc};

/// An array whose journal drives and data drives are smaller than this, each together, gets small slabs.
const SMALL_JOURNAL_DRIVES_BYTES: u64 = 8 * GIB;
const SMALL_DATA_DRIVES_BYTES: u64 = 512 * GIB;
const SMALL_SLAB_BYTES: u32 = 4 * MIB as u32;
/// One whose data drives are larger than this together gets large slabs.
const LARGE_DATA_DRIVES_BYTES: u64 = 8 << 40;
const LARGE_SLAB_BYTES: u32 = 64 * MIB as u32;

/// Options of `quoin init`.
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("given").required(true).multiple(true).args(["drives", "drive"]),
    after_help = "Without --journal-drive, every drive holds both journal and data.\n\nExamples:\n  \
                  quoin init --data /srv/a --drives 4 --drive-size 8G   # one disk, nothing is protected\n  \
                  quoin init --data /srv/t --drives 4 --drive-size 4G --domain file --layout raid5   # to try it\n  \
                  quoin init --data /srv/a --drive /dev/sdb --drive /dev/sdc   # a mirror\n  \
                  quoin init --data /srv/a --drive /dev/sdb --drive /dev/sdc --drive /dev/sdd --drive /dev/sde \\\n      \
                  --journal-drive /dev/nvme0n1 --journal-drive /dev/nvme1n1 --layout raid5\n  \
                  quoin init --data /srv/a --drive /dev/sdb --drive /dev/sdc --drive /dev/sdd \\\n      \
                  --domain /dev/sdb=shelf-1 --domain /dev/sdc=shelf-1 --domain /dev/sdd=shelf-2\n  \
                  quoin init --data /srv/t --drives 24 --drive-size 4G --emulate 15k\n\n\
                  Drives on one disk are one fault domain. With several domains the layout is a mirror unless --layout \
                  says otherwise; the journal is written to as many drives as it takes to tolerate the same failures.\n\n\
                  A drive that holds something else is refused; --force overwrites it. A pool \
                  with immutable snapshots, or one of which that cannot be told, is overwritten only if its name is given \
                  by --pool-name or typed at the terminal."
)]
pub(crate) struct Args {
    /// Create this many file drives under DIR/drives
    #[arg(long, value_name = "N", requires = "drive_size", conflicts_with = "drive",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    drives: Option<u16>,
    /// Size of each file drive; the files are sparse
    #[arg(long, value_name = "SIZE", requires = "drives", value_parser = parse_size)]
    drive_size: Option<Size>,
    /// File or block device to use; repeatable
    #[arg(long, value_name = "PATH")]
    drive: Vec<PathBuf>,
    /// File or block device to use for the journal only; repeatable
    #[arg(long, value_name = "PATH")]
    journal_drive: Vec<PathBuf>,
    /// Speed to emulate on the drives of --drives and --drive, for tests: a technology (flash, nvme, 15k, 10k or 7.2k) and
    /// what differs from it, as in 15k,iops=180,latency_ms=5.5,mbps=150
    #[arg(long, value_name = "SPEED")]
    emulate: Option<Emulation>,
    /// The same for the drives of --journal-drive
    #[arg(long, value_name = "SPEED", requires = "journal_drive")]
    journal_emulate: Option<Emulation>,
    /// How data is protected: none, mirror, mirror-3, mirror-4, raid5 (3+1), raid6 (4+2) or data+parity columns such as 8+2
    /// [default: mirror if there are several fault domains, else none]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,
    /// Drives that the journal is written to side by side: policies of volumes tolerate one failure fewer at the most
    /// [default: as many as the layout tolerates failures, and one more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_JOURNAL_COLUMNS)))]
    journal_copies: Option<u8>,
    /// Keep space free for the loss of so many fault domains, so that what they held can be made again on the others: 1 to 8,
    /// or off [default: off]
    #[arg(long, value_name = "DOMAINS", value_parser = parse_spare)]
    spare: Option<u8>,
    /// What counts as a fault domain: file (each drive file is one), or PATH=NAME, the name of a drive's domain; repeatable
    /// [default: the disk that a drive is, or is on]
    #[arg(long, value_name = "file|PATH=NAME")]
    domain: Vec<DomainChoice>,
    /// Logs that the pool is divided into; each has its part of the drives and its own volumes
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_SLICES)))]
    slices: u8,
    /// Name of the array
    #[arg(long, default_value = "quoin")]
    name: String,
    /// iSCSI name of the target [default: derived from the pool's identity]
    #[arg(long)]
    iqn: Option<String>,
    /// Overwrite the present content of the drives
    #[arg(long)]
    force: bool,
    /// Name of a pool with immutable snapshots to overwrite; repeatable
    #[arg(long, value_name = "NAME", requires = "force")]
    pool_name: Vec<String>,
}

struct Candidate {
    path: PathBuf,
    roles: Roles,
    create_len: Option<u64>,
    emulate: Option<Emulation>,
}

pub(crate) fn run(global: &Global, args: Args) -> Result<(), Failure> {
    let data = DataDir::of(global)?;
    if data.has_config() {
        let shown = data.path().display().to_string();
        let why = format!("{shown} already holds an array");
        let next = "serve it: quoin serve --data DIR; or choose another directory";
        return Err(Failure::new("array not created", shown, why, next));
    }
    check_names(&args)?;
    let directory = data.file(if args.drives.is_some() { "drives" } else { "" });
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|error| data.unwritable("", &error))?;
    let candidates = candidates(&data, &args);
    // Files that are made here go again if the array cannot be made.
    let new: Vec<_> = candidates.iter().map(|c| &c.path).filter(|path| !path.exists()).cloned().collect();
    let made = make(&data, &args, &candidates);
    if made.is_err() {
        new.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    let (config, protected) = made?;
    let made = Made::of(&data, &config, protected);
    Output { format: global.output, headers: !global.no_headers }.show(&made, Made::text);
    Ok(())
}

fn make(data: &DataDir, args: &Args, candidates: &[Candidate]) -> Result<(Config, Protected), Failure> {
    let disks = candidates.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let paths: Vec<_> = candidates.iter().map(|candidate| candidate.path.as_path()).collect();
    let in_domains = domains(&paths, &args.domain)?;
    let drive = |((disk, candidate), domain): ((Arc<dyn Disk>, &Candidate), &InDomain)| NewDrive {
        disk,
        roles: candidate.roles,
        domain: domain.name.clone(),
    };
    let drives: Vec<_> = disks.into_iter().zip(candidates).zip(&in_domains).map(drive).collect();
    let mut options = format_options(&drives, &args.name, args.slices);
    choose(&mut options, &drives, args.layout, args.journal_copies);
    let protected = Protected::of(&options, &drives, &in_domains, args.spare.unwrap_or(0))?;
    // From here on the drives belong to the new pool.
    let pool = format(drives, options, args)?;
    let digits = pool.0.simple().to_string();
    let config = Config {
        name: args.name.clone(),
        iqn: args.iqn.clone().unwrap_or_else(|| format!("iqn.2026-11.io.quoin:{}", &digits[..12])),
        pool,
        serve: ServeConfig::default(),
        space: SpaceConfig {
            spare_domains: args.spare.filter(|domains| *domains > 0),
            ..SpaceConfig::default()
        },
        events: EventsConfig::default(),
        drives: candidates.iter().map(|candidate| drive_config(data, candidate)).collect::<Result<_, _>>()?,
    };
    let token = data.file(TOKEN_FILE);
    if !token.exists() {
        data.write(TOKEN_FILE, data.new_token(TOKEN_FILE)?.as_bytes(), 0o600)?;
    }
    // NOTE: last, since a directory with a configuration counts as an array.
    data.write_config(&config)?;
    Ok((config, protected))
}

fn check_names(args: &Args) -> Result<(), Failure> {
    if args.name.is_empty() || args.name.len() > 64 {
        let why = format!("the name {:?} has {} bytes", args.name, args.name.len());
        return Err(Failure::usage("array not created", why, "choose a name of 1 to 64 bytes"));
    }
    match &args.iqn {
        Some(iqn) if !is_target_name(iqn) => Err(Failure::usage(
            "array not created",
            format!("{iqn:?} is not a target's name"),
            "give one in lower case such as iqn.2026-11.com.example:array1",
        )),
        _ => Ok(()),
    }
}

fn candidates(data: &DataDir, args: &Args) -> Vec<Candidate> {
    let apart = !args.journal_drive.is_empty();
    let roles = Roles { journal: !apart, data: true };
    let files = (1..=args.drives.unwrap_or(0)).map(|number| Candidate {
        path: data.file(&format!("drives/drive-{number}")),
        roles,
        create_len: args.drive_size.map(|size| size.0),
        emulate: args.emulate,
    });
    let candidate = |roles, emulate| {
        move |path: &PathBuf| Candidate { path: path.clone(), roles, create_len: None, emulate }
    };
    let given = args.drive.iter().map(candidate(roles, args.emulate));
    let roles = Roles { journal: true, data: false };
    let journals = args.journal_drive.iter().map(candidate(roles, args.journal_emulate));
    files.chain(given).chain(journals).collect()
}

fn open(candidate: &Candidate) -> Result<Arc<dyn Disk>, Failure> {
    let Candidate { path, create_len, .. } = candidate;
    open_disk(path, OpenOptions { create_len: *create_len }).map_err(|error| {
        let next = "check that the drive exists, is readable and writable, and is not in use";
        Failure::new("array not created", format!("drive {}", path.display()), error.to_string(), next)
    })
}

/// Small arrays get small slabs, so that their journal has extents enough and their reserve stays small; large ones
/// get large slabs, so that the table of segments stays small.
fn format_options(drives: &[NewDrive], name: &str, slices: u8) -> FormatOptions {
    let sum = |wanted: fn(&Roles) -> bool| -> u64 {
        drives.iter().filter(|drive| wanted(&drive.roles)).map(|drive| drive.disk.len_bytes()).sum()
    };
    let (journal, data) = (sum(|roles| roles.journal), sum(|roles| roles.data));
    let mut options = FormatOptions { pool_name: name.to_owned(), slices, ..FormatOptions::default() };
    if data > LARGE_DATA_DRIVES_BYTES {
        options.slab_bytes = LARGE_SLAB_BYTES;
    } else if journal < SMALL_JOURNAL_DRIVES_BYTES && data < SMALL_DATA_DRIVES_BYTES {
        options.slab_bytes = SMALL_SLAB_BYTES;
    }
    options
}

/// Looks at every drive before it writes to any.
fn format(drives: Vec<NewDrive>, options: FormatOptions, args: &Args) -> Result<PoolId, Failure> {
    let world = LinuxWorld::start(1).map_err(|error| {
        Failure::new("array not created", "this system", error.to_string(), "resolve the cause given above")
    })?;
    let (force, names) = (args.force, args.pool_name.clone());
    let inner = world.clone();
    let done = world.run_on(Thread::Data(0), async move {
        let watched = drives.into_iter().map(|NewDrive { disk, roles, domain }| {
            let watch = DriveWatch::new(inner.clone(), Patience::default(), |_| ());
            let which = format!("drive {}", disk.name());
            watch
                .admit(disk)
                .map(|disk| NewDrive { disk, roles, domain })
                .map_err(|error| Failure::new("array not created", which, error.to_string(), "try again"))
        });
        let drives = watched.collect::<Result<Vec<_>, _>>()?;
        // Without --force nothing may be there.
        for NewDrive { disk, .. } in drives.iter().filter(|_| !force) {
            refuse_what_is_there(disk.name(), probe(disk).await)?;
        }
        // With it, pools that may hold immutable snapshots must be named.
        if force {
            let disks: Vec<_> = drives.iter().map(|drive| drive.disk.clone()).collect();
            require_names(&kept_pools(&disks).await, &names)?;
        }
        quoin_pool::format(&*inner, drives, options).await.map_err(|error| {
            let next = "check the drives and their sizes, then try again";
            Failure::new("array not created", "the pool", error.to_string(), next)
        })
    });
    let outcome = block_on(done);
    world.shutdown();
    outcome.unwrap_or_else(|| {
        let why = "initialising was interrupted";
        Err(Failure::new("array not created", "the pool", why, "try again, with --force"))
    })
}

fn refuse_what_is_there(path: &str, found: Result<Probe, DriveError>) -> Result<(), Failure> {
    let why = match found {
        Ok(Probe::Blank) => return Ok(()),
        Ok(Probe::Quoin(label)) => {
            format!("{path} is drive {} of the Quoin pool {} ({})", label.index, label.pool_name, label.pool)
        }
        Ok(Probe::Foreign(what)) => format!("{path} holds {what}"),
        Err(error) => error.to_string(),
    };
    let next = "choose another drive; or, to destroy what it holds, add --force";
    Err(Failure::new("array not created", format!("drive {path}"), why, next))
}

/// File drives of our own by their name in the data directory, so that it can be moved; others by the full path, as it
/// was given.
fn drive_config(data: &DataDir, candidate: &Candidate) -> Result<DriveConfig, Failure> {
    let path = match candidate.path.strip_prefix(data.path()) {
        Ok(inside) if candidate.create_len.is_some() => inside.to_owned(),
        // Links stay links: the name of their target may change.
        _ => std::path::absolute(&candidate.path).map_err(|error| {
            let shown = candidate.path.display().to_string();
            let why = format!("cannot tell the full path of {shown}: {error}");
            Failure::new("array not created", shown, why, "give an absolute path")
        })?,
    };
    Ok(DriveConfig { path, emulate: candidate.emulate })
}

/// What `quoin init` reports.
#[derive(serde::Serialize)]
struct Made {
    data: PathBuf,
    name: String,
    pool: PoolId,
    iqn: String,
    drives: Vec<PathBuf>,
    protection: Protected,
}

impl Made {
    fn of(data: &DataDir, config: &Config, protection: Protected) -> Self {
        let Config { name, pool, iqn, .. } = config.clone();
        Self { data: data.path().to_owned(), name, pool, iqn, drives: data.drive_paths(config), protection }
    }

    fn text(&self) -> String {
        let count = self.drives.len();
        let data = self.data.display();
        format!(
            "array {} created on {count} drive{}, target {}\n{}\nnext: quoin serve --data {data}",
            self.name,
            if count == 1 { "" } else { "s" },
            self.iqn,
            self.protection.text()
        )
    }
}
