//! RoleBinding (rbac.authorization.k8s.io/v1): gives a role to subjects in one namespace.

use crate::bindings::{self, Fields, Spec};
use crate::prelude::*;
use crate::rbac::{self, Granted, PolicyPart, RBAC_V1};

/// The kind.
pub struct RoleBinding;

impl Kind for RoleBinding {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: RBAC_V1,
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        scope: ResourceScope::Namespaced,
        confidential: false,
        description: "RoleBinding gives a Role or a ClusterRole to its subjects, in its namespace.",
        ..Info::DEFAULT
    };

    const LAYOUT: Layout = Layout::TopLevel;

    const NAME_RULE: NameRule = NameRule::PathSegment;

    const STRICT_FIELDS: StrictFields = StrictFields::OF_BINDINGS;

    const COLUMNS: &'static [ColumnInfo] = bindings::COLUMNS;

    const POLICY_PART: Option<PolicyPart<Spec>> = Some(PolicyPart::Binding(bindings::facts));

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        bindings::set_defaults(&mut new.fields.spec);
    }

    fn validate(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        bindings::check_role(Self::INFO.group_resource(), new, old, ctx)?;
        let old = old.map(|old| &old.fields.spec);
        bindings::validate(&new.fields.spec, old, &["Role", "ClusterRole"], true, errors);
        rbac::check_name(Self::INFO.group_resource(), &new.metadata.name, ctx)
    }

    fn granted(new: &Draft<Fields>, old: Option<&Draft<Fields>>) -> Option<Granted> {
        bindings::granted(new, old)
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        bindings::cells(&object.fields.spec)
    }

    fn check_delete(metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError> {
        rbac::check_name(Self::INFO.group_resource(), &metadata.name, ctx)
    }
}
