//! An event as the catalog and the notes keep it, and how large one can be.

use crate::record::encode;
use quoin_api::{Actor, Event, EventKind, FieldChange, Severity};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a text may be, in bytes; longer texts are cut.
const TEXT_BYTES_MAX: usize = 1000;
/// How long what clients state about themselves may be.
const STATED_BYTES_MAX: usize = 256;
/// What the changes of one event may take; those beyond are left out, and the text says so.
const CHANGES_BYTES_MAX: usize = 1000;
/// How long a single value may be before it is cut.
const VALUE_BYTES_MAX: usize = 300;
/// Room for saying how many were left out.
const LEFT_OUT_BYTES_MAX: usize = 64;
/// No event takes more than this: texts, six statements and changes, whose quotes and controls JSON may write with six bytes.
pub(crate) const EVENT_BYTES_MAX: usize = 4 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventRecord {
    pub(crate) number: u64,
    pub(crate) at_ms: u64,
    pub(crate) severity: Severity,
    pub(crate) object: String,
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "EventKind::is_event")]
    pub(crate) kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<Actor>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<FieldChange>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) suppressed: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl EventRecord {
    /// The event, cut to what one may take.
    pub(crate) fn bounded(mut self) -> Self {
        tidy(&mut self.object, STATED_BYTES_MAX);
        tidy(&mut self.text, TEXT_BYTES_MAX);
        if let Some(actor) = &mut self.actor {
            let Actor { token, fingerprint, name, address, request, command, user } = actor;
            for stated in [token, fingerprint, name, address, request, command, user].into_iter().flatten() {
                tidy(stated, STATED_BYTES_MAX);
            }
        }
        self.changes.iter_mut().for_each(|change| {
            tidy(&mut change.field, STATED_BYTES_MAX);
            [&mut change.before, &mut change.after].into_iter().for_each(bounded_value);
        });
        let changed = self.changes.len();
        while len_of(&self.changes) > CHANGES_BYTES_MAX || self.room_bytes() < LEFT_OUT_BYTES_MAX {
            if self.changes.pop().is_none() {
                // Characters that JSON escapes take more than their bytes.
                let half = self.text.len() / 2;
                cut(&mut self.text, half);
                if let Some(actor) = &mut self.actor {
                    (actor.command, actor.request) = (None, None);
                }
            }
        }
        let left_out = changed - self.changes.len();
        if left_out > 0 {
            self.text.push_str(&format!("; {left_out} more changed fields are not listed"));
        }
        self
    }

    fn room_bytes(&self) -> usize {
        EVENT_BYTES_MAX.saturating_sub(encode(self).len())
    }

    pub(crate) fn view(&self) -> Event {
        let Self { number, at_ms, severity, object, text, kind, actor, changes, suppressed } = self.clone();
        Event { number, at_ms, severity, kind, object, text, actor, changes, suppressed }
    }
}

fn len_of(changes: &[FieldChange]) -> usize {
    serde_json::to_vec(changes).map_or(0, |bytes| bytes.len())
}

fn cut(text: &mut String, most_bytes: usize) {
    if text.len() > most_bytes {
        let end = (0..=most_bytes).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// Clients must not be able to control the terminal of the log's readers through an event: removes line breaks, escape
/// sequences, and characters that change the direction of the following text.
fn tidy(text: &mut String, most_bytes: usize) {
    let misleads =
        |c| matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    text.retain(|c| !c.is_control() && !misleads(c));
    cut(text, most_bytes);
}

/// The value with tidy texts, and as text if it is too long.
fn bounded_value(value: &mut Value) {
    fn tidy_all(value: &mut Value) {
        match value {
            Value::String(text) => tidy(text, VALUE_BYTES_MAX),
            Value::Array(items) => items.iter_mut().for_each(tidy_all),
            Value::Object(fields) => fields.values_mut().for_each(tidy_all),
            _ => {}
        }
    }
    tidy_all(value);
    if let Value::Array(_) | Value::Object(_) = value {
        let mut text = value.to_string();
        if text.len() > VALUE_BYTES_MAX {
            cut(&mut text, VALUE_BYTES_MAX);
            *value = Value::String(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> EventRecord {
        let (kind, actor, changes, suppressed) = (EventKind::Event, None, Vec::new(), 0);
        let (number, at_ms, severity) = (7, 9, Severity::Info);
        let (object, text) = ("volume v1".to_owned(), text.to_owned());
        EventRecord { number, at_ms, severity, object, text, kind, actor, changes, suppressed }
    }

    #[test]
    fn what_there_is_nothing_to_say_of_takes_no_space() {
        let bytes = encode(&record("created"));
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            r#"{"version":1,"number":7,"at_ms":9,"severity":"info","object":"volume v1","text":"created"}"#
        );
    }

    #[test]
    fn no_event_is_larger_than_the_most_whatever_is_in_it() {
        for filler in ["x", "ä", "\u{1}", "\"", "\u{10FFFF}"] {
            let long = filler.repeat(9000);
            let some = || Some(long.clone());
            let actor = Actor {
                token: some(),
                fingerprint: some(),
                name: some(),
                address: some(),
                request: some(),
                command: some(),
                user: some(),
            };
            let (before, after) = (Value::String(long.clone()), Value::Array(vec![long.clone().into(); 9]));
            let change = FieldChange { field: long.clone(), before, after };
            let object = long.clone();
            let changes = vec![change; 9];
            let made = EventRecord { object, actor: Some(actor), changes, ..record(&long) }.bounded();
            let len = encode(&made).len();
            assert!(len <= EVENT_BYTES_MAX, "{filler:?}: {len} bytes");
            assert!(!made.object.chars().any(char::is_control));
            let left_out = 9 - made.changes.len();
            // A text of control characters only is empty once it is tidy.
            assert_eq!(left_out > 0, filler != "\u{1}", "{filler:?}");
            let said = format!("; {left_out} more changed fields are not listed");
            assert_eq!(made.text.ends_with(&said), left_out > 0, "{filler:?}: {}", made.text);
        }
        let misleading = "a\u{202E}b\u{2028}c\u{1b}[1m";
        let value = serde_json::json!({ "tags": [misleading], "name": misleading });
        let change = FieldChange { field: "tags".into(), before: value, after: misleading.into() };
        let made = EventRecord { changes: vec![change], ..record(misleading) }.bounded();
        let text = String::from_utf8(encode(&made)).unwrap();
        assert!(made.text == "abc[1m" && !text.contains(['\u{202E}', '\u{2028}']) && !text.contains("001b"));
        let small = EventRecord {
            changes: vec![FieldChange { field: "size_bytes".into(), before: 1.into(), after: 2.into() }],
            ..record("grown")
        };
        assert_eq!(small.clone().bounded(), small);
    }
}
