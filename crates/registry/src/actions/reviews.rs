//! Reviews: the permissions of the caller or of another subject, and the identity of the bearer of a token. They use
//! the same decisions as requests, and are never stored. `who_can` has the inverse: the subjects with a permission.

use std::collections::BTreeMap;

use postern_auth::bearer::BearerToken;
use postern_auth::identity::{AUTHENTICATED_GROUP, Identity};
use postern_kinds::action::Review;
use postern_kinds::rbac::PolicyRule;
use postern_kinds::reviews::self_subject_rules_review;
use postern_kinds::reviews::{
    AccessStatus, SubjectSpec, UserInfo, self_subject_access_review, self_subject_review,
    token_review,
};
use postern_kinds::{Impersonation, Verb, all};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::decider::Decider;
use super::who_can;
use crate::admit;
use crate::permit::{Permit, is_filtered};
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
    review: Review,
    posted: Option<Object>,
) -> Result<EncodedObject, ApiError> {
    let posted = posted.ok_or_else(|| ApiError::bad_request("the request body is missing"))?;
    // Read before the preparation, which removes fields that must not be returned.
    let token: Option<token_review::Spec> = field(&posted, "spec");
    let mut object = admit::review(&registry.admission(), permit, posted)?;
    registry.cache().wait_until_current().await?;
    let decider = Decider { registry, policy: registry.cache().policy() };
    let caller = permit.identity();
    let status = match review {
        Review::SelfSubjectAccess => {
            let spec: self_subject_access_review::Spec = field(&object, "spec").unwrap_or_default();
            let (resource, path) = (spec.resource_attributes, spec.non_resource_attributes);
            encoded(decider.access(caller, resource.as_ref(), path.as_ref()))
        }
        Review::SubjectAccess => {
            let spec: SubjectSpec = field(&object, "spec").unwrap_or_default();
            encoded(access_of_subject(registry, &decider, &spec))
        }
        Review::SelfSubjectRules => {
            let spec: self_subject_rules_review::Spec = field(&object, "spec").unwrap_or_default();
            encoded(rules_of(&decider, caller, &spec.namespace))
        }
        Review::SelfSubject => {
            encoded(self_subject_review::Status { user_info: user_info(caller) })
        }
        Review::Token => encoded(token_status(registry, &token.unwrap_or_default())),
        Review::ResourceAccess => {
            let spec = field(&object, "spec").unwrap_or_default();
            let asker = who_can::asker(permit, &decider, &spec)?;
            encoded(who_can::status(registry, permit, &decider, &spec, asker).await)
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
