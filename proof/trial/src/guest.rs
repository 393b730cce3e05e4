//! The guest trial: a Linux kernel's own initiators, iSCSI and NBD, live on volumes, and the array under it is killed, its paths go
//! silent, and what it shows changes. The checks are scripts that run in the guest (`guest/checks.sh`); they
//! report each, and ask for what is to happen to the array, over a serial port.

mod database;
mod machine;
mod packages;
mod route;

use crate::{
    array::{Array, Kind, Pool},
    process::{run, tail},
};
use anyhow::{Context, Result, bail, ensure};
use machine::{Kernel, Machine};
use packages::unpacked;
use route::Route;
use std::{
    fs::File,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The first is run, and reads the others.
const SCRIPTS: [(&str, &str); 4] = [
    ("checks.sh", include_str!("guest/checks.sh")),
    ("cluster.sh", include_str!("guest/cluster.sh")),
    ("paths.sh", include_str!("guest/paths.sh")),
    ("queues.sh", include_str!("guest/queues.sh")),
];
const DRIVES: usize = 2;
const DRIVE_BYTES: u64 = 4 << 30;
/// What `guest/checks.sh` expects.
const VOLUME_BYTES: u64 = 512 << 20;
/// How long a guest may say nothing; a check's own limits are shorter.
const SILENCE_LIMIT: Duration = Duration::from_secs(360);
const TOOLS: [(&str, &str); 16] = [
    ("/bin/busybox", "busybox-static"),
    ("/sbin/e2fsck", "e2fsprogs"),
    ("/usr/bin/fio", "fio"),
    ("/bin/ip", "iproute2"),
    ("/usr/bin/nbdcopy", "libnbd-bin"),
    ("/sbin/iscsid", "open-iscsi"),
    ("/lib/systemd/systemd-udevd", "udev"),
    ("/sbin/multipathd", "multipath-tools"),
    ("/sbin/nbd-client", "nbd-client"),
    ("/usr/lib/postgresql", "postgresql"),
    ("/var/lib/dpkg/info/python3-pexpect.list", "python3-pexpect"),
    ("/var/lib/dpkg/info/python3-pycurl.list", "python3-pycurl"),
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/usr/bin/setpriv", "util-linux"),
    ("/usr/bin/sg_unmap", "sg3-utils"),
    ("/usr/bin/socat", "socat"),
];

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// The quoin binary; the one beside this program if not given
    #[arg(long)]
    quoin: Option<PathBuf>,
    /// Directory that keeps Debian's kernel and fence agents; `guest` in cargo's target directory if not given
    #[arg(long)]
    kernels: Option<PathBuf>,
}

/// An error that names the first tool that is missing, and its Debian package.
pub(crate) fn check_tools() -> Result<()> {
    for (path, package) in TOOLS {
        ensure!(Path::new(path).exists(), "{path} is missing; Debian package: {package}");
    }
    Ok(())
}

/// Runs the trial; an error if a check fails.
pub(crate) fn run_trial(plan: &Plan, work: &Path) -> Result<()> {
    let program = std::env::current_exe()?;
    let quoin = plan.quoin.clone().unwrap_or_else(|| program.with_file_name("quoin"));
    let kernels = match &plan.kernels {
        Some(kernels) => kernels.clone(),
        None => program.parent().and_then(Path::parent).context("no target directory")?.join("guest"),
    };
    let kernels = std::path::absolute(kernels)?;
    let kernel = Kernel::fetch(&kernels)?;
    let agents = unpacked("fence-agents", kernels.join("fence-agents"), |_| Ok(()))?;
    let mut trial = Trial::create(&std::path::absolute(quoin)?, &kernel, agents, work)?;
    let ended = trial.follow();
    if ended.is_err() {
        println!(
            "the guest's console, {}:\n{}",
            trial.machine.console().display(),
            tail(trial.machine.console())
        );
    }
    let (passed, failed) = ended?;
    let said = trial.stop()?;
    println!("the array stopped in good order; {}", said.lines().last().unwrap_or_default());
    ensure!(failed.is_empty(), "{passed} checks passed, {} failed: {}", failed.len(), failed.join("; "));
    println!("{passed} checks passed");
    Ok(())
}

/// Fields are in the order in which they have to go when it is dropped.
struct Trial {
    machine: Machine,
    control: BufReader<UnixStream>,
    route: Route,
    /// To the other portal.
    second_route: Route,
    array: Array,
    quoin: PathBuf,
    /// Where Debian's fence agents are unpacked.
    agents: PathBuf,
    work: PathBuf,
    started: Instant,
}

