//! Role (rbac.authorization.k8s.io/v1): what is allowed in one namespace.

use crate::policy_rules;
use crate::prelude::*;
use crate::rbac::{self, Granted, PolicyPart, PolicyRule, RBAC_V1};

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
        version: RBAC_V1,
        kind: "Role",
        plural: "roles",
        singular: "role",
        scope: ResourceScope::Namespaced,
        confidential: false,
        description: "Role says what is allowed in its namespace. RoleBindings give it to subjects.",
        ..Info::DEFAULT
    };

    const LAYOUT: Layout = Layout::TopLevel;

    const NAME_RULE: NameRule = NameRule::PathSegment;

    const STRICT_FIELDS: StrictFields = StrictFields::OF_ROLES;

    const POLICY_PART: Option<PolicyPart<Spec>> = Some(PolicyPart::Role(|spec| spec.rules.clone()));

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        policy_rules::validate(&new.fields.spec.rules, true, errors);
        rbac::check_name(Self::INFO.group_resource(), &new.metadata.name, ctx)
    }

    fn granted(new: &Draft<Fields>, old: Option<&Draft<Fields>>) -> Option<Granted> {
        let gives_nothing = old.is_some_and(|old| rbac::only_for_garbage_collection(new, old));
        (!gives_nothing).then(|| Granted::Rules(new.fields.spec.rules.clone()))
    }

    fn check_delete(metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError> {
        rbac::check_name(Self::INFO.group_resource(), &metadata.name, ctx)
    }
}
