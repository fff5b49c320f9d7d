//! `SecretEntry`: one entry of a secret, with its value. It is the response to `sharedsecrets/<s>/entry?name=<key>` and
//! `projectsecrets/<s>/entry?name=<key>`, and is never stored. The audit record names the entry.

use postern_meta::names::config_map_key;
use postern_meta::object::Object;
use postern_meta::status::{Reason, StatusCause};
use serde_json::Value;

use crate::access_key;
use crate::prelude::*;
use crate::secret_parts::{data_of, decoded, is_text, len_of, part_of};

/// The annotation of an audit record with the name of the entry that was read.
pub const ENTRY_ANNOTATION: &str = "platform.sh/entry";

/// The query parameter with the name of an entry.
pub const ENTRY_PARAMETER: &str = "name";

/// Reads one entry with its value.
pub(crate) const GET_ENTRY: Action = Action {
    subresource: "entry",
    verb: Verb::Get,
    right: ActionRight::GetObject,
    handler: Handler::Registry(RegistryAction::Part(&PartHandler {
        parameter: ENTRY_PARAMETER,
        description: "The name of the entry: a key of the secret's data.",
        annotation: ENTRY_ANNOTATION,
        handle: of_secret,
    })),
    request: None,
    response: Response::Object(&SecretEntry),
    description: "One entry of the secret, with its value.",
};

/// The kind.
pub struct SecretEntry;

/// The entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SecretEntryFields")]
pub struct Spec {
    /// The name: a key of the secret's data.
    pub name: String,
    /// The length of the decoded value, in bytes.
    pub bytes: u64,
    /// Whether the value is UTF-8 text without control characters other than tabs and line breaks.
    pub is_text: bool,
    /// The value, in standard base64 with padding.
    pub value: SecretText,
}

impl Kind for SecretEntry {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "SecretEntry",
        plural: "secretentry",
        singular: "secretentry",
        values: ValuesAt::Everywhere,
        description: "SecretEntry is one entry of a secret, with its value.",
        ..Info::RESPONSE
    };
}

/// The entry of a secret with a name.
///
/// # Errors
/// 400 without a name; 404 that names the field if there is no such entry; 500 if stored data cannot be decoded.
fn of_secret(secret: &Object, name: Option<&str>) -> Result<Object, ApiError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        let message =
            format!("the query parameter {ENTRY_PARAMETER} is missing: pass the name of an entry");
        return Err(ApiError::bad_request(message));
    };
    let Some(value) = data_of(secret)?.remove(name) else { return Err(not_found(secret, name)) };
    let bytes = decoded(name, &value)?;
    let (name, is_text) = (name.to_owned(), is_text(&bytes));
    let spec = Spec { name, bytes: len_of(&bytes)?, is_text, value };
    let Ok(Value::Object(fields)) = serde_json::to_value(spec) else {
        return Err(ApiError::internal("the entry cannot be encoded", SecretEntry::INFO.kind));
    };
    Ok(part_of(secret, &SecretEntry::INFO, fields))
}

/// The 404 for an entry that does not exist. It is unlike that for a secret: its cause has the field.
fn not_found(secret: &Object, name: &str) -> ApiError {
    // Other texts may be anything, such as a value or an access key.
    let is_name = config_map_key(name).is_ok() && !name.contains(access_key::PREFIX);
    let field = if is_name { format!("spec.data[{name}]") } else { "spec.data".to_owned() };
    let entry = if is_name { format!("entry {name:?}") } else { "such entry".to_owned() };
    let message = format!("the secret {} has no {entry}", secret.metadata.name);
    let error = ApiError::new(404, Reason::NotFound, message.clone());
    error.with_cause(StatusCause { reason: "FieldValueNotFound".to_owned(), message, field })
}
