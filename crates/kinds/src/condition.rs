//! Conditions in a status: upstream's `metav1.Condition`.

use postern_meta::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One aspect of the state of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition")]
pub struct Condition {
    /// Which aspect, such as Ready.
    pub r#type: String,
    /// True, False or Unknown.
    pub status: String,
    /// The generation of the object that this was found out for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// The reason, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

/// The status of a kind that has nothing but conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.Conditions")]
pub struct ConditionsStatus {
    /// The conditions of the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
}

impl ConditionsStatus {
    /// The status of a condition; empty when it is not known.
    pub fn status_of(&self, kind: &str) -> String {
        let found = self.conditions.iter().find(|condition| condition.r#type == kind);
        found.map(|condition| condition.status.clone()).unwrap_or_default()
    }
}
