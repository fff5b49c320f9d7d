//! The bound names, kept up to date with the store: the uids that the names in access rules and members had when they
//! were added. A workload identity has the uid of its trusted issuer. Roles and bindings are made from these records. So if a Role is edited or deleted by hand, a later
//! user of the same name gets no permissions.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use postern_kinds::BoundGrant;
use postern_meta::decode;
use serde::{Deserialize, Serialize};

use super::tokens::RecordValue;
use crate::storage_key;

/// The users, teams and issuers that an object names, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BoundNames {
    /// The uid of the object. A later object of the same name names no users or teams yet.
    pub(crate) uid: String,
    /// The permissions that the object gives, each with its subject; or its trusted issuer.
    pub(crate) grants: Vec<BoundGrant>,
}

/// The bound names of all objects.
#[derive(Default)]
pub(super) struct BoundState {
    of: RwLock<HashMap<Arc<str>, Arc<BoundNames>>>,
}

impl BoundState {
    /// Whether the key is of a record of bound names.
    pub(super) fn is_indexed(key: &str) -> bool {
        key.starts_with(storage_key::BOUND_NAMES)
    }

    /// Applies a change.
    pub(super) fn apply(&self, change: &RecordValue) {
        let value: Option<&Bytes> = change.value.as_ref();
        match value.and_then(|value| decode::decode_typed(value).ok()) {
            Some(names) => self.of.write().insert(change.key.clone(), Arc::new(names)),
            None => self.of.write().remove(&change.key),
        };
    }

    /// Replaces all records.
    pub(super) fn load(&self, values: &[RecordValue]) {
        self.of.write().clear();
        for value in values {
            self.apply(value);
        }
    }

    /// The record under a storage key.
    pub(super) fn get(&self, key: &str) -> Option<Arc<BoundNames>> {
        self.of.read().get(key).cloned()
    }
}
