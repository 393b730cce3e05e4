//! Processes of a trial: started with a log, ended by their own id, and never outliving the trial.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use std::{
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Set by Ctrl-C; every wait then ends with an error, and unwinding cleans up.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A running child process. Killed when dropped, and by the kernel if the trial itself dies.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `args[0]` with the other arguments; output goes to `log`, appended.
    pub(crate) fn start<S: AsRef<str>>(name: &'static str, args: &[S], log: &Path) -> Result<Self> {
        Self::start_as(name, &[], args, log)
    }

    /// The same with options for `setpriv`, to become another user.
    pub(crate) fn start_as<S: AsRef<str>>(
        name: &'static str,
        privileges: &[&str],
        args: &[S],
        log: &Path,
    ) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log);
        let output = output.with_context(|| format!("opening {}", log.display()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(privileges)
            .arg("--")
            .args(args.iter().map(AsRef::as_ref))
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// An error with the end of the log if the process has ended by itself.
    pub(crate) fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}); {}:\n{}", self.name, self.log.display(), tail(&self.log));
        }
        Ok(())
    }

    /// Sends a signal; a process that has ended already is not an error.
    pub(crate) fn signal(&self, signal: Signal) {
        // The child has not been waited for, so its id cannot belong to another process.
        rustix::process::kill_process(self.pid(), signal).ok();
    }

    /// `SIGKILL`, and waits for the end.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL);
        self.ended(Duration::from_secs(30))
    }

    /// `SIGTERM`, and waits for an orderly end.
    pub(crate) fn stop(mut self, limit: Duration) -> Result<()> {
        self.signal(Signal::TERM);
        self.ended(limit)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{} stopped with {status}:\n{}", self.name, tail(&self.log));
        Ok(())
    }

    pub(crate) fn ended(&mut self, limit: Duration) -> Result<()> {
        let name = self.name;
        wait_until(&format!("the end of {name}"), limit, || Ok(self.child.try_wait()?.is_some()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::KILL);
            let patience = Instant::now() + Duration::from_secs(10);
            while Instant::now() < patience && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Runs a command to its end and returns what it printed; an error carries its complaints.
pub(crate) fn run<S: AsRef<str>>(args: &[S]) -> Result<String> {
    let output = outcome(args)?;
    let line = || args.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "`{}`: {}\n{stdout}{stderr}", line(), output.status);
    Ok(stdout.into_owned())
}

/// Runs a command to its end, whether it succeeds or not.
pub(crate) fn outcome<S: AsRef<str>>(args: &[S]) -> Result<Output> {
    let output = Command::new(args[0].as_ref())
        .args(args[1..].iter().map(AsRef::as_ref))
        .current_dir("/")
        // They would lead the array's command line to another array.
        .env_remove("QUOIN_API")
        .env_remove("QUOIN_TOKEN_FILE")
        .stdin(Stdio::null())
        .output();
    output
        .with_context(|| format!("running {}", args.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")))
}

/// Polls until `done` says so.
pub(crate) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !done()? {
        ensure!(Instant::now() < deadline, "waited {} s in vain for {what}", limit.as_secs());
        pause(Duration::from_millis(20))?;
    }
    Ok(())
}

/// Sleeps, unless interrupted.
pub(crate) fn pause(duration: Duration) -> Result<()> {
    let until = Instant::now() + duration;
    loop {
        ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// The process ids whose parent is `parent`.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent.as_raw_nonzero().get()))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Whether a process exists and is more than an entry waiting to be reaped.
pub(crate) fn is_running(pid: Pid) -> bool {
    stat_field(pid.as_raw_nonzero().get(), 0).is_some_and(|state| state != "Z")
}

fn parent_of(pid: i32) -> Option<i32> {
    stat_field(pid, 1)?.parse().ok()
}

/// A field of `/proc/PID/stat`, counted from the one after the program's name.
fn stat_field(pid: i32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(field)?.to_owned())
}

/// A TCP port on 127.0.0.1 that nobody listens on.
pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
