//! The source files that count: those of the product, of what proves it and of tools, without tests.

use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder of the product's crates. Some figures count these alone.
const PRODUCT: &str = "crates";

/// A file that is parsed.
pub(super) struct Source {
    /// The folder of its crate.
    pub(super) package: PathBuf,
    /// Its module, from the root of the crate: nothing for `lib.rs` and `main.rs`.
    pub(super) module: Vec<String>,
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) file: syn::File,
}

impl Source {
    pub(super) fn parse(package: &Path, path: PathBuf, text: String) -> Result<Self> {
        let file = syn::parse_file(&text).with_context(|| format!("{} cannot be parsed", path.display()))?;
        let inside = path.strip_prefix(package.join("src"))?;
        let mut module: Vec<String> =
            inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        Ok(Self { package: package.to_owned(), module, path, text, file })
    }

    /// Whether it is of the product, not of what proves it or of a tool.
    pub(super) fn is_product(&self) -> bool {
        self.package.starts_with(PRODUCT)
    }
}

/// All files under `src` of all crates but those of tests.
pub(super) fn all() -> Result<Vec<Source>> {
    let mut packages = Vec::new();
    for root in [PRODUCT, "proof", "tools"] {
        for entry in fs::read_dir(root)? {
            packages.push(entry?.path());
        }
    }
    packages.retain(|package: &PathBuf| package.join("src").is_dir());
    packages.sort();
    let mut sources = Vec::new();
    for package in packages {
        let mut paths = Vec::new();
        collect(&package.join("src"), &mut paths)?;
        for path in paths {
            let text = fs::read_to_string(&path)?;
            sources.push(Source::parse(&package, path, text)?);
        }
    }
    Ok(sources)
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default();
        if name == "tests" || name == "models" {
            continue;
        }
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(())
}

/// Whether an item is there in tests only.
pub(super) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test")))
    })
}
