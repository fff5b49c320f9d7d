//! The permissions that a write requires in addition to the verb on its object. They are checked before validation,
//! so that a caller learns nothing about fields that it may not write.

use postern_auth::explanation::rule_yaml;
use postern_auth::policy::{MAX_COMBINATIONS, NotCovered};
use postern_auth::scope::contains;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::rbac::{Granted, GrantedRoles, PolicyChange, PolicyRule, RBAC_V1};
use postern_kinds::{AnyKind, Carried, Prepared, RequiredRight, Right, Verb};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::status::ApiError;

use super::check_errors;
use super::view::{AdmissionView, Previous};
use crate::permit::Permit;

/// The maximum number of missing rules in an error.
const MAX_LACKING: usize = 10;

/// Checks the permissions that a write requires in addition to the verb on the object.
pub(super) fn check_rights(
    view: &AdmissionView<'_>,
    permit: &Permit,
    prepared: &Prepared,
    new: &Object,
    old: Option<&Previous>,
) -> Result<(), ApiError> {
    if permit.credential().is_server() {
        return Ok(());
    }
    for right in &prepared.required_rights {
        permit.check_right(right)?;
    }
    let old_metadata = old.map(|old| &old.object.metadata);
    check_owner_references(permit, &new.metadata, old)?;
    if let Some(granted) = &prepared.granted {
        check_granted(view, permit, &new.metadata, granted)?;
    }
    if let Some(granted) = &prepared.granted_roles {
        check_granted_roles(view, permit, &new.metadata, granted)?;
    }
    if let Some(carried) = &prepared.carried {
        check_carried(permit, &new.metadata, carried)?;
    }
    check_blocked_owners(view, permit, &new.metadata, old_metadata)
}

/// Checks that a caller grants no permissions that it does not have itself (Kubernetes' escalation check).
fn check_granted(
    view: &AdmissionView<'_>,
    permit: &Permit,
    metadata: &ObjectMeta,
    granted: &Granted,
) -> Result<(), ApiError> {
    let info = permit.kind().info();
    let namespace = Some(metadata.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let (path, right, rules) = match granted {
        Granted::Rules(rules) => {
            let right = Right {
                namespace: metadata.namespace.clone(),
                ..Right::cluster("escalate", info.version.group, info.plural, &metadata.name)
            };
            ("rules", right, Some(rules.clone()))
        }
        Granted::RoleRef(role) => {
            let kind = postern_kinds::of_reference(&RBAC_V1.to_string(), &role.kind);
            let kind = kind.ok_or_else(ApiError::resource_not_served)?;
            let of = namespace.filter(|_| kind.info().is_namespaced());
            let rules = rules_of(view, kind, of, &role.name)?;
            ("roleRef", right_to_bind(kind, of, &role.name), rules)
        }
    };
    let given = GrantedRules { name: &metadata.name, path, namespace, rules };
    check_holds(permit, &right.into(), given)
}

/// Checks the same for each role that a write grants in a namespace.
fn check_granted_roles(
    view: &AdmissionView<'_>,
    permit: &Permit,
    metadata: &ObjectMeta,
    granted: &GrantedRoles,
) -> Result<(), ApiError> {
    let namespace = granted.namespace.as_str();
    for role in &granted.cluster_roles {
        let right = right_to_bind(&ClusterRole, None, role);
        let there = Right { namespace: namespace.to_owned(), ..right.clone() };
        let right = RequiredRight::from(right).or(there);
        let rules = rules_of(view, &ClusterRole, None, role)?;
        let (name, path) = (metadata.name.as_str(), "spec.members");
        let given = GrantedRules { name, path, namespace: Some(namespace), rules };
        check_holds(permit, &right, given)?;
    }
    Ok(())
}

fn right_to_bind(kind: &dyn AnyKind, namespace: Option<&str>, role: &str) -> Right {
    Right {
        namespace: namespace.unwrap_or_default().to_owned(),
        ..Right::cluster("bind", RBAC_V1.group, kind.info().plural, role)
    }
}

/// The rules of a role; `None` if it does not exist.
fn rules_of(
    view: &AdmissionView<'_>,
    kind: &'static dyn AnyKind,
    namespace: Option<&str>,
    role: &str,
) -> Result<Option<Vec<PolicyRule>>, ApiError> {
    let json = view.read(kind, namespace, role)?.map(|found| found.cached.json());
    Ok(match kind.policy_change(json.as_deref(), None) {
        Some(PolicyChange::Role(rules)) => rules,
        _ => None,
    })
}

/// The rules that a write grants to others.
struct GrantedRules<'a> {
    /// The name of the written object.
    name: &'a str,
    /// The field that grants them.
    path: &'static str,
    /// The namespace in which they are granted; `None` for all namespaces.
    namespace: Option<&'a str>,
    /// The rules; `None` if the role does not exist.
    rules: Option<Vec<PolicyRule>>,
}

