//! The Roles and bindings that access rules become: for each rule one Role and one RoleBinding, or a ClusterRole and a
//! ClusterRoleBinding for an object without a namespace. They name users and teams by uid, so that a later namesake
//! gets nothing. The owner needs none: the policy gives owners their rights. See
//! `docs/reference/access-rules.md#generated-roles`.

use std::collections::{BTreeMap, BTreeSet};

use postern_meta::status::ApiError;
use serde::Serialize;
use serde_json::{Map, Value};

use super::change::{Grantee, subresources_of, verbs_of};
use super::{Access, Owned, Ownership};
use crate::bindings::{self, GROUP};
use crate::bound::{BoundGrant, KnownUids};
use crate::cluster_role::ClusterRole;
use crate::cluster_role_binding::ClusterRoleBinding;
use crate::context::Context;
use crate::kind::{AnyKind, Dependent, Info};
use crate::principal::Principal;
use crate::rbac::{
    ACCESS_PREFIX, MANAGED_BY, MEMBERS_PREFIX, PolicyRule, RBAC_GROUP, RoleRef, SUBJECT_UIDS,
    Subject, of_rule,
};
use crate::role::{self, Role};
use crate::role_binding::RoleBinding;

/// The value of the label [`MANAGED_BY`] of Roles and bindings of access rules.
pub const MANAGED_BY_ACCESS_RULES: &str = "access-rules";

/// The group of all users.
pub const ALL_USERS_GROUP: &str = "platform:user:*";

/// The name of the Role and of the binding that older versions have made for the owner of an object.
pub fn owner_role(info: &Info, name: &str) -> String {
    format!("{ACCESS_PREFIX}{}:{name}:owner", info.plural)
}

/// The name of the Role and of the binding of one access rule of an object.
pub fn rule_role(info: &Info, name: &str, index: usize) -> String {
    format!("{ACCESS_PREFIX}{}:{name}:{index}", info.plural)
}

/// The purpose of a Role or binding of the server, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeFor<'a> {
    /// An access rule of an object.
    AccessRules {
        /// The plural name of its kind.
        plural: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// The members of a project. A Role or binding in a namespace is for the project of that
    /// namespace. Outside of namespaces, the project's name is the end of the name.
    Members,
}

/// The purpose of a Role or binding of this name; `None` for one that the server does not make.
pub fn made_for(name: &str) -> Option<MadeFor<'_>> {
    if name.starts_with(MEMBERS_PREFIX) {
        return Some(MadeFor::Members);
    }
    let (plural, rest) = name.strip_prefix(ACCESS_PREFIX)?.split_once(':')?;
    let (name, _) = rest.rsplit_once(':')?;
    Some(MadeFor::AccessRules { plural, name })
}

/// The role of the members that a binding of this name in a project's namespace is for; of a ClusterRole or
/// its binding, the project.
pub fn member_role(binding: &str) -> Option<&str> {
    binding.strip_prefix(MEMBERS_PREFIX)
}

/// The Roles and bindings that the access rules of an object become.
pub(crate) fn dependents(
    of: Owned<'_>,
    ownership: &Ownership,
    ctx: &Context<'_>,
) -> Result<Vec<Dependent>, ApiError> {
    let name = &of.metadata.name;
    let rules: Vec<Rule> = ownership.rules().map(|entry| Rule::of(of, entry)).collect();
    let grants = rules.iter().flat_map(Rule::grants);
    let wanted: Vec<(&str, &str)> = grants.map(|(what, group, _)| (what, group.as_str())).collect();
    let mut uids = KnownUids::new(ctx.bound).take_all(&wanted).into_iter();
    let mut pairs = Vec::with_capacity(2 * rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let bound = rule.grants().map(|(_, group, principal)| {
            // A name without a user or team has an empty uid: the binding names it and gives it nothing.
            let uid = uids.next().flatten().or_else(|| ctx.uid_of(principal));
            (group.clone(), uid.unwrap_or_default())
        });
        let bound = bound.collect();
        pairs.extend(pair(of, rule_role(of.info, name, index), rule, bound)?);
    }
    Ok(pairs)
}

/// An access rule, as it is given to others.
struct Rule<'a> {
    allows: PolicyRule,
    what: String,
    to_all: bool,
    /// Each user and team once, with their groups.
    principals: Vec<(String, Principal<'a>)>,
}

impl<'a> Rule<'a> {
    fn of(of: Owned<'_>, entry: &'a Access) -> Self {
        let allows = policy_rule(of, entry);
        let (mut to_all, mut principals) = (false, BTreeMap::new());
        for grantee in Grantee::of(entry) {
            match grantee.principal() {
                None => to_all = true,
                Some(principal) => {
                    principals.insert(principal.group(), principal);
                }
            }
        }
        let what = of_rule(&allows);
        Self { allows, what, to_all, principals: principals.into_iter().collect() }
    }

