//! The coverage of a permit: all objects of its target, or those that roles, access rules and scopes allow for the
//! caller. Names and owners decide; no object is decoded.

use std::collections::BTreeSet;
use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::identity::{AUTHENTICATED_GROUP, Identity};
use postern_auth::policy::{Decision, DelegatedOwners, Policy, Readable};
use postern_kinds::action::{Action, ActionRight};
use postern_kinds::{
    AnyKind, CORE_V1, Info, MANAGEMENT_V1, OwnedBy, Owner, ResourceScope, Verb, default_namespace,
};
use postern_meta::status::ApiError;

use super::{forbidden, forbidden_without_hint};
use crate::cache::CachedObject;
use crate::permit::ResourceTarget;
use crate::storage_key;

/// The objects of its target that a permit covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// All objects.
    All,
    /// Some objects.
    Some(Arc<Covered>),
    /// The access keys of one user or team, for a caller that may list them.
    KeysOf(Arc<KeysOf>),
}

/// The access keys of one user or team.
#[derive(Clone)]
pub struct KeysOf {
    /// The user or team, by name and uid.
    pub(crate) owner: OwnedBy,
    /// The action on the user or team that was allowed.
    pub(super) action: ResourceTarget,
}

/// The covered objects, if not all objects are covered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Covered {
    /// The objects by name.
    pub(crate) named: Readable,
    /// The objects by owner. The caller has the delegated permission for the verb on these owners.
    pub(crate) owners: Option<DelegatedOwners>,
}

impl PartialEq for KeysOf {
    /// Whether both cover the same objects.
    fn eq(&self, other: &Self) -> bool {
        self.owner == other.owner
    }
}

impl Eq for KeysOf {}

impl std::fmt::Debug for KeysOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeysOf").field(&self.owner).finish()
    }
}

impl Coverage {
    /// The coverage of a target.
    ///
    /// # Errors
    /// 403 in the words of kube-apiserver; 404 if the caller may not know whether the object
    /// exists.
    pub(super) fn of(
        policy: &Policy,
        identity: &Identity,
        target: &ResourceTarget,
    ) -> Result<Self, ApiError> {
        let attributes = attributes_of(target);
        let is_filtered = match target.verb {
            Verb::List | Verb::Watch => is_filtered(target.kind.info()),
            Verb::DeleteCollection => hides(target.kind),
            _ => false,
        };
        let is_allowed = || policy.decide(identity, &attributes) == Decision::Allow;
        // As in Kubernetes, the right to list namespaces is one to all of them. Other callers get a filtered list.
        if target.action.is_none() && is_filtered && (hides(target.kind) || !is_allowed()) {
            return Self::of_list(policy, identity, target);
        }
        if is_allowed() && is_in_scope(policy, identity, target) {
            return Ok(Self::All);
        }
        if may_write_part(policy, identity, target) {
            return Ok(Self::All);
        }
        if target.action.is_none() && may_hold_by_owner(policy, identity, target) {
            return Ok(Self::Some(Arc::new(Covered::nothing_named())));
        }
        Err(refused(policy, identity, target))
    }

    /// The coverage of a list, a watch or a deletion of a collection. Lists of kinds in the management group are open
    /// to every caller. They contain the objects that the caller may get, or delete
    /// (`docs/reference/api.md#lists-and-visibility`).
    fn of_list(
        policy: &Policy,
        identity: &Identity,
        target: &ResourceTarget,
    ) -> Result<Self, ApiError> {
        let info = target.kind.info();
        let (group, plural) = (info.version.group, info.plural);
        let is_open = identity.is_in(AUTHENTICATED_GROUP);
        let verb = if target.verb == Verb::DeleteCollection { Verb::Delete } else { Verb::Get };
        if !is_open || !policy.scope_can_match(identity, verb.as_str(), group, plural) {
            return Err(forbidden(policy, identity, target, &attributes_of(target)));
        }
        let named = policy.readable(identity, verb.as_str(), group, plural);
        if named == Readable::All {
            return Ok(Self::All);
        }
        let on_owner = target.kind.verb_on_owner(verb);
        let owners = on_owner.map(|verb| policy.delegated_owners(identity, verb));
        Ok(Self::Some(Arc::new(Covered { named, owners })))
    }

