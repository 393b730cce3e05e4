//! `cargo xtask fuzz`: libFuzzer on the targets of `quoin-fuzzing`, for as long as wanted.

use crate::step::{Outcome, cargo, output, run as run_command, step, summary};
use anyhow::{Context, Result, bail, ensure};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// No input takes this long; what does, hangs.
const LONGEST_SECONDS: u32 = 30;
/// What one input may take of RAM. A target and what its inputs taught the fuzzer take a few hundred.
const MOST_MEMORY_MIB: u32 = 2048;
/// Inputs kept in the repository are at most this long.
const KEPT_BYTES: u32 = 8192;

/// What to fuzz, and for how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this target, a part of a name, or several of them separated by commas
    #[arg(long, value_delimiter = ',')]
    target: Vec<String>,
    /// Minutes for each target
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// Add the inputs that reached new code to the checked-in ones
    #[arg(long)]
    keep: bool,
    /// Only write the seeds and dictionaries anew, as the encoders make them now
    #[arg(long)]
    make_seeds: bool,
    /// List the targets
    #[arg(long)]
    list: bool,
}

/// Fuzzes one target after the other. What fails is minimised and kept under `proof/fuzz/regressions`.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.make_seeds {
        return cargo(&["run", "--quiet", "--package", "quoin-fuzzing", "--", "seeds", "proof/fuzz"]);
    }
    let names = targets()?;
    if options.list {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    let chosen = |name: &&String| {
        options.target.is_empty() || options.target.iter().any(|part| name.contains(part.as_str()))
    };
    let chosen: Vec<&String> = names.iter().filter(chosen).collect();
    ensure!(
        !chosen.is_empty(),
        "no target like {}; there are: {}",
        options.target.join(", "),
        names.join(", ")
    );
    let there = Command::new("rustup").args(["run", "nightly", "cargo", "fuzz", "--version"]).output();
    ensure!(
        there.is_ok_and(|tried| tried.status.success()),
        "libFuzzer needs a nightly compiler and cargo-fuzz: rustup toolchain install nightly; cargo install cargo-fuzz. \
         Without them: cargo run -p quoin-fuzzing -- mutate fuzz --seconds 600"
    );
    let fuzzed: Vec<(&String, Outcome)> =
        chosen.into_iter().map(|name| (name, step(name, || fuzz(name, options)))).collect();
    let outcomes: Vec<Outcome> = fuzzed.into_iter().map(|(_, outcome)| outcome).collect();
    summary(&outcomes)
}

/// The names in `proof/fuzz/Cargo.toml`.
fn targets() -> Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Manifest {
        bin: Vec<Bin>,
    }
    #[derive(serde::Deserialize)]
    struct Bin {
        name: String,
    }
    let text = fs::read_to_string("proof/fuzz/Cargo.toml").context("reading proof/fuzz/Cargo.toml")?;
    let manifest: Manifest = toml::from_str(&text)?;
    Ok(manifest.bin.into_iter().map(|bin| bin.name).collect())
}

fn fuzz(name: &str, options: &Options) -> Result<()> {
    let folders = ["work", "corpus", "regressions"].map(|kind| Path::new("proof/fuzz").join(kind).join(name));
    for folder in &folders {
        fs::create_dir_all(folder)?;
    }
    let artifacts = Path::new("proof/fuzz/artifacts").join(name);
    let before = files(&artifacts);
    let mut command = cargo_fuzz("run", name);
    command.args(&folders).arg("--").args([
        format!("-max_total_time={}", options.minutes * 60),
        format!("-timeout={LONGEST_SECONDS}"),
        format!("-rss_limit_mb={MOST_MEMORY_MIB}"),
        format!("-dict=proof/fuzz/dictionaries/{name}.dict"),
        "-print_final_stats=1".to_owned(),
    ]);
    let fuzzed = run_command(&mut command);
    // Git knows no empty folders; others are no worse for them.
    let _ = fs::remove_dir(&folders[2]);
    if fuzzed.is_err() {
        let found: Vec<PathBuf> = files(&artifacts).difference(&before).cloned().collect();
        for input in &found {
            report(name, input)?;
        }
        bail!("{} inputs make it fail", found.len());
    }
    if options.keep {
        let mut merge = cargo_fuzz("run", name);
        merge.args([&folders[1], &folders[0]]).args(["--", "-merge=1"]).arg(format!("-max_len={KEPT_BYTES}"));
        run_command(&mut merge)?;
    }
    Ok(())
}

/// Without a sanitizer: the code under test is safe Rust, whose checks panic.
fn cargo_fuzz(verb: &str, name: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args([
        "run",
        "nightly",
        "cargo",
        "fuzz",
        verb,
        "--fuzz-dir",
        "proof/fuzz",
        "--sanitizer",
        "none",
        name,
    ]);
    command
}

/// Makes an input that fails as short as it gets, and keeps it where the ordinary tests replay it.
fn report(name: &str, input: &Path) -> Result<()> {
    let mut minimise = cargo_fuzz("tmin", name);
    let shorter = match output(minimise.arg(input)) {
        Ok(_) => files(&Path::new("proof/fuzz/artifacts").join(name))
            .into_iter()
            .filter(|file| {
                file.file_name().is_some_and(|file| file.to_string_lossy().starts_with("minimized-from"))
            })
            .min_by_key(|file| fs::metadata(file).map_or(u64::MAX, |data| data.len())),
        Err(_) => None,
    };
    let shortest = shorter.unwrap_or_else(|| input.to_owned());
    let folder = Path::new("proof/fuzz/regressions").join(name);
    fs::create_dir_all(&folder)?;
    let file_name = input.file_name().context("an artifact has a name")?;
    let kept = folder.join(file_name);
    fs::copy(&shortest, &kept)?;
    println!(
        "\nkept as {}; again: cargo run -p quoin-fuzzing -- run {name} {}",
        kept.display(),
        kept.display()
    );
    Ok(())
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
