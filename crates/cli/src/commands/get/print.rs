//! How the objects of `postern get` are printed: in tables, or in one text.

use postern_client::Representation;
use postern_kinds::Info;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{Get, object_of};
use crate::error::CliError;
use crate::jsonpath::text_of;
use crate::output::{self, escape, full_name};
use crate::output_format::{Column, OutputFormat};
use crate::process::Process;
use crate::resources::Wanted;
use crate::server_table::{TableOptions, TablePrinter};
use crate::sort::sort_by_path;

/// Objects of one kind, in one representation.
pub(super) struct Objects {
    /// The kind.
    pub(super) info: &'static Info,
    /// The namespace; `None` for all of them, and for a kind without namespaces.
    namespace: Option<String>,
    /// The table without its rows; null in other representations.
    table: Value,
    /// The objects, or the rows of the table.
    pub(super) items: Vec<Value>,
}

impl Objects {
    /// The objects of a response: of a list, or one object.
    pub(super) fn new(
        info: &'static Info,
        namespace: Option<String>,
        mut value: Value,
        representation: Representation,
        is_list: bool,
    ) -> Self {
        let mut take = |field: &str| match value.get_mut(field).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let mut items = match (representation.is_table(), is_list) {
            (true, _) => take("rows"),
            (false, true) => take("items"),
            (false, false) => vec![std::mem::take(&mut value)],
        };
        if representation == Representation::Whole {
            for item in &mut items {
                set_type(item, info);
            }
        }
        let table = if representation.is_table() { value } else { Value::Null };
        Self { info, namespace, table, items }
    }
}

/// The items of a list have no kind of their own.
fn set_type(item: &mut Value, info: &Info) {
    if let Some(fields) = item.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| json!(info.version.to_string()));
        fields.entry("kind").or_insert_with(|| json!(info.kind));
    }
}

impl Get {
    /// Prints what was read.
    pub(super) fn print(
        &self,
        mut all: Vec<Objects>,
        wanted: &[Wanted],
        process: &Process,
    ) -> Result<(), CliError> {
        if let Some(path) = &self.sort_by {
            let representation = self.representation();
            for objects in &mut all {
                sort_by_path(&mut objects.items, path, |item| object_of(item, representation))
                    .map_err(CliError::new)?;
            }
        }
        let is_single = matches!(wanted, [one] if one.name.is_some());
        let text = match &self.output {
            None | Some(OutputFormat::Wide) => {
                return self.print_tables(&all, process);
            }
            Some(OutputFormat::Name) => all.iter().map(names).collect::<String>().into(),
            Some(OutputFormat::CustomColumns(columns)) => {
                let items = all.iter().flat_map(|objects| &objects.items);
                let rows: Vec<_> =
                    items.map(|item| cells(columns, item)).collect::<Result<_, _>>()?;
                if rows.is_empty() && wanted.iter().all(|one| one.name.is_some()) {
                    return Ok(());
                }
                custom_table(columns, rows, self.no_headers)
            }
            Some(format) => {
                let items = all.into_iter().flat_map(|objects| objects.items);
                let Some(value) = one_value(items, is_single) else { return Ok(()) };
                document(value, format)?
            }
        };
        process.print_text(text.as_str())?;
        // kubectl adds nothing either, and a prompt behind the text is hard to read.
        let is_template = matches!(self.output, Some(OutputFormat::JsonPath(_)));
        if is_template && process.stdout_is_terminal() && !text.ends_with('\n') {
            process.write_stdout(b"\n")?;
        }
        Ok(())
    }

    fn print_tables(&self, all: &[Objects], process: &Process) -> Result<(), CliError> {
        let mut separator = "";
        for objects in all {
            if objects.items.is_empty() {
                process.print_status(&empty_message(objects.info, objects.namespace.as_deref()));
                continue;
            }
            let kind = (all.len() > 1).then_some(objects.info);
            let mut printer =
                TablePrinter::new(&objects.table, self.table_options(objects.info, kind));
            let lines = printer.lines(&objects.items);
            process.print_text(format!("{separator}{lines}"))?;
            separator = if self.no_headers { "" } else { "\n" };
        }
        Ok(())
    }

