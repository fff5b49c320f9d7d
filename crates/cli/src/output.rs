//! How objects are printed: tables for people, JSON, YAML and names for programs.

use std::fmt::Write as _;

use postern_client::{Collection, Representation};
use postern_kinds::Info;
use postern_meta::encode_yaml;
use postern_meta::object::Object;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::error::CliError;
pub(crate) use crate::escape::{controls_terminal, escape};
use crate::flags::{ObjectFormat, TableFormat};
use crate::process::Process;

/// Where `kubectl apply` keeps what it applied last. Of a secret, it has the values.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Spaces between two columns.
const GAP: usize = 3;

/// An object or a list as JSON, with a line break at the end.
pub(crate) fn json(value: Value) -> Zeroizing<String> {
    // A value has nothing that could fail to encode.
    let text = serde_json::to_string_pretty(&without_managed_fields(value)).unwrap_or_default();
    Zeroizing::new(text + "\n")
}

/// An object or a list as YAML.
pub(crate) fn yaml(value: Value) -> Zeroizing<String> {
    Zeroizing::new(encode_yaml(&without_managed_fields(value)))
}

/// Removes the managed fields, which kubectl does not print either.
fn without_managed_fields(mut value: Value) -> Value {
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

/// The representation of an object or a list that a format needs.
pub(crate) fn representation(format: Option<TableFormat>) -> Representation {
    match format {
        None | Some(TableFormat::Wide) => Representation::Table,
        Some(TableFormat::Name) => Representation::Metadata,
        Some(TableFormat::Json | TableFormat::Yaml) => Representation::Whole,
    }
}

/// An object or a list of a collection as text. It has the format's [`representation`].
pub(crate) fn text(
    value: Value,
    format: Option<TableFormat>,
    of: Collection<'_>,
) -> Zeroizing<String> {
    match format {
        Some(TableFormat::Json) => json(value),
        Some(TableFormat::Yaml) => yaml(value),
        Some(TableFormat::Name) => {
            let items = value["items"].as_array();
            let items = items.map_or(std::slice::from_ref(&value), Vec::as_slice).iter();
            let names = items.filter_map(|item| item["metadata"]["name"].as_str());
            names.map(|name| full_name(of.info(), name) + "\n").collect::<String>().into()
        }
        None | Some(TableFormat::Wide) => {
            let all_namespaces = of.info().is_namespaced() && of.namespace().is_none();
            server_table(&value, format.is_some(), all_namespaces).into()
        }
    }
}

/// Prints an object, unless no format was asked for.
pub(crate) fn print_object(
    object: Object,
    info: &Info,
    format: Option<ObjectFormat>,
    process: &Process,
) -> Result<(), CliError> {
    let text = match format {
        None => return Ok(()),
        Some(ObjectFormat::Json) => json(object.into_value()),
        Some(ObjectFormat::Yaml) => yaml(object.into_value()),
        Some(ObjectFormat::Name) => (full_name(info, &object.metadata.name) + "\n").into(),
    };
    process.print_text(text.as_str())
}

/// The name `KIND.GROUP/NAME`, as kubectl takes it.
pub(crate) fn full_name(info: &Info, name: &str) -> String {
    match info.version.group {
        "" => format!("{}/{name}", info.singular),
        group => format!("{}.{group}/{name}", info.singular),
    }
}

/// Writes rows below headings, in aligned columns.
pub(crate) fn table(headings: Vec<String>, mut rows: Vec<Vec<String>>) -> String {
    rows.insert(0, headings);
    columns(&rows)
}

/// Writes rows in aligned columns.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    widen(&mut widths, rows);
    aligned(&widths, rows)
}

/// Makes columns as wide as the cells of these rows, where they are narrower.
pub(crate) fn widen(widths: &mut Vec<usize>, rows: &[Vec<String>]) {
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
}

/// Writes rows in columns of these widths.
pub(crate) fn aligned(widths: &[usize], rows: &[Vec<String>]) -> String {
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

/// The server's table as text. `wide` adds the columns of lower priority, `namespaced` a
/// first one with the namespace.
pub(crate) fn server_table(table_value: &Value, wide: bool, namespaced: bool) -> String {
    let empty = Vec::new();
    let list = |field: &str| table_value[field].as_array().unwrap_or(&empty).iter();
    let columns: Vec<_> = list("columnDefinitions")
        .enumerate()
        .filter(|(_, column)| wide || column["priority"].as_i64().unwrap_or(0) == 0)
        .map(|(at, column)| (at, column["name"].as_str().unwrap_or("").to_uppercase()))
        .collect();
    let mut headings: Vec<String> = columns.iter().map(|(_, name)| escape(name)).collect();
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

/// A cell of a table as one line.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escape(text),
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
    fn managed_fields_are_not_printed() {
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
