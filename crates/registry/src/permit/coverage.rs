//! Which of the objects in its target a permit covers: all, or those that roles, access rules and
//! scopes let the caller have. Decided from names and owners alone; no object is decoded.

use std::collections::BTreeSet;
use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::identity::{AUTHENTICATED_GROUP, Identity};
use postern_auth::policy::{Decision, DelegatedOwners, Policy, Readable};
use postern_kinds::action::{Action, ActionRight};
use postern_kinds::{AnyKind, Info, MANAGEMENT_V1, OwnedBy, Owner, Verb, default_namespace};
use postern_meta::status::ApiError;

use super::{forbidden, forbidden_plainly};
use crate::cache::CachedObject;
use crate::permit::ResourceTarget;
use crate::storage_key;

/// Which of the objects in its target a permit covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// All of them.
    All,
    /// Some of them.
    Some(Arc<Covered>),
    /// The access keys of one user or team, for a caller who may list those.
    KeysOf(Arc<KeysOf>),
}

/// The access keys of one user or team.
#[derive(Clone)]
pub struct KeysOf {
    /// The user or team, by name and uid.
    pub(crate) owner: OwnedBy,
    /// The action on the user or team that was decided.
    pub(super) action: ResourceTarget,
}

/// The objects that are covered, where not all are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Covered {
    /// By their names.
    pub(crate) named: Readable,
    /// By their owners, on whom the caller holds the delegated right for the verb.
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
    /// 403 in kube-apiserver's words; 404 for an object that callers may not know of.
    pub(super) fn of(
        policy: &Policy,
        identity: &Identity,
        target: &ResourceTarget,
    ) -> Result<Self, ApiError> {
        let attributes = attributes_of(target);
        let lists = matches!(target.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        if target.action.is_none() && lists && filters(target.kind) {
            return Self::of_list(policy, identity, target);
        }
        let allowed = policy.decide(identity, &attributes) == Decision::Allow;
        if allowed && is_in_scope(policy, identity, target) {
            return Ok(Self::All);
        }
        if may_change_a_part(policy, identity, target) {
            return Ok(Self::All);
        }
        if target.action.is_none() && may_hold_by_owner(policy, identity, target) {
            return Ok(Self::Some(Arc::new(Covered::nothing_named())));
        }
        Err(refused(policy, identity, target))
    }

    /// The coverage of a list, a watch or a deletion of a collection. For kinds of our own group, every
    /// caller's has the objects that the caller may get, or delete
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

    /// The coverage of a target by another policy, or for another identity of the caller.
    ///
    /// # Errors
    /// As [`Coverage::of`].
    pub(super) fn under(
        &self,
        policy: &Policy,
        identity: &Identity,
        target: &ResourceTarget,
    ) -> Result<Self, ApiError> {
        let Self::KeysOf(keys) = self else { return Self::of(policy, identity, target) };
        // The action on the owner was decided, and decides again.
        Self::of(policy, identity, &keys.action).map(|_| self.clone())
    }

    /// Does it cover everything?
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether it covers the object of a namespace and name, with any owner.
    pub(super) fn names(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(covered) => covered.named.contains(namespace, name),
            Self::KeysOf(_) => false,
        }
    }

    /// Whether it covers an object in a target.
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

