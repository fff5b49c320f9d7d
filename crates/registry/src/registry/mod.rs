//! The registry: reads, watches and stores objects of every kind.
//!
//! It acts only on a `Permit` and stores only `Admitted` writes; it does not depend on the code
//! that admits them. The exceptions are the first start, the record of a key's last use, the readers of
//! secrets, the notes of issued tokens, and the end of revocation records. Apart from the registry, only rewrapping
//! and the signing keys write to the store. Rewrapping changes the encryption of values, not the
//! values.
//!
//! The files are in folders by topic: `objects`, `quotas`, `readers`, `start`, and [`agent_configs`]. Their modules are
//! exported here. Three files are in no folder: [`activity`] and `recent_events`, each with a part of the state of
//! [`Registry`], and [`values`], through which responses pass.

pub mod activity;
pub mod agent_configs;
mod objects;
mod quotas;
pub(crate) mod readers;
mod recent_events;
pub mod secret_uses;
mod start;
pub mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use postern_auth::digest::Digester;
use postern_kinds::{AnyKind, all};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::activity::KeyUses;
use self::agent_configs::AgentConfigs;
pub(crate) use self::objects::{commit, side_records, sync_writers, visibility};
pub use self::objects::{deciding, issued_tokens, observe, read, watch};
use self::objects::{effects, stage};
use self::quotas::project_limits;
use self::quotas::refused_quotas::RefusedQuotas;
use self::readers::ReaderNotes;
use self::recent_events::RecentEvents;
use self::secret_uses::SecretUses;
pub use self::start::{first_start, format, namespace_names, shared_authority};
use crate::admit::{AdmissionView, UserPolicy};
use crate::cache::{Cache, CachedObject, ResourceCache};
use crate::clock::Source;
use crate::permit::Permit;
use crate::servers::Servers;
use crate::signing_keys::TokenPolicy;
use crate::storage_key;

/// The number of locks that counts share.
const COUNT_LOCKS: usize = 64;

/// The registry: a store, the cache that follows it, and the settings of writes.
pub struct Registry {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    servers: Servers,
    source: Arc<dyn Source>,
    digester: Digester,
    user_policy: UserPolicy,
    token_policy: TokenPolicy,
    agent_configs: AgentConfigs,
    key_uses: KeyUses,
    reader_notes: Arc<ReaderNotes>,
    secret_uses: Arc<SecretUses>,
    recent_events: RecentEvents,
    refused_quotas: RefusedQuotas,
    /// Held while a create counts objects and adds one. Counts share these locks.
    count_locks: [tokio::sync::Mutex<()>; COUNT_LOCKS],
}

/// An object as a response has it: encoded, with its resourceVersion. Only functions of the registry that take a
/// permit make one from a stored object.
#[derive(Clone)]
pub struct EncodedObject {
    json: Bytes,
    /// Name and uid, if the request has created the object.
    created: Option<ObjectIdentity>,
    /// The uid of the owner, if a write has made it.
    owner_uid: Option<String>,
    /// The object of the cache that has this JSON, if it was read.
    cached: Option<Arc<CachedObject>>,
}

/// Name and uid of an object.
#[derive(Clone, Debug, Default)]
pub struct ObjectIdentity {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl EncodedObject {
    /// Whether it was written, and the user or team with this uid owns it. `false` is not certain.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        !uid.is_empty() && self.owner_uid.as_deref() == Some(uid)
    }

    /// The response of an action about the object of the permit, with these fields.
    ///
    /// # Errors
    /// 500 if the fields cannot be encoded, which is a bug.
    pub fn with_fields(
        permit: &Permit,
        kind: &dyn AnyKind,
        fields: &impl Serialize,
    ) -> Result<Self, ApiError> {
        let info = kind.info();
        let Ok(Value::Object(fields)) = serde_json::to_value(fields) else {
            return Err(ApiError::internal("the response could not be encoded", info.kind));
        };
        let metadata = ObjectMeta { name: permit.name().to_owned(), ..ObjectMeta::default() };
        let (api_version, name) = (info.version.to_string(), info.kind.to_owned());
        Self::for_action(permit, kind, &Object { api_version, kind: name, metadata, fields })
    }

    /// The response of an action. The object is of a kind that is not stored, or it is the object of the permit.
    ///
    /// # Errors
    /// 500 for any other object, which is a bug.
    pub fn for_action(
        permit: &Permit,
        kind: &dyn AnyKind,
        object: &Object,
    ) -> Result<Self, ApiError> {
        let (info, target) = (kind.info(), permit.target());
        let is_of_target = info.group_kind() == target.kind.info().group_kind()
            && Some(object.metadata.name.as_str()) == target.name.as_deref()
            && object.metadata.namespace == target.namespace.as_deref().unwrap_or_default();
        // The kinds of some responses have no path.
        let is_served = all().iter().any(|one| one.info().group_kind() == info.group_kind());
        if is_served && info.is_stored() && !is_of_target {
            let reason = "an action answered with another stored object";
            return Err(ApiError::internal("the response could not be made", reason));
        }
        let (name, uid) = (&object.metadata.name, &object.metadata.uid);
        let created = ObjectIdentity { name: name.clone(), uid: uid.clone() };
        Ok(Self {
            json: Bytes::from(object.to_json_bytes()),
            created: Some(created),
            owner_uid: None,
            cached: None,
        })
    }

    /// An object of the cache.
    pub(crate) fn of_cached(object: Arc<CachedObject>) -> Self {
        Self { json: object.json(), created: None, owner_uid: None, cached: Some(object) }
    }

    /// The object of the cache that has this JSON, if it was read.
    pub(crate) fn cached(&self) -> Option<&Arc<CachedObject>> {
        self.cached.as_ref()
    }