/// Checks that a caller may grant rules: by a permission to do so, or because it has all of them.
fn check_holds(
    permit: &Permit,
    right: &RequiredRight,
    given: GrantedRules<'_>,
) -> Result<(), ApiError> {
    let GrantedRules { name, path, namespace, rules } = given;
    if permit.has(right) {
        return Ok(());
    }
    let Some(rules) = rules else {
        // Only callers with the permission to bind any role may bind a role that does not exist yet.
        return permit.check_right(right);
    };
    let lacking = match permit.policy().covers(permit.identity(), namespace, &rules) {
        Ok(()) => return Ok(()),
        Err(NotCovered::Missing(lacking)) => lacking,
        Err(NotCovered::TooMany) => return Err(too_many_combinations(permit, name, path)),
    };
    let lacking: Vec<String> = lacking.iter().take(MAX_LACKING).map(rule_yaml).collect();
    let text = format!(
        "user \"{}\" is attempting to grant RBAC permissions not currently held:\n{}",
        permit.identity().name,
        lacking.concat()
    );
    Err(ApiError::forbidden(permit.kind().info().group_resource(), name, text))
}

/// The 422 for rules with too many combinations to compare with the permissions of the caller.
fn too_many_combinations(permit: &Permit, name: &str, path: &str) -> ApiError {
    let verb = if path == "rules" { "escalate" } else { "bind" };
    let detail = format!(
        "all rules together have more than {MAX_COMBINATIONS} combinations of verbs, groups, resources and \
         names, which is too many to compare with your permissions: use smaller roles, or get the verb {verb} \
         on the role"
    );
    let mut errors = FieldErrors::new();
    errors.push(FieldError::invalid(path, BadValue::Omitted, detail));
    ApiError::invalid(permit.kind().info().group_kind(), name, errors)
}

/// Checks that the credential of a write is within the scope of the caller's own key
/// (`docs/reference/scopes.md#containment`).
fn check_carried(
    permit: &Permit,
    metadata: &ObjectMeta,
    carried: &Carried,
) -> Result<(), ApiError> {
    let bearer = permit.credential().bearer();
    if !bearer.is_scoped() {
        return Ok(());
    }
    let contained = match carried {
        Carried::Everything => Err("the new key has no scope".to_owned()),
        Carried::Scope(scope) => contains(&bearer.scopes, scope, permit.policy().projects()),
    };
    contained.map_err(|why| {
        let text = format!("the new access key exceeds the scope of your own access key: {why}");
        ApiError::forbidden(permit.kind().info().group_resource(), &metadata.name, text)
    })
}

/// Checks that a caller that changes the owner references of an object may delete the object. With a reference to a
/// missing owner, the garbage collector deletes it (`docs/reference/api.md#deletion`).
fn check_owner_references(
    permit: &Permit,
    new: &ObjectMeta,
    old: Option<&Previous>,
) -> Result<(), ApiError> {
    let Some(old) = old else { return Ok(()) };
    let unchanged = new.owner_references == old.object.metadata.owner_references;
    if unchanged || permit.may(Verb::Delete, Some(&old.cached)) {
        return Ok(());
    }
    let info = permit.kind().info();
    let right = Right {
        namespace: new.namespace.clone(),
        ..Right::cluster("delete", info.version.group, info.plural, &new.name)
    };
    permit.check_right(&right.into())
}

/// Checks that a caller that blocks an owner's deletion may delete the owner. The code is 422
/// (`docs/reference/api.md#deletion`); upstream has 403.
fn check_blocked_owners(
    view: &AdmissionView<'_>,
    permit: &Permit,
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
) -> Result<(), ApiError> {
    let blocks = |one: &&OwnerReference| one.block_owner_deletion == Some(true);
    let blocked_before = |uid: &str| {
        old.is_some_and(|old| old.owner_references.iter().filter(blocks).any(|one| one.uid == uid))
    };
    let mut errors = FieldErrors::new();
    for (index, reference) in new.owner_references.iter().enumerate() {
        if !blocks(&reference) || blocked_before(&reference.uid) {
            continue;
        }
        let right = right_to_delete(view, reference, &new.namespace)?;
        if permit.check_right(&right).is_err() {
            let path = format!("metadata.ownerReferences[{index}].blockOwnerDeletion");
            let detail = "cannot be set without the permission to delete the owner";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    check_errors(permit.kind(), new, errors)
}

/// The permission to delete an owner, or the delegated permission on the principal that owns it.
fn right_to_delete(
    view: &AdmissionView<'_>,
    reference: &OwnerReference,
    namespace: &str,
) -> Result<RequiredRight, ApiError> {
    let Some(kind) = postern_kinds::of_reference(&reference.api_version, &reference.kind) else {
        // This server does not serve the kind: only a caller that may delete everything may delete the owner.
        return Ok(Right::cluster("delete", "", "*", &reference.name).into());
    };
    let info = kind.info();
    let namespace = if info.is_namespaced() { namespace } else { "" };
    let name = reference.name.as_str();
    let right = RequiredRight::from(Right {
        namespace: namespace.to_owned(),
        ..Right::cluster("delete", info.version.group, info.plural, name)
    });
    if !kind.is_delegated() {
        return Ok(right);
    }
    let found = view.read(kind, Some(namespace).filter(|one| !one.is_empty()), name)?;
    let found = found.filter(|found| found.object.metadata.uid == reference.uid);
    let on_owner = found.and_then(|found| {
        let owned = found.cached.owner()?;
        kind.delegated_right(Verb::Delete, &owned.owner)
    });
    Ok(match on_owner {
        Some(on_owner) => right.or(on_owner),
        None => right,
    })
}
