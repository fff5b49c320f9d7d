//! `postern grant` and `postern revoke`: roles of users and teams, by ordinary bindings, and by the members of a project.

use clap::Args;
use postern_client::{Collection, Representation};
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::project::Member;
use postern_kinds::rbac::{RBAC_GROUP, RBAC_V1, RoleRef, Subject};
use postern_kinds::role::Role;
use postern_kinds::{Info, Kind as _, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::Reason;
use serde_json::{Map, Value, json};

use super::access_reviews::may;
use super::lockout::{self, LockoutFlags, Revocation};
use super::projects;
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::output;
use crate::parse;
use crate::process::Process;
use crate::role_bindings::{
    self, Binding, Identities, Left, Location, Who, remove_subjects, role_text,
};
use crate::session::Session;

/// How often a binding is read and written when others change it at the same time.
const REMOVALS_MAX: usize = 5;

/// A role, a user or a team, and where.
#[derive(Args, Debug)]
pub(crate) struct RoleFlags {
    /// The role: a ClusterRole, or with --namespace also a Role. clusterrole/NAME and role/NAME name one kind. With
    /// --project, admin, user and viewer are the roles that every project has
    #[arg(value_name = "ROLE", value_parser = named_role)]
    role: NamedRole,

    #[command(flatten)]
    who: WhoFlags,

    /// Only in this project: the role of a member
    #[arg(long, value_name = "PROJECT", value_parser = parse::name, conflicts_with = "namespace")]
    project: Option<String>,

    /// Only in this namespace [default: everywhere]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = parse::namespace)]
    namespace: Option<String>,

    /// Print KIND/NAME of each binding or project that changed
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The user or team.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct WhoFlags {
    /// A user
    #[arg(long, value_name = "USER", value_parser = parse::name)]
    user: Option<String>,

    /// A team, that is, its members and its access keys
    #[arg(long, value_name = "TEAM", value_parser = parse::name)]
    team: Option<String>,
}

impl WhoFlags {
    fn who(&self) -> Who {
        match (&self.user, &self.team) {
            (Some(user), _) => Who::User(user.clone()),
            (None, team) => Who::Team(team.clone().unwrap_or_default()),
        }
    }
}

/// The arguments of `postern grant`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern grant platform-viewer --user ada\n  \
    postern grant admin --team red --project web\n  \
    postern grant makers --user ada --namespace shop")]
pub struct Grant {
    #[command(flatten)]
    flags: RoleFlags,
}

/// The arguments of `postern revoke`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern revoke platform-viewer --user ada\n  \
    postern revoke admin --team red --project web")]
pub struct Revoke {
    #[command(flatten)]
    flags: RoleFlags,

    #[command(flatten)]
    lockout: LockoutFlags,
}

/// A role as the command line names it.
#[derive(Clone, Debug)]
pub(super) struct NamedRole {
    /// The kind, if it is given.
    info: Option<&'static Info>,
    name: String,
}

/// Parses `NAME`, `clusterrole/NAME` or `role/NAME`.
pub(super) fn named_role(text: &str) -> Result<NamedRole, String> {
    let (info, name) = match text.split_once('/') {
        None => (None, text),
        Some((kind, name)) => {
            let kinds = [&ClusterRole::INFO, &Role::INFO];
            let info = kinds.into_iter().find(|info| crate::kinds::names(info).contains(&kind));
            let wrong = || "a role is NAME, clusterrole/NAME or role/NAME".to_owned();
            (Some(info.ok_or_else(wrong)?), name)
        }
    };
    if name.is_empty() {
        return Err("the name must not be empty".to_owned());
    }
    postern_meta::names::path_segment(name)?;
    Ok(NamedRole { info, name: name.to_owned() })
}

impl RoleFlags {
    fn location(&self) -> Location {
        match (&self.project, &self.namespace) {
            (Some(project), _) => Location::Project(project.clone()),
            (None, Some(namespace)) => Location::of_namespace(Some(namespace)),
            (None, None) => Location::Everywhere,
        }
    }

    /// Refuses a Role without a namespace, and as the role of a member.
    fn check(&self) -> Result<(), CliError> {
        if self.namespace.is_some() { Ok(()) } else { self.role.check_everywhere() }
    }

    /// The role of a member of a project: the short name of one that every project has, or a ClusterRole.
    fn member_role(&self) -> Result<String, CliError> {
        projects::role(&self.role.name).map_err(CliError::usage)
    }

    fn print_name(&self, info: &Info, name: &str, process: &Process) -> Result<(), CliError> {
        if self.output.is_none() {
            return Ok(());
        }
        process.print_text(output::full_name(info, name) + "\n")
    }
}

impl NamedRole {
    /// Refuses a Role, which counts in a namespace only.
    pub(super) fn check_everywhere(&self) -> Result<(), CliError> {
        if self.info.is_some_and(|info| info.kind == Role::INFO.kind) {
            let message = "a Role counts in its namespace only: pass --namespace";
            return Err(CliError::usage(message));
        }
        Ok(())
    }

    /// The role: in a namespace, a ClusterRole or else a Role. A role that the caller may not read is left to the
    /// server.
    pub(super) async fn find(
        &self,
        session: &mut Session,
        location: &Location,
    ) -> Result<RoleRef, CliError> {
        let Self { info, name } = self;
        let namespace = location.namespace();
        let candidates = match (info, &namespace) {
            (Some(info), _) => vec![*info],
            (None, Some(_)) => vec![&ClusterRole::INFO, &Role::INFO],
            (None, None) => vec![&ClusterRole::INFO],
        };
        let mut missing = None;
        for info in candidates {
            let of = Collection::new(info, namespace.as_deref().filter(|_| info.is_namespaced()));
            match session.client.get_as(of, name, Representation::Metadata).await {
                Err(error) if error.reason() == Some(Reason::NotFound) => {
                    missing = Some(session.explain_named(of, name, &error).await.at("ROLE"));
                }
                _ => return Ok(role_ref(info, name)),
            }
        }
        Err(missing.unwrap_or_else(|| CliError::usage("no role is given")))
    }
}

fn role_ref(info: &Info, name: &str) -> RoleRef {
    RoleRef { api_group: RBAC_GROUP.to_owned(), kind: info.kind.to_owned(), name: name.to_owned() }
}

/// The name of the binding that `grant` creates. It is the same for the same role and subject.
fn binding_name(role: &RoleRef, who: &Who) -> String {
    let prefix = if role.kind == Role::INFO.kind { "role:" } else { "" };
    format!("grant:{prefix}{}:{}:{}", role.name, who.principal().kind(), who.name())
}

impl Grant {
    /// Grants.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let flags = self.flags;
        flags.check()?;
        let mut session = Session::open(&flags.connection, process)?;
        session.load_names().await?;
        let (who, location) = (flags.who.who(), flags.location());
        // Whom a member of the project may name is left to the server: the caller need not see the user.
        if let Some(project) = &flags.project {
            let member = projects::member_of(&who, &flags.member_role()?);
            let is_new =
                projects::add_member(&mut session, project, &member, "ROLE", process).await?;
            return if is_new {
                flags.print_name(&postern_kinds::project::Project::INFO, project, process)
            } else {
                Ok(())
            };
        }
        who.check(&mut session, who.flag()).await?;
        let role = flags.role.find(&mut session, &location).await?;
        match give(&mut session, &role, &who, &location, process).await? {
            Some(name) => flags.print_name(location.binding_info(), &name, process),
            None => Ok(()),
        }
    }
}

/// Checks that the caller may bind roles at all, before something else is created.
pub(super) async fn check_may_bind(session: &mut Session, flag: &str) -> Result<(), CliError> {
    if may(session, Verb::Create.as_str(), &ClusterRoleBinding::INFO, "").await? {
        return Ok(());
    }
    let text = format!("{flag}: you may not create clusterrolebindings");
    Err(CliError::new(text).hint("nothing was done"))
}

/// Gives a role by a binding, and returns its name; `None` if a binding of the user or team gives it already.
pub(super) async fn give(
    session: &mut Session,
    role: &RoleRef,
    who: &Who,
    location: &Location,
    process: &Process,
) -> Result<Option<String>, CliError> {
    let identities = who.identities(session).await?;
    let namespace = location.namespace();
    let of = Collection::new(location.binding_info(), namespace.as_deref());
    let bindings = role_bindings::list(session, of).await?.unwrap_or_default();
    let has = |binding: &&Binding| is_direct(binding, role, &identities);
    let (described, role_text) = (who.described(), role_text(role));
    let text = format!("{described} has the role {role_text} {}", location.described());
    if let Some(binding) = bindings.iter().find(has) {
        process.print_status(&format!("unchanged: {text}, by {}", binding.described()));
        return Ok(None);
    }
    let name = binding_name(role, who);
    bind(session, of, &new_binding(of, &name, role, who)).await?;
    process.print_status(&format!("{text}, by {}/{name}", of.info().singular));
    Ok(Some(name))
}

/// Whether a binding gives a role to the user or team itself.
fn is_direct(binding: &Binding, role: &RoleRef, identities: &Identities) -> bool {
    is_same_role(&binding.role, role)
        && binding.subjects.iter().any(|subject| identities.is_direct(subject))
}

/// Whether two references name one role.
fn is_same_role(one: &RoleRef, other: &RoleRef) -> bool {
    (&one.kind, &one.name) == (&other.kind, &other.name)
}

fn new_binding(of: Collection<'_>, name: &str, role: &RoleRef, who: &Who) -> Object {
    let metadata = ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() };
    let subject = role_bindings::new_subject(who.principal());
    let fields = [("roleRef", json!(role)), ("subjects", json!([subject]))];
    Object {
        api_version: RBAC_V1.to_string(),
        kind: of.info().kind.to_owned(),
        metadata,
        fields: fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
    }
}

