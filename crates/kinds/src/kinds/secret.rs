//! Secret (core/v1), as in Kubernetes: secret data with a type that says which keys it must have.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_meta::decode::decode_typed;
use serde_json::{Map, Value};

use crate::prelude::*;
use crate::project_secret::ProjectSecret;
use crate::schema_rule::IMMUTABLE;
use crate::secret_data::{self, SecretString};
use crate::secret_sync::{self, PROJECT_SECRET_NAME, State};

/// The type of secrets that say none.
pub const OPAQUE: &str = "Opaque";

/// The annotation with the service account of a token.
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// The kind.
pub struct Secret;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The secret data and its type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.core.v1.SecretFields")]
pub struct Spec {
    /// The secret data. Keys consist of alphanumeric characters, `-`, `_` or `.`; values are base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, SecretText>,
    /// Secret data as text. Write-only: it is written into `data`, over the present values, and
    /// never returned.
    #[serde(skip_serializing)]
    pub string_data: BTreeMap<String, SecretString>,
    /// Whether the data can no longer be changed. Once true, this field cannot be changed either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
    /// The type of the secret, which says which keys the data must have.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = IMMUTABLE), extend("default" = OPAQUE))]
    pub r#type: String,
}

impl Kind for Secret {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: CORE_V1,
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        scope: ResourceScope::Namespaced,
        // `postern get secret` is about SharedSecrets.
        on_command_line: false,
        // helm keeps its releases in secrets, and updates them without a version.
        update: UpdateRule::Unconditional,
        selectable_fields: &[SelectableField::at("type")],
        description: "Secret holds sensitive key/value data in a namespace.",
        layout: Layout::TopLevel,
        strict_fields: Some(StrictFields { holds_values: &[""], ..StrictFields::NONE }),
        read_protected: &[&["data"], &["stringData"]],
        values: ValuesAt::DATA,
        columns: &[
            ColumnInfo::text("Type", "Which keys the data must have."),
            ColumnInfo::integer("Data", "How many keys the data has."),
        ],
        data_source: Some(|metadata| {
            let name = metadata.labels.get(PROJECT_SECRET_NAME).filter(|name| !name.is_empty())?;
            let namespace = metadata.namespace.clone();
            Some(DataSource { kind: &ProjectSecret, namespace, name: name.clone() })
        }),
        ..Info::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        let is_taken = !ctx.is_server() && state(new, ctx).source.is_some();
        let spec = &mut new.fields.spec;
        secret_data::prepare(&mut spec.data, &mut spec.string_data, is_taken);
        if spec.r#type.is_empty() {
            let kept = old.map(|old| old.fields.spec.r#type.clone());
            spec.r#type = kept.unwrap_or_else(|| OPAQUE.to_owned());
        }
        let before = old.map(|old| state(old, ctx));
        if let Some(data) = secret_sync::prepared(&state(new, ctx), before.as_ref(), ctx) {
            new.fields.spec.data = data;
        }
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let &Write { new, old, ctx } = write;
        let before = old.and_then(|old| state(old, ctx).source);
        let right = secret_sync::required_right(state(new, ctx).source.as_ref(), before.as_ref());
        right.into_iter().collect()
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let &Write { new, old, ctx } = write;
        let spec = write.spec();
        let before = old.map(|old| state(old, ctx));
        secret_sync::validate("data", &state(new, ctx), before.as_ref(), ctx, errors);
        secret_data::validate_text("stringData", &spec.string_data, errors);
        if let Some(old) = write.old_spec() {
            validate_change(spec, old, errors);
        }
        secret_data::validate(Self::INFO.kind, "data", &spec.data, errors)?;
        validate_type_metadata(&new.metadata, spec, errors);
        // Where the server brings the data, its write is the one that has to have the keys.
        if ctx.is_server() || state(new, ctx).source.is_none() {
            validate_type(spec, errors);
        }
        Ok(())
    }

    fn warnings(metadata: &ObjectMeta) -> Vec<String> {
        secret_data::warnings(metadata, "data")
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![Cell::Text(spec.r#type.clone()), Cell::count(spec.data.len())]
    }
}

/// The state of a Secret. Only in a project does one take its data from another object.
fn state<'a>(draft: &'a Draft<Fields>, ctx: &Context<'_>) -> State<'a> {
    let of = Secret::INFO.data_source.filter(|_| ctx.project_of_namespace.is_some());
    State { source: of.and_then(|of| of(&draft.metadata)), data: &draft.fields.spec.data }
}

fn validate_change(new: &Spec, old: &Spec, errors: &mut FieldErrors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if new.r#type != old.r#type {
        errors.push(FieldError::immutable("type"));
    }
    if old.immutable != Some(true) {
        return;
    }
    if new.immutable != Some(true) {
        errors.push(FieldError::forbidden("immutable", DETAIL));
    }
    if new.data != old.data {
        errors.push(FieldError::forbidden("data", DETAIL));
    }
}

/// Adds an error for an annotation that a secret of its type must have and does not.
fn validate_type_metadata(metadata: &ObjectMeta, spec: &Spec, errors: &mut FieldErrors) {
    let account = metadata.annotations.get(SERVICE_ACCOUNT_NAME);
    if spec.r#type == "kubernetes.io/service-account-token" && account.is_none_or(String::is_empty)
    {
        let path = format!("metadata.annotations[{SERVICE_ACCOUNT_NAME}]");
        errors.push(FieldError::required(path, ""));
    }
}

/// Adds an error for each key that a secret of its type must have and does not.
fn validate_type(spec: &Spec, errors: &mut FieldErrors) {
    let has = |key: &str| spec.data.contains_key(key);
    let is_empty = |key: &str| spec.data.get(key).is_none_or(|value| value.expose().is_empty());
    let mut require = |key: &str| errors.push(FieldError::required(format!("data[{key}]"), ""));
    match spec.r#type.as_str() {
        "kubernetes.io/dockercfg" => validate_json(".dockercfg", spec, errors),
        "kubernetes.io/dockerconfigjson" => validate_json(".dockerconfigjson", spec, errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if is_empty("ssh-privatekey") => require("ssh-privatekey"),
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)) {
                require(key);
            }
        }
        _ => {}
    }
}

/// Adds an error if the value of a key is not a JSON object. It never has the value.
fn validate_json(key: &str, spec: &Spec, errors: &mut FieldErrors) {
    let path = format!("data[{key}]");
    let Some(value) = spec.data.get(key) else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let json = STANDARD.decode(value.expose()).map(zeroize::Zeroizing::new).unwrap_or_default();
    if decode_typed::<Map<String, Value>>(&json).is_err() {
        let (redacted, detail) = ("<secret contents redacted>", "must be a JSON object");
        errors.push(FieldError::invalid(path, redacted, detail));
    }
}
