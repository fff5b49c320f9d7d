//! Creating projects from arguments, and changing their members. Everything else about projects is
//! as for other kinds.

use clap::{Args, Subcommand};
use postern_client::{Collection, Representation};
use postern_kinds::Kind as _;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::project::namespace_of;
use postern_kinds::project::{DEFAULT_MEMBER_ROLE, MEMBER_ROLES, Member, Project, Spec};
use postern_meta::object::ObjectMeta;
use postern_meta::status::Reason;
use serde_json::{Value, json};

use super::lockout::{self, Ending};
use super::new_object;
use crate::access_rules::edit_list;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, ObjectFormat};
use crate::output;
use crate::parse;
use crate::process::Process;
use crate::role_bindings::Who;
use crate::session::Session;

/// The prefix of the roles that every project has. The short name of a role is the part after it.
const ROLE_PREFIX: &str = "platform-project-";
/// The role of a member that can change the project.
const ADMIN_ROLE: &str = "platform-project-admin";

/// A new project.
#[derive(Args, Debug)]
pub(crate) struct CreateProject {
    /// The name
    #[arg(value_parser = parse::name)]
    name: String,

    /// The display name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    display_name: String,

    /// The purpose of the project
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,

    /// A member, as user/NAME or team/NAME, with an optional :ROLE (default user); may be repeated. ROLE is
    /// admin, user, viewer or the name of a ClusterRole
    #[arg(long = "member", value_name = "MEMBER[:ROLE]", value_parser = member)]
    members: Vec<Member>,

    /// How to print the created object [default: not at all]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The entries that can be added to an object.
#[derive(Subcommand, Debug)]
pub enum Add {
    /// Add a user or a team to the members of a project.
    ///
    /// The role applies in the namespace of the project. A team's role applies to all its users.
    #[command(alias = "members")]
    Member(AddMember),
}

/// The entries that can be removed from an object.
#[derive(Subcommand, Debug)]
pub enum Remove {
    /// Remove a user or a team from the members of a project.
    ///
    /// Their access from other sources stays: as the owner, by access rules, or through a team.
    #[command(alias = "members")]
    Member(RemoveMember),
}

/// The member to add or to remove.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct MemberFlags {
    /// A user
    #[arg(long, value_name = "USER", value_parser = parse::name)]
    user: Option<String>,

    /// A team
    #[arg(long, value_name = "TEAM", value_parser = parse::name)]
    team: Option<String>,
}

/// A member to add.
#[derive(Args, Debug)]
pub struct AddMember {
    /// The project
    #[arg(value_parser = parse::name)]
    project: String,

    #[command(flatten)]
    who: MemberFlags,

    /// Their role: admin, user, viewer or the name of a ClusterRole
    #[arg(long, value_name = "ROLE", default_value = "user", value_parser = role)]
    role: String,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// A member to remove.
#[derive(Args, Debug)]
pub struct RemoveMember {
    /// The project
    #[arg(value_parser = parse::name)]
    project: String,

    #[command(flatten)]
    who: MemberFlags,

    /// Do not ask for confirmation, also if your own access to the project ends
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Parses a role: the short name of one that every project has, or the name of a `ClusterRole`.
pub(super) fn role(text: &str) -> Result<String, String> {
    let own = MEMBER_ROLES.iter().find(|own| own.strip_prefix(ROLE_PREFIX) == Some(text));
    if let Some(own) = own {
        return Ok((*own).to_owned());
    }
    if text.is_empty() {
        return Err("a role is admin, user, viewer or the name of a ClusterRole".to_owned());
    }
    postern_meta::names::path_segment(text).map(|()| text.to_owned())
}

/// Parses `user/NAME` or `team/NAME`, with `:ROLE` or without.
fn member(text: &str) -> Result<Member, String> {
    // Names have no colons, but names of roles may have some.
    let (who, role) = match text.split_once(':') {
        None => (text, Ok(DEFAULT_MEMBER_ROLE.to_owned())),
        Some((who, text)) => (who, role(text)),
    };
    let (kind, name) = match who.split_once('/') {
        Some(("user", name)) => ("User", name),
        Some(("team", name)) => ("Team", name),
        _ => {
            return Err("a member must be user/NAME or team/NAME, optionally followed by \
                         :ROLE"
                .to_owned());
        }
    };
    let name = parse::name(name)?;
    Ok(Member { kind: kind.to_owned(), name, cluster_role: role?, ..Member::default() })
}

/// A member in a sentence.
fn describe(member: &Member) -> String {
    format!("the {} {}", member.kind.to_lowercase(), member.name)
}

impl MemberFlags {
    fn member(self, role: &str) -> Member {
        let (kind, name) = match (self.user, self.team) {
            (Some(user), _) => ("User", user),
            (None, team) => ("Team", team.unwrap_or_default()),
        };
        let (kind, cluster_role) = (kind.to_owned(), role.to_owned());
        Member { kind, name, cluster_role, ..Member::default() }
    }
}

impl CreateProject {
    /// Creates.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        session.load_names().await?;
        let roles = self.members.iter().map(|member| member.cluster_role.as_str());
        check_roles(&mut session, roles, "--member").await?;
        let metadata = ObjectMeta { name: self.name.clone(), ..ObjectMeta::default() };
        let spec = Spec {
            display_name: self.display_name,
            description: self.description,
            members: self.members,
            ..Spec::default()
        };
        let new = new_object::<Project>(metadata, spec)?;
        let created = session.client.create(projects(), &new).await;
        let flags = [("spec.members.name", "--member"), ("spec.members.clusterRole", "--member")];
        let created = created.map_err(|error| session.explain_by_flags(&error, &flags))?;
        let namespace = namespace_of(&self.name);
        process.print_status(&format!(
            "project {} created, with the namespace {namespace}",
            self.name
        ));
        output::print_object(created, &Project::INFO, self.output, process)
    }
}

impl Add {
    /// Adds.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Self::Member(command) = self;
        let member = command.who.member(&command.role);
        let mut session = Session::open(&command.connection, process)?;
        add_member(&mut session, &command.project, &member, "--role", process).await.map(drop)
    }
}

