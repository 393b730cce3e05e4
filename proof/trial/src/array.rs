//! The array under trial, and a peer in its place that shows that the trial itself is sound.

use crate::process::{Process, free_port, outcome, run, wait_until};
use anyhow::{Context, Result, ensure};
use quoin_initiator::Endpoint;
use rustix::process::Signal;
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The name the trial's host logs in with.
pub(crate) const INITIATOR: &str = "iqn.2026-11.test:trial";
const HOST: &str = "trial";
const VOLUME: &str = "trial";
const READY_LIMIT: Duration = Duration::from_secs(120);
/// The kernel may need a moment to let go of the drives of a process that was killed.
const OFFLINE_GRACE: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Who serves the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Quoin.
    Quoin,
    /// The Linux SCSI target framework, to check the trial against something known.
    Tgtd,
}

/// How an initiator reaches the volume.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) portal: String,
    pub(crate) iqn: String,
    pub(crate) lun: u32,
}

/// An array that can be killed and started again, at the same addresses.
#[derive(Debug)]
pub(crate) struct Array {
    kind: Kind,
    quoin: String,
    data: String,
    drives: Vec<PathBuf>,
    log: PathBuf,
    iscsi: String,
    /// A portal beside that one.
    second_iscsi: String,
    api: String,
    nbd_socket: PathBuf,
    process: Option<Process>,
}

/// What the array's pool is made of.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) drives: Vec<PathBuf>,
    pub(crate) slices: u8,
    pub(crate) layout: String,
    /// What speed is emulated on its drives, if any: then they can be made to fail.
    pub(crate) emulate: Option<String>,
    /// Lines for the section `serve` of the array's configuration.
    pub(crate) settings: String,
}

impl Pool {
    /// Of these drive files, which nothing protects.
    pub(crate) fn of(drives: Vec<PathBuf>, slices: u8) -> Self {
        Self { drives, slices, layout: "none".to_owned(), emulate: None, settings: String::new() }
    }

    /// Options of `quoin init` that make it. Each file is a fault domain.
    fn options(&self) -> Vec<String> {
        let drives = self.drives.iter().map(|drive| format!("--drive={}", drive.display()));
        let emulate = self.emulate.iter().map(|speed| format!("--emulate={speed}"));
        let is_protected = self.layout != "none";
        let domain = is_protected.then(|| "--domain=file".to_owned());
        let others = [format!("--slices={}", self.slices), format!("--layout={}", self.layout)];
        drives.chain(emulate).chain(domain).chain(others).collect()
    }
}

/// Options of `quoin volume create` that reduce what is written to a volume: with two of three names.
pub(crate) fn reduction(name: &str) -> &'static [&'static str] {
    match name.bytes().map(u32::from).sum::<u32>() % 3 {
        0 => &["--compression", "lz4", "--dedup", "on"],
        1 => &["--compression", "zstd", "--dedup", "on"],
        _ => &[],
    }
}

impl Array {
    /// Makes an array of the drive files and starts it with one volume that the trial's host may use.
    pub(crate) fn create(
        kind: Kind,
        quoin: &Path,
        work: &Path,
        pool: Pool,
        volume_bytes: u64,
    ) -> Result<Self> {
        let array = Self::without_volumes(kind, quoin, work, pool)?;
        if kind == Kind::Quoin {
            array.add_volume(VOLUME, volume_bytes, 1)?;
        }
        Ok(array)
    }

    /// Makes an array and starts it; it knows the trial's host, and has no volume.
    pub(crate) fn without_volumes(kind: Kind, quoin: &Path, work: &Path, pool: Pool) -> Result<Self> {
        let mut array = Self {
            kind,
            quoin: quoin.display().to_string(),
            data: work.join("array").display().to_string(),
            drives: pool.drives.clone(),
            log: work.join("array.log"),
            iscsi: format!("127.0.0.1:{}", free_port()?),
            second_iscsi: format!("127.0.0.1:{}", free_port()?),
            api: format!("127.0.0.1:{}", free_port()?),
            nbd_socket: work.join("array-nbd.sock"),
            process: None,
        };
        if kind == Kind::Quoin {
            let mut init = vec![array.quoin.clone(), "init".into(), "--data".into(), array.data.clone()];
            init.extend(pool.options());
            run(&init)?;
            array.configure(&pool.settings)?;
        }
        array.start()?;
        if kind == Kind::Quoin {
            array.tell(&["host", "create", HOST, "--initiator", INITIATOR])?;
        }
        Ok(array)
    }

