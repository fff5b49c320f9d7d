//! `postern get KIND NAME`: one object, as the server's table or whole. Secrets have a command of
//! their own, in `secrets.rs`.

use clap::Args;
use postern_client::Collection;
use postern_kinds::{Info, Verb};

use super::by_kind::{KindArgs, OfKind};
use super::secrets;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag, TableFormat};
use crate::process::Process;
use crate::session::Session;
use crate::{kinds, output, parse};

/// An object to print.
#[derive(Args, Debug)]
pub struct Get {
    /// The object's name
    #[arg(value_parser = parse::name)]
    name: String,

    /// How to print it [default: a table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<TableFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl KindArgs for Get {
    const VERB: Verb = Verb::Get;
    type NamespaceArgs = NamespaceFlag;
    type Special = secrets::Get;

    fn about(info: &Info) -> String {
        format!("Print one of the {}", kinds::plural_name(info))
    }
}

impl OfKind<Get> {
    /// Reads, and prints.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Get { name, output: format, connection } = &self.args;
        let mut session = Session::open(connection, process)?;
        session.load_namespace(self.namespace_args.as_ref()).await?;
        let namespace = self.namespace_args.as_ref().map(|flag| session.namespace_or(flag));
        let of = Collection::new(self.info, namespace.as_deref());
        match session.client.get_as(of, name, output::representation(*format)).await {
            Ok(object) => process.write_stdout(output::text(object, *format, of).as_bytes()),
            Err(error) => Err(session.explain_named(of, name, &error).await),
        }
    }
}
