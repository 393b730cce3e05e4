//! `quoin-trial`: puts real databases on volumes of a real array, and the array through crashes.

mod array;
mod attach;
mod drives;
mod failures;
mod guest;
mod ledger;
mod load;
mod postgres;
mod process;
mod raw;
mod rounds;
mod snapshots;
mod space;
mod sweep;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rounds::{Plan, Trial};
use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

/// Trials of the array with real databases
///
/// Needs root and Debian's postgresql, qemu-utils, qemu-block-extra, libnbd-bin, e2fsprogs. Everything it starts
/// and makes is under one work directory and goes with it.
#[derive(Parser)]
#[command(version)]
enum Cli {
    /// PostgreSQL under load while its array is killed, with a ledger of every acknowledged commit
    Postgres {
        #[command(flatten)]
        plan: Plan,
        /// Directory for drives, mounts and logs; a new one under /var/tmp if not given
        #[arg(long)]
        work: Option<PathBuf>,
    },
    /// PostgreSQL under load while the drives of its array fail one after the other, with a ledger of every acknowledged
    /// commit
    Drives {
        #[command(flatten)]
        plan: drives::Plan,
        /// Directory for drives, mounts and logs; a new one under /var/tmp if not given
        #[arg(long)]
        work: Option<PathBuf>,
    },
    /// Snapshots of a group of volumes with PostgreSQL on them under load: a second PostgreSQL on each, restores, refreshes
    Snapshots {
        #[command(flatten)]
        plan: snapshots::Plan,
        /// Directory for drives, mounts and logs; a new one under /var/tmp if not given
        #[arg(long)]
        work: Option<PathBuf>,
    },
    /// Snapshots, clones, restores and deletions of volumes in all orders, every block compared; needs no root, no packages
    RawSnapshots {
        #[command(flatten)]
        plan: raw::Plan,
        /// Directory for drives and logs; a new one under /var/tmp if not given
        #[arg(long)]
        work: Option<PathBuf>,
    },
    /// Short histories of drives that fail, vanish, hang, rot, return, are taken out and added while hosts write, every
    /// block compared; needs no root, no packages
    Failures {
        #[command(flatten)]
        plan: failures::Plan,
        /// Directory for drives and logs; a new one under /var/tmp if not given
        #[arg(long)]
        work: Option<PathBuf>,
    },
    /// A Linux kernel's own iSCSI and NBD initiators in an emulated machine, over two paths, and a cluster's failover of
    /// PostgreSQL; needs no root, but busybox-static, fio, libnbd-bin, multipath-tools, nbd-client, open-iscsi,
    /// postgresql, python3-pexpect, python3-pycurl, qemu-system-x86, sg3-utils, socat, udev, and apt-get for Debian's
    /// kernel and fence agents
    Guest {
        #[command(flatten)]
        plan: guest::Plan,
        /// Directory for drives and logs; a new one under /var/tmp if not given
        #[arg(long)]
        work: Option<PathBuf>,
    },
}

const TOOLS: [(&str, &str); 8] = [
    ("/usr/bin/qemu-nbd", "qemu-utils"),
    ("/usr/bin/nbdfuse", "libnbd-bin"),
    ("/usr/lib/postgresql", "postgresql"),
    ("/usr/bin/setpriv", "util-linux"),
    ("/sbin/losetup", "mount"),
    ("/sbin/mkfs.ext4", "e2fsprogs"),
    ("/dev/fuse", "fuse3"),
    ("/dev/loop-control", "no package: the kernel has no loop devices"),
];

fn main() -> Result<()> {
    match Cli::parse() {
        Cli::Postgres { plan, work } => {
            prepare_to_attach()?;
            in_work_directory(work, |work| postgres(plan, work))
        }
        Cli::Drives { plan, work } => {
            prepare_to_attach()?;
            in_work_directory(work, |work| {
                let (seed, quoin) = begin(plan.seed, plan.quoin.as_deref(), work)?;
                drives::Trial::create(plan, &quoin, work, seed)?.run()
            })
        }
        Cli::Snapshots { plan, work } => {
            prepare_to_attach()?;
            in_work_directory(work, |work| {
                let (seed, quoin) = begin(plan.seed, plan.quoin.as_deref(), work)?;
                snapshots::Trial::create(plan, &quoin, work, seed)?.run()
            })
        }
        Cli::RawSnapshots { plan, work } => in_work_directory(work, |work| {
            let (seed, quoin) = begin(plan.seed, plan.quoin.as_deref(), work)?;
            raw::run(&plan, &quoin, work, seed)
        }),
        Cli::Failures { plan, work } => in_work_directory(work, |work| {
            let (seed, quoin) = begin(plan.seed, plan.quoin.as_deref(), work)?;
            failures::run(&plan, &quoin, work, seed)
        }),
        Cli::Guest { plan, work } => {
            guest::check_tools()?;
            in_work_directory(work, |work| guest::run_trial(&plan, work))
        }
    }
}

/// Runs a trial in a directory that is kept only if it fails.
fn in_work_directory(work: Option<PathBuf>, trial: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let work = work.unwrap_or_else(|| PathBuf::from(format!("{}{}", sweep::WORK_PREFIX, std::process::id())));
    std::fs::create_dir(&work).with_context(|| format!("making the work directory {}", work.display()))?;
    watch_for_interrupt()?;
    let ended = trial(&work);
    match &ended {
        Ok(()) => std::fs::remove_dir_all(&work)?,
        Err(_) => {
            // Drives are sparse files: without room they fail writes, which looks like a full pool to the host.
            let room = rustix::fs::statvfs(&work).map(|fs| (fs.f_bavail * fs.f_frsize) >> 20)?;
            println!("kept for a look, {room} MiB are free there: {}", work.display());
        }
    }
    ended
}

/// What devices on this host need.
fn prepare_to_attach() -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    ensure!(root, "this mounts and attaches devices, so it must run as root");
    for (path, package) in TOOLS {
        ensure!(Path::new(path).exists(), "{path} is missing; Debian package: {package}");
    }
    sweep::leftovers()
}

/// Settles the seed, which is printed, and which program is the array.
fn begin(seed: Option<u64>, quoin: Option<&Path>, work: &Path) -> Result<(u64, PathBuf)> {
    let seed = seed.unwrap_or_else(|| std::process::id().into());
    let quoin = match quoin {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?.with_file_name("quoin"),
    };
    println!("seed {seed}, work directory {}", work.display());
    Ok((seed, quoin))
}

fn postgres(plan: Plan, work: &Path) -> Result<()> {
    let (seed, quoin) = begin(plan.seed, plan.quoin.as_deref(), work)?;
    let must_fail = plan.ignore_flushes;
    let mut trial = Trial::create(plan, &quoin, work, seed)?;
    match trial.run() {
        Err(error) if must_fail && !process::INTERRUPTED.load(Ordering::Relaxed) => {
            println!("found, as it has to be: {error:#}");
            Ok(())
        }
        Ok(()) if must_fail => {
            bail!("the drives lied about flushes, power was cut, and nothing was found missing")
        }
        ended => ended,
    }
}

/// From the first Ctrl-C or SIGTERM on, every wait ends with an error, and everything is taken down.
fn watch_for_interrupt() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            process::INTERRUPTED.store(true, Ordering::Relaxed);
        });
    });
    Ok(())
}
