//! The one place where access is decided: from an immutable [`Policy`] and names, never from an
//! object's content.
//!
//! A request is allowed when the identity has the permission, by a role or implicitly, and every
//! scope of its key allows it. The default is always to deny. Explanations, and results that
//! combine many decisions, are below. Each of them equals the decisions of [`Policy::decide`] one
//! by one.

use std::sync::Arc;

use postern_kinds::rbac::{BoundSubject, PolicyChange};
use postern_kinds::{GroupResource, OwnedBy, RequiredRight, Right};

use crate::attributes::{Attributes, Request, RequestTarget};
use crate::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};
use crate::implicit_rights::{self, KEY_VERBS};
pub use crate::owners::OwnedObject;
use crate::owners::Owners;
use crate::projects::Projects;
use crate::rbac::index::Index;
use crate::rbac::role::PolicyKey;
use crate::rbac::rule::ResourceQuery;
use crate::scope::ScopeRules;

mod covers;
mod explain;
mod narrowed;
mod readable;
mod rules_of;
pub mod target;
pub(crate) mod using;
mod who_can;

pub use crate::rbac::use_changes::UseChange;
pub use covers::{MAX_COMBINATIONS, NotCovered};
pub use readable::{DelegatedOwners, Readable};
pub use rules_of::RulesOf;
pub use who_can::{Grantee, WhoCan};

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The identity may do it.
    Allow,
    /// The identity may not do it.
    Deny,
}

/// The data that decisions are made from. It is a snapshot that never changes, so that all
/// decisions for one request agree. A change makes a new snapshot, which shares all unchanged parts
/// with this one. A clone costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    index: Index,
    owners: Owners,
    projects: Projects,
}

/// A change of one object of the policy: its namespace, its name, and its new content. For a
/// Namespace, the name is that of the Namespace.
pub type NamedChange<'a> = (Option<&'a str>, &'a str, PolicyChange);

/// The input of an identity's view of one kind. As long as two are equal, the identity sees the
/// same objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The objects that it may read.
    readable: Readable,
    /// The owners with objects that it may read.
    owners: Option<DelegatedOwners>,
    /// The identity itself. Grants depend on its name, uid and groups.
    name: String,
    uid: String,
    user: Option<String>,
    team: Option<String>,
    groups: Vec<String>,
    scopes: Vec<Arc<ScopeRules>>,
}

impl Policy {
    /// The policy that needs nothing stored.
    pub fn built_in() -> Arc<Self> {
        Arc::default()
    }

    /// The policy of everything that is stored: each object once, in any order. Most of it are owners, which
    /// are laid out together.
    pub fn of(stored: Vec<(Option<String>, String, PolicyChange)>) -> Self {
        let (mut policy, mut owned) = (Self::default(), Vec::new());
        for (namespace, name, change) in stored {
            match change {
                PolicyChange::Owner(kind, uid) => owned.push((kind, namespace, name, uid)),
                change => policy.apply(namespace.as_deref(), &name, change),
            }
        }
        policy.owners = Owners::of_all(owned);
        policy.index.use_changes.clear();
        policy
    }

    /// The next snapshot, after these changes. The cost of a change of a binding is that of its
    /// subjects and its role. A change of a role has this cost for each binding that names it.
    #[must_use]
    pub fn with(&self, changes: &[NamedChange<'_>]) -> Self {
        let mut next = self.clone();
        next.index.use_changes.clear();
        for (namespace, name, change) in changes {
            next.apply(*namespace, name, change.clone());
        }
        next
    }

    /// Applies one change to a snapshot that is not shared yet.
    pub fn apply(&mut self, namespace: Option<&str>, name: &str, change: PolicyChange) {
        let key = || PolicyKey::of(namespace.filter(|namespace| !namespace.is_empty()), name);
        match change {
            PolicyChange::Role(rules) => self.index.set_role(&key(), rules),
            PolicyChange::Binding(facts) => self.index.set_binding(&key(), facts),
            PolicyChange::Namespace(project) => {
                self.index.use_changes.note_namespace(name);
                self.projects.set(name, project.as_deref());
            }
            PolicyChange::Owner(kind, uid) => {
                let namespace = namespace.unwrap_or_default();
                self.index.use_changes.note_owner(kind.group, kind.resource, namespace, name);
                self.owners.set(kind, namespace, name, uid.as_deref());
            }
        }
    }

    /// Whether a change can alter this policy. `false` is certain: most changes of an object do not
    /// alter its owner.
    pub fn is_changed_by(&self, (namespace, name, change): &NamedChange<'_>) -> bool {
        let PolicyChange::Owner(kind, uid) = change else { return true };
        let namespace = namespace.unwrap_or_default();
        let uid = uid.as_deref().filter(|uid| !uid.is_empty());
        self.owners.owner(kind.group, kind.resource, namespace, name) != uid
    }

    /// Whether a binding names a user of this name, even if its role does not exist. The cost grows
    /// with the number of bindings.
    pub fn names_user(&self, name: &str) -> bool {
        self.index.has_subject(|subject| matches!(subject, BoundSubject::User(of) if of == name))
    }

    /// Whether a binding names a group by its name alone. The cost grows with the number of
    /// bindings.
    pub fn names_group(&self, group: &str) -> bool {
        self.index.has_subject(|subject| matches!(subject, BoundSubject::Group(of) if of == group))
    }

    /// The owners of objects, each once for each kind, with one of their objects.
    pub fn owners(&self) -> impl Iterator<Item = OwnedObject<'_>> {
        self.owners.one_of_each()
    }

