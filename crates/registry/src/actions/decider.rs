//! The decisions that reviews are made of: the policy, the attributes of a request in it, and the reason in words.

use std::fmt::Write as _;
use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::explanation::{Explanation, PolicyName, Source, rule_yaml, scope_yaml};
use postern_auth::identity::Identity;
use postern_auth::policy::Decision;
use postern_kinds::access::{MadeFor, made_for};
use postern_kinds::action::ActionRight;
use postern_kinds::rbac::BoundSubject;
use postern_kinds::reviews::{
    AccessStatus, NonResourceAttributes, ResourceAttributes, resource_access_review, unknown_in,
    unknown_verb_of_path,
};
use postern_kinds::{AnyKind, Owner, Right, Verb, all};

use super::key_limits::KeyLimits;
use crate::cache::PolicyAt;
use crate::permit::{ResourceTarget, stored_kind};
use crate::permit::{missing_to_create, would_allow};
use crate::registry::Registry;
use crate::registry::deciding::ForDecision;

/// The state that reviews are decided with: one snapshot of the policy, and the objects.
pub(super) struct Decider<'a> {
    pub(super) registry: &'a Registry,
    pub(super) policy: Arc<PolicyAt>,
}

impl Decider<'_> {
    /// Whether an identity may do this, and the reason.
    pub(super) fn access(
        &self,
        identity: &Identity,
        resource: Option<&ResourceAttributes>,
        path: Option<&NonResourceAttributes>,
    ) -> AccessStatus {
        let attributes = match (resource, path) {
            (Some(resource), _) => without_needless_namespace(of_resource(resource)),
            (None, Some(asked)) => of_path(&asked.verb, &asked.path),
            (None, None) => return AccessStatus::default(),
        };
        let (allowed, explanation) = self.decision(identity, attributes);
        let reason = reason(allowed, &explanation, identity);
        let reason = with_unknown(&attributes, reason);
        AccessStatus { allowed, reason, ..AccessStatus::default() }
    }

    /// The decision about a request, and what gives the permission or is missing.
    pub(super) fn decision(
        &self,
        identity: &Identity,
        attributes: Attributes<'_>,
    ) -> (bool, Explanation) {
        let allowed = self.allows(identity, &attributes);
        let mut explanation = self.explain(identity, &as_decided(attributes));
        if explanation.is_allowed() {
            explanation.limit = self.key_limit(identity, &attributes);
        }
        if allowed || !explanation.is_allowed() {
            return (allowed, explanation);
        }
        // A list is decided by the objects that the caller may get.
        let of_objects = of_listed_objects(attributes);
        (allowed, of_objects.map_or(explanation, |attributes| self.explain(identity, &attributes)))
    }

    /// The source of an identity's permission, or the missing rule. If only a permission on a part of the object
    /// allows the write, the source is that permission.
    fn explain(&self, identity: &Identity, attributes: &Attributes<'_>) -> Explanation {
        let explanation = self.policy.explain(identity, attributes);
        let partial = partial_right(attributes).filter(|_| explanation.source.is_none());
        let by_part = partial.map(|right| self.policy.explain(identity, &(&right).into()));
        if let Some(by_part) = by_part.filter(|found| found.source.is_some()) {
            return by_part;
        }
        match target_of(attributes).filter(|target| target.verb == Verb::Create) {
            Some(target) => self.explain_create(identity, &target, explanation),
            None => explanation,
        }
    }

    /// The explanation of a create, which needs more than the permission on the kind. A caller may
    /// also create an object for itself, and some kinds require more permissions.
    fn explain_create(
        &self,
        identity: &Identity,
        target: &ResourceTarget,
        on_kind: Explanation,
    ) -> Explanation {
        let policy = &self.policy;
        if on_kind.is_allowed()
            && let Some(missing) = missing_to_create(policy, identity, target.kind)
        {
            return policy.explain(identity, &missing.first().into());
        }
        let owner = identity.user.clone().map(Owner::User);
        let owner = owner.or_else(|| identity.team.clone().map(Owner::Team));
        let right = owner.and_then(|owner| target.kind.delegated_right(Verb::Create, &owner));
        let is_needed = on_kind.source.is_none() || target.kind.needs_right_on_owner();
        let Some(right) = right.filter(|_| target.action.is_none() && is_needed) else {
            return on_kind;
        };
        let mut on_owner = policy.explain(identity, &(&right).into());
        if on_owner.source.is_none() {
            return if on_kind.is_allowed() { on_owner } else { on_kind };
        }
        // The scope has to allow requests to the kind, too.
        let info = target.kind.info();
        let can_match = |verb: Verb| {
            policy.scope_can_match(identity, verb.as_str(), info.version.group, info.plural)
        };
        if !can_match(Verb::Create) && !can_match(Verb::Get) {
            on_owner.add_refusing_scopes(on_kind.refusing_scopes);
        }
        on_owner
    }

    /// Why the limits of the caller's access key rule out a change of this object.
    fn key_limit(&self, identity: &Identity, attributes: &Attributes<'_>) -> Option<String> {
        let target = target_of(attributes)?;
        let limits = KeyLimits::of(self.registry, &self.policy, identity, &target)?;
        limits.refusal(self.registry, &target)
    }

    /// Whether a request would be allowed, by the same decision as for the request.
    pub(super) fn allows(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        match target_of(attributes) {
            Some(target) => {
                let limits = KeyLimits::of(self.registry, &self.policy, identity, &target);
                let only_owner = limits.as_ref().and_then(KeyLimits::only_owner);
                let object = || {
                    let (namespace, name) = (target.namespace.as_deref(), target.name.as_deref()?);
                    let found = self.registry.read_to_decide(target.kind, namespace, name);
                    found.ok().flatten().map(ForDecision::into_cached)
                };
                let limit = |limits: &KeyLimits| limits.refusal(self.registry, &target);
                would_allow(&self.policy, identity, &target, only_owner, object)
                    && limits.as_ref().and_then(limit).is_none()
            }
            None => self.policy.decide(identity, attributes) == Decision::Allow,
        }
    }
}

