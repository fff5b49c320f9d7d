//! ProjectSecret: secret data of a project (decisions 1 and 2). That it takes its data from a SharedSecret,
//! or is mirrored to a core Secret, is not here yet.

use std::collections::BTreeMap;

use crate::instance::STATUS_ACTIONS;
use crate::prelude::*;
use crate::secret_data;

/// The kind.
pub struct ProjectSecret;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, ConditionsStatus>;

/// The secret data, its owner, and who has access to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ProjectSecretSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// What the secret is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on this object. The caller, when absent on create.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// The secret data. Keys consist of alphanumeric characters, `-`, `_` or `.`; values are
    /// standard base64 with padding.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub data: BTreeMap<String, SecretText>,
    /// Who else gets which verbs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
}

impl Kind for ProjectSecret {
    type Spec = Spec;
    type Status = ConditionsStatus;

    const INFO: Info = Info {
        kind: "ProjectSecret",
        plural: "projectsecrets",
        singular: "projectsecret",
        scope: ResourceScope::Namespaced,
        actions: STATUS_ACTIONS,
        description: "ProjectSecret holds sensitive key/value data of a project.",
        ..Info::DEFAULT
    };

    const READ_PROTECTED: &'static [&'static [&'static str]] = &[&["spec", "data"]];

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo::integer("Keys", "How many keys the secret's data has."),
        ColumnInfo::text("Owner", "The user or team that owns the secret."),
        ColumnInfo::text("Display Name", "Name shown to people.").wide(),
    ];

    const OWNERSHIP: Option<OwnershipPart<Spec>> = Some(crate::access::part(
        |spec| Ownership { owner: spec.owner.clone(), access: spec.access.clone() },
        |spec| &mut spec.owner,
    ));

    const COUNTED_IN_QUOTAS: bool = true;

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        secret_data::validate(Self::INFO.kind, "spec.data", &new.fields.spec.data, errors)
    }

    fn warnings(metadata: &ObjectMeta) -> Vec<String> {
        secret_data::warnings(metadata, "spec.data")
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let owner = spec.owner.clone().unwrap_or_default();
        vec![
            Cell::count(spec.data.len()),
            Cell::Text(owner.display_name()),
            Cell::Text(spec.display_name.clone()),
        ]
    }
}
