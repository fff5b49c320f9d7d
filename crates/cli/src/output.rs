//! How objects are printed: tables for people, JSON, YAML and names for programs.

use std::fmt::Write as _;

use postern_kinds::Info;
use postern_meta::encode_yaml;
use postern_meta::object::Object;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::error::CliError;
pub(crate) use crate::escape::{controls_terminal, escape};
use crate::flags::ObjectFormat;
use crate::process::Process;

/// The annotation in which `kubectl apply` keeps the object that it applied last. For a secret, it
/// contains the values.
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

/// A value in a format for programs. `name` is for [`ObjectFormat::Name`].
pub(crate) fn formatted(value: Value, format: ObjectFormat, name: &str) -> Zeroizing<String> {
    match format {
        ObjectFormat::Json => json(value),
        ObjectFormat::Yaml => yaml(value),
        ObjectFormat::Name => Zeroizing::new(format!("{name}\n")),
    }
}

/// Prints an object, unless no format was asked for.
pub(crate) fn print_object(
    object: Object,
    info: &Info,
    format: Option<ObjectFormat>,
    process: &Process,
) -> Result<(), CliError> {
    let Some(format) = format else { return Ok(()) };
    let name = full_name(info, &object.metadata.name);
    process.print_text(formatted(object.into_value(), format, &name).as_str())
}

/// Prints an object as one of several documents. `separator` is for YAML, and is empty before the first one.
pub(crate) fn print_document(
    object: Object,
    info: &Info,
    format: Option<ObjectFormat>,
    separator: &mut &str,
    process: &Process,
) -> Result<(), CliError> {
    if format == Some(ObjectFormat::Yaml) {
        process.print_text(std::mem::replace(separator, "---\n"))?;
    }
    print_object(object, info, format, process)
}

/// Says that there are no objects of a kind in the namespace, or in all.
pub(crate) fn empty_message(info: &Info, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("no {} in the namespace {namespace}", info.plural),
        None => format!("no {}", info.plural),
    }
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