    /// Adds lines to the section `serve` of the array's configuration, which it reads when it starts.
    fn configure(&self, settings: &str) -> Result<()> {
        let path = Path::new(&self.data).join("quoin.toml");
        let configuration = std::fs::read_to_string(&path)?;
        let section = "[serve]\n";
        ensure!(configuration.contains(section), "{} has no section serve", path.display());
        Ok(std::fs::write(&path, configuration.replacen(section, &format!("{section}{settings}"), 1))?)
    }

    /// Makes a volume that the trial's host sees at a LUN.
    pub(crate) fn add_volume(&self, name: &str, bytes: u64, lun: u32) -> Result<()> {
        let size = bytes.to_string();
        self.tell(&[&["volume", "create", name, "--size", &size], reduction(name)].concat())?;
        self.map(name, lun)
    }

    /// Shows a volume, or what came of one, to the trial's host.
    pub(crate) fn map(&self, name: &str, lun: u32) -> Result<()> {
        self.tell(&["map", name, "--host", HOST, "--lun", &lun.to_string(), "--writable"]).map(drop)
    }

    /// Starts the array and returns the time until it was ready.
    pub(crate) fn start(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let socket = self.nbd_socket.display().to_string();
        let args: Vec<&str> = match self.kind {
            Kind::Quoin => {
                let serve = [&self.quoin, "serve", "--data", &self.data, "--api", &self.api];
                let portals = ["--iscsi", &self.iscsi, "--iscsi", &self.second_iscsi];
                [&serve[..], &portals, &["--nbd-socket", &socket]].concat()
            }
            Kind::Tgtd => return self.start_tgtd().map(|()| started.elapsed()),
        };
        let mut process = Process::start("quoin serve", &args, &self.log)?;
        wait_until("the array to be ready", READY_LIMIT, || {
            process.alive()?;
            let status = self.status().unwrap_or_default();
            let given_up = status["state"] == "offline" && started.elapsed() > OFFLINE_GRACE;
            ensure!(!given_up, "the array cannot open its pool: {}", status["reason"]);
            Ok(status["ready"] == true)
        })?;
        self.process = Some(process);
        Ok(started.elapsed())
    }

    /// Lets it do nothing more, until it is killed.
    pub(crate) fn halt(&self) -> Result<()> {
        self.process.as_ref().context("the array is not running")?.signal(Signal::STOP);
        Ok(())
    }

