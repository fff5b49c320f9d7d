//! Where the data of a project secret is used (`docs/reference/shared-secrets.md#usage`).

use postern_kinds::AnyKind as _;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::project_secret_usage::{MAX_USES, ProjectSecretUsage, Spec};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use serde_json::Value;

use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};
use crate::storage_key;

/// The Secrets that have the data of the project secret of the permit.
///
/// # Errors
/// 404; the errors of the store.
pub(super) async fn list(registry: &Registry, permit: &Permit) -> Result<EncodedObject, ApiError> {
    let ObjectMeta { name, namespace, uid, .. } = registry.stored(permit).await?.metadata;
    let key = storage_key::object(ProjectSecret.info(), Some(&namespace), &name);
    let mut uses = registry.secret_uses().of(&key);
    let truncated = uses.len() > MAX_USES;
    uses.truncate(MAX_USES);
    let partial = registry.servers().members().is_some();
    let info = ProjectSecretUsage.info();
    let Ok(Value::Object(fields)) = serde_json::to_value(Spec { partial, truncated, uses }) else {
        return Err(ApiError::internal("the response could not be encoded", info.kind));
    };
    let metadata = ObjectMeta { name, namespace, uid, ..ObjectMeta::default() };
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    let object = Object { api_version, kind, metadata, fields };
    EncodedObject::for_action(permit, &ProjectSecretUsage, &object)
}
