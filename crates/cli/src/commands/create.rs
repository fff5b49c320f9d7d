//! `postern create`: any objects from files, and the kinds that have a separate command.

use clap::{Args, Subcommand};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::{Kind as _, Verb};
use postern_meta::object::Object;

use super::{access_keys, clusters, principals, projects};
use crate::batch::Failure;
use crate::error::CliError;
use crate::flags::{CollectionFlags, ObjectFormat};
use crate::kinds;
use crate::manifest::Manifest;
use crate::manifest_files::{self, FileFlags};
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
    /// Create a user: a person that can hold access keys.
    #[command(alias = "users")]
    User(principals::CreateUser),
    /// Create a team: users that share permissions.
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
    collection: CollectionFlags,
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
        let manifests = self.files.read(Verb::Create, &self.collection, process)?;
        check_credentials(&manifests, self.output, process)?;
        let mut session = Session::open(&self.collection.connection, process)?;
        let namespace = session.namespace_of(&self.collection.namespace).await;
        let namespace = namespace.map_err(|error| {
            let left = manifests[1..].iter().flatten();
            let left: Vec<_> = left.map(|manifest| manifest.location.clone()).collect();
            error.not_tried(&left)
        })?;
        let mut separator = "";
        manifest_files::each(&manifests, process, async |manifest| {
            let object = create(&mut session, manifest, &namespace, process).await?;
            let info = manifest.info;
            let printed = output::print_document(object, info, self.output, &mut separator, process);
            printed.map_err(|error| {
                let hint = "the last object was created, but its response was not printed: a credential \
                            in it is lost";
                Failure::All(error.output_matters().hint(hint))
            })
        })
        .await
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

/// The error for an object with a credential that would not be printed. The response has the only
/// copy of the credential.
fn would_be_lost(manifest: &Manifest) -> CliError {
    let kind = manifest.info.kind;
    let message = format!(
        "{}: the response contains the only copy of the credential of the new {kind}",
        manifest.location
    );
    CliError::usage(message).hint("nothing was created: pass -o json or -o yaml")
}

async fn create(
    session: &mut Session,
    manifest: &Manifest,
    namespace: &str,
    process: &Process,
) -> Result<Object, Failure> {
    let Manifest { info, object, .. } = manifest;
    let of = manifest.collection(namespace);
    let object = session
        .client
        .create(of, object)
        .await
        .map_err(|error| Failure::of(&error, session.explain(&error)))?;
    let within = of.namespace().map_or_else(String::new, |n| format!(" in the namespace {n}"));
    let name = escape(&object.metadata.name);
    process.print_status(&format!("{} {name} created{within}", kinds::name(info)));
    Ok(object)
}
