//! Tables for people, JSON and YAML for programs.

use std::fmt::Write as _;

use postern_kinds::Info;
use postern_meta::encode_yaml;
use serde_json::Value;
use zeroize::Zeroizing;

/// Between two columns.
const GAP: usize = 3;

/// An object or a list as JSON, ending in a line break.
pub(crate) fn json(value: Value) -> Zeroizing<String> {
    // A value has nothing that could fail to encode.
    let text = serde_json::to_string_pretty(&without_bookkeeping(value)).unwrap_or_default();
    Zeroizing::new(text + "\n")
}

/// An object or a list as YAML.
pub(crate) fn yaml(value: Value) -> Zeroizing<String> {
    Zeroizing::new(encode_yaml(&without_bookkeeping(value)))
}

/// Without the fields' managers, which say nothing to most readers, and of which kubectl, too, is
/// silent.
fn without_bookkeeping(mut value: Value) -> Value {
    let drop_from = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    drop_from(&mut value);
    if let Some(Value::Array(items)) = value.get_mut("items") {
        items.iter_mut().for_each(drop_from);
    }
    value
}

/// `KIND.GROUP/NAME`, as kubectl takes it.
pub(crate) fn full_name(info: &Info, name: &str) -> String {
    match info.version.group {
        "" => format!("{}/{name}", info.singular),
        group => format!("{}.{group}/{name}", info.singular),
    }
}

/// Text of others, such that it is one line and does nothing to a terminal.
pub(crate) fn tame(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Rows below headings, in columns of equal width.
pub(crate) fn table(headings: Vec<String>, mut rows: Vec<Vec<String>>) -> String {
    rows.insert(0, headings);
    columns(&rows)
}

/// Rows in columns of equal width.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            // Writing to a String does not fail.
            let _ = write!(line, "{cell:0$}", width + GAP);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The server's table. `wide` shows all its columns; `namespaced` begins with the namespace.
pub(crate) fn server_table(table_value: &Value, wide: bool, namespaced: bool) -> String {
    let empty = Vec::new();
    let list = |field: &str| table_value[field].as_array().unwrap_or(&empty).iter();
    let columns: Vec<_> = list("columnDefinitions")
        .enumerate()
        .filter(|(_, column)| wide || column["priority"].as_i64().unwrap_or(0) == 0)
        .map(|(at, column)| (at, column["name"].as_str().unwrap_or("").to_uppercase()))
        .collect();
    let mut headings: Vec<String> = columns.iter().map(|(_, name)| tame(name)).collect();
    let mut rows: Vec<Vec<String>> = list("rows")
        .map(|row| columns.iter().map(|(at, _)| cell(&row["cells"][at])).collect())
        .collect();
    if namespaced {
        headings.insert(0, "NAMESPACE".to_owned());
        for (row, value) in rows.iter_mut().zip(list("rows")) {
            row.insert(0, cell(&value["object"]["metadata"]["namespace"]));
        }
    }
    table(headings, rows)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => tame(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_of_the_server() {
        let value = json!({
            "columnDefinitions": [
                { "name": "Name", "priority": 0 },
                { "name": "Keys", "priority": 0 },
                { "name": "Display Name", "priority": 1 },
            ],
            "rows": [
                { "cells": ["db", 2, "évil\u{1b}[2J"], "object": { "metadata": { "namespace": "a" } } },
                { "cells": ["a-longer-name", 11, ""], "object": null },
            ],
        });
        assert_eq!(
            server_table(&value, false, false),
            "NAME            KEYS\ndb              2\na-longer-name   11\n"
        );
        let wide = server_table(&value, true, true);
        assert!(wide.starts_with("NAMESPACE   NAME            KEYS   DISPLAY NAME\n"), "{wide}");
        assert!(wide.contains("évil\\u{1b}[2J"), "{wide}");
        assert_eq!(server_table(&json!({}), true, false), "\n");
    }

    #[test]
    fn who_manages_which_field_is_not_told() {
        let object = json!({ "metadata": { "name": "a", "managedFields": [1] } });
        let list = json!({ "metadata": {}, "items": [object] });
        for text in [super::json(object.clone()), yaml(list)] {
            assert!(text.contains("name") && !text.contains("managedFields"), "{text:?}");
        }
    }

    #[test]
    fn names_for_kubectl() {
        use postern_kinds::Kind as _;
        let info = &postern_kinds::user::User::INFO;
        assert_eq!(full_name(info, "ada"), "user.management.platform.sh/ada");
    }
}
