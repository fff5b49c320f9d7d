//! The records of endpoint tokens, kept up to date with the store: the signing keys, the issued-token notes, and the
//! revocation records.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::RwLock;
use postern_kinds::Impersonation;
use postern_meta::decode;
use postern_meta::time::Timestamp;
use postern_store::{Event, Position};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::signing_keys::SigningKeys;
use crate::storage_key;

/// A revocation, as it is stored: older tokens that depend on one of these uids are revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevocationRecord {
    /// The uids of keys, users and teams.
    pub(crate) uids: Vec<String>,
    /// The time when every older token has expired.
    pub(crate) drop_after: Timestamp,
    /// The uid of the user or team that owns these access keys. Many records of one owner are merged into one record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner_uid: Option<String>,
}

/// An issued-token note: the time until which endpoint tokens, and the streams that they open, can be valid. It is
/// for one access key, one impersonation or all tokens. It is stored before a token is issued, so a token without a
/// note needs no revocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IssuedRecord {
    /// No token and no stream is valid longer.
    pub(crate) until: Timestamp,
    /// The impersonation that the tokens depend on, if the note is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) impersonation: Option<NotedImpersonation>,
}

/// An impersonation that endpoint tokens depend on. They are revoked when it is no longer permitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotedImpersonation {
    /// The name of the access key that impersonated.
    pub(crate) key: String,
    /// The uid of that key.
    pub(crate) key_uid: String,
    /// The identity that was impersonated.
    pub(crate) wanted: Impersonation,
}

/// A stored record, and its position.
pub(crate) type Stored<T> = (Arc<str>, Position, T);

/// A stored value about tokens.
pub(super) struct RecordValue {
    pub(super) key: Arc<str>,
    /// `None` for a removed value.
    pub(super) value: Option<Bytes>,
    pub(super) position: Position,
}

impl RecordValue {
    pub(super) fn of(event: &Event) -> Self {
        let Event { key, value, position, .. } = event;
        Self { key: key.clone(), value: value.clone(), position: *position }
    }
}

/// The stored records of endpoint tokens.
#[derive(Default)]
pub(super) struct TokenState {
    keys: ArcSwap<SigningKeys>,
    issued: RwLock<HashMap<Arc<str>, (Position, IssuedRecord)>>,
    /// The notes that are for an impersonation.
    impersonations: RwLock<BTreeMap<Arc<str>, NotedImpersonation>>,
    revocations: RwLock<Revocations>,
    /// A number that grows with each change of the keys and the revocations.
    version: watch::Sender<u64>,
}

/// The revocations, by record and by uid.
#[derive(Default)]
struct Revocations {
    records: HashMap<Arc<str>, (Position, RevocationRecord)>,
    /// The revisions of the records that name a uid, each with the time until which it is kept.
    of_uid: HashMap<String, BTreeMap<u64, Timestamp>>,
    /// The records of an owner's access keys.
    of_owner: HashMap<String, BTreeSet<Arc<str>>>,
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
        if let Some(owner) = record.owner_uid
            && let Some(keys) = self.of_owner.get_mut(&owner)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.of_owner.remove(&owner);
            }
        }
    }

    fn apply(&mut self, change: &RecordValue) {
        self.remove(&change.key);
        let record = change.value.as_ref().and_then(|value| decode::decode_typed(value).ok());
        let Some::<RevocationRecord>(record) = record else { return };
        for uid in &record.uids {
            let revisions = self.of_uid.entry(uid.clone()).or_default();
            revisions.insert(change.position.revision(), record.drop_after);
        }
        if let Some(owner) = &record.owner_uid {
            self.of_owner.entry(owner.clone()).or_default().insert(change.key.clone());
        }
        self.records.insert(change.key.clone(), (change.position, record));
    }

    /// Whether a record is no longer needed: its tokens have expired, or a newer record revokes them all and is kept
    /// as long.
    fn is_obsolete(&self, position: Position, record: &RevocationRecord, now: Timestamp) -> bool {
        let is_covered = |uid: &String| {
            let newest = self.of_uid.get(uid).and_then(BTreeMap::last_key_value);
            newest.is_some_and(|(revision, drop_after)| {
                *revision > position.revision() && *drop_after >= record.drop_after
            })
        };
        record.drop_after <= now || record.uids.iter().all(is_covered)
    }
}

impl TokenState {
    /// Whether the key is of a record of endpoint tokens.
    pub(super) fn is_indexed(key: &str) -> bool {
        key == storage_key::SIGNING_KEYS
            || [storage_key::REVOCATIONS, storage_key::ISSUED_TOKENS]
                .iter()
                .any(|prefix| key.starts_with(prefix))
    }

