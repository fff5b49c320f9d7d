//! Reviews: the permissions of the caller or of another subject, and the identity of the bearer of a token. They use
//! the same decisions as requests, and are never stored. `who_can` has the inverse: the subjects with a permission.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::bearer::BearerToken;
use postern_auth::explanation::{Explanation, PolicyName, Source, rule_yaml, scope_yaml};
use postern_auth::identity::{AUTHENTICATED_GROUP, Identity};
use postern_auth::policy::Decision;
use postern_kinds::access::{MadeFor, made_for};
use postern_kinds::action::{ActionRight, ServerAction};
use postern_kinds::rbac::{BoundSubject, PolicyRule};
use postern_kinds::reviews::self_subject_rules_review;
use postern_kinds::reviews::{
    AccessStatus, NonResourceAttributes, ResourceAttributes, SubjectSpec, UserInfo,
    resource_access_review, self_subject_access_review, self_subject_review, token_review,
    unknown_in, unknown_verb_of_path,
};
use postern_kinds::{AnyKind, Impersonation, Owner, Right, Verb, all};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::key_limits::KeyLimits;
use crate::admit;
use crate::cache::PolicyAt;
use crate::permit::{Permit, is_filtered, missing_to_create, would_allow};
use crate::permit::{ResourceTarget, stored_kind};
use crate::registry::deciding::ForDecision;
use crate::registry::{EncodedObject, Registry};

/// The extra field with the name of an access key. The review is then about its bearer.
pub(super) const ACCESS_KEY_EXTRA: &str = "platform.sh/access-key";

/// The extra field with the scopes of an access key and of its makers, each as JSON. All of them must allow a
/// request.
const SCOPE_EXTRA: &str = "platform.sh/access-key-scope";

/// The audience with which a reviewer states that it applies the scopes of access keys.
const SCOPED_AUDIENCE: &str = "platform.sh/scoped";

/// A review with its status.
///
/// # Errors
/// 400 and 422 for an invalid review.
pub(super) async fn review(
    registry: &Registry,
    permit: &Permit,
    action: ServerAction,
    posted: Option<Object>,
) -> Result<EncodedObject, ApiError> {
    let posted = posted.ok_or_else(|| ApiError::bad_request("the request body is missing"))?;
    // Read before the preparation, which removes fields that must not be returned.
    let token: Option<token_review::Spec> = field(&posted, "spec");
    let mut object = admit::review(&registry.admission(), permit, posted)?;
    registry.cache().wait_until_current().await?;
    let decider = Decider { registry, policy: registry.cache().policy() };
    let caller = permit.identity();
    let status = match action {
        ServerAction::SelfSubjectAccessReview => {
            let spec: self_subject_access_review::Spec = field(&object, "spec").unwrap_or_default();
            let (resource, path) = (spec.resource_attributes, spec.non_resource_attributes);
            encoded(decider.access(caller, resource.as_ref(), path.as_ref()))
        }
        ServerAction::SubjectAccessReview | ServerAction::LocalSubjectAccessReview => {
            let spec: SubjectSpec = field(&object, "spec").unwrap_or_default();
            encoded(access_of_subject(registry, &decider, &spec))
        }
        ServerAction::SelfSubjectRulesReview => {
            let spec: self_subject_rules_review::Spec = field(&object, "spec").unwrap_or_default();
            encoded(rules_of(&decider, caller, &spec.namespace))
        }
        ServerAction::SelfSubjectReview => {
            encoded(self_subject_review::Status { user_info: user_info(caller) })
        }
        ServerAction::TokenReview => encoded(token_status(registry, &token.unwrap_or_default())),
        ServerAction::ResourceAccessReview => {
            let spec = field(&object, "spec").unwrap_or_default();
            let asker = super::who_can::asker(permit, &decider, &spec)?;
            encoded(super::who_can::status(registry, &decider, &spec, asker).await)
        }
        ServerAction::WhoAmI
        | ServerAction::AccessKeysOfOwner
        | ServerAction::AccessPreview
        | ServerAction::ConsoleSession
        | ServerAction::ConsoleLoginCode
        | ServerAction::CommandLineConsent
        | ServerAction::ProjectMembers
        | ServerAction::ProjectClusters
        | ServerAction::MigrateVirtualClusterInstance
        | ServerAction::IssueEndpointToken
        | ServerAction::AgentConfig
        | ServerAction::ReportAuditEvents
        | ServerAction::Tunnel
        | ServerAction::TestConnector => {
            return Err(ApiError::resource_not_served());
        }
    };
    object.fields.insert("status".to_owned(), status);
    object.metadata.creation_timestamp = None;
    EncodedObject::for_action(permit, permit.kind(), &object)
}

fn field<T: DeserializeOwned>(object: &Object, name: &str) -> Option<T> {
    T::deserialize(object.fields.get(name)?).ok()
}

fn encoded(status: impl Serialize) -> Value {
    serde_json::to_value(status).unwrap_or(Value::Null)
}

/// The state that reviews are decided with: one snapshot of the policy, and the objects.
pub(super) struct Decider<'a> {
    pub(super) registry: &'a Registry,
    pub(super) policy: Arc<PolicyAt>,
}

