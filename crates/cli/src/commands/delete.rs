//! `postern delete KIND NAME…`: several objects of a kind, by name or by labels; `postern delete KIND/NAME…`: objects of
//! any kinds; `postern delete -f`: those in files. Of secrets, an error says how to delete one key.

use clap::{Args, Subcommand};
use postern_client::{Collection, Error, Representation};
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _, MANAGEMENT_V1, Verb};
use postern_meta::status::Reason;

use super::by_kind::{ByKind, KindArgs, OfKind};
use super::lockout::{self, Ending, LockoutFlags, Named};
use super::offboard;
use super::secrets::LocationFlags;
use crate::batch::{self, Failure};
use crate::error::CliError;
use crate::flags::{
    CollectionFlags, ConnectionFlags, DryRun, DryRunFlag, LabelFlag, NamespaceFlag,
};
use crate::manifest_files::{self, FileFlags};
use crate::process::Process;
use crate::resources::{self, KindParser, Wanted};
use crate::role_bindings::Who;
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
        postern delete secrets -l team=red --dry-run=server\n  \
        postern delete user/ada team/red\n  \
        postern delete -f objects.yaml"
)]
pub struct DeleteCommand {
    #[command(subcommand)]
    kind: Option<ByKind<Delete>>,

    #[command(flatten)]
    objects: DeleteObjects,
}

/// The objects to delete, by their kinds and names, or in files.
#[derive(Args, Debug)]
#[command(mut_arg("files", |arg| arg
    .required(false)
    .required_unless_present("words")
    .conflicts_with_all(["words", "interactive"])))]
pub(crate) struct DeleteObjects {
    /// Objects of any kinds; with -f, none
    #[arg(value_name = "KIND/NAME", value_parser = KindParser, hide_possible_values = true)]
    words: Vec<String>,

    #[command(flatten)]
    files: FileFlags,

    #[command(flatten)]
    flags: DeleteFlags,

    #[command(flatten)]
    collection: CollectionFlags,
}

/// How objects are deleted.
#[derive(Args, Debug)]
struct DeleteFlags {
    /// An object that does not exist is no error
    #[arg(long)]
    ignore_not_found: bool,

    /// Ask before anything is deleted
    #[arg(short, long)]
    interactive: bool,

    /// Print KIND/NAME of each deleted object
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    dry_run: DryRunFlag,

    #[command(flatten)]
    lockout: LockoutFlags,
}

/// Objects to delete.
#[derive(Args, Debug)]
pub struct Delete {
    /// The objects' whole names
    #[arg(
        required_unless_present_any = ["selector", "all"],
        conflicts_with_all = ["selector", "all"],
        value_name = "NAME",
        value_parser = parse::name_behind_kind
    )]
    names: Vec<String>,

    #[command(flatten)]
    labels: LabelFlag,

    /// Delete all objects of the kind, in the namespace if the kind has namespaces
    #[arg(long, conflicts_with = "selector")]
    all: bool,

    #[command(flatten)]
    flags: DeleteFlags,

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
    location: LocationFlags,

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

impl DeleteSecrets {
    /// Deletes.
    async fn run(self, process: &Process) -> Result<(), CliError> {
        let Self { location, delete } = self;
        delete.confirm_names(&SharedSecret::INFO, process)?;
        let mut session = Session::open(&delete.connection, process)?;
        let (info, namespace) = location.locate(&mut session).await?;
        delete.run(&mut session, Collection::new(info, Some(&namespace)), process).await
    }
}

/// How to delete one key of a secret: `delete` takes whole names.
fn one_key(info: &Info, path: &str) -> Option<String> {
    let (secret, key) = path.split_once('.').filter(|_| info.kind == SharedSecret::INFO.kind)?;
    Some(format!(
        "delete removes the whole secret; to remove only the key {key} of {secret}, run: postern unset secret {path}"
    ))
}