/// Does the scope allow an action for which a right on the object stands? It is asked about the action
/// itself; for all other requests, the decision has asked it.
fn is_in_scope(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> bool {
    let stands_for = |action: &Action| matches!(action.right, ActionRight::OnObject(_));
    !target.action.is_some_and(stands_for)
        || policy.scopes_allow(identity, &own_attributes_of(target))
}

/// May a caller who may get the object write a part of it? Admission asks for the whole right where more changes.
fn may_change_a_part(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> bool {
    let (None, Some(name)) = (target.action, target.name.as_deref()) else { return false };
    let Some(right) = target.kind.partial_right(target.verb, name) else { return false };
    let read = ResourceTarget { verb: Verb::Get, ..target.clone() };
    policy.satisfies(identity, &right.into())
        && policy.decide(identity, &attributes_of(&read)) == Decision::Allow
        && policy.scopes_allow(identity, &attributes_of(target))
}

/// Can the caller hold a right on an object by its owner, who is not known yet: this one, or to get it?
fn may_hold_by_owner(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> bool {
    let info = target.kind.info();
    [target.verb, Verb::Get].into_iter().any(|verb| {
        target.kind.verb_on_owner(verb).is_some_and(|on_owner| {
            policy.has_right_on_any_owner(identity, on_owner)
                && policy.scope_can_match(identity, verb.as_str(), info.version.group, info.plural)
        })
    }) && identity.is_in(AUTHENTICATED_GROUP)
}

/// Does the caller hold a verb on an object by its owner?
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

/// Are lists of a kind filtered, and objects hidden from those who may not get them?
fn filters(kind: &dyn AnyKind) -> bool {
    is_filtered(kind.info())
}

/// Are lists of a kind filtered, and so open to every caller?
pub fn is_filtered(info: &Info) -> bool {
    info.version == MANAGEMENT_V1 && info.is_stored()
}

/// The refusal of a request for one object. Of our own group, an object that the caller may
/// not get is as one that is not there; who can have nothing of the kind gets 403 for every name.
pub(super) fn refused(policy: &Policy, identity: &Identity, target: &ResourceTarget) -> ApiError {
    let info = target.kind.info();
    if target.verb == Verb::Create {
        return refused_alike(policy, identity, target);
    }
    let Some(name) = target.name.as_deref().filter(|_| filters(target.kind)) else {
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

/// The namespaces that clients of the platform look in, where none is given.
const CLIENT_NAMESPACES: [&str; 3] = ["platform", "vcluster-platform", "loft"];

/// Adds to a 404 in a namespace that a client has built in where the objects are on this server. Nothing that is
/// stored decides that.
pub fn with_namespace_to_try(target: &ResourceTarget, error: ApiError) -> ApiError {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let is_built_in = CLIENT_NAMESPACES.contains(&namespace) && namespace != default_namespace();
    let info = target.kind.info();
    if error.code() != 404 || !is_built_in || !info.in_default_namespace {
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

/// The refusal of an action that makes something: 403 for every name, whether there is such an object or not.
/// Only callers who may get the object learn what would allow it, since roles come with objects.
pub(super) fn refused_alike(
    policy: &Policy,
    identity: &Identity,
    target: &ResourceTarget,
) -> ApiError {
    let attributes = attributes_of(target);
    let name = target.name.as_deref().filter(|_| filters(target.kind));
    if name.is_none_or(|name| may_get(policy, identity, target, name)) {
        forbidden(policy, identity, target, &attributes)
    } else {
        forbidden_plainly(identity, target, &attributes)
    }
}

/// The attributes of a request as it is.
fn own_attributes_of(target: &ResourceTarget) -> Attributes<'_> {
    let info = target.kind.info();
    Attributes::Resource {
        verb: target.action.map_or(target.verb, |action| action.verb).as_str(),
        group: info.version.group,
        resource: info.plural,
        subresource: target.subresource(),
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: target.name.as_deref().unwrap_or_default(),
    }
}

/// The attributes of a request; for an action, with the right that the action requires.
pub(super) fn attributes_of(target: &ResourceTarget) -> Attributes<'_> {
    let info = target.kind.info();
    let (verb, subresource) = match target.action {
        Some(Action { right: ActionRight::OnObject(verb), .. }) => (*verb, ""),
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
    /// The coverage of objects whose owners alone count.
    pub(super) fn nothing_named() -> Self {
        let named = Readable::Some {
            namespaces: BTreeSet::new(),
            objects: BTreeSet::new(),
            names: BTreeSet::new(),
            within: Vec::new(),
        };
        Self { named, owners: None }
    }

    /// The owners whose objects are covered; `None` when they cannot be listed.
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
