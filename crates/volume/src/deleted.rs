//! The part of a volume's record that says that the volume is in the recycle bin.

use serde::{Deserialize, Serialize};

/// The length limit for the name of who deleted a volume, so that the records of a set fit one transaction.
const BY_BYTES_MAX: usize = 40;

/// The record that a volume is in the recycle bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deleted {
    /// When it was deleted, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The time of the retention clock at which its time is over.
    pub(crate) until_ms: u64,
    /// Who deleted it; `None` if no client did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Deleted {
    /// A deletion now; a long name of who deletes is cut.
    pub(crate) fn new(at_ms: u64, until_ms: u64, by: Option<&str>) -> Self {
        Self { at_ms, until_ms, by: by.map(shortened) }
    }
}

/// A text, cut to the room in a record, in characters that JSON does not escape.
fn shortened(text: &str) -> String {
    let plain = |c: &char| !c.is_control() && !['"', '\\'].contains(c);
    let mut short = String::new();
    for c in text.chars().filter(plain) {
        if short.len() + c.len_utf8() > BY_BYTES_MAX {
            break;
        }
        short.push(c);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_their_form() {
        let deleted = Deleted { at_ms: 1, until_ms: 2, by: Some("ann".into()) };
        let text = r#"{"at_ms":1,"until_ms":2,"by":"ann"}"#;
        assert_eq!(serde_json::to_string(&deleted).unwrap(), text);
        assert_eq!(serde_json::from_str::<Deleted>(text).unwrap(), deleted);
        let by_itself = serde_json::from_str::<Deleted>(r#"{"at_ms":1,"until_ms":2}"#).unwrap();
        assert_eq!(by_itself, Deleted { by: None, ..deleted });
    }

    #[test]
    fn who_deleted_a_volume_takes_a_bounded_part_of_its_record() {
        assert_eq!(shortened("ann@db1 (admin, 127.0.0.1)"), "ann@db1 (admin, 127.0.0.1)");
        assert_eq!(shortened("a\"b\\c\n"), "abc");
        let long = shortened(&"ä".repeat(99));
        assert_eq!(long, "ä".repeat(BY_BYTES_MAX / 2));
    }
}
