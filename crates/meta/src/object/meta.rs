//! The metadata that every object carries, and that of lists.
//!
//! Only shape: rules are in `validate`. The doc comments of fields are also
//! their descriptions in the `OpenAPI` documents, so they speak to users.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::json_bytes;
use crate::time::Timestamp;

/// Keeps an object until the dependents that block its deletion are gone.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// Keeps an object until its dependents no longer name it as owner.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// Data about an object that every kind has, whatever it is for.
// `resource_version` stays the first field and is left out when empty: the
// revision is only known at commit, when the server puts it right behind the
// opening brace of bytes that are already encoded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")]
pub struct ObjectMeta {
    /// Opaque text that changes with every write of the object. Clients send it back unchanged
    /// to say which state they saw, and pass it to a watch to go on from there. Set by the
    /// server.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub resource_version: String,
    /// Unique among objects of this kind in the same namespace, and unchangeable. Needed to
    /// create an object unless `generateName` is given.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub name: String,
    /// Start of a name that the server completes with a random suffix. It only counts when
    /// `name` is empty, and is shortened where the suffix needs room.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub generate_name: String,
    /// The space in which `name` is unique: a DNS label. Unchangeable; empty on kinds that
    /// belong to the whole installation.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub namespace: String,
    /// Deprecated, and always empty in answers.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub self_link: String,
    /// Tells apart all objects that ever were, also those that had the same name one after the
    /// other. Set by the server at creation.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub uid: String,
    /// Counts the changes of the desired state. Set by the server.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "null_as_default")]
    pub generation: i64,
    /// When the server created the object. Set by the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// When the object will be gone, or, while finalizers remain, may be gone. Set by the server
    /// when deletion is asked for; from then on it can only come nearer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// How many seconds the object has to end in good order. Set together with
    /// `deletionTimestamp`; it can only become smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Keys and values by which objects are arranged and selected.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "map_without_nulls")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub labels: BTreeMap<String, String>,
    /// Keys and values that tools keep with the object. One cannot select by them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "map_without_nulls")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub annotations: BTreeMap<String, String>,
    /// The objects this one exists for. When none of them is left, this one is deleted. At most
    /// one is its controller.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["uid"],
        "x-kubernetes-patch-strategy" = "merge",
        "x-kubernetes-patch-merge-key" = "uid"
    ))]
    pub owner_references: Vec<OwnerReference>,
    /// What has yet to be done before the object goes, one name for each task. Whoever does the
    /// task removes its name. Once deletion has begun, none can be added.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "set",
        "x-kubernetes-patch-strategy" = "merge"
    ))]
    pub finalizers: Vec<String>,
    /// Which manager set which fields, as the server keeps track of it for server-side apply.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

impl ObjectMeta {
    /// Decodes metadata; the error says nothing, because the library's would
    /// show the value. See `Object::from_value` for an error that can be shown.
    pub(super) fn from_value(value: &Value) -> Result<Self, ()> {
        if !value.is_object() {
            return Err(());
        }
        Self::deserialize(value).map_err(drop)
    }

    /// The metadata as a JSON object, without what is empty.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self)
            .unwrap_or_else(|error| unreachable!("cannot serialise metadata: {error}"))
    }

    /// The metadata as JSON text, `resourceVersion` first.
    pub fn to_json_bytes(&self) -> Vec<u8> {
        json_bytes(self)
    }

    /// Whether deletion has begun.
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that controls the object, if one does.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }
}