/// Adds a member to a project, and prints the result. Returns whether anything changed. `role_flag` is where the role
/// comes from.
pub(super) async fn add_member(
    session: &mut Session,
    project: &str,
    member: &Member,
    role_flag: &str,
    process: &Process,
) -> Result<bool, CliError> {
    let roles = std::iter::once(member.cluster_role.as_str());
    check_roles(session, roles, role_flag).await?;
    let mut others = Vec::new();
    let change = |members: &mut Vec<Value>| {
        others = roles_of(members, member);
        add(members, member)
    };
    let (_, is_new) = edit_list(session, projects(), project, "members", &FLAGS, change).await?;
    let (who, role) = (describe(member), &member.cluster_role);
    if is_new {
        process.print_status(&format!("{who} is a member of the project {project}: {role}"));
    } else {
        process.print_note(&format!("{who} was a member of the project {project}: {role}"));
    }
    others.retain(|other| other != role);
    if !others.is_empty() {
        process.print_note(&format!(
            "{who} keeps these roles in the project: {}",
            output::escape(&others.join(", "))
        ));
    }
    Ok(is_new)
}

/// Removes one role of a member, and prints the result. Returns whether the member had the role.
pub(super) async fn remove_role(
    session: &mut Session,
    project: &str,
    member: &Member,
    process: &Process,
) -> Result<bool, CliError> {
    let has_role = |entry: &Value| {
        is_same(entry, member) && entry["clusterRole"] == member.cluster_role.as_str()
    };
    let change = |members: &mut Vec<Value>| {
        let before = members.len();
        members.retain(|entry| !has_role(entry));
        members.len() < before
    };
    let (_, was_there) = edit_list(session, projects(), project, "members", &FLAGS, change).await?;
    if was_there {
        let (who, role) = (describe(member), &member.cluster_role);
        process
            .print_status(&format!("{who} is no longer a member of the project {project}: {role}"));
    }
    Ok(was_there)
}

/// Asks for the name of the project before the caller's own last membership with the role admin ends. It says whether
/// that is the last one of the project. An owner of the project, and a caller with every permission, lose nothing.
pub(super) async fn check_leaving(
    session: &mut Session,
    project: &str,
    is_leaver: impl Fn(&Member) -> bool,
    is_confirmed: bool,
    process: &Process,
) -> Result<(), CliError> {
    let asked = session.ask_self().await;
    let (_, own) = asked.map_err(|error| session.explain(&error))?;
    let read = session.client.get(projects(), project).await;
    let Some(object) = session.readable(read)? else { return Ok(()) };
    let spec = session.fields::<Project>(&object)?.spec;
    let users: Vec<&str> = own.user.iter().map(|user| user.name.as_str()).collect();
    let teams = own.user.iter().flat_map(|user| &user.teams).chain(&own.team);
    let teams: Vec<&str> = teams.map(|team| team.name.as_str()).collect();
    let is_own = |kind: &str, name: &str| match kind {
        "User" => users.contains(&name),
        _ => teams.contains(&name),
    };
    let (leaving, staying): (Vec<&Member>, Vec<&Member>) = spec
        .members
        .iter()
        .filter(|member| member.cluster_role == ADMIN_ROLE)
        .partition(|member| is_leaver(member));
    let is_caller = |member: &&Member| is_own(&member.kind, &member.name);
    let owns = match &spec.owner {
        Some(owner) => is_own("User", &owner.user) || is_own("Team", &owner.team),
        None => false,
    };
    if owns || !leaving.iter().any(is_caller) || staying.iter().any(is_caller) {
        return Ok(());
    }
    if lockout::has_everything(session).await? {
        return Ok(());
    }
    process.print_warning(&if staying.is_empty() {
        format!("you are the last admin of the project {project}: afterwards, only its owner can change it")
    } else {
        format!("you are an admin of the project {project} by this membership alone")
    });
    if is_confirmed { Ok(()) } else { lockout::confirm_name(project, Ending::Revoke, process) }
}

