//! `postern migrate virtualcluster`: moves a virtual cluster to another project. It first lists the
//! changes, and asks.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Args, Subcommand};
use postern_client::{Collection, Representation};
use postern_kinds::project::{Project, namespace_of};
use postern_kinds::project_members::{self, ProjectMember, ProjectMembers};
use postern_kinds::project_migrate_virtual_cluster_instance::{
    ProjectMigrateVirtualClusterInstance, Source, Spec,
};
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind as _, Kind as _, virtual_cluster_instance};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::Reason;
use serde_json::Value;

use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::kinds;
use crate::output::escape;
use crate::parse;
use crate::process::Process;
use crate::session::Session;

/// The subresource that moves an instance into a project.
const ACTION: &str = "migratevirtualclusterinstance";

/// The objects that can be moved to another project.
#[derive(Subcommand, Debug)]
pub enum Migrate {
    /// Move a virtual cluster to another project.
    ///
    /// The workload does not move. The address, the members with access, and the quota change; the command
    /// prints these changes first. The owner and the access rules stay.
    #[command(
        name = kinds::name(&VirtualClusterInstance::INFO),
        visible_aliases = kinds::visible_aliases(&VirtualClusterInstance::INFO),
        aliases = kinds::hidden_aliases(&VirtualClusterInstance::INFO),
    )]
    VirtualCluster(MigrateVirtualCluster),
}

/// A virtual cluster to move.
#[derive(Args, Debug)]
pub struct MigrateVirtualCluster {
    /// The virtual cluster
    #[arg(value_parser = parse::name)]
    name: String,

    /// The project of the instance
    #[arg(long, value_name = "PROJECT", value_parser = parse::name)]
    from: String,

    /// The target project
    #[arg(long, value_name = "PROJECT", value_parser = parse::name)]
    to: String,

    /// Check the move and print the changes, without moving
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl MigrateVirtualCluster {
    /// Moves.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let asks = !self.yes && !self.dry_run;
        if asks && !process.stdin_is_terminal() {
            let text = "the command asks for confirmation, and there is no terminal";
            return Err(CliError::usage(text)
                .hint("--dry-run prints what would change")
                .hint("--yes moves it without confirmation"));
        }
        if self.from == self.to {
            let message = format!("--from and --to name the same project: {}", self.to);
            return Err(CliError::usage(message));
        }
        let mut session = Session::open(&self.connection, process)?;
        session.load_names().await?;
        let plan = self.plan(&mut session).await?;
        // Obstacles are found before anything is printed, and before the question.
        self.ask_server(&mut session, true).await?;
        process.print_text(&plan)?;
        let Self { name, from, to, .. } = &self;
        if self.dry_run {
            process
                .print_status("the server checked the move: it would succeed; nothing was changed");
            return Ok(());
        }
        if asks && !process.confirm(&format!("Move {name} from {from} to {to}?"))? {
            return Err(CliError::new("not confirmed, so nothing was done"));
        }
        self.ask_server(&mut session, false).await?;
        process.print_status(&format!(
            "virtual cluster {name} moved from the project {from} to the project {to}"
        ));
        Ok(())
    }

    /// Has the server move it, or check whether it would.
    async fn ask_server(&self, session: &mut Session, dry_run: bool) -> Result<(), CliError> {
        let namespace = namespace_of(&self.from);
        let source = Source { name: self.name.clone(), namespace };
        let spec = Spec { source_virtual_cluster_instance: source };
        let Ok(Value::Object(fields)) = serde_json::to_value(&spec) else {
            return Err(CliError::new("the request could not be encoded"));
        };
        let info = ProjectMigrateVirtualClusterInstance.info();
        let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
        let body = Object { api_version, kind, metadata: ObjectMeta::default(), fields };
        let of = Collection::of::<Project>(None);
        let moved = session.client.act(of, &self.to, ACTION, &body, dry_run).await;
        moved.map(drop).map_err(|error| {
            let explained = session.explain(&error);
            if error.reason() == Some(Reason::Conflict) {
                // Its message names the obstacle. The conflict is not a concurrent write.
                return CliError::new(explained.message).hint("nothing was moved");
            }
            explained
        })
    }

