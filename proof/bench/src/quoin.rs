//! Quoin under measurement: made, started and asked through its command line only.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use crate::files::write_noise;
use crate::load::At;
use crate::process::{Running, free_port, line, wait_until};

const HOST: &str = "iqn.2026-11.io.quoin:bench";

/// File drives of an array.
pub(crate) const DRIVES: usize = 4;

/// The volume that is measured, and the name of its NBD export.
pub(crate) const VOLUME: &str = "bench";

/// An array's directory and the program to run on it.
pub(crate) struct Array {
    pub(crate) binary: PathBuf,
    data: PathBuf,
    pub(crate) log: PathBuf,
    drives: Vec<PathBuf>,
    init_args: Vec<String>,
    serve_args: Vec<String>,
    /// What was run to make the array.
    pub(crate) commands: Vec<String>,
}

/// A serving array.
pub(crate) struct Serving<'a> {
    array: &'a Array,
    pub(crate) process: Running,
    pub(crate) portal: SocketAddr,
    pub(crate) target: String,
    pub(crate) command: String,
}

/// What the engine has done since it started, as `quoin status -o json` tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Engine {
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) destaged_bytes: u64,
    pub(crate) cleaned_bytes: u64,
    /// Bytes read from all drives.
    pub(crate) drive_read_bytes: u64,
    /// Bytes written to all drives.
    pub(crate) drive_written_bytes: u64,
    /// Blocks that reads found in the read cache.
    pub(crate) cache_hits: u64,
    /// Blocks that reads did not find in the read cache.
    pub(crate) cache_misses: u64,
}

impl Engine {
    fn parse(status: &Value) -> Result<Engine> {
        let field = |name: &str| number(status, &format!("/engine/{name}"));
        let drives = status["drives"].as_array().context("`quoin status -o json` has no list drives")?;
        let sum = |name: &str| drives.iter().map(|drive| number(drive, name)).sum::<Result<u64>>();
        Ok(Engine {
            written_bytes: field("written_bytes")?,
            read_bytes: field("read_bytes")?,
            journal_bytes: field("journal_bytes")?,
            checkpoint_bytes: field("checkpoint_bytes")?,
            destaged_bytes: field("destaged_bytes")?,
            cleaned_bytes: field("cleaned_bytes")?,
            drive_read_bytes: sum("/read_bytes")?,
            drive_written_bytes: sum("/write_bytes")?,
            cache_hits: field("cache_hits")?,
            cache_misses: field("cache_misses")?,
        })
    }

    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Engine) -> Engine {
        Engine {
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            journal_bytes: self.journal_bytes.saturating_sub(before.journal_bytes),
            checkpoint_bytes: self.checkpoint_bytes.saturating_sub(before.checkpoint_bytes),
            destaged_bytes: self.destaged_bytes.saturating_sub(before.destaged_bytes),
            cleaned_bytes: self.cleaned_bytes.saturating_sub(before.cleaned_bytes),
            drive_read_bytes: self.drive_read_bytes.saturating_sub(before.drive_read_bytes),
            drive_written_bytes: self.drive_written_bytes.saturating_sub(before.drive_written_bytes),
            cache_hits: self.cache_hits.saturating_sub(before.cache_hits),
            cache_misses: self.cache_misses.saturating_sub(before.cache_misses),
        }
    }

    /// Bytes written to segments: all that the drives took but for journal and metadata.
    pub(crate) fn placed_bytes(&self) -> u64 {
        self.drive_written_bytes.saturating_sub(self.journal_bytes + self.checkpoint_bytes)
    }

    /// Whether at least a quarter of what hosts wrote went to segments as well, so that the work was not only put off. It
    /// is no more than that because destage follows seconds later, at the rate that hosts had then.
    pub(crate) fn is_settled(&self) -> bool {
        4 * self.placed_bytes() >= self.written_bytes
    }

    /// The share of blocks that reads found in the read cache; `None` if none were read.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let looked_for = self.cache_hits + self.cache_misses;
        (looked_for > 0).then(|| self.cache_hits as f64 / looked_for as f64)
    }
}

impl Array {
    /// Makes an array of four file drives of this size under `dir`; it has no volume. The files are written out before,
    /// as the peer's file is: a file system that gives a file its space at the first write makes that write dear.
    pub(crate) fn init(
        binary: &Path,
        dir: &Path,
        drive_bytes: u64,
        init_args: &[String],
        serve_args: &[String],
    ) -> Result<Array> {
        Array::init_on(binary, dir, DRIVES, drive_bytes, init_args, serve_args)
    }

