//! `Permit`: the proof that a caller may do one thing. `auth` decides, from a snapshot of the policy and from names.
//!
//! Only this module makes permits: [`Permit::decide`] for a request, `derived` for permits that follow from another
//! permit, and `server` for the server itself.

mod coverage;
mod derived;
mod server;
mod target;

use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::explanation::{rule_yaml, scope_yaml};
use postern_auth::forbidden::forbidden_message;
use postern_auth::identity::Identity;
use postern_auth::policy::{Decision, Policy};
use postern_kinds::action::{Action, ActionRight};
use postern_kinds::{AnyKind, Caller, MANAGEMENT_V1, Owner, RequiredRight, Right, Verb};
use postern_meta::status::{ApiError, StatusCause};

pub use self::coverage::{Coverage, is_filtered, with_namespace_to_try};
use self::coverage::{attributes_of, holds_by_owner, refused};
pub use self::target::{ResourceTarget, SELECTABLE_FIELDS, selectable_fields, stored_kind};
use crate::cache::{Cache, CachedObject, PolicyAt};
use crate::clock::Source;
use crate::credential::{Credential, check_impersonation};
use crate::storage_key;

/// The reasons of the causes of a 403: the rule of a role, or the entry of a scope, that would allow the request.
const MISSING_RULE: &str = "MissingRule";
const MISSING_SCOPE: &str = "MissingScope";

/// The proof that a caller may do one thing. It has the target of the decision, and the registry acts on nothing
/// else: a permit for one object cannot be used for another. Only a decision or [`Permit::for_server`] makes one. The
/// verb, kind, namespace and name of a permit never change.
#[derive(Clone)]
pub struct Permit {
    target: ResourceTarget,
    credential: Credential,
    /// The policy that decided. It also decides for single objects.
    policy: Arc<PolicyAt>,
    coverage: Coverage,
    /// The revision of the store when the request came, if it is known.
    as_of: Option<u64>,
}

impl Permit {
    /// The permit for a target, if `auth` allows it for the identity of a credential.
    ///
    /// # Errors
    /// 403 in the words of kube-apiserver; 404 if the caller may not know whether the object
    /// exists.
    pub fn decide(
        policy: Arc<PolicyAt>,
        credential: Credential,
        target: ResourceTarget,
    ) -> Result<Self, ApiError> {
        let coverage = Coverage::of(&policy, credential.identity(), &target)?;
        Ok(Self { target, credential, policy, coverage, as_of: None })
    }

    /// Checks that the request may switch protocols. An upgraded connection can carry any data, so it is not a read.
    /// It needs `create`, except for a watch and for an action that is the upgrade itself
    /// (`docs/reference/scopes.md#upgrades`).
    ///
    /// # Errors
    /// 403 in the words of kube-apiserver.
    pub fn check_upgrade(&self) -> Result<(), ApiError> {
        let is_upgrade = |action: &Action| matches!(action.right, ActionRight::OnSubresourceAs(_));
        if self.target.verb == Verb::Watch || self.target.action.is_some_and(is_upgrade) {
            return Ok(());
        }
        let create = ResourceTarget { verb: Verb::Create, ..self.target.clone() };
        let attributes = attributes_of(&create);
        if self.policy.decide(self.identity(), &attributes) == Decision::Allow {
            return Ok(());
        }
        Err(forbidden(&self.policy, self.identity(), &self.target, &attributes))
    }

    /// The permit with the revision of the store when the request came. Reads for the request are at least as new.
    #[must_use]
    pub fn received_at(mut self, revision: Option<u64>) -> Self {
        self.as_of = revision;
        self
    }

    /// The revision of the store when the request came, if it is known.
    pub(crate) fn oldest_revision(&self) -> Option<u64> {
        self.as_of
    }

    /// The target: the permitted verb, and its object or collection.
    pub fn target(&self) -> &ResourceTarget {
        &self.target
    }

