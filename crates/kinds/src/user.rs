//! User: a person who may hold access keys (decision 1).

use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::ObjectMeta;
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Cell, ColumnInfo, Context, Draft, Kind};
use crate::names::{ACCESS_KEYS_OF, Info, MANAGEMENT_V1, Scope, Verb, identity_name};

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
    /// E-mail address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// The name that access decisions and audit see, instead of the object's own. No two users
    /// have the same.
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

/// Checks the name of a subject or a group.
pub(crate) fn check_identity(path: &str, name: &str, errors: &mut FieldErrors) {
    errors
        .check(identity_name(name), |detail| FieldError::invalid(path, BadValue::Omitted, detail));
}

impl Kind for User {
    type Fields = Fields;

    const INFO: Info = Info {
        version: MANAGEMENT_V1,
        kind: "User",
        plural: "users",
        singular: "user",
        short: &[],
        aliases: &[],
        scope: Scope::Cluster,
        verbs: Verb::ALL,
        subresources: &[ACCESS_KEYS_OF],
        confidential: false,
        description: "User is a person who may hold access keys.",
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo {
            name: "Display Name",
            r#type: "string",
            format: "",
            description: "Name shown to people.",
            priority: 0,
        },
        ColumnInfo {
            name: "Enabled",
            r#type: "boolean",
            format: "",
            description: "Whether the user's keys work.",
            priority: 0,
        },
        ColumnInfo {
            name: "Email",
            r#type: "string",
            format: "",
            description: "E-mail address.",
            priority: 1,
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
        if !spec.subject.is_empty() {
            check_identity("spec.subject", &spec.subject, errors);
        }
        for (place, group) in spec.groups.iter().enumerate() {
            check_identity(&format!("spec.groups[{place}]"), group, errors);
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![
            Cell::Text(spec.display_name.clone()),
            Cell::Text((!spec.disabled).to_string()),
            Cell::Text(spec.email.clone()),
        ]
    }

    /// The name that access decisions see: two users of one name would share their rights.
    fn unique_keys(metadata: &ObjectMeta, fields: &Fields) -> Vec<String> {
        let subject = &fields.spec.subject;
        vec![if subject.is_empty() { metadata.name.clone() } else { subject.clone() }]
    }

    const UNIQUE_FIELD: Option<&'static str> = Some("spec.subject");
}