    /// Name and uid, if the request has created the object.
    pub fn created(&self) -> Option<&ObjectIdentity> {
        self.created.as_ref()
    }

    /// Its JSON.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Its JSON, without a copy of the handle.
    pub fn into_json(self) -> Bytes {
        self.json
    }
}

impl std::fmt::Debug for EncodedObject {
    /// Prints nothing of the content, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EncodedObject({} bytes)", self.json.len())
    }
}

impl Registry {
    /// A registry over a store, and the cache that follows it.
    pub fn new(
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        source: Arc<dyn Source>,
        digester: Digester,
        user_policy: UserPolicy,
        token_policy: TokenPolicy,
    ) -> Self {
        let registry = Self {
            servers: Servers::of(&*store, &*source),
            store,
            cache,
            source,
            digester,
            user_policy,
            token_policy,
            agent_configs: AgentConfigs::default(),
            key_uses: KeyUses::default(),
            reader_notes: Arc::default(),
            secret_uses: Arc::default(),
            recent_events: RecentEvents::default(),
            refused_quotas: RefusedQuotas::default(),
            count_locks: std::array::from_fn(|_| tokio::sync::Mutex::default()),
        };
        // Before the cache loads: old groups give no access from the first request on.
        registry.forget_old_groups();
        registry
    }

    /// Lets the groups of single sign-on that a provider has not confirmed for longer than the operator allows no longer
    /// count on this server. Nothing is written.
    pub fn forget_old_groups(&self) {
        self.cache.set_oldest_groups(self.oldest_groups());
    }

    /// The time since which groups of single sign-on must have been confirmed to count, in seconds since 1970.
    pub(crate) fn oldest_groups(&self) -> i64 {
        let now = self.source.now().unix_seconds();
        now.saturating_sub(self.user_policy.sso_groups_max_age_seconds)
    }

    /// Makes digests of access keys.
    pub fn digester(&self) -> &Digester {
        &self.digester
    }

    /// The operator's settings for access keys.
    pub(crate) fn user_policy(&self) -> UserPolicy {
        self.user_policy
    }

    /// The operator's settings for endpoint tokens.
    pub fn token_policy(&self) -> &TokenPolicy {
        &self.token_policy
    }

    /// The configurations that were made for agents.
    pub(crate) fn agent_configs(&self) -> &AgentConfigs {
        &self.agent_configs
    }

    /// Notes the uses of keys.
    pub fn key_uses(&self) -> &KeyUses {
        &self.key_uses
    }

    /// Notes the readers of secrets.
    pub(crate) fn reader_notes(&self) -> &Arc<ReaderNotes> {
        &self.reader_notes
    }

    /// The recent events of the server itself.
    pub(crate) fn recent_events(&self) -> &RecentEvents {
        &self.recent_events
    }

    /// The recently exceeded quotas.
    pub(crate) fn refused_quotas(&self) -> &RefusedQuotas {
        &self.refused_quotas
    }

    /// The locks of the creates that write these counts, in one order for all creates. The transaction keeps a count right,
    /// also with several servers on one store: the locks spare the requests of this server their conflicts.
    pub(crate) fn count_locks<'a>(
        &self,
        keys: impl Iterator<Item = &'a Arc<str>>,
    ) -> impl Iterator<Item = &tokio::sync::Mutex<()>> {
        let sum = |key: &Arc<str>| {
            key.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
        };
        let numbers: BTreeSet<usize> = keys.map(|key| sum(key) % COUNT_LOCKS).collect();
        numbers.into_iter().filter_map(|number| self.count_locks.get(number))
    }

    /// The view of the present state that admission reads.
    pub(crate) fn admission(&self) -> AdmissionView<'_> {
        AdmissionView::new(&self.cache, &*self.source, &self.digester, self.user_policy)
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The servers that share the store.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The source of time and randomness.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }
}

/// The storage key that a permit is for.
///
/// # Errors
/// 500 when the permit names no object: a bug.
pub(crate) fn key_of(permit: &Permit, resource: &ResourceCache) -> Result<String, ApiError> {
    let target = permit.target();
    let name = target.name.as_deref().ok_or_else(|| {
        ApiError::internal("the request names no object", "a permit without a name was used")
    })?;
    Ok(storage_key::in_collection(resource.prefix(), target.namespace.as_deref(), name))
}

/// The object that was found for a permit. The owner of a corrupt object is unknown. So a caller without the
/// permission on all objects gets the response for an object that does not exist.
///
/// # Errors
/// 500 if the object is corrupt and the permit covers it.
pub(crate) fn unless_corrupt(
    permit: &Permit,
    found: Result<Option<Arc<CachedObject>>, ApiError>,
) -> Result<Option<Arc<CachedObject>>, ApiError> {
    found.map_err(|corrupt| permit.check_corrupt().err().unwrap_or(corrupt))
}

/// The decoded form of an encoded object.
///
/// # Errors
/// 500 if decoding fails, which is a bug.
pub fn decoded(object: &EncodedObject) -> Result<Object, ApiError> {
    decoded_part(object)
}

/// A part of an encoded object.
///
/// # Errors
/// The errors of [`decoded`].
fn decoded_part<T: DeserializeOwned>(object: &EncodedObject) -> Result<T, ApiError> {
    postern_meta::decode::decode_typed(&object.json)
        .map_err(|error| ApiError::internal("the response could not be read back", error))
}

/// The 404 for an object.
pub fn not_found(kind: &'static dyn AnyKind, name: &str) -> ApiError {
    ApiError::not_found(kind.info().group_resource(), name)
}

#[cfg(test)]
pub(crate) mod tests;
