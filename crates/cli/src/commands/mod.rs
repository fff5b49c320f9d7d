//! The commands, one file for each thing that they are about.

mod accesskeys;
mod delete;
mod docs;
mod list;
mod login;
mod principals;
mod secrets;
mod whoami;

use clap::Subcommand;
use postern_client::{Collection, Error};
use postern_kinds::{Info, Kind};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::Reason;
use serde_json::Value;

use crate::connect::Session;
use crate::failure::Failure;
use crate::flags::ObjectFormat;
use crate::output;
use crate::similar::nearest;
use crate::surroundings::Surroundings;

/// Everything that is done with a server.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Log in: check an access key and keep it in the kubeconfig.
    Login(login::Login),
    /// Log out: take what `login` wrote out of the kubeconfig.
    Logout(login::Logout),
    /// Tell who the access key belongs to, or as whom one acts with it.
    Whoami(whoami::Whoami),
    /// Get one thing.
    #[command(subcommand)]
    Get(secrets::Get),
    /// Set one thing.
    #[command(subcommand)]
    Set(secrets::Set),
    /// List things.
    #[command(subcommand)]
    List(list::List),
    /// Create one thing.
    #[command(subcommand)]
    Create(Create),
    /// Delete one thing.
    #[command(subcommand)]
    Delete(delete::Delete),
    /// Switch something off.
    #[command(subcommand)]
    Disable(accesskeys::Disable),
    /// Switch something on again.
    #[command(subcommand)]
    Enable(accesskeys::Enable),
    /// Replace the value of something.
    #[command(subcommand)]
    Rotate(accesskeys::Rotate),
    /// Print a completion script for a shell.
    Completion(docs::Completion),
    /// Print the manual page, or write them all.
    Man(docs::Man),
}

/// What can be created.
#[derive(Subcommand, Debug)]
pub enum Create {
    /// Create an access key, and print the key, alone, on the standard output.
    ///
    /// The key is shown this once. Everything else goes to the standard error, so that
    /// KEY=$(postern create accesskey ci) works.
    #[command(name = "accesskey", visible_alias = "key")]
    AccessKey(accesskeys::Create),
    /// Create a user: a person who may hold access keys.
    User(principals::CreateUser),
    /// Create a team: users who hold rights together.
    Team(principals::CreateTeam),
}

/// Runs one command.
pub(crate) fn run(
    command: Command,
    root: clap::Command,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    match command {
        Command::Completion(command) => command.run(root, surroundings),
        Command::Man(command) => command.run(root, surroundings),
        Command::Logout(command) => command.run(surroundings),
        command => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start: {error}")))?
            .block_on(ask(command, surroundings)),
    }
}

/// The commands that ask a server.
async fn ask(command: Command, surroundings: &Surroundings) -> Result<(), Failure> {
    match command {
        Command::Login(command) => command.run(surroundings).await,
        Command::Whoami(command) => command.run(surroundings).await,
        Command::Get(secrets::Get::Secret(command)) => command.run(surroundings).await,
        Command::Set(secrets::Set::Secret(command)) => command.run(surroundings).await,
        Command::List(command) => command.run(surroundings).await,
        Command::Create(Create::AccessKey(command)) => command.run(surroundings).await,
        Command::Create(Create::User(command)) => command.run(surroundings).await,
        Command::Create(Create::Team(command)) => command.run(surroundings).await,
        Command::Delete(command) => command.run(surroundings).await,
        Command::Disable(accesskeys::Disable::AccessKey(command)) => {
            command.run(true, surroundings).await
        }
        Command::Enable(accesskeys::Enable::AccessKey(command)) => {
            command.run(false, surroundings).await
        }
        Command::Rotate(accesskeys::Rotate::AccessKey(command)) => command.run(surroundings).await,
        // They need no server and are done already.
        Command::Completion(_) | Command::Man(_) | Command::Logout(_) => Ok(()),
    }
}

/// A new object of a kind.
fn new_object<K: Kind>(metadata: ObjectMeta, fields: &K::Fields) -> Result<Object, Failure> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => Ok(Object {
            api_version: K::INFO.version.to_string(),
            kind: K::INFO.kind.to_owned(),
            metadata,
            fields,
        }),
        _ => Err(Failure::new(format!("a {} could not be put together", K::INFO.kind))),
    }
}

/// Prints an object that holds nothing secret, if its form was asked for.
fn print(
    object: Object,
    info: &Info,
    format: Option<ObjectFormat>,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    match format {
        None => Ok(()),
        Some(ObjectFormat::Json) => surroundings.out(output::json(object.into_value()).as_bytes()),
        Some(ObjectFormat::Yaml) => surroundings.out(output::yaml(object.into_value()).as_bytes()),
        Some(ObjectFormat::Name) => {
            let name = output::full_name(info, &object.metadata.name);
            surroundings.out(format!("{name}\n").as_bytes())
        }
    }
}

/// Why a named object could not be had; for one that is not there, with names that are.
async fn explain_named(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    error: &Error,
) -> Failure {
    let mut failure = session.explain(error);
    let missing = error.status().is_some_and(|status| {
        let kind = status.details.as_ref().map(|details| details.kind.as_str());
        status.reason == Reason::NotFound && kind == Some(of.info().plural)
    });
    if !missing {
        return failure;
    }
    if let Some(namespace) = of.namespace() {
        failure.message = format!("{} in the namespace {namespace}", failure.message);
    }
    // Only a help: what goes wrong with it is not worth telling.
    let names = session.client.some_names(of).await.unwrap_or_default();
    let near = nearest(name, names.iter().map(String::as_str));
    if near.is_empty() {
        return failure;
    }
    failure.hint(format!("did you mean {}?", near.join(" or ")))
}
