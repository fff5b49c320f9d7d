//! The Roles and bindings that access rules become (decision 2): for each rule one Role and one
//! RoleBinding; ClusterRole and ClusterRoleBinding for an object without a namespace. They name whom they
//! give something to by uid, so that a later namesake gets nothing. The owner needs none: their right is
//! part of the policy.

use std::collections::{BTreeMap, HashMap};

use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::change::{Grantee, subresources_of, verbs_of};
use super::{Access, Owned, Ownership};
use crate::bindings::{self, GROUP, subject_uids};
use crate::cluster_role::ClusterRole;
use crate::cluster_role_binding::ClusterRoleBinding;
use crate::context::Context;
use crate::kind::dependent::belongs_to;
use crate::kind::{AnyKind, Dependent, Info};
use crate::rbac::{MANAGED_BY, PolicyRule, RBAC_GROUP, RoleRef, SUBJECT_UIDS, Subject};
use crate::role::{self, Role};
use crate::role_binding::RoleBinding;

/// The value of the label [`MANAGED_BY`] of Roles and bindings of access rules.
pub const MANAGED_BY_ACCESS_RULES: &str = "access-rules";

/// The group of all users.
const ALL_USERS_GROUP: &str = "platform:user:*";

/// Returns the name of the Role and of the binding that older versions have made for the owner of an object.
pub fn owner_role(info: &Info, name: &str) -> String {
    format!("platform:access:{}:{name}:owner", info.plural)
}

/// Returns the name of the Role and of the binding of one access rule of an object.
pub fn rule_role(info: &Info, name: &str, index: usize) -> String {
    format!("platform:access:{}:{name}:{index}", info.plural)
}

/// Returns the Roles and bindings that the access rules of an object become.
pub(crate) fn dependents(
    of: Owned<'_>,
    ownership: &Ownership,
    previous: &[Object],
    ctx: &Context<'_>,
) -> Result<Vec<Dependent>, ApiError> {
    let mut uids = KnownUids::of(of, previous);
    let name = &of.metadata.name;
    let rules = ownership.access.iter().enumerate();
    let pairs =
        rules.map(|(index, rule)| pair(of, rule_role(of.info, name, index), rule, &mut uids, ctx));
    pairs.collect::<Result<Vec<_>, _>>().map(|pairs| pairs.into_iter().flatten().collect())
}

/// Returns the Role and the binding of one rule.
fn pair(
    of: Owned<'_>,
    name: String,
    entry: &Access,
    uids: &mut KnownUids,
    ctx: &Context<'_>,
) -> Result<[Dependent; 2], ApiError> {
    let allows = policy_rule(of, entry);
    let given = given(&allows);
    let mut subjects = BTreeMap::new();
    for grantee in Grantee::of(entry) {
        let (group, uid) = match grantee.principal() {
            None => (ALL_USERS_GROUP.to_owned(), None),
            Some(principal) => {
                let group = principal.group();
                let uid = uids.take(&given, &group).or_else(|| ctx.uid_of(principal));
                // Somebody who is gone is named, and given nothing.
                (group, Some(uid.unwrap_or_default()))
            }
        };
        subjects.entry(group).or_insert(uid);
    }
    let namespace = of.info.is_namespaced().then(|| of.metadata.namespace.clone());
    let (role_kind, binding_kind): (&'static dyn AnyKind, &'static dyn AnyKind) = match namespace {
        Some(_) => (&Role, &RoleBinding),
        None => (&ClusterRole, &ClusterRoleBinding),
    };
    let role = Dependent {
        kind: role_kind,
        namespace: namespace.clone(),
        name: name.clone(),
        labels: managed_by(MANAGED_BY_ACCESS_RULES),
        annotations: BTreeMap::new(),
        fields: encode(&role::Spec { rules: vec![allows] })?,
        owned: true,
    };
    let labels = managed_by(MANAGED_BY_ACCESS_RULES);
    let role_name = name.clone();
    let binding = binding(binding_kind, namespace, name, labels, (role_kind, role_name), subjects)?;
    Ok([role, binding])
}

