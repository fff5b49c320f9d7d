//! Issued-token notes: the time until which endpoint tokens of an access key, and the streams that they open, can be
//! valid. One more note is for all access keys together.
//!
//! A note is stored before a token is issued. So a change of a key without a note has nothing to revoke. A revocation
//! record is kept as long as the tokens that it concerns can be valid.

use std::sync::Arc;

use bytes::Bytes;
use postern_auth::endpoint_token::{MAX_SESSION_SECONDS, SKEW_SECONDS, impersonation_id};
use postern_kinds::Impersonation;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Position, Store, Txn};

use super::effects::encoded;
use crate::cache::{IssuedRecord, NotedImpersonation};
use crate::credential::check_impersonation;
use crate::credential::{Credential, CurrentIdentity};
use crate::errors::from_store;
use crate::registry::Registry;
use crate::storage_key;

/// A note covers this much more time than its token needs, so that the next tokens need no new note.
const AHEAD_SECONDS: i64 = 3600;

/// Attempts to note a token while the access key changes.
const NOTE_ATTEMPTS: usize = 8;

/// The caller's identity for a token, with the revision at which it was known.
pub struct TokenIdentity {
    /// The identity is at least as new as this revision.
    pub revocation_revision: u64,
    /// The revision since which the identity is unchanged, as far as it is known.
    pub since: u64,
    /// The caller's identity and key.
    pub current: CurrentIdentity,
}

impl TokenIdentity {
    /// The caller's present identity. The request was authenticated some time before.
    ///
    /// # Errors
    /// 401 if the key is no longer valid.
    pub async fn now(
        registry: &Registry,
        credential: &Credential,
        now: Timestamp,
    ) -> Result<Self, ApiError> {
        registry.servers().check_clock()?;
        registry.cache().wait_until_current().await?;
        // The revision is read before the identity, so the identity is at least as new.
        let revocation_revision = registry.cache().applied();
        let policy = registry.cache().policy();
        check_impersonation(credential, &policy)?;
        let principals = registry.cache().principals();
        let current = credential.current_in(&principals, &policy, now)?;
        let current = current.ok_or_else(|| {
            ApiError::internal("the server itself needs no token", "a token for the server")
        })?;
        credential.check_same(&current)?;
        let since = credential.since(&principals);
        Ok(Self { revocation_revision, since, current })
    }

    /// The caller's present identity, after the token is noted for its keys. From then on, a change of these keys
    /// revokes the token.
    ///
    /// # Errors
    /// The errors of [`TokenIdentity::now`]; 503 if the key keeps changing.
    pub async fn noted(
        registry: &Registry,
        credential: &Credential,
        now: Timestamp,
        ttl_seconds: i64,
    ) -> Result<Self, ApiError> {
        let expires = now.unix_seconds().saturating_add(ttl_seconds);
        for _ in 0..NOTE_ATTEMPTS {
            let as_of = Self::now(registry, credential, now).await?;
            let subjects = Subjects::of(credential, &as_of.current);
            if registry.is_noted(&subjects, expires, as_of.revocation_revision) {
                return Ok(as_of);
            }
            registry.note(&subjects, expires).await?;
        }
        let message = "the access key keeps changing: request the token again";
        Err(ApiError::unavailable(message, Some(1)))
    }
}

/// The keys and impersonations that a token depends on.
pub(crate) struct Subjects {
    /// The uids of the requesting key and of its makers.
    pub(crate) keys: Vec<String>,
    /// The impersonations, by their ids.
    pub(crate) impersonations: Vec<(String, NotedImpersonation)>,
}

impl Subjects {
    fn of(credential: &Credential, current: &CurrentIdentity) -> Self {
        let key = &current.key;
        let makers = key.ancestors.iter().map(|maker| maker.uid.clone());
        let own = (key.identity.access_key.as_str(), key.uid.as_str(), credential.wanted());
        let of_makers = key.ancestors.iter();
        let of_makers = of_makers
            .map(|maker| (maker.name.as_str(), maker.uid.as_str(), maker.impersonated.as_ref()));
        let noted = |(key, uid, wanted): (&str, &str, Option<&Impersonation>)| {
            let (key, key_uid, wanted) = (key.to_owned(), uid.to_owned(), wanted?.clone());
            Some((impersonation_id(uid, &wanted), NotedImpersonation { key, key_uid, wanted }))
        };
        Self {
            keys: std::iter::once(key.uid.clone()).chain(makers).collect(),
            impersonations: std::iter::once(own).chain(of_makers).filter_map(noted).collect(),
        }
    }

