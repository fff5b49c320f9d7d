//! SharedSecret: key/value data shared across users, teams and clusters (specification 2.2,
//! decision 2).
//!
//! The rules in `spec.access` have no effect yet: they are validated and stored.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_meta::names::config_map_key;

use crate::access::{self, Access, UserOrTeam};
use crate::prelude::*;
use crate::write_only::LAST_APPLIED;

/// Maximum size of all decoded values of one secret, in bytes.
pub const MAX_DATA_BYTES: usize = 1024 * 1024;

/// The kind.
pub struct SharedSecret;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The secret data, its owner, and who has access to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SharedSecretSpec")]
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

impl Kind for SharedSecret {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "SharedSecret",
        plural: "sharedsecrets",
        singular: "sharedsecret",
        short: &["ss"],
        aliases: &["secret", "secrets"],
        scope: ResourceScope::Namespaced,
        description: "SharedSecret holds sensitive key/value data and gives it to users and teams \
                      by access rules.",
        ..Info::DEFAULT
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo::integer("Keys", "How many keys the secret's data has."),
        ColumnInfo::text("Owner", "The user or team that owns the secret."),
        ColumnInfo::text("Display Name", "Name shown to people.").wide(),
    ];

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        if old.is_none()
            && new.fields.spec.owner.as_ref().is_none_or(|o| *o == UserOrTeam::default())
        {
            new.fields.spec.owner = UserOrTeam::caller(ctx.caller);
        }
    }

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        let spec = &new.fields.spec;
        access::validate(spec.owner.as_ref(), &spec.access, errors);
        validate_data(&spec.data, errors)
    }

    fn warnings(metadata: &ObjectMeta) -> Vec<String> {
        if !metadata.annotations.contains_key(LAST_APPLIED) {
            return Vec::new();
        }
        vec![format!(
            "the annotation {LAST_APPLIED} holds a copy of spec.data: whoever may read this \
             object's metadata can read it; kubectl create and kubectl replace leave no such copy"
        )]
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

fn validate_data(
    data: &BTreeMap<String, SecretText>,
    errors: &mut FieldErrors,
) -> Result<(), ApiError> {
    let mut total_bytes = 0usize;
    for (key, value) in data {
        if let Err(detail) = config_map_key(key) {
            errors.push(FieldError::invalid(format!("spec.data[{key}]"), key.as_str(), detail));
        }
        total_bytes = total_bytes.saturating_add(decoded_len(key, value)?);
    }
    if total_bytes > MAX_DATA_BYTES {
        errors.push(FieldError::too_long("spec.data", MAX_DATA_BYTES));
    }
    Ok(())
}

/// Returns the length of a decoded value, in bytes. A bad value is a decoding error, as in
/// kube-apiserver: 400, with the key and never the value.
fn decoded_len(key: &str, value: &SecretText) -> Result<usize, ApiError> {
    use base64::DecodeError;
    let text = value.expose();
    STANDARD.decode(text).map(|bytes| zeroize::Zeroizing::new(bytes).len()).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
                at
            }
            _ => text.len(),
        };
        ApiError::bad_request(format!(
            "SharedSecret in version \"v1\" cannot be handled as a SharedSecret: spec.data[{key}]: \
             illegal base64 data at input byte {at}: values are standard base64 (RFC 4648 section \
             4) with padding"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::MAX_ACCESS_ENTRIES;
    use crate::{Caller, NoPrincipals};

    fn draft(spec: &serde_json::Value) -> Draft<Fields> {
        let fields = serde_json::from_value(serde_json::json!({ "spec": spec })).unwrap();
        Draft { metadata: ObjectMeta::default(), fields }
    }

    fn context(caller: &Caller) -> Context<'_> {
        Context::of(caller, Timestamp::from_unix_seconds(0), &NoPrincipals)
    }

    fn errors_of(spec: &serde_json::Value) -> Result<Vec<String>, ApiError> {
        let mut errors = FieldErrors::new();
        SharedSecret::validate(&draft(spec), None, &context(&Caller::default()), &mut errors)?;
        Ok(errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn values_are_strict_base64_and_errors_name_the_key_alone() {
        for bad in ["hunter2!", "aGk", "aGk=\n", " aGk=", "aG-_", "aGl=", "====", "a"] {
            let error = errors_of(&serde_json::json!({ "data": { "db.password": bad } }));
            let error = error.unwrap_err();
            assert_eq!(error.code(), 400, "{bad}");
            let message = &error.status().message;
            assert!(message.contains("spec.data[db.password]: illegal base64 data"), "{message}");
            assert!(!message.contains(bad.trim()) || bad == "a", "{message}");
        }
        for good in ["", "aGk=", "YWJj"] {
            let errors = errors_of(&serde_json::json!({ "data": { "k": good } })).unwrap();
            assert!(errors.is_empty(), "{good}: {errors:?}");
        }
    }

    #[test]
    fn keys_sizes_and_counts_have_limits() {
        for bad in ["", "a b", ".", "..", "..a", "a/b"] {
            let errors = errors_of(&serde_json::json!({ "data": { bad: "" } })).unwrap();
            assert_eq!(errors.len(), 1, "{bad}");
        }
        let half = STANDARD.encode(vec![0; MAX_DATA_BYTES / 2]);
        let data = serde_json::json!({ "data": { "a": half, "b": half } });
        assert!(errors_of(&data).unwrap().is_empty());
        let over = serde_json::json!({ "data": { "a": half, "b": half, "c": "AA==" } });
        assert!(errors_of(&over).unwrap()[0].contains("spec.data: Too long"));
        let entry = serde_json::json!({ "verbs": ["get"] });
        let many = serde_json::json!({ "access": vec![entry; MAX_ACCESS_ENTRIES + 1] });
        assert!(errors_of(&many).unwrap()[0].contains("spec.access: Too many"));
        let both = serde_json::json!({ "owner": { "user": "a", "team": "b" } });
        assert!(errors_of(&both).unwrap()[0].starts_with("spec.owner: Forbidden"));
    }

    #[test]
    fn the_caller_owns_what_they_create_and_an_update_keeps_the_owner_as_sent() {
        let caller = Caller { user: Some("ada".to_owned()), ..Caller::default() };
        let ctx = context(&caller);
        let mut new = draft(&serde_json::json!({}));
        SharedSecret::prepare(&mut new, None, &ctx);
        assert_eq!(new.fields.spec.owner.as_ref().unwrap().user, "ada");

        let mut given = draft(&serde_json::json!({ "owner": { "team": "ops" } }));
        SharedSecret::prepare(&mut given, None, &ctx);
        assert_eq!(given.fields.spec.owner.as_ref().unwrap().team, "ops");

        let mut update = draft(&serde_json::json!({}));
        SharedSecret::prepare(&mut update, Some(&new), &ctx);
        assert_eq!(update.fields.spec.owner, None, "what the client left out stays out");
    }

    #[test]
    fn debug_has_no_value() {
        let secret = draft(&serde_json::json!({ "data": { "k": "aHVudGVyMg==" } }));
        assert!(!format!("{secret:?}").contains("aHVudGVyMg"));
    }
}
