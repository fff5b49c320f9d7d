//! The rules in the tables of fields, compared with the behaviour of the kinds on samples of their
//! objects: required, immutable and read-only fields, the defaults, and the allowed values.

use std::fs;

use postern_kinds::{AnyKind, all};
use postern_meta::Object;
use postern_meta::field::FieldErrors;
use serde_json::{Value, json};

use crate::reference::examples::{self, prepare};
use crate::reference::fields::{Field, allowed_values, fields_of, is_immutable};
use crate::reference::{page, pages};

/// A text that no list of allowed values has.
const NOT_ALLOWED: &str = "none-of-these";

/// Selectors of requests that an access review is about. They are not checked, because no decision uses them.
const NOT_CHECKED: &str = "Selector.requirements[]";

/// Objects that have the fields with rules, as far as the examples in the pages do not have them.
fn samples() -> Vec<Value> {
    let names = pages::pages().into_iter().map(|(name, _)| name);
    let texts = names.map(|name| fs::read_to_string(page(name)).unwrap());
    let examples = texts.flat_map(|text| examples::objects_in(&text)).map(Result::unwrap);
    examples.chain(samples_of_keys()).chain(samples_of_sso()).chain(samples_of_others()).collect()
}

fn samples_of_sso() -> Vec<Value> {
    let connector = json!({
        "issuer": "https://login.example.com", "clientId": "postern", "groupsClaim": "groups",
        "clientSecret": { "secretName": "corp", "secretNamespace": "platform" },
        "usernameClaim": "preferred_username", "groupsFrom": "IDToken", "provisioning": "Create",
        "refreshInterval": 900, "keyTTL": 43200, "allow": { "everyone": true },
    });
    let identity = json!({ "issuer": "https://login.example.com", "subject": "1" });
    let workload = json!({
        "issuer": "github", "owner": { "team": "shop" }, "ttl": 900, "maxLive": 100,
        "match": [{ "claim": "sub", "values": ["a"] }],
        "scope": {
            "projects": [{ "project": "web" }],
            "spaces": [{ "project": "web", "space": "staging" }],
            "virtualClusters": [{ "project": "web", "virtualCluster": "dev" }],
            "rules": [{ "verbs": ["get"], "requestTargets": ["Cluster"] }],
        },
    });
    vec![
        ours("Connector", "", &json!({ "spec": connector })),
        ours("User", "", &json!({ "spec": { "identities": [identity] } })),
        ours("WorkloadIdentity", "", &json!({ "spec": workload })),
    ]
}

fn samples_of_keys() -> Vec<Value> {
    let rules = json!([{ "verbs": ["get"], "requestTargets": ["Cluster"] }]);
    let scope = json!({
        "projects": [{ "project": "web" }],
        "spaces": [{ "project": "web", "space": "staging" }],
        "virtualClusters": [{ "project": "web", "virtualCluster": "dev" }],
        "rules": rules,
    });
    let key = |spec: &Value| ours("OwnedAccessKey", "", &json!({ "spec": spec }));
    // A review has no metadata.
    let preview = json!({ "apiVersion": "management.platform.sh/v1", "kind": "AccessPreview",
        "spec": { "requests": [{ "verb": "get", "path": "/metrics" }], "scope": scope } });
    vec![
        preview,
        key(&json!({ "user": "ada", "type": "Login", "scope": scope })),
        key(&json!({ "team": "shop" })),
        key(&json!({ "subject": "robot" })),
        ours("DirectClusterEndpointToken", "", &json!({ "spec": { "ttl": 600, "scope": scope } })),
        ours("DirectClusterEndpointToken", "", &json!({ "spec": { "rules": rules } })),
    ]
}

