//! `postern list KIND`: the objects of a kind, as the server's table or whole.

use std::convert::Infallible;

use clap::Args;
use postern_client::{Collection, Representation};
use postern_kinds::{Info, Verb};
use serde_json::Value;
use zeroize::Zeroizing;

use super::by_kind::{KindArgs, NamespaceArgs, OfKind};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag, TableFormat};
use crate::kinds;
use crate::output;
use crate::process::Process;
use crate::server_table::{TableOptions, TablePrinter};

/// How a list is printed.
#[derive(Args, Debug)]
pub struct List {
    /// How to print it [default: a table, without secret values]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<TableFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Which namespaces are listed.
#[derive(Args, Debug)]
pub struct ListNamespaces {
    #[command(flatten)]
    pub(super) namespace: NamespaceFlag,

    /// List all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
}

impl NamespaceArgs for ListNamespaces {
    fn flag(&self) -> Option<&NamespaceFlag> {
        Some(&self.namespace).filter(|_| !self.all_namespaces)
    }
}

impl KindArgs for List {
    const VERB: Verb = Verb::List;
    type NamespaceArgs = ListNamespaces;
    type Special = Infallible;

    fn name(info: &Info) -> &'static str {
        kinds::plural_name(info)
    }

    fn about(info: &Info) -> String {
        let name = kinds::plural_name(info);
        let what = if info.is_namespaced() { " of a namespace, or of all" } else { "" };
        format!("List the {name}{what}")
    }
}

impl OfKind<List> {
    /// Lists, and prints.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let (mut session, namespace) = self.open(&self.args.connection, process).await?;
        let of = Collection::new(self.info, namespace.as_deref());
        let format = self.args.output;
        let representation = representation(format);
        let list = session.client.list(of, representation).await;
        let list = list.map_err(|error| session.explain(&error))?;
        if representation == Representation::Table
            && list["rows"].as_array().is_none_or(Vec::is_empty)
        {
            process.print_status(&output::empty_message(of.info(), of.namespace()));
            return Ok(());
        }
        process.print_text(text(list, format, of).as_str())
    }
}

/// The representation that a format needs.
fn representation(format: Option<TableFormat>) -> Representation {
    match format {
        None | Some(TableFormat::Wide) => Representation::Table,
        Some(TableFormat::Name) => Representation::Metadata,
        Some(TableFormat::Json | TableFormat::Yaml) => Representation::Whole,
    }
}

/// A list as text. It has the format's [`representation`].
fn text(value: Value, format: Option<TableFormat>, of: Collection<'_>) -> Zeroizing<String> {
    match format {
        Some(TableFormat::Json) => output::json(value),
        Some(TableFormat::Yaml) => output::yaml(value),
        Some(TableFormat::Name) => {
            let items = value["items"].as_array();
            let items = items.map_or(std::slice::from_ref(&value), Vec::as_slice).iter();
            let names = items.filter_map(|item| item["metadata"]["name"].as_str());
            names.map(|name| output::full_name(of.info(), name) + "\n").collect::<String>().into()
        }
        None | Some(TableFormat::Wide) => {
            let options = TableOptions {
                wide: format.is_some(),
                namespaces: of.info().is_namespaced() && of.namespace().is_none(),
                ..TableOptions::default()
            };
            let rows = value["rows"].as_array().map_or(&[][..], Vec::as_slice);
            TablePrinter::new(&value, options).lines(rows).into()
        }
    }
}
