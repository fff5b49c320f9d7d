//! A requested impersonation, as the client sends it and the server reads it. `auth` decides which rights it grants.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity that a caller wants to impersonate: the content of Kubernetes' `Impersonate-` headers.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.Impersonation")]
pub struct Impersonation {
    /// The user's name; never empty in a valid request.
    pub user: String,
    /// The groups; if there are none, the user's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// The uid; if it is empty, the user's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Extra fields, by their keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}