    /// The project of each namespace.
    pub fn projects(&self) -> &Projects {
        &self.projects
    }

    /// Decides whether an identity may do something in the management API. The same question always has
    /// the same answer.
    pub fn decide(&self, identity: &Identity, attributes: &Attributes<'_>) -> Decision {
        let allowed = implicit_rights::is_open(identity, attributes)
            || (self.is_held(identity, attributes) && self.scopes_allow(identity, attributes));
        if allowed { Decision::Allow } else { Decision::Deny }
    }

    /// Decides whether an identity may do something. For a target behind the gateway, only the
    /// scopes are checked here. The rest is the permission to use the target, and the decision of
    /// the target itself.
    pub fn decide_request(&self, identity: &Identity, request: &Request<'_>) -> Decision {
        match request.target {
            RequestTarget::Management => self.decide(identity, &request.attributes),
            _ if self.scopes_allow_request(identity, request) => Decision::Allow,
            _ => Decision::Deny,
        }
    }

    /// Whether the identity has the permission, by a role or implicitly, without regard to its scopes.
    pub fn is_held(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        implicit_rights::right(identity, attributes).is_some()
            || self.is_owners(identity, attributes)
            || self.is_by_role(identity, attributes)
    }

    /// Whether the identity has the permission also without this ClusterRole, without regard to its scopes.
    pub fn is_held_without(
        &self,
        identity: &Identity,
        attributes: &Attributes<'_>,
        cluster_role: &str,
    ) -> bool {
        implicit_rights::right(identity, attributes).is_some()
            || self.is_owners(identity, attributes)
            || self
                .index
                .of(identity)
                .flat_map(|grants| grants.grants_in(attributes.role_namespace()))
                .any(|(_, grant)| {
                    let of = grant.role.key.to_name();
                    let is_it = of.namespace.is_none() && of.name == cluster_role;
                    !is_it
                        && grant.role.rules().iter().any(|rule| explain::allows(rule, attributes))
                })
    }

    /// How many objects of a kind in a namespace a user or team owns, by its uid.
    pub fn owned_count(&self, kind: GroupResource, namespace: &str, uid: &str) -> usize {
        self.owners.count(kind, namespace, uid)
    }

    /// Whether this is about an object that the identity owns. The owner holds every verb on it.
    fn is_owners(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        self.owner_of(attributes)
            .is_some_and(|owner| identity.principal_uids.iter().any(|uid| uid == owner))
    }

    /// The uid of the owner of the object that something is about.
    fn owner_of(&self, attributes: &Attributes<'_>) -> Option<&str> {
        let Attributes::Resource { group, resource, subresource, namespace, name, .. } =
            *attributes
        else {
            return None;
        };
        let is_its = subresource.is_empty()
            || self.owners.subresources(group, resource).contains(&subresource);
        self.owners.owner(group, resource, namespace, name).filter(|_| is_its)
    }

    /// Whether a role allows the request.
    fn is_by_role(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        match *attributes {
            Attributes::Resource { verb, group, resource, subresource, name, .. } => {
                let name = Some(name);
                let query = ResourceQuery { verb, group, resource, subresource, name };
                self.index.allows(identity, &query, attributes.role_namespace())
            }
            Attributes::Description { verb, path } | Attributes::Path { verb, path } => {
                self.index.of(identity).any(|grants| grants.allow_path(verb, path))
            }
        }
    }

    /// Whether all scopes of the identity allow this in the management API. The permissions
    /// themselves are not checked. This is for the owner of a new object, and for permissions that
    /// stand in for others.
    pub fn scopes_allow(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        self.scopes_allow_request(identity, &Request::management(*attributes))
    }

    /// Whether all scopes of the identity allow this. Discovery and similar requests are open at
    /// every target that the scopes reach.
    pub fn scopes_allow_request(&self, identity: &Identity, request: &Request<'_>) -> bool {
        identity.scopes.is_empty()
            || identity.scopes.iter().all(|scope| self.scope_allows(scope, identity, request))
    }

    /// Whether all scopes of the identity name this explicitly. Permissions that are open to every
    /// caller, regardless of scope, do not count.
    pub fn scopes_name(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        let (request, holder) = (Request::management(*attributes), identity.scope_holder());
        identity.scopes.iter().all(|scope| scope.allows(&request, &holder, &self.projects))
    }

