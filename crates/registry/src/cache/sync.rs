//! The records of secret sync, kept up to date with the store: the writer that requested each sync, and the access
//! keys that were deleted by a logout. `auth` decides the permissions of a writer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use postern_auth::writer::{Logout, Writer};
use postern_meta::decode;

use super::tokens::RecordValue;
use crate::storage_key;

/// The stored records of secret sync.
#[derive(Default)]
pub(super) struct SyncState {
    writers: RwLock<Writers>,
    logged_out: RwLock<HashMap<String, Arc<Logout>>>,
}

#[derive(Default)]
struct Writers {
    of_id: HashMap<String, Arc<Writer>>,
    /// The number of writers that used the access key of a uid.
    with_key: HashMap<String, usize>,
}

impl Writers {
    fn set(&mut self, id: &str, writer: Option<Writer>) {
        if let Some(old) = self.of_id.remove(id)
            && let Some(count) = self.with_key.get_mut(&old.key_uid)
        {
            *count -= 1;
            if *count == 0 {
                self.with_key.remove(&old.key_uid);
            }
        }
        if let Some(writer) = writer {
            *self.with_key.entry(writer.key_uid.clone()).or_default() += 1;
            self.of_id.insert(id.to_owned(), Arc::new(writer));
        }
    }
}

impl SyncState {
    /// Whether the key is of a record of secret sync.
    pub(super) fn is_indexed(key: &str) -> bool {
        key.starts_with(storage_key::SYNC_WRITERS) || key.starts_with(storage_key::LOGGED_OUT_KEYS)
    }

    /// Applies a change.
    pub(super) fn apply(&self, change: &RecordValue) {
        if let Some(id) = change.key.strip_prefix(storage_key::SYNC_WRITERS) {
            let value = change.value.as_ref();
            let writer = value.and_then(|value| decode::decode_typed(value).ok());
            self.writers.write().set(id, writer);
        } else if let Some(uid) = change.key.strip_prefix(storage_key::LOGGED_OUT_KEYS) {
            let value = change.value.as_ref();
            let logout = value.and_then(|value| decode::decode_typed::<Logout>(value).ok());
            let mut logged_out = self.logged_out.write();
            match logout {
                Some(logout) => logged_out.insert(uid.to_owned(), Arc::new(logout)),
                None => logged_out.remove(uid),
            };
        }
    }

    /// Replaces all records.
    pub(super) fn load(&self, values: &[RecordValue]) {
        *self.writers.write() = Writers::default();
        self.logged_out.write().clear();
        for value in values {
            self.apply(value);
        }
    }

    /// The writer with an id.
    pub(super) fn writer(&self, id: &str) -> Option<Arc<Writer>> {
        self.writers.read().of_id.get(id).cloned()
    }

    /// The number of writers that used the access key of a uid.
    pub(super) fn writers_with(&self, key_uid: &str) -> usize {
        self.writers.read().with_key.get(key_uid).copied().unwrap_or_default()
    }

    /// The state of the access key of a uid when it was deleted, if that was a logout.
    pub(super) fn logout_of(&self, key_uid: &str) -> Option<Arc<Logout>> {
        self.logged_out.read().get(key_uid).cloned()
    }
}
