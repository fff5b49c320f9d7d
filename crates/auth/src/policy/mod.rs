//! The one place where access is decided: from an immutable [`Policy`] and names, never from an
//! object's content.
//!
//! A request is allowed when the identity has the right to it, by a role or without one, and every
//! scope of its key allows it. Deny is the default, and stays it. Why a decision is what it is, and what
//! follows from many of them together, is below: each of these equals what [`Policy::decide`] says
//! one by one.

use std::sync::Arc;

use postern_kinds::rbac::{BoundSubject, PolicyChange};
use postern_kinds::{OwnedBy, RequiredRight, Right};

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

/// A change of one object that decides who may do what: its namespace, its name, and what it says now.
/// For a namespace, the name is its own.
pub type NamedChange<'a> = (Option<&'a str>, &'a str, PolicyChange);

/// The input of an identity's view of one kind. As long as two are equal, the identity sees the
/// same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The objects that it may read.
    readable: Readable,
    /// The owners whose objects it may read.
    owners: Option<DelegatedOwners>,
    /// The identity's own: who they are, and the groups, by which grants come and go.
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
    /// subjects and its role; a change of a role costs as much for each binding that names it.
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

    /// Can a change make another policy of this one? `false` is certain: most changes of an object leave its
    /// owner alone.
    pub fn is_changed_by(&self, (namespace, name, change): &NamedChange<'_>) -> bool {
        let PolicyChange::Owner(kind, uid) = change else { return true };
        let namespace = namespace.unwrap_or_default();
        let uid = uid.as_deref().filter(|uid| !uid.is_empty());
        self.owners.owner(kind.group, kind.resource, namespace, name) != uid
    }

    /// Does a binding name a user of this name, whether its role is there or not? The cost grows with the number of
    /// bindings.
    pub fn names_user(&self, name: &str) -> bool {
        self.index.has_subject(|subject| matches!(subject, BoundSubject::User(of) if of == name))
    }

    /// Does a binding name a group by its name alone? The cost grows with the number of bindings.
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

    /// Decides whether an identity may do something. For a target behind the gateway only the scopes are
    /// asked here: the rest is the right to use the target, and what the target itself decides.
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

    /// Is this about an object that the identity owns? Its owner holds every verb on it.
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

    /// Do all scopes of the identity allow this in the management API? The rights are not asked: for the
    /// owner of an object that is new, and for rights that stand for others.
    pub fn scopes_allow(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        self.scopes_allow_request(identity, &Request::management(*attributes))
    }

    /// Do all scopes of the identity allow this? Discovery and the like are open at every target that
    /// the scopes reach.
    pub fn scopes_allow_request(&self, identity: &Identity, request: &Request<'_>) -> bool {
        identity.scopes.is_empty()
            || identity.scopes.iter().all(|scope| self.scope_allows(scope, identity, request))
    }

    /// Do all scopes of the identity name this themselves? What is open to every caller, whatever the scope of their
    /// key, does not count.
    pub fn scopes_name(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        let (request, holder) = (Request::management(*attributes), identity.scope_holder());
        identity.scopes.iter().all(|scope| scope.allows(&request, &holder, &self.projects))
    }

    fn scope_allows(&self, scope: &ScopeRules, identity: &Identity, request: &Request<'_>) -> bool {
        scope.allows(request, &identity.scope_holder(), &self.projects)
            || (implicit_rights::is_open(identity, &request.attributes)
                && scope.reaches(request.target))
    }

    /// Is a requirement met: does the identity have any one of its rights, and by a role where that is
    /// required? Rights that it holds as the owner of what it writes, only its scopes can refuse.
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

    /// Does an identity have a permission on the owner of an object, as a permission to do `request` to
    /// the object? A later user or team with the same name does not get the owner's permissions on
    /// itself. The scopes are asked about the request itself.
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

    /// Can the identity have rights on single objects that it does not have on the collection? If
    /// not, a list is refused; otherwise it has the objects that the identity may read.
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

    /// Is what an identity holds of a kind the very same in a newer snapshot? A quick answer: `true` is
    /// certain, and after `false` the two may still be equal. The identity itself must not have changed.
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

    /// Can every scope of the identity allow a verb on some object of a kind? If not, a list is refused.
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