/// Returns a binding of groups, each with the uid of the one user or team that is meant; `None` as the uid
/// for a group that is known by its name.
pub(crate) fn binding(
    kind: &'static dyn AnyKind,
    namespace: Option<String>,
    name: String,
    labels: BTreeMap<String, String>,
    (role_kind, role): (&'static dyn AnyKind, String),
    groups: BTreeMap<String, Option<String>>,
) -> Result<Dependent, ApiError> {
    let subject = |name: &String| Subject {
        kind: GROUP.to_owned(),
        api_group: RBAC_GROUP.to_owned(),
        name: name.clone(),
        ..Subject::default()
    };
    let role_ref = RoleRef {
        api_group: RBAC_GROUP.to_owned(),
        kind: role_kind.info().kind.to_owned(),
        name: role,
    };
    let subjects = groups.keys().map(subject).collect();
    let uids: Map<String, Value> =
        groups.into_iter().filter_map(|(name, uid)| Some((name, uid?.into()))).collect();
    Ok(Dependent {
        kind,
        namespace,
        name,
        labels,
        annotations: BTreeMap::from([(SUBJECT_UIDS.to_owned(), Value::Object(uids).to_string())]),
        fields: encode(&bindings::Spec { role_ref, subjects })?,
        owned: true,
    })
}

/// Returns the label of what the server keeps in step.
pub(crate) fn managed_by(what: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(MANAGED_BY.to_owned(), what.to_owned())])
}

fn encode(fields: &impl Serialize) -> Result<Map<String, Value>, ApiError> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(ApiError::internal("the access rules could not be encoded", "a role or binding")),
    }
}

/// Returns what a rule of an object allows, as a Role says it. RBAC does not know `name/*`, so all
/// subresources are there one by one.
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

/// What a rule gives: verbs and resources, each in order.
type Given = (Vec<String>, Vec<String>);

fn given(rule: &PolicyRule) -> Given {
    (rule.verbs.clone(), rule.resources.clone())
}

/// The uids of those to whom access was given before, by what it was and the group. Who has the same
/// access after a change is who had it before.
struct KnownUids(HashMap<Given, HashMap<String, Vec<String>>>);

impl KnownUids {
    /// Reads them from the Roles and bindings of the object that there are now. Those of an earlier object
    /// of the same name do not count.
    fn of(of: Owned<'_>, previous: &[Object]) -> Self {
        let own = || previous.iter().filter(|one| belongs_to(one, of.metadata));
        let roles: HashMap<&str, Given> = own()
            .filter(|one| one.kind == Role.info().kind || one.kind == ClusterRole.info().kind)
            .filter_map(|one| {
                let rule = read::<role::Spec>(one)?.rules.into_iter().next()?;
                Some((one.metadata.name.as_str(), given(&rule)))
            })
            .collect();
        let mut known: HashMap<Given, HashMap<String, Vec<String>>> = HashMap::new();
        let is_binding = |one: &&Object| {
            one.kind == RoleBinding.info().kind || one.kind == ClusterRoleBinding.info().kind
        };
        for binding in own().filter(is_binding) {
            let Some(given) = roles.get(binding.metadata.name.as_str()) else { continue };
            let to = known.entry(given.clone()).or_default();
            for (group, uid) in subject_uids(&binding.metadata).unwrap_or_default() {
                to.entry(group).or_default().push(uid);
            }
        }
        Self(known)
    }

    /// Returns the uid under which a group was given the same before, each as often as it was.
    fn take(&mut self, given: &Given, group: &str) -> Option<String> {
        self.0.get_mut(given)?.get_mut(group)?.pop()
    }
}

fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    T::deserialize(&object.fields).ok()
}