/// An object that another one exists for: one of the same namespace, or one that belongs to the
/// whole installation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(
    rename = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
    extend("required" = ["apiVersion", "kind", "name", "uid"]),
    extend("x-kubernetes-map-type" = "atomic")
)]
pub struct OwnerReference {
    /// Group and version of the owner.
    #[serde(deserialize_with = "null_as_default")]
    pub api_version: String,
    /// Kind of the owner.
    #[serde(deserialize_with = "null_as_default")]
    pub kind: String,
    /// Name of the owner.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Uid of the owner. An object of the same name and another uid is not the owner.
    #[serde(deserialize_with = "null_as_default")]
    pub uid: String,
    /// Whether this owner is the one that controls the object. False if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner's deletion in the foreground waits for this object. Setting it needs the
    /// right to delete the owner. False if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// What one manager set on the object, in one way of writing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry")]
pub struct ManagedFieldsEntry {
    /// Who: a name that the client gave itself.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub manager: String,
    /// How: `Apply` for server-side apply, `Update` for every other write.
    #[serde(skip_serializing_if = "Operation::is_unknown", deserialize_with = "null_as_default")]
    pub operation: Operation,
    /// The group and version in whose terms the fields are named.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub api_version: String,
    /// When the manager last changed what it owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// The form of the field set: only `FieldsV1` exists.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub fields_type: String,
    /// The set of fields.
    #[serde(skip_serializing_if = "Option::is_none", rename = "fieldsV1")]
    #[schemars(schema_with = "fields_v1_schema")]
    pub fields_v1: Option<Value>,
    /// The sub-resource through which the write came; empty for the object itself.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub subresource: String,
}

/// How a manager wrote, in the order in which entries are sorted.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
    /// Absent, or a word that is not known. It is kept apart from an error,
    /// because broken entries in an update are ignored, not refused.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
}

impl Operation {
    /// The word as it stands in an entry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
            Self::Unknown => "",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JsonSchema for Operation {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Operation".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Upstream does not list the words either: an entry that holds another
        // one is answered by validation, with the field's path.
        json_schema!({ "type": "string" })
    }
}

fn fields_v1_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": true,
    })
}

/// Data about a list, or about a page of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")]
pub struct ListMeta {
    /// Deprecated, and always empty in answers.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub self_link: String,
    /// The state of the whole collection that the list shows. A watch goes on from there.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub resource_version: String,
    /// What to send as `continue` to get the next page; empty on the last page.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default",
        rename = "continue"
    )]
    pub continue_token: String,
    /// How many objects come after this page, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// For `deserialize_with`: JSON `null` is as if the field were absent.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A map whose `null` values, like a map that is `null`, are as if absent.
fn map_without_nulls<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    let entries: BTreeMap<String, Option<String>> = null_as_default(deserializer)?;
    Ok(entries.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_is_written_as_nothing() {
        assert_eq!(ObjectMeta::default().to_value(), json!({}));
        assert_eq!(ObjectMeta::default().to_json_bytes(), b"{}");
        assert_eq!(serde_json::to_value(ListMeta::default()).unwrap(), json!({}));
        assert_eq!(serde_json::to_value(ManagedFieldsEntry::default()).unwrap(), json!({}));
    }

    #[test]
    fn the_resource_version_comes_first() {
        let meta =
            ObjectMeta { name: "a".into(), resource_version: "7".into(), ..ObjectMeta::default() };
        assert_eq!(meta.to_json_bytes(), br#"{"resourceVersion":"7","name":"a"}"#);
    }

    #[test]
    fn a_full_one_comes_back_as_it_was() {
        let value = json!({
            "name": "a", "generateName": "a-", "namespace": "n", "selfLink": "/x", "uid": "u",
            "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2006-01-02T15:04:05Z",
            "deletionTimestamp": "2006-01-02T15:04:05Z", "deletionGracePeriodSeconds": 0,
            "labels": {"a": "b"}, "annotations": {"c": ""},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "K", "name": "o", "uid": "ou", "controller": true,
                "blockOwnerDeletion": false,
            }],
            "finalizers": ["f"],
            "managedFields": [{
                "manager": "m", "operation": "Apply", "apiVersion": "g/v1",
                "time": "2006-01-02T15:04:05Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {}}, "subresource": "status",
            }],
        });
        let meta = ObjectMeta::from_value(&value).unwrap();
        assert_eq!(meta.controller().unwrap().name, "o");
        assert!(meta.is_terminating());
        assert_eq!(meta.to_value(), value);
    }

    #[test]
    fn an_operation_that_is_not_known_is_no_error() {
        let entry: ManagedFieldsEntry =
            serde_json::from_value(json!({"operation": "Guess"})).unwrap();
        assert_eq!(entry.operation, Operation::Unknown);
        assert!(Operation::Apply < Operation::Update);
    }
}