    /// The same on so many drives.
    pub(crate) fn init_on(
        binary: &Path,
        dir: &Path,
        drives: usize,
        drive_bytes: u64,
        init_args: &[String],
        serve_args: &[String],
    ) -> Result<Array> {
        ensure!(
            binary.is_file(),
            "there is no {}; build it with `cargo build --release -p quoin` or name it with --quoin",
            binary.display()
        );
        let drives: Vec<PathBuf> =
            (0..drives).map(|number| dir.join(format!("drive-{number}.img"))).collect();
        for file in &drives {
            write_noise(file, drive_bytes).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let mut array = Array {
            binary: binary.to_owned(),
            data: dir.join("array"),
            log: dir.join("quoin.log"),
            drives,
            init_args: init_args.to_vec(),
            serve_args: serve_args.to_vec(),
            commands: Vec::new(),
        };
        array.format()?;
        Ok(array)
    }

    /// Makes the array anew on its files, without a volume.
    pub(crate) fn format(&mut self) -> Result<()> {
        if self.data.exists() {
            std::fs::remove_dir_all(&self.data)?;
        }
        let mut init = vec!["init".to_owned(), "--force".to_owned()];
        for file in &self.drives {
            init.extend(["--drive".to_owned(), file.display().to_string()]);
        }
        init.extend_from_slice(&self.init_args);
        // Peers keep one copy too.
        if !self.init_args.iter().any(|arg| arg.starts_with("--layout")) {
            init.extend(["--layout".to_owned(), "none".to_owned()]);
        }
        let init: Vec<&str> = init.iter().map(String::as_str).collect();
        self.commands = vec![self.run(&init)?.0];
        Ok(())
    }

    /// The same with other arguments for `quoin init`.
    pub(crate) fn format_with(&mut self, init_args: Vec<String>) -> Result<()> {
        self.init_args = init_args;
        self.format()
    }

    /// The files of its drives.
    pub(crate) fn drives(&self) -> &[PathBuf] {
        &self.drives
    }

    pub(crate) fn version(&self) -> Result<String> {
        let output = Command::new(&self.binary).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        let (verb, rest) = args.split_first().expect("every command has a verb");
        command.arg(verb).arg("--data").arg(&self.data).args(rest).stdin(Stdio::null());
        command
    }

    /// Runs one command to its end; returns it as typed, and what it printed.
    fn run(&self, args: &[&str]) -> Result<(String, Vec<u8>)> {
        let mut command = self.command(args);
        let output = command.output().with_context(|| format!("cannot run {}", line(&command)))?;
        if !output.status.success() {
            bail!("{} failed: {}", line(&command), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok((line(&command), output.stdout))
    }

    /// Starts the array and waits until it is ready.
    pub(crate) fn serve(&self) -> Result<Serving<'_>> {
        self.serve_within(None)
    }

    /// The same with a limit to the RAM it may take, in bytes.
    pub(crate) fn serve_within(&self, memory_bytes: Option<u64>) -> Result<Serving<'_>> {
        self.serve_to(memory_bytes, None)
    }

    /// The same to NBD clients at this address as well.
    pub(crate) fn serve_to(&self, memory_bytes: Option<u64>, nbd: Option<SocketAddr>) -> Result<Serving<'_>> {
        let (portal, api) = (free_port()?, free_port()?);
        let mut command = self.command(&["serve", "--iscsi", &portal.to_string(), "--api", &api.to_string()]);
        command.args(&self.serve_args);
        if let Some(nbd) = nbd {
            command.args(["--nbd", &nbd.to_string()]);
        }
        if let Some(bytes) = memory_bytes {
            command.args(["--memory-limit", &bytes.to_string()]);
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let command_line = line(&command);
        let mut process = Running::start("quoin", &command, Signal::TERM, log)?;
        let mut target = None;
        wait_until("the array is ready", Duration::from_secs(60), || {
            process.check_alive()?;
            let Ok(status) = self.status() else { return Ok(false) };
            target = status["iqn"].as_str().map(str::to_owned);
            Ok(status["ready"] == true)
        })
        .with_context(|| format!("the array did not start; its log is {}", self.log.display()))?;
        let target = target.context("`quoin status -o json` has no text `iqn`")?;
        Ok(Serving { array: self, process, portal, target, command: command_line })
    }

    /// The offline check of everything on the drives; an error if it finds anything. Its last line.
    pub(crate) fn check(&self) -> Result<String> {
        let said = String::from_utf8_lossy(&self.run(&["check"])?.1).trim().to_owned();
        Ok(said.lines().last().unwrap_or_default().to_owned())
    }

    fn status(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&self.run(&["status", "-o", "json"])?.1)?)
    }
}

