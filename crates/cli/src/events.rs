//! `quoin events`: past and new events.

use crate::{
    Failure, Format, Output,
    client::{Client, segment},
    output::{line, table},
    time::{Age, parse_age, utc_text},
};
use clap::Args;
use quoin_api::{Event, Severity};
use serde_json::Value;
use std::{
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) const EXAMPLES: &str = "Severities, lowest first: info, notice, warning, error, critical.\n\
    How many events are kept is set in quoin.toml, under [events].\n\n\
    Examples:\n  quoin --data /srv/a events\n  \
    quoin --data /srv/a events --audit --since 7d              # who changed what, and who was refused\n  \
    quoin --data /srv/a events --object v1 -o json             # with before and after of each field\n  \
    quoin --data /srv/a events --actor ann\n  \
    quoin --data /srv/a events --severity warning --since 1h\n  \
    quoin --data /srv/a events --follow\n  \
    quoin --data /srv/a events --follow -o json    # one JSON object a line";

/// How often the array is asked for what is new.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Options of `quoin events`.
#[derive(Args, Debug)]
pub struct EventsArgs {
    /// Show at most this many
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Lowest severity to show
    #[arg(long, default_value = "info", value_parser = parse_severity)]
    severity: Severity,
    /// Only events of this last period, such as 90s, 15m, 1h or 7d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    since: Option<Age>,
    /// Only changes by clients, and refused tokens, logins and changes
    #[arg(long)]
    audit: bool,
    /// Only events whose actor has this text in its token, name, address or user
    #[arg(long, value_name = "TEXT")]
    actor: Option<String>,
    /// Only events about this object: "volume v1", or v1
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
    /// Show oldest first, then new events until interrupted
    #[arg(long, short)]
    follow: bool,
}

fn parse_severity(text: &str) -> Result<Severity, String> {
    let all = Severity::ALL;
    all.into_iter().find(|severity| severity.to_string() == text).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        format!("{text:?} is not a severity; choose one of {}", names.join(", "))
    })
}

/// Shows events.
pub(crate) fn events(client: &Client, output: &Output, args: EventsArgs) -> Result<(), Failure> {
    let EventsArgs { limit, severity, since, audit, actor, object, follow } = args;
    let since_ms = since.map_or(0, |age| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(age.0).as_millis() as u64
    });
    let mut path = format!("/events?limit={limit}&severity={severity}&since_ms={since_ms}&audit={audit}");
    for (name, value) in [("actor", &actor), ("object", &object)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(value)));
        }
    }
    let mut newest: Vec<Event> = client.get(&path)?;
    if !follow {
        let narrowed =
            since.is_some() || severity != Severity::Info || audit || actor.is_some() || object.is_some();
        let filters = path.split_once('?').map_or("", |(_, filters)| filters);
        output.list(&newest, if narrowed { filters } else { "" }, table_of);
        return Ok(());
    }
    let mut last = 0;
    loop {
        for event in newest.iter().rev() {
            last = last.max(event.number);
            let text = match output.format {
                Format::Json => serde_json::to_string(event).unwrap_or_default(),
                Format::Table => line_of(event),
                Format::Yaml | Format::Csv => {
                    return Err(Failure::usage(
                        "events not followed",
                        "events that come one by one are shown as text or JSON",
                        "add -o json, or leave --follow out",
                    ));
                }
            };
            if !line(&text) {
                return Ok(());
            }
        }
        thread::sleep(FOLLOW_EVERY);
        // An array that restarts is waited for: what it recorded meanwhile is still wanted.
        newest = client.get(&format!("{path}&after={last}")).unwrap_or_default();
    }
}

fn table_of(events: &[Event]) -> String {
    let row = |e: &Event| {
        let by = e.actor.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        vec![e.number.to_string(), utc_text(e.at_ms), e.severity.to_string(), by, e.object.clone(), told(e)]
    };
    let header = ["no", "time", "severity", "by", "object", "event"];
    table(&header, events.iter().map(row).collect(), "no events")
}

/// One event on a line of its own, whose width nothing else decides.
fn line_of(event: &Event) -> String {
    let Event { number, at_ms, severity, object, actor, .. } = event;
    // A severity as text, so that the width takes effect.
    let severity = severity.to_string();
    let by = actor.as_ref().map(|actor| format!("  [{actor}]")).unwrap_or_default();
    format!("{number:>6}  {}  {severity:8}  {object}: {}{by}", utc_text(*at_ms), told(event))
}

/// What happened, with the fields that changed as far as the text does not say them.
fn told(event: &Event) -> String {
    let shown = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    // Of an object that was created or deleted the text says what matters.
    let changed: Vec<_> = event
        .changes
        .iter()
        .filter(|change| !change.before.is_null() && !change.after.is_null())
        .filter(|change| !event.text.contains(&shown(&change.after)))
        .map(|change| format!("{} {} → {}", change.field, shown(&change.before), shown(&change.after)))
        .collect();
    let mut text = event.text.clone();
    if !changed.is_empty() {
        text.push_str(&format!(" ({})", changed.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_who_changed_what_in_one_line() {
        let event: Event = serde_json::from_str(
            r#"{"number":7,"at_ms":0,"severity":"info","kind":"change","object":"volume v1","text":"grown",
                "actor":{"token":"admin","user":"ann@db1","address":"127.0.0.1:99"},"suppressed":0,
                "changes":[{"field":"size_bytes","before":1,"after":2},{"field":"tags","before":null,"after":{}},
                {"field":"name","before":"v0","after":"grown"}]}"#,
        )
        .unwrap();
        assert_eq!(
            line_of(&event),
            "     7  1970-01-01T00:00:00Z  info      volume v1: grown (size_bytes 1 → 2)  [ann@db1 (admin, 127.0.0.1)]"
        );
        assert!(table_of(&[event]).contains("ann@db1 (admin, 127.0.0.1)"));
    }

    #[test]
    fn severities_are_read_by_name() {
        for severity in Severity::ALL {
            assert_eq!(parse_severity(&severity.to_string()), Ok(severity));
        }
        assert!(parse_severity("fatal").unwrap_err().contains("info, notice, warning, error, critical"));
    }
}
