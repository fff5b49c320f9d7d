//! `postern apply -f`: server-side apply of objects from files.

use clap::Args;
use postern_client::{ApplyOptions, Collection, Error};
use postern_kinds::Verb;
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::Value;

use super::create::check_credentials;
use super::lockout::{self, ForceFlag};
use super::ways_in;
use crate::batch::Failure;
use crate::error::CliError;
use crate::flags::{CollectionFlags, ObjectFormat};
use crate::kinds;
use crate::manifest::Manifest;
use crate::manifest_files::{self, FileFlags};
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::Session;

/// The owner of the fields that are applied.
const FIELD_MANAGER: &str = "postern";

/// The owner of fields that were written before the first apply of an object, by any client.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Apply objects from files.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern apply -f objects.yaml\n  \
    postern apply -f manifests/ -R\n  \
    postern apply -f - --dry-run=server -o yaml < objects.yaml")]
pub struct Apply {
    #[command(flatten)]
    files: FileFlags,

    /// Take fields that another field manager owns
    #[arg(long)]
    force_conflicts: bool,

    /// As in kubectl. Objects are always applied by the server
    #[arg(long, hide = true)]
    server_side: bool,

    /// With server: the server checks everything and stores nothing
    #[arg(long, value_name = "MODE", value_parser = ["none", "server"], default_value = "none")]
    dry_run: String,

    /// The owner of the applied fields
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    field_manager: String,

    /// Output format of the applied object [default: no output]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    force: ForceFlag,

    #[command(flatten)]
    collection: CollectionFlags,
}

impl Apply {
    /// Applies one object after the other, also after an error.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let manifests = self.files.read(Verb::Patch, &self.collection, process)?;
        if !self.is_dry_run() {
            check_credentials(&manifests, self.output, process)?;
        }
        let (mut session, namespace) = Session::open_in(&self.collection, process).await?;
        let mut separator = "";
        manifest_files::each(&manifests, process, async |manifest| {
            let of = manifest.collection(&namespace);
            self.check(&mut session, of, &manifest.object, process).await?;
            let mut applied = session.client.apply(of, &manifest.object, self.options()).await;
            if applied.as_ref().is_err_and(|error| is_missing(error, of)) {
                applied = self.create(&mut session, of, &manifest.object).await;
            }
            let object = applied.map_err(|error| Failure::of(&error, explain(&session, &error)))?;
            self.print(manifest, object, &mut separator, process).map_err(Failure::All)
        })
        .await
    }

    /// Creates an object that does not exist. An apply of it is 404 for a caller that may create objects, and may change
    /// only its own ones.
    async fn create(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        object: &Object,
    ) -> Result<Object, Error> {
        if self.is_dry_run() {
            return session.client.create_dry_run(of, object).await;
        }
        session.client.create(of, object).await
    }

    /// Checks that a way in is left after the object is applied. An object that the server refuses needs no check.
    async fn check(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        object: &Object,
        process: &Process,
    ) -> Result<(), Failure> {
        let name = &object.metadata.name;
        if self.is_dry_run() || name.is_empty() || !ways_in::decides(of.info()) {
            return Ok(());
        }
        let before = match session.client.get(of, name).await {
            Ok(before) => before.into_value(),
            Err(error) if error.reason() == Some(Reason::NotFound) => return Ok(()),
            Err(error) if error.reason() == Some(Reason::Forbidden) => Value::Null,
            Err(error) => return Err(Failure::of(&error, session.explain(&error))),
        };
        let dry_run = ApplyOptions { dry_run: true, ..self.options() };
        match session.client.apply(of, object, dry_run).await {
            Ok(after) => {
                let after = after.into_value();
                let checked =
                    lockout::check_write(session, of.info(), &before, &after, self.force, process);
                checked.await.map_err(Failure::One)
            }
            Err(error) if error.status().is_some() => Ok(()),
            Err(error) => Err(Failure::of(&error, session.explain(&error))),
        }
    }

    fn is_dry_run(&self) -> bool {
        self.dry_run == "server"
    }

    fn options(&self) -> ApplyOptions<'_> {
        let field_manager = &self.field_manager;
        ApplyOptions { field_manager, force: self.force_conflicts, dry_run: self.is_dry_run() }
    }

    /// Reports the applied object, and prints it as one document of several.
    fn print(
        &self,
        manifest: &Manifest,
        object: Object,
        separator: &mut &str,
        process: &Process,
    ) -> Result<(), CliError> {
        let namespace = Some(&object.metadata.namespace).filter(|name| !name.is_empty());
        let within = namespace.map_or_else(String::new, |name| format!(" in the namespace {name}"));
        let dry_run = if self.is_dry_run() { " (server dry run)" } else { "" };
        let name = escape(&object.metadata.name);
        let kind = kinds::name(manifest.info);
        process.print_status(&format!("{kind} {name} applied{within}{dry_run}"));
        output::print_document(object, manifest.info, self.output, separator, process)
    }
}

/// Why an object was not applied.
fn explain(session: &Session, error: &Error) -> CliError {
    match error {
        Error::Name(name) if name.is_empty() => {
            CliError::new("metadata.name is not set").hint("`postern create` can generate names")
        }
        error if is_manager_conflict(error) => CliError::new(escape(&error.to_string()))
            .hint("nothing was changed: another field manager owns these fields")
            .hint_if(
                is_own_conflict(error),
                "a write without apply owns them, such as an earlier `postern create`, `set`, \
                 `share` or `edit`",
            )
            .hint("--force-conflicts takes the fields; or remove them from the file"),
        error => session.explain(error),
    }
}

/// Whether the object itself does not exist, and not its namespace.
fn is_missing(error: &Error, of: Collection<'_>) -> bool {
    let details = error.status().and_then(|status| status.details.as_ref());
    error.reason() == Some(Reason::NotFound)
        && details.is_some_and(|details| details.kind == of.info().plural)
}

/// Whether other field managers own fields that were to be changed.
fn is_manager_conflict(error: &Error) -> bool {
    manager_conflicts(error).next().is_some()
}

/// Whether other commands of this program may own such fields.
fn is_own_conflict(error: &Error) -> bool {
    let own = [FIELD_MANAGER, super::edit::FIELD_MANAGER, BEFORE_FIRST_APPLY];
    let own = own.map(|name| format!("{name:?}"));
    manager_conflicts(error).any(|message| own.iter().any(|name| message.contains(name)))
}

/// The server's message about each field that another manager owns.
fn manager_conflicts(error: &Error) -> impl Iterator<Item = &str> {
    let status = error.status().filter(|status| status.reason == Reason::Conflict);
    let details = status.and_then(|status| status.details.as_ref());
    let causes = details.map_or(&[][..], |details| &details.causes).iter();
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| cause.message.as_str())
}