    /// The coverage of a target under another policy, or for another identity of the caller.
    ///
    /// # Errors
    /// The errors of [`Coverage::of`].
    pub(super) fn under(
        &self,
        policy: &Policy,
        identity: &Identity,
        target: &ResourceTarget,
    ) -> Result<Self, ApiError> {
        let Self::KeysOf(keys) = self else { return Self::of(policy, identity, target) };
        // The action on the owner was decided, and is decided again.
        Self::of(policy, identity, &keys.action).map(|_| self.clone())
    }

    /// Whether it covers all objects.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether it covers the object of this namespace and name, with any owner.
    pub(super) fn names(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(covered) => covered.named.contains(namespace, name),
            Self::KeysOf(_) => false,
        }
    }

    /// Whether it covers an object of a target.
    pub(super) fn has(
        &self,
        policy: &Policy,
        identity: &Identity,
        target: &ResourceTarget,
        object: &CachedObject,
    ) -> bool {
        let owned = object.owner();
        match self {
            Self::All => true,
            Self::KeysOf(keys) => owned == Some(&keys.owner),
            Self::Some(covered) => {
                let (namespace, name) = storage_key::name_of(object.key());
                let verb = match target.verb {
                    Verb::List | Verb::Watch => Verb::Get,
                    Verb::DeleteCollection => Verb::Delete,
                    verb => verb,
                };
                covered.named.contains(namespace.unwrap_or_default(), name)
                    || owned
                        .is_some_and(|owned| holds_by_owner(policy, identity, target, owned, verb))
            }
        }
    }
}

