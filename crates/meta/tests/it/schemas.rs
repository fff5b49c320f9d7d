//! Schemas of small types and of object metadata, and values pruned and checked against them.

use std::collections::BTreeMap;

use postern_meta::decode::MAX_STRICT_ERRORS;
use postern_meta::object::ObjectMeta;
use postern_meta::schema::Schema;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct Thing {
    /// The metadata.
    metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    spec: Spec,
    status: Option<Empty>,
}

#[derive(JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    display_name: String,
    count: i64,
    small: Option<u8>,
    ratio: f64,
    on: bool,
    access: Vec<Access>,
    data: BTreeMap<String, String>,
    free: serde_json::Value,
    free_map: serde_json::Map<String, Value>,
    mode: Option<Mode>,
    parent: Option<Box<Spec>>,
    /// The owner.
    owner: Option<Access>,
}

#[derive(JsonSchema, Default)]
#[expect(dead_code, reason = "only the schema is used")]
struct Access {
    name: String,
}

#[derive(JsonSchema)]
struct Empty {}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
enum Mode {
    /// Hot.
    Hot,
    /// Cold.
    Cold,
}

/// The values of fields, which are the defaults of the schema.
#[derive(JsonSchema, Default, serde::Serialize)]
#[serde(default)]
struct Defaults {
    empty: Inner,
    count: i64,
    named: Named,
}

#[derive(JsonSchema, Default, serde::Serialize)]
#[serde(default)]
struct Inner {
    name: String,
    on: bool,
    list: Vec<String>,
}

#[derive(JsonSchema, serde::Serialize)]
#[serde(default)]
struct Named {
    name: String,
}

impl Default for Named {
    fn default() -> Self {
        Self { name: "config".to_owned() }
    }
}

fn schema() -> Schema {
    Schema::of::<Thing>()
}

#[test]
fn only_defaults_that_say_something_are_in_the_schema() {
    let schema = Schema::of::<Defaults>();
    let properties = &schema.root()["properties"];
    for (name, default) in
        [("empty", None), ("count", None), ("named", Some(json!({ "name": "config" })))]
    {
        assert_eq!(properties[name].get("default"), default.as_ref(), "{name}");
    }
}

#[test]
fn the_root_is_the_type_and_the_rest_are_definitions() {
    let schema = schema();
    assert!(schema.root()["properties"]["spec"].is_object());
    let names: Vec<_> = schema.definitions().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "Access",
            "Empty",
            "Mode",
            "Spec",
            "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
            "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        ]
    );
    assert!(Schema::of::<Spec>().definitions().contains_key("Spec"), "it refers to itself");
}

#[test]
fn nothing_is_nullable_and_the_values_of_an_enumeration_are_one_list() {
    let schema = schema();
    let text = serde_json::to_string(schema.definitions()).unwrap()
        + &serde_json::to_string(schema.root()).unwrap();
    for unwanted in ["nullable", "\"null\"", ":null", "$schema", "title", "anyOf", "oneOf"] {
        assert!(!text.contains(unwanted), "{unwanted} in {text}");
    }
    assert_eq!(schema.definitions()["Mode"], json!({"type": "string", "enum": ["Hot", "Cold"]}));
    assert_eq!(
        schema.definitions()["Spec"]["properties"]["owner"],
        json!({
            "description": "The owner.",
            "allOf": [{"$ref": "#/components/schemas/Access"}],
        })
    );
}