    /// Applies a change.
    pub(super) fn apply(&self, change: &RecordValue) {
        if &*change.key == storage_key::SIGNING_KEYS {
            let keys = change.value.as_deref().map(SigningKeys::read).unwrap_or_default();
            self.keys.store(Arc::new(keys));
        } else if change.key.starts_with(storage_key::ISSUED_TOKENS) {
            let record = change.value.as_ref().and_then(|value| decode::decode_typed(value).ok());
            self.impersonations.write().remove(&change.key);
            let Some::<IssuedRecord>(record) = record else {
                self.issued.write().remove(&change.key);
                return;
            };
            if let Some(noted) = &record.impersonation {
                self.impersonations.write().insert(change.key.clone(), noted.clone());
            }
            self.issued.write().insert(change.key.clone(), (change.position, record));
            return;
        } else {
            self.revocations.write().apply(change);
        }
        self.version.send_modify(|version| *version += 1);
    }

    /// Replaces all records.
    pub(super) fn load(&self, values: &[RecordValue]) {
        *self.revocations.write() = Revocations::default();
        self.issued.write().clear();
        self.impersonations.write().clear();
        self.keys.store(Arc::default());
        for value in values {
            self.apply(value);
        }
        self.version.send_modify(|version| *version += 1);
    }

    /// A subscription to the version of the keys and the revocations.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The signing keys.
    pub(super) fn keys(&self) -> Arc<SigningKeys> {
        self.keys.load_full()
    }

    /// The revocations: the newest revision for each uid.
    pub(super) fn revocations(&self) -> Vec<(String, u64)> {
        let revocations = self.revocations.read();
        let newest = revocations.of_uid.iter();
        newest.filter_map(|(uid, all)| Some((uid.clone(), *all.last_key_value()?.0))).collect()
    }

    /// The issued-token note under a key, if there is one.
    pub(super) fn issued(&self, key: &str) -> Option<(Position, IssuedRecord)> {
        self.issued.read().get(key).cloned()
    }

    /// The impersonations that tokens depend on, by their ids.
    pub(super) fn impersonations(&self) -> Vec<(String, NotedImpersonation)> {
        let all = self.impersonations.read();
        let id = |key: &str| key.strip_prefix(storage_key::ISSUED_TOKENS).map(str::to_owned);
        all.iter().filter_map(|(key, noted)| Some((id(key)?, noted.clone()))).collect()
    }

    /// The storage keys of all issued-token notes.
    pub(super) fn all_issued(&self) -> Vec<Arc<str>> {
        self.issued.read().keys().cloned().collect()
    }

    /// The records that are no longer needed: their keys and positions.
    pub(super) fn obsolete(&self, now: Timestamp) -> Vec<(Arc<str>, Position)> {
        let revocations = self.revocations.read();
        let records = revocations.records.iter();
        let done = records
            .filter(|(_, (position, record))| revocations.is_obsolete(*position, record, now));
        let mut done: Vec<_> = done.map(|(key, (position, _))| (key.clone(), *position)).collect();
        let issued = self.issued.read();
        // This note also says that no other tokens are unknown.
        let is_kept = |key: &str| key == storage_key::UNKNOWN_ISSUED_TOKENS;
        let expired =
            issued.iter().filter(|(key, (_, record))| record.until <= now && !is_kept(key));
        done.extend(expired.map(|(key, (position, _))| (key.clone(), *position)));
        done
    }

    /// The owners with more than `most` records of access keys, with the records.
    pub(super) fn owners_over_limit(
        &self,
        most: usize,
    ) -> Vec<(String, Vec<Stored<RevocationRecord>>)> {
        let revocations = self.revocations.read();
        let record_of = |key: &Arc<str>| {
            let (position, record) = revocations.records.get(key)?;
            Some((key.clone(), *position, record.clone()))
        };
        let owners = revocations.of_owner.iter().filter(|(_, keys)| keys.len() > most);
        owners
            .map(|(owner, keys)| (owner.clone(), keys.iter().filter_map(record_of).collect()))
            .collect()
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
            let owner_uid = None;
            serde_json::to_vec(&RevocationRecord { uids, drop_after, owner_uid }).unwrap()
        };
        let apply = |key: &str, revision, value: Option<Vec<u8>>| {
            let key = [storage_key::REVOCATIONS, key].concat().into();
            let position = Position::new(revision, 1);
            state.apply(&RecordValue { key, value: value.map(Bytes::from), position });
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
        let old = state.obsolete(Timestamp::from_unix_seconds(50));
        assert_eq!(old, [("/revocations/b".into(), Position::new(9, 1))]);
        // A newer record replaces the records that it covers, unless they are kept longer.
        let done = || {
            let mut done = state.obsolete(Timestamp::from_unix_seconds(49));
            done.sort();
            done.into_iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(done(), Vec::<String>::new());
        apply("c", 10, Some(record(&["u1", "u2"], 100)));
        assert_eq!(done(), ["/revocations/a", "/revocations/b"]);
        apply("c", 11, Some(record(&["u1", "u2"], 99)));
        assert_eq!(done(), ["/revocations/b"]);
        apply("c", 11, None);
        apply("b", 12, None);
        assert_eq!(revocations(), [of("u1", 5), of("u2", 5)]);
        state.load(&[]);
        assert_eq!(revocations(), []);
    }
}
