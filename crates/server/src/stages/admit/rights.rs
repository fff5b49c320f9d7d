//! What a write requires beyond the verb on its object. This comes before validation: a caller need
//! not learn about fields that they may not write.

use postern_kinds::{AnyKind, Owner, RequiredRight, Right};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::status::ApiError;

use super::finish;
use super::view::AdmissionView;
use crate::stages::authorize::Permit;

/// Checks that an owner may have one object more. The administrator of the machine is not held to
/// that: their command makes a key for whoever has lost all.
pub(super) fn check_count(
    view: &AdmissionView<'_>,
    permit: &Permit,
    name: &str,
    owner: &Owner,
) -> Result<(), ApiError> {
    let (info, limit) = (permit.kind().info(), view.key_policy.max_per_owner);
    if permit.credential().is_server() || view.cache.of(info).count_owned(owner) < limit {
        return Ok(());
    }
    let reason = format!(
        "exceeded quota: their owner has {limit} {}, the most that one may have; delete some first",
        info.plural
    );
    Err(ApiError::forbidden(info.group_resource(), name, reason))
}

/// Checks the rights that a write requires beyond the verb on the object. This comes before
/// validation: a caller need not learn about fields that they may not write.
pub(super) fn check_rights(
    permit: &Permit,
    required: &[RequiredRight],
    new: &Object,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    for right in required {
        permit.check_right(right)?;
    }
    check_blocked_owners(permit, &new.metadata, old.map(|old| &old.metadata))
}

/// Checks that a caller who blocks an owner's deletion may delete that owner. By the specification
/// (part 7) the code is 422, where upstream has 403.
fn check_blocked_owners(
    permit: &Permit,
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
) -> Result<(), ApiError> {
    let blocks = |one: &&OwnerReference| one.block_owner_deletion == Some(true);
    let blocked_before = |uid: &str| {
        old.is_some_and(|old| old.owner_references.iter().filter(blocks).any(|one| one.uid == uid))
    };
    let mut errors = FieldErrors::new();
    for (index, reference) in new.owner_references.iter().enumerate() {
        if !blocks(&reference) || blocked_before(&reference.uid) {
            continue;
        }
        let right = right_to_delete(reference, &new.namespace);
        if permit.check_right(&right.into()).is_err() {
            let path = format!("metadata.ownerReferences[{index}].blockOwnerDeletion");
            let detail = "cannot be set without the right to delete the owner";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    finish(permit.kind(), new, errors)
}

fn right_to_delete(reference: &OwnerReference, namespace: &str) -> Right {
    let kind = postern_kinds::of_reference(&reference.api_version, &reference.kind);
    let Some(info) = kind.map(AnyKind::info) else {
        // A kind that is not served here: only a caller who may delete everything may delete it.
        return Right::cluster("delete", "", "*", &reference.name);
    };
    let namespace = if info.is_namespaced() { namespace.to_owned() } else { String::new() };
    let name = reference.name.clone();
    Right { namespace, ..Right::cluster("delete", info.version.group, info.plural, name) }
}
