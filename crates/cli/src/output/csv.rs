//! JSON values as CSV (RFC 4180): a line for each object of a list, or one for a single object.
//!
//! Columns are what objects have of single values; those of objects within them are called `outer.inner`, and lists of
//! single values are one cell, joined by blanks. Lists of objects are left out: JSON has them.

use serde_json::{Map, Value};

/// What comes first, since it says which object the line is about.
const FIRST: [&str; 4] = ["id", "number", "name", "path"];

/// Lines without a line feed at the end; nothing for an empty list.
pub(super) fn of(value: &Value, headers: bool) -> String {
    let rows: Vec<Vec<(String, String)>> = match value {
        Value::Array(items) => items.iter().map(cells).collect(),
        value => vec![cells(value)],
    };
    let mut columns: Vec<&String> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    columns.sort_by_key(|name| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    let cell = |row: &[(String, String)], column: &String| {
        row.iter().find(|(name, _)| name == column).map_or_else(String::new, |(_, cell)| quoted(cell))
    };
    let mut lines = Vec::new();
    if headers && !columns.is_empty() {
        lines.push(columns.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(","));
    }
    lines.extend(
        rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect::<Vec<_>>().join(",")),
    );
    lines.join("\n")
}

fn cells(value: &Value) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    match value {
        Value::Object(fields) => flatten("", fields, &mut cells),
        value => cells.push(("value".to_owned(), single(value))),
    }
    cells
}

fn flatten(above: &str, fields: &Map<String, Value>, cells: &mut Vec<(String, String)>) {
    for (name, value) in fields {
        let name = format!("{above}{name}");
        match value {
            Value::Object(fields) => flatten(&format!("{name}."), fields, cells),
            Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {}
            Value::Array(items) => cells.push((name, items.iter().map(single).collect::<Vec<_>>().join(" "))),
            value => cells.push((name, single(value))),
        }
    }
}

/// A single value as a cell; null is empty.
fn single(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_lines_and_single_values_columns() {
        let value = json!([
            { "block": 512, "name": "v1", "tags": { "app": "a,b" }, "initiators": ["x", "y"], "mappings": [{ "lun": 1 }] },
            { "block": null, "name": "v\"2", "tags": {} },
        ]);
        let lines = "name,block,initiators,tags.app\nv1,512,x y,\"a,b\"\n\"v\"\"2\",,,";
        assert_eq!(of(&value, true), lines);
        assert_eq!(of(&value, false), lines.split_once('\n').unwrap().1);
        assert_eq!(of(&json!([]), true), "");
        assert_eq!(of(&json!({ "name": "v1" }), true), "name\nv1");
    }
}
