//! `quoin config`: the settings of an array, and where each comes from.

use crate::{
    data::{CONFIG_FILE, DataDir},
    memory::{MEMORY_LIMIT_VARIABLE, default_limit_bytes},
    portals::DEFAULT_ISCSI,
    serve::{DEFAULT_API, DEFAULT_THREADS_MAX},
};
use clap::Subcommand;
use quoin_cli::{Failure, Global, Output, parse_size, size_text, table};
use quoin_config::{Config, ReadConfig, SECTIONS};
use serde::Serialize;
use std::{env, num::NonZeroUsize, thread};
use toml::Value;

/// Commands about the configuration.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check quoin.toml and name the key and line of a mistake
    #[command(after_help = "Examples:\n  quoin --data /srv/a config check")]
    Check,
    /// Show the settings in effect and where each comes from
    #[command(after_help = "Options of quoin serve override these settings.\n\nExamples:\n  \
                            quoin --data /srv/a config show\n  quoin --data /srv/a config show -o json")]
    Show,
}

/// A value in effect.
#[derive(Serialize)]
struct Effective {
    key: String,
    value: String,
    /// `default`, `quoin.toml, line 7`, `QUOIN_MEMORY_LIMIT`.
    source: String,
}

#[derive(Serialize)]
struct Checked {
    ok: bool,
    file: String,
    keys: usize,
}

pub(crate) fn run(global: &Global, command: Command) -> Result<(), Failure> {
    let data = DataDir::of(global)?;
    let read = data.read_config_with_lines()?;
    let output = Output { format: global.output, headers: !global.no_headers };
    match command {
        Command::Check => {
            let file = data.file(CONFIG_FILE).display().to_string();
            let checked = Checked { ok: true, file, keys: read.lines.len() };
            output.show(&checked, |checked| format!("{} is valid: {} keys", checked.file, checked.keys));
        }
        Command::Show => output.show(&effective(&read)?, |all| {
            let row = |e: &Effective| vec![e.key.clone(), e.value.clone(), e.source.clone()];
            table(&["key", "value", "from"], all.iter().map(row).collect(), "nothing")
        }),
    }
    Ok(())
}

fn effective(read: &ReadConfig) -> Result<Vec<Effective>, Failure> {
    let mut all = Vec::new();
    for section in SECTIONS {
        for key in section.keys {
            let shown = if section.name.is_empty() {
                key.name.to_owned()
            } else {
                format!("{}.{}", section.name, key.name)
            };
            let mut lines =
                read.lines.iter().filter(|(of, name, _)| (*of, *name) == (section.name, key.name));
            let values = values(&read.table, section.name, key.name);
            // What the file says, each value with its line.
            let mut rows: Vec<_> = values
                .into_iter()
                .map(|value| {
                    let line = lines.next().map_or(0, |(_, _, line)| *line);
                    let source = format!("{CONFIG_FILE}, line {line}");
                    Effective { key: shown.clone(), value, source }
                })
                .collect();
            // The environment goes before the file.
            if shown == "serve.memory_limit"
                && let Some(value) = memory_limit_of_environment()?
            {
                rows =
                    vec![Effective { key: shown.clone(), value, source: MEMORY_LIMIT_VARIABLE.to_owned() }];
            }
            // Neither says anything: the default is in effect.
            if rows.is_empty() {
                let value = default_of(&shown, &read.config)
                    .unwrap_or_else(|| key.default.trim_matches('"').to_owned());
                rows.push(Effective { key: shown, value, source: "default".to_owned() });
            }
            all.extend(rows);
        }
    }
    Ok(all)
}

/// The values of a key: several in an array of tables.
fn values(table: &toml::Table, section: &str, key: &str) -> Vec<String> {
    let tables: Vec<&toml::Table> = match table.get(section) {
        _ if section.is_empty() => vec![table],
        Some(Value::Table(table)) => vec![table],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_table).collect(),
        _ => Vec::new(),
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    tables.into_iter().filter_map(|table| table.get(key)).map(text).collect()
}

fn memory_limit_of_environment() -> Result<Option<String>, Failure> {
    let Ok(text) = env::var(MEMORY_LIMIT_VARIABLE) else { return Ok(None) };
    let size = parse_size(&text).map_err(|why| {
        Failure::usage(
            "configuration refused",
            format!("{MEMORY_LIMIT_VARIABLE}: {why}"),
            "correct or unset it",
        )
    })?;
    Ok(Some(size_text(size.0)))
}

/// Defaults that depend on the machine or on other keys, or are kept elsewhere.
fn default_of(key: &str, config: &Config) -> Option<String> {
    match key {
        "space.notice_percent" => Some(config.space.percents()[0].to_string()),
        "space.warning_percent" => Some(config.space.percents()[1].to_string()),
        "serve.iscsi" => Some(DEFAULT_ISCSI.to_owned()),
        "serve.api" => Some(DEFAULT_API.to_owned()),
        "serve.threads" => {
            let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            Some(cores.min(DEFAULT_THREADS_MAX).to_string())
        }
        "serve.memory_limit" => Some(size_text(default_limit_bytes())),
        _ => None,
    }
}
