//! Team: a group of users with common rights, and possibly with common access keys. See
//! `docs/reference/authentication.md#users-and-teams`.

use std::collections::HashSet;

use postern_meta::names::dns1123_subdomain;
use serde_json::{Map, Value};

use crate::context::NamedObject;
use crate::identities::{
    NO_CLUSTER_ROLES, added, check_not_reserved, impersonate, right_to_be_user, rights_to_be,
};
use crate::names::{MAX_IDENTITIES, identity_name, is_reserved_identity};
use crate::prelude::*;
use crate::principal::ConnectorRef;
use crate::team_members::TeamMembers;

/// Reads the members. Every member may, since each may read the team.
const GET_MEMBERS: Action = Action {
    subresource: "members",
    verb: Verb::Get,
    right: ActionRight::GetObject,
    handler: Handler::Registry(RegistryAction::TeamMembers),
    request: None,
    response: Response::Object(&TeamMembers),
    description: "The users of the team, with their names alone.",
};

/// The kind.
pub struct Team;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The members of the team, and their groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.TeamSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Name for login.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// Names of the users in the team. A caller that adds one needs `bind` on the team, and `get`
    /// or `bind` on the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<String>,
    /// Groups that the members of the team are in, as roles name them. A caller that adds one needs
    /// `impersonate` on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// Groups of single sign-on with members that are in the team, such as `corp:shop` for the
    /// group `shop` of the connector `corp`. A caller that adds one needs `bind` on the team.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub sso_groups: Vec<String>,
}

/// The facts that the server adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.TeamStatus")]
pub struct Status {
    /// The connectors that `spec.ssoGroups` names, as they were when the groups were added. A later connector of the same
    /// name adds no members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub connectors: Vec<ConnectorRef>,
}

/// Why fields are refused that give access to a team.
const NO_ACCESS_RULES: &str = "teams have no owner and no access rules: bind a role to the team";

impl Kind for Team {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "Team",
        plural: "teams",
        singular: "team",
        actions: &[Action::GET_ACCESS_KEYS, GET_MEMBERS],
        confidential: false,
        description: "Team is a group of users who share permissions and access keys.",
        unserved_fields: &[
            UnservedField::new("owner", NO_ACCESS_RULES),
            UnservedField::new("access", NO_ACCESS_RULES),
            UnservedField::new(
                "imagePullSecrets",
                "this server hands out no image pull secrets; leave this field out",
            ),
            UnservedField::new("clusterRoles", NO_CLUSTER_ROLES),
            UnservedField::new("clusterAccountTemplates", NO_CLUSTER_ROLES),
        ],
        columns: &[
            ColumnInfo::integer("Users", "How many users are in the team."),
            ColumnInfo::text("Display Name", "Name shown to people."),
        ],
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Status> = Parts {
        access_role: Some(AccessRole::Team(|metadata, spec, status| TeamFacts {
            uid: metadata.uid.clone(),
            users: spec.users.clone(),
            groups: spec.groups.clone(),
            sso_groups: spec.sso_groups.clone(),
            connectors: status.connectors.clone(),
        })),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        let known = old.map_or(&[][..], |old| &old.fields.status.connectors);
        let mut connectors: Vec<ConnectorRef> = Vec::new();
        for name in new.fields.spec.sso_groups.iter().filter_map(|group| connector_of(group)) {
            if connectors.iter().any(|one| one.name == name) {
                continue;
            }
            let known = known.iter().find(|one| one.name == name).cloned();
            let of_now = || {
                let uid = (ctx.uid_of_object)(NamedObject::Connector(name))?;
                Some(ConnectorRef { name: name.to_owned(), uid })
            };
            connectors.extend(known.or_else(of_now));
        }
        new.fields.status = Status { connectors };
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let &Write { new, ctx, .. } = write;
        let connectors = &new.fields.status.connectors;
        let (spec, old) = (write.spec(), write.old_spec());
        if !spec.username.is_empty() {
            check_identity("spec.username", &spec.username, errors);
        }
        check_identities("spec.users", &spec.users, errors);
        check_identities("spec.groups", &spec.groups, errors);
        validate_sso_groups(&spec.sso_groups, errors);
        if errors.is_empty() {
            let old = old.map(|old| old.sso_groups.as_slice());
            check_connectors(added(&spec.sso_groups, old), connectors, errors);
        }
        let known = old.map_or(HashSet::new(), |old| old.users.iter().collect());
        for (index, user) in spec.users.iter().enumerate().take(MAX_IDENTITIES) {
            let is_named = identity_name(user).is_ok() && !known.contains(user);
            if is_named && ctx.uid_of(Principal::User(user)).is_none() {
                errors.push(FieldError::not_found(format!("spec.users[{index}]"), user));
            }
        }
        let username = Some(&spec.username);
        let username = username.filter(|name| old.is_none_or(|old| old.username != **name));
        let given = new_groups(spec, old).chain(username);
        check_not_reserved(Self::INFO.group_resource(), &new.metadata.name, given, ctx)
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let &Write { new, ctx, .. } = write;
        let (spec, old) = (write.spec(), write.old_spec());
        let team = Principal::Team(&new.metadata.name);
        let new_users: Vec<&String> =
            added(&spec.users, old.map(|old| old.users.as_slice())).collect();
        let sso_groups = old.map(|old| old.sso_groups.as_slice());
        let has_new_user =
            !new_users.is_empty() || added(&spec.sso_groups, sso_groups).next().is_some();
        let bind = has_new_user.then(|| RequiredRight::from(team.right("bind")));
        // A caller that cannot see a user does not learn whether the user exists.
        let seen = new_users.into_iter().map(|user| {
            let user = Principal::User(user);
            RequiredRight::from(user.right("get")).or(user.right("bind"))
        });
        // The group of a team is the user name of its keys as well.
        let itself =
            || right_to_be_user(&team.group(), ctx).into_iter().chain(rights_to_be(team, ctx));
        let itself = old.is_none().then(itself).into_iter().flatten();
        let groups = new_groups(spec, old).map(|group| impersonate("groups", group));
        bind.into_iter().chain(seen).chain(itself).chain(groups).collect()
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![Cell::count(spec.users.len()), Cell::Text(spec.display_name.clone())]
    }
}

