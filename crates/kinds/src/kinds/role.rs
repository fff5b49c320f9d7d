//! Role (rbac.authorization.k8s.io/v1): permissions in one namespace.

use crate::policy_rules;
use crate::prelude::*;
use crate::rbac::{self, Granted, PolicyPart, PolicyRule};
use crate::rbac_kinds;

/// The kind.
pub struct Role;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The permissions of the role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.rbac.v1.RoleFields")]
pub struct Spec {
    /// The permissions of the role. Rules can only add permissions.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<PolicyRule>,
}

impl Kind for Role {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "Role",
        plural: "roles",
        singular: "role",
        scope: ResourceScope::Namespaced,
        description: "Role says what is allowed in its namespace. RoleBindings give it to subjects.",
        strict_fields: Some(StrictFields::OF_ROLES),
        ..rbac_kinds::INFO
    };

    const PARTS: Parts<Spec, Self::Status> =
        Parts { policy: Some(PolicyPart::Role(|spec| spec.rules.clone())), ..Parts::DEFAULT };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        policy_rules::validate(&write.spec().rules, true, errors);
        rbac::check_name(Self::INFO.group_resource(), &write.new.metadata.name, write.ctx)
    }

    fn granted(write: &Write<'_, Fields>) -> Option<Granted> {
        let gives_nothing = rbac_kinds::is_only_for_garbage_collection(write);
        (!gives_nothing).then(|| Granted::Rules(write.spec().rules.clone()))
    }

    fn check_delete(metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError> {
        rbac::check_name(Self::INFO.group_resource(), &metadata.name, ctx)
    }
}
