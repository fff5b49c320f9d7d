//! An API object: type, metadata, and everything else as untyped fields.
//!
//! The kinds know the meaning of the fields, and `validate` which metadata is allowed. The metadata
//! itself is in `meta.rs`, and `encoded.rs` changes objects without decoding them.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::schema::Schema;

pub mod encoded;
mod meta;

pub(crate) use meta::is_default;
pub use meta::{
    FOREGROUND_FINALIZER, ListMeta, ManagedFieldsEntry, ORPHAN_FINALIZER, ObjectMeta, Operation,
    OwnerReference, null_as_default,
};

/// One API object. `fields` has everything but type and metadata: `spec` and
/// `status`, or `data` and the like.
///
/// Its `Debug` form has only kind, namespace and name, because the fields
/// may hold secrets.
#[derive(Clone, Default, PartialEq)]
pub struct Object {
    /// `group/version`, or the version alone for the core group; empty if absent.
    pub api_version: String,
    /// The kind; empty if absent.
    pub kind: String,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// Everything else, by the name of the top-level field.
    pub fields: Map<String, Value>,
}

/// The capacity for the JSON of an object: most objects are smaller.
const USUAL_BYTES: usize = 2048;

impl Object {
    /// Reads an object from decoded JSON. `null` for `apiVersion`, `kind`,
    /// `metadata` or a field of it counts as absent. The error names the field
    /// and the types, never the value.
    pub fn from_value(value: Value) -> Result<Self, String> {
        let Value::Object(mut fields) = value else {
            return Err("expected object, got another JSON type".to_owned());
        };
        Ok(Self {
            api_version: take_string(&mut fields, "apiVersion")?,
            kind: take_string(&mut fields, "kind")?,
            metadata: take_metadata(&mut fields)?,
            fields,
        })
    }

    /// The object as one JSON value.
    pub fn into_value(self) -> Value {
        let mut fields = self.fields;
        insert_unless_empty(&mut fields, "apiVersion", self.api_version);
        insert_unless_empty(&mut fields, "kind", self.kind);
        fields.insert("metadata".to_owned(), self.metadata.to_value());
        Value::Object(fields)
    }

    /// The object as JSON text: `apiVersion`, `kind`, `metadata`, then the
    /// fields in order of their names. Equal objects give equal bytes.
    pub fn to_json_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer(&mut bytes, self)
            .unwrap_or_else(|error| unreachable!("cannot serialise: {error}"));
        bytes
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.api_version.is_empty() {
            map.serialize_entry("apiVersion", &self.api_version)?;
        }
        if !self.kind.is_empty() {
            map.serialize_entry("kind", &self.kind)?;
        }
        map.serialize_entry("metadata", &self.metadata)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// For JSON that this program wrote. JSON of clients goes through [`Object::from_value`], with
/// errors that name the field.
impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "apiVersion" => object.api_version = map.next_value()?,
                "kind" => object.kind = map.next_value()?,
                "metadata" => object.metadata = map.next_value()?,
                _ => {
                    object.fields.insert(name, map.next_value()?);
                }
            }
        }
        Ok(object)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("kind", &self.kind)
            .field("namespace", &self.metadata.namespace)
            .field("name", &self.metadata.name)
            .finish_non_exhaustive()
    }
}

impl Schema {
    /// The schema of an object with the fields of `T` next to type and metadata: for kinds with a
    /// Rust type that has only `spec`, `status` and the like.
    pub fn of_object<T: JsonSchema>() -> Self {
        let mut schema = Self::of::<T>();
        let metadata = schema.add_definitions_of::<ObjectMeta>();
        schema.add_property(
            "apiVersion",
            json!({
                "type": "string",
                "description": "Group and version of the schema of this object.",
            }),
        );
        schema.add_property(
            "kind",
            json!({
                "type": "string",
                "description": "The object's kind in CamelCase. Taken from the endpoint if absent.",
            }),
        );
        schema.add_property(
            "metadata",
            json!({
                "allOf": [metadata],
                "description": "Name, labels and other data that every object has.",
            }),
        );
        schema
    }
}

/// Encodes `value` as JSON text, for types with a serialisation that cannot fail: derived ones with
/// text keys. All types of this crate are such types.
pub fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| unreachable!("cannot serialise: {error}"))
}

