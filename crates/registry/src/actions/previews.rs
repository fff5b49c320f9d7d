//! Previews: the decisions about several requests of the caller, and the permissions of a key with
//! a scope before the key exists. They use the same decisions as requests, and nothing is stored.

use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::identity::Identity;
use postern_auth::policy::Readable;
use postern_auth::scope::{ReachableClusters, ScopeRules, contains};
use postern_kinds::console_login_code::ConsoleLoginCode;
use postern_kinds::console_session::ConsoleSession;
use postern_kinds::direct_cluster_endpoint_token::DirectClusterEndpointToken;
use postern_kinds::reviews::access_preview::{
    AccessPreview, Fields, MissingRule, PreviewedRequest, PreviewedScope, ReachedKind, Status,
};
use postern_kinds::reviews::resource_access_review;
use postern_kinds::scope::Scope;
use postern_kinds::{AnyKind, Verb, all};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Deserialize;

use super::decider::{Decider, attributes_of, reason, with_unknown};
use super::endpoint_tokens::{check_forwarded, reached_clusters};
use super::sessions::{check_may_begin, current};
use crate::admit;
use crate::permit::{Permit, missing_to_create};
use crate::registry::{EncodedObject, Registry};

/// The requests that are decided, or the kinds that are checked, before other tasks get the thread.
const PER_STEP: usize = 16;

/// The most clusters in a response.
const MAX_CLUSTERS: usize = 1000;

/// A preview with its status.
///
/// # Errors
/// 422 for an invalid preview.
pub(super) async fn preview(
    registry: &Registry,
    permit: &Permit,
    posted: Option<Object>,
) -> Result<EncodedObject, ApiError> {
    let posted = posted.ok_or_else(|| ApiError::bad_request("the request body is missing"))?;
    let mut object = admit::review(&registry.admission(), permit, posted)?;
    let spec = Fields::deserialize(&object.fields).unwrap_or_default().spec;
    registry.cache().wait_until_current().await?;
    let decider = Decider { registry, policy: registry.cache().policy() };
    let caller = permit.identity();
    let identity = match &spec.scope {
        Some(scope) => with_scope(caller, scope)?,
        None => caller.clone(),
    };
    let mut status = Status::default();
    for (index, request) in spec.requests.iter().enumerate() {
        if index % PER_STEP == PER_STEP - 1 {
            tokio::task::yield_now().await;
        }
        let (mut allowed, mut explanation) = decider.decision(&identity, attributes_of(request));
        let refusal = || {
            // A session with the scope would be one of the new key, which is no session itself.
            let of_session =
                spec.scope.is_none().then(|| refusal_of_session(registry, permit, request));
            refusal_of_token(registry, permit, request).or_else(|| of_session.flatten())
        };
        if allowed && let Some(refusal) = refusal() {
            (allowed, explanation.limit) = (false, Some(refusal));
        }
        let missing_rule = explanation.missing_rule.as_ref().map(|missing| MissingRule {
            namespace: missing.namespace.clone().unwrap_or_default(),
            rule: missing.rule.clone(),
        });
        let missing_scope = explanation.refusing_scopes.first().map(|one| one.missing.clone());
        status.results.push(PreviewedRequest {
            allowed,
            reason: with_unknown(&attributes_of(request), reason(allowed, &explanation, &identity)),
            missing_rule: missing_rule.filter(|_| !allowed),
            missing_scope: missing_scope.filter(|_| !allowed),
        });
    }
    if let Some(scope) = &spec.scope {
        status.scope = Some(of_scope(&decider, caller, &identity, scope).await?);
    }
    let Ok(status) = serde_json::to_value(status) else {
        return Err(ApiError::internal("the preview could not be encoded", "its status"));
    };
    object.fields.insert("status".to_owned(), status);
    object.metadata.creation_timestamp = None;
    EncodedObject::for_action(permit, permit.kind(), &object)
}

/// Why the caller gets no endpoint token: agents could not act as the identity that it impersonates.
fn refusal_of_token(
    registry: &Registry,
    permit: &Permit,
    request: &resource_access_review::Spec,
) -> Option<String> {
    let is_token = creates(request, &DirectClusterEndpointToken);
    let refused = |error: ApiError| error.to_string();
    is_token.then(|| check_forwarded(registry, permit).err().map(refused)).flatten()
}

/// Why the caller can begin no session and get no login link: with a session, under impersonation, or with too many
/// sessions.
fn refusal_of_session(
    registry: &Registry,
    permit: &Permit,
    request: &resource_access_review::Spec,
) -> Option<String> {
    let is_session = creates(request, &ConsoleSession) || creates(request, &ConsoleLoginCode);
    let check = || check_may_begin(registry, permit, &*current(registry, permit)?);
    is_session.then(|| check().err().map(|error| error.to_string())).flatten()
}

