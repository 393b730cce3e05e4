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

use crate::compare::write_noise;
use crate::load::At;
use crate::process::{Running, free_port, line, wait_until};

const HOST: &str = "iqn.2026-11.io.quoin:bench";

/// File drives of an array.
const DRIVES: usize = 4;

/// Volumes beside the large one, each of a quarter of its size.
pub(crate) const SMALL_VOLUMES: u16 = 4;

fn small_volume(number: u16) -> String {
    format!("bench{number}")
}

fn small_host(number: u16) -> String {
    format!("{HOST}{number}")
}

/// An array's directory and the program to run on it.
pub(crate) struct Array {
    pub(crate) binary: PathBuf,
    data: PathBuf,
    pub(crate) log: PathBuf,
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
    pub(crate) destaged_bytes: u64,
    pub(crate) cleaned_bytes: u64,
    pub(crate) checkpoints: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) journal_wraps: u64,
    /// Blocks that reads found in the read cache.
    pub(crate) cache_hits: u64,
    /// Blocks that reads looked for there in vain.
    pub(crate) cache_misses: u64,
}

impl Engine {
    fn parse(status: &Value) -> Result<Engine> {
        let field = |name: &str| {
            status["engine"][name]
                .as_u64()
                .with_context(|| format!("`quoin status -o json` has no number engine.{name}"))
        };
        Ok(Engine {
            destaged_bytes: field("destaged_bytes")?,
            cleaned_bytes: field("cleaned_bytes")?,
            checkpoints: field("checkpoints")?,
            journal_bytes: field("journal_bytes")?,
            journal_wraps: field("journal_wraps")?,
            cache_hits: field("cache_hits")?,
            cache_misses: field("cache_misses")?,
        })
    }

    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Engine) -> Engine {
        Engine {
            destaged_bytes: self.destaged_bytes.saturating_sub(before.destaged_bytes),
            cleaned_bytes: self.cleaned_bytes.saturating_sub(before.cleaned_bytes),
            checkpoints: self.checkpoints.saturating_sub(before.checkpoints),
            journal_bytes: self.journal_bytes.saturating_sub(before.journal_bytes),
            journal_wraps: self.journal_wraps.saturating_sub(before.journal_wraps),
            cache_hits: self.cache_hits.saturating_sub(before.cache_hits),
            cache_misses: self.cache_misses.saturating_sub(before.cache_misses),
        }
    }

    /// The share of blocks that reads found in the read cache; `None` if none were read.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let looked_for = self.cache_hits + self.cache_misses;
        (looked_for > 0).then(|| self.cache_hits as f64 / looked_for as f64)
    }

    /// Why a run that wrote says nothing: its work was only put off, or the journal was not gone through so many times.
    pub(crate) fn objection(&self, least_wraps: u64) -> Option<String> {
        if self.journal_wraps < least_wraps {
            return Some(format!(
                "the journal wrapped {} times, less than {least_wraps}",
                self.journal_wraps
            ));
        }
        let missing: Vec<&str> = [("destaged", self.destaged_bytes), ("checkpointed", self.checkpoints)]
            .into_iter()
            .filter_map(|(what, amount)| (amount == 0).then_some(what))
            .collect();
        (!missing.is_empty()).then(|| format!("nothing was {} during the run", missing.join(" or ")))
    }
}

impl Array {
    /// Makes an array with one mapped volume under `dir`, and [`SMALL_VOLUMES`] further ones, each of an initiator of
    /// its own; all are empty.
    pub(crate) fn create(
        binary: &Path,
        dir: &Path,
        volume_bytes: u64,
        init_args: &[String],
        serve_args: &[String],
    ) -> Result<Array> {
        let mut array = Array::init(binary, dir, volume_bytes.max(1 << 30), init_args, serve_args)?;
        let serving = array.serve()?;
        let mut commands = vec![serving.command.clone()];
        commands.append(&mut serving.map_volume(volume_bytes)?);
        for number in 0..SMALL_VOLUMES {
            commands.append(&mut serving.map(
                &small_volume(number),
                &small_host(number),
                volume_bytes / 4,
            )?);
        }
        drop(serving);
        array.commands.append(&mut commands);
        Ok(array)
    }

