//! Prepares an admitted change for a transaction: encodes the object, and collects the effects that depend on the
//! change alone. An attempt at the commit adds the effects that depend on the present state (`rules`).

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::namespace::Namespace;
use postern_kinds::principal::{AccessChange, Principal};
use postern_kinds::{AnyKind, OwnedBy, SecretText, all};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Position};
use serde_json::Value;

use super::effects::{Conflict, Effects};
use super::side_records::RecordsOf;
use crate::admit::{AdmittedChange, Limit, Previous, Write};
use crate::cache::{to_stored, to_stored_of};
use crate::registry::Registry;
use crate::registry::project_limits::ProjectLimits;
use crate::storage_key;

/// One change of an object, prepared for a transaction.
pub(in crate::registry) struct StagedChange {
    pub(super) kind: &'static dyn AnyKind,
    pub(super) namespace: Option<String>,
    pub(in crate::registry) name: String,
    /// The storage key.
    pub(super) key: Arc<str>,
    /// The state that must be current; `None` for a new object.
    pub(super) previous: Option<Position>,
    /// The change of the object itself. `None` if the object stays as it is, and must still be so.
    pub(super) change: Option<Change>,
    /// The JSON for the response: the new state, or the last state of a removed object.
    pub(super) json: Bytes,
    /// The value of a new access key. Only the response to the create has it.
    pub(super) issued: Option<SecretText>,
    /// The uid of the object's owner after the change.
    pub(super) owner_uid: Option<String>,
    /// The effects that depend on the change alone.
    pub(super) effects: Effects,
    /// The user or team that owns a new object, which must still exist under its uid.
    pub(super) owner: Option<OwnerAtAdmission>,
    /// The limits of the project that the change is under.
    pub(super) project_limits: Option<ProjectLimits>,
    /// The limits on numbers of access keys that a new key has.
    pub(in crate::registry) limits: Vec<Limit>,
}

/// The principal that owned a new object at admission.
pub(super) struct OwnerAtAdmission {
    pub(super) kind: &'static dyn AnyKind,
    pub(super) name: String,
    pub(super) uid: String,
}

impl StagedChange {
    /// Whether the object is created.
    pub(super) fn is_new(&self) -> bool {
        self.previous.is_none()
    }

    /// Whether the object is a namespace.
    pub(super) fn is_namespace(&self) -> bool {
        self.kind.info().group_resource() == Namespace.info().group_resource()
    }
}