/// The reason, after the part of the question that does not exist: a mistyped word is no missing permission.
pub(super) fn with_unknown(asked: &Attributes<'_>, reason: String) -> String {
    let unknown = match *asked {
        Attributes::Resource { verb, group, resource, .. } => {
            unknown_in(verb, group, resource, all())
        }
        Attributes::Path { verb, .. } | Attributes::Description { verb, .. } => {
            unknown_verb_of_path(verb)
        }
    };
    match unknown {
        Some(unknown) if reason.is_empty() => unknown,
        Some(unknown) => format!("{unknown}\n{reason}"),
        None => reason,
    }
}

/// The attributes of a request to a resource or a path.
pub(super) fn attributes_of(asked: &resource_access_review::Spec) -> Attributes<'_> {
    let resource_access_review::Spec { verb, group, resource, subresource, name, namespace, path } =
        asked;
    if !path.is_empty() {
        return of_path(verb, path);
    }
    let (verb, group, resource) = (verb.as_str(), group.as_str(), resource.as_str());
    without_needless_namespace(Attributes::Resource {
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
    })
}

pub(super) fn of_resource(asked: &ResourceAttributes) -> Attributes<'_> {
    Attributes::Resource {
        verb: &asked.verb,
        group: &asked.group,
        resource: &asked.resource,
        subresource: &asked.subresource,
        namespace: &asked.namespace,
        name: &asked.name,
    }
}