/// Creates the binding. If one of the name exists, its subject is added.
async fn bind(session: &mut Session, of: Collection<'_>, binding: &Object) -> Result<(), CliError> {
    match session.client.create(of, binding).await {
        Ok(_) => return Ok(()),
        Err(error) if error.reason() == Some(Reason::AlreadyExists) => {}
        Err(error) => return Err(session.explain(&error)),
    }
    let name = &binding.metadata.name;
    let mut has_role = true;
    let edited = session.client.edit(of, name, |present| {
        has_role = ["kind", "name"].iter().all(|field| {
            present.fields.get("roleRef").map(|role| &role[*field])
                == binding.fields.get("roleRef").map(|role| &role[*field])
        });
        has_role && add_subjects(&mut present.fields, &binding.fields["subjects"])
    });
    let edited = edited.await;
    session.answer(of, name, edited).await?;
    if has_role {
        return Ok(());
    }
    let message = format!("the binding {name} gives another role: delete it, and try again");
    Err(CliError::new(message))
}

/// Adds the subjects that are missing. The result is whether there were any.
fn add_subjects(fields: &mut Map<String, Value>, new: &Value) -> bool {
    let subjects = fields.entry("subjects").or_insert_with(|| json!([]));
    let (Some(subjects), Some(new)) = (subjects.as_array_mut(), new.as_array()) else {
        return false;
    };
    let before = subjects.len();
    for one in new {
        if !subjects.contains(one) {
            subjects.push(one.clone());
        }
    }
    subjects.len() > before
}

