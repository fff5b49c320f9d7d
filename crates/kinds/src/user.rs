//! User: a person who may hold access keys.
//!
//! So far only what the first start needs: the server makes the user `admin`, everyone reads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Cell, ColumnInfo, Draft, Kind};
use crate::names::{Info, MANAGEMENT_V1, Scope, Verb};

/// The kind.
pub struct User;

/// What stands beside `metadata`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Fields {
    /// Who the user is.
    pub spec: Spec,
    /// Always empty.
    pub status: Status,
}

/// Who the user is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.UserSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Name for logging in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The name that access decisions and audit see, instead of the object's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Groups that the user is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// A disabled user's keys do not work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

/// Always empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.UserStatus")]
pub struct Status {}

impl Kind for User {
    type Fields = Fields;

    const INFO: Info = Info {
        version: MANAGEMENT_V1,
        kind: "User",
        plural: "users",
        singular: "user",
        short: &[],
        scope: Scope::Cluster,
        verbs: &[Verb::Get, Verb::List, Verb::Watch],
        description: "User is a person who may hold access keys.",
    };

    const COLUMNS: &'static [ColumnInfo] = &[ColumnInfo {
        name: "Display Name",
        r#type: "string",
        format: "",
        description: "Name shown to people.",
        priority: 0,
    }];

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        vec![Cell::Text(object.fields.spec.display_name.clone())]
    }
}
