//! `postern delete KIND NAME…`: several objects of a kind, by name or by labels; `postern delete -f`: those in files. Of
//! secrets, an error says how to delete one key.

use clap::{Args, Subcommand};
use postern_client::{Collection, Error, Representation, Selection};
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _, Verb};
use postern_meta::status::Reason;

use super::apply::collection;
use super::by_kind::{ByKind, KindArgs, OfKind};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::manifest::Manifest;
use crate::manifest_files::FileFlags;
use crate::process::Process;
use crate::session::Session;
use crate::{kinds, output, parse};

/// The arguments of `postern delete`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_required = false,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        postern delete user ada\n  \
        postern delete secrets -l team=red\n  \
        postern delete -f objects.yaml"
)]
pub struct DeleteCommand {
    #[command(subcommand)]
    kind: Option<ByKind<Delete>>,

    #[command(flatten)]
    from_files: DeleteFiles,
}

/// Files with the objects to delete.
#[derive(Args, Debug)]
pub(crate) struct DeleteFiles {
    #[command(flatten)]
    files: FileFlags,

    /// An object that does not exist is no error
    #[arg(long)]
    ignore_not_found: bool,

    /// Print KIND/NAME of what was deleted
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    namespace: NamespaceFlag,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Objects to delete.
#[derive(Args, Debug)]
pub struct Delete {
    /// The objects' whole names
    #[arg(
        required_unless_present_any = ["selector", "all"],
        conflicts_with_all = ["selector", "all"],
        value_name = "NAME",
        value_parser = parse::name
    )]
    names: Vec<String>,

    /// Delete all objects with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Delete all objects of the kind, in the namespace if the kind has namespaces
    #[arg(long, conflicts_with = "selector")]
    all: bool,

    /// An object that does not exist is no error
    #[arg(long)]
    ignore_not_found: bool,

    /// Ask before anything is deleted
    #[arg(short, long)]
    interactive: bool,

    /// Print KIND/NAME of what was deleted
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The effects of deleting an object on which others depend.
const CONSEQUENCES: [(&Info, &str); 4] = [
    (
        &User::INFO,
        "The access keys of the user stop working at once, and are deleted. A new user of the same \
         name does not get them back.",
    ),
    (
        &Team::INFO,
        "The access keys of the team stop working at once, and are deleted. Its users lose the \
         permissions of the team.",
    ),
    (
        &OwnedAccessKey::INFO,
        "The key stops working at once for all its holders, and its value cannot be restored. \
         `postern disable accesskey` can be undone.",
    ),
    (&Namespace::INFO, "Everything in the namespace is deleted with it."),
];

/// Delete commands that are written for one kind.
#[derive(Subcommand, Debug)]
pub enum SpecialDelete {
    /// Delete secrets, each with all its keys.
    #[command(
        name = kinds::name(&SharedSecret::INFO),
        visible_aliases = kinds::visible_aliases(&SharedSecret::INFO),
        aliases = kinds::hidden_aliases(&SharedSecret::INFO),
    )]
    Secret(DeleteSecrets),
}

/// Secrets to delete.
#[derive(Args, Debug)]
pub struct DeleteSecrets {
    #[command(flatten)]
    namespace: NamespaceFlag,

    #[command(flatten)]
    delete: Delete,
}

impl KindArgs for Delete {
    const VERB: Verb = Verb::Delete;
    type NamespaceArgs = NamespaceFlag;
    type Special = SpecialDelete;

    fn about(info: &Info) -> String {
        format!("Delete {} by name", kinds::plural_name(info))
    }

    fn consequence(info: &Info) -> Option<&'static str> {
        CONSEQUENCES.iter().find(|(of, _)| of.kind == info.kind).map(|(_, text)| *text)
    }
}

impl SpecialDelete {
    /// Deletes.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Self::Secret(DeleteSecrets { namespace, delete }) = self;
        let namespace_args = Some(namespace);
        let generic = OfKind { info: &SharedSecret::INFO, namespace_args, args: delete };
        generic.run_with_hint(process, one_key).await
    }
}

/// How to delete one key of a secret: `delete` takes whole names.
fn one_key(path: &str) -> Option<String> {
    let (secret, key) = path.split_once('.')?;
    Some(format!(
        "delete removes the whole secret; to remove only the key {key} of {secret}, run: kubectl \
         patch \
         sharedsecret {secret} --type=merge -p '{{\"spec\":{{\"data\":{{\"{key}\":null}}}}}}'"
    ))
}

impl DeleteCommand {
    /// Deletes.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        match self.kind {
            None => self.from_files.run(process).await,
            Some(ByKind::Special(command)) => command.run(process).await,
            Some(ByKind::Generic(command)) => command.run_with_hint(process, |_| None).await,
        }
    }
}

