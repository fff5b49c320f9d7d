//! The fields of an object next to `metadata`, typed: `spec` and `status`.
//!
//! Metadata is not here, and neither are the declarations of a kind about its fields
//! ([`crate::Kind`]).

use postern_meta::object::ObjectMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Where the typed fields of a kind are in its objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Under `spec` and `status`, as our own kinds have them.
    SpecAndStatus,
    /// At the top level, next to `metadata`, as some foreign kinds have them: `data` of a Secret. The
    /// spec type is all of them, and the status type is [`NoStatus`].
    TopLevel,
}

/// A type that can be the spec or the status of a kind.
pub trait FieldType: Serialize + DeserializeOwned + JsonSchema + Default + Clone + 'static {}

impl<T: Serialize + DeserializeOwned + JsonSchema + Default + Clone + 'static> FieldType for T {}

/// The fields of an object next to `metadata`. A kind without a status has [`NoStatus`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, bound = "Spec: FieldType, Status: FieldType")]
#[schemars(bound = "Spec: FieldType, Status: FieldType")]
pub struct Fields<Spec, Status = NoStatus> {
    /// The desired state, which clients write.
    pub spec: Spec,
    /// The observed state, which the server writes.
    pub status: Status,
}

impl<Spec, Status: Default> Fields<Spec, Status> {
    /// Fields with this spec and an empty status.
    pub fn of(spec: Spec) -> Self {
        Self { spec, status: Status::default() }
    }
}

/// Puts a field of the old spec into a new one that does not have it, or has `{}` there. Returns whether it did.
pub(crate) fn keep_in_spec(
    new: &mut Map<String, Value>,
    old: &Map<String, Value>,
    name: &str,
) -> bool {
    let is_there = |value: &&Value| !matches!(value, Value::Null) && **value != json!({});
    let Some(kept) = old.get("spec").and_then(|spec| spec.get(name)).filter(is_there) else {
        return false;
    };
    let spec = new.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return false };
    if spec.get(name).as_ref().is_some_and(is_there) {
        return false;
    }
    spec.insert(name.to_owned(), kept.clone());
    true
}

/// The status of a kind that has none: always `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.NoStatus")]
pub struct NoStatus {}

/// An object with typed fields, for the hooks of its kind.
#[derive(Clone, Debug)]
pub struct Draft<F> {
    /// Its metadata, already validated by the rules for all kinds.
    pub metadata: ObjectMeta,
    /// Its typed fields.
    pub fields: F,
}
