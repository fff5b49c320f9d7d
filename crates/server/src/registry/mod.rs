//! The registry: what it means to create, read, change and remove an object of any kind.
//!
//! It acts on a `Permit` alone and stores nothing but what is `Admitted`; the exceptions, the first
//! start and the note of a key's last use, are here, too. Besides, only resealing writes to the
//! store, and that changes how values are sealed, not what they are.

pub(crate) mod activity;
pub(crate) mod commit;
pub(crate) mod delete;
pub(crate) mod first_start;
pub(crate) mod read;
pub(crate) mod side_records;
pub(crate) mod update;
pub(crate) mod watch;

use std::sync::Arc;

use bytes::Bytes;
use postern_auth::digest::Digester;
use postern_kinds::{AnyKind, Caller, Context, NoPrincipals};
use postern_meta::object::Object;
use postern_meta::status::{ApiError, Reason};
use postern_meta::time::Timestamp;
use postern_store::Store;

use crate::cache::{Cache, ResourceCache};
use crate::clock::Source;
use crate::stages::admit::{self, Writing};
use crate::stages::authorize::Permit;
use crate::storage_key;

/// Names that are tried for one `generateName` before the client is told to try again itself.
const NAME_ATTEMPTS: usize = 8;

/// Everything the registry works with.
pub(crate) struct Registry {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    source: Arc<dyn Source>,
    digester: Digester,
    policy: KeyPolicy,
    stored_activity: tokio::sync::Mutex<activity::Stored>,
}

/// What the operator decides about access keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyPolicy {
    /// The longest life of a key, which then also is the default; `None` for no limit.
    pub max_ttl_seconds: Option<i64>,
    /// How long a key that has expired is kept before it is removed.
    pub expired_retention_seconds: i64,
}

impl Default for KeyPolicy {
    fn default() -> Self {
        Self { max_ttl_seconds: None, expired_retention_seconds: 30 * 24 * 3600 }
    }
}

/// An object as it answers a request: encoded, with its version.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Its JSON.
    pub(crate) json: Bytes,
}

impl Registry {
    /// Over a store, and the cache that follows it.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        source: Arc<dyn Source>,
        digester: Digester,
        policy: KeyPolicy,
    ) -> Self {
        let stored_activity = tokio::sync::Mutex::new(activity::stored(&cache));
        Self { store, cache, source, digester, policy, stored_activity }
    }

    /// Makes digests of access keys.
    pub(crate) fn digester(&self) -> &Digester {
        &self.digester
    }

    /// What the operator decided about access keys.
    pub(crate) fn policy(&self) -> KeyPolicy {
        self.policy
    }

    /// What a kind may look at, but for who there is.
    pub(crate) fn context<'a>(&self, caller: &'a Caller, now: Timestamp) -> Context<'a> {
        Context {
            access_key_max_ttl_seconds: self.policy.max_ttl_seconds,
            ..Context::of(caller, now, &NoPrincipals)
        }
    }

    /// The cache.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Time and randomness.
    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Makes a new object.
    ///
    /// # Errors
    /// As wire contract 1.5 says; 409 when every generated name was taken.
    pub(crate) async fn create(
        &self,
        permit: &Permit,
        object: Object,
        writing: &Writing,
    ) -> Result<Answer, ApiError> {
        let dry_run = writing.dry_run;
        // Whom the object names may have been made by the request before this one.
        self.cache().wait_until_current().await?;
        if !object.metadata.name.is_empty() {
            let admitted = admit::create(self, permit, object, writing)?;
            return self.commit(admitted, dry_run).await;
        }
        for _ in 1..NAME_ATTEMPTS {
            let admitted = admit::create(self, permit, object.clone(), writing)?;
            match self.commit(admitted, dry_run).await {
                Err(error) if error.reason() == Reason::AlreadyExists => {}
                answer => return answer,
            }
        }
        let admitted = admit::create(self, permit, object, writing)?;
        let info = permit.kind().info();
        self.commit(admitted, dry_run).await.map_err(|error| {
            if error.reason() == Reason::AlreadyExists {
                let name = error.status().details.as_ref().map_or("", |details| &details.name);
                return ApiError::generate_name_conflict(info.group_resource(), name);
            }
            error
        })
    }
}

/// The storage key that a permit is for.
///
/// # Errors
/// 500 when the permit names no object: a mistake of ours.
pub(crate) fn key_of(permit: &Permit, resource: &ResourceCache) -> Result<String, ApiError> {
    let target = permit.target();
    let name = target.name.as_deref().ok_or_else(|| {
        ApiError::internal("the request names no object", "a permit without a name was used")
    })?;
    Ok(storage_key::in_collection(resource.prefix(), target.namespace.as_deref(), name))
}

/// An answer, decoded.
///
/// # Errors
/// 500 when that fails: a mistake of ours.
pub(crate) fn decoded(answer: &Answer) -> Result<Object, ApiError> {
    postern_meta::decode::decode_typed(&answer.json)
        .map_err(|error| ApiError::internal("the answer could not be read back", error))
}

/// 404 for what a permit is for.
pub(crate) fn not_found(kind: &'static dyn AnyKind, name: &str) -> ApiError {
    ApiError::not_found(kind.info().group_resource(), name)
}

#[cfg(test)]
pub(crate) mod tests;