    /// Makes an array of four file drives of this size under `dir`; it has no volume. The files are written out before,
    /// as the peer's file is: a file system that gives a file its space at the first write makes that write dear.
    pub(crate) fn init(
        binary: &Path,
        dir: &Path,
        drive_bytes: u64,
        init_args: &[String],
        serve_args: &[String],
    ) -> Result<Array> {
        ensure!(
            binary.is_file(),
            "there is no {}; build it with `cargo build --release -p quoin` or name it with --quoin",
            binary.display()
        );
        let mut array = Array {
            binary: binary.to_owned(),
            data: dir.join("array"),
            log: dir.join("quoin.log"),
            serve_args: serve_args.to_vec(),
            commands: Vec::new(),
        };
        let mut init = vec!["init".to_owned(), "--force".to_owned()];
        for number in 0..DRIVES {
            let file = dir.join(format!("drive-{number}.img"));
            write_noise(&file, drive_bytes).with_context(|| format!("cannot write {}", file.display()))?;
            init.extend(["--drive".to_owned(), file.display().to_string()]);
        }
        init.extend_from_slice(init_args);
        let init: Vec<&str> = init.iter().map(String::as_str).collect();
        let init = array.run(&init)?.0;
        array.commands.push(init);
        Ok(array)
    }

    /// The name the generator logs in with.
    pub(crate) fn initiator(&self) -> &'static str {
        HOST
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
        let (portal, api) = (free_port()?, free_port()?);
        let mut command = self.command(&["serve", "--iscsi", &portal.to_string(), "--api", &api.to_string()]);
        command.args(&self.serve_args);
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
        self.map("bench", HOST, bytes)
    }

    /// Makes a volume and maps it as LUN 1 to a host of the same name with this initiator; returns what was run.
    fn map(&self, name: &str, initiator: &str, bytes: u64) -> Result<Vec<String>> {
        let size = bytes.to_string();
        let commands = [
            &["volume", "create", name, "--size", &size][..],
            &["host", "create", name, "--initiator", initiator],
            &["map", name, "--host", name, "--lun", "1"],
        ];
        commands.into_iter().map(|args| Ok(self.array.run(args)?.0)).collect()
    }

    /// Where and as whom the generator logs in for each of the small volumes.
    pub(crate) fn small(&self) -> Vec<At> {
        let at = |number| At { initiator: small_host(number), ..self.at() };
        (0..SMALL_VOLUMES).map(at).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_status_is_understood_and_what_it_lacks_is_named() {
        let status = json!({"ready": true, "iqn": "iqn.2026-11.io.quoin:a", "engine": {
            "destaged_bytes": 10, "cleaned_bytes": 0, "checkpoints": 2, "journal_bytes": 30, "journal_wraps": 1,
            "cache_hits": 3, "cache_misses": 1}});
        let after = Engine::parse(&status).unwrap();
        assert_eq!(after.destaged_bytes, 10);
        let error = Engine::parse(&json!({"engine": {"destaged_bytes": 1}})).unwrap_err();
        assert!(error.to_string().contains("engine.cleaned_bytes"));

        assert_eq!(after.hit_ratio(), Some(0.75));
        assert_eq!(after.since(&Engine::default()).objection(1), None);
        assert!(after.objection(3).unwrap().contains("wrapped 1 times, less than 3"));
        let idle = after.since(&after).objection(0).unwrap();
        assert_eq!(after.since(&after).hit_ratio(), None);
        assert!(idle.contains("destaged or checkpointed"));
        assert!(
            Engine { checkpoints: 0, ..after }.objection(0).unwrap().contains("nothing was checkpointed")
        );
    }
}
