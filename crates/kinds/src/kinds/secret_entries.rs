//! `SecretEntries`: the names and sizes of the values of a secret, without the values. It is the response to
//! `sharedsecrets/<s>/entries` and `projectsecrets/<s>/entries`, and is never stored. So a client can show a secret,
//! and the audit log does not say that the values were read. See `docs/reference/shared-secrets.md#entries`.

use serde_json::{Value, json};

use crate::prelude::*;
use crate::secret_offer::Offer;
use crate::secret_parts::{data_of, decoded, is_text, len_of, part_of};

/// Reads the names and sizes of the entries.
pub(crate) const GET_ENTRIES: Action = Action {
    subresource: "entries",
    verb: Verb::Get,
    right: ActionRight::GetObject,
    handler: Handler::Registry(RegistryAction::Object(of_secret)),
    request: None,
    response: Response::Object(&SecretEntries),
    description: "The secret without its values: the names and sizes of its entries.",
};

/// The kind.
pub struct SecretEntries;

/// The secret without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.SecretEntriesFields")]
pub struct Spec {
    /// The spec of the secret, without its data.
    pub spec: SpecWithoutData,
    /// The status of the secret.
    pub status: ConditionsStatus,
    /// The entries, sorted by name.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub entries: Vec<EntrySummary>,
}

/// The fields of a secret's spec except `data`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SecretSpecWithoutData")]
pub struct SpecWithoutData {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// Access rules: the other users and teams that get verbs on the secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
    /// The instances whose Secrets may take the data of a project secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

/// An entry without its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SecretEntrySummary")]
pub struct EntrySummary {
    /// The name: a key of the secret's data.
    pub name: String,
    /// The length of the decoded value, in bytes.
    pub bytes: u64,
    /// Whether the value is UTF-8 text without control characters other than tabs and line breaks.
    pub is_text: bool,
}

impl Kind for SecretEntries {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "SecretEntries",
        plural: "secretentries",
        singular: "secretentries",
        description: "SecretEntries is a secret without its values.",
        ..Info::RESPONSE
    };
}

/// The secret of a request without its values.
///
/// # Errors
/// 500 if stored data cannot be decoded.
fn of_secret(request: &ActionRequest<'_>) -> Result<ActionResult, ApiError> {
    let mut fields = request.object.fields.clone();
    let entries: Result<Vec<_>, _> = data_of(request.object)?
        .iter()
        .map(|(name, value)| summary_of(name, &decoded(name, value)?))
        .collect();
    if let Some(Value::Object(spec)) = fields.get_mut("spec") {
        spec.remove("data");
    }
    fields.insert("entries".to_owned(), json!(entries?));
    Ok(ActionResult::Respond(part_of(request.object, &SecretEntries::INFO, fields)))
}

fn summary_of(name: &str, value: &[u8]) -> Result<EntrySummary, ApiError> {
    Ok(EntrySummary { name: name.to_owned(), bytes: len_of(value)?, is_text: is_text(value) })
}
