//! The readers of a secret, for its owner and for callers with `get` on `readers`
//! (`docs/reference/shared-secrets.md#readers`).

use postern_kinds::owned_access_key::{self, OwnedAccessKey};
use postern_kinds::shared_secret_readers::{SecretReader, SharedSecretReaders, Spec};
use postern_kinds::team::{self, Team};
use postern_kinds::user::{self, User};
use postern_kinds::{AnyKind, Owner};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use serde::Deserialize as _;
use serde_json::Value;

use crate::permit::Permit;
use crate::registry::readers::{Reader, StoredReader};
use crate::registry::{EncodedObject, Registry};

/// The readers of the secret that the permit is for. They have names alone: no e-mail addresses and no groups.
///
/// # Errors
/// 404; the errors of the store.
pub(crate) async fn list(registry: &Registry, permit: &Permit) -> Result<EncodedObject, ApiError> {
    let secret = registry.stored(permit).await?;
    let found = registry.readers_of(permit.kind(), &secret).await?;
    let readers = found.readers.into_iter().map(|one| described(registry, one)).collect();
    let spec = Spec { since: found.since, truncated: found.truncated, readers };
    let info = SharedSecretReaders.info();
    let Ok(Value::Object(fields)) = serde_json::to_value(spec) else {
        return Err(ApiError::internal("the response could not be encoded", info.kind));
    };
    let ObjectMeta { name, namespace, uid, .. } = secret.metadata;
    let metadata = ObjectMeta { name, namespace, uid, ..ObjectMeta::default() };
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    let object = Object { api_version, kind, metadata, fields };
    EncodedObject::for_action(permit, &SharedSecretReaders, &object)
}

/// A reader with the names that people know it by.
fn described(registry: &Registry, stored: StoredReader) -> SecretReader {
    let via = match (stored.reader.object.is_empty(), stored.reader.access_key.is_empty()) {
        (true, _) => "Request",
        (false, true) => "Sync",
        (false, false) => "Agent",
    };
    let display_name = display_name_of(registry, &stored.reader);
    let access_key_display_name = display_name_of_key(registry, &stored);
    let StoredReader { reader, first_time, last_time, count } = stored;
    SecretReader {
        via: via.to_owned(),
        display_name,
        access_key_display_name,
        object: reader.object.into_owned(),
        user: reader.user.into_owned(),
        team: reader.team.into_owned(),
        subject: reader.subject.into_owned(),
        access_key: reader.access_key.into_owned(),
        impersonated_by: reader.impersonated_by.into_owned(),
        first_time: Some(first_time),
        last_time: Some(last_time),
        count,
    }
}

/// The display name of the user or team; empty if it is gone or corrupt. A later one of the same name is another one.
fn display_name_of(registry: &Registry, reader: &Reader<'_>) -> String {
    let (kind, name): (&dyn AnyKind, _) = match (&*reader.user, &*reader.team) {
        ("", "") => return String::new(),
        ("", team) => (&Team, team),
        (user, _) => (&User, user),
    };
    let Some(object) = object_of(registry, kind, name) else { return String::new() };
    if object.metadata.uid != *reader.uid {
        return String::new();
    }
    if reader.user.is_empty() {
        team::Fields::deserialize(&object.fields).unwrap_or_default().spec.display_name
    } else {
        user::Fields::deserialize(&object.fields).unwrap_or_default().spec.display_name
    }
}

/// The display name of the access key; empty if it is gone or corrupt, if it was created later, or if another user or team
/// has a key of this name.
fn display_name_of_key(registry: &Registry, stored: &StoredReader) -> String {
    let reader = &stored.reader;
    if reader.access_key.is_empty() {
        return String::new();
    }
    let found = object_of(registry, &OwnedAccessKey, &reader.access_key);
    let Some(object) = found else { return String::new() };
    let created = object.metadata.creation_timestamp;
    let is_later = created.is_some_and(|created| created > stored.last_time);
    let spec = owned_access_key::Fields::deserialize(&object.fields).unwrap_or_default().spec;
    // Under impersonation, the key is that of the caller.
    let is_of = |owner: &str, reader_name: &str| {
        let acting = &*reader.impersonated_by;
        owner == if acting.is_empty() { reader_name } else { acting }
    };
    let is_of_reader = match spec.owner() {
        Some(Owner::User(name)) => is_of(&name, &reader.user),
        Some(Owner::Team(name)) => is_of(&name, &reader.team),
        Some(Owner::Subject(name)) => is_of(&name, &reader.subject),
        None => false,
    };
    if is_of_reader && !is_later { spec.display_name } else { String::new() }
}

/// The object; `None` if it is gone or corrupt. Then a name is missing, and the readers are still known.
fn object_of(registry: &Registry, kind: &dyn AnyKind, name: &str) -> Option<Object> {
    registry.read_to_decide(kind, None, name).ok()??.part().ok()
}