    /// The grants of the rule, in order: what, the group, and the user or team.
    fn grants(&self) -> impl Iterator<Item = (&str, &String, Principal<'a>)> {
        self.principals.iter().map(|(group, principal)| (self.what.as_str(), group, *principal))
    }
}

/// The Role and the binding of one rule, for these uids by their groups.
fn pair(
    of: Owned<'_>,
    name: String,
    rule: &Rule<'_>,
    bound: BTreeMap<String, String>,
) -> Result<[Dependent; 2], ApiError> {
    let namespace = of.info.is_namespaced().then(|| of.metadata.namespace.clone());
    let (role_kind, binding_kind): (&'static dyn AnyKind, &'static dyn AnyKind) = match namespace {
        Some(_) => (&Role, &RoleBinding),
        None => (&ClusterRole, &ClusterRoleBinding),
    };
    let made = Dependent {
        kind: role_kind,
        namespace: namespace.clone(),
        name: name.clone(),
        labels: managed_by(MANAGED_BY_ACCESS_RULES),
        annotations: BTreeMap::new(),
        fields: encode(&role::Spec { rules: vec![rule.allows.clone()] })?,
        grants: Vec::new(),
        owned: true,
    };
    let binding = binding(Binding {
        kind: binding_kind,
        namespace,
        labels: managed_by(MANAGED_BY_ACCESS_RULES),
        role_kind,
        role: name.clone(),
        name,
        what: rule.what.clone(),
        to_all: rule.to_all,
        bound,
    })?;
    Ok([made, binding])
}

/// A binding that the server makes.
pub(crate) struct Binding {
    pub(crate) kind: &'static dyn AnyKind,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) role_kind: &'static dyn AnyKind,
    pub(crate) role: String,
    /// The [`BoundGrant::what`] of its grants.
    pub(crate) what: String,
    /// Whether it is for all users.
    pub(crate) to_all: bool,
    /// The uids of those whom it is for, by their groups.
    pub(crate) bound: BTreeMap<String, String>,
}

/// A binding of groups, each but that of all users with the uid of the one user or team that is meant.
pub(crate) fn binding(of: Binding) -> Result<Dependent, ApiError> {
    let subject = |name: &str| Subject {
        kind: GROUP.to_owned(),
        api_group: RBAC_GROUP.to_owned(),
        name: name.to_owned(),
        ..Subject::default()
    };
    let role_ref = RoleRef {
        api_group: RBAC_GROUP.to_owned(),
        kind: of.role_kind.info().kind.to_owned(),
        name: of.role,
    };
    let mut groups: BTreeSet<&str> = of.bound.keys().map(String::as_str).collect();
    groups.extend(of.to_all.then_some(ALL_USERS_GROUP));
    let subjects = groups.into_iter().map(subject).collect();
    let uids: Map<String, Value> =
        of.bound.iter().map(|(group, uid)| (group.clone(), uid.as_str().into())).collect();
    let grant = |(group, uid)| BoundGrant { what: of.what.clone(), group, uid };
    Ok(Dependent {
        kind: of.kind,
        namespace: of.namespace,
        name: of.name,
        labels: of.labels,
        annotations: BTreeMap::from([(SUBJECT_UIDS.to_owned(), Value::Object(uids).to_string())]),
        fields: encode(&bindings::Spec { role_ref, subjects })?,
        grants: of.bound.into_iter().map(grant).collect(),
        owned: true,
    })
}

/// The label of the objects that the server keeps in step.
pub(crate) fn managed_by(what: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(MANAGED_BY.to_owned(), what.to_owned())])
}

pub(crate) fn encode(fields: &impl Serialize) -> Result<Map<String, Value>, ApiError> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(ApiError::internal("the access rules could not be encoded", "a role or binding")),
    }
}

/// An access rule of an object, as a rule of a Role. RBAC does not know `name/*`, so all subresources are listed one by
/// one.
fn policy_rule(of: Owned<'_>, rule: &Access) -> PolicyRule {
    let plural = of.info.plural;
    let subresources = subresources_of(rule, of.info).into_iter();
    let resources = subresources.map(|name| format!("{plural}/{name}"));
    PolicyRule {
        verbs: verbs_of(rule).into_iter().map(str::to_owned).collect(),
        api_groups: vec![of.info.version.group.to_owned()],
        resources: std::iter::once(plural.to_owned()).chain(resources).collect(),
        resource_names: vec![of.metadata.name.clone()],
        ..PolicyRule::default()
    }
}
