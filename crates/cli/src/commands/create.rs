//! `postern create`: any objects from files, and what has a command of its own.

use clap::{Args, Subcommand};
use postern_client::Collection;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::{Info, Kind as _, Verb};
use postern_meta::object::Object;

use super::{access_keys, clusters, principals, projects};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag, ObjectFormat};
use crate::kinds;
use crate::manifest::Manifest;
use crate::manifest_files::FileFlags;
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::Session;

/// The arguments of `postern create`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = "Example:\n  postern create -f objects.yaml"
)]
pub struct Create {
    #[command(subcommand)]
    special: Option<Special>,

    #[command(flatten)]
    from_files: FromFiles,
}

/// The objects that have a command of their own.
#[derive(Subcommand, Debug)]
pub(crate) enum Special {
    /// Create an access key, and print only the key on the standard output.
    ///
    /// No later command can print the key. Messages go to the standard error, so that KEY=$(postern create
    /// accesskey ci) works.
    #[command(
        name = kinds::name(&OwnedAccessKey::INFO),
        visible_aliases = kinds::visible_aliases(&OwnedAccessKey::INFO),
        aliases = kinds::hidden_aliases(&OwnedAccessKey::INFO),
    )]
    AccessKey(access_keys::Create),
    /// Create a user: a person who may hold access keys.
    #[command(alias = "users")]
    User(principals::CreateUser),
    /// Create a team: users who share permissions.
    #[command(alias = "teams")]
    Team(principals::CreateTeam),
    /// Create a project: a namespace with members.
    #[command(alias = "projects")]
    Project(projects::CreateProject),
    /// Create a connected cluster, and print only the access key of its agent on the standard output.
    ///
    /// No later command can print the key. The command that starts the agent, and its role in the cluster, go
    /// to the standard error.
    #[command(alias = "clusters")]
    Cluster(clusters::CreateCluster),
    /// Create the access key of a cluster's agent again, and print only the key on the standard output.
    ///
    /// It has the scope that this version of the agent needs. The binding of the agent is created if it is
    /// missing.
    AgentKey(clusters::CreateAgentKey),
}

/// Objects to create from files.
#[derive(Args, Debug)]
pub(crate) struct FromFiles {
    #[command(flatten)]
    files: FileFlags,

    /// Output format of the created object [default: no output]. Only json and yaml print the value of a new
    /// access key
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    namespace: NamespaceFlag,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Create {
    /// Creates.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        match self.special {
            None => self.from_files.run(process).await,
            Some(Special::AccessKey(command)) => command.run(process).await,
            Some(Special::User(command)) => command.run(process).await,
            Some(Special::Team(command)) => command.run(process).await,
            Some(Special::Project(command)) => command.run(process).await,
            Some(Special::Cluster(command)) => command.run(process).await,
            Some(Special::AgentKey(command)) => command.run(process).await,
        }
    }
}

impl FromFiles {
    async fn run(self, process: &Process) -> Result<(), CliError> {
        let manifests = self.read(process)?;
        let mut session = Session::open(&self.connection, process)?;
        session.load_namespace(Some(&self.namespace)).await.map_err(|error| {
            let left = manifests[1..].iter().flatten();
            let left: Vec<_> = left.map(|manifest| manifest.location.clone()).collect();
            error.not_tried(&left)
        })?;
        let namespace = session.namespace_or(&self.namespace);
        let mut failed = false;
        let mut separator = "";
        for (done, manifest) in manifests.iter().enumerate() {
            let created = match manifest {
                Ok(manifest) => create(&mut session, manifest, &namespace, process).await,
                Err(error) => Err(CreateError::One(error.clone())),
            };
            let printed = created.and_then(|object| self.print(object, &mut separator, process));
            match printed {
                Ok(()) => {}
                Err(CreateError::One(error)) => {
                    process.print_error(&error);
                    failed = true;
                }
                Err(CreateError::All(error)) => {
                    let left = manifests[done + 1..].iter().flatten();
                    let left: Vec<_> = left.map(|manifest| manifest.location.clone()).collect();
                    return Err(error.not_tried(&left));
                }
            }
        }
        if failed { Err(CliError::reported()) } else { Ok(()) }
    }

    /// Prints a new object, as one document of several.
    fn print(
        &self,
        created: Created,
        separator: &mut &str,
        process: &Process,
    ) -> Result<(), CreateError> {
        if self.output == Some(ObjectFormat::Yaml) {
            let separator = std::mem::replace(separator, "---\n");
            process.print_text(separator).map_err(CreateError::of_output)?;
        }
        let Created { info, object } = created;
        let printed = output::print_object(object, info, self.output, process);
        printed.map_err(CreateError::of_output)
    }

    /// Reads everything before anything is created.
    fn read(&self, process: &Process) -> Result<Vec<Result<Manifest, CliError>>, CliError> {
        let manifests =
            self.files.read(Verb::Create, &self.connection, &self.namespace, process)?;
        check_credentials(&manifests, self.output, process)?;
        Ok(manifests)
    }
}

/// Refuses objects with a credential that the command would not print, or that nothing would read.
pub(super) fn check_credentials(
    manifests: &[Result<Manifest, CliError>],
    output: Option<ObjectFormat>,
    process: &Process,
) -> Result<(), CliError> {
    let mut understood = manifests.iter().flatten();
    let found = understood.find(|manifest| kinds::answers_with_credential(manifest.info));
    let Some(manifest) = found else { return Ok(()) };
    match output {
        Some(ObjectFormat::Json | ObjectFormat::Yaml) => process.require_stdout(),
        _ => Err(would_be_lost(manifest)),
    }
}

/// The error for an object whose only copy of a credential would not be printed.
fn would_be_lost(manifest: &Manifest) -> CliError {
    let kind = manifest.info.kind;
    let message = format!(
        "{}: the response contains the only copy of the credential of the new {kind}",
        manifest.location
    );
    CliError::usage(message).hint("nothing was created: pass -o json or -o yaml")
}

/// A new object, as the server answered.
struct Created {
    info: &'static Info,
    object: Object,
}

/// Why an object was not created, or not printed.
enum CreateError {
    /// Others can still be created.
    One(CliError),
    /// All others would fail, too.
    All(CliError),
}

impl CreateError {
    fn of_output(error: CliError) -> Self {
        let hint = "the last object was created, but its response was not printed: a credential \
                    in it is lost";
        Self::All(error.output_matters().hint(hint))
    }
}

async fn create(
    session: &mut Session,
    manifest: &Manifest,
    namespace: &str,
    process: &Process,
) -> Result<Created, CreateError> {
    let Manifest { location, info, object } = manifest;
    let own = Some(object.metadata.namespace.as_str()).filter(|own| !own.is_empty());
    let of = Collection::new(info, Some(own.unwrap_or(namespace)));
    let object = session.client.create(of, object).await.map_err(|error| {
        let mut explained = session.explain(&error);
        explained.message = format!("{location}: {}", explained.message);
        let all = error.fails_all_requests();
        if all { CreateError::All(explained) } else { CreateError::One(explained) }
    })?;
    let within = of.namespace().map_or_else(String::new, |n| format!(" in the namespace {n}"));
    let name = escape(&object.metadata.name);
    process.print_status(&format!("{} {name} created{within}", kinds::name(info)));
    Ok(Created { info, object })
}