    fn scope_allows(&self, scope: &ScopeRules, identity: &Identity, request: &Request<'_>) -> bool {
        scope.allows(request, &identity.scope_holder(), &self.projects)
            || (implicit_rights::is_open(identity, &request.attributes)
                && scope.reaches(request.target))
    }

    /// Whether a requirement is met: the identity has one of the permissions, by a role where that
    /// is required. If the identity has them as the owner of the written object, only its scopes
    /// are checked.
    pub fn satisfies(&self, identity: &Identity, required: &RequiredRight) -> bool {
        required.any_of().any(|right| {
            let attributes = right.into();
            if required.is_as_owner() {
                self.scopes_allow(identity, &attributes)
            } else if required.is_by_role() {
                let held = identity.is_in(MASTERS_GROUP) || self.is_by_role(identity, &attributes);
                held && self.scopes_allow(identity, &attributes)
            } else {
                self.decide(identity, &attributes) == Decision::Allow
            }
        })
    }

    /// Whether an identity has a permission on the owner of an object that allows `request` on the
    /// object. A later user or team with the same name does not get the owner's permissions on
    /// itself. The scopes are checked for the request itself.
    pub fn has_delegated(
        &self,
        identity: &Identity,
        right: &Right,
        owned_by: &OwnedBy,
        request: &Attributes<'_>,
    ) -> bool {
        let attributes = right.into();
        let is_owner = !identity.uid.is_empty() && identity.uid == owned_by.uid;
        let held = identity.is_in(MASTERS_GROUP) || self.is_by_role(identity, &attributes);
        (held || (is_owner && is_about_own_keys(identity, &attributes)))
            && self.scopes_allow(identity, request)
    }

    /// Whether the identity can have permissions on single objects that it does not have on the
    /// collection. If not, a list is denied. Otherwise the list has the objects that the identity
    /// may read.
    pub fn may_hold_single_objects(&self, identity: &Identity) -> bool {
        !identity.is_scoped() && identity.is_in(AUTHENTICATED_GROUP)
    }

    /// The fingerprint of the identity's view of a kind. Changes that concern only other identities
    /// leave it as it is.
    pub fn fingerprint(
        &self,
        identity: &Identity,
        group: &str,
        resource: &str,
        delegated: bool,
    ) -> Fingerprint {
        Fingerprint {
            readable: self.readable(identity, "get", group, resource),
            owners: delegated.then(|| self.delegated_owners(identity, "getkey")),
            name: identity.name.clone(),
            uid: identity.uid.clone(),
            user: identity.user.clone(),
            team: identity.team.clone(),
            groups: identity.groups.clone(),
            scopes: identity.scopes.clone(),
        }
    }

    /// Whether the sources of an identity's permissions on a kind are the same in a newer snapshot.
    /// This is a quick check: `true` is certain, and after `false` the permissions may still be
    /// equal. The identity itself must not have changed.
    pub fn same_sources(
        &self,
        newer: &Self,
        identity: &Identity,
        group: &str,
        resource: &str,
    ) -> bool {
        (!identity.is_scoped() || self.projects.is_same(&newer.projects))
            && self.owners.is_same_for(&newer.owners, identity, group, resource)
            && self.index.is_same_for(&newer.index, identity, group, resource)
    }

    /// Whether the identity may have any permission on any object of a kind, within its scopes.
    /// `false` is certain; `true` may be too much.
    pub fn may_have_permission(&self, identity: &Identity, group: &str, resource: &str) -> bool {
        let in_namespaces = crate::kind_scope::has_namespaces(group, resource) != Some(false)
            || (group, resource) == ("", "namespaces");
        let held = implicit_rights::concerns(identity, group, resource)
            || self.owners.of(identity, group, resource).next().is_some()
            || self.index.of(identity).any(|grants| grants.concern(group, resource, in_namespaces));
        held && (implicit_rights::is_open_kind(group, resource)
            || scopes_can_match(identity, None, group, resource))
    }

    /// Whether every scope of the identity can allow a verb on some object of a kind. If not, a
    /// list is denied.
    pub fn scope_can_match(
        &self,
        identity: &Identity,
        verb: &str,
        group: &str,
        resource: &str,
    ) -> bool {
        scopes_can_match(identity, Some(verb), group, resource)
    }
}

/// Whether every scope of an identity can allow this verb (or any verb) on some object of a kind.
fn scopes_can_match(identity: &Identity, verb: Option<&str>, group: &str, resource: &str) -> bool {
    let holder = identity.scope_holder();
    identity.scopes.iter().all(|scope| scope.can_match(verb, group, resource, &holder))
}

/// Whether the request concerns the identity's own keys.
fn is_about_own_keys(identity: &Identity, attributes: &Attributes<'_>) -> bool {
    let is_key_verb = |verb| KEY_VERBS.contains(&verb);
    matches!(attributes, Attributes::Resource { verb, .. } if is_key_verb(*verb))
        && implicit_rights::right(identity, attributes).is_some()
}

#[cfg(test)]
mod tests;
