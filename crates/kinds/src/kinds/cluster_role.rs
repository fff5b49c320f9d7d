//! ClusterRole (rbac.authorization.k8s.io/v1): permissions that hold everywhere, or wherever a
//! RoleBinding gives them. The rules of an aggregated one are put together by a controller of the
//! server.

use std::collections::BTreeMap;

use crate::label_selector::LabelSelector;
use crate::policy_rules;
use crate::prelude::*;
use crate::rbac::{self, Granted, PolicyPart, PolicyRule};
use crate::rbac_kinds;

/// The ClusterRole of every user.
pub const USER_DEFAULT_ROLE: &str = "platform-user-default";

/// The most selectors of an aggregation.
const MAX_SELECTORS: usize = 100;

/// The kind.
pub struct ClusterRole;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The permissions of the role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.rbac.v1.ClusterRoleFields")]
pub struct Spec {
    /// Gathers the rules of other ClusterRoles. Then the server sets the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation_rule: Option<AggregationRule>,
    /// The permissions of the role. Rules can only add permissions.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<PolicyRule>,
}

/// Which ClusterRoles a ClusterRole gathers the rules of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.rbac.v1.AggregationRule")]
pub struct AggregationRule {
    /// The selectors. A ClusterRole is included if one of them selects it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_role_selectors: Vec<LabelSelector>,
}

impl AggregationRule {
    /// Whether it aggregates the rules of a ClusterRole with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.cluster_role_selectors.iter().any(|selector| selector.matches(labels))
    }
}

impl Kind for ClusterRole {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        description: "ClusterRole is a set of permissions, for all namespaces or for the \
                      namespace of a RoleBinding.",
        strict_fields: Some(StrictFields::OF_ROLES),
        ..rbac_kinds::INFO
    };

    const PARTS: Parts<Spec, Self::Status> =
        Parts { policy: Some(PolicyPart::Role(|spec| spec.rules.clone())), ..Parts::DEFAULT };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let spec = write.spec();
        policy_rules::validate(&spec.rules, false, errors);
        if let Some(aggregation) = &spec.aggregation_rule {
            validate_aggregation(&aggregation.cluster_role_selectors, errors);
        }
        rbac::check_name(Self::INFO.group_resource(), &write.new.metadata.name, write.ctx)
    }

    fn granted(write: &Write<'_, Fields>) -> Option<Granted> {
        if rbac_kinds::is_only_for_garbage_collection(write) {
            return None;
        }
        let spec = write.spec();
        let mut granted = spec.rules.clone();
        let aggregates = |spec: &Spec| spec.aggregation_rule.is_some();
        if aggregates(spec) || write.old_spec().is_some_and(aggregates) {
            granted.extend(policy_rules::everything());
        }
        Some(Granted::Rules(granted))
    }

    fn check_delete(metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError> {
        rbac::check_name(Self::INFO.group_resource(), &metadata.name, ctx)
    }
}

fn validate_aggregation(selectors: &[LabelSelector], errors: &mut FieldErrors) {
    const PATH: &str = "aggregationRule.clusterRoleSelectors";
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(PATH, detail));
    }
    if !errors.check_count(PATH, selectors.len(), MAX_SELECTORS) {
        return;
    }
    for (index, selector) in selectors.iter().enumerate() {
        selector.validate(&format!("{PATH}[{index}]"), errors);
    }
}