#[test]
fn metadata_says_how_its_lists_merge() {
    let schema = schema();
    let meta = &schema.definitions()["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"];
    let properties = &meta["properties"];
    assert_eq!(properties["finalizers"]["x-kubernetes-list-type"], "set");
    assert_eq!(properties["ownerReferences"]["x-kubernetes-list-type"], "map");
    assert_eq!(properties["ownerReferences"]["x-kubernetes-list-map-keys"], json!(["uid"]));
    assert_eq!(properties["managedFields"]["x-kubernetes-list-type"], "atomic");
    assert_eq!(properties["labels"]["x-kubernetes-map-type"], "granular");
    assert_eq!(properties["annotations"]["x-kubernetes-map-type"], "granular");
    assert_eq!(
        properties["creationTimestamp"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"
    );
    assert!(meta.get("required").is_none());
    for (name, property) in properties.as_object().unwrap() {
        assert!(property["description"].is_string(), "{name}");
        assert!(property.get("default").is_none(), "{name}");
    }
    let owner = &schema.definitions()["io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"];
    assert_eq!(owner["required"], json!(["apiVersion", "kind", "name", "uid"]));
}

#[test]
fn unknown_fields_are_removed_and_named() {
    let mut value = json!({
        "foo": 1,
        "metadata": {"name": "a", "labels": {"any": "x"}, "nope": {}, "managedFields": [
            {"fieldsV1": {"f:x": {}}, "what": 1},
        ]},
        "spec": {
            "foo": {"bar": 1}, "access": [{"name": "a"}, {"bar": 1}], "data": {"a b": "x"},
            "free": {"x": [1]}, "freeMap": {"y": null}, "parent": {"parent": {"deep": 1}},
            "owner": {"x": 1},
        },
        "status": {"phase": "x"},
    });
    let mut unknown = schema().prune_unknown(&mut value);
    unknown.sort();
    assert_eq!(
        unknown,
        [
            "foo",
            "metadata.managedFields[0].what",
            "metadata.nope",
            "spec.access[1].bar",
            "spec.foo",
            "spec.owner.x",
            "spec.parent.parent.deep",
            "status.phase",
        ]
    );
    assert_eq!(
        value,
        json!({
            "metadata": {"name": "a", "labels": {"any": "x"}, "managedFields": [
                {"fieldsV1": {"f:x": {}}},
            ]},
            "spec": {
                "access": [{"name": "a"}, {}], "data": {"a b": "x"}, "free": {"x": [1]},
                "freeMap": {"y": null}, "parent": {"parent": {}}, "owner": {},
            },
            "status": {},
        })
    );
}

#[test]
fn null_is_absent_and_whole_floats_are_integers() {
    let mut value = json!({"spec": {
        "displayName": null, "count": 5.0, "ratio": 5.0, "data": {"a": null}, "free": null,
        "small": 1e300,
    }});
    assert!(schema().prune_unknown(&mut value).is_empty());
    assert_eq!(
        value,
        json!({"spec": {
            "count": 5, "ratio": 5.0, "data": {}, "free": null, "small": 1e300,
        }})
    );
}

#[test]
fn the_list_of_unknown_fields_is_capped() {
    let fields: Map<String, Value> = (0..1000).map(|i| (format!("x{i}"), json!(1))).collect();
    let mut value = json!({"spec": fields});
    assert_eq!(schema().prune_unknown(&mut value).len(), MAX_STRICT_ERRORS);
    assert_eq!(value, json!({"spec": {}}));
}

#[test]
fn types_that_fit() {
    let value = json!({
        "unknown": [1], "metadata": {"name": null}, "spec": {
            "displayName": "x", "count": 9_007_199_254_740_993_i64, "small": 255, "ratio": 1,
            "on": true, "access": [{"name": null}], "data": null, "free": [1, "a"],
            "freeMap": {"a": 1}, "mode": "Lukewarm", "parent": {"count": 3.0},
        },
    });
    assert_eq!(schema().check_types(&value), Ok(()));
}

#[test]
fn types_that_do_not_fit() {
    for (value, want) in [
        (json!(5), "expected object, got number"),
        (json!({"spec": []}), "spec: expected object, got array"),
        (json!({"spec": {"displayName": 5}}), "spec.displayName: expected string, got number"),
        (json!({"spec": {"count": "5"}}), "spec.count: expected integer, got string"),
        (
            json!({"spec": {"count": 5.5}}),
            "spec.count: expected integer, got number with a fraction",
        ),
        (
            json!({"spec": {"count": 9_223_372_036_854_775_808_u64}}),
            "spec.count: expected integer, got number out of range",
        ),
        (
            json!({"spec": {"count": 1e300}}),
            "spec.count: expected integer, got number out of range",
        ),
        (json!({"spec": {"small": -1}}), "spec.small: expected integer, got number out of range"),
        (json!({"spec": {"on": "true"}}), "spec.on: expected boolean, got string"),
        (json!({"spec": {"access": {}}}), "spec.access: expected array, got object"),
        (json!({"spec": {"access": [null]}}), "spec.access[0]: expected object, got null"),
        (
            json!({"spec": {"access": [{}, {"name": true}]}}),
            "spec.access[1].name: expected string, got boolean",
        ),
        (json!({"spec": {"data": {"k": 5}}}), "spec.data.k: expected string, got number"),
        (json!({"spec": {"mode": 5}}), "spec.mode: expected string, got number"),
        (
            json!({"spec": {"parent": {"parent": {"on": 1}}}}),
            "spec.parent.parent.on: expected boolean, got number",
        ),
    ] {
        assert_eq!(schema().check_types(&value).unwrap_err().to_string(), want);
    }
}

#[test]
fn an_object_without_its_own_metadata_gets_it() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only the schema is used")]
    struct Body {
        spec: Access,
    }
    let schema = Schema::of_object::<Body>();
    let mut value = json!({
        "apiVersion": "v1", "kind": "K", "metadata": {"name": "a", "x": 1}, "spec": {}, "y": 1,
    });
    assert_eq!(schema.prune_unknown(&mut value), ["metadata.x", "y"]);
    assert!(schema.check_types(&json!({"kind": 1})).is_err());
}