    /// The storage keys of the notes, each with its impersonation. The last one is the note of all tokens.
    fn notes(&self) -> Vec<(Arc<str>, Option<NotedImpersonation>)> {
        let of_keys = self.keys.iter().map(|uid| (storage_key::issued_tokens(uid), None));
        let impersonations = self.impersonations.iter();
        let impersonations =
            impersonations.map(|(id, noted)| (storage_key::issued_tokens(id), Some(noted.clone())));
        let all = (Arc::from(storage_key::ALL_ISSUED_TOKENS), None);
        of_keys.chain(impersonations).chain([all]).collect()
    }
}

impl Registry {
    /// Whether notes of these subjects exist at a revision that cover tokens until `expires`, in seconds since 1970.
    /// A later change of one of the keys revokes tokens of this revision.
    pub(crate) fn is_noted(&self, of: &Subjects, expires: i64, revision: u64) -> bool {
        let until = end_of_all(expires);
        of.notes().iter().all(|(key, _)| {
            let found = self.cache().issued_tokens(key);
            found.is_some_and(|(at, note)| note.until >= until && at.revision() <= revision)
        })
    }

    /// Notes that tokens of these subjects may be valid until `expires`, in seconds since 1970. Afterwards the notes
    /// are in the store, or another writer has changed them. When the cache is current, [`Registry::is_noted`] tells
    /// which.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn note(&self, of: &Subjects, expires: i64) -> Result<(), ApiError> {
        let until = end_of_all(expires);
        let noted_until = end_of_all(expires.saturating_add(AHEAD_SECONDS));
        let mut txn = Txn::default();
        for (key, impersonation) in of.notes() {
            let found = self.cache().issued_tokens(&key);
            if found.as_ref().is_some_and(|(_, note)| note.until >= until) {
                continue;
            }
            txn.conditions.push(as_read(&key, found.as_ref()));
            let note = IssuedRecord { until: noted_until, impersonation };
            txn.changes.push(Change::Put { key, value: encoded(&note)? });
        }
        if txn.changes.is_empty() {
            return Ok(());
        }
        match self.store().commit(txn).await {
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }
}

/// Notes the time until which tokens that the store does not know can be valid. A server may have issued them after
/// the backup that the store was restored from. A note from before the present epoch of the store is not about them. A
/// new store has no such tokens.
///
/// # Errors
/// The errors of the store.
pub async fn note_unknown(
    store: &dyn Store,
    is_new: bool,
    now: Timestamp,
    max_ttl_seconds: i64,
) -> anyhow::Result<()> {
    let key: Arc<str> = storage_key::UNKNOWN_ISSUED_TOKENS.into();
    let found = store.get(&key).await?;
    let epoch = store.epoch().await?;
    let position = found.value.as_ref().map(|entry| entry.position);
    if position.is_some_and(|at| at.revision() >= epoch.begins) {
        return Ok(());
    }
    let now = now.unix_seconds();
    let until = if is_new {
        Timestamp::from_unix_seconds(now)
    } else {
        end_of_all(now.saturating_add(max_ttl_seconds))
    };
    let condition = position.map_or_else(
        || Condition::Absent(key.clone()),
        |position| Condition::At(key.clone(), position),
    );
    let value = Bytes::from(serde_json::to_vec(&IssuedRecord { until, impersonation: None })?);
    let changes = vec![Change::Put { key: key.clone(), value }];
    match store.commit(Txn { conditions: vec![condition], changes }).await {
        // Another server has noted the same.
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The time at which a token has expired and every stream that it opened has ended. `expires` is the expiry of the
/// token, in seconds since 1970. The clock of this server issues tokens, and the clock of an agent checks them.
fn end_of_all(expires: i64) -> Timestamp {
    let more = MAX_SESSION_SECONDS + 2 * SKEW_SECONDS;
    Timestamp::from_unix_seconds(expires.saturating_add(more))
}

/// The condition that a note is as it was read.
pub(super) fn as_read(key: &Arc<str>, found: Option<&(Position, IssuedRecord)>) -> Condition {
    match found {
        Some((position, _)) => Condition::At(key.clone(), *position),
        None => Condition::Absent(key.clone()),
    }
}
