//! Running commands, and telling how long steps took.

use anyhow::{Context, Result, ensure};
use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

/// What was run and how it ended.
pub(crate) struct Outcome {
    name: String,
    took: Duration,
    error: Option<String>,
}

impl Outcome {
    pub(crate) fn is_failure(&self) -> bool {
        self.error.is_some()
    }
}

/// As whom a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    User,
    Root,
}

/// Runs a step and prints how it ended.
pub(crate) fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Outcome {
    println!("\n== {name}");
    let started = Instant::now();
    let error = work().err().map(|error| format!("{error:#}"));
    let took = started.elapsed();
    match &error {
        None => println!("== {name}: good, {:.1} s", took.as_secs_f64()),
        Some(error) => println!("== {name}: FAILED, {:.1} s: {error}", took.as_secs_f64()),
    }
    Outcome { name: name.to_owned(), took, error }
}

/// Prints all outcomes; an error if one of them is.
pub(crate) fn summary(outcomes: &[Outcome]) -> Result<()> {
    println!("\n== summary");
    for outcome in outcomes {
        let verdict = outcome.error.as_deref().map_or("good".to_owned(), |error| format!("FAILED: {error}"));
        println!("{:>8.1} s  {:<14} {verdict}", outcome.took.as_secs_f64(), outcome.name);
    }
    let total: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    println!("{:>8.1} s  in all", total.as_secs_f64());
    let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
    ensure!(failed == 0, "{failed} of {} steps failed", outcomes.len());
    Ok(())
}

/// Runs cargo with the lock file as it is.
pub(crate) fn cargo(args: &[&str]) -> Result<()> {
    run(cargo_command().args(args))
}

/// The same with warnings of rustdoc as errors.
pub(crate) fn cargo_doc(args: &[&str]) -> Result<()> {
    run(cargo_command().args(args).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs a program of the workspace that was built with a profile: `debug` is the one that all tests use.
pub(crate) fn program(profile: &str, name: &str, as_whom: As, args: &[String]) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let program = std::path::absolute(target.join(profile).join(name))?;
    match as_whom {
        As::Root if !rustix::process::geteuid().is_root() => {
            run(Command::new("sudo").arg(program).args(args))
        }
        _ => run(Command::new(program).args(args)),
    }
}

/// Runs a command, showing what it prints.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}").replace('"', "");
    println!("$ {line}");
    let status = command.status().with_context(|| format!("running {line}"))?;
    ensure!(status.success(), "`{line}`: {status}");
    Ok(())
}

/// What a command prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
