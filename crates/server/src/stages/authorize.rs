//! From `Acting` to `Permit`: may the caller do this? `auth` decides, from a snapshot of the policy
//! and from names.

use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::forbidden::forbidden_message;
use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_auth::policy::{Decision, Fingerprint, Policy};
use postern_kinds::action::{Action, ActionRight};
use postern_kinds::{AnyKind, Caller, OwnedBy, Owner, RequiredRight, Verb};
use postern_meta::status::ApiError;

use super::authenticate::Credential;
use super::impersonate::Acting;
use super::parse::{Document, Parsed, ResourceTarget, Target};
use crate::cache::CachedObject;

/// The proof that a caller may do one thing. It carries what that thing is, and the registry
/// acts on nothing else: a permit for one object cannot be used on another. Only [`authorize`]
/// and [`Permit::for_server`] make one.
#[derive(Clone)]
pub(crate) struct Permit {
    target: ResourceTarget,
    credential: Credential,
    /// The policy that decided. It also decides about single objects.
    policy: Arc<Policy>,
    coverage: Coverage,
}

/// Which of the objects in its target a permit covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coverage {
    /// All of them.
    All,
    /// Those on whose owner the caller holds the delegated right for the verb.
    Delegated,
}

impl Permit {
    /// Returns what may be done, and to what.
    pub(crate) fn target(&self) -> &ResourceTarget {
        &self.target
    }

    /// Returns the kind of its target.
    pub(crate) fn kind(&self) -> &'static dyn AnyKind {
        self.target.kind
    }

    /// Returns the name of the object that it is for; empty when it is for a collection.
    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// Returns the identity whose rights count.
    pub(crate) fn identity(&self) -> &Identity {
        self.credential.identity()
    }

    /// Returns the caller's credential.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns the caller, as kinds see them.
    pub(crate) fn caller(&self) -> Caller {
        let Identity { user, team, uid, .. } = self.identity();
        Caller { user: user.clone(), team: team.clone(), uid: uid.clone() }
    }

    /// Returns whether it covers every object in its target. Then no single object need be checked.
    pub(crate) fn covers_all(&self) -> bool {
        self.coverage == Coverage::All
    }

    /// Returns whether it covers this object. Its name and its owner decide; whoever only has got the
    /// owner's name since is another one.
    pub(crate) fn covers(&self, object: &CachedObject) -> bool {
        let delegated = |owned: &OwnedBy| {
            let right = self.kind().delegated_right(self.target.verb, &owned.owner)?;
            Some(self.policy.has_delegated(self.identity(), &right, owned))
        };
        self.covers_all() || object.owner().and_then(delegated).unwrap_or(false)
    }

    /// Returns the owners whose objects it can cover, when it does not cover all.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        postern_auth::policy::owners_with_rights(self.identity())
    }

    /// Returns whether it covers a new object, whose owner is the present one of that name.
    fn covers_owned_by(&self, owner: Option<&Owner>) -> bool {
        let delegated = |owner| self.kind().delegated_right(self.target.verb, owner);
        self.covers_all()
            || owner.and_then(delegated).is_some_and(|right| self.holds(&right.into()))
    }

    /// Checks that it [covers](Permit::covers) an object.
    ///
    /// # Errors
    /// 403 in kube-apiserver's words.
    pub(crate) fn check(&self, object: &CachedObject) -> Result<(), ApiError> {
        if self.covers(object) { Ok(()) } else { Err(self.refused()) }
    }

    fn refused(&self) -> ApiError {
        forbidden(self.identity(), &self.target, &attributes_of(&self.target))
    }

    /// Checks that it covers a new object that has such an owner.
    ///
    /// # Errors
    /// 403 in kube-apiserver's words.
    pub(crate) fn check_owned_by(&self, owner: Option<&Owner>) -> Result<(), ApiError> {
        if self.covers_owned_by(owner) {
            return Ok(());
        }
        Err(self.refused())
    }

    /// Checks a right that a write requires beyond the verb.
    ///
    /// # Errors
    /// 403 that names the first of the rights that would be enough.
    pub(crate) fn check_right(&self, required: &RequiredRight) -> Result<(), ApiError> {
        if self.holds(required) {
            return Ok(());
        }
        Err(forbidden(self.identity(), &self.target, &required.first().into()))
    }

    fn holds(&self, required: &RequiredRight) -> bool {
        self.policy.satisfies(self.identity(), required)
    }

    /// Returns whether the caller may do this to an object of the permit's kind.
    pub(crate) fn caller_may(&self, verb: &str, namespace: Option<&str>, name: &str) -> bool {
        let info = self.kind().info();
        let attributes = Attributes::Resource {
            verb,
            group: info.version.group,
            resource: info.plural,
            subresource: "",
            namespace: namespace.unwrap_or_default(),
            name,
        };
        self.policy.decide(self.identity(), &attributes) == Decision::Allow
    }

    /// Returns the rights that decide what an identity sees of the permit's kind under a policy.
    pub(crate) fn fingerprint_of(&self, policy: &Policy, identity: &Identity) -> Fingerprint {
        let info = self.kind().info();
        let delegated = self.kind().is_delegated();
        policy.fingerprint(identity, info.version.group, info.plural, delegated)
    }

    /// Returns the same for the caller, as it was when the permit was made.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_of(&self.policy, self.identity())
    }

    /// Returns a permit for one object out of those that this one is for.
    pub(crate) fn narrowed(&self, verb: Verb, namespace: Option<&str>, name: &str) -> Self {
        let target = ResourceTarget::object(self.target.kind, verb, namespace, name);
        Self { target, ..self.clone() }
    }

    /// Returns the caller's permit for reading an object of another, cluster-scoped kind.
    ///
    /// # Errors
    /// 403 when the caller may read none of its objects.
    pub(crate) fn reading(&self, kind: &'static dyn AnyKind, name: &str) -> Result<Self, ApiError> {
        let target = ResourceTarget::object(kind, Verb::Get, None, name);
        let coverage = coverage_of(&self.policy, self.identity(), &target)?;
        Ok(Self { target, coverage, ..self.clone() })
    }

    /// Returns a permit for changing the object that this one is for, where an action changes it.
    pub(crate) fn updating(&self) -> Self {
        self.narrowed(Verb::Update, self.target.namespace.as_deref(), self.name())
    }

    /// Returns a permit for a whole collection, where it was for one object.
    pub(crate) fn of_all(mut self) -> Self {
        self.target.name = None;
        self
    }

    /// Returns the permit as another caller has it, in tests.
    #[cfg(test)]
    pub(crate) fn with_credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Returns the permit of a caller who only holds rights on owners, in tests.
    #[cfg(test)]
    pub(crate) fn of_own(mut self) -> Self {
        self.coverage = Coverage::Delegated;
        self
    }

    /// Returns a permit for the server's own controllers, which act for no caller.
    pub(crate) fn for_server(
        kind: &'static dyn AnyKind,
        verb: Verb,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        let identity = Identity {
            name: "system:postern".to_owned(),
            groups: vec![MASTERS_GROUP.to_owned()],
            ..Identity::default()
        };
        Self {
            target: ResourceTarget::object(kind, verb, namespace, name),
            credential: Credential::of_server(identity),
            policy: Policy::built_in(),
            coverage: Coverage::All,
        }
    }
}