impl Revoke {
    /// Revokes.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let flags = self.flags;
        flags.check()?;
        let mut session = Session::open(&flags.connection, process)?;
        session.load_names().await?;
        let (who, location) = (flags.who.who(), flags.location());
        let identities = who.identities(&mut session).await?;
        let mut roles = flags.possible_roles(&location);
        let mut has_changed = false;
        if let Some(project) = &flags.project {
            let cluster_role = flags.member_role()?;
            roles = vec![role_ref(&ClusterRole::INFO, &cluster_role)];
            let member = projects::member_of(&who, &cluster_role);
            let is_leaver = |one: &Member| {
                (&one.kind, &one.name, &one.cluster_role)
                    == (&member.kind, &member.name, &member.cluster_role)
            };
            projects::check_leaving(&mut session, project, is_leaver, self.lockout.yes, process)
                .await?;
            if projects::remove_role(&mut session, project, &member, process).await? {
                flags.print_name(&postern_kinds::project::Project::INFO, project, process)?;
                has_changed = true;
            }
        }
        let holder = Holder { who, identities, roles };
        let namespace = location.namespace();
        let of = Collection::new(location.binding_info(), namespace.as_deref());
        let listed = role_bindings::list(&mut session, of).await?;
        let is_listed = listed.is_some();
        let bindings = match listed {
            Some(bindings) => bindings,
            None => holder.bindings_by_name(&mut session, of).await?,
        };
        let found: Vec<&Binding> =
            bindings.iter().filter(|binding| holder.is_removable(binding)).collect();
        if found.is_empty() && !is_listed && !has_changed {
            let message = format!(
                "you have no permission to list {}, so the bindings of the role are unknown",
                of.info().plural
            );
            return Err(CliError::new(message).hint("nothing was changed"));
        }
        if location == Location::Everywhere && !found.is_empty() {
            let names: Vec<&str> = found.iter().map(|binding| binding.name.as_str()).collect();
            let (identities, role) = (&holder.identities, flags.role.name.as_str());
            let revocation = Revocation { identities, role, bindings: &names };
            lockout::check_revocation(&mut session, &revocation, self.lockout, process).await?;
        }
        for binding in found {
            remove(&mut session, of, binding, &holder.identities, process).await?;
            flags.print_name(of.info(), &binding.name, process)?;
            has_changed = true;
        }
        let who = &holder.who;
        if !has_changed {
            who.check(&mut session, who.flag()).await?;
            if flags.project.is_none() {
                flags.role.find(&mut session, &location).await?;
            }
            process.print_note(&format!(
                "{} is in no binding of the role {} {}; nothing was changed",
                who.described(),
                flags.role.name,
                location.described()
            ));
        }
        let mut unlisted = (!is_listed).then_some(of.info());
        holder.print_kept(&bindings, process);
        if location != Location::Everywhere {
            let wider = Collection::of::<ClusterRoleBinding>(None);
            match role_bindings::list(&mut session, wider).await? {
                Some(bindings) => holder.print_kept_everywhere(&bindings, process),
                None => unlisted = unlisted.or(Some(wider.info())),
            }
        }
        if let Some(info) = unlisted {
            process.print_note(&format!(
                "you have no permission to list {}: {} may keep the role by another binding",
                info.plural,
                who.described()
            ));
        }
        Ok(())
    }
}

