//! The commands. Verbs for all kinds have a file each (`get.rs`, `list.rs`, `create.rs`,
//! `delete.rs`, with `by_kind.rs` for what they share); the others are for one thing.

mod access_keys;
mod by_kind;
mod create;
mod delete;
mod docs;
mod get;
mod list;
mod login;
mod principals;
mod secret_names;
mod secrets;
mod whoami;

use clap::Subcommand;
use postern_kinds::{Fields, Kind};
use postern_meta::object::{Object, ObjectMeta};
use serde_json::Value;

use crate::error::CliError;
use crate::process::Process;
use access_keys::{OfAccessKey, Replace, Switch};
use by_kind::ByKind;

/// Everything that is done with a server.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Log in: check an access key and write it into the kubeconfig.
    Login(login::Login),
    /// Log out: remove what `login` wrote into the kubeconfig.
    Logout(login::Logout),
    /// Print whose access key is used, or as whom it acts.
    Whoami(whoami::Whoami),
    /// Print one object.
    #[command(subcommand)]
    Get(ByKind<get::Get>),
    /// Set one value.
    #[command(subcommand)]
    Set(secrets::Set),
    /// List objects.
    #[command(subcommand)]
    List(ByKind<list::List>),
    /// Create objects, from files or from arguments.
    Create(Box<create::Create>),
    /// Delete objects.
    #[command(subcommand)]
    Delete(ByKind<delete::Delete>),
    /// Disable an access key.
    #[command(subcommand)]
    Disable(OfAccessKey<Switch<true>>),
    /// Enable an access key again.
    #[command(subcommand)]
    Enable(OfAccessKey<Switch<false>>),
    /// Replace the value of an access key.
    #[command(subcommand)]
    Rotate(OfAccessKey<Replace>),
    /// Print a completion script for a shell.
    Completion(docs::Completion),
    /// Print the manual page, or write them all.
    Man(docs::Man),
}

/// Runs one command.
pub(crate) fn run(
    command: Command,
    root: clap::Command,
    process: &Process,
) -> Result<(), CliError> {
    match command {
        Command::Completion(command) => command.run(root, process),
        Command::Man(command) => command.run(root, process),
        Command::Logout(command) => command.run(process),
        command => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CliError::new(format!("cannot start: {error}")))?
            .block_on(run_with_server(command, process)),
    }
}

async fn run_with_server(command: Command, process: &Process) -> Result<(), CliError> {
    match command {
        Command::Login(command) => command.run(process).await,
        Command::Whoami(command) => command.run(process).await,
        Command::Get(ByKind::Special(secrets::Get::Secret(command))) => command.run(process).await,
        Command::Get(ByKind::Generic(command)) => command.run(process).await,
        Command::Set(secrets::Set::Secret(command)) => command.run(process).await,
        Command::List(ByKind::Special(none)) => match none {},
        Command::List(ByKind::Generic(command)) => command.run(process).await,
        Command::Create(command) => command.run(process).await,
        Command::Delete(ByKind::Special(command)) => command.run(process).await,
        Command::Delete(ByKind::Generic(command)) => command.run(process).await,
        Command::Disable(OfAccessKey::AccessKey(command)) => command.run(process).await,
        Command::Enable(OfAccessKey::AccessKey(command)) => command.run(process).await,
        Command::Rotate(OfAccessKey::AccessKey(command)) => command.run(process).await,
        // They need no server and are done already.
        Command::Completion(_) | Command::Man(_) | Command::Logout(_) => Ok(()),
    }
}

/// Returns a new object of a kind.
fn new_object<K: Kind>(
    metadata: ObjectMeta,
    fields: &Fields<K::Spec, K::Status>,
) -> Result<Object, CliError> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => Ok(Object {
            api_version: K::INFO.version.to_string(),
            kind: K::INFO.kind.to_owned(),
            metadata,
            fields,
        }),
        _ => Err(CliError::new(format!("the {} could not be encoded", K::INFO.kind))),
    }
}
