//! The sync writers: records of the identity that requested a secret sync.
//!
//! Admission puts the writer into an annotation. This module moves it into a record, and leaves the id of the record
//! in the annotation. So readers of the secret learn nothing of the writer's key or its scope.

use bytes::Bytes;
use postern_auth::writer::{Logout, Writer};
use postern_kinds::owned_access_key::{Fields, LOGIN, OwnedAccessKey};
use postern_kinds::secret_sync::SYNCED_FOR;
use postern_kinds::{AnyKind, Owner};
use postern_meta::decode::decode_typed;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_store::Change;
use serde::Deserialize as _;

use super::effects::{Effects, encoded};
use crate::admit::Remover;
use crate::clock::new_uid;
use crate::registry::Registry;
use crate::storage_key;

/// The writer, if the annotation has it in full. Any other annotation is the id of a record.
pub(crate) fn inline_writer(annotation: &str) -> Option<Writer> {
    if annotation.starts_with('{') { decode_typed(annotation.as_bytes()).ok() } else { None }
}

fn record_of(object: &Object) -> Option<&str> {
    object.metadata.annotations.get(SYNCED_FOR).map(String::as_str)
}

impl Registry {
    /// Moves the writer of the new state from its annotation into a record, and removes the record of the old writer.
    pub(super) fn move_sync_writer(
        &self,
        kind: &dyn AnyKind,
        object: &mut Object,
        old: Option<&Object>,
        effects: &mut Effects,
    ) {
        if kind.info().data_source(&object.metadata).is_some()
            && let Some(annotation) = object.metadata.annotations.get_mut(SYNCED_FOR)
            && annotation.starts_with('{')
        {
            let id = new_uid(self.source());
            let value = Bytes::from(std::mem::replace(annotation, id.clone()));
            effects.changes.push(Change::Put { key: storage_key::sync_writer(&id), value });
        }
        if old.and_then(record_of) != record_of(object) {
            self.forget_sync_writer(old, effects);
        }
    }

    /// Removes the record of the writer, for an object that is removed or gets another writer.
    pub(super) fn forget_sync_writer(&self, old: Option<&Object>, effects: &mut Effects) {
        let Some(id) = old.and_then(record_of) else { return };
        let Some(writer) = self.cache().sync_writer(id) else { return };
        effects.delete(storage_key::sync_writer(id));
        let uid = &writer.key_uid;
        if self.cache().logout_of(uid).is_some() && self.cache().sync_writers_with(uid) <= 1 {
            effects.delete(storage_key::logged_out_key(uid));
        }
    }

    /// The record of a logout, if secret syncs depend on the permissions of the key's owner.
    ///
    /// A logout is the deletion of a login key by its owner, or the removal of an expired login key by the server.
    /// After a deletion by another caller, the key may have been stolen. A disabled key, or a key of a disabled
    /// owner, leaves no record.
    ///
    /// # Errors
    /// 500 if the record cannot be encoded, which is a bug.
    pub(super) fn logout(
        &self,
        kind: &dyn AnyKind,
        removed: &Object,
        by: &Remover,
    ) -> Result<Option<Change>, ApiError> {
        let ObjectMeta { name, uid, .. } = &removed.metadata;
        if kind.info().kind != OwnedAccessKey.info().kind
            || self.cache().sync_writers_with(uid) == 0
        {
            return Ok(None);
        }
        let Ok(Fields { spec, status }) = Fields::deserialize(&removed.fields) else {
            return Ok(None);
        };
        let owner = spec.owner();
        let owner_uid = status.owner_uid.as_str();
        let Some(owner) = owner.as_ref().and_then(Owner::principal) else { return Ok(None) };
        if owner_uid.is_empty() {
            return Ok(None);
        }
        let principals = self.cache().principals();
        let is_expired = || {
            let end = principals.end_of(name);
            end.is_some_and(|end| end <= self.source().now().unix_seconds())
        };
        let is_logout = match by {
            Remover::Server => is_expired(),
            Remover::Principal(uid) => uid == owner_uid,
            Remover::Unknown => false,
        };
        let is_free = spec.r#type == LOGIN
            && !spec.disabled
            && status.maker.is_none()
            && status.parent_uid.is_empty();
        if !is_logout || !is_free || principals.identity_of_principal(owner, owner_uid).is_none() {
            return Ok(None);
        }
        let value = encoded(&Logout { scope: spec.scope })?;
        Ok(Some(Change::Put { key: storage_key::logged_out_key(uid), value }))
    }
}