/// The attributes without a namespace, if the resource is cluster-scoped: kubectl sends its own namespace in every
/// review.
pub(super) fn without_needless_namespace(attributes: Attributes<'_>) -> Attributes<'_> {
    let Attributes::Resource { verb, group, resource, subresource, name, .. } = attributes else {
        return attributes;
    };
    match kind_of(group, resource) {
        Some(kind) if !kind.info().is_namespaced() => {
            Attributes::Resource { verb, group, resource, subresource, namespace: "", name }
        }
        _ => attributes,
    }
}

/// The attributes of the permission that a request requires. That of an action may be one on the object itself.
pub(super) fn as_decided(attributes: Attributes<'_>) -> Attributes<'_> {
    let Attributes::Resource { verb, group, resource, subresource, namespace, name } = attributes
    else {
        return attributes;
    };
    let served = Verb::ALL.iter().copied().find(|known| known.as_str() == verb);
    let action = kind_of(group, resource)
        .zip(served)
        .and_then(|(kind, verb)| kind.info().action(subresource, verb));
    let (verb, subresource) = match action.map(|action| action.right) {
        Some(ActionRight::GetObject) => (Verb::Get.as_str(), ""),
        Some(ActionRight::OnObject(verb)) => (verb, ""),
        Some(ActionRight::OnSubresourceAs(verb)) => (verb, subresource),
        Some(ActionRight::OnSubresource) | None => return attributes,
    };
    Attributes::Resource { verb, group, resource, subresource, namespace, name }
}

/// The attributes that decide which objects a list contains; `None` for another request.
fn of_listed_objects(attributes: Attributes<'_>) -> Option<Attributes<'_>> {
    let Attributes::Resource { verb, group, resource, subresource, namespace, name } = attributes
    else {
        return None;
    };
    let verb = match verb {
        "list" | "watch" => Verb::Get.as_str(),
        "deletecollection" => Verb::Delete.as_str(),
        _ => return None,
    };
    Some(Attributes::Resource { verb, group, resource, subresource, namespace, name })
}

/// The permission with which a caller may write a part of the object; `None` if there is none.
pub(super) fn partial_right(attributes: &Attributes<'_>) -> Option<Right> {
    let Attributes::Resource { verb, group, resource, subresource: "", name, .. } = *attributes
    else {
        return None;
    };
    let verb = Verb::ALL.iter().copied().find(|known| known.as_str() == verb)?;
    kind_of(group, resource)?.info().partial_right(verb, name)
}

/// The served kind with a group and a plural name, in any version.
pub(super) fn kind_of(group: &str, resource: &str) -> Option<&'static dyn AnyKind> {
    all().iter().copied().find(|kind| {
        let info = kind.info();
        info.version.group == group && info.plural == resource
    })
}

/// The attributes of a path. Paths that describe the API are open, as they are for requests.
pub(super) fn of_path<'a>(verb: &'a str, path: &'a str) -> Attributes<'a> {
    let described = ["/api", "/apis", "/openapi", "/version"];
    let is_under = |root: &&str| {
        path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if described.iter().any(is_under) {
        Attributes::Description { verb, path }
    } else {
        Attributes::Path { verb, path }
    }
}

/// The target of a request with these attributes; `None` if no request has them, for example for the verb `use`.
fn target_of(attributes: &Attributes<'_>) -> Option<ResourceTarget> {
    let Attributes::Resource { verb, group, resource, subresource, namespace, name } = *attributes
    else {
        return None;
    };
    let kind = kind_of(group, resource)?;
    let verb = Verb::ALL.iter().copied().find(|known| known.as_str() == verb)?;
    let action = kind.info().action(subresource, verb);
    if action.is_none() && !subresource.is_empty() {
        return None;
    }
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (namespace, name) = (given(namespace), given(name));
    let (kind, version) = stored_kind(kind);
    Some(ResourceTarget { kind, verb, namespace, name, action, version })
}

/// The source of the permission, or the rules that would allow the request.
pub(super) fn reason(allowed: bool, explanation: &Explanation, identity: &Identity) -> String {
    if allowed {
        return explanation.source.as_ref().map_or_else(
            || "permissions on single objects, or on their owners, allow it".to_owned(),
            |source| format!("RBAC: allowed by {}", source_text(source)),
        );
    }
    let mut text = String::new();
    if let Some(limit) = &explanation.limit {
        text.clone_from(limit);
    }
    if let Some(missing) = &explanation.missing_rule {
        let place = missing.namespace.as_deref().map_or_else(
            || "everywhere".to_owned(),
            |namespace| format!("in the namespace {namespace}"),
        );
        let _ = write!(
            text,
            "no role of {} allows it; this rule {place} would allow it:\n{}",
            identity.name,
            rule_yaml(&missing.rule)
        );
    }
    for refusing in &explanation.refusing_scopes {
        let which =
            if refusing.index == 0 { "the access key" } else { "the maker of the access key" };
        let missing = scope_yaml(&refusing.missing);
        let _ = write!(
            text,
            "the scope of {which} does not allow it; this entry would allow it:\n{missing}"
        );
    }
    text
}

/// The source of a permission, as text.
pub(super) fn source_text(source: &Source) -> String {
    match source {
        Source::Masters => "membership in system:masters".to_owned(),
        Source::Everyone => "implicit permission of every authenticated caller".to_owned(),
        Source::Themselves => "implicit permission on the own user or team".to_owned(),
        Source::Owner => "ownership of the object".to_owned(),
        Source::Role { binding, role, rule, subject } => {
            let binding_kind =
                if binding.namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
            let role_kind = if role.namespace.is_some() { "Role" } else { "ClusterRole" };
            let subject = match subject {
                BoundSubject::User(name) => format!("User \"{name}\""),
                BoundSubject::Group(name) | BoundSubject::Principal { group: name, .. } => {
                    format!("Group \"{name}\"")
                }
            };
            let is_of_member = made_for(&binding.name) == Some(MadeFor::Members);
            let why = if is_of_member { "member of the project: " } else { "" };
            format!(
                "{why}{binding_kind} \"{}\" of {role_kind} \"{}\" to {subject}, rule {rule}",
                qualified(binding),
                role.name
            )
        }
    }
}

fn qualified(name: &PolicyName) -> String {
    match &name.namespace {
        Some(namespace) => format!("{}/{namespace}", name.name),
        None => name.name.clone(),
    }
}