impl Registry {
    /// The effects of a removal, which depend on stored records; none for another change.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn effects_of_removal(
        &self,
        change: &AdmittedChange,
    ) -> Result<Effects, ApiError> {
        let AdmittedChange { kind, namespace, name, write, .. } = change;
        let of = RecordsOf { kind: *kind, namespace: namespace.as_deref(), name };
        let mut effects = Effects::default();
        // These futures are boxed, so that other writes need no memory for them.
        match write {
            Write::Remove { previous: Previous { object: old, .. }, by, .. } => {
                effects.changes.extend(self.logout(*kind, old, by)?);
                Box::pin(self.remove_records(of, Some(old), &mut effects)).await?;
            }
            Write::RemoveCorrupt { .. } => {
                effects.revoked = Box::pin(self.revoked_with_corrupt(of)).await?;
                Box::pin(self.remove_records(of, None, &mut effects)).await?;
            }
            Write::Create { .. } | Write::Replace { .. } | Write::Unchanged(_) => {}
        }
        Ok(effects)
    }

    /// Prepares one change for the transaction. `effects` are those of its removal.
    ///
    /// # Errors
    /// 409 if another access key has the same value.
    pub(super) fn stage(
        &self,
        change: AdmittedChange,
        mut effects: Effects,
        dry_run: bool,
    ) -> Result<StagedChange, ApiError> {
        let AdmittedChange { kind, namespace, name, write, members, limits } = change;
        let of = RecordsOf { kind, namespace: namespace.as_deref(), name: &name };
        let max_bytes = self.store().limits().value_bytes;
        let (mut owner, mut issued, mut project_limits, mut before) = (None, None, None, None);
        let mut owner_uid_after = None;
        let (key, previous, change, json) = match write {
            Write::Unchanged(cached) => {
                owner_uid_after = cached.owner_uid().map(str::to_owned);
                (cached.key().clone(), Some(cached.position()), None, cached.json())
            }
            Write::Create { mut object, owner_uid, write_only } => {
                let key = storage_key::object(kind.info(), namespace.as_deref(), &name);
                owner = owner_at_admission(kind, &object);
                project_limits = ProjectLimits::of(kind, &object, None);
                let of_owner = owner.as_ref().map_or("", |owner| owner.uid.as_str());
                let new_key = self.add_records(of, &object, of_owner, &write_only, &mut effects)?;
                // A dry run issues no key: every key in a response must work.
                issued = new_key.filter(|_| !dry_run);
                self.move_sync_writer(kind, &mut object, None, &mut effects);
                let (value, json) = encode_within(max_bytes, object, owner_uid.as_deref());
                owner_uid_after = owner_uid;
                (key.clone(), None, Some(Change::Put { key, value }), json)
            }
            Write::Replace { mut object, owner_uid, previous, write_only, secrets } => {
                project_limits = ProjectLimits::of(kind, &object, Some(&previous.object));
                self.change_records(of, &object, &previous, &secrets, &write_only, &mut effects)?;
                let Previous { cached, object: old } = previous;
                self.move_sync_writer(kind, &mut object, Some(&old), &mut effects);
                let (value, json) = encode_within(max_bytes, object, owner_uid.as_deref());
                owner_uid_after = owner_uid;
                before = Some(cached.json());
                let key = cached.key().clone();
                (key.clone(), Some(cached.position()), Some(Change::Put { key, value }), json)
            }
            Write::Remove { object, previous: Previous { cached, .. }, .. } => {
                before = Some(cached.json());
                let key = cached.key().clone();
                let removal = Some(Change::Delete { key: key.clone() });
                (key, Some(cached.position()), removal, to_stored(object))
            }
            Write::RemoveCorrupt { key, position } => {
                (key.clone(), Some(position), Some(Change::Delete { key }), Bytes::new())
            }
        };
        let new = matches!(change, Some(Change::Put { .. })).then_some(&*json);
        effects.revoked.extend(self.revoked(of, before.as_deref(), new));
        for (key, position) in members {
            effects.require(Condition::At(key, position), Conflict::Changed);
        }
        Ok(StagedChange {
            kind,
            namespace,
            name,
            key,
            previous,
            change,
            json,
            issued,
            owner_uid: owner_uid_after,
            effects,
            owner,
            project_limits,
            limits,
        })
    }
}

/// An object as it is stored, and its JSON. An object that is too long loses its `managedFields`, as upstream: they
/// are no reason to reject the write.
fn encode_within(max_bytes: usize, object: Object, owner_uid: Option<&str>) -> (Bytes, Bytes) {
    let whole = to_stored_of(object, owner_uid);
    if whole.0.len() <= max_bytes {
        return whole;
    }
    match decode_typed::<Value>(&whole.1).map(Object::from_value) {
        Ok(Ok(mut object)) => {
            object.metadata.managed_fields.clear();
            to_stored_of(object, owner_uid)
        }
        // The store rejects the object and reports the reason.
        _ => whole,
    }
}

/// The owner of a new object, under the uid that admission has recorded.
fn owner_at_admission(kind: &'static dyn AnyKind, object: &Object) -> Option<OwnerAtAdmission> {
    if !kind.is_delegated() {
        return None;
    }
    let OwnedBy { owner, uid } = kind.owned_by(&object.to_json_bytes())?;
    let (role, name) = match owner.principal()? {
        Principal::User(name) => (AccessChange::User(None), name),
        Principal::Team(name) => (AccessChange::Team(None), name),
    };
    let kind =
        all().iter().copied().find(|kind| kind.access_change(None).as_ref() == Some(&role))?;
    (!uid.is_empty()).then(|| OwnerAtAdmission { kind, name: name.to_owned(), uid })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_is_too_long_goes_without_its_managed_fields() {
        let entry = json!({ "manager": "m", "operation": "Apply", "apiVersion": "v1" });
        let value = json!({
            "apiVersion": "v1", "kind": "Secret", "data": { "a": "djE=" },
            "metadata": { "name": "s", "managedFields": [entry] },
        });
        let object = Object::from_value(value).unwrap();
        let owner = Some("uid-ada");
        let whole = to_stored_of(object.clone(), owner);
        assert_eq!(encode_within(whole.0.len(), object.clone(), owner), whole);
        let mut without = object.clone();
        without.metadata.managed_fields.clear();
        assert_eq!(encode_within(whole.0.len() - 1, object, owner), to_stored_of(without, owner));
    }
}
