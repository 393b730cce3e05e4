//! Standard output: tables for people, JSON for programs.

use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, Write};

/// How results are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables, for people.
    #[default]
    Table,
    /// JSON, for programs.
    Json,
}

/// Where results go. A reader that went away is no error.
pub struct Output {
    /// How results are shown.
    pub format: Format,
}

impl Output {
    /// Shows `value`: as JSON, or as what `text` makes of it.
    pub fn show<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) {
        let text = match self.format {
            Format::Json => serde_json::to_string_pretty(value).unwrap_or_else(|e| format!("\"{e}\"")),
            Format::Table => text(value),
        };
        line(&text);
    }

    /// Says something to people; programs get nothing.
    pub fn say(&self, text: &str) {
        if self.format == Format::Table {
            line(text);
        }
    }
}

/// Writes one line. False if nobody reads any more.
pub(crate) fn line(text: &str) -> bool {
    writeln!(io::stdout().lock(), "{text}").is_ok()
}

/// A table with a header; or `empty` if it has no rows.
pub fn table(header: &[&str], rows: Vec<Vec<String>>, empty: &str) -> String {
    if rows.is_empty() {
        return empty.to_owned();
    }
    let header = header.iter().map(|name| name.to_uppercase()).collect();
    aligned(std::iter::once(header).chain(rows).collect())
}

/// Names and values, one pair a line.
pub(crate) fn pairs(rows: Vec<(&str, String)>) -> String {
    aligned(rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect())
}

/// One line a row; every column as wide as its widest cell.
fn aligned(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["v1".into(), "4.0 GiB".into()], vec!["long-name".into(), "-".into()]];
        assert_eq!(
            table(&["name", "size"], rows, "none"),
            "NAME       SIZE\nv1         4.0 GiB\nlong-name  -"
        );
        assert_eq!(table(&["name"], Vec::new(), "none"), "none");
    }
}
