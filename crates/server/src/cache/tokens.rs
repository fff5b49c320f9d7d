//! Keeps in step with what is stored about endpoint tokens: the keys that sign them, and what has been
//! revoked.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::RwLock;
use postern_meta::decode;
use postern_meta::time::Timestamp;
use postern_store::{Event, Position};
use serde::{Deserialize, Serialize};

use crate::signing_keys::SigningKeys;
use crate::storage_key;

/// A revocation, as it is stored: tokens from before its revision that depend on one of these uids count
/// no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevocationRecord {
    /// The uids of keys, users and teams.
    pub(crate) uids: Vec<String>,
    /// When every token from before has expired.
    pub(crate) drop_after: Timestamp,
}

/// A stored value about tokens.
pub(super) struct TokenValue {
    pub(super) key: Arc<str>,
    /// `None` for a value that was removed.
    pub(super) value: Option<Bytes>,
    pub(super) position: Position,
}

impl TokenValue {
    pub(super) fn of(event: &Event) -> Self {
        let Event { key, value, position, .. } = event;
        Self { key: key.clone(), value: value.clone(), position: *position }
    }
}

/// What is stored about endpoint tokens.
#[derive(Default)]
pub(super) struct TokenState {
    keys: ArcSwap<SigningKeys>,
    revocations: RwLock<Revocations>,
}

/// The revocations, by record and by uid.
#[derive(Default)]
struct Revocations {
    records: HashMap<Arc<str>, (Position, RevocationRecord)>,
    /// The revisions of the records that name a uid.
    of_uid: HashMap<String, BTreeSet<u64>>,
}

impl Revocations {
    fn remove(&mut self, key: &str) {
        let Some((position, record)) = self.records.remove(key) else { return };
        for uid in record.uids {
            if let Some(revisions) = self.of_uid.get_mut(&uid) {
                revisions.remove(&position.revision());
                if revisions.is_empty() {
                    self.of_uid.remove(&uid);
                }
            }
        }
    }

    fn apply(&mut self, change: &TokenValue) {
        self.remove(&change.key);
        let record = change.value.as_ref().and_then(|value| decode::decode_typed(value).ok());
        let Some::<RevocationRecord>(record) = record else { return };
        for uid in &record.uids {
            let revisions = self.of_uid.entry(uid.clone()).or_default();
            revisions.insert(change.position.revision());
        }
        self.records.insert(change.key.clone(), (change.position, record));
    }
}

impl TokenState {
    /// Returns whether the value of a key is about tokens.
    pub(super) fn is_indexed(key: &str) -> bool {
        key == storage_key::SIGNING_KEYS || key.starts_with(storage_key::REVOCATIONS)
    }

    /// Applies a change.
    pub(super) fn apply(&self, change: &TokenValue) {
        if &*change.key == storage_key::SIGNING_KEYS {
            let keys = change.value.as_deref().map(SigningKeys::read).unwrap_or_default();
            self.keys.store(Arc::new(keys));
        } else {
            self.revocations.write().apply(change);
        }
    }

    /// Replaces everything.
    pub(super) fn load(&self, values: &[TokenValue]) {
        *self.revocations.write() = Revocations::default();
        self.keys.store(Arc::default());
        for value in values {
            self.apply(value);
        }
    }

    /// Returns the keys that sign.
    pub(super) fn keys(&self) -> Arc<SigningKeys> {
        self.keys.load_full()
    }

    /// Returns the revocations: for each uid, the newest revision.
    pub(super) fn revocations(&self) -> Vec<(String, u64)> {
        let revocations = self.revocations.read();
        let newest = revocations.of_uid.iter();
        newest.filter_map(|(uid, all)| Some((uid.clone(), *all.last()?))).collect()
    }

    /// Returns the records that have done their work: their keys and positions.
    pub(super) fn old_revocations(&self, now: Timestamp) -> Vec<(Arc<str>, Position)> {
        let revocations = self.revocations.read();
        let old = revocations.records.iter().filter(|(_, (_, record))| record.drop_after <= now);
        old.map(|(key, (position, _))| (key.clone(), *position)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_has_its_newest_revocation_whatever_is_dropped_first() {
        let state = TokenState::default();
        let record = |uids: &[&str], drop_after| {
            let uids = uids.iter().map(|uid| (*uid).to_owned()).collect();
            let drop_after = Timestamp::from_unix_seconds(drop_after);
            serde_json::to_vec(&RevocationRecord { uids, drop_after }).unwrap()
        };
        let apply = |key: &str, revision, value: Option<Vec<u8>>| {
            let key = [storage_key::REVOCATIONS, key].concat().into();
            let position = Position::new(revision, 1);
            state.apply(&TokenValue { key, value: value.map(Bytes::from), position });
        };
        let revocations = || {
            let mut all = state.revocations();
            all.sort();
            all
        };
        let of = |uid: &str, revision| (uid.to_owned(), revision);
        apply("a", 5, Some(record(&["u1", "u2"], 100)));
        apply("b", 9, Some(record(&["u1"], 50)));
        assert_eq!(revocations(), [of("u1", 9), of("u2", 5)]);
        let old = state.old_revocations(Timestamp::from_unix_seconds(50));
        assert_eq!(old, [("/revocations/b".into(), Position::new(9, 1))]);
        apply("b", 12, None);
        assert_eq!(revocations(), [of("u1", 5), of("u2", 5)]);
        state.load(&[]);
        assert_eq!(revocations(), []);
    }
}
