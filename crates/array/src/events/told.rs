//! The event of a change before it is recorded: one line for people, and the changed fields for programs.

use crate::words::shortened;
use quoin_api::{FieldChange, Severity};
use serde::Serialize;
use serde_json::Value;

/// An event in the making.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// Its severity, if it is recorded with a change.
    pub(crate) severity: Severity,
    pub(crate) object: String,
    pub(crate) text: String,
    pub(crate) changes: Vec<FieldChange>,
    /// The requested change follows in a transaction of its own.
    pub(crate) is_first_step: bool,
    /// What the request shows as its answer, if not the object.
    answer: Option<String>,
}

impl Told {
    pub(crate) fn new(object: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Info,
            object: object.into(),
            text: text.into(),
            changes: Vec::new(),
            is_first_step: false,
            answer: None,
        }
    }

    /// Says what the answer to the request shows, with its kind, if that is not the object.
    pub(crate) fn answered_with(self, answer: String) -> Self {
        Self { answer: Some(answer), ..self }
    }

    /// What the answer to the request shows.
    pub(crate) fn answer(&self) -> &str {
        self.answer.as_ref().unwrap_or(&self.object)
    }

    /// Marks that the requested change follows in a transaction of its own.
    pub(crate) fn first_step(self) -> Self {
        Self { is_first_step: true, ..self }
    }

    /// The same as a warning.
    pub(crate) fn warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Adds to the text, as far as an event has room.
    pub(crate) fn and(self, more: &str) -> Self {
        let text = shortened(&format!("{}{more}", self.text));
        Self { text, ..self }
    }

    /// Adds a field that was `before` and is `after` now, unless it is unchanged.
    pub(crate) fn change(mut self, field: &str, before: impl Serialize, after: impl Serialize) -> Self {
        let value = |result: serde_json::Result<Value>| result.unwrap_or_default();
        let (before, after) = (value(serde_json::to_value(before)), value(serde_json::to_value(after)));
        if before != after {
            self.changes.push(FieldChange { field: field.to_owned(), before, after });
        }
        self
    }

    /// Adds a field of an object that is created.
    pub(crate) fn with(self, field: &str, value: impl Serialize) -> Self {
        self.change(field, Value::Null, value)
    }

    /// Adds a field of an object that is deleted.
    pub(crate) fn without(self, field: &str, value: impl Serialize) -> Self {
        self.change(field, value, Value::Null)
    }
}

impl From<(String, String)> for Told {
    fn from((object, text): (String, String)) -> Self {
        Self::new(object, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_told() {
        let told = Told::new("volume v1", "…").change("size_bytes", 1, 2).change("thick", true, true);
        let told = told.with("name", "v1").without("tags", Vec::<String>::new());
        let fields: Vec<_> =
            told.changes.iter().map(|change| serde_json::to_string(change).unwrap()).collect();
        assert_eq!(
            fields,
            [
                r#"{"field":"size_bytes","before":1,"after":2}"#,
                r#"{"field":"name","before":null,"after":"v1"}"#,
                r#"{"field":"tags","before":[],"after":null}"#,
            ]
        );
    }
}