/// A user or a team as a member with a role.
pub(super) fn member_of(who: &Who, cluster_role: &str) -> Member {
    Member {
        kind: who.info().kind.to_owned(),
        name: who.name().to_owned(),
        cluster_role: cluster_role.to_owned(),
        ..Member::default()
    }
}

impl Remove {
    /// Removes.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Self::Member(command) = self;
        let member = command.who.member("");
        let mut session = Session::open(&command.connection, process)?;
        let change = |members: &mut Vec<Value>| remove(members, &member);
        let project = &command.project;
        let is_leaver = |one: &Member| (&one.kind, &one.name) == (&member.kind, &member.name);
        check_leaving(&mut session, project, is_leaver, command.yes, process).await?;
        let (_, was_there) =
            edit_list(&mut session, projects(), project, "members", &FLAGS, change).await?;
        let who = describe(&member);
        if was_there {
            process.print_status(&format!("{who} was removed from the project {project}"));
        } else {
            process.print_note(&format!(
                "{who} is not a member of the project {project}; nothing \
                                         was changed"
            ));
        }
        Ok(())
    }
}

fn projects() -> Collection<'static> {
    Collection::of::<Project>(None)
}

/// Refuses roles that do not exist, before anything is changed: the server takes them, and they give no permission. A role
/// that the caller may not read is left to the server.
async fn check_roles(
    session: &mut Session,
    roles: impl Iterator<Item = &str>,
    flag: &str,
) -> Result<(), CliError> {
    let of = Collection::of::<ClusterRole>(None);
    for role in roles.filter(|role| !MEMBER_ROLES.contains(role)) {
        let read = session.client.get_as(of, role, Representation::Metadata).await;
        let Err(error) = read else { continue };
        if error.reason() == Some(Reason::NotFound) {
            let explained = session.explain_named(of, role, &error).await.at(flag);
            let roles =
                "nothing was changed; a role is admin, user, viewer or the name of a ClusterRole";
            return Err(explained.hint(roles));
        }
    }
    Ok(())
}

/// The flags that set fields of members.
const FLAGS: [(&str, &str); 2] =
    [("spec.members.name", "--user or --team"), ("spec.members.clusterRole", "--role")];

/// Whether an entry is about the same user or team.
fn is_same(entry: &Value, member: &Member) -> bool {
    entry["kind"] == member.kind.as_str() && entry["name"] == member.name.as_str()
}

/// The roles that a user or a team has.
fn roles_of(members: &[Value], member: &Member) -> Vec<String> {
    let own = members.iter().filter(|entry| is_same(entry, member));
    own.filter_map(|entry| entry["clusterRole"].as_str()).map(str::to_owned).collect()
}

/// Adds a member, unless they are there with the same role.
fn add(members: &mut Vec<Value>, member: &Member) -> bool {
    let is_new = !roles_of(members, member).contains(&member.cluster_role);
    if is_new {
        members.push(json!(member));
    }
    is_new
}

/// Removes a member, with all roles. Returns whether they were there.
fn remove(members: &mut Vec<Value>, member: &Member) -> bool {
    let before = members.len();
    members.retain(|entry| !is_same(entry, member));
    members.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        match member(text) {
            Ok(Member { kind, name, cluster_role, .. }) => format!("{kind} {name} {cluster_role}"),
            Err(what) => what,
        }
    }

    #[test]
    fn members_are_written_with_their_kind_and_their_role() {
        assert_eq!(parsed("user/ada"), "User ada platform-project-user");
        assert_eq!(parsed("team/red:admin"), "Team red platform-project-admin");
        assert_eq!(parsed("team/red:viewer"), "Team red platform-project-viewer");
        assert_eq!(parsed("user/ada:example.com:ops"), "User ada example.com:ops");
        for wrong in ["ada", "user/", "group/ops", "user/ada:", "user/A", "user/ada:a/b", ":admin"]
        {
            assert!(member(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn members_are_added_once_for_each_role_and_removed_with_all() {
        let ada = |role: &str| json!({ "kind": "User", "name": "ada", "clusterRole": role });
        let team = json!({ "kind": "Team", "name": "ada", "clusterRole": "a", "future": 1 });
        let member = |role| Member { cluster_role: role, ..self::member("user/ada").unwrap() };
        let mut members = vec![team.clone()];
        assert!(add(&mut members, &member("a".to_owned())));
        assert!(!add(&mut members, &member("a".to_owned())));
        assert!(add(&mut members, &member("b".to_owned())));
        assert_eq!(members, [team.clone(), ada("a"), ada("b")]);
        assert_eq!(roles_of(&members, &member(String::new())), ["a", "b"]);
        assert!(remove(&mut members, &member(String::new())));
        assert!(!remove(&mut members, &member(String::new())));
        assert_eq!(members, [team]);
    }
}
