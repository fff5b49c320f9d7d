//! The types that Roles and bindings are made of, as in `rbac.authorization.k8s.io/v1`, and the
//! input of a policy: the facts about permissions that objects state.
//!
//! `auth` evaluates the rules. Each kind of rules or bindings has its own file. The common part of
//! Roles and ClusterRoles is in `policy_rules`, and that of bindings in `bindings`.

use std::collections::BTreeSet;

use postern_meta::gvk::{GroupResource, GroupVersion};
use postern_meta::object::ObjectMeta;
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::verb::Verb;

/// The group of Roles and bindings.
pub const RBAC_V1: GroupVersion =
    GroupVersion { group: "rbac.authorization.k8s.io", version: "v1" };

/// The API group of users and groups in a [`Subject`].
pub const RBAC_GROUP: &str = RBAC_V1.group;

/// All verbs, groups, resources or paths.
pub const ALL: &str = "*";

/// The verb for going through the gateway to an object.
pub const USE: &str = "use";

/// The verbs that a rule about resources can give: `*`, those of the API, and those of the platform, some of which are
/// Kubernetes' own. See `docs/reference/access-rules.md#verbs-of-the-platform`.
pub const VERBS: &[&str] = &[
    ALL,
    Verb::Get.as_str(),
    Verb::List.as_str(),
    Verb::Watch.as_str(),
    Verb::Create.as_str(),
    Verb::Update.as_str(),
    Verb::Patch.as_str(),
    Verb::Delete.as_str(),
    Verb::DeleteCollection.as_str(),
    USE,
    "bind",
    "escalate",
    "impersonate",
    "makeowner",
    "createkey",
    "getkey",
    "updatekey",
    "deletekey",
];

/// The annotation of a binding that the server makes: a JSON map from the name of each subject to the uid of the user
/// or team. So a later user or team of that name gets nothing.
pub const SUBJECT_UIDS: &str = "platform.sh/subject-uids";

/// The label of Roles and bindings that the server keeps in step with another object.
pub const MANAGED_BY: &str = "platform.sh/managed-by";

/// The label of a namespace with the name of the project that it belongs to. The server sets it, and
/// it never changes.
pub const PROJECT_LABEL: &str = "platform.sh/project";

/// The prefix of the names of Roles and bindings that only the server makes.
pub const SERVERS_PREFIX: &str = "platform:";

/// The prefix of the Roles and bindings that access rules become.
pub(crate) const ACCESS_PREFIX: &str = "platform:access:";

/// The prefix of the bindings that members of projects become.
pub(crate) const MEMBERS_PREFIX: &str = "platform:members:";

/// The name prefixes of the Roles and bindings that are made from the fields of other objects.
pub(crate) const MADE_ROLE_PREFIXES: [&str; 2] = [ACCESS_PREFIX, MEMBERS_PREFIX];

/// One rule of a Role: the permissions that it gives. Rules only ever add.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.rbac.v1.PolicyRule", extend("required" = ["verbs"]))]
pub struct PolicyRule {
    /// Verbs; `*` is every verb.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub verbs: Vec<String>,
    /// API groups; the empty text is the core group, `*` every group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub api_groups: Vec<String>,
    /// Resources, or `resource/subresource`; `*` is all of both, `*/subresource` that subresource of
    /// every resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<String>,
    /// Names of objects; none given means every object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_names: Vec<String>,
    /// Paths that are no resources. Only ClusterRoles may have them. The last character may be `*`.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub non_resource_urls: Vec<String>,
}

/// The role that a binding gives. It cannot be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.rbac.v1.RoleRef", extend("required" = ["kind", "name"]))]
pub struct RoleRef {
    /// The API group of the role.
    #[schemars(extend("enum" = [RBAC_GROUP]), extend("default" = RBAC_GROUP))]
    pub api_group: String,
    /// The kind of the role. A ClusterRoleBinding gives only ClusterRoles.
    #[schemars(extend("enum" = ["Role", "ClusterRole"]))]
    pub kind: String,
    /// The role's name.
    pub name: String,
}