/// Whether the scope allows an action that needs a permission on the object itself. The scope is checked for the
/// action; for all other requests, the decision has checked it.
fn is_in_scope(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> bool {
    let stands_for = |action: &Action| matches!(action.right, ActionRight::OnObject(_));
    !target.action.is_some_and(stands_for)
        || policy.scopes_allow(identity, &request_attributes_of(target))
}

/// Whether the caller may get the object and write a part of it. Admission checks the full permission if more
/// changes.
fn may_write_part(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> bool {
    let (None, Some(name)) = (target.action, target.name.as_deref()) else { return false };
    let Some(right) = target.kind.info().partial_right(target.verb, name) else { return false };
    let read = ResourceTarget { verb: Verb::Get, ..target.clone() };
    policy.satisfies(identity, &right.into())
        && policy.decide(identity, &attributes_of(&read)) == Decision::Allow
        && policy.scopes_allow(identity, &attributes_of(target))
}

/// Whether the caller can have the verb, or `get`, on an object through its owner. The owner is
/// still unknown.
fn may_hold_by_owner(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> bool {
    let info = target.kind.info();
    [target.verb, Verb::Get].into_iter().any(|verb| {
        target.kind.verb_on_owner(verb).is_some_and(|on_owner| {
            policy.has_right_on_any_owner(identity, on_owner)
                && policy.scope_can_match(identity, verb.as_str(), info.version.group, info.plural)
        })
    }) && identity.is_in(AUTHENTICATED_GROUP)
}

/// Whether the caller has a verb on an object by its owner.
pub(super) fn holds_by_owner(
    policy: &Policy,
    identity: &Identity,
    target: &ResourceTarget,
    owned: &OwnedBy,
    verb: Verb,
) -> bool {
    let Some(right) = target.kind.delegated_right(verb, &owned.owner) else { return false };
    let Attributes::Resource { group, resource, subresource, namespace, name, .. } =
        attributes_of(target)
    else {
        return false;
    };
    let verb = verb.as_str();
    let request = Attributes::Resource { verb, group, resource, subresource, namespace, name };
    policy.has_delegated(identity, &right, owned, &request)
}

/// Whether objects of a kind are hidden from callers that may not get them.
fn hides(kind: &dyn AnyKind) -> bool {
    let info = kind.info();
    info.version == MANAGEMENT_V1 && info.is_stored()
}

/// Whether lists of a kind are filtered, and so open to every caller. Members of a project find its namespace in the list
/// of namespaces.
pub fn is_filtered(info: &Info) -> bool {
    let is_ours = info.version == MANAGEMENT_V1 && info.is_stored();
    is_ours || (info.version == CORE_V1 && info.plural == "namespaces")
}

/// The rejection of a request for one object. In the management group, an object that the caller may not get is
/// reported as 404. If the caller can have no object of the kind, every name is 403.
pub(super) fn refused(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> ApiError {
    let info = target.kind.info();
    if target.verb == Verb::Create {
        return refused_uniformly(policy, identity, target);
    }
    let Some(name) = target.name.as_deref().filter(|_| hides(target.kind)) else {
        return forbidden(policy, identity, target, &attributes_of(target));
    };
    let may_get = may_get(policy, identity, target, name);
    let has_any = may_hold_by_owner(policy, identity, target)
        || policy.may_have_permission(identity, info.version.group, info.plural);
    if may_get || !has_any {
        return forbidden(policy, identity, target, &attributes_of(target));
    }
    with_namespace_to_try(target, ApiError::not_found(info.group_resource(), name))
}

/// The default namespaces of platform clients.
const CLIENT_NAMESPACES: [&str; 3] = ["platform", "vcluster-platform", "loft"];

/// Adds the default namespace of this server to a 404 in a namespace that is built into clients. It does not depend
/// on stored data.
pub fn with_namespace_to_try(target: &ResourceTarget, error: ApiError) -> ApiError {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let is_built_in = CLIENT_NAMESPACES.contains(&namespace) && namespace != default_namespace();
    let info = target.kind.info();
    if error.code() != 404 || !is_built_in || info.scope != ResourceScope::InDefaultNamespace {
        return error;
    }
    let (plural, default) = (info.plural, default_namespace());
    error
        .with_hint(&format!("{plural} are in the namespace {default} by default: try -n {default}"))
}

fn may_get(policy: &Policy, identity: &Identity, target: &ResourceTarget, name: &str) -> bool {
    let get = ResourceTarget::object(target.kind, Verb::Get, target.namespace.as_deref(), name);
    policy.decide(identity, &attributes_of(&get)) == Decision::Allow
}

/// The rejection of an action that creates something: 403 for every name, whether the object exists or not. Only
/// callers that may get the object get the missing permission, because roles come with objects.
pub(super) fn refused_uniformly(
    policy: &Policy,
    identity: &Identity,
    target: &ResourceTarget,
) -> ApiError {
    let attributes = attributes_of(target);
    let name = target.name.as_deref().filter(|_| hides(target.kind));
    if name.is_none_or(|name| may_get(policy, identity, target, name)) {
        forbidden(policy, identity, target, &attributes)
    } else {
        forbidden_without_hint(identity, target, &attributes)
    }
}

/// The attributes of a request without a translation of its action.
fn request_attributes_of(target: &ResourceTarget) -> Attributes<'_> {
    let info = target.requested().info();
    Attributes::Resource {
        verb: target.action.map_or(target.verb, |action| action.verb).as_str(),
        group: info.version.group,
        resource: info.plural,
        subresource: target.subresource(),
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: target.name.as_deref().unwrap_or_default(),
    }
}

/// The attributes of a request; for an action, with the permission that the action requires.
pub(super) fn attributes_of(target: &ResourceTarget) -> Attributes<'_> {
    let info = target.requested().info();
    let (verb, subresource) = match target.action {
        Some(Action { right: ActionRight::OnObject(verb), .. }) => (*verb, ""),
        Some(Action { right: ActionRight::OnSubresourceAs(verb), subresource, .. }) => {
            (*verb, *subresource)
        }
        Some(Action { right: ActionRight::GetObject, .. }) => (Verb::Get.as_str(), ""),
        Some(action) => (action.verb.as_str(), action.subresource),
        None => (target.verb.as_str(), ""),
    };
    Attributes::Resource {
        verb,
        group: info.version.group,
        resource: info.plural,
        subresource,
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: target.name.as_deref().unwrap_or_default(),
    }
}

impl Covered {
    /// The coverage of objects by their owners alone.
    pub(super) fn nothing_named() -> Self {
        let named = Readable::Some {
            namespaces: BTreeSet::new(),
            objects: BTreeSet::new(),
            names: BTreeSet::new(),
            within: Vec::new(),
        };
        Self { named, owners: None }
    }

    /// The owners with covered objects; `None` if they cannot be listed.
    pub(crate) fn owners(&self) -> Option<Vec<Owner>> {
        match &self.owners {
            None => Some(Vec::new()),
            Some(DelegatedOwners::Some { all_users: false, all_teams: false, owners }) => {
                Some(owners.clone())
            }
            Some(_) => None,
        }
    }
}
