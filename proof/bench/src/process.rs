//! Programs started for a measurement: they end with the value that stands for them.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to end after its signal before it is killed.
const GRACE: Duration = Duration::from_secs(60);

/// A child process; ended when dropped.
pub(crate) struct Running {
    name: &'static str,
    child: Child,
    end_by: Signal,
}

impl Running {
    /// Starts a program that is to be ended by the signal `end_by`, also if this one is killed meanwhile;
    /// what it says on stderr goes to `log`.
    pub(crate) fn start(name: &'static str, command: &Command, end_by: Signal, log: File) -> Result<Running> {
        let signal = if end_by == Signal::KILL { "KILL" } else { "TERM" };
        let mut tied = Command::new("setpriv");
        tied.args(["--pdeathsig", signal, "--"]).arg(command.get_program()).args(command.get_args());
        tied.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        tied.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = tied.spawn().with_context(|| format!("cannot start: {}", line(command)))?;
        Ok(Running { name, child, end_by })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}", self.name),
        }
    }

    /// Asks the program to end, and waits; kills it only if it does not listen.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        if self.child.try_wait()?.is_none() {
            kill_process(pid, self.end_by)?;
            let limit = Instant::now() + GRACE;
            while self.child.try_wait()?.is_none() {
                if Instant::now() > limit {
                    self.child.kill()?;
                    self.child.wait()?;
                    bail!("{} did not end within {} s and was killed", self.name, GRACE.as_secs());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("quoin-bench: {error:#}");
        }
    }
}

/// A loopback address nobody listens on just now.
pub(crate) fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Polls until `done` says so.
pub(crate) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + limit;
    while !done()? {
        if Instant::now() > end {
            bail!("waited {} s in vain until {what}", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A command as one would type it, the environment it was given before it.
pub(crate) fn line(command: &Command) -> String {
    let settings = command
        .get_envs()
        .filter_map(|(key, value)| Some(format!("{}={}", key.to_string_lossy(), value?.to_string_lossy())));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    settings.chain(words.map(|word| word.to_string_lossy().into_owned())).collect::<Vec<_>>().join(" ")
}
