//! What Roles, ClusterRoles and their bindings share as kinds.

use crate::prelude::*;
use crate::rbac::RBAC_V1;

/// What Roles, ClusterRoles and their bindings share.
pub(crate) const INFO: Info = Info {
    version: RBAC_V1,
    confidential: false,
    layout: Layout::TopLevel,
    name_rule: NameRule::PathSegment,
    ..Info::DEFAULT
};

/// Whether a write changes only the fields for garbage collection, so that it gives no new
/// permissions. A caller that may not write a role may still remove finalizers from it, as in
/// Kubernetes.
pub(crate) fn is_only_for_garbage_collection<F: PartialEq>(write: &Write<'_, F>) -> bool {
    let &Write { new, old: Some(old), .. } = write else { return false };
    let mut metadata = new.metadata.clone();
    metadata.owner_references.clone_from(&old.metadata.owner_references);
    metadata.finalizers.clone_from(&old.metadata.finalizers);
    metadata.managed_fields.clone_from(&old.metadata.managed_fields);
    metadata == old.metadata && new.fields == old.fields
}