impl Serving<'_> {
    pub(crate) fn engine(&self) -> Result<Engine> {
        Engine::parse(&self.status()?)
    }

    /// All that `quoin status -o json` tells.
    pub(crate) fn status(&self) -> Result<Value> {
        self.array.status()
    }

    /// The longest that a fork held writes since the array was started.
    pub(crate) fn longest_fork_ms(&self) -> Result<f64> {
        let held = &self.status()?["engine"]["longest_fork_ms"];
        held.as_f64().context("`quoin status -o json` has no number engine.longest_fork_ms")
    }

    /// Runs a command of the array's; returns what it printed.
    pub(crate) fn tell(&self, args: &[&str]) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.array.run(args)?.1).into_owned())
    }

    /// Makes the host that the generator is; what it sees is mapped by [`Serving::show`].
    pub(crate) fn create_host(&self) -> Result<()> {
        self.tell(&["host", "create", "bench", "--initiator", HOST]).map(drop)
    }

    /// Maps a volume, or what came of one, to the generator; returns how it is reached.
    pub(crate) fn show(&self, volume: &str, lun: u16) -> Result<At> {
        self.tell(&["map", volume, "--host", "bench", "--lun", &lun.to_string(), "--writable"])?;
        Ok(self.lun(lun))
    }

    /// Where and as whom the generator logs in for what is mapped to it as this LUN.
    pub(crate) fn lun(&self, lun: u16) -> At {
        At { lun, ..self.at() }
    }

    /// Makes a volume and maps it as LUN 1 to the generator; returns what was run.
    pub(crate) fn map_volume(&self, bytes: u64) -> Result<Vec<String>> {
        let size = bytes.to_string();
        let commands = [
            &["volume", "create", VOLUME, "--size", &size][..],
            &["host", "create", VOLUME, "--initiator", HOST],
            &["map", VOLUME, "--host", VOLUME, "--lun", "1"],
        ];
        commands.into_iter().map(|args| Ok(self.array.run(args)?.0)).collect()
    }

    /// Shows the volume to NBD clients; returns what was run.
    pub(crate) fn export(&self, volume: &str) -> Result<String> {
        Ok(self.array.run(&["export", "create", volume])?.0)
    }

    /// Where and as whom the generator logs in.
    pub(crate) fn at(&self) -> At {
        At { portal: self.portal, target: self.target.clone(), lun: 1, initiator: HOST.to_owned() }
    }
}

/// A number of `quoin status -o json`.
pub(crate) fn number(status: &Value, pointer: &str) -> Result<u64> {
    status
        .pointer(pointer)
        .and_then(Value::as_u64)
        .with_context(|| format!("`quoin status -o json` has no number {pointer}"))
}

/// The program beside this one, unless another is named.
pub(crate) fn binary(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(path) => Ok(path.to_owned()),
        None => Ok(std::env::current_exe()?.with_file_name("quoin")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_status_is_understood_and_what_it_lacks_is_named() {
        let mut status = json!({"ready": true, "iqn": "iqn.2026-11.io.quoin:a", "engine": {
            "written_bytes": 100, "read_bytes": 7, "destaged_bytes": 10, "cleaned_bytes": 0, "journal_bytes": 110,
            "checkpoint_bytes": 5, "cache_hits": 3, "cache_misses": 1},
            "drives": [{"read_bytes": 1, "write_bytes": 80}, {"read_bytes": 2, "write_bytes": 85}]});
        let after = Engine::parse(&status).unwrap();
        assert_eq!((after.drive_read_bytes, after.drive_written_bytes), (3, 165));
        assert_eq!(after.hit_ratio(), Some(0.75));
        assert_eq!(after.since(&after).hit_ratio(), None);

        assert_eq!(after.placed_bytes(), 50);
        assert!(after.is_settled());
        assert!(Engine { drive_written_bytes: 140, ..after }.is_settled());
        assert!(!Engine { drive_written_bytes: 139, ..after }.is_settled(), "less than a quarter was placed");

        status["engine"].as_object_mut().unwrap().remove("cleaned_bytes");
        assert!(Engine::parse(&status).unwrap_err().to_string().contains("/engine/cleaned_bytes"));
        status["drives"][1].as_object_mut().unwrap().remove("write_bytes");
        assert!(number(&status, "/drives/1/write_bytes").is_err());
    }
}