impl Trial {
    fn create(quoin: &Path, kernel: &Kernel, agents: PathBuf, work: &Path) -> Result<Self> {
        let started = Instant::now();
        let drives: Vec<_> = (0..DRIVES).map(|number| work.join(format!("drive{number}"))).collect();
        for drive in &drives {
            File::create(drive)?.set_len(DRIVE_BYTES)?;
        }
        let array = Array::create(Kind::Quoin, quoin, work, Pool::of(drives, 1), VOLUME_BYTES)?;
        array.require_chap(work)?;
        let (route, second_route) = (Route::to(&array.target()?.portal)?, Route::to(array.second_portal())?);
        let ports = [route.port(), second_route.port()];
        let (machine, control) = Machine::boot(kernel, work, &SCRIPTS, ports, array.nbd_socket())?;
        control.set_read_timeout(Some(Duration::from_millis(500)))?;
        let (quoin, work) = (quoin.to_owned(), work.to_owned());
        Ok(Self {
            machine,
            control: BufReader::new(control),
            route,
            second_route,
            array,
            quoin,
            agents,
            work,
            started,
        })
    }

    /// Prints what the guest reports and does what it asks for, to its end. Returns how many checks passed, and
    /// those that failed.
    fn follow(&mut self) -> Result<(usize, Vec<String>)> {
        let (mut passed, mut failed) = (0, Vec::new());
        loop {
            let line = self.line()?;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("pass", what) => {
                    passed += 1;
                    self.say(&format!("pass  {what}"));
                }
                ("fail", what) => {
                    failed.push(what.split(':').next().unwrap_or(what).to_owned());
                    self.say(&format!("FAIL  {what}"));
                }
                ("ask", what) => {
                    let answer = match self.answer(what) {
                        Ok(answer) => {
                            format!("ok {}", answer.split_whitespace().collect::<Vec<_>>().join(" "))
                        }
                        Err(error) => format!("error {}", format!("{error:#}").replace('\n', " ")),
                    };
                    self.control.get_mut().write_all(format!("{answer}\n").as_bytes())?;
                }
                ("end", _) => break,
                _ => self.say(&format!("the guest says: {line}")),
            }
        }
        ensure!(passed + failed.len() > 0, "the guest ended without a single check");
        Ok((passed, failed))
    }

    /// The next line of the guest.
    fn line(&mut self) -> Result<String> {
        let deadline = Instant::now() + SILENCE_LIMIT;
        let mut line = Vec::new();
        loop {
            match self.control.read_until(b'\n', &mut line) {
                Ok(0) => {
                    self.machine.alive()?;
                    bail!("the guest closed its serial port");
                }
                Ok(_) => return Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error).context("reading what the guest says"),
            }
            ensure!(!crate::process::INTERRUPTED.load(Ordering::Relaxed), "interrupted");
            ensure!(
                Instant::now() < deadline,
                "nothing heard of the guest for {} s",
                SILENCE_LIMIT.as_secs()
            );
            self.machine.alive()?;
            self.array.alive()?;
        }
    }

    fn answer(&mut self, ask: &str) -> Result<String> {
        match ask.split_once(' ').unwrap_or((ask, "")) {
            ("iqn", _) => Ok(self.array.target()?.iqn),
            ("agents", _) => Ok(self.agents.display().to_string()),
            ("database", _) => database::make(&self.array, &self.work),
            ("checksum", _) => database::checksum(&self.array, &self.work),
            // How many lines of the array's log hold a text.
            ("logged", text) => {
                let log = std::fs::read_to_string(self.work.join("array.log"))?;
                Ok(log.lines().filter(|line| line.contains(text)).count().to_string())
            }
            ("quoin", args) => {
                let (quoin, data) = (self.quoin.display().to_string(), self.work.join("array"));
                let data = data.display().to_string();
                run(&[&[quoin.as_str(), "--data", &data], &args.split(' ').collect::<Vec<_>>()[..]].concat())
            }
            _ => {
                let news = self.act(ask)?;
                self.say(&format!("      {news}"));
                Ok(String::new())
            }
        }
    }

    /// Has something happen to the array or the paths to it; returns what.
    fn act(&mut self, ask: &str) -> Result<String> {
        let news = match ask {
            "kill" => {
                self.array.kill()?;
                "the array is killed"
            }
            "stop" => {
                let said = self.array.stop_and_check()?;
                return Ok(format!("the array is stopped; {}", said.lines().last().unwrap_or_default()));
            }
            "start" => {
                let took = self.array.start()?;
                return Ok(format!("the array is ready again in {:.2} s", took.as_secs_f64()));
            }
            "silence" => {
                self.route.go_silent();
                "the path is silent"
            }
            "cut" => {
                self.second_route.set_down(true);
                "the second path is cut"
            }
            "mend" => {
                self.second_route.set_down(false);
                "the second path is back"
            }
            "disable" => {
                self.array.tell(&["portal", "disable", self.array.second_portal(), "--force"])?;
                "the second portal is disabled"
            }
            "enable" => {
                self.array.tell(&["portal", "enable", self.array.second_portal()])?;
                "the second portal is enabled"
            }
            _ => bail!("the trial knows no `{ask}`"),
        };
        Ok(news.to_owned())
    }

    fn stop(self) -> Result<String> {
        self.machine.end()?;
        let mut array = self.array;
        array.stop_and_check()
    }

    fn say(&self, what: &str) {
        println!("[{:7.1} s] {what}", self.started.elapsed().as_secs_f64());
    }
}