/// Adds an error for each entry that is not the name of a connector, a colon, and the name of a group.
fn validate_sso_groups(groups: &[String], errors: &mut FieldErrors) {
    check_identities("spec.ssoGroups", groups, errors);
    for (index, group) in groups.iter().enumerate().take(MAX_IDENTITIES) {
        let is_of_connector = group.split_once(':').is_some_and(|(connector, group)| {
            dns1123_subdomain(connector).is_ok() && !group.is_empty()
        });
        if !is_of_connector || is_reserved_identity(group) {
            let detail = "must be CONNECTOR:GROUP, such as corp:shop";
            errors.push(FieldError::invalid(
                format!("spec.ssoGroups[{index}]"),
                group.as_str(),
                detail,
            ));
        }
    }
}

/// The name of the connector of a group of single sign-on.
fn connector_of(group: &str) -> Option<&str> {
    group.split_once(':').map(|(connector, _)| connector)
}

/// Adds an error for each new group without an enabled connector. Otherwise a later connector of any provider could put
/// members in the team.
fn check_connectors<'a>(
    new_groups: impl Iterator<Item = &'a String>,
    connectors: &[ConnectorRef],
    errors: &mut FieldErrors,
) {
    for group in new_groups {
        let name = connector_of(group).unwrap_or_default();
        if !connectors.iter().any(|one| one.name == name) {
            let detail = format!(
                "must be of a Connector that is enabled: there is no such Connector {name}"
            );
            errors.push(FieldError::invalid("spec.ssoGroups", group.as_str(), detail));
        }
    }
}

/// The groups that a write adds.
fn new_groups<'a>(new: &'a Spec, old: Option<&'a Spec>) -> impl Iterator<Item = &'a String> {
    added(&new.groups, old.map(|old| old.groups.as_slice()))
}

/// The change that removes a user from a team.
pub(crate) fn without_user(team: String, user: &str) -> Companion {
    let user = user.to_owned();
    let change = move |fields: &mut Map<String, Value>| {
        let users = fields.get_mut("spec").and_then(|spec| spec.get_mut("users"));
        if let Some(Value::Array(users)) = users {
            users.retain(|one| *one != user);
        }
    };
    Companion { kind: &Team, namespace: None, name: team, change: Box::new(change) }
}
