//! `quoin events`: past and new events.

use crate::{
    Failure, Format, Output,
    client::{Client, segment},
    output::{line, table},
    time::{Age, duration_text, parse_age, utc_text},
};
use clap::Args;
use quoin_api::{Event, Severity};
use serde_json::Value;
use std::{collections::BTreeSet, thread, time::Duration};

pub(crate) const EXAMPLES: &str = "Severities, lowest first: info, notice, warning, error, critical.\n\
    How many events are kept is set in quoin.toml, under [events].\n\n\
    Examples:\n  quoin --data /srv/a events\n  \
    quoin --data /srv/a events --audit --since 7d              # who changed what, and who was refused\n  \
    quoin --data /srv/a events --object v1 -o json             # with before and after of each field\n  \
    quoin --data /srv/a events --actor ann\n  \
    quoin --data /srv/a events --severity warning --since 1h\n  \
    quoin --data /srv/a events --follow\n  \
    quoin --data /srv/a events --follow -o json    # one JSON object a line";

/// How often the array is asked for new events, and for how many at most.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
const FOLLOW_LIMIT: u32 = 10_000;
/// How many numbers an event may be behind others that were shown before it.
const LATE: u64 = 200;

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
    let since_ms = since.map_or(0, Age::ago_ms);
    // The array applies the filters.
    let mut filters = format!("severity={severity}&since_ms={since_ms}&audit={audit}");
    for (name, value) in [("actor", &actor), ("object", &object)] {
        if let Some(value) = value {
            filters.push_str(&format!("&{name}={}", segment(value)));
        }
    }
    if follow {
        return self::follow(client, output, &filters, limit);
    }
    // What was asked for, for the message that there is nothing of it.
    let mut asked = Vec::new();
    asked.extend((severity != Severity::Info).then(|| format!("severity {severity} or higher")));
    asked.extend(since.map(|age| format!("the last {}", duration_text(age.seconds()))));
    asked.extend(audit.then(|| "--audit".to_owned()));
    asked.extend(actor.map(|actor| format!("actor {actor}")));
    asked.extend(object.map(|object| format!("object {object}")));
    let newest: Vec<Event> = client.get(&format!("/events?limit={limit}&{filters}"))?;
    output.list(&newest, &asked.join(", "), table_of);
    Ok(())
}

/// Shows the newest events, oldest first, and then each new one.
fn follow(client: &Client, output: &Output, filters: &str, limit: u32) -> Result<(), Failure> {
    let text: fn(&Event) -> String = match output.format {
        Format::Json => |event| serde_json::to_string(event).unwrap_or_default(),
        Format::Table => line_of,
        Format::Yaml | Format::Csv => {
            return Err(Failure::usage(
                "events not followed",
                "events that come one by one are shown as text or JSON",
                "add -o json, or leave --follow out",
            ));
        }
    };
    // The newest events first, as without --follow.
    let mut newest: Vec<Event> = client.get(&format!("/events?limit={limit}&{filters}"))?;
    let mut shown = Shown::default();
    if newest.len() == limit as usize {
        // Those before them are not wanted.
        shown.floor = newest.last().map_or(0, |oldest| oldest.number.saturating_sub(1));
    }
    loop {
        for event in shown.new_of(newest) {
            if !line(&text(&event)) {
                return Ok(());
            }
        }
        // Then what is new, again and again.
        thread::sleep(FOLLOW_EVERY);
        let path = format!("/events?limit={FOLLOW_LIMIT}&after={}&{filters}", shown.after());
        newest = match client.get(&path) {
            // Waits for an array that restarts: the events it recorded meanwhile are still wanted.
            Err(failure) if failure.is_refusal() => return Err(failure),
            outcome => outcome.unwrap_or_default(),
        };
    }
}

/// Which events were shown already. A change has its number before it is made, so its event may come a moment after
/// those with higher numbers.
#[derive(Default)]
struct Shown {
    /// Nothing up to this number is wanted.
    floor: u64,
    numbers: BTreeSet<u64>,
}

impl Shown {
    /// Above which number to look for new ones.
    fn after(&self) -> u64 {
        let last = self.numbers.last().copied().unwrap_or(0);
        last.saturating_sub(LATE).max(self.floor)
    }

    /// Those that were not shown, oldest first, of a list from the newest to the oldest.
    fn new_of(&mut self, newest: Vec<Event>) -> Vec<Event> {
        // What was shown is remembered as far back as an event may come late.
        let is_new = |event: &Event| self.numbers.insert(event.number);
        let new: Vec<_> = newest.into_iter().rev().filter(is_new).collect();
        let after = self.after();
        self.numbers.retain(|number| *number > after);
        new
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
        .filter(|change| !says(&event.text, &shown(&change.after)))
        .map(|change| format!("{} {} → {}", change.field, shown(&change.before), shown(&change.after)))
        .collect();
    let mut text = event.text.clone();
    if !changed.is_empty() {
        text.push_str(&format!(" ({})", changed.join(", ")));
    }
    text
}

/// Whether a text has this value in it, and not only as a part of another.
fn says(text: &str, value: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    text.match_indices(value).any(|(at, found)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        !value.is_empty() && !before.ends_with(is_part) && !after.starts_with(is_part)
    })
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
    fn a_value_is_said_only_if_it_stands_by_itself() {
        assert!(says("mapped to host h1 as LUN 7", "7") && says("grown to 8 bytes", "8"));
        assert!(!says("grown from 1 to 17 bytes", "7") && !says("snapshot v1.7 taken", "7"));
        assert!(!says("anything", ""));
    }

    /// A change of number 3 took longer than what got the numbers 4 and 5.
    #[test]
    fn an_event_that_comes_late_is_shown_and_none_twice() {
        let events = |numbers: &[u64]| -> Vec<Event> {
            let one = |number| {
                let text = format!(
                    r#"{{"number":{number},"at_ms":0,"severity":"info","kind":"event","object":"a","text":"b",
                        "actor":null,"suppressed":0,"changes":[]}}"#
                );
                serde_json::from_str(&text).unwrap()
            };
            numbers.iter().rev().map(|number| one(*number)).collect()
        };
        let mut shown = Shown { floor: 1, ..Shown::default() };
        let mut new = |numbers: &[u64]| -> Vec<u64> {
            let new = shown.new_of(events(numbers)).iter().map(|event| event.number).collect();
            assert!(shown.numbers.len() as u64 <= LATE);
            new
        };
        assert_eq!(new(&[2, 4, 5]), [2, 4, 5]);
        assert_eq!(new(&[2, 3, 4, 5, 6]), [3, 6]);
        assert_eq!(new(&(2..=900).collect::<Vec<_>>()).len(), 894);
        assert_eq!(shown.after(), 900 - LATE);
    }

    #[test]
    fn severities_are_read_by_name() {
        for severity in Severity::ALL {
            assert_eq!(parse_severity(&severity.to_string()), Ok(severity));
        }
        assert!(parse_severity("fatal").unwrap_err().contains("info, notice, warning, error, critical"));
    }
}
