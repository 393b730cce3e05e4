//! `cargo xtask shape`: figures of the source code that may only get better.
//!
//! `shape.toml` names each figure, the value that it must not be worse than, and the value that is wanted. A change that
//! makes a figure worse is refused. A change that makes one better lowers the limit in the same commit.

mod imports;
mod items;
mod source;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use source::Source;
use std::{collections::BTreeMap, fs};

const LIMITS: &str = "shape.toml";

/// What to print.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// List what this figure counts, with the place of each
    #[arg(long, value_name = "FIGURE")]
    list: Option<String>,
}

/// A figure, and what it counts.
pub(super) struct Figure {
    name: &'static str,
    value: f64,
    places: Vec<String>,
}

impl Figure {
    /// How many places there are.
    fn count(name: &'static str, places: Vec<String>) -> Self {
        Self { name, value: places.len() as f64, places }
    }
}

/// What a figure must not be worse than, and what it should be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bound {
    limit: f64,
    aim: f64,
    /// The larger the better.
    #[serde(default)]
    at_least: bool,
}

impl Bound {
    fn is_kept(&self, value: f64) -> bool {
        if self.at_least { value >= self.limit } else { value <= self.limit }
    }

    fn is_reached(&self, value: f64) -> bool {
        if self.at_least { value >= self.aim } else { value <= self.aim }
    }
}

/// Counts, prints, and refuses what got worse.
pub(crate) fn run(options: &Options) -> Result<()> {
    let text = fs::read_to_string(LIMITS).with_context(|| format!("cannot read {LIMITS}"))?;
    let bounds: BTreeMap<String, Bound> =
        toml::from_str(&text).with_context(|| format!("{LIMITS} is wrong"))?;
    let sources = source::all()?;
    let figures = figures(&sources);
    if let Some(wanted) = &options.list {
        let Some(figure) = figures.iter().find(|figure| figure.name == wanted) else {
            let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
            bail!("there is no figure {wanted}; there are: {}", names.join(", "));
        };
        println!("{}", figure.places.join("\n"));
        return Ok(());
    }
    let mut worse = Vec::new();
    println!("{:<34} {:>8} {:>8} {:>8}", "figure", "now", "limit", "wanted");
    for figure in &figures {
        let bound =
            bounds.get(figure.name).with_context(|| format!("{LIMITS} has no bound for {}", figure.name))?;
        let sign = if bound.at_least { ">=" } else { "<=" };
        let reached = if bound.is_reached(figure.value) { "" } else { "  not yet" };
        println!(
            "{:<34} {:>8} {sign:>3}{:>5} {sign:>3}{:>5}{reached}",
            figure.name, figure.value, bound.limit, bound.aim
        );
        if !bound.is_kept(figure.value) {
            worse.push(format!("{} is {}, its limit {}", figure.name, figure.value, bound.limit));
        }
    }
    ensure!(bounds.len() == figures.len(), "{LIMITS} has bounds for figures that nobody counts");
    ensure!(
        worse.is_empty(),
        "{}\n`cargo xtask shape --list FIGURE` tells where; mend what was added, or say in the commit why the limit in \
         {LIMITS} has to change",
        worse.join("\n")
    );
    Ok(())
}

fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut figures = imports::figures(sources);
    figures.extend(items::figures(sources));
    figures
}

#[cfg(test)]
mod tests;
