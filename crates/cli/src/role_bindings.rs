//! Bindings of roles, and the names by which they give a role to a user or a team. `commands/grant.rs` changes them,
//! and `commands/roles.rs` prints them.

use postern_client::{Collection, Representation};
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::project::namespace_of;
use postern_kinds::rbac::{RoleRef, SERVERS_PREFIX, Subject};
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::team::{self, Team};
use postern_kinds::user::{self, User};
use postern_kinds::{Info, Kind, Principal, project_prefix};
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::CliError;
use crate::output::escape;
use crate::session::Session;

/// The kinds of subjects of a binding.
pub(crate) const USER_SUBJECT: &str = "User";
pub(crate) const GROUP_SUBJECT: &str = "Group";
/// The groups of every caller with an access key.
const EVERY_CALLER: [&str; 3] =
    ["platform:user:*", "platform:authenticated", "system:authenticated"];
/// The prefixes of the roles that the server makes from access rules and members. They are about one object each.
const MADE_ROLE_PREFIXES: [&str; 2] = ["platform:access:", "platform:members:"];

/// Where a role counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In the whole server.
    Everywhere,
    /// In the namespace of a project.
    Project(String),
    /// In another namespace.
    Namespace(String),
}

impl Location {
    /// The location of a binding in a namespace. The names of namespaces are known by then.
    pub(crate) fn of_namespace(namespace: Option<&str>) -> Self {
        let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) else {
            return Self::Everywhere;
        };
        match namespace.strip_prefix(project_prefix()).filter(|project| !project.is_empty()) {
            Some(project) => Self::Project(project.to_owned()),
            None => Self::Namespace(namespace.to_owned()),
        }
    }

    /// The namespace of its bindings; `None` for those of the whole server.
    pub(crate) fn namespace(&self) -> Option<String> {
        match self {
            Self::Everywhere => None,
            Self::Project(project) => Some(namespace_of(project)),
            Self::Namespace(namespace) => Some(namespace.clone()),
        }
    }

    /// The kind of its bindings.
    pub(crate) fn binding_info(&self) -> &'static Info {
        match self {
            Self::Everywhere => &ClusterRoleBinding::INFO,
            Self::Project(_) | Self::Namespace(_) => &RoleBinding::INFO,
        }
    }

    /// The location at the end of a sentence, and in a table.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Everywhere => "everywhere".to_owned(),
            Self::Project(project) => format!("in the project {}", escape(project)),
            Self::Namespace(namespace) => format!("in the namespace {}", escape(namespace)),
        }
    }
}

/// A binding of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// Where it counts.
    pub(crate) location: Location,
    /// Its name.
    pub(crate) name: String,
    /// The role.
    pub(crate) role: RoleRef,
    /// The subjects with the role.
    pub(crate) subjects: Vec<Subject>,
}

/// The fields of a binding.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Vec<Subject>,
}

impl Binding {
    /// A binding of a list; `None` for one that this program does not understand.
    pub(crate) fn of(item: &Value) -> Option<Self> {
        let fields = Fields::deserialize(item).ok()?;
        Some(Self {
            location: Location::of_namespace(item["metadata"]["namespace"].as_str()),
            name: item["metadata"]["name"].as_str()?.to_owned(),
            role: fields.role_ref,
            subjects: fields.subjects,
        })
    }

    /// `KIND/NAME` of the binding, for a sentence and a table.
    pub(crate) fn described(&self) -> String {
        format!("{}/{}", self.location.binding_info().singular, escape(&self.name))
    }

    /// Whether only the server changes it.
    pub(crate) fn is_of_server(&self) -> bool {
        self.name.starts_with(SERVERS_PREFIX)
    }
}

/// The role in a sentence and a table: a Role of a namespace has its kind.
pub(crate) fn role_text(role: &RoleRef) -> String {
    let prefix = if role.kind == "Role" { "role/" } else { "" };
    format!("{prefix}{}", escape(&role.name))
}

/// The bindings of one kind, in one namespace or in all. Bindings of roles that are about one object are left out. `None`
/// if the caller may not list them.
pub(crate) async fn list(
    session: &mut Session,
    of: Collection<'_>,
) -> Result<Option<Vec<Binding>>, CliError> {
    let listed = session.client.list(of, Representation::Whole).await;
    let Some(list) = session.readable(listed)? else { return Ok(None) };
    let items = list["items"].as_array().into_iter().flatten();
    let is_of_object = |binding: &Binding| {
        MADE_ROLE_PREFIXES.iter().any(|prefix| binding.role.name.starts_with(prefix))
    };
    Ok(Some(items.filter_map(Binding::of).filter(|binding| !is_of_object(binding)).collect()))
}

/// The binding of a name; `None` if it does not exist, or the caller may not read it.
pub(crate) async fn get(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
) -> Result<Option<Binding>, CliError> {
    let read = session.client.get(of, name).await;
    Ok(session.readable(read)?.and_then(|object| Binding::of(&object.into_value())))
}

