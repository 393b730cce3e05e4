//! JSON values as YAML 1.2: blocks for what has parts, and strings as JSON writes them, which YAML reads alike.

use serde_json::Value;
use std::fmt::Write;

/// A value as a document, without a line feed at its end.
pub(super) fn of(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text.trim_matches('\n').trim_start().to_owned()
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    }
}

/// Appends a value. One with parts begins on a line of its own, unless it is an item of a list.
fn block(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    // Writing to a string does not fail.
    match value {
        value if is_plain(value) => {
            let _ = write!(text, " {value}");
        }
        Value::Array(items) => {
            for item in items {
                let _ = write!(text, "\n{indent}-");
                match item {
                    Value::Object(_) if !is_plain(item) => {
                        let mut fields = String::new();
                        block(item, depth + 1, &mut fields);
                        let _ = write!(text, " {}", fields.trim_start());
                    }
                    item => block(item, depth + 1, text),
                }
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                // A name is quoted unless it can be nothing else.
                let bare = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                    && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"]
                        .contains(&name.as_str());
                let name = if bare && !name.is_empty() {
                    name.clone()
                } else {
                    Value::from(name.as_str()).to_string()
                };
                let _ = write!(text, "\n{indent}{name}:");
                block(value, depth + 1, text);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_has_parts_is_a_block() {
        let value = json!([
            { "name": "v1", "size": 4, "tags": { "a b": "x: y", "no": null }, "seen": [], "by": ["h1", "h2"] },
            { "name": "v2", "nested": [[1, 2], { "x": true }] },
        ]);
        assert_eq!(
            of(&value),
            "- by:\n    - \"h1\"\n    - \"h2\"\n  name: \"v1\"\n  seen: []\n  size: 4\n  tags:\n    \"a b\": \"x: y\"\n    \
             \"no\": null\n- name: \"v2\"\n  nested:\n    -\n      - 1\n      - 2\n    - x: true"
        );
        assert_eq!(of(&json!([])), "[]");
        assert_eq!(of(&json!({ "a": 1 })), "a: 1");
        assert_eq!(of(&json!("x")), "\"x\"");
    }
}