impl Decider<'_> {
    /// Whether an identity may do this, and the reason.
    fn access(
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

    /// The explanation of a create, of which a permission on the kind has another one: a caller may also create something
    /// for itself, and some kinds require more permissions.
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

fn of_resource(asked: &ResourceAttributes) -> Attributes<'_> {
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
    kind_of(group, resource)?.partial_right(verb, name)
}

/// The served kind with a group and a plural name, in any version.
pub(super) fn kind_of(group: &str, resource: &str) -> Option<&'static dyn AnyKind> {
    all().iter().copied().find(|kind| {
        let info = kind.info();
        info.version.group == group && info.plural == resource
    })
}

/// The attributes of a path. Paths that describe the API are open, as they are for requests.
fn of_path<'a>(verb: &'a str, path: &'a str) -> Attributes<'a> {
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

/// The status of a review of another subject: a user with groups, or the bearer of an access key.
fn access_of_subject(
    registry: &Registry,
    decider: &Decider<'_>,
    spec: &SubjectSpec,
) -> AccessStatus {
    let refused = |reason: &str| AccessStatus { reason: reason.to_owned(), ..Default::default() };
    let principals = registry.cache().principals();
    let (resource, path) =
        (spec.resource_attributes.as_ref(), spec.non_resource_attributes.as_ref());
    if let Some(keys) = spec.extra.get(ACCESS_KEY_EXTRA) {
        let [key] = keys.as_slice() else { return refused("only one access key is allowed") };
        let now = registry.source().now().unix_seconds();
        return match principals.identify_by_name(key, now, &decider.policy) {
            Ok(key) if spec.user.is_empty() || spec.user == key.identity.name => {
                decider.access(&key.identity, resource, path)
            }
            Ok(_) => refused("the access key does not belong to this user"),
            Err(refusal) => refused(refusal.message()),
        };
    }
    let wanted = Impersonation {
        user: spec.user.clone(),
        groups: spec.groups.clone(),
        uid: spec.uid.clone(),
        extra: spec.extra.clone(),
    };
    let impersonated = principals.impersonate(&wanted, &Identity::default());
    if impersonated.disabled {
        return refused("the user is disabled");
    }
    decider.access(&impersonated.identity, resource, path)
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

fn rules_of(
    decider: &Decider<'_>,
    identity: &Identity,
    namespace: &str,
) -> self_subject_rules_review::Status {
    let mut rules = decider.policy.rules_of(identity, namespace);
    // Lists and watches of these are open to every caller, and contain the objects that the caller may get.
    let listed = all().iter().map(|kind| kind.info()).filter(|info| {
        let (group, plural) = (info.version.group, info.plural);
        is_filtered(info)
            && identity.is_in(AUTHENTICATED_GROUP)
            && decider.policy.scope_can_match(identity, Verb::Get.as_str(), group, plural)
    });
    let mut by_group: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for info in listed {
        by_group.entry(info.version.group).or_default().push(info.plural.to_owned());
    }
    for (group, resources) in by_group {
        rules.resource_rules.push(PolicyRule {
            verbs: [Verb::List, Verb::Watch].map(|verb| verb.as_str().to_owned()).to_vec(),
            api_groups: vec![group.to_owned()],
            resources,
            ..PolicyRule::default()
        });
    }
    rules.into()
}

fn user_info(identity: &Identity) -> UserInfo {
    let mut extra = identity.extra.clone();
    if !identity.access_key.is_empty() && !identity.is_impersonated {
        extra.insert(ACCESS_KEY_EXTRA.to_owned(), vec![identity.access_key.clone()]);
    }
    if identity.is_scoped() {
        let scopes = identity.scopes.iter().map(|scope| encoded(scope.source()).to_string());
        extra.insert(SCOPE_EXTRA.to_owned(), scopes.collect());
    }
    UserInfo {
        username: identity.name.clone(),
        uid: identity.uid.clone(),
        groups: identity.groups.clone(),
        extra,
    }
}

/// The status of a token: the identity of its bearer. Access keys are for this server, which is their only audience.
/// A reviewer that applies the scopes of keys sends the audience `platform.sh/scoped`.
fn token_status(registry: &Registry, spec: &token_review::Spec) -> token_review::Status {
    let failed = |error: &str| token_review::Status {
        error: error.to_owned(),
        ..token_review::Status::default()
    };
    let is_for_scoped = spec.audiences.iter().any(|audience| audience == SCOPED_AUDIENCE);
    if !spec.audiences.is_empty() && !is_for_scoped {
        return failed("access keys have no audience: request none, or platform.sh/scoped");
    }
    let digest = registry.digester().digest(&BearerToken::of_key(&spec.token));
    let now = registry.source().now().unix_seconds();
    let cache = registry.cache();
    match cache.principals().identify(&digest, now, &cache.policy()) {
        // A client that does not know scopes would give the key all permissions of its owner.
        Ok(key) if key.identity.is_scoped() && !is_for_scoped => failed(
            "the access key has a scope: request the audience platform.sh/scoped, and apply the scopes in the \
             extra field platform.sh/access-key-scope",
        ),
        Ok(key) => token_review::Status {
            authenticated: true,
            user: user_info(&key.identity),
            audiences: is_for_scoped.then(|| SCOPED_AUDIENCE.to_owned()).into_iter().collect(),
            ..token_review::Status::default()
        },
        Err(refusal) => failed(refusal.message()),
    }
}