/// The subject of new bindings of a user or a team.
pub(crate) fn new_subject(principal: Principal<'_>) -> Subject {
    Subject {
        kind: GROUP_SUBJECT.to_owned(),
        api_group: postern_kinds::rbac::RBAC_GROUP.to_owned(),
        name: principal.group(),
        namespace: String::new(),
    }
}

/// A subject in a table: `user/ada`, `team/red`, `all users`, or its kind and name.
pub(crate) fn subject_text(subject: &Subject) -> String {
    let name = escape(&subject.name);
    match subject.kind.as_str() {
        GROUP_SUBJECT if EVERY_CALLER.contains(&subject.name.as_str()) => "all users".to_owned(),
        GROUP_SUBJECT => {
            match (name.strip_prefix("platform:user:"), name.strip_prefix("platform:team:")) {
                (Some(user), _) => format!("user/{user}"),
                (None, Some(team)) => format!("team/{team}"),
                (None, None) => format!("group/{name}"),
            }
        }
        USER_SUBJECT => format!("subject/{name}"),
        _ => format!("serviceaccount/{}/{name}", escape(&subject.namespace)),
    }
}

/// The subjects that are a user or a team, as bindings name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identities {
    /// The user name in access decisions.
    user: String,
    /// The group that is this user or team alone.
    own_group: String,
    /// All other groups: of teams, of the objects, and of every caller.
    groups: Vec<String>,
    /// The names of the teams of a user.
    pub(crate) teams: Vec<String>,
}

impl Identities {
    fn of_principal(principal: Principal<'_>) -> Self {
        Self {
            own_group: principal.group(),
            groups: EVERY_CALLER.map(str::to_owned).to_vec(),
            ..Self::default()
        }
    }

    /// The identities of a team.
    pub(crate) fn of_team(name: &str, spec: &team::Spec) -> Self {
        let mut identities = Self::of_principal(Principal::Team(name));
        identities.user = identities.own_group.clone();
        identities.groups.extend(spec.groups.iter().cloned());
        identities
    }

    /// The identities of a user. `teams` are all teams.
    pub(crate) fn of_user(name: &str, user: &user::Fields, teams: &[(String, team::Spec)]) -> Self {
        let mut identities = Self::of_principal(Principal::User(name));
        let user::Fields { spec, status } = user;
        let subject = if spec.subject.is_empty() { name } else { &spec.subject };
        subject.clone_into(&mut identities.user);
        let sso: Vec<&String> = status.sso.iter().flat_map(|of| &of.groups).collect();
        for (team, fields) in teams {
            let is_in = fields.users.iter().any(|one| one == name)
                || fields.sso_groups.iter().any(|group| sso.contains(&group));
            if is_in {
                identities.groups.push(Principal::Team(team).group());
                identities.groups.extend(fields.groups.iter().cloned());
                identities.teams.push(team.clone());
            }
        }
        identities.groups.extend(spec.groups.iter().chain(sso).cloned());
        identities
    }

    /// The identities of the bearer of a key that no user and no team owns.
    pub(crate) fn of_subject(name: &str) -> Self {
        let groups = EVERY_CALLER.map(str::to_owned).to_vec();
        Self { user: name.to_owned(), groups, ..Self::default() }
    }

    /// Whether a subject is the user or team itself.
    pub(crate) fn is_direct(&self, subject: &Subject) -> bool {
        match subject.kind.as_str() {
            USER_SUBJECT => subject.name == self.user,
            GROUP_SUBJECT => subject.name == self.own_group,
            _ => false,
        }
    }

    /// Whether a subject includes the user or team.
    pub(crate) fn includes(&self, subject: &Subject) -> bool {
        self.is_direct(subject) || subject.kind == GROUP_SUBJECT && self.is_in(&subject.name)
    }

    /// Whether the user or team is in a group, other than the group of itself alone.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }
}

/// Which user or team a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The user of this name.
    User(String),
    /// The team of this name.
    Team(String),
}

