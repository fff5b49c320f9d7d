//! The claims that the token (a JWT) of a workload must have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A claim, and the values of which a token must have one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ClaimMatch")]
pub struct ClaimMatch {
    /// The name of the claim. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// The values, compared exactly. A value of `ref` may end with `*`. Required.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}
