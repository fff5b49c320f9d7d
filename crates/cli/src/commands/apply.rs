//! `postern apply -f`: server-side apply of objects from files. What it would change is in `diff.rs`.

use clap::Args;
use postern_client::{ApplyOptions, Collection, Error};
use postern_kinds::Verb;
use postern_meta::object::Object;
use postern_meta::status::Reason;

use super::create::check_credentials;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag, ObjectFormat};
use crate::kinds;
use crate::manifest::Manifest;
use crate::manifest_files::FileFlags;
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::Session;

/// The owner of the fields that are applied.
pub(super) const FIELD_MANAGER: &str = "postern";

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
    namespace: NamespaceFlag,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Apply {
    /// Applies one object after the other, also after an error.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let manifests = self.files.read(Verb::Patch, &self.connection, &self.namespace, process)?;
        if !self.is_dry_run() {
            check_credentials(&manifests, self.output, process)?;
        }
        let mut session = Session::open(&self.connection, process)?;
        session.load_namespace(Some(&self.namespace)).await?;
        let namespace = session.namespace_or(&self.namespace);
        let mut failed = false;
        let mut separator = "";
        for (done, manifest) in manifests.iter().enumerate() {
            let manifest = match manifest {
                Ok(manifest) => manifest,
                Err(error) => {
                    process.print_error(error);
                    failed = true;
                    continue;
                }
            };
            match apply(&mut session, manifest, &namespace, self.options()).await {
                Ok(object) => self.print(manifest, object, &mut separator, process)?,
                Err(error) => {
                    let explained = explain(&session, manifest, &error);
                    if error.fails_all_requests() {
                        return Err(explained.not_tried(&locations(&manifests[done + 1..])));
                    }
                    process.print_error(&explained);
                    failed = true;
                }
            }
        }
        if failed { Err(CliError::reported()) } else { Ok(()) }
    }

    fn is_dry_run(&self) -> bool {
        self.dry_run == "server"
    }

    fn options(&self) -> ApplyOptions<'_> {
        let field_manager = &self.field_manager;
        ApplyOptions { field_manager, force: self.force_conflicts, dry_run: self.is_dry_run() }
    }

    /// Says what was applied, and prints it as one document of several.
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
        if self.output == Some(ObjectFormat::Yaml) {
            let separator = std::mem::replace(separator, "---\n");
            process.print_text(separator)?;
        }
        output::print_object(object, manifest.info, self.output, process)
    }
}

/// Applies one object. The namespace is that of the object, or else `namespace`.
pub(super) async fn apply(
    session: &mut Session,
    manifest: &Manifest,
    namespace: &str,
    options: ApplyOptions<'_>,
) -> Result<Object, Error> {
    session.client.apply(collection(manifest, namespace), &manifest.object, options).await
}

/// The collection that an object of a file belongs to.
pub(super) fn collection<'a>(manifest: &'a Manifest, namespace: &'a str) -> Collection<'a> {
    let own = Some(manifest.object.metadata.namespace.as_str()).filter(|own| !own.is_empty());
    Collection::new(manifest.info, Some(own.unwrap_or(namespace)))
}

/// Why an object was not applied.
pub(super) fn explain(session: &Session, manifest: &Manifest, error: &Error) -> CliError {
    let mut explained = match error {
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
    };
    explained.message = format!("{}: {}", manifest.location, explained.message);
    explained
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

/// What the server says of each field that another manager owns.
fn manager_conflicts(error: &Error) -> impl Iterator<Item = &str> {
    let status = error.status().filter(|status| status.reason == Reason::Conflict);
    let details = status.and_then(|status| status.details.as_ref());
    let causes = details.map_or(&[][..], |details| &details.causes).iter();
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| cause.message.as_str())
}

/// The places of the objects that were not tried.
pub(super) fn locations(manifests: &[Result<Manifest, CliError>]) -> Vec<String> {
    manifests.iter().flatten().map(|manifest| manifest.location.clone()).collect()
}