    /// The changes, for people.
    async fn plan(&self, session: &mut Session) -> Result<String, CliError> {
        let Self { name, from, to, .. } = self;
        let (old, new) = (namespace_of(from), namespace_of(to));
        let of = Collection::of::<VirtualClusterInstance>(Some(&old));
        let instance = session.client.get(of, name).await;
        let instance = session.answer(of, name, instance).await?;
        let instance = session.fields::<VirtualClusterInstance>(&instance)?;
        let mut plan = format!(
            "virtual cluster {name}\n  project:   {from} -> {to}\n  namespace: {old} -> {new}\n  \
             address:   /kubernetes/project/{from}/virtualcluster/{name} -> \
             /kubernetes/project/{to}/virtualcluster/{name}\n"
        );
        let _ = writeln!(plan, "  cluster:   {} (stays)", cluster(&instance.spec));
        let _ = writeln!(plan, "  secret:    {}", secret(&instance.spec));
        self.add_access(session, &instance.spec, &mut plan).await?;
        self.add_quota(session, &mut plan).await?;
        Ok(plan)
    }

    /// Adds the users and teams with access before and after: the members of the projects.
    async fn add_access(
        &self,
        session: &mut Session,
        spec: &virtual_cluster_instance::Spec,
        plan: &mut String,
    ) -> Result<(), CliError> {
        let owner = spec.owner.clone().unwrap_or_default().display_name();
        let owner = if owner.is_empty() { "none".to_owned() } else { owner };
        let _ = writeln!(
            plan,
            "  stays:     the owner ({owner}) and {} access rules",
            spec.access.len()
        );
        let before = members(session, &self.from).await?;
        let after = members(session, &self.to).await?;
        let (Some(before), Some(after)) = (before, after) else {
            let _ = writeln!(
                plan,
                "  access:    unknown: no permission to read the members of \
                                    both projects"
            );
            return Ok(());
        };
        let list = |who: Vec<&String>| match who.len() {
            0 => "no member".to_owned(),
            _ => who.into_iter().map(|one| escape(one)).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(plan, "  loses:     {}", list(before.difference(&after).collect()));
        let _ = writeln!(plan, "  gains:     {}", list(after.difference(&before).collect()));
        Ok(())
    }

    /// Adds the quota of the target project.
    async fn add_quota(&self, session: &mut Session, plan: &mut String) -> Result<(), CliError> {
        let plural = VirtualClusterInstance::INFO.plural;
        let project = session.client.get(Collection::of::<Project>(None), &self.to).await;
        let Some(project) = session.readable(project)? else {
            let to = &self.to;
            let _ = writeln!(plan, "  quota:     unknown: no permission to read the quota of {to}");
            return Ok(());
        };
        let Some(limit) = session.fields::<Project>(&project)?.spec.project_quota(plural) else {
            let _ = writeln!(plan, "  quota:     none in {}", self.to);
            return Ok(());
        };
        let namespace = namespace_of(&self.to);
        let of = Collection::of::<VirtualClusterInstance>(Some(&namespace));
        let there = session.client.list(of, Representation::Metadata).await;
        let there = there.map_err(|error| session.explain(&error))?;
        let used = there["items"].as_array().map_or(0, Vec::len);
        let _ = writeln!(plan, "  quota:     {used}+1 of {limit} in {}", self.to);
        Ok(())
    }
}

fn cluster(spec: &virtual_cluster_instance::Spec) -> String {
    match &spec.cluster_ref {
        Some(at) => escape(&format!("{} {}/{}", at.cluster, at.namespace, at.virtual_cluster)),
        None => "none".to_owned(),
    }
}

fn secret(spec: &virtual_cluster_instance::Spec) -> String {
    match &spec.config {
        Some(config) => format!("{} with the kubeconfig moves too", escape(&config.secret_name)),
        None => "none".to_owned(),
    }
}

/// The members of a project, with their roles; `None` if the caller may not know them.
async fn members(
    session: &mut Session,
    project: &str,
) -> Result<Option<BTreeSet<String>>, CliError> {
    let of = Collection::of::<Project>(None);
    let listed = session.client.get_part(of, project, "members").await;
    let Some(listed) = session.readable(listed)? else { return Ok(None) };
    let project_members::Spec { users, teams } = session.fields::<ProjectMembers>(&listed)?.spec;
    let named = |kind: &'static str| {
        move |one: ProjectMember| format!("{kind}/{} ({})", one.info.name, one.cluster_role)
    };
    let users = users.into_iter().map(named("user"));
    Ok(Some(users.chain(teams.into_iter().map(named("team"))).collect()))
}
