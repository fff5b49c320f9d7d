//! Team: users who hold rights together, and may hold access keys together (decision 1).

use postern_meta::field::FieldErrors;
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::column::{Cell, ColumnInfo};
use crate::context::Context;
use crate::fields::{Draft, NoStatus};
use crate::kind::action::Action;
use crate::kind::{Companion, Kind};
use crate::kind::{Info, Scope};
use crate::names::{MANAGEMENT_V1, check_identity};
use crate::principal::{AccessRole, TeamFacts};
use crate::verb::Verb;

/// The kind.
pub struct Team;

/// What an object holds next to `metadata`.
pub type Fields = crate::Fields<Spec>;

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

impl Kind for Team {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: MANAGEMENT_V1,
        kind: "Team",
        plural: "teams",
        singular: "team",
        short: &[],
        aliases: &[],
        scope: Scope::Cluster,
        verbs: Verb::ALL,
        actions: &[Action::GET_ACCESS_KEYS],
        confidential: false,
        description: "Team is a group of users who hold rights and access keys together.",
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo::integer("Users", "How many users are in the team."),
        ColumnInfo::text("Display Name", "Name shown to people."),
    ];

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        let spec = &new.fields.spec;
        for (field, names) in [("users", &spec.users), ("groups", &spec.groups)] {
            for (index, name) in names.iter().enumerate() {
                check_identity(&format!("spec.{field}[{index}]"), name, errors);
            }
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![Cell::count(spec.users.len()), Cell::Text(spec.display_name.clone())]
    }

    const ACCESS_ROLE: Option<AccessRole<Spec>> =
        Some(AccessRole::Team(|metadata, spec| TeamFacts {
            uid: metadata.uid.clone(),
            users: spec.users.clone(),
            groups: spec.groups.clone(),
        }));
}

/// Returns the change that removes a user from a team.
pub(crate) fn without_user(team: String, user: &str) -> Companion {
    let user = user.to_owned();
    let change = move |fields: &mut Map<String, Value>| {
        let users = fields.get_mut("spec").and_then(|spec| spec.get_mut("users"));
        if let Some(Value::Array(users)) = users {
            users.retain(|one| *one != user);
        }
    };
    Companion { kind: &Team, namespace: None, name: team, change: Box::new(change) }
}
