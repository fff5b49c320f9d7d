//! Effects: the conditions and changes that the rules of a write add to its transaction.
//!
//! Each condition has the meaning of its conflict for the write. So `commit` finds the response by
//! the failed condition, and does not know the rules.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::UniqueKey;
use postern_kinds::principal::KeyFacts;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Txn};
use serde::Serialize;

use crate::storage_key;

/// The part of a transaction that rules add.
#[derive(Default)]
pub(in crate::registry) struct Effects {
    /// The conditions, each with the meaning of its conflict.
    pub(super) guards: Vec<Guard>,
    /// The changes.
    pub(in crate::registry) changes: Vec<Change>,
    /// The subjects for which permissions change: their endpoint tokens are revoked.
    pub(super) revoked: Vec<Revoked>,
}

/// A condition of a transaction.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) condition: Condition,
    /// The meaning of a failed condition.
    pub(super) conflict: Conflict,
}

/// The meaning of a conflict for a write.
#[derive(Clone)]
pub(in crate::registry) enum Conflict {
    /// An object that admission has read has changed since: the caller reads it again.
    Changed,
    /// A record that a rule has read has changed since. The rules of a write with a new object run
    /// again. Otherwise the caller reads the object again.
    Outdated,
    /// The rules run again. This is the error after the last attempt.
    Again(fn() -> ApiError),
    /// Another object has the value.
    Taken(Taken),
}

/// A value that only one object may have.
#[derive(Clone)]
pub(in crate::registry) enum Taken {
    /// The value of an access key.
    Credential,
    /// A unique key.
    UniqueKey(Arc<UniqueKey>),
}

impl Guard {
    /// The key that must be as it was read.
    pub(super) fn key(&self) -> &Arc<str> {
        match &self.condition {
            Condition::Absent(key) | Condition::At(key, _) => key,
        }
    }
}

impl Effects {
    /// Adds a condition.
    pub(in crate::registry) fn require(&mut self, condition: Condition, conflict: Conflict) {
        self.guards.push(Guard { condition, conflict });
    }

    /// Adds a record.
    ///
    /// # Errors
    /// 500 if it cannot be encoded, which is a bug.
    pub(super) fn put(&mut self, key: Arc<str>, record: &impl Serialize) -> Result<(), ApiError> {
        self.changes.push(Change::Put { key, value: encoded(record)? });
        Ok(())
    }

    /// Removes a record.
    pub(in crate::registry) fn delete(&mut self, key: Arc<str>) {
        self.changes.push(Change::Delete { key });
    }

    /// Adds the conditions and changes of other effects.
    pub(super) fn extend(&mut self, other: &Self) {
        self.guards.extend_from_slice(&other.guards);
        self.changes.extend_from_slice(&other.changes);
    }

    /// Lets a moved object keep its unique keys: the object in the old namespace gives them up, and the object in the
    /// new one takes them. The records exist at all times, and get the new holder.
    pub(super) fn hand_over_unique_keys(&mut self) {
        let Self { guards, changes, .. } = self;
        changes.retain(|change| {
            let Change::Delete { key } = change else { return true };
            let is_new = |guard: &Guard| {
                matches!(guard.conflict, Conflict::Taken(Taken::UniqueKey(_))) && guard.key() == key
            };
            let handed = guards.iter().position(is_new);
            if let Some(index) = handed {
                guards.remove(index);
            }
            handed.is_none()
        });
    }

    /// The transaction with these effects. The conditions stay here, for [`Effects::conflict`].
    pub(super) fn txn(&mut self) -> Txn {
        let conditions = self.guards.iter().map(|guard| guard.condition.clone()).collect();
        Txn { conditions, changes: std::mem::take(&mut self.changes) }
    }

    /// The counts that the transaction writes.
    pub(super) fn counts(&self) -> impl Iterator<Item = &Arc<str>> {
        self.guards.iter().map(Guard::key).filter(|key| storage_key::is_count(key))
    }

    /// The meaning of a conflict on this key. A key without a condition is a record that is removed
    /// and was absent.
    pub(super) fn conflict(&self, key: &str) -> &Conflict {
        let guard = self.guards.iter().find(|guard| **guard.key() == *key);
        guard.map_or(&Conflict::Outdated, |guard| &guard.conflict)
    }
}

/// A record as it is stored.
///
/// # Errors
/// 500 if that fails, which is a bug.
pub(super) fn encoded(record: &impl Serialize) -> Result<Bytes, ApiError> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|error| ApiError::internal("a record could not be encoded", error))
}

/// A subject for which older endpoint tokens are revoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Revoked {
    /// An access key by its uid, and the uid of the user or team that owns it, if any.
    Key { uid: String, owner_uid: Option<String> },
    /// A user or team, by its uid.
    Principal { uid: String },
    /// An impersonation that is no longer permitted, by its id.
    Impersonation { id: String },
}

impl Revoked {
    /// An access key.
    pub(super) fn key(facts: KeyFacts) -> Self {
        let KeyFacts { uid, owner_uid, .. } = facts;
        Self::Key { uid, owner_uid: Some(owner_uid).filter(|uid| !uid.is_empty()) }
    }
}