#[test]
fn unknown_fields_and_nulls_below_a_path_are_found() {
    let value = json!({
        "x": 1,
        "metadata": { "x": 1 },
        "spec": {
            "scopes": {}, "count": null, "data": { "k": null }, "free": { "x": null },
            "owner": { "name": null, "names": [] },
            "access": [{ "name": "a" }, { "nam": "b", "name": null }],
            "parent": null,
        },
    });
    let before = value.clone();
    let unknown = |path| schema().unknown_below(&value, path);
    let nulls = |path| schema().nulls_below(&value, path);
    assert_eq!(unknown("spec"), ["spec.access[1].nam", "spec.owner.names", "spec.scopes"]);
    assert_eq!(unknown("spec.owner"), ["spec.owner.names"]);
    assert_eq!(
        nulls("spec"),
        ["spec.access[1].name", "spec.count", "spec.data.k", "spec.owner.name", "spec.parent"]
    );
    assert_eq!(nulls("spec.parent"), ["spec.parent"]);
    assert_eq!(nulls("spec.owner"), ["spec.owner.name"]);
    for path in ["spec.parent", "spec.none", "spec.scopes", "spec.mode", "none", "spec.free", ""] {
        assert_eq!(unknown(path), [""; 0], "{path}");
    }
    assert_eq!(nulls("spec.free"), [""; 0], "free-form");
    assert_eq!(schema().nulls_below(&json!({ "spec": null }), "spec.owner"), [""; 0]);
    assert_eq!(value, before);
    let misplaced =
        json!({ "count": 1, "access": [], "x": 1, "metadata": {}, "spec": {}, "sPec": {} });
    assert_eq!(schema().misplaced(&misplaced, "spec"), ["access", "count", "sPec"]);
    for path in ["spec.mode", "none", "spec.free"] {
        assert_eq!(schema().misplaced(&misplaced, path), [""; 0], "{path}");
    }
    let many: Map<String, Value> = (0..500).map(|i| (format!("k{i}"), json!(1))).collect();
    let many = schema().unknown_below(&json!({ "spec": many }), "spec");
    assert_eq!(many.len(), MAX_STRICT_ERRORS);
}
