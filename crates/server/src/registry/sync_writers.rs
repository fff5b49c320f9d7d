//! The records of who asked for a secret to take its data from another one. Admission puts the writer into an
//! annotation; here it becomes a record of its own, and the annotation only has the id of that. Readers of the secret
//! learn nothing of the writer's key or its scope.

use bytes::Bytes;
use postern_auth::writer::Writer;
use postern_kinds::follows::SYNCED_FOR;
use postern_kinds::owned_access_key::{Fields, LOGIN, OwnedAccessKey};
use postern_kinds::{AnyKind, Owner};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_store::Change;
use serde::Deserialize as _;

use super::Registry;
use crate::clock::new_uid;
use crate::storage_key;

/// Returns the writer that an annotation names in full. Any other annotation is the id of a record.
pub(crate) fn inline_writer(annotation: &str) -> Option<Writer> {
    if annotation.starts_with('{') { decode_typed(annotation.as_bytes()).ok() } else { None }
}

fn record_of(object: &Object) -> Option<&str> {
    object.metadata.annotations.get(SYNCED_FOR).map(String::as_str)
}

impl Registry {
    /// Moves the writer of a new state out of its annotation, and removes the record of an old one.
    pub(super) fn move_sync_writer(
        &self,
        kind: &dyn AnyKind,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        if kind.data_source(&object.metadata).is_some()
            && let Some(annotation) = object.metadata.annotations.get_mut(SYNCED_FOR)
            && annotation.starts_with('{')
        {
            let id = new_uid(self.source());
            let value = Bytes::from(std::mem::replace(annotation, id.clone()));
            changes.push(Change::Put { key: storage_key::sync_writer(&id), value });
        }
        if old.and_then(record_of) != record_of(object) {
            changes.extend(self.forget_sync_writer(old));
        }
        changes
    }

    /// Returns what removes the record of the writer of an object that is removed, or has another one.
    pub(super) fn forget_sync_writer(&self, old: Option<&Object>) -> Vec<Change> {
        let Some(id) = old.and_then(record_of) else { return Vec::new() };
        let Some(writer) = self.cache().sync_writer(id) else { return Vec::new() };
        let mut changes = vec![Change::Delete { key: storage_key::sync_writer(id) }];
        let uid = &writer.key_uid;
        if self.cache().has_logged_out(uid) && self.cache().sync_writers_with(uid) <= 1 {
            changes.push(Change::Delete { key: storage_key::logged_out_key(uid) });
        }
        changes
    }

    /// Returns the record that an access key was deleted by a logout, if secrets follow others by the rights of its
    /// owner. A key that is disabled, or whose owner is, stays so when it is deleted.
    pub(super) fn logout(&self, kind: &dyn AnyKind, removed: Option<&Object>) -> Option<Change> {
        let key = removed.filter(|_| kind.info().kind == OwnedAccessKey.info().kind)?;
        let uid = &key.metadata.uid;
        let Fields { spec, status } = Fields::deserialize(&key.fields).ok()?;
        let is_free = spec.r#type == LOGIN && !spec.disabled && status.maker.is_none();
        if !is_free || self.cache().sync_writers_with(uid) == 0 {
            return None;
        }
        let owner = spec.owner();
        let owner_uid = owner.as_ref().and_then(|owner| owner.uid_in(&key.metadata));
        let principal = owner.as_ref().and_then(Owner::principal).zip(owner_uid);
        let principals = self.cache().principals();
        let is_owned = principal
            .is_some_and(|(owner, uid)| principals.identity_of_principal(owner, uid).is_some());
        let key = storage_key::logged_out_key(uid);
        is_owned.then(|| Change::Put { key, value: Bytes::from_static(b"{}") })
    }
}