/// Whether a request creates an object of a kind.
fn creates(request: &resource_access_review::Spec, kind: &dyn AnyKind) -> bool {
    let info = kind.info();
    request.verb == Verb::Create.as_str()
        && (request.group.as_str(), request.resource.as_str()) == (info.version.group, info.plural)
}

/// The identity of a key that the caller would create with a scope: a key of the same owner, within the scopes of the
/// caller's key.
///
/// # Errors
/// 422 under impersonation: the key would be one of the impersonated user, without the other parts of the identity.
fn with_scope(caller: &Identity, scope: &Scope) -> Result<Identity, ApiError> {
    if caller.is_impersonated {
        let mut errors = FieldErrors::new();
        let detail = "cannot be previewed under impersonation";
        errors.push(FieldError::forbidden("spec.scope", detail));
        return Err(ApiError::invalid(AccessPreview.info().group_kind(), "", errors));
    }
    let mut identity = caller.clone();
    // The key does not exist yet, so it has created none.
    identity.access_key = String::new();
    identity.scopes.insert(0, Arc::new(ScopeRules::new(scope)));
    Ok(identity)
}

/// The effect of a scope on the key with this identity.
async fn of_scope(
    decider: &Decider<'_>,
    caller: &Identity,
    identity: &Identity,
    scope: &Scope,
) -> Result<PreviewedScope, ApiError> {
    let policy = &decider.policy;
    let contained = contains(&caller.scopes, scope, policy.projects());
    let (every_cluster, clusters) = match reached_clusters(decider.registry, policy, identity)
        .await?
    {
        ReachableClusters::Every => (true, Vec::new()),
        ReachableClusters::Only(names) => (false, names.into_iter().take(MAX_CLUSTERS).collect()),
    };
    let mut kinds = Vec::new();
    for (index, kind) in all().iter().enumerate() {
        if index % PER_STEP == PER_STEP - 1 {
            tokio::task::yield_now().await;
        }
        kinds.extend(reached_kind(decider, identity, *kind));
    }
    Ok(PreviewedScope {
        contained: contained.is_ok(),
        not_contained: contained.err().unwrap_or_default(),
        kinds,
        every_cluster,
        clusters,
    })
}

/// The verbs of an identity on the objects of a kind; `None` if there are none.
fn reached_kind(
    decider: &Decider<'_>,
    identity: &Identity,
    kind: &dyn AnyKind,
) -> Option<ReachedKind> {
    let info = kind.info();
    let (group, plural) = (info.version.group, info.plural);
    let mut reached = ReachedKind {
        group: group.to_owned(),
        resource: plural.to_owned(),
        ..ReachedKind::default()
    };
    let is_limited = |verb| kind.is_delegated() && matches!(verb, Verb::Update | Verb::Patch);
    // A kind without objects, such as CustomResourceDefinition, is open to everyone and reaches nothing.
    let has_objects = info.is_stored() && info.serves(Verb::Create);
    for verb in Verb::ALL.iter().copied().filter(|verb| has_objects && info.serves(*verb)) {
        if verb == Verb::Create && !may_create(decider, identity, kind) {
            continue;
        }
        let by_owner = || {
            kind.verb_on_owner(verb).is_some_and(|on_owner| {
                verb == Verb::Create
                    || (decider.policy.has_right_on_any_owner(identity, on_owner)
                        && decider.policy.scope_can_match(identity, verb.as_str(), group, plural))
            })
        };
        match decider.policy.readable(identity, verb.as_str(), group, plural) {
            // A key with a scope changes only the keys that it has created.
            Readable::All if is_limited(verb) => reached.some.push(verb.as_str().to_owned()),
            Readable::All => reached.all.push(verb.as_str().to_owned()),
            some if !some.is_empty() || by_owner() => reached.some.push(verb.as_str().to_owned()),
            Readable::Some { .. } => {}
        }
    }
    (!reached.all.is_empty() || !reached.some.is_empty()).then_some(reached)
}

/// Whether an identity may create objects of a kind, as far as permissions on other objects decide.
fn may_create(decider: &Decider<'_>, identity: &Identity, kind: &dyn AnyKind) -> bool {
    let info = kind.info();
    let attributes = Attributes::Resource {
        verb: Verb::Create.as_str(),
        group: info.version.group,
        resource: info.plural,
        subresource: "",
        namespace: "",
        name: "",
    };
    let by_owner = !kind.is_delegated() || decider.allows(identity, &attributes);
    by_owner && missing_to_create(&decider.policy, identity, kind).is_none()
}