impl DeleteFiles {
    /// Deletes one object after the other, also after an error.
    async fn run(self, process: &Process) -> Result<(), CliError> {
        let flags = &self.connection;
        let manifests = self.files.read(Verb::Delete, flags, &self.namespace, process)?;
        let mut session = Session::open(&self.connection, process)?;
        session.load_namespace(Some(&self.namespace)).await?;
        let namespace = session.namespace_or(&self.namespace);
        let mut failed = false;
        for (done, manifest) in manifests.iter().enumerate() {
            let deleted = match manifest {
                Ok(manifest) => self.delete(&mut session, manifest, &namespace, process).await,
                Err(error) => Err((error.clone(), false)),
            };
            match deleted {
                Ok(()) => {}
                Err((error, true)) => {
                    let left = manifests[done + 1..].iter().flatten();
                    let left: Vec<_> = left.map(|manifest| manifest.location.clone()).collect();
                    return Err(error.not_tried(&left));
                }
                Err((error, false)) => {
                    process.print_error(&error);
                    failed = true;
                }
            }
        }
        if failed { Err(CliError::reported()) } else { Ok(()) }
    }

    /// Deletes one object. With the error: whether all others would fail, too.
    async fn delete(
        &self,
        session: &mut Session,
        manifest: &Manifest,
        namespace: &str,
        process: &Process,
    ) -> Result<(), (CliError, bool)> {
        let of = collection(manifest, namespace);
        let name = &manifest.object.metadata.name;
        if name.is_empty() {
            let message = format!("{}: metadata.name is not set", manifest.location);
            return Err((CliError::new(message), false));
        }
        match delete(session, of, name, process).await {
            Ok(()) => {
                let printed = print_name(self.output.as_deref(), manifest.info, name, process);
                printed.map_err(|error| (error, true))
            }
            Err(error) if self.ignore_not_found && is_missing(&error) => Ok(()),
            Err(error) => {
                let mut explained = session.explain_named(of, name, &error).await;
                explained.message = format!("{}: {}", manifest.location, explained.message);
                Err((explained, error.fails_all_requests()))
            }
        }
    }
}

/// Prints the name of a deleted object, if that was asked for.
fn print_name(
    output: Option<&str>,
    info: &Info,
    name: &str,
    process: &Process,
) -> Result<(), CliError> {
    if output.is_none() {
        return Ok(());
    }
    process.write_stdout(format!("{}\n", output::full_name(info, name)).as_bytes())
}

fn is_missing(error: &Error) -> bool {
    error.reason() == Some(Reason::NotFound)
}

impl OfKind<Delete> {
    /// The names of the objects.
    async fn names(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        process: &Process,
    ) -> Result<Vec<String>, CliError> {
        if !self.args.all && self.args.selector.is_none() {
            return Ok(self.args.names.clone());
        }
        let labels = self.args.selector.clone().unwrap_or_default();
        let selection = Selection { labels, ..Selection::default() };
        let list = session.client.list_selected(of, Representation::Metadata, &selection).await;
        let list = list.map_err(|error| session.explain(&error))?;
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.is_empty() {
            process.print_status(&format!("no {} match", self.info.plural));
        }
        Ok(names)
    }

    fn confirm(&self, names: &[String], process: &Process) -> Result<(), CliError> {
        if !process.stdin_is_terminal() {
            let text = "--interactive asks for confirmation, and there is no terminal";
            return Err(CliError::usage(text));
        }
        let kind = kinds::name(self.info);
        if names.is_empty() || process.confirm(&format!("Delete {kind} {}?", names.join(", ")))? {
            return Ok(());
        }
        Err(CliError::new("not confirmed, so nothing was done"))
    }

    /// Deletes one object after the other, also after an error. `hint` says what else a name may
    /// mean that does not exist.
    async fn run_with_hint(
        self,
        process: &Process,
        hint: fn(&str) -> Option<String>,
    ) -> Result<(), CliError> {
        // Without a selection, the question needs no server.
        if self.args.interactive && !self.args.names.is_empty() {
            self.confirm(&self.args.names, process)?;
        }
        let mut session = Session::open(&self.args.connection, process)?;
        session.load_namespace(self.namespace_args.as_ref()).await?;
        let namespace = self.namespace_args.as_ref().map(|flag| session.namespace_or(flag));
        let of = Collection::new(self.info, namespace.as_deref());
        let names = self.names(&mut session, of, process).await?;
        if self.args.interactive && self.args.names.is_empty() {
            self.confirm(&names, process)?;
        }
        let mut failed = false;
        for (done, name) in names.iter().enumerate() {
            let Err(error) = delete(&mut session, of, name, process).await else {
                print_name(self.args.output.as_deref(), self.info, name, process)?;
                continue;
            };
            if self.args.ignore_not_found && is_missing(&error) {
                continue;
            }
            let mut explained = session.explain_named(of, name, &error).await;
            if is_missing(&error) {
                explained.hints.extend(hint(name));
            }
            if error.fails_all_requests() {
                return Err(explained.not_tried(&names[done + 1..]));
            }
            process.print_error(&explained);
            failed = true;
        }
        if failed { Err(CliError::reported()) } else { Ok(()) }
    }
}

async fn delete(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    process: &Process,
) -> Result<(), Error> {
    let kind = kinds::name(of.info());
    let Some(left) = session.client.delete(of, name).await? else {
        process.print_status(&format!("{kind} {name} deleted"));
        return Ok(());
    };
    process.print_status(&format!("{kind} {name} is being deleted"));
    if !left.metadata.finalizers.is_empty() {
        let finalizers = output::escape(&left.metadata.finalizers.join(", "));
        process.print_note(&format!("it waits for its finalizers: {finalizers}"));
    }
    Ok(())
}