/// An authorised request.
pub(crate) enum Authorized {
    /// For a resource.
    Resource(Parsed, Permit),
    /// For a document such as discovery.
    Document(Parsed),
}

/// Returns the permit, when `auth` allows the request.
///
/// # Errors
/// 403 in kube-apiserver's words. A path at which nothing is served is 404, but only for callers
/// who may know that.
pub(crate) fn authorize(acting: Acting, policy: Arc<Policy>) -> Result<Authorized, ApiError> {
    let (parsed, credential) = acting.into_parts();
    let identity = credential.identity();
    match parsed.target() {
        Target::Resource(target) => {
            let coverage = coverage_of(&policy, identity, target)?;
            let permit = Permit { target: target.clone(), credential, policy, coverage };
            Ok(Authorized::Resource(parsed, permit))
        }
        Target::Document(document) => {
            let verb = parsed.method().as_str().to_ascii_lowercase();
            check_path(&policy, identity, &path_attributes(*document, &verb, parsed.path()))?;
            Ok(Authorized::Document(parsed))
        }
        Target::Nothing => {
            let verb = parsed.method().as_str().to_ascii_lowercase();
            let attributes = Attributes::Path { verb: &verb, path: parsed.path() };
            check_path(&policy, identity, &attributes)?;
            Ok(Authorized::Document(parsed))
        }
    }
}

fn coverage_of(
    policy: &Policy,
    identity: &Identity,
    target: &ResourceTarget,
) -> Result<Coverage, ApiError> {
    let attributes = attributes_of(target);
    if policy.decide(identity, &attributes) == Decision::Allow {
        return Ok(Coverage::All);
    }
    let is_object = target.action.is_none();
    if is_object && target.kind.is_delegated() && policy.may_hold_single_objects(identity) {
        return Ok(Coverage::Delegated);
    }
    Err(forbidden(identity, target, &attributes))
}

/// Returns the attributes of a document. Those that describe the API are open to every caller who
/// has a key.
fn path_attributes<'a>(document: Document, verb: &'a str, path: &'a str) -> Attributes<'a> {
    if document.describes_the_api() {
        Attributes::Description { verb, path }
    } else {
        Attributes::Path { verb, path }
    }
}

fn check_path(
    policy: &Policy,
    identity: &Identity,
    attributes: &Attributes<'_>,
) -> Result<(), ApiError> {
    if policy.decide(identity, attributes) == Decision::Allow {
        return Ok(());
    }
    match attributes {
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => {
            Err(ApiError::forbidden_path(&identity.name, verb, path))
        }
        Attributes::Resource { .. } => unreachable!("a path is no resource"),
    }
}

fn forbidden(
    identity: &Identity,
    target: &ResourceTarget,
    attributes: &Attributes<'_>,
) -> ApiError {
    let name = target.name.as_deref().unwrap_or_default();
    let text = forbidden_message(identity, attributes);
    ApiError::forbidden(target.kind.info().group_resource(), name, &text)
}

/// Returns the attributes of a request; for an action, with the right that the action requires.
fn attributes_of(target: &ResourceTarget) -> Attributes<'_> {
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
