//! Tests of field sets, comparisons and entries: tables with the shapes that
//! occur in clusters, and properties. This file has the kind that they use.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::*;
use crate::decode::{Format, decode};
use crate::object::{ManagedFieldsEntry, Object};
use crate::schema::Schema;
use crate::time::Timestamp;

mod any_schema;
mod changes;
mod conflicts;
mod properties;
mod scenarios;
mod sets;
mod tracking;

const API_VERSION: &str = "g/v1";

#[derive(JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    spec: Spec,
    data: BTreeMap<String, String>,
    status: Status,
}

#[derive(JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    display_name: String,
    replicas: Option<i64>,
    owner: Option<Owner>,
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    data: BTreeMap<String, String>,
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    selector: BTreeMap<String, String>,
    access: Vec<Owner>,
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    tags: Vec<String>,
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    numbers: Vec<i64>,
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    containers: Vec<Container>,
    quotas: BTreeMap<String, BTreeMap<String, String>>,
    free: Value,
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    deduced: Value,
    free_map: serde_json::Map<String, Value>,
}

#[derive(JsonSchema, Default)]
#[serde(default)]
struct Owner {
    user: String,
    team: String,
}

#[derive(JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    image: String,
    args: Vec<String>,
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["containerPort", "protocol"]
    ))]
    ports: Vec<Opening>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct Opening {
    container_port: i64,
    protocol: String,
    name: String,
}

#[derive(JsonSchema, Default)]
#[serde(default)]
struct Status {
    phase: String,
}

impl Default for Opening {
    fn default() -> Self {
        Self { container_port: 0, protocol: "TCP".to_owned(), name: String::new() }
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::of_object::<Body>);
    &SCHEMA
}

fn set(fields_v1: &Value) -> FieldSet {
    FieldSet::from_fields_v1(fields_v1).unwrap()
}

fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(seconds)
}

fn manager(name: &str) -> Manager {
    Manager {
        name: name.to_owned(),
        api_version: API_VERSION.to_owned(),
        subresource: String::new(),
    }
}

fn entry(name: &str, seconds: i64, fields_v1: &Value) -> ManagedFieldsEntry {
    let entry = json!({
        "manager": name, "operation": "Update", "apiVersion": API_VERSION,
        "time": at(seconds), "fieldsType": "FieldsV1", "fieldsV1": fields_v1,
    });
    serde_json::from_value(entry).unwrap()
}

/// Writes `new` over `live` and returns the object that is then stored.
fn write(live: Option<&Object>, new: &Value, who: &Manager, seconds: i64) -> Object {
    let mut new = object(new);
    let kind = TrackedKind { schema: schema(), ignored: &FieldSet::new() };
    track_update(live, &mut new, &kind, who, at(seconds));
    new
}

/// Writes `new`, as a client that sends the entries back that it read.
fn rewrite(live: &Object, new: &Value, who: &Manager, seconds: i64) -> Object {
    let mut new = object(new);
    new.metadata.managed_fields.clone_from(&live.metadata.managed_fields);
    let kind = TrackedKind { schema: schema(), ignored: &FieldSet::new() };
    track_update(Some(live), &mut new, &kind, who, at(seconds));
    new
}
