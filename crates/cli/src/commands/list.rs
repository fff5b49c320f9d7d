//! `postern list KIND`: the objects of a kind, as the server's table or whole.

use std::convert::Infallible;

use clap::Args;
use postern_client::{Collection, Representation};
use postern_kinds::{Info, Verb};

use super::by_kind::{KindArgs, OfKind};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag, TableFormat};
use crate::kinds;
use crate::output;
use crate::process::Process;
use crate::session::Session;

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
        let mut session = Session::open(&self.args.connection, process)?;
        let flags = self.namespace_args.as_ref().filter(|flags| !flags.all_namespaces);
        session.load_namespace(flags.map(|flags| &flags.namespace)).await?;
        let namespace = flags.map(|flags| session.namespace_or(&flags.namespace));
        let of = Collection::new(self.info, namespace.as_deref());
        let format = self.args.output;
        let representation = output::representation(format);
        let list = session.client.list(of, representation).await;
        let list = list.map_err(|error| session.explain(&error))?;
        if representation == Representation::Table
            && list["rows"].as_array().is_none_or(Vec::is_empty)
        {
            process.print_status(&empty_list_message(of));
            return Ok(());
        }
        process.print_text(output::text(list, format, of).as_str())
    }
}

/// Says that a list is empty.
fn empty_list_message(of: Collection<'_>) -> String {
    match of.namespace() {
        Some(namespace) => format!("no {} in the namespace {namespace}", of.info().plural),
        None => format!("no {}", of.info().plural),
    }
}