impl DeleteCommand {
    /// Deletes.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        match self.kind {
            None if self.objects.words.is_empty() => self.objects.delete_in_files(process).await,
            None => self.objects.delete_named(process).await,
            Some(ByKind::Special(SpecialDelete::Secret(command))) => command.run(process).await,
            Some(ByKind::Generic(command)) => command.run(process).await,
        }
    }
}

impl DeleteObjects {
    /// Deletes the objects of any kinds that the words name.
    async fn delete_named(self, process: &Process) -> Result<(), CliError> {
        let mut objects = Vec::new();
        for Wanted { info, name } in resources::wanted(&self.words, Verb::Delete)? {
            let Some(name) = name else {
                let message = format!("{} needs the NAME of an object", kinds::name(info));
                return Err(CliError::usage(message));
            };
            objects.push((info, name));
        }
        if self.flags.interactive {
            confirm(&objects, process)?;
        }
        let (mut session, namespace) = Session::open_in(&self.collection, process).await?;
        self.flags.delete_all(&mut session, &objects, Some(&namespace), process).await
    }

    /// Deletes one object of the files after the other, also after an error.
    async fn delete_in_files(self, process: &Process) -> Result<(), CliError> {
        let manifests = self.files.read(Verb::Delete, &self.collection, process)?;
        let (mut session, namespace) = Session::open_in(&self.collection, process).await?;
        let read = manifests.iter().flatten();
        let objects: Vec<Named> =
            read.map(|manifest| (manifest.info, manifest.object.metadata.name.clone())).collect();
        self.flags.check(&mut session, &objects, process).await?;
        manifest_files::each(&manifests, process, async |manifest| {
            let name = &manifest.object.metadata.name;
            if name.is_empty() {
                return Err(Failure::One(CliError::new("metadata.name is not set")));
            }
            let of = manifest.collection(&namespace);
            self.flags.delete(&mut session, of, name, None, process).await
        })
        .await
    }
}

impl DeleteFlags {
    /// Deletes one object after the other, also after an error.
    async fn delete_all(
        &self,
        session: &mut Session,
        objects: &[Named],
        namespace: Option<&str>,
        process: &Process,
    ) -> Result<(), CliError> {
        let is_one_kind = is_one_kind(objects);
        let label = |object: &Named| Some(label(object, is_one_kind));
        let checked = self.check(session, objects, process).await;
        checked.map_err(|error| {
            let left: Vec<String> = objects.iter().skip(1).filter_map(label).collect();
            error.not_tried(&left)
        })?;
        batch::each(objects, label, process, async |(info, name)| {
            let of = Collection::new(info, namespace);
            self.delete(session, of, name, one_key(info, name), process).await
        })
        .await
    }

    /// Checks whose access ends, before anything is deleted.
    async fn check(
        &self,
        session: &mut Session,
        objects: &[Named],
        process: &Process,
    ) -> Result<(), CliError> {
        let ending = Ending::Delete(self.dry_run.dry_run);
        for (info, name) in objects.iter().filter(|(info, _)| info.version == MANAGEMENT_V1) {
            let who = match info.kind {
                kind if kind == User::INFO.kind => Who::User(name.clone()),
                kind if kind == Team::INFO.kind => Who::Team(name.clone()),
                _ => continue,
            };
            offboard::print_left_behind(session, &who, process).await?;
        }
        lockout::check(session, objects, ending, self.lockout, process).await
    }

    /// Deletes one object, and prints its name if that was asked for. `hint` is for an object that does not exist.
    async fn delete(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        name: &str,
        hint: Option<String>,
        process: &Process,
    ) -> Result<(), Failure> {
        match delete(session, of, name, self.dry_run.dry_run, process).await {
            Ok(()) if self.output.is_none() => Ok(()),
            Ok(()) => {
                let name = output::full_name(of.info(), name) + "\n";
                process.print_text(name).map_err(Failure::All)
            }
            Err(error) if self.ignore_not_found && is_missing(&error) => Ok(()),
            Err(error) => {
                let mut explained = session.explain_named(of, name, &error).await;
                explained.hints.extend(hint.filter(|_| is_missing(&error)));
                Err(Failure::of(&error, explained))
            }
        }
    }
}

