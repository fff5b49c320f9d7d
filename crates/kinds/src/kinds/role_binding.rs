//! RoleBinding (rbac.authorization.k8s.io/v1): gives a role to subjects in one namespace.

use crate::bindings::{self, Fields, Spec};
use crate::prelude::*;
use crate::rbac::{self, Granted, PolicyPart};
use crate::rbac_kinds;

/// The kind.
pub struct RoleBinding;

impl Kind for RoleBinding {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        scope: ResourceScope::Namespaced,
        description: "RoleBinding gives a Role or a ClusterRole to its subjects, in its namespace.",
        strict_fields: Some(StrictFields::OF_BINDINGS),
        columns: bindings::COLUMNS,
        ..rbac_kinds::INFO
    };

    const PARTS: Parts<Spec, Self::Status> =
        Parts { policy: Some(PolicyPart::Binding(bindings::facts)), ..Parts::DEFAULT };

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        bindings::set_defaults(&mut new.fields.spec);
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        bindings::check_role(Self::INFO.group_resource(), write)?;
        bindings::validate(write.spec(), write.old_spec(), true, errors);
        rbac::check_name(Self::INFO.group_resource(), &write.new.metadata.name, write.ctx)
    }

    fn granted(write: &Write<'_, Fields>) -> Option<Granted> {
        bindings::granted(write)
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        bindings::cells(&object.fields.spec)
    }

    fn check_delete(metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError> {
        rbac::check_name(Self::INFO.group_resource(), &metadata.name, ctx)
    }
}