/// To whom a binding gives a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.rbac.v1.Subject", extend("required" = ["kind", "name"]))]
pub struct Subject {
    /// The kind of the subject.
    #[schemars(extend("enum" = ["User", "Group", "ServiceAccount"]))]
    pub kind: String,
    /// `rbac.authorization.k8s.io` for users and groups, which is their default; empty for service accounts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The name of the user, group or service account.
    pub name: String,
    /// The namespace of a service account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The permissions that the write of a role or a binding gives to others. Its writer must hold them, or be allowed to
/// give them by `escalate` or `bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    /// These rules, in the namespace of the role, or everywhere where it has none.
    Rules(Vec<PolicyRule>),
    /// The permissions of this role, in the namespace of the binding, or everywhere if it has none.
    RoleRef(RoleRef),
}

/// ClusterRoles that a write gives to others in a namespace, which need not be that of the object. For each, its writer
/// must hold all that it allows there, or be allowed to give it by `bind`: there, or everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedRoles {
    /// The namespace in which they are given.
    pub namespace: String,
    /// The names of the ClusterRoles.
    pub cluster_roles: BTreeSet<String>,
}

/// Checks that a role or binding of this name may be written or deleted.
///
/// # Errors
/// 403 for a name of the server's.
pub(crate) fn check_name(
    resource: GroupResource,
    name: &str,
    ctx: &Context<'_>,
) -> Result<(), ApiError> {
    if !name.starts_with(SERVERS_PREFIX) || ctx.may_change_servers_own() {
        return Ok(());
    }
    let reason = format!(
        "names that begin with {SERVERS_PREFIX} are reserved: the server generates these objects \
         from access rules and members; change those"
    );
    Err(ApiError::forbidden(resource, name, reason))
}

/// To whom a binding gives its role, as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BoundSubject {
    /// Every caller with this user name, service accounts included.
    User(String),
    /// Every caller in this group.
    Group(String),
    /// The one user or team with this uid, or the members of that team; with the group that names
    /// them.
    Principal {
        /// `platform:user:NAME` or `platform:team:NAME`.
        group: String,
        /// The uid.
        uid: String,
    },
}

/// The facts of a binding. It gives the role in its own namespace, or everywhere if it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingFacts {
    /// Whether the role is a ClusterRole. Otherwise it is a Role of the binding's namespace.
    pub is_cluster_role: bool,
    /// The role's name.
    pub role: String,
    /// To whom it is given.
    pub subjects: Vec<BoundSubject>,
}

/// A change of one object that decides about permissions: its new facts, or `None` when it was
/// removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChange {
    /// Of a Role, or a ClusterRole where it has no namespace.
    Role(Option<Vec<PolicyRule>>),
    /// Of a RoleBinding, or a ClusterRoleBinding where it has no namespace.
    Binding(Option<BindingFacts>),
    /// Of a namespace: the project that it belongs to, if it does.
    Namespace(Option<String>),
    /// Of an object of this kind: the uid of the user or team that owns it, if it has an owner.
    Owner(GroupResource, Option<String>),
}

/// The role of the objects of a kind in the policy, with the function that reads their facts.
#[derive(Clone, Copy, Debug)]
pub enum PolicyPart<Spec> {
    /// They are roles.
    Role(fn(&Spec) -> Vec<PolicyRule>),
    /// They are bindings; one that cannot be read gives nothing.
    Binding(fn(&ObjectMeta, &Spec) -> Option<BindingFacts>),
    /// They are namespaces.
    Namespace,
}

impl<Spec> PolicyPart<Spec> {
    /// The change that an object is. One that is being deleted counts until it is gone, as in
    /// Kubernetes.
    pub(crate) fn change(&self, object: Option<(&ObjectMeta, &Spec)>) -> PolicyChange {
        match self {
            Self::Role(rules) => PolicyChange::Role(object.map(|(_, spec)| rules(spec))),
            Self::Binding(facts) => {
                PolicyChange::Binding(object.and_then(|(metadata, spec)| facts(metadata, spec)))
            }
            Self::Namespace => PolicyChange::Namespace(
                object.and_then(|(metadata, _)| metadata.labels.get(PROJECT_LABEL).cloned()),
            ),
        }
    }
}

/// The grant of an access rule.
pub(crate) fn of_rule(rule: &PolicyRule) -> String {
    format!("{} {}", rule.verbs.join(","), rule.resources.join(","))
}