impl Who {
    /// The user or team.
    pub(crate) fn principal(&self) -> Principal<'_> {
        match self {
            Self::User(name) => Principal::User(name),
            Self::Team(name) => Principal::Team(name),
        }
    }

    /// The kind of the object.
    pub(crate) fn info(&self) -> &'static Info {
        match self {
            Self::User(_) => &User::INFO,
            Self::Team(_) => &Team::INFO,
        }
    }

    /// The name of the object.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::Team(name) => name,
        }
    }

    /// The flag that names it.
    pub(crate) fn flag(&self) -> &'static str {
        match self {
            Self::User(_) => "--user",
            Self::Team(_) => "--team",
        }
    }

    /// The user or team in a sentence.
    pub(crate) fn described(&self) -> String {
        format!("the {} {}", self.principal().kind(), self.name())
    }

    /// Checks that the user or team of a flag exists. A caller that may not read it learns that from the server later.
    pub(crate) async fn check(&self, session: &mut Session, flag: &str) -> Result<(), CliError> {
        let of = Collection::new(self.info(), None);
        match session.client.get_as(of, self.name(), Representation::Metadata).await {
            Err(error) if error.reason() == Some(Reason::NotFound) => {
                let explained = session.explain_named(of, self.name(), &error).await;
                Err(explained.at(flag))
            }
            Err(error) if error.reason() != Some(Reason::Forbidden) => Err(session.explain(&error)),
            _ => Ok(()),
        }
    }

    /// The names by which bindings name the user or team. For an object that the caller may not read, these are only the
    /// names that every object has.
    pub(crate) async fn identities(&self, session: &mut Session) -> Result<Identities, CliError> {
        let read = session.client.get(Collection::new(self.info(), None), self.name()).await;
        let object = session.readable(read)?;
        match self {
            Self::Team(name) => {
                let fields = object.map(|object| session.fields::<Team>(&object)).transpose()?;
                Ok(Identities::of_team(name, &fields.unwrap_or_default().spec))
            }
            Self::User(name) => {
                let fields = object.map(|object| session.fields::<User>(&object)).transpose()?;
                let teams = teams(session).await?;
                Ok(Identities::of_user(name, &fields.unwrap_or_default(), &teams))
            }
        }
    }
}

/// All teams that the caller can read.
pub(crate) async fn teams(session: &mut Session) -> Result<Vec<(String, team::Spec)>, CliError> {
    let listed = session.client.list(Collection::of::<Team>(None), Representation::Whole).await;
    let Some(list) = session.readable(listed)? else { return Ok(Vec::new()) };
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let objects = items.into_iter().filter_map(|item| Object::from_value(item).ok());
    objects
        .map(|object| Ok((object.metadata.name.clone(), session.fields::<Team>(&object)?.spec)))
        .collect()
}

/// What is left of the subjects of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The same subjects: none was removed.
    Same,
    /// Other subjects.
    Others,
    /// No subject.
    None,
}

/// Removes the user or team itself from the subjects.
pub(crate) fn remove_subjects(fields: &mut Map<String, Value>, identities: &Identities) -> Left {
    let Some(Value::Array(subjects)) = fields.get_mut("subjects") else { return Left::Same };
    let before = subjects.len();
    subjects.retain(|one| {
        let subject = serde_json::from_value::<Subject>(one.clone());
        !subject.is_ok_and(|subject| identities.is_direct(&subject))
    });
    match subjects.len() {
        len if len == before => Left::Same,
        0 => Left::None,
        _ => Left::Others,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn subject(kind: &str, name: &str) -> Subject {
        Subject { kind: kind.to_owned(), name: name.to_owned(), ..Subject::default() }
    }

    #[test]
    fn subjects_are_named_as_users_and_teams() {
        for (kind, name, wanted) in [
            ("Group", "platform:user:ada", "user/ada"),
            ("Group", "platform:team:red", "team/red"),
            ("Group", "platform:user:*", "all users"),
            ("Group", "system:masters", "group/system:masters"),
            ("User", "ada", "subject/ada"),
        ] {
            assert_eq!(subject_text(&subject(kind, name)), wanted);
        }
    }

    #[test]
    fn direct_subjects_are_the_user_alone() {
        let ada = Identities {
            user: "a@example.com".to_owned(),
            own_group: "platform:user:ada".to_owned(),
            groups: vec!["platform:team:red".to_owned(), "ops".to_owned()],
            teams: Vec::new(),
        };
        for (kind, name, is_direct, is_included) in [
            ("User", "a@example.com", true, true),
            ("Group", "platform:user:ada", true, true),
            ("Group", "platform:team:red", false, true),
            ("Group", "ops", false, true),
            ("User", "ada", false, false),
            ("User", "ops", false, false),
            ("ServiceAccount", "ops", false, false),
        ] {
            let subject = subject(kind, name);
            assert_eq!(ada.is_direct(&subject), is_direct, "{kind} {name}");
            assert_eq!(ada.includes(&subject), is_included, "{kind} {name}");
        }
    }

    #[test]
    fn a_binding_counts_in_its_namespace() {
        let item = |namespace: &str| {
            json!({
                "metadata": { "name": "b", "namespace": namespace },
                "roleRef": { "kind": "Role", "name": "makers" },
            })
        };
        for (namespace, wanted) in [
            ("", Location::Everywhere),
            ("p-web", Location::Project("web".to_owned())),
            ("shop", Location::Namespace("shop".to_owned())),
        ] {
            let binding = Binding::of(&item(namespace)).unwrap();
            assert_eq!(binding.location, wanted);
            assert_eq!(binding.location.namespace().unwrap_or_default(), namespace);
            assert_eq!(
                (role_text(&binding.role).as_str(), binding.subjects.len()),
                ("role/makers", 0)
            );
        }
        assert_eq!(Binding::of(&json!({ "metadata": { "name": "b" } })), None);
    }
}
