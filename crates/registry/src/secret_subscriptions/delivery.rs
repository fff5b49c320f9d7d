//! Encodes deliveries, and notes the agent as a reader of the source of the data.

use std::collections::BTreeMap;
use std::sync::Arc;

use postern_kinds::prelude::NoStatus;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::secret_delivery::{SecretDelivery, Spec};
use postern_kinds::{AnyKind as _, DataSource, SecretText};
use postern_meta::decode::decode_typed;
use postern_meta::event::WatchEventType;
use postern_meta::object::ObjectMeta;
use postern_meta::status::ApiError;
use postern_store::Position;
use serde::{Deserialize, Serialize};

use crate::cache::{CachedObject, stored_head};
use crate::credential::Credential;
use crate::registry::Registry;
use crate::registry::readers::{NotedSecret, Reader, uid_of};
use crate::storage_key;

/// The data of a project secret.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredData {
    spec: StoredSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSpec {
    data: BTreeMap<String, SecretText>,
}

/// The fields of a delivery after the start of its metadata.
#[derive(Serialize)]
struct Rest<'a> {
    spec: &'a Spec,
    status: NoStatus,
}

/// The data of a project secret.
///
/// # Errors
/// 500 if it cannot be decoded.
pub(super) fn data_of(secret: &CachedObject) -> Result<BTreeMap<String, SecretText>, ApiError> {
    // The decoder's own error may quote a value.
    let unreadable = || ApiError::internal("an object cannot be read", secret.key().to_string());
    let stored: StoredData = decode_typed(&secret.json()).map_err(|_| unreadable())?;
    Ok(stored.spec.data)
}

/// A delivery as an object of the watch. Its key is that of the project secret, which the audit record names.
///
/// # Errors
/// 500 if it cannot be encoded, which is a bug.
pub(super) fn encoded(
    key: &Arc<str>,
    position: Position,
    spec: &Spec,
) -> Result<CachedObject, ApiError> {
    let info = SecretDelivery.info();
    let failed = || ApiError::internal("the delivery could not be encoded", info.kind);
    let head = stored_head(info);
    let name = serde_json::to_string(&spec.name).map_err(|_| failed())?;
    let rest = Rest { spec, status: NoStatus {} };
    let rest = serde_json::to_string(&rest).map_err(|_| failed())?;
    let rest = rest.strip_prefix('{').ok_or_else(failed)?;
    let stored = format!("{head}\"name\":{name}}},{rest}");
    let modified = WatchEventType::Modified;
    CachedObject::from_stored(&head, key.clone(), position, modified, stored.as_bytes())
        .ok_or_else(failed)
}

/// Notes the agent as a reader of the shared secret that a project secret takes its data from.
pub(super) fn note_reader(registry: &Registry, agent: &Credential, secret: &CachedObject) {
    let labels = secret.labels().clone();
    let metadata = ObjectMeta { labels, ..ObjectMeta::default() };
    let Some(DataSource { kind, namespace, name }) = ProjectSecret.info().data_source(&metadata)
    else {
        return;
    };
    let info = kind.info();
    let key = storage_key::object(info, Some(&namespace), &name);
    let source = registry.cache().of(info).get(&key).ok().flatten();
    let Some(source) = source.filter(|_| info.notes_readers()) else { return };
    let json = source.json();
    let Some(uid) = uid_of(&json) else { return };
    let (namespace, name) = storage_key::name_of(secret.key());
    let copy = storage_key::holder(namespace, name);
    let now = registry.source().now().unix_seconds();
    let reader = Reader::of_agent(agent, &copy);
    registry.reader_notes().note(NotedSecret { key: &key, uid }, &agent.bearer().name, reader, now);
}
