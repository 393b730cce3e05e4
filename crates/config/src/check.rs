//! Checks `quoin.toml` against the list of its keys, so that a message names the key, the line and what would be right.

use crate::keys::{Key, Kind, SECTIONS, Section, emulation};
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
    /// What to do about it.
    pub next: String,
}

/// The line in which a span begins, from 1 on.
pub(crate) fn line_of(text: &str, span: Range<usize>) -> usize {
    1 + text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// The keys that a file has, by section and name, with their lines. The first fault, if there is one.
pub(crate) fn check(text: &str) -> Result<Vec<(&'static str, &'static str, usize)>, Fault> {
    let line = |span: Range<usize>| line_of(text, span);
    // Any TOML at first, with the places of its keys and values.
    let parsed = DeTable::parse(text).map_err(|error| Fault {
        line: error.span().map_or(1, line),
        why: format!("it is not TOML: {}", error.message().replace('\n', "; ")),
        next: "correct that line; docs/configuration.md shows what the file looks like".to_owned(),
    })?;
    let mut found = Vec::new();
    let top = &SECTIONS[0];
    for (name, value) in parsed.get_ref() {
        let at = line(name.span());
        // A name at the top is a section or one of the keys that stand outside sections.
        let section = SECTIONS[1..].iter().find(|section| section.name == name.get_ref().as_ref());
        let Some(section) = section else {
            match top.keys.iter().find(|key| key.name == name.get_ref().as_ref()) {
                Some(key) => found.push(one(top, key, value, at)?),
                None if is_table(value.get_ref()) => return Err(unknown_table(name.get_ref(), at)),
                None => return Err(unknown(None, name.get_ref(), at)),
            }
            continue;
        };
        // A section is one table, or several of the same name.
        let tables: Vec<_> = match (value.get_ref(), section.is_array) {
            (DeValue::Table(table), false) => vec![(at, table)],
            (DeValue::Array(items), true) => {
                let tables = items.iter().map(|item| Some((line(item.span()), item.get_ref().as_table()?)));
                tables.collect::<Option<Vec<_>>>().ok_or_else(|| not_a_table(section, at))?
            }
            _ => return Err(not_a_table(section, at)),
        };
        for (at, table) in tables {
            for (name, value) in table {
                let at = line(name.span());
                match section.keys.iter().find(|key| key.name == name.get_ref().as_ref()) {
                    Some(key) => found.push(one(section, key, value, at)?),
                    None => return Err(unknown(Some(section), name.get_ref(), at)),
                }
            }
            if let Some(key) =
                section.keys.iter().find(|key| key.default.is_empty() && !table.contains_key(key.name))
            {
                return Err(missing(section, key, at));
            }
        }
    }
    // Keys without a default must be there, also those of sections that the file does not have.
    for section in SECTIONS {
        for key in section.keys.iter().filter(|key| key.default.is_empty()) {
            if !found.iter().any(|(of, name, _)| (*of, *name) == (section.name, key.name)) {
                return Err(missing(section, key, 1));
            }
        }
    }
    Ok(found)
}

fn one(
    section: &'static Section,
    key: &'static Key,
    value: &Spanned<DeValue<'_>>,
    line: usize,
) -> Result<(&'static str, &'static str, usize), Fault> {
    if key.kind.admits(value.get_ref()) {
        return Ok((section.name, key.name, line));
    }
    let shown = full_name(section, key.name);
    let next = format!("write it so: {} = {}", key.name, key.example);
    if let (Kind::Emulation, Err(why)) = (key.kind, emulation(value.get_ref())) {
        return Err(Fault { line, why: format!("{shown}: {why}"), next });
    }
    // Text and integers are shown as the file has them, other values by their type.
    let given = match value.get_ref().as_str() {
        Some(text) => format!("{text:?}"),
        None => match value.get_ref().as_integer() {
            Some(integer) => integer.as_str().to_owned(),
            None => format!("a TOML {}", value.get_ref().type_str()),
        },
    };
    Err(Fault { line, why: format!("{shown} cannot be {given}: it is {}", key.kind.text()), next })
}

fn not_a_table(section: &Section, line: usize) -> Fault {
    Fault {
        line,
        why: format!("{} is not a value but a table", section.name),
        next: format!("write {} on a line of its own, and its keys below", header(section)),
    }
}

fn header(section: &Section) -> String {
    if section.is_array { format!("[[{}]]", section.name) } else { format!("[{}]", section.name) }
}

fn missing(section: &Section, key: &Key, line: usize) -> Fault {
    let shown = full_name(section, key.name);
    Fault {
        line,
        why: format!("{shown} is missing: {}", key.about),
        next: format!("add it: {} = {}", key.name, key.example),
    }
}

fn is_table(value: &DeValue<'_>) -> bool {
    let of_tables = |items: &[Spanned<DeValue<'_>>]| items.iter().any(|item| item.get_ref().is_table());
    value.is_table() || value.as_array().is_some_and(|items| of_tables(items))
}

fn unknown_table(name: &str, line: usize) -> Fault {
    let nearest = SECTIONS[1..].iter().min_by_key(|of| strsim::damerau_levenshtein(of.name, name));
    let next = nearest.map_or_else(String::new, |of| format!("the nearest table is {}; ", header(of)));
    Fault {
        line,
        why: format!("there is no table {name}"),
        next: format!("{next}docs/configuration.md lists all"),
    }
}

fn unknown(section: Option<&Section>, name: &str, line: usize) -> Fault {
    let shown = section.map_or_else(|| name.to_owned(), |section| full_name(section, name));
    // A key of another table counts too: it may just be in the wrong place.
    let known = SECTIONS.iter().flat_map(|of| of.keys.iter().map(move |key| (of, key.name)));
    let own = |of: &Section| section.map_or("", |section| section.name) == of.name;
    let nearest = known.min_by_key(|(of, known)| (strsim::damerau_levenshtein(known, name), !own(of)));
    let next = match nearest {
        Some((of, known)) if known == name && of.name.is_empty() => {
            format!(
                "write {known} above the first table: what follows [{}] belongs to it",
                section.map_or("", |s| s.name)
            )
        }
        Some((of, known)) if known == name => format!("write {known} under [{}]", of.name),
        Some((of, known)) => {
            format!("the nearest key is {}; docs/configuration.md lists all", full_name(of, known))
        }
        None => "docs/configuration.md lists all keys".to_owned(),
    };
    Fault { line, why: format!("there is no key {shown}"), next }
}

fn full_name(section: &Section, key: &str) -> String {
    if section.name.is_empty() { key.to_owned() } else { format!("{}.{key}", section.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"a\"\niqn = \"iqn.2026-11.test:a\"\npool = \"0f4e7a1c-22b9-4a6e-9d55-7d3f7f1f2a10\"\n\
                        [serve]\nmemory_limit = \"2GiB\"\nthreads = 2\n[[drive]]\npath = \"d1\"\n[[drive]]\npath = \"d2\"\n";

    fn fault(from: &str, to: &str) -> Fault {
        assert!(GOOD.contains(from), "{from}");
        check(&GOOD.replace(from, to)).unwrap_err()
    }

    #[test]
    fn a_sound_file_is_taken_and_its_lines_are_known() {
        let found = check(GOOD).unwrap();
        assert_eq!(found.len(), 7);
        assert!(found.contains(&("serve", "threads", 6)), "{found:?}");
        check(&GOOD.replace("\"2GiB\"", "2147483648")).unwrap();
    }

    /// What serde would take and the list does not have would be refused before serde sees it.
    #[test]
    fn every_field_that_is_read_is_in_the_list() {
        use crate::{EventsConfig, ServeConfig, SpaceConfig};
        let fields = [
            ("serve", toml::from_str::<ServeConfig>("none = 1").unwrap_err()),
            ("space", toml::from_str::<SpaceConfig>("none = 1").unwrap_err()),
            ("events", toml::from_str::<EventsConfig>("none = 1").unwrap_err()),
        ];
        for (name, error) in fields {
            let section = SECTIONS.iter().find(|section| section.name == name).unwrap();
            let (_, expected) = error.message().split_once("expected").unwrap();
            let listed = |field: &&str| section.keys.iter().any(|key| key.name == *field);
            let fields: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
            assert!(!fields.is_empty() && fields.iter().all(listed), "{name}: {fields:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_would_be_right() {
        for (from, to, line, why, next) in [
            ("threads", "thread", 6, "there is no key serve.thread", "nearest key is serve.threads"),
            ("name =", "nmae =", 1, "there is no key nmae", "nearest key is name"),
            ("[serve]", "[server]", 4, "there is no table server", "nearest table is [serve]"),
            ("[[drive]]\npath = \"d2\"", "[[drvie]]\npath = \"d2\"", 9, "no table drvie", "[[drive]]"),
            ("threads = 2", "name = \"b\"", 6, "there is no key serve.name", "above the first table"),
            ("path = \"d1\"", "iscsi = \"d1\"", 8, "there is no key drive.iscsi", "under [serve]"),
            ("threads = 2", "threads = \"two\"", 6, "serve.threads cannot be \"two\"", "threads = 4"),
            ("threads = 2", "threads = 0", 6, "cannot be 0: it is a whole number from 1 to 256", ""),
            ("threads = 2", "threads = true", 6, "cannot be a TOML boolean", ""),
            ("\"2GiB\"", "\"2XiB\"", 5, "memory_limit cannot be \"2XiB\"", "memory_limit = \"2GiB\""),
            ("\"2GiB\"", "\"8388608T\"", 5, "memory_limit cannot be \"8388608T\"", ""),
            ("\"2GiB\"", "9223372036854775808", 5, "memory_limit cannot be 9223372036854775808", ""),
            ("\"2GiB\"", "\"1KiB\"", 5, "at least 64.0 MiB", ""),
            ("iqn.2026-11.test:a", "IQN", 2, "iqn cannot be \"IQN\"", "iqn.2026-11.com.example"),
            ("0f4e7a1c", "", 3, "pool cannot be", ""),
            ("path = \"d2\"\n", "", 9, "drive.path is missing", "path = "),
            (
                "path = \"d1\"",
                "emulate = 1\npath = \"d1\"",
                8,
                "drive.emulate: it is a TOML integer",
                "emulate = {",
            ),
            (
                "path = \"d1\"",
                "emulate = {}\npath = \"d1\"",
                8,
                "it has no technology",
                "technology = \"15k\"",
            ),
            ("path = \"d1\"", "emulate = { technology = \"x\" }\npath = \"d1\"", 8, "one of flash", ""),
            (
                "path = \"d1\"",
                "emulate = { technology = \"15k\", iops = 0 }",
                8,
                "iops is 0: it is from 1",
                "",
            ),
            (
                "path = \"d1\"",
                "emulate = { technology = \"15k\", latency_ms = nan }",
                8,
                "latency_ms is not",
                "",
            ),
            ("path = \"d1\"", "emulate = { technology = \"15k\", rpm = 1 }", 8, "there is no rpm in it", ""),
            ("[[drive]]\npath = \"d1\"\n[[drive]]\npath = \"d2\"\n", "", 1, "drive.path is missing", ""),
            ("[serve]", "serve = 1\n[x]", 4, "serve is not a value but a table", "[serve]"),
            ("threads = 2", "threads = ", 6, "it is not TOML", "correct that line"),
            ("threads = 2", "threads = 2\nthreads = 3", 7, "it is not TOML", ""),
        ] {
            let fault = fault(from, to);
            assert!(fault.why.contains(why) && fault.next.contains(next), "{to}: {fault:?}");
            assert_eq!(fault.line, line, "{to}: {fault:?}");
        }
    }
}
