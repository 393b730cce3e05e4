//! Rules that every Rust source file keeps, and every document.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Above this a file that is not a test is a defect.
const LINES_MAX: usize = 600;

/// Prose in documents has no longer lines: what is compared line by line fits beside another.
const COLUMNS_MAX: usize = 100;

/// Crates whose locks and atomics a model checker exchanges: they take them from `quoin_world`.
const MODELLED: [&str; 3] = ["crates/drive/src", "crates/stripe/src", "crates/pool/src"];

/// An error that names every file that breaks a rule.
pub(crate) fn check() -> Result<()> {
    let mut files = Vec::new();
    for root in ["crates", "proof", "tools"] {
        collect(Path::new(root), "rs", &mut files)?;
    }
    for root in ["docs", "crates", "proof", "tools", "deploy"] {
        collect(Path::new(root), "md", &mut files)?;
    }
    files.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(PathBuf::from));
    let mut problems = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        let is_document = file.extension().is_some_and(|extension| extension == "md");
        let found = if is_document { long_lines(&text) } else { breaches(file, &text) };
        problems.extend(found.into_iter().map(|breach| format!("{}: {breach}", file.display())));
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

/// Lines of prose that are too long and can be broken. Tables, code, headings and pictures cannot.
fn long_lines(text: &str) -> Vec<String> {
    let (mut breaches, mut is_code) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let start = line.trim_start();
        is_code ^= start.starts_with("```");
        let is_whole = is_code || ["|", "#", "![", "<"].iter().any(|mark| start.starts_with(mark));
        let columns = line.chars().count();
        // Every second part is code within the line.
        let can_break = start.split('`').step_by(2).any(|prose| prose.contains(' '));
        if columns > COLUMNS_MAX && can_break && !is_whole {
            breaches.push(format!("line {}: {columns} columns, more than {COLUMNS_MAX}", at + 1));
        }
    }
    breaches
}

fn collect(directory: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, extension, files)?;
        } else if path.extension().is_some_and(|of_file| of_file == extension) {
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
    fn prose_is_broken_into_lines_and_nothing_else_is() {
        let (long, word) = ("word ".repeat(21), "x".repeat(101));
        let fine = format!("short\n| {long}|\n# {long}\n```\n{long}\n```\n{word}\n`{long}`\n![{long}](a)\n");
        assert_eq!(long_lines(&fine), Vec::<String>::new());
        assert_eq!(long_lines(&format!("{fine}- {long}\n")), ["line 10: 107 columns, more than 100"]);
    }

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