fn samples_of_others() -> Vec<Value> {
    let access = json!([{ "verbs": ["get"], "users": ["bob"] }]);
    let extra = json!([{ "users": ["bob"], "clusterRole": "" }]);
    let member = json!({ "kind": "Team", "name": "shop", "group": "" });
    let can = json!({ "canUse": true, "canUpdate": true });
    let instance = |kind: &str| {
        let spec = json!({ "access": access, "extraAccessRules": extra });
        ours(kind, "p-web", &json!({ "spec": spec, "status": can }))
    };
    let selector = json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] });
    let template = json!({ "disabled": true });
    let project = json!({ "access": access, "members": [member], "requireTemplate": template });
    vec![
        ours("Project", "", &json!({ "spec": project })),
        ours("ProjectSecret", "p-web", &json!({ "spec": { "access": access } })),
        instance("VirtualClusterInstance"),
        instance("SpaceInstance"),
        of("v1", "Namespace", "", &json!({ "spec": { "finalizers": ["example.com/own"] } })),
        of(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "",
            &json!({ "aggregationRule": { "clusterRoleSelectors": [selector] } }),
        ),
    ]
}

fn ours(kind: &str, namespace: &str, fields: &Value) -> Value {
    of("management.platform.sh/v1", kind, namespace, fields)
}

fn of(api_version: &str, kind: &str, namespace: &str, fields: &Value) -> Value {
    let metadata = json!({ "name": "sample", "namespace": namespace });
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object
}

/// A field of a sample: the first item stands for all items of a list.
struct Sample<'a> {
    object: &'a Value,
    /// The path of the field as errors name it.
    path: String,
    pointer: String,
}

impl Sample<'_> {
    fn value(&self) -> Option<&Value> {
        self.object.pointer(&self.pointer)
    }

    /// The errors about the field, or about a part of it, in another state of the object.
    fn errors_in(&self, object: Value, old: Option<&Object>) -> Vec<String> {
        let errors =
            prepare(object, old).map_or_else(|error| vec![error], |(_, errors)| texts(&errors));
        // `spec.rules` of a token means `spec.scope.rules`.
        let meant = self.path.replacen("spec.rules[", "spec.scope.rules[", 1);
        let is_about = |error: &String| error.starts_with(&self.path) || error.starts_with(&meant);
        errors.into_iter().filter(is_about).collect()
    }

    fn with(&self, value: Value) -> Value {
        let mut object = self.object.clone();
        *object.pointer_mut(&self.pointer).unwrap() = value;
        object
    }

    fn without(&self) -> Value {
        let mut object = self.object.clone();
        let (parent, name) = self.pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
        parent.unwrap().remove(name);
        object
    }
}

fn texts(errors: &FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The samples that have a field. There is one for each field with rules that a client can break.
fn samples_with<'a>(
    samples: &'a [Value],
    kind: &'static dyn AnyKind,
    field: &Field,
) -> Vec<Sample<'a>> {
    let path = field.path.replace("[]", "[0]");
    let pointer = format!("/{}", field.path.replace("[]", "/0").replace('.', "/"));
    let sample = |object| Sample { object, path: path.clone(), pointer: pointer.clone() };
    let of_kind = samples.iter().filter(|object| {
        // The same kind in another version has the same fields.
        object["kind"] == kind.info().kind
    });
    let found: Vec<_> = of_kind.map(sample).filter(|sample| sample.value().is_some()).collect();
    assert!(!found.is_empty(), "{kind:?}: no sample has {}", field.path);
    found
}

/// All fields with a rule, with the samples that have them.
fn fields_that(
    samples: &[Value],
    has_rule: impl Fn(&dyn AnyKind, &Field) -> bool,
) -> Vec<(&'static dyn AnyKind, Field, Vec<Sample<'_>>)> {
    let fields =
        all().iter().flat_map(|kind| fields_of(*kind).into_iter().map(move |one| (*kind, one)));
    let ruled = fields.filter(|(kind, field)| has_rule(*kind, field));
    let found: Vec<_> = ruled
        .map(|(kind, field)| {
            let of_field = samples_with(samples, kind, &field);
            (kind, field, of_field)
        })
        .collect();
    assert!(!found.is_empty(), "no field has this rule");
    found
}