fn insert_unless_empty(fields: &mut Map<String, Value>, name: &str, value: String) {
    if !value.is_empty() {
        fields.insert(name.to_owned(), Value::String(value));
    }
}

fn take_string(fields: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("{name}: expected string, got another JSON type")),
    }
}

fn take_metadata(fields: &mut Map<String, Value>) -> Result<ObjectMeta, String> {
    let value = match fields.remove("metadata") {
        None | Some(Value::Null) => return Ok(ObjectMeta::default()),
        Some(value) => value,
    };
    // The library's own message would repeat the value, so on failure the schema describes the
    // fault. Metadata is decoded twice only then.
    ObjectMeta::from_value(&value).map_err(|()| describe_bad_metadata(value))
}

fn describe_bad_metadata(metadata: Value) -> String {
    let mut wrapper = Map::new();
    wrapper.insert("metadata".to_owned(), metadata);
    match Schema::of_object::<NoFields>().check_types(&Value::Object(wrapper)) {
        Err(mismatch) => mismatch.to_string(),
        // The schema rejects everything that decoding rejects: this takes a bug.
        Ok(()) => "metadata: it does not fit its schema".to_owned(),
    }
}

/// An object with no fields besides type and metadata.
#[derive(JsonSchema)]
struct NoFields {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_from_a_value_and_written_as_the_same() {
        let value = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}, "spec": {"x": 1},
        });
        let object = Object::from_value(value.clone()).unwrap();
        assert_eq!((object.kind.as_str(), object.metadata.name.as_str()), ("K", "a"));
        assert_eq!(object.fields.len(), 1);
        assert_eq!(object.into_value(), value);
    }

    #[test]
    fn bytes_have_the_usual_order_of_fields() {
        let object = Object::from_value(json!({
            "spec": {}, "data": {}, "kind": "K", "apiVersion": "v1",
            "metadata": {"name": "a", "resourceVersion": "5"},
        }))
        .unwrap();
        assert_eq!(
            String::from_utf8(object.to_json_bytes()).unwrap(),
            r#"{"apiVersion":"v1","kind":"K","metadata":{"resourceVersion":"5","name":"a"},"data":{},"spec":{}}"#
        );
    }

    #[test]
    fn an_encoded_object_is_decoded_as_it_was() {
        let object = Object::from_value(json!({
            "apiVersion": "g/v1", "kind": "K",
            "metadata": {"name": "a", "labels": {"b": "c"}, "managedFields": [{
                "manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}},
            }]},
            "spec": {"x": [1, null, 2.5, "y"]}, "status": {},
        }))
        .unwrap();
        let read: Object = crate::decode::decode_typed(&object.to_json_bytes()).unwrap();
        assert_eq!(read, object);
    }

    #[test]
    fn errors_name_the_field_and_not_the_value() {
        for (value, want) in [
            (json!([]), "expected object, got another JSON type"),
            (json!({"kind": 1}), "kind: expected string, got another JSON type"),
            (json!({"metadata": "x"}), "metadata: expected object, got string"),
            (json!({"metadata": {"name": 5}}), "metadata.name: expected string, got number"),
            (
                json!({"metadata": {"labels": {"a": true}}}),
                "metadata.labels.a: expected string, got boolean",
            ),
            (
                json!({"metadata": {"creationTimestamp": "s3cr3t"}}),
                "metadata.creationTimestamp: expected a time as in RFC 3339, got other text",
            ),
            (
                json!({"metadata": {"finalizers": ["a", null]}}),
                "metadata.finalizers[1]: expected string, got null",
            ),
        ] {
            assert_eq!(Object::from_value(value).unwrap_err(), want);
        }
    }

    #[test]
    fn null_is_absent() {
        let object = Object::from_value(json!({
            "apiVersion": null, "kind": null, "metadata": {
                "name": null, "generation": null, "creationTimestamp": null, "labels": null,
                "annotations": {"a": null}, "ownerReferences": null, "finalizers": null,
                "managedFields": null, "deletionGracePeriodSeconds": null,
            },
        }))
        .unwrap();
        assert_eq!(object, Object::default());
    }

    #[test]
    fn debug_has_no_fields() {
        let object =
            Object::from_value(json!({"kind": "K", "metadata": {"name": "a"}, "data": "s3cr3t"}))
                .unwrap();
        let text = format!("{object:?}");
        assert!(text.contains("\"a\"") && !text.contains("s3cr3t"), "{text}");
    }
}
