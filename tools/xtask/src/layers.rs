//! The dependencies between the crates of the workspace, checked against `layers.toml`.

use crate::step::{cargo_command, output};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

const FILE: &str = "layers.toml";

/// `layers.toml`: layers from the bottom to the top.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layers {
    layers: Vec<Layer>,
}

/// A crate, what it may depend on, and what its tests may depend on besides.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    package: String,
    #[serde(default)]
    uses: BTreeSet<String>,
    #[serde(default)]
    tests_use: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// An error that names every edge that is there and not allowed, or allowed and not there.
pub(crate) fn check() -> Result<()> {
    let text = std::fs::read_to_string(FILE).with_context(|| format!("reading {FILE}"))?;
    let layers: Layers = toml::from_str(&text).with_context(|| format!("reading {FILE}"))?;
    let metadata = output(cargo_command().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata = serde_json::from_str(&metadata)?;
    let problems = problems(&layers.layers, &metadata.packages);
    if problems.is_empty() {
        println!("{} crates keep to their layers", metadata.packages.len());
        return Ok(());
    }
    bail!("{} do not agree with {FILE}:\n  {}", problems.len(), problems.join("\n  "))
}

fn problems(layers: &[Layer], packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut below: BTreeMap<&str, &Layer> = BTreeMap::new();
    for layer in layers {
        for used in layer.uses.iter().filter(|used| !below.contains_key(used.as_str())) {
            problems.push(format!("{} is allowed {used}, which is not below it", layer.package));
        }
        if below.insert(&layer.package, layer).is_some() || !names.contains(layer.package.as_str()) {
            problems.push(format!("{} is listed twice, or is no crate of the workspace", layer.package));
        }
    }
    for package in packages {
        let Some(layer) = below.get(package.name.as_str()) else {
            problems.push(format!("{} has no layer", package.name));
            continue;
        };
        let edges = |of_tests: bool| -> BTreeSet<&str> {
            let dependencies = package.dependencies.iter();
            let dependencies = dependencies.filter(|edge| (edge.kind.as_deref() == Some("dev")) == of_tests);
            dependencies.map(|edge| edge.name.as_str()).filter(|name| names.contains(name)).collect()
        };
        let uses: BTreeSet<&str> = layer.uses.iter().map(String::as_str).collect();
        let tests_use: BTreeSet<&str> = layer.tests_use.iter().map(String::as_str).collect();
        for (kind, there, allowed) in [("", edges(false), uses), ("a test of ", edges(true), tests_use)] {
            for edge in there.difference(&allowed) {
                problems.push(format!("{kind}{} depends on {edge}, which is not allowed", package.name));
            }
            for edge in allowed.difference(&there) {
                problems.push(format!("{kind}{} is allowed {edge} and does not use it", package.name));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(package: &str, uses: &[&str]) -> Layer {
        let uses = uses.iter().map(|name| (*name).to_owned()).collect();
        Layer { package: package.to_owned(), uses, tests_use: BTreeSet::new() }
    }

    fn package(name: &str, uses: &[&str]) -> Package {
        let dependencies = uses.iter().map(|name| Dependency { name: (*name).to_owned(), kind: None });
        Package { name: name.to_owned(), dependencies: dependencies.collect() }
    }

    #[test]
    fn every_disagreement_is_named() {
        let layers = [layer("base", &[]), layer("drive", &["base"]), layer("pool", &["drive", "top"])];
        let packages = [
            package("base", &["serde", "drive"]),
            package("drive", &["base"]),
            package("pool", &["drive"]),
            package("new", &[]),
        ];
        let expected = [
            "pool is allowed top, which is not below it",
            "base depends on drive, which is not allowed",
            "pool is allowed top and does not use it",
            "new has no layer",
        ];
        assert_eq!(problems(&layers, &packages), expected);
    }
}
