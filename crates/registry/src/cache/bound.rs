//! Keeps in step with what is stored about whom the access rules and members of objects name: the uids that the
//! names meant when they were added. The Roles and bindings are made from this, not from what is there: a hand edit
//! of them, or their deletion, gives a later namesake nothing.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use postern_kinds::BoundGrant;
use postern_meta::decode;
use serde::{Deserialize, Serialize};

use super::tokens::TokenValue;
use crate::storage_key;

/// Whom an object names, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BoundNames {
    /// The uid of the object. A later object of the same name names no users or teams yet.
    pub(crate) uid: String,
    /// The permissions that it gives, and to whom.
    pub(crate) grants: Vec<BoundGrant>,
}

/// Whom all objects name.
#[derive(Default)]
pub(super) struct BoundState {
    of: RwLock<HashMap<Arc<str>, Arc<BoundNames>>>,
}

impl BoundState {
    /// Whether the value of a key is about whom an object names.
    pub(super) fn is_indexed(key: &str) -> bool {
        key.starts_with(storage_key::BOUND_NAMES)
    }

    /// Applies a change.
    pub(super) fn apply(&self, change: &TokenValue) {
        let value: Option<&Bytes> = change.value.as_ref();
        match value.and_then(|value| decode::decode_typed(value).ok()) {
            Some(names) => self.of.write().insert(change.key.clone(), Arc::new(names)),
            None => self.of.write().remove(&change.key),
        };
    }

    /// Replaces everything.
    pub(super) fn load(&self, values: &[TokenValue]) {
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