fn is_written_by_clients(field: &Field) -> bool {
    !field.path.starts_with("status") && !field.path.contains(NOT_CHECKED)
}

#[test]
fn the_reference_says_required_of_fields_without_which_a_write_is_invalid() {
    let samples = samples();
    let is_required =
        |_: &dyn AnyKind, field: &Field| field.is_required && is_written_by_clients(field);
    for (kind, field, of_field) in fields_that(&samples, is_required) {
        for sample in of_field {
            let errors = sample.errors_in(sample.without(), None);
            assert!(!errors.is_empty(), "{kind:?}: {} is not required", field.path);
        }
    }
}

#[test]
fn the_reference_lists_the_values_that_fields_may_have() {
    let samples = samples();
    let values =
        |kind: &dyn AnyKind, field: &Field| allowed_values(kind.schema(), field.schema).cloned();
    let is_enum = |kind: &dyn AnyKind, field: &Field| {
        is_written_by_clients(field) && values(kind, field).is_some()
    };
    for (kind, field, of_field) in fields_that(&samples, is_enum) {
        for sample in of_field {
            let item = |value: Value| {
                if sample.value().unwrap().is_array() { json!([value]) } else { value }
            };
            let errors = sample.errors_in(sample.with(item(json!(NOT_ALLOWED))), None);
            assert!(!errors.is_empty(), "{kind:?}: {} can be anything", field.path);
            for value in values(kind, &field).unwrap() {
                let errors = sample.errors_in(sample.with(item(value.clone())), None);
                // Some values depend on other fields, and on the kind.
                let is_refused = errors.iter().any(|error| error.contains("Unsupported value"));
                let is_special = field.path == "roleRef.kind";
                assert!(!is_refused || is_special, "{kind:?}: {}: {errors:?}", field.path);
            }
        }
    }
}

#[test]
fn the_reference_says_immutable_of_fields_that_an_update_cannot_change() {
    let samples = samples();
    for (kind, field, of_field) in fields_that(&samples, |_, field| is_immutable(field.schema)) {
        for sample in of_field {
            let (old, errors) = prepare(sample.object.clone(), None).unwrap();
            assert!(errors.is_empty(), "{kind:?}: {errors}");
            let mut changed = sample.value().unwrap().clone();
            match &mut changed {
                Value::Object(fields) => {
                    let name = if fields.contains_key("team") { "team" } else { "name" };
                    fields.insert(name.to_owned(), json!("other"));
                }
                value => *value = json!("other"),
            }
            let errors = sample.errors_in(sample.with(changed), Some(&old));
            assert!(!errors.is_empty(), "{kind:?}: {} can be changed", field.path);
        }
    }
}

#[test]
fn the_reference_has_the_defaults_that_the_server_writes() {
    let samples = samples();
    let default = |field: &Field| field.schema.get("default").cloned();
    for (kind, field, of_field) in fields_that(&samples, |_, field| default(field).is_some()) {
        for sample in of_field {
            let (object, _) = prepare(sample.without(), None).unwrap();
            let written = object.into_value().pointer(&sample.pointer).cloned();
            assert_eq!(written, default(&field), "{kind:?}: {}", field.path);
        }
    }
}

#[test]
fn the_reference_says_read_only_of_fields_that_clients_cannot_write() {
    let samples = samples();
    let is_read_only = |_: &dyn AnyKind, field: &Field| field.schema["readOnly"] == true;
    for (kind, field, of_field) in fields_that(&samples, is_read_only) {
        for sample in of_field {
            let (object, _) = prepare(sample.object.clone(), None).unwrap();
            let written = object.into_value().pointer(&sample.pointer).cloned();
            assert_ne!(written.as_ref(), sample.value(), "{kind:?}: {} is written", field.path);
        }
    }
}
