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

/// Keeps an object until the dependents that block its deletion are deleted.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// Keeps an object until its dependents no longer name it as owner.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// Metadata that objects of every kind have.
// `resource_version` stays the first field and is left out when empty: the
// revision is only known at commit, when the server puts it directly after the
// opening brace of bytes that are already encoded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")]
pub struct ObjectMeta {
    /// Opaque text that changes with every write of the object. Clients send it back unchanged
    /// to say which state they saw, and pass it to a watch to continue from that state. Set by
    /// the server.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub resource_version: String,
    /// Unique among objects of this kind in the same namespace, and unchangeable. Needed to
    /// create an object unless `generateName` is given.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub name: String,
    /// Prefix of a name that the server completes with a random suffix. Used only when `name` is
    /// empty, and shortened where the suffix needs the space.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub generate_name: String,
    /// The namespace within which `name` is unique: a DNS label. Unchangeable; empty for kinds
    /// that are cluster-scoped.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub namespace: String,
    /// Deprecated, and always empty in responses.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub self_link: String,
    /// Identifies the object among all that ever existed, including earlier ones of the same
    /// name. Set by the server at creation.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub uid: String,
    /// Counts the changes of the desired state. Set by the server.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub generation: i64,
    /// When the server created the object. Set by the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// When the object will be deleted, or, while finalizers remain, may be deleted. Set by the
    /// server when deletion is requested; after that it can only become earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// Seconds that the object has for an orderly shutdown. Set together with
    /// `deletionTimestamp`; it can only become smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Keys and values by which objects are organised and selected.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "map_without_nulls")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub labels: BTreeMap<String, String>,
    /// Keys and values that tools keep with the object. Selectors do not see them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "map_without_nulls")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub annotations: BTreeMap<String, String>,
    /// The objects that this one depends on. When all of them are deleted, so is this one. At most
    /// one is its controller.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["uid"],
        "x-kubernetes-patch-strategy" = "merge",
        "x-kubernetes-patch-merge-key" = "uid"
    ))]
    pub owner_references: Vec<OwnerReference>,
    /// The tasks that must be done before the object is deleted, one name for each. The component that does a task
    /// removes its name. After deletion is requested, none can be added.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "set",
        "x-kubernetes-patch-strategy" = "merge"
    ))]
    pub finalizers: Vec<String>,
    /// Which manager set which fields. Tracked by the server for server-side apply.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

impl ObjectMeta {
    /// Decodes metadata. The error is empty, because the library's repeats the
    /// value; `Object::from_value` makes one that does not.
    pub(crate) fn from_value(value: &Value) -> Result<Self, ()> {
        if !value.is_object() {
            return Err(());
        }
        Self::deserialize(value).map_err(drop)
    }

    /// The metadata as a JSON object, without empty fields.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self)
            .unwrap_or_else(|error| unreachable!("cannot serialise metadata: {error}"))
    }

    /// The metadata as JSON text, `resourceVersion` first.
    pub fn to_json_bytes(&self) -> Vec<u8> {
        json_bytes(self)
    }

    /// Whether deletion was requested: the object exists until its finalizers are removed.
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that controls the object, if there is one.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// The uid in the only owner reference for which `names` is true. `None` if there are several: then it is not known
    /// which of them is the right one.
    pub fn only_owner_uid(&self, names: impl Fn(&OwnerReference) -> bool) -> Option<&str> {
        let mut naming = self.owner_references.iter().filter(|one| names(one));
        match (naming.next(), naming.next()) {
            (Some(only), None) => Some(&only.uid),
            _ => None,
        }
    }
}

/// An object that another one depends on: in the same namespace, or cluster-scoped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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
    /// Whether a foreground deletion of the owner waits for this object. Setting it requires the
    /// right to delete the owner. False if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// The fields that one manager set on the object, by one operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry")]
pub struct ManagedFieldsEntry {
    /// The manager: a name that the client chose.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub manager: String,
    /// `Apply` for server-side apply, `Update` for every other write.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub operation: Operation,
    /// The group and version that the fields are named in.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub api_version: String,
    /// When the manager last changed the fields that it owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// The form of the field set: only `FieldsV1` exists.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub fields_type: String,
    /// The set of fields.
    #[serde(skip_serializing_if = "Option::is_none", rename = "fieldsV1")]
    #[schemars(schema_with = "fields_v1_schema")]
    pub fields_v1: Option<Value>,
    /// The subresource through which the write was made; empty for the object itself.
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
    /// Absent or unknown. Not a decoding error, because invalid entries in an
    /// update are ignored, not refused.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
}

impl Operation {
    /// The value that entries have.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
            Self::Unknown => "",
        }
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
        // Upstream has no enum here either: validation refuses other values, with
        // the field's path.
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
    /// Deprecated, and always empty in responses.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub self_link: String,
    /// The state of the whole collection that the list was made from. A watch can start from it.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub resource_version: String,
    /// The value to send as `continue` to get the next page; empty on the last page.
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

/// Decodes a map; `null` values in it, and `null` in place of it, are as if absent.
fn map_without_nulls<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    let entries: BTreeMap<String, Option<String>> = null_as_default(deserializer)?;
    Ok(entries.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}

/// For `skip_serializing_if`: whether the value is that of an absent field.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_metadata_is_written_as_an_empty_object() {
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
    fn metadata_with_all_fields_is_read_and_written_as_it_was() {
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
    fn an_unknown_operation_is_no_error() {
        let entry: ManagedFieldsEntry =
            serde_json::from_value(json!({"operation": "Guess"})).unwrap();
        assert_eq!(entry.operation, Operation::Unknown);
        assert!(Operation::Apply < Operation::Update);
    }
}
