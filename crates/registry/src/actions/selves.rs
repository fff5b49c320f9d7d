//! Self: the identity of the caller, and its access key (`docs/reference/authentication.md#self`).

use postern_auth::identity::Identity;
use postern_auth::policy::Readable;
use postern_kinds::AnyKind;
use postern_kinds::owned_access_key::{self, OwnedAccessKey};
use postern_kinds::rbac::ALL;
use postern_kinds::selves::{Fields, SelfKind, Status, TeamInfo, UserInfo};
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::{self, Team};
use postern_kinds::user::{self, User};
use postern_kinds::{COMMON_NAMESPACE, Verb, default_namespace, project_prefix};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::names;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::GetOptions;
use postern_meta::status::ApiError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::credential::is_key;
use crate::permit::{Permit, ResourceTarget};
use crate::registry::{EncodedObject, Registry};

/// The maximum number of namespaces in a response.
const MAX_NAMESPACES: usize = 100;

/// The identity of the caller, in response to a posted Self or to a GET with any name.
///
/// # Errors
/// 403 and 404 for another key that the caller may not read, or that does not exist.
pub(super) async fn who_am_i(
    registry: &Registry,
    permit: &Permit,
    posted: Option<Object>,
) -> Result<EncodedObject, ApiError> {
    let Some(object) = posted else {
        let name = permit.name().to_owned();
        return respond(registry, permit, ObjectMeta { name, ..ObjectMeta::default() }, "").await;
    };
    let spec = Fields::deserialize(&object.fields).unwrap_or_default().spec;
    respond(registry, permit, object.metadata, &spec.access_key).await
}

async fn respond(
    registry: &Registry,
    permit: &Permit,
    metadata: ObjectMeta,
    other_key: &str,
) -> Result<EncodedObject, ApiError> {
    registry.cache().wait_until_current().await?;
    let status = if other_key.is_empty() {
        let secret_namespaces = secret_namespaces(registry, permit.identity());
        Status { secret_namespaces, ..status_of(registry, permit.identity()) }
    } else {
        status_of_other(registry, permit, other_key).await?
    };
    let spec = postern_kinds::selves::Spec { access_key: other_key.to_owned() };
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(Fields { spec, status })
    else {
        return Err(ApiError::internal("the response could not be encoded", "Self"));
    };
    let info = SelfKind.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta {
            name: metadata.name,
            creation_timestamp: Some(registry.source().now()),
            ..ObjectMeta::default()
        },
        fields,
    };
    EncodedObject::for_action(permit, &SelfKind, &object)
}

/// The owner of another key, for callers that may read that key.
async fn status_of_other(
    registry: &Registry,
    permit: &Permit,
    key: &str,
) -> Result<Status, ApiError> {
    let is_value = is_key(key, registry.digester(), &registry.cache().principals());
    if is_value || names::dns1123_subdomain(key).is_err() {
        // The text may be the value of a key and not a name, so the error does not repeat it.
        let mut errors = FieldErrors::new();
        let detail = "must be the name of an access key";
        errors.push(FieldError::invalid("spec.accessKey", BadValue::Omitted, detail));
        return Err(ApiError::invalid(SelfKind.info().group_kind(), "", errors));
    }
    let reading = ResourceTarget::object(&OwnedAccessKey, Verb::Get, None, key);
    let reading = permit.decide_for(reading)?;
    registry.get(&reading, &GetOptions::default()).await?;
    let identity = registry.cache().principals().identity_of_key(key);
    let gone = || ApiError::not_found(OwnedAccessKey.info().group_resource(), key);
    Ok(status_of(registry, &*identity.ok_or_else(gone)?))
}

fn status_of(registry: &Registry, identity: &Identity) -> Status {
    let key = stored::<owned_access_key::Fields>(registry, &OwnedAccessKey, &identity.access_key);
    let key = key.unwrap_or_default().spec;
    Status {
        user: identity.user.as_deref().map(|name| user_info(registry, name)),
        team: identity.team.as_deref().map(|name| team_info(registry, name)),
        subject: identity.name.clone(),
        uid: identity.uid.clone(),
        groups: identity.groups.clone(),
        access_key: identity.access_key.clone(),
        access_key_type: key.r#type,
        access_key_scope: key.scope,
        project_namespace_prefix: project_prefix().to_owned(),
        default_namespace: default_namespace().to_owned(),
        // The caller learns those of another key by its own permissions alone.
        secret_namespaces: Vec::new(),
    }
}

/// The namespaces in which an identity may create shared secrets; `*` alone for all.
fn secret_namespaces(registry: &Registry, identity: &Identity) -> Vec<String> {
    let (info, verb, policy) = (SharedSecret.info(), Verb::Create, registry.cache().policy());
    let (group, resource) = (info.version.group, info.plural);
    let Readable::Some { namespaces, within, .. } =
        policy.readable(identity, verb.as_str(), group, resource)
    else {
        return vec![ALL.to_owned()];
    };
    let is_in_all =
        |namespace: &&String| within.iter().all(|set| set.namespaces.contains(namespace.as_str()));
    let mut namespaces: Vec<String> = namespaces.iter().filter(is_in_all).cloned().collect();
    for first in [COMMON_NAMESPACE, default_namespace()] {
        if let Some(at) = namespaces.iter().position(|one| one == first) {
            let one = namespaces.remove(at);
            namespaces.insert(0, one);
        }
    }
    namespaces.truncate(MAX_NAMESPACES);
    namespaces
}

fn user_info(registry: &Registry, name: &str) -> UserInfo {
    let spec = stored::<user::Fields>(registry, &User, name).unwrap_or_default().spec;
    let teams: Vec<String> =
        registry.cache().principals().team_names_of(name).map(str::to_owned).collect();
    UserInfo {
        name: name.to_owned(),
        display_name: spec.display_name,
        username: spec.username,
        email: spec.email,
        subject: spec.subject,
        teams: teams.iter().map(|team| team_info(registry, team)).collect(),
    }
}

fn team_info(registry: &Registry, name: &str) -> TeamInfo {
    let spec = stored::<team::Fields>(registry, &Team, name).unwrap_or_default().spec;
    TeamInfo { name: name.to_owned(), display_name: spec.display_name }
}

fn stored<F: DeserializeOwned>(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    name: &str,
) -> Option<F> {
    let object: Object = registry.read_to_decide(kind, None, name).ok()??.part().ok()?;
    F::deserialize(&object.fields).ok()
}
