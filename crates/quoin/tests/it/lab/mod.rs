//! The binary, a data directory for it, and the process that serves it.

use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub(crate) struct Lab {
    _directory: TempDir,
    data: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process that serves; killed when dropped.
pub(crate) struct Serving(Child);

impl Lab {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let data = directory.path().join("data");
        Self { _directory: directory, data }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        outcome(quoin().env("QUOIN_DATA", &self.data).args(args))
    }

    pub(crate) fn run_without_data(&self, args: &[&str], variables: &[(&str, &str)]) -> Outcome {
        outcome(quoin().args(args).envs(variables.iter().copied()))
    }

    /// Runs a command that must succeed; its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!(outcome.code, Some(0), "{args:?}: {outcome:?}");
        outcome.stdout
    }

    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["-o", "json"]].concat())).unwrap()
    }

    /// Starts serving on free ports.
    pub(crate) fn serve(&self, args: &[&str]) -> Serving {
        let ports = ["serve", "--iscsi", "127.0.0.1:0", "--api", "127.0.0.1:0"];
        let mut command = quoin();
        command.env("QUOIN_DATA", &self.data).args(ports).args(args).stderr(Stdio::null());
        drop(fs::remove_file(self.data.join("run/api")));
        Serving(command.spawn().unwrap())
    }

    /// The same, with limits of open files as prlimit takes them.
    pub(crate) fn serve_with_files(&self, limits: &str, args: &[&str]) -> Serving {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limits}")).arg(env!("CARGO_BIN_EXE_quoin"));
        command.args(["serve", "--iscsi", "127.0.0.1:0", "--api", "127.0.0.1:0"]).args(args);
        command.env("QUOIN_DATA", &self.data).stderr(Stdio::null());
        drop(fs::remove_file(self.data.join("run/api")));
        Serving(command.spawn().expect("prlimit of util-linux is needed"))
    }

    /// What it tells those who scrape its metrics.
    pub(crate) fn metrics(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.data.join(name)).unwrap().trim().to_owned();
        let mut api = TcpStream::connect(read("run/api")).unwrap();
        let token = read("metrics_token");
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: quoin\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        api.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        api.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until the array is ready; its status.
    pub(crate) fn ready(&self) -> Value {
        self.until(&["status"], |status| status["ready"] == true)
    }

    pub(crate) fn until(&self, args: &[&str], mut condition: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let outcome = self.run(&[args, &["-o", "json"]].concat());
            if let Some(value) = serde_json::from_str(&outcome.stdout).ok().filter(|value| condition(value)) {
                return value;
            }
            assert!(Instant::now() < deadline, "waited for a minute in vain: {outcome:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Serving {
    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The most RAM it has had so far, in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// SIGHUP, which must do nothing.
    pub(crate) fn hang_up(&self) {
        self.signal("HUP");
    }

    /// SIGTERM, and waits for a clean end.
    pub(crate) fn terminate(&mut self) {
        self.signal("TERM");
        assert!(self.0.wait().unwrap().success());
    }

    /// SIGTERM, and waits for any end, but not for longer than this. True if it ended.
    pub(crate) fn stop_within(&mut self, limit: Duration) -> bool {
        self.signal("TERM");
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if self.0.try_wait().unwrap().is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn quoin() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quoin"));
    for variable in ["QUOIN_DATA", "QUOIN_API", "QUOIN_TOKEN_FILE"] {
        command.env_remove(variable);
    }
    command
}

fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
