//! The ties of a credential: the objects that it ends with, independently of its owner references.
//! These are its user or team, the key that made it, and the workload identity that made it.
//!
//! Only the server writes them, in `status`. Until version 0.2, they were owner references. The server reads stored
//! objects of that form with their ties in `status`, and removes these references from each write.

use std::collections::HashSet;

use postern_meta::object::{ManagedFieldsEntry, Object, ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::context::Context;
use crate::key_attenuation;
use crate::key_origin::Workload;
use crate::names::MANAGEMENT_V1;
use crate::principal::{Maker, Owner, Principal};

/// The field of `status` with [`Ties::owner_uid`].
const OWNER_UID: &str = "ownerUid";

/// The objects that a credential ends with. Its owner is also named in `spec`.
#[derive(Clone, Copy, Debug)]
pub struct Ties<'a> {
    /// The uid of its user or team; empty for a raw subject, and for a credential that has lost its owner.
    pub owner_uid: &'a str,
    /// The access key that made it, if it ends with that key.
    pub maker: Option<&'a Maker>,
    /// The workload identity that made it.
    pub workload: Option<&'a Workload>,
}

impl Ties<'_> {
    /// The ties, each in the form of an owner reference.
    pub(crate) fn references(&self, owner: Option<&Owner>) -> Vec<OwnerReference> {
        let principal = owner.and_then(Owner::principal).filter(|_| !self.owner_uid.is_empty());
        let owner = principal.map(|principal| reference_to(principal, self.owner_uid));
        owner.into_iter().chain(self.others()).collect()
    }

    fn others(&self) -> impl Iterator<Item = OwnerReference> {
        let maker = self.maker.map(key_attenuation::reference);
        maker.into_iter().chain(self.workload.map(Workload::reference))
    }
}

fn reference_to(principal: Principal<'_>, uid: &str) -> OwnerReference {
    let (kind, name) = match principal {
        Principal::User(name) => ("User", name),
        Principal::Team(name) => ("Team", name),
    };
    OwnerReference {
        api_version: MANAGEMENT_V1.to_string(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// The uid of the owner of a new credential; empty for a raw subject.
pub(crate) fn owner_uid(owner: Option<&Owner>, ctx: &Context<'_>) -> String {
    owner.and_then(Owner::principal).and_then(|principal| ctx.uid_of(principal)).unwrap_or_default()
}

/// Removes the owner references that earlier versions wrote for ties, and their fields in `managedFields`. A client may
/// have read them from such a version and send them back. With one of a gone owner, the garbage collector would delete the
/// credential. With `controller` or `blockOwnerDeletion`, a reference is the client's own.
pub(crate) fn remove_references(metadata: &mut ObjectMeta, owner: Option<&Owner>, ties: &Ties<'_>) {
    if metadata.owner_references.is_empty() {
        return;
    }
    let others: Vec<OwnerReference> = ties.others().collect();
    let is_tie = |one: &OwnerReference| {
        let is_plain = one.controller.is_none() && one.block_owner_deletion.is_none();
        is_plain && (owner.is_some_and(|owner| owner.is_named_by(one)) || others.contains(one))
    };
    let removed = metadata.owner_references.extract_if(.., |one| is_tie(one));
    // In `managedFields`, each element of this list has a field with its key.
    let removed: HashSet<String> =
        removed.map(|one| format!("k:{}", json!({ "uid": one.uid }))).collect();
    if !removed.is_empty() {
        metadata.managed_fields.iter_mut().for_each(|entry| disown(entry, &removed));
    }
}

/// Removes owner references from the fields of a manager, by their keys.
fn disown(entry: &mut ManagedFieldsEntry, keys: &HashSet<String>) {
    let Some(fields) = entry.fields_v1.as_mut().and_then(Value::as_object_mut) else { return };
    let Some(metadata) = fields.get_mut("f:metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(references) = metadata.get_mut("f:ownerReferences").and_then(Value::as_object_mut)
    else {
        return;
    };
    references.retain(|key, _| !keys.contains(key));
    if references.keys().all(|key| key == ".") {
        metadata.remove("f:ownerReferences");
    }
    if metadata.is_empty() {
        fields.remove("f:metadata");
    }
}

/// Gives a stored credential of an earlier version its ties in `status`. Its owner is the one that its owner reference
/// names. Returns whether the object is changed.
pub(crate) fn upgrade(object: &mut Object, owner: Option<&Owner>, ties: &Ties<'_>) -> bool {
    let found = owner.filter(|_| ties.owner_uid.is_empty());
    let found = found.and_then(|owner| owner.uid_in(&object.metadata)).map(str::to_owned);
    let count = object.metadata.owner_references.len();
    remove_references(&mut object.metadata, owner, ties);
    let is_changed = found.is_some() || object.metadata.owner_references.len() != count;
    if let Some(uid) = found {
        let status = object.fields.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert(OWNER_UID.to_owned(), uid.into());
        }
    }
    is_changed
}
