//! The peer: `tgtd` of Debian's package `tgt`, in the foreground, on ports and sockets of its own.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::proc;
use crate::process::{Running, free_port, line, wait_until};

/// A backing store of tgtd and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Store {
    pub(crate) kind: &'static str,
    pub(crate) flags: &'static str,
}

impl Store {
    /// Writes through the page cache, acknowledged before they are on the drive.
    pub(crate) const RDWR: Store = Store { kind: "rdwr", flags: "" };
    pub(crate) const RDWR_DIRECT: Store = Store { kind: "rdwr", flags: "direct" };
    pub(crate) const RDWR_SYNC: Store = Store { kind: "rdwr", flags: "sync" };
    pub(crate) const RDWR_SYNC_DIRECT: Store = Store { kind: "rdwr", flags: "sync:direct" };
    /// `O_DIRECT` without a flush; this store takes no flags.
    pub(crate) const AIO: Store = Store { kind: "aio", flags: "" };

    pub(crate) const ALL: [Store; 5] =
        [Store::RDWR, Store::RDWR_DIRECT, Store::RDWR_SYNC, Store::RDWR_SYNC_DIRECT, Store::AIO];

    pub(crate) fn name(&self) -> String {
        let flags = self.flags.replace(':', "+");
        [self.kind, &flags].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
    }

    /// Whether a write acknowledged survives the loss of power: only `O_SYNC` flushes the drive.
    pub(crate) fn is_durable(&self) -> bool {
        self.flags.contains("sync")
    }

    pub(crate) fn parse(text: &str) -> Result<Store, String> {
        let name = |store: &Store| store.name().replace([' ', '+'], "-");
        Store::ALL.into_iter().find(|store| name(store) == text).ok_or_else(|| {
            format!("there are {}", Store::ALL.iter().map(name).collect::<Vec<_>>().join(", "))
        })
    }
}

/// A running tgtd that serves one file as LUN 1 to everyone.
pub(crate) struct Tgtd {
    pub(crate) process: Running,
    pub(crate) portal: SocketAddr,
    pub(crate) commands: Vec<String>,
    /// How tgtd holds the backing file, as the kernel tells it.
    pub(crate) open_flags: String,
}

/// The name of the target that is served.
pub(crate) const TARGET: &str = "iqn.2026-11.io.quoin.bench:tgtd";

/// Version of the installed tgtd, or what to do if there is none.
pub(crate) fn version() -> Result<String> {
    let output =
        Command::new("tgtd").arg("-V").output().context("cannot run tgtd; install Debian's package 'tgt'")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Tgtd {
    /// Starts tgtd on `file`; its log and sockets go to `dir`.
    pub(crate) fn start(dir: &Path, file: &Path, store: Store) -> Result<Tgtd> {
        version()?;
        let control = Control { socket: dir.join("tgtd.sock") };
        let log = dir.join("tgtd.log");
        let portal = free_port()?;
        let mut command = Command::new("tgtd");
        command.args(["-f", "-C", "1", "--iscsi", &format!("portal={portal}")]);
        command.env("TGT_IPC_SOCKET", &control.socket);
        let mut commands = vec![line(&command)];
        // It ignores SIGTERM while it has targets. Nothing it acknowledged as durable is lost by killing it.
        let mut process = Running::start("tgtd", &command, Signal::KILL, File::create(&log)?)?;
        wait_until("tgtd answers", Duration::from_secs(10), || {
            process.check_alive()?;
            Ok(control.run(&["--mode", "target", "--op", "show"]).is_ok())
        })
        .with_context(|| format!("tgtd did not start; its log is {}", log.display()))?;

        commands.push(control.run(&["--mode", "target", "--op", "new", "--tid", "1", "-T", TARGET])?);
        for (key, value) in SESSION_KEYS {
            let update =
                ["--mode", "target", "--op", "update", "--tid", "1", "--name", key, "--value", value];
            commands.push(control.run(&update)?);
        }
        let mut unit = vec!["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "--bstype"];
        let file_name = file.to_str().context("the backing file's path is not UTF-8")?;
        unit.extend([store.kind, "--backing-store", file_name]);
        if !store.flags.is_empty() {
            unit.extend(["--bsoflags", store.flags]);
        }
        commands.push(control.run(&unit)?);
        commands.push(control.run(&["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"])?);
        let open_flags =
            proc::open_flags(process.pid(), file).context("tgtd does not hold its backing file open")?;
        ensure!(
            store.is_durable() == open_flags.contains("SYNC"),
            "tgtd with {} opened its file {open_flags}: it does not do what its flags say",
            store.name()
        );
        Ok(Tgtd { process, portal, commands, open_flags })
    }
}

/// What tgtd is told to agree to, so that its small defaults do not hold it back.
const SESSION_KEYS: [(&str, &str); 4] = [
    ("MaxRecvDataSegmentLength", "262144"),
    ("FirstBurstLength", "262144"),
    ("MaxBurstLength", "1048576"),
    ("InitialR2T", "No"),
];

/// tgtd's administration, reached through a socket of our own.
struct Control {
    socket: PathBuf,
}

impl Control {
    /// Runs one command and returns it as one would type it.
    fn run(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new("tgtadm");
        command.args(["-C", "1", "--lld", "iscsi"]).args(args).env("TGT_IPC_SOCKET", &self.socket);
        let output = command.output().context("cannot run tgtadm; install Debian's package 'tgt'")?;
        if !output.status.success() {
            bail!("{} failed: {}", line(&command), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(line(&command))
    }
}
