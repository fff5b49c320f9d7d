//! `postern get --watch`: objects, and then each change of them.

use postern_client::{Change, Collection, Representation, Selection};
use postern_kinds::{Info, Verb};
use serde_json::Value;

use super::print::{Objects, document, name_line};
use super::{Get, explain_named};
use crate::changes::{Changes, Event};
use crate::error::CliError;
use crate::output_format::OutputFormat;
use crate::process::Process;
use crate::resources::Wanted;
use crate::server_table::TablePrinter;
use crate::session::Session;

impl Get {
    /// Prints the objects of one kind, and then each change. Ends with an error only, or with the reader of the output.
    pub(super) async fn watch_objects(
        &self,
        session: &mut Session,
        wanted: &[Wanted],
        process: &Process,
    ) -> Result<(), CliError> {
        let [Wanted { info, name }] = wanted else {
            return Err(CliError::usage("--watch takes one kind, and at most one name"));
        };
        if !info.serves(Verb::Watch) {
            return Err(CliError::usage(format!("{} cannot be watched", info.plural)));
        }
        let namespace = self.namespace_of(session, info).await?;
        let of = Collection::new(info, namespace.as_deref());
        let selection = match name {
            None => self.selection(),
            Some(name) => {
                // An object that does not exist is an error, as in kubectl.
                if let Err(error) = session.client.get_as(of, name, Representation::Metadata).await
                {
                    return Err(explain_named(session, of, name, &error).await);
                }
                Selection::of_name(name)
            }
        };
        let begun = Changes::begin(session, of, self.representation(), selection).await;
        let (mut changes, list) = begun.map_err(|error| session.explain(&error))?;
        let mut printer = ChangePrinter::new(self, info, &list);
        if !self.watch_only {
            printer.print_list(self.objects(info, list), process)?;
        }
        loop {
            match changes.next(session).await? {
                Event::Change(Change { object, .. }) => {
                    let items = if self.representation().is_table() {
                        self.objects(info, object)
                    } else {
                        vec![object]
                    };
                    printer.print_list(items, process)?;
                }
                Event::List(list) => {
                    let text = "changes were missed; these are all objects as they are now";
                    process.print_note(text);
                    printer.print_list(self.objects(info, list), process)?;
                }
            }
        }
    }

    fn objects(&self, info: &'static Info, value: Value) -> Vec<Value> {
        Objects::new(info, None, value, self.representation(), true).items
    }
}

/// Prints objects one after the other.
struct ChangePrinter<'a> {
    get: &'a Get,
    info: &'static Info,
    table: TablePrinter,
    separator: &'static str,
}

impl<'a> ChangePrinter<'a> {
    fn new(get: &'a Get, info: &'static Info, list: &Value) -> Self {
        let table = TablePrinter::new(list, get.table_options(info, None));
        Self { get, info, table, separator: "" }
    }

    fn print_list(&mut self, items: Vec<Value>, process: &Process) -> Result<(), CliError> {
        match &self.get.output {
            None | Some(OutputFormat::Wide) => process.print_text(self.table.lines(&items)),
            Some(OutputFormat::Name) => {
                let lines: String = items.iter().map(|item| name_line(self.info, item)).collect();
                process.print_text(&lines)
            }
            Some(format) => {
                for item in items {
                    let mut text = document(item, format)?;
                    if !text.ends_with('\n') {
                        text.push('\n');
                    }
                    if *format == OutputFormat::Yaml {
                        let separator = std::mem::replace(&mut self.separator, "---\n");
                        text.insert_str(0, separator);
                    }
                    process.print_text(text.as_str())?;
                }
                Ok(())
            }
        }
    }
}
