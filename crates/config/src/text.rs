//! `quoin.toml` as `quoin init` writes it, with every key explained, and `docs/configuration.md`.

use crate::{
    Config,
    keys::{Key, SECTIONS},
};
use toml::{Table, Value};

/// Lines are no longer.
const COLUMNS: usize = 100;

/// The file of a configuration, with every key explained; those that are not set are there as comments.
///
/// # Errors
/// `toml`'s error if a value cannot be written as TOML, such as a number above 63 bits.
pub fn write(config: &Config) -> Result<String, toml::ser::Error> {
    Table::try_from(config).map(|values| commented(&values))
}

fn commented(values: &Table) -> String {
    let mut out = String::from(
        "# A Quoin array. quoin config check looks whether this file is right; quoin config show\n\
                                # tells what is in effect. A change takes effect when the array is started again.\n",
    );
    for section in SECTIONS {
        // The tables of the section; an empty one if the configuration has none, to show its keys.
        let tables: Vec<Table> = match values.get(section.name) {
            _ if section.name.is_empty() => vec![values.clone()],
            Some(Value::Table(table)) => vec![table.clone()],
            Some(Value::Array(items)) => items.iter().filter_map(|item| item.as_table().cloned()).collect(),
            _ => vec![Table::new()],
        };
        out.push('\n');
        comment(&mut out, section.about);
        for (at, table) in tables.iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            match (section.name, section.is_array) {
                ("", _) => {}
                (name, true) => out.push_str(&format!("[[{name}]]\n")),
                (name, false) => out.push_str(&format!("[{name}]\n")),
            }
            for key in section.keys {
                // What a key means is said once; a key without a value is shown as a comment.
                if at == 0 {
                    comment(&mut out, &sentence(key));
                }
                match table.get(key.name) {
                    Some(value) => out.push_str(&format!("{} = {value}\n", key.name)),
                    None => out.push_str(&format!("# {} = {}\n", key.name, key.example)),
                }
            }
        }
    }
    out
}

fn sentence(key: &Key) -> String {
    match key.default {
        "" => key.about.to_owned(),
        default => format!("{} Without it: {default}.", key.about),
    }
}

/// The text as comments.
fn comment(out: &mut String, text: &str) {
    wrap(out, "# ", text);
}

/// The text in lines of at most a hundred columns that begin with `mark`.
fn wrap(out: &mut String, mark: &str, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && mark.len() + line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out.push_str(&format!("{mark}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        out.push_str(&format!("{mark}{line}\n"));
    }
}

/// `docs/configuration.md`.
#[cfg(test)]
fn page() -> String {
    const HEAD: [&str; 3] = [
        "An array's configuration is `quoin.toml` in its data directory. `quoin init` writes it, with a comment for every \
         key. It is read when the array starts. `quoin config check` tells what is wrong with it, by key and line, and \
         `quoin config show` tells which values are in effect and where each comes from.",
        "An option of `quoin serve` goes before an environment variable, that before the file, and that before the \
         default. `QUOIN_MEMORY_LIMIT` is the one environment variable that stands for a key, `serve.memory_limit`.",
        "Sizes are text with a unit: K, M, G, T (or KiB …) are powers of 1024, KB, MB, GB, TB powers of 1000; or a \
         number of bytes. Keys that are not listed here are refused.",
    ];
    let mut out = String::from("# Configuration\n");
    for paragraph in HEAD {
        out.push('\n');
        wrap(&mut out, "", paragraph);
    }
    for section in SECTIONS {
        let crate::keys::Section { name, is_array, about, keys } = section;
        let title = match (*name, is_array) {
            ("", _) => "At the top".to_owned(),
            (name, true) => format!("`[[{name}]]`"),
            (name, false) => format!("`[{name}]`"),
        };
        out.push_str(&format!("\n## {title}\n\n"));
        if !about.is_empty() {
            wrap(&mut out, "", about);
            out.push('\n');
        }
        out.push_str("| key | meaning | value | default |\n| --- | --- | --- | --- |\n");
        for key in *keys {
            let default = if key.default.is_empty() { "must be given" } else { key.default };
            out.push_str(&format!("| `{}` | {} | {} | {default} |\n", key.name, key.about, key.kind.text()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, path::Path};

    /// `UPDATE=1 cargo test -p quoin-config` writes the page that is checked in.
    #[test]
    fn the_page_checked_in_lists_every_key() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, page()).unwrap();
        }
        let checked_in = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == page(),
            "docs/configuration.md is not as the keys are; run UPDATE=1 cargo test -p quoin-config"
        );
    }
}
