//! Team: users who hold rights together, and may hold access keys together (decision 1).

use postern_meta::field::FieldErrors;
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Cell, ColumnInfo, Context, Draft, Kind};
use crate::names::{ACCESS_KEYS_OF, Info, MANAGEMENT_V1, Scope, Verb};
use crate::user::check_identity;

/// The kind.
pub struct Team;

/// What stands beside `metadata`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Fields {
    /// Who is in the team.
    pub spec: Spec,
    /// Always empty.
    pub status: Status,
}

/// Who is in the team.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.TeamSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Name for logging in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The users who are in the team, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<String>,
    /// Groups that whoever is in the team is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
}

/// Always empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.TeamStatus")]
pub struct Status {}

impl Kind for Team {
    type Fields = Fields;

    const INFO: Info = Info {
        version: MANAGEMENT_V1,
        kind: "Team",
        plural: "teams",
        singular: "team",
        short: &[],
        aliases: &[],
        scope: Scope::Cluster,
        verbs: Verb::ALL,
        subresources: &[ACCESS_KEYS_OF],
        confidential: false,
        description: "Team is a group of users who hold rights and access keys together.",
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo {
            name: "Users",
            r#type: "integer",
            format: "",
            description: "How many users are in the team.",
            priority: 0,
        },
        ColumnInfo {
            name: "Display Name",
            r#type: "string",
            format: "",
            description: "Name shown to people.",
            priority: 0,
        },
    ];

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        new.fields.status = Status {};
    }

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        let spec = &new.fields.spec;
        for (field, names) in [("users", &spec.users), ("groups", &spec.groups)] {
            for (place, name) in names.iter().enumerate() {
                check_identity(&format!("spec.{field}[{place}]"), name, errors);
            }
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![
            Cell::Number(i64::try_from(spec.users.len()).unwrap_or(i64::MAX)),
            Cell::Text(spec.display_name.clone()),
        ]
    }
}