fn is_missing(error: &Error) -> bool {
    error.reason() == Some(Reason::NotFound)
}

impl OfKind<Delete> {
    /// Deletes.
    async fn run(self, process: &Process) -> Result<(), CliError> {
        self.args.confirm_names(self.info, process)?;
        let (mut session, namespace) = self.open(&self.args.connection, process).await?;
        let of = Collection::new(self.info, namespace.as_deref());
        self.args.run(&mut session, of, process).await
    }
}

impl Delete {
    /// Asks about the objects that are named. This needs no server.
    fn confirm_names(&self, info: &'static Info, process: &Process) -> Result<(), CliError> {
        if !self.flags.interactive || self.names.is_empty() {
            return Ok(());
        }
        confirm(&of_kind(info, &self.names), process)
    }

    /// Deletes the objects of a collection that are named or selected.
    async fn run(
        self,
        session: &mut Session,
        of: Collection<'_>,
        process: &Process,
    ) -> Result<(), CliError> {
        let names = self.names(session, of, process).await?;
        let objects = of_kind(of.info(), &names);
        if self.flags.interactive && self.names.is_empty() && !objects.is_empty() {
            confirm(&objects, process)?;
        }
        self.flags.delete_all(session, &objects, of.namespace(), process).await
    }

    /// The names of the objects.
    async fn names(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        process: &Process,
    ) -> Result<Vec<String>, CliError> {
        if !self.all && self.labels.selector.is_none() {
            return Ok(self.names.clone());
        }
        let selection = self.labels.selection();
        let list = session.client.list_selected(of, Representation::Metadata, &selection).await;
        let list = list.map_err(|error| session.explain(&error))?;
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.is_empty() {
            process.print_status(&format!("no {} match", of.info().plural));
        }
        Ok(names)
    }
}

fn of_kind(info: &'static Info, names: &[String]) -> Vec<Named> {
    names.iter().map(|name| (info, name.clone())).collect()
}

fn is_one_kind(objects: &[Named]) -> bool {
    objects.iter().all(|(info, _)| info.kind == objects[0].0.kind)
}

/// An object in a message: its name alone if all are of one kind.
fn label((info, name): &Named, is_one_kind: bool) -> String {
    if is_one_kind { name.clone() } else { format!("{}/{name}", kinds::name(info)) }
}

fn confirm(objects: &[Named], process: &Process) -> Result<(), CliError> {
    if !process.stdin_is_terminal() {
        let text = "--interactive asks for confirmation, and there is no terminal";
        return Err(CliError::usage(text));
    }
    let is_one_kind = is_one_kind(objects);
    let kind = if is_one_kind { format!("{} ", kinds::name(objects[0].0)) } else { String::new() };
    let labels: Vec<String> = objects.iter().map(|one| label(one, is_one_kind)).collect();
    if process.confirm(&format!("Delete {kind}{}?", labels.join(", ")))? {
        return Ok(());
    }
    Err(CliError::new("not confirmed, so nothing was done"))
}

async fn delete(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    dry_run: DryRun,
    process: &Process,
) -> Result<(), Error> {
    let (kind, suffix) = (kinds::name(of.info()), dry_run.suffix());
    let left = match dry_run {
        DryRun::None => session.client.delete(of, name).await?,
        DryRun::Server => session.client.delete_dry_run(of, name).await?,
        DryRun::Client => session.client.get(of, name).await.map(|_| None)?,
    };
    let Some(left) = left else {
        process.print_status(&format!("{kind} {name} deleted{suffix}"));
        return Ok(());
    };
    process.print_status(&format!("{kind} {name} is being deleted{suffix}"));
    if !left.metadata.finalizers.is_empty() {
        let finalizers = output::escape(&left.metadata.finalizers.join(", "));
        process.print_note(&format!("it waits for its finalizers: {finalizers}"));
    }
    Ok(())
}
