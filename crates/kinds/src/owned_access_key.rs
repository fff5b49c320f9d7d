//! OwnedAccessKey: a bearer credential (specification 2.3, decision 3).
//!
//! So far only what the first start needs: the server makes the administrator's key, everyone
//! reads. The value of a key is never in the object: at rest there is only its digest, in a
//! record of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Cell, ColumnInfo, Draft, Kind};
use crate::names::{Info, MANAGEMENT_V1, Scope, Verb};

/// The kind.
pub struct OwnedAccessKey;

/// What stands beside `metadata`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Fields {
    /// Whose key it is.
    pub spec: Spec,
    /// Always empty so far.
    pub status: Status,
}

/// Whose key it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.OwnedAccessKeySpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// What the key is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The User whose key it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// A disabled key exists, but gives no access.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Who manages the key: `User` for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
}

/// Always empty so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.OwnedAccessKeyStatus")]
pub struct Status {}

impl Kind for OwnedAccessKey {
    type Fields = Fields;

    const INFO: Info = Info {
        version: MANAGEMENT_V1,
        kind: "OwnedAccessKey",
        plural: "ownedaccesskeys",
        singular: "ownedaccesskey",
        short: &[],
        scope: Scope::Cluster,
        verbs: &[Verb::Get, Verb::List, Verb::Watch],
        description: "OwnedAccessKey is a bearer credential of a user.",
    };

    const COLUMNS: &'static [ColumnInfo] = &[ColumnInfo {
        name: "User",
        r#type: "string",
        format: "",
        description: "The user whose key it is.",
        priority: 0,
    }];

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        vec![Cell::Text(object.fields.spec.user.clone())]
    }
}
