//! Rules that every Rust source file keeps.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Above this a file that is not a test is a defect.
const LINES_MAX: usize = 600;

/// Crates whose locks and atomics a model checker exchanges: they take them from `quoin_world`.
const MODELLED: [&str; 3] = ["crates/drive/src", "crates/stripe/src", "crates/pool/src"];

/// An error that names every file that breaks a rule.
pub(crate) fn check() -> Result<()> {
    let mut files = Vec::new();
    for root in ["crates", "proof", "tools"] {
        collect(Path::new(root), &mut files)?;
    }
    let mut problems = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        problems
            .extend(breaches(file, &text).into_iter().map(|breach| format!("{}: {breach}", file.display())));
    }
    if problems.is_empty() {
        println!("{} files keep to the rules", files.len());
        return Ok(());
    }
    bail!("{} breaches:\n  {}", problems.len(), problems.join("\n  "))
}

fn breaches(file: &Path, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let is_tests = file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
    let lines = text.lines().count();
    if lines > LINES_MAX && !is_tests {
        breaches.push(format!("{lines} lines, more than {LINES_MAX}"));
    }
    if !is_tests && !text.starts_with("//!") {
        breaches.push("no `//!` header that says what it is for".to_owned());
    }
    let is_modelled = MODELLED.iter().any(|root| file.starts_with(root));
    for hidden in ["std::sync::atomic", "std::sync::Mutex", "parking_lot"] {
        if is_modelled && !is_tests && text.contains(hidden) {
            breaches.push(format!("{hidden}, where races are searched for: take it from quoin_world"));
        }
    }
    for marker in ["TODO", "FIXME", "XXX"] {
        // Put together, so that this file does not hold what it looks for.
        for opening in ["// ", "//", "/* "].map(|comment| format!("{comment}{marker}")) {
            if let Some(at) = text.lines().position(|line| line.contains(&opening)) {
                breaches
                    .push(format!("line {}: {marker}; what is missing belongs in docs/limits.md", at + 1));
            }
        }
    }
    breaches
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaches_are_found_and_tests_may_be_long() {
        let long = "fn x() {}\n".repeat(LINES_MAX + 1);
        assert_eq!(breaches(Path::new("crates/a/src/lib.rs"), &long).len(), 2);
        assert_eq!(breaches(Path::new("crates/a/src/tests.rs"), &long).len(), 0);
        let hidden = "//! Fine.\nuse std::sync::atomic::AtomicU64;\n";
        assert_eq!(breaches(Path::new("crates/pool/src/a.rs"), hidden).len(), 1);
        assert_eq!(breaches(Path::new("crates/rest/src/a.rs"), hidden).len(), 0);
        let put_off = format!("//! Fine.\n// {}: later\n", "TODO");
        let found = breaches(Path::new("crates/a/src/lib.rs"), &put_off);
        assert!(found.len() == 1 && found[0].starts_with("line 2:"), "{found:?}");
    }
}
