//! Standard output: tables for people; JSON, YAML and CSV for programs.

mod csv;
mod yaml;

use crate::Failure;
use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, Write};

/// How results are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables, for people
    #[default]
    Table,
    /// JSON, as the management interface answers
    Json,
    /// The same as YAML
    Yaml,
    /// A line for each object, with what it has of single values
    Csv,
}

/// Where results go. A reader that went away is no error.
pub struct Output {
    /// How results are shown.
    pub format: Format,
    /// Tables and CSV begin with the names of their columns.
    pub headers: bool,
}

impl Output {
    /// Shows `value`: for programs, or as what `text` makes of it.
    pub fn show<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) {
        line(&self.for_programs(value).unwrap_or_else(|| text(value)));
    }

    /// Shows a list. For an empty one, standard output stays as programs expect it. A message on standard error then
    /// says so: `text` of no items or, if there are `filters`, that nothing matches them.
    pub fn list<T: Serialize>(&self, items: &[T], filters: &str, text: impl FnOnce(&[T]) -> String) {
        if let Some(text) = self.for_programs(&items) {
            // An empty list as CSV has no line at all.
            if !text.is_empty() {
                line(&text);
            }
        } else if !items.is_empty() {
            let text = text(items);
            line(if self.headers { &text } else { text.split_once('\n').map_or("", |(_, rows)| rows) });
        } else if filters.is_empty() {
            eprintln!("{}", text(items));
        } else {
            eprintln!("nothing fits {}", readable(filters));
        }
    }

    /// True for tables.
    pub(crate) fn is_for_people(&self) -> bool {
        self.format == Format::Table
    }

    fn for_programs(&self, value: &impl Serialize) -> Option<String> {
        let parts = || serde_json::to_value(value).unwrap_or_default();
        match self.format {
            Format::Table => None,
            Format::Json => {
                Some(serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("\"{error}\"")))
            }
            Format::Yaml => Some(yaml::of(&parts())),
            Format::Csv => Some(csv::of(&parts(), self.headers)),
        }
    }

    /// Reports a failure on standard error: as JSON for programs that read JSON.
    pub fn complain(&self, failure: &Failure) {
        match self.format {
            Format::Json => eprintln!("{}", failure.json()),
            _ => eprintln!("{failure}"),
        }
    }

    /// Says something to people; programs get nothing.
    pub fn say(&self, text: &str) {
        if self.format == Format::Table {
            line(text);
        }
    }
}

/// The filters of a query as people write them: `name=pg-*, tag=app` of `name=pg-%2A&tag=app`.
fn readable(query: &str) -> String {
    let mut text = Vec::new();
    let mut bytes = query.bytes();
    while let Some(byte) = bytes.next() {
        let mut rest = bytes.clone();
        let mut digit = || char::from(rest.next()?).to_digit(16);
        match (byte, digit().zip(digit())) {
            (b'%', Some((high, low))) => {
                text.push((high * 16 + low) as u8);
                bytes = rest;
            }
            (b'&', _) => text.extend_from_slice(b", "),
            (byte, _) => text.push(byte),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes one line. False if the reader has closed the output.
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
    fn filters_are_told_as_they_were_given() {
        assert_eq!(
            readable("name=pg-%2A&tag=app%3Ddb%201&sort=-size"),
            "name=pg-*, tag=app=db 1, sort=-size"
        );
        assert_eq!(readable("severity warning or higher, 50% of"), "severity warning or higher, 50% of");
        assert_eq!(readable("%C3%A4%"), "ä%");
    }

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
