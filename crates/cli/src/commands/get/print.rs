//! How the objects of `postern get` are printed: in tables, or in one text.

use postern_client::Representation;
use postern_kinds::Info;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{Get, object_of};
use crate::error::CliError;
use crate::output::{self, full_name};
use crate::output_format::OutputFormat;
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
    /// Prints the objects.
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
                process.print_status(&output::empty_message(
                    objects.info,
                    objects.namespace.as_deref(),
                ));
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

    /// The options for the tables of a kind.
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
