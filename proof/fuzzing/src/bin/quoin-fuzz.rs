//! Fuzz targets without a fuzzer: their names, seeds, and runs of single inputs.

use anyhow::{Context, Result};
use clap::Parser;
use quoin_fuzzing::{Mutations, TARGETS, Target, target};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Fuzz targets without a fuzzer
#[derive(Parser)]
enum Cli {
    /// List the targets
    Targets,
    /// Write seeds and dictionaries, as the encoders make them now
    Seeds {
        /// The folder `fuzz` of the project
        directory: PathBuf,
    },
    /// Run inputs
    Run {
        /// The target
        target: String,
        /// Files, or folders of files
        inputs: Vec<PathBuf>,
    },
    /// Run changed inputs of every target in turn, for so long
    Mutate {
        /// The folder `fuzz` of the project
        directory: PathBuf,
        /// Only this target
        #[arg(long)]
        target: Option<String>,
        /// The first seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Seconds to go on
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
}

fn main() -> Result<()> {
    match Cli::parse() {
        Cli::Targets => TARGETS.iter().for_each(|target| println!("{}", target.name)),
        Cli::Seeds { directory } => TARGETS.iter().try_for_each(|target| write_seeds(&directory, target))?,
        Cli::Run { target, inputs } => {
            let target = find(&target)?;
            for (path, bytes) in inputs.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?.concat() {
                println!("{}: {} bytes", path.display(), bytes.len());
                (target.run)(&bytes);
            }
        }
        Cli::Mutate { directory, target, seed, seconds } => {
            let only = target.as_deref().map(find).transpose()?;
            let targets = TARGETS.iter().filter(|target| only.is_none_or(|only| only.name == target.name));
            mutate(&directory, &targets.collect::<Vec<_>>(), seed, Duration::from_secs(seconds))?;
        }
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Target> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    target(name).with_context(|| format!("no target called {name}; there are: {}", names()))
}

fn read(path: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let context = || format!("reading {}", path.display());
    if !path.is_dir() {
        return Ok(vec![(path.to_owned(), fs::read(path).with_context(context)?)]);
    }
    let entries = fs::read_dir(path).with_context(context)?.collect::<Result<Vec<_>, _>>()?;
    let mut files = entries.iter().map(|entry| read(&entry.path())).collect::<Result<Vec<_>>>()?.concat();
    files.sort();
    Ok(files)
}

fn write_seeds(directory: &Path, target: &Target) -> Result<()> {
    let corpus = directory.join("corpus").join(target.name);
    fs::create_dir_all(&corpus)?;
    for (name, bytes) in (target.seeds)() {
        fs::write(corpus.join(format!("seed_{name}")), bytes)?;
    }
    let dictionaries = directory.join("dictionaries");
    fs::create_dir_all(&dictionaries)?;
    let quoted = |word: &Vec<u8>| word.iter().map(|byte| format!("\\x{byte:02X}")).collect::<String>();
    let lines: Vec<String> = (target.words)().iter().map(|word| format!("\"{}\"\n", quoted(word))).collect();
    fs::write(dictionaries.join(format!("{}.dict", target.name)), lines.concat())?;
    Ok(())
}

/// Says what it is about to try, so that what ends the process can be tried again.
fn mutate(directory: &Path, targets: &[&Target], first: u64, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    let mut tried = 0u64;
    for seed in first.. {
        for target in targets {
            let mut inputs = Vec::new();
            for kind in ["corpus", "regressions"].map(|kind| directory.join(kind).join(target.name)) {
                if kind.is_dir() {
                    inputs.extend(read(&kind)?.into_iter().map(|(_, bytes)| bytes));
                }
            }
            println!("{}: seed {seed}, {} changed inputs", target.name, target.mutations);
            let mut mutations = Mutations::new(seed, (target.words)());
            for _ in 0..target.mutations {
                if Instant::now() >= until {
                    println!("{tried} inputs, the last seed was {seed}");
                    return Ok(());
                }
                let input = mutations.of(&inputs);
                let ended = std::panic::catch_unwind(|| (target.run)(&input));
                if ended.is_err() {
                    let trying = std::env::temp_dir().join(format!("quoin-{}-{seed}", target.name));
                    fs::write(&trying, &input)?;
                    anyhow::bail!(
                        "{} fails with seed {seed}; again: cargo run -p quoin-fuzzing -- run {} {}",
                        target.name,
                        target.name,
                        trying.display()
                    );
                }
                tried += 1;
            }
        }
    }
    Ok(())
}
