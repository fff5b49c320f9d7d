//! The shared parts of the tests of kinds: users and teams that exist, callers, objects.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use postern_kinds::{
    AnyKind, Caller, Context, Dependent, Prepared, Principal, Principals, RequiredRight,
};
use postern_meta::object::Object;
use postern_meta::time::Timestamp;
use serde_json::{Value, json};

/// These users and teams exist, each with its uid. Ada is in the team red.
pub(crate) struct Known(pub(crate) BTreeMap<&'static str, &'static str>);

impl Known {
    pub(crate) fn all() -> Self {
        let names =
            [("ada", "uid-ada"), ("bob", "uid-bob"), ("red", "uid-red"), ("blue", "uid-blue")];
        Self(BTreeMap::from(names))
    }
}

impl Principals for Known {
    fn uid(&self, principal: Principal<'_>) -> Option<String> {
        let (Principal::User(name) | Principal::Team(name)) = principal;
        self.0.get(name).map(|uid| (*uid).to_owned())
    }

    fn teams_of(&self, user: &str) -> Vec<String> {
        if user == "ada" { vec!["red".to_owned()] } else { Vec::new() }
    }
}

pub(crate) fn ada() -> Caller {
    Caller { user: Some("ada".to_owned()), team: None, uid: "uid-ada".to_owned() }
}

pub(crate) fn context<'a>(caller: &'a Caller, principals: &'a Known) -> Context<'a> {
    Context::of(caller, Timestamp::from_unix_seconds(0), principals)
}

/// An object with this metadata and these other fields.
pub(crate) fn whole(kind: &dyn AnyKind, metadata: &Value, fields: &Value) -> Object {
    let info = kind.info();
    let mut value = json!({
        "apiVersion": info.version.to_string(), "kind": info.kind, "metadata": metadata,
    });
    value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Object::from_value(value).unwrap()
}

/// An object with a spec. One in a namespace is in `p-one`.
pub(crate) fn object(kind: &dyn AnyKind, name: &str, spec: &Value) -> Object {
    let namespace = if kind.info().is_namespaced() { "p-one" } else { "" };
    let metadata = json!({ "name": name, "namespace": namespace, "uid": "uid-of-it" });
    whole(kind, &metadata, &json!({ "spec": spec }))
}

/// The dependents of an object as they are stored, if it has this uid.
pub(crate) fn stored(dependents: &[Dependent], owner: &Object, uid: &str) -> Vec<Object> {
    let reference = json!({
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.metadata.name,
        "uid": uid,
    });
    let object = |one: &Dependent| {
        let metadata = json!({
            "name": one.name, "namespace": one.namespace, "annotations": one.annotations,
            "ownerReferences": [reference],
        });
        whole(one.kind, &metadata, &Value::Object(one.fields.clone()))
    };
    dependents.iter().map(object).collect()
}

/// Prepares an object of ada's, in the project one.
pub(crate) fn prepare(kind: &dyn AnyKind, old: Option<&Value>, new: &Value) -> Prepared {
    let (caller, principals) = (ada(), Known::all());
    let context = Context { project_of_namespace: Some("one"), ..context(&caller, &principals) };
    let old = old.map(|spec| object(kind, "a", spec));
    kind.prepare(&mut object(kind, "a", new), old.as_ref(), &context).unwrap()
}

/// The errors of a new object.
pub(crate) fn errors(kind: &dyn AnyKind, new: &Value) -> String {
    let errors = prepare(kind, None, new).verdict.unwrap();
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Checks that the errors of a new object begin with a text. Without a text, it has none.
pub(crate) fn check_errors(kind: &dyn AnyKind, new: &Value, start: &str) {
    check_text(&errors(kind, new), start, new);
}

/// Checks that the errors of an object begin with a text. Without a text, it has none.
pub(crate) fn check_text(found: &str, start: &str, of: &Value) {
    assert!(found.starts_with(start) && found.is_empty() == start.is_empty(), "{of}: {found}");
}

/// The rights that a write requires, in short form: `VERB [NAMESPACE/]RESOURCE/NAME`.
pub(crate) fn required(kind: &dyn AnyKind, old: Option<&Value>, new: &Value) -> Vec<String> {
    let text = |required: &RequiredRight| {
        let right = required.first();
        let namespace = match right.namespace.as_str() {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        let as_owner = if required.is_as_owner() { " as owner" } else { "" };
        format!("{} {namespace}{}/{}{as_owner}", right.verb, right.resource, right.name)
    };
    prepare(kind, old, new).required_rights.iter().map(text).collect()
}