    /// The kind of the target.
    pub fn kind(&self) -> &'static dyn AnyKind {
        self.target.kind
    }

    /// The name of the object that it is for; empty for a collection.
    pub fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The identity with the permissions for the request.
    pub(crate) fn identity(&self) -> &Identity {
        self.credential.identity()
    }

    /// The caller's credential.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The caller, as the kinds see it.
    pub(crate) fn caller(&self) -> Caller {
        let Identity { user, team, uid, .. } = self.identity();
        // An impersonated uid is not the uid of an object.
        let uid = uid.clone();
        let uid = if user.is_some() || team.is_some() { uid } else { String::new() };
        Caller { user: user.clone(), team: team.clone(), uid }
    }

    /// The objects of the target that it covers.
    pub(crate) fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The snapshot of the policy that decided.
    pub(crate) fn policy(&self) -> &Arc<PolicyAt> {
        &self.policy
    }

    /// Whether it covers every object of the target. Then no single object needs a check.
    pub(crate) fn covers_all(&self) -> bool {
        self.coverage.is_all()
    }

    /// Whether it covers this object. The name and the owner decide. A later principal of the owner's name is another
    /// owner.
    pub(crate) fn covers(&self, object: &CachedObject) -> bool {
        self.coverage.has(&self.policy, self.identity(), &self.target, object)
    }

    /// Whether it covers the object under a storage key by its name.
    pub(crate) fn covers_key(&self, key: &str) -> bool {
        let (namespace, name) = storage_key::name_of(key);
        self.coverage.names(namespace.unwrap_or_default(), name)
    }

    /// The permit as it is decided now, if the permissions have changed. They are at least as new as an object that
    /// was read before this call.
    ///
    /// # Errors
    /// The errors of [`Permit::decide`]; 401 if the key is no longer valid.
    pub(crate) fn renewed(
        &self,
        cache: &Cache,
        source: &dyn Source,
    ) -> Result<Option<Self>, ApiError> {
        if self.credential.is_server() || self.credential.is_known_at(cache.access_version()) {
            return Ok(None);
        }
        let mut renewed = self.clone();
        let version = cache.access_version();
        let policy = cache.policy();
        if let Some(current) = self.credential.current(cache, &policy, source.now())? {
            renewed.credential = self.credential.renewed(&current).known_at(version);
        }
        renewed.under(policy).map(Some)
    }

    /// The permit under another snapshot of the policy.
    ///
    /// # Errors
    /// The errors of [`Permit::decide`].
    pub(crate) fn under(&self, policy: Arc<PolicyAt>) -> Result<Self, ApiError> {
        check_impersonation(&self.credential, &policy)?;
        let coverage = self.coverage.under(&policy, self.identity(), &self.target)?;
        Ok(Self { policy, coverage, ..self.clone() })
    }

    /// The permit with another snapshot of the policy, if both have the same grants for the target. This fast check
    /// needs no decision.
    pub(crate) fn under_same_grants(&self, policy: &Arc<PolicyAt>) -> Option<Self> {
        let info = self.target.requested().info();
        let mut resources = vec![(info.version.group, info.plural)];
        if self.kind().is_delegated() {
            resources.extend(["users", "teams"].map(|of| (MANAGEMENT_V1.group, of)));
        }
        let is_same = resources.into_iter().all(|(group, resource)| {
            self.policy.same_sources(policy, self.identity(), group, resource)
        });
        is_same.then(|| Self { policy: policy.clone(), ..self.clone() })
    }

    /// The permit of the same caller after its identity has changed.
    ///
    /// # Errors
    /// The errors of [`Permit::decide`].
    pub(crate) fn as_identified(&self, credential: Credential) -> Result<Self, ApiError> {
        Self { credential, ..self.clone() }.under(self.policy.clone())
    }

    /// Whether the caller also has this verb on the object of the permit.
    pub(crate) fn may(&self, verb: Verb, object: Option<&CachedObject>) -> bool {
        self.caller_may(verb.as_str(), self.target.namespace.as_deref(), self.name())
            || object.and_then(|object| object.owner()).is_some_and(|owned| {
                holds_by_owner(&self.policy, self.identity(), &self.target, owned, verb)
            })
    }

    /// Whether it covers a new object with this owner. The owner is the present principal of the
    /// name.
    fn covers_owned_by(&self, owner: Option<&Owner>) -> bool {
        let delegated = |owner| self.kind().delegated_right(self.target.verb, owner);
        self.covers_all()
            || owner.and_then(delegated).is_some_and(|right| self.holds(&right.into()))
    }

    /// Checks that it [covers](Permit::covers) an object.
    ///
    /// # Errors
    /// 403 in the words of kube-apiserver for callers that may get it; 404 for others.
    pub(crate) fn check(&self, object: &CachedObject) -> Result<(), ApiError> {
        if self.covers(object) {
            return Ok(());
        }
        if self.may(Verb::Get, Some(object)) { Err(self.forbidden()) } else { Err(self.refused()) }
    }

    fn refused(&self) -> ApiError {
        refused(&self.policy, self.identity(), &self.target)
    }

    fn forbidden(&self) -> ApiError {
        forbidden(&self.policy, self.identity(), &self.target, &attributes_of(&self.target))
    }

    /// Checks that it covers a new object with this owner.
    ///
    /// # Errors
    /// 403 in the words of kube-apiserver, with the permission on the owner that is enough.
    pub(crate) fn check_owned_by(&self, owner: Option<&Owner>) -> Result<(), ApiError> {
        if self.covers_owned_by(owner) {
            return Ok(());
        }
        let right = owner.and_then(|owner| self.kind().delegated_right(self.target.verb, owner));
        Err(match right {
            Some(Right { verb, resource, name, .. }) => self.forbidden().with_hint(&format!(
                "{verb} on {resource}/{name} is enough, because it is the owner"
            )),
            None => self.forbidden(),
        })
    }

    /// Checks that it covers a corrupt object, of which only the name is known.
    ///
    /// # Errors
    /// The errors of [`Permit::check`].
    pub(crate) fn check_corrupt(&self) -> Result<(), ApiError> {
        let namespace = self.target.namespace.as_deref().unwrap_or_default();
        if self.coverage.names(namespace, self.name()) { Ok(()) } else { Err(self.refused()) }
    }

    /// Checks a permission that a write requires in addition to the verb.
    ///
    /// # Errors
    /// 403 with the first of the sufficient permissions.
    pub(crate) fn check_right(&self, required: &RequiredRight) -> Result<(), ApiError> {
        if self.holds(required) {
            return Ok(());
        }
        let error =
            forbidden(&self.policy, self.identity(), &self.target, &required.first().into());
        Err(if required.hint().is_empty() { error } else { error.with_hint(required.hint()) })
    }

    /// Whether the caller meets a requirement.
    pub(crate) fn has(&self, required: &RequiredRight) -> bool {
        self.holds(required)
    }

    fn holds(&self, required: &RequiredRight) -> bool {
        self.policy.satisfies(self.identity(), required)
    }

    /// Whether the caller has this verb on an object of the permit's kind.
    pub(crate) fn caller_may(&self, verb: &str, namespace: Option<&str>, name: &str) -> bool {
        self.caller_may_under(&self.policy, verb, namespace, name)
    }

    /// Whether the caller has this verb under another snapshot of the policy.
    pub(crate) fn caller_may_under(
        &self,
        policy: &Policy,
        verb: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> bool {
        let info = self.target.requested().info();
        let attributes = Attributes::Resource {
            verb,
            group: info.version.group,
            resource: info.plural,
            subresource: "",
            namespace: namespace.unwrap_or_default(),
            name,
        };
        policy.decide(self.identity(), &attributes) == Decision::Allow
    }
}

