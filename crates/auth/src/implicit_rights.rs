//! The permissions that need no role. `system:masters` may do everything, every identity has a few,
//! and users and teams have some on themselves.

use postern_kinds::MANAGEMENT_V1;

use crate::attributes::Attributes;
use crate::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};

/// The verbs on a user or team that concern its access keys. Every user and team has them on itself.
pub(crate) const KEY_VERBS: [&str; 4] = ["createkey", "getkey", "updatekey", "deletekey"];

/// The verbs that users have on themselves and their teams, and teams on themselves.
pub(crate) const OWN_VERBS: [&str; 2] = ["get", "bind"];

/// The groups, resources and verbs that are open to every identity, regardless of the scope of its
/// key (`docs/reference/scopes.md#what-every-key-may-do`).
pub(crate) const OPEN: [(&str, &str, &[&str]); 12] = [
    (MANAGEMENT_V1.group, "selves", &["create", "get"]),
    (MANAGEMENT_V1.group, "directclusterendpointtokens", &["create"]),
    (MANAGEMENT_V1.group, "selfsubjectaccessreviews", &["create"]),
    // The review itself is authorized for its subject separately.
    (MANAGEMENT_V1.group, "resourceaccessreviews", &["create"]),
    (MANAGEMENT_V1.group, "accesspreviews", &["create"]),
    // A session may do what its key may do, and nothing more.
    (MANAGEMENT_V1.group, "consolesessions", &["create", "get", "delete"]),
    (MANAGEMENT_V1.group, "consolelogincodes", &["create"]),
    (MANAGEMENT_V1.group, "commandlineconsents", &["create"]),
    // The list is always empty. Clients that create objects of any kind read it first.
    ("apiextensions.k8s.io", "customresourcedefinitions", &["get", "list", "watch"]),
    ("authentication.k8s.io", "selfsubjectreviews", &["create"]),
    ("authorization.k8s.io", "selfsubjectaccessreviews", &["create"]),
    ("authorization.k8s.io", "selfsubjectrulesreviews", &["create"]),
];

/// A right that needs no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImplicitRight {
    /// Members of `system:masters` may do everything.
    Master,
    /// Every authenticated identity has it.
    Everyone,
    /// It concerns the identity's own user or teams.
    Themselves,
}

/// The right by which an identity may do this without a role.
pub(crate) fn right(identity: &Identity, attributes: &Attributes<'_>) -> Option<ImplicitRight> {
    if identity.is_in(MASTERS_GROUP) {
        Some(ImplicitRight::Master)
    } else if is_open(identity, attributes) {
        Some(ImplicitRight::Everyone)
    } else if concerns_themselves(identity, attributes) {
        Some(ImplicitRight::Themselves)
    } else {
        None
    }
}

/// Whether every authenticated identity may do this, in spite of the scope of its key, and this one is authenticated.
pub(crate) fn is_open(identity: &Identity, attributes: &Attributes<'_>) -> bool {
    let is_open = match *attributes {
        Attributes::Resource { verb, group, resource, subresource, .. } => {
            subresource.is_empty()
                && OPEN.iter().any(|(of, named, verbs)| {
                    *named == resource && *of == group && verbs.contains(&verb)
                })
        }
        Attributes::Description { verb, .. } => matches!(verb, "get" | "head"),
        Attributes::Path { .. } => false,
    };
    is_open && identity.is_in(AUTHENTICATED_GROUP)
}

/// Whether the request is an allowed one on the identity's own user or teams.
fn concerns_themselves(identity: &Identity, attributes: &Attributes<'_>) -> bool {
    let Attributes::Resource { verb, group, resource, subresource, namespace, name } = *attributes
    else {
        return false;
    };
    let is_own = match resource {
        "users" => identity.user.as_deref() == Some(name),
        "teams" => identity.holder().has_team(name),
        _ => false,
    };
    // Being in a team gives no right to the keys of the team.
    let is_itself = resource == "users" || identity.team.as_deref() == Some(name);
    is_own
        && group == MANAGEMENT_V1.group
        && subresource.is_empty()
        && namespace.is_empty()
        && (OWN_VERBS.contains(&verb) || (is_itself && KEY_VERBS.contains(&verb)))
}

/// Whether every identity has some permission on a kind.
pub(crate) fn is_open_kind(group: &str, resource: &str) -> bool {
    OPEN.iter().any(|(of, named, _)| *named == resource && *of == group)
}

/// Whether an identity has an implicit permission on any object of a kind.
pub(crate) fn concerns(identity: &Identity, group: &str, resource: &str) -> bool {
    let holder = identity.holder();
    let own = match resource {
        "users" => holder.user.is_some(),
        "teams" => holder.team.is_some() || !holder.teams.is_empty(),
        _ => false,
    };
    identity.is_in(MASTERS_GROUP)
        || (own && group == MANAGEMENT_V1.group)
        || (is_open_kind(group, resource) && identity.is_in(AUTHENTICATED_GROUP))
}
