//! `ConfigMap` (core/v1), as in Kubernetes: configuration of a project. Generators of configuration, `kubectl apply --prune`
//! and helm's driver `configmap` keep their state in it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::prelude::*;
use crate::secret_data;

/// The kind.
pub struct ConfigMap;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The configuration data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.core.v1.ConfigMapFields")]
pub struct Spec {
    /// The configuration data. Keys consist of alphanumeric characters, `-`, `_` or `.`; values are text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Configuration data that is not text. Values are base64. No key may also be in `data`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_data: BTreeMap<String, SecretText>,
    /// Whether the data can no longer be changed. Once true, this field cannot be changed either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
}

impl Kind for ConfigMap {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: CORE_V1,
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short: &["cm"],
        scope: ResourceScope::Namespaced,
        on_command_line: false,
        // Releases of helm have the values of a chart, which can be secret.
        confidential: true,
        // helm updates them without a version.
        update: UpdateRule::Unconditional,
        description: "ConfigMap holds configuration data of a namespace.",
        layout: Layout::TopLevel,
        is_counted_in_quotas: true,
        columns: &[ColumnInfo::integer("Data", "How many keys the data has.")],
        ..Info::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        secret_data::remove_line_breaks(&mut new.fields.spec.binary_data);
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let spec = write.spec();
        if let Some(old) = write.old_spec().filter(|old| old.immutable == Some(true)) {
            validate_change(spec, old, errors);
        }
        for key in spec.data.keys() {
            secret_data::validate_key("data", key, errors);
            if spec.binary_data.contains_key(key) {
                let detail = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(format!("data[{key}]"), key.as_str(), detail));
            }
        }
        secret_data::validate(Self::INFO.kind, "binaryData", &spec.binary_data, errors)?;
        if bytes_of(spec) > secret_data::MAX_DATA_BYTES {
            errors.push(FieldError::too_long("", secret_data::MAX_DATA_BYTES));
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![Cell::count(spec.data.len() + spec.binary_data.len())]
    }
}

/// The length of all values. Those in base64 are valid when it is called.
fn bytes_of(spec: &Spec) -> usize {
    let text = spec.data.values().map(String::len);
    let binary = spec.binary_data.values();
    let binary = binary.map(|value| STANDARD.decode(value.expose()).map_or(0, |bytes| bytes.len()));
    text.chain(binary).sum()
}

fn validate_change(new: &Spec, old: &Spec, errors: &mut FieldErrors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    for (path, is_changed) in [
        ("immutable", new.immutable != Some(true)),
        ("data", new.data != old.data),
        ("binaryData", new.binary_data != old.binary_data),
    ] {
        if is_changed {
            errors.push(FieldError::forbidden(path, DETAIL));
        }
    }
}