/// Whether a request would be allowed. Access reviews use it, so they are decided like requests. `only_owner` is the only
/// owner for whom the caller's key may create something, if there is one. `object` returns the object of the request, if
/// it exists.
pub(crate) fn would_allow(
    policy: &Policy,
    identity: &Identity,
    target: &ResourceTarget,
    only_owner: Option<&Owner>,
    object: impl FnOnce() -> Option<Arc<CachedObject>>,
) -> bool {
    let Ok(coverage) = Coverage::of(policy, identity, target) else { return false };
    let is_for_one_object =
        matches!(target.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    match &coverage {
        _ if target.verb == Verb::Create && target.action.is_none() => {
            (coverage.is_all() && !target.kind.needs_right_on_owner()
                || may_create_for_owner(policy, identity, target.kind, only_owner))
                && missing_to_create(policy, identity, target.kind).is_none()
        }
        Coverage::All => true,
        // A list is open to every caller, and contains the objects that the caller may get.
        Coverage::Some(_) if !is_for_one_object => true,
        Coverage::Some(_) | Coverage::KeysOf(_) => {
            object().is_some_and(|object| coverage.has(policy, identity, target, &object))
        }
    }
}

/// Whether the caller may create an object of a kind for this owner, or for any one, by a permission on the owner.
fn may_create_for_owner(
    policy: &Policy,
    identity: &Identity,
    kind: &dyn AnyKind,
    only_owner: Option<&Owner>,
) -> bool {
    match only_owner {
        Some(owner) => kind
            .delegated_right(Verb::Create, owner)
            .is_some_and(|right| policy.satisfies(identity, &right.into())),
        None => kind
            .verb_on_owner(Verb::Create)
            .is_some_and(|verb| policy.may_on_any_owner(identity, verb)),
    }
}

/// The first permission that every create of a kind requires, and that the caller lacks.
pub(crate) fn missing_to_create(
    policy: &Policy,
    identity: &Identity,
    kind: &dyn AnyKind,
) -> Option<RequiredRight> {
    kind.rights_to_create().into_iter().find(|right| !policy.satisfies(identity, right))
}

/// A 403 without the missing permission.
fn forbidden_without_hint(
    identity: &Identity,
    target: &ResourceTarget,
    attributes: &Attributes<'_>,
) -> ApiError {
    let name = target.name.as_deref().unwrap_or_default();
    let text = forbidden_message(identity, attributes);
    ApiError::forbidden(target.requested().info().group_resource(), name, &text)
}

/// A 403. If the caller has any permission on the kind, it has the missing rule as YAML. The rule follows from the
/// request alone.
fn forbidden(
    policy: &Policy,
    identity: &Identity,
    target: &ResourceTarget,
    attributes: &Attributes<'_>,
) -> ApiError {
    let info = target.requested().info();
    let error = forbidden_without_hint(identity, target, attributes);
    if !policy.may_have_permission(identity, info.version.group, info.plural) {
        return error;
    }
    let explanation = policy.explain(identity, attributes);
    let rule =
        explanation.missing_rule.iter().map(|missing| (MISSING_RULE, rule_yaml(&missing.rule)));
    // Each scope of a chain of keys lacks the same entry.
    let scopes = explanation.refusing_scopes.iter().take(1);
    let scopes = scopes.map(|refusing| (MISSING_SCOPE, scope_yaml(&refusing.missing)));
    rule.chain(scopes).fold(error, |error, (reason, message)| {
        error.with_cause(StatusCause { reason: reason.to_owned(), message, field: String::new() })
    })
}

#[cfg(test)]
mod tests;