    /// What is printed of the tables of a kind.
    pub(super) fn table_options(&self, info: &Info, kind: Option<&'static Info>) -> TableOptions {
        TableOptions {
            wide: self.output.is_some(),
            namespaces: self.namespaces.all_namespaces && info.is_namespaced(),
            labels: self.show_labels,
            no_headings: self.no_headers,
            kind,
        }
    }
}

/// Says that there are no objects.
fn empty_message(info: &Info, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("no {} in the namespace {namespace}", info.plural),
        None => format!("no {}", info.plural),
    }
}

fn names(objects: &Objects) -> String {
    objects.items.iter().map(|item| name_line(objects.info, item)).collect()
}

/// The name of an object as kubectl takes it, as a line.
pub(super) fn name_line(info: &Info, item: &Value) -> String {
    full_name(info, item["metadata"]["name"].as_str().unwrap_or_default()) + "\n"
}

/// The one object, or a list of all.
fn one_value(items: impl Iterator<Item = Value>, is_single: bool) -> Option<Value> {
    let mut items: Vec<Value> = items.collect();
    if is_single {
        return items.pop();
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": { "resourceVersion": "" },
        "items": items,
    }))
}

/// An object or a list as one text.
pub(super) fn document(value: Value, format: &OutputFormat) -> Result<Zeroizing<String>, CliError> {
    match format {
        OutputFormat::JsonPath(template) => {
            template.render(&value).map_err(|what| CliError::new(format!("-o jsonpath: {what}")))
        }
        OutputFormat::Yaml => Ok(output::yaml(value)),
        _ => Ok(output::json(value)),
    }
}

/// The cells of an object.
pub(super) fn cells(columns: &[Column], item: &Value) -> Result<Vec<String>, CliError> {
    let cell = |column: &Column| {
        let values = column.path.values(item).map_err(|what| {
            CliError::new(format!("-o custom-columns: {}: {what}", column.heading))
        })?;
        let texts: Vec<String> =
            values.into_iter().map(|value| escape(&cell_text(value))).collect();
        Ok(if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") })
    };
    columns.iter().map(cell).collect()
}

/// A value in a cell, as kubectl prints it: mappings and lists in the form of Go.
fn cell_text(value: &Value) -> Zeroizing<String> {
    match value {
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(key, value)| format!("{key}:{}", *cell_text(value)));
            Zeroizing::new(format!("map[{}]", pairs.collect::<Vec<_>>().join(" ")))
        }
        Value::Array(items) => {
            let texts = items.iter().map(|item| cell_text(item).to_string());
            Zeroizing::new(format!("[{}]", texts.collect::<Vec<_>>().join(" ")))
        }
        Value::Null => Zeroizing::new("<nil>".to_owned()),
        other => text_of(other),
    }
}

fn custom_table(
    columns: &[Column],
    rows: Vec<Vec<String>>,
    no_headings: bool,
) -> Zeroizing<String> {
    if no_headings {
        return output::columns(&rows).into();
    }
    output::table(headings(columns), rows).into()
}

/// The headings of columns.
pub(super) fn headings(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|column| escape(&column.heading)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_those_of_kubectl() {
        for (value, wanted) in [
            (json!({ "c": "d", "a": ["x", 1, { "b": true }] }), "map[a:[x 1 map[b:true]] c:d]"),
            (json!([]), "[]"),
            (json!({}), "map[]"),
            (json!("a b"), "a b"),
            (json!([null, 1.5]), "[<nil> 1.5]"),
        ] {
            assert_eq!(*cell_text(&value), wanted);
        }
    }
}