/// A user or team, and the roles that it loses.
struct Holder {
    who: Who,
    identities: Identities,
    roles: Vec<RoleRef>,
}

impl Holder {
    fn has_role(&self, binding: &Binding) -> bool {
        self.roles.iter().any(|role| is_same_role(&binding.role, role))
    }

    /// Whether the user or team is itself in a binding of the role. Only the server changes its own bindings.
    fn is_removable(&self, binding: &Binding) -> bool {
        self.has_role(binding)
            && !binding.is_of_server()
            && is_direct(binding, &binding.role, &self.identities)
    }

    /// The bindings with the names that `grant` gives.
    async fn bindings_by_name(
        &self,
        session: &mut Session,
        of: Collection<'_>,
    ) -> Result<Vec<Binding>, CliError> {
        let mut bindings = Vec::new();
        for role in &self.roles {
            let name = binding_name(role, &self.who);
            bindings.extend(role_bindings::get(session, of, &name).await?);
        }
        Ok(bindings)
    }

    /// Prints the bindings by which the role stays after the removal.
    fn print_kept(&self, bindings: &[Binding], process: &Process) {
        for binding in bindings.iter().filter(|binding| self.has_role(binding)) {
            // Only the members of the project change a binding of the server.
            let by = binding.subjects.iter().find(|one| {
                self.identities.includes(one)
                    && (!self.identities.is_direct(one) || binding.is_of_server())
            });
            self.print_keeps(binding, by, process);
        }
    }