    /// `kill -9`. Nothing of the array runs on return.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.take().context("the array is not running")?.kill()
    }

    /// An orderly stop, then the offline check of everything on the drives.
    pub(crate) fn stop_and_check(&mut self) -> Result<String> {
        let process = self.process.take().context("the array is not running")?;
        match self.kind {
            Kind::Quoin => {
                process.stop(STOP_LIMIT)?;
                run(&[self.quoin.as_str(), "check", "--data", &self.data])
                    .context("quoin check found problems")
            }
            Kind::Tgtd => process.kill().map(|()| "no check for tgtd".to_owned()),
        }
    }

    /// An error if the array ended by itself.
    pub(crate) fn alive(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::alive)
    }

    /// Where NBD is served.
    pub(crate) fn nbd_socket(&self) -> &Path {
        &self.nbd_socket
    }

    /// How the first volume is reached.
    pub(crate) fn target(&self) -> Result<Target> {
        self.target_at(1)
    }

    /// How the volume at a LUN is reached.
    pub(crate) fn target_at(&self, lun: u32) -> Result<Target> {
        let iqn = match self.kind {
            Kind::Quoin => self.status()?["iqn"].as_str().context("the status has no iqn")?.to_owned(),
            Kind::Tgtd => TGTD_IQN.to_owned(),
        };
        Ok(Target { portal: self.iscsi.clone(), iqn, lun })
    }

    /// The same for the trial's own initiator.
    pub(crate) fn endpoint(&self, lun: u32) -> Result<Endpoint> {
        let Target { portal, iqn, lun } = self.target_at(lun)?;
        let portal = portal.parse().context("the portal's address")?;
        let lun = u16::try_from(lun).context("a LUN")?;
        Ok(Endpoint { portal, target: iqn, initiator: INITIATOR.to_owned(), lun })
    }

    /// Figures of the last recovery and of the engine, one `name value` after the other.
    pub(crate) fn figures(&self, section: &str) -> String {
        let status = self.status().unwrap_or_default();
        let fields = status[section].as_object().into_iter().flatten();
        fields
            .filter(|(_, value)| !value.is_object())
            .map(|(name, value)| format!("{name} {value}"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// All that `quoin status -o json` tells.
    pub(crate) fn status(&self) -> Result<Value> {
        match self.kind {
            // It fails when the array is not ready, and tells why all the same.
            Kind::Quoin => {
                Ok(serde_json::from_slice(&outcome(&self.command(&["status", "-o", "json"]))?.stdout)?)
            }
            Kind::Tgtd => Ok(Value::Null),
        }
    }

    /// Hides it again.
    pub(crate) fn unmap(&self, name: &str) -> Result<()> {
        self.tell(&["unmap", name, "--host", HOST, "--force"]).map(drop)
    }

    /// Makes the trial's host prove itself by CHAP, and the array to it. The guest's script knows the same secrets.
    pub(crate) fn require_chap(&self, work: &Path) -> Result<()> {
        let file = |name: &str, secret: &str| -> Result<String> {
            let path = work.join(name);
            std::fs::write(&path, secret)?;
            Ok(path.display().to_string())
        };
        let (host, array) =
            (file("host.secret", "secret-of-guest")?, file("array.secret", "secret-of-array")?);
        let chap = ["--chap-user", "guest", "--chap-secret-file", &host];
        let mutual = ["--mutual-user", "array", "--mutual-secret-file", &array];
        self.tell(&[&["host", "set", HOST][..], &chap, &mutual].concat()).map(drop)
    }

    /// The portal beside that of [`Array::target`].
    pub(crate) fn second_portal(&self) -> &str {
        &self.second_iscsi
    }

    /// Runs a command of the array's command line; returns what it printed.
    pub(crate) fn tell(&self, args: &[&str]) -> Result<String> {
        run(&self.command(args))
    }

    /// A command of the array's command line, to be run when it is wanted.
    pub(crate) fn command(&self, args: &[&str]) -> Vec<String> {
        let command = [&[self.quoin.as_str(), "--data", &self.data], args].concat();
        command.into_iter().map(str::to_owned).collect()
    }

    fn start_tgtd(&mut self) -> Result<()> {
        let control = (free_port()? % 32768).to_string();
        let portal = format!("portal={}", self.iscsi);
        let args = ["tgtd", "-f", "-C", &control, "--iscsi", &portal];
        let process = self.process.insert(Process::start("tgtd", &args, &self.log)?);
        let tgtadm = |args: &str| {
            let args = format!("tgtadm -C {control} --lld iscsi --op {args}");
            run(&args.split(' ').collect::<Vec<_>>())
        };
        wait_until("tgtd to listen", READY_LIMIT, || {
            process.alive()?;
            Ok(tgtadm("show --mode sys").is_ok())
        })?;
        tgtadm(&format!("new --mode target --tid 1 -T {TGTD_IQN}"))?;
        let file = self.drives[0].display();
        tgtadm(&format!("new --mode logicalunit --tid 1 --lun 1 -b {file} --bsoflags direct"))?;
        tgtadm("bind --mode target --tid 1 -I ALL")?;
        Ok(())
    }
}

const TGTD_IQN: &str = "iqn.2026-11.test:tgtd";