    /// The same for the bindings of the whole server, which the removal in a namespace does not change.
    fn print_kept_everywhere(&self, bindings: &[Binding], process: &Process) {
        for binding in bindings.iter().filter(|binding| self.has_role(binding)) {
            let by = binding.subjects.iter().find(|one| self.identities.includes(one));
            self.print_keeps(binding, by, process);
        }
    }

    fn print_keeps(&self, binding: &Binding, by: Option<&Subject>, process: &Process) {
        let Some(subject) = by else { return };
        process.print_note(&format!(
            "{} keeps the role {} {} by {}, in {}",
            self.who.described(),
            role_text(&binding.role),
            binding.location.described(),
            role_bindings::subject_text(subject),
            binding.described()
        ));
    }
}

impl RoleFlags {
    /// The roles of a name, which need not exist any more.
    fn possible_roles(&self, location: &Location) -> Vec<RoleRef> {
        let infos = match (self.role.info, location) {
            (Some(info), _) => vec![info],
            (None, Location::Everywhere) => vec![&ClusterRole::INFO],
            (None, _) => vec![&ClusterRole::INFO, &Role::INFO],
        };
        infos.into_iter().map(|info| role_ref(info, &self.role.name)).collect()
    }
}

/// Removes the user or team from a binding, and deletes the binding if no other subject is in it.
async fn remove(
    session: &mut Session,
    of: Collection<'_>,
    binding: &Binding,
    identities: &Identities,
    process: &Process,
) -> Result<(), CliError> {
    let (name, what) = (&binding.name, binding.described());
    for attempt in 1.. {
        let read = session.client.get(of, name).await;
        let mut object = session.answer(of, name, read).await?;
        let (written, text) = match remove_subjects(&mut object.fields, identities) {
            Left::Same => return Ok(()),
            Left::Others => {
                let written = session.client.update(of, &object).await.map(drop);
                (written, format!("removed from {what}, which keeps its other subjects"))
            }
            Left::None => {
                let deleted = session.client.delete_unchanged(of, &object).await.map(drop);
                (deleted, format!("{what} deleted: no other subject was in it"))
            }
        };
        match written {
            Err(error) if error.reason() == Some(Reason::Conflict) && attempt < REMOVALS_MAX => {}
            answer => {
                session.answer(of, name, answer).await?;
                process.print_status(&text);
                return Ok(());
            }
        }
    }
    unreachable!("the last attempt returns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_named_with_or_without_their_kind() {
        let parsed =
            |text: &str| named_role(text).map(|role| (role.info.map(|info| info.kind), role.name));
        let name = |name: &str| name.to_owned();
        assert_eq!(parsed("example.com:ops"), Ok((None, name("example.com:ops"))));
        assert_eq!(parsed("clusterrole/view"), Ok((Some("ClusterRole"), name("view"))));
        assert_eq!(parsed("role/makers"), Ok((Some("Role"), name("makers"))));
        for wrong in ["", "role/", "user/ada", "a/b/c", ".."] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_binding_has_one_name_for_each_role_and_subject() {
        let role = role_ref(&ClusterRole::INFO, "view");
        let name = |who: Who| binding_name(&role, &who);
        assert_eq!(name(Who::User("ada".to_owned())), "grant:view:user:ada");
        assert_eq!(name(Who::Team("ada".to_owned())), "grant:view:team:ada");
        // A Role and a ClusterRole can have one name.
        let of_namespace = role_ref(&Role::INFO, "view");
        let ada = Who::User("ada".to_owned());
        assert_eq!(binding_name(&of_namespace, &ada), "grant:role:view:user:ada");
    }

    #[test]
    fn subjects_are_added_once() {
        let ada = json!([{ "kind": "Group", "name": "platform:user:ada" }]);
        let mut fields = Map::new();
        assert!(add_subjects(&mut fields, &ada));
        assert!(!add_subjects(&mut fields, &ada));
        assert_eq!(fields["subjects"], ada);
    }
}
