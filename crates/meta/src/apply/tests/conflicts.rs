//! The Status of a conflict, in upstream's words.

use super::*;
use crate::status::Status;

fn status(live: &Object, configuration: &Value) -> Status {
    let kind = TrackedKind { schema: schema(), ignored: &FieldSet::new() };
    let configuration = &object(configuration);
    let asked = Apply { configuration, manager: &manager("me"), force: false, now: at(9) };
    apply(Some(live), &asked, &kind).unwrap_err().into_error().into_status()
}

fn live(entries: Vec<ManagedFieldsEntry>, value: &Value) -> Object {
    let mut live = object(value);
    live.metadata.managed_fields = entries;
    live
}

fn applied(mut entry: ManagedFieldsEntry) -> ManagedFieldsEntry {
    entry.operation = crate::object::Operation::Apply;
    entry
}

#[test]
fn one_conflict() {
    let fields = json!({"f:spec": {"f:displayName": {}}});
    let value = json!({"spec": {"displayName": "s3cr3t"}});
    let next = json!({"spec": {"displayName": "hunter2"}});
    let status_of =
        |entry| serde_json::to_string(&status(&live(vec![entry], &value), &next)).unwrap();
    assert_eq!(
        status_of(applied(entry("argocd", 1, &fields))),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Apply failed with 1 conflict: conflict with \"argocd\": .spec.displayName","reason":"Conflict","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"argocd\"","field":".spec.displayName"}]},"code":409}"#
    );
    let message = |entry| status(&live(vec![entry], &value), &next).message;
    assert_eq!(
        message(entry("kubectl-edit", 1, &fields)),
        r#"Apply failed with 1 conflict: conflict with "kubectl-edit" using g/v1: .spec.displayName"#
    );
    let mut entry = entry("a \"b\"", 1, &fields);
    entry.subresource = "status".to_owned();
    assert_eq!(
        message(entry),
        r#"Apply failed with 1 conflict: conflict with "a \"b\"" with subresource "status" using g/v1: .spec.displayName"#
    );
}

#[test]
fn several_conflicts_are_sorted_by_managers_and_paths() {
    let entries = vec![
        entry("z", 1, &json!({"f:spec": {"f:replicas": {}, "f:tags": {"v:\"x\"": {}}}})),
        applied(entry(
            "b",
            1,
            &json!({"f:spec": {"f:displayName": {}, "f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}},
            }}}),
        )),
        entry("b", 1, &json!({"f:spec": {"f:displayName": {}}})),
    ];
    let value = json!({"spec": {
        "displayName": "s3cr3t", "replicas": 1, "tags": ["x"],
        "containers": [{"name": "c", "image": "s3cr3t"}],
    }});
    let next = json!({"spec": {
        "displayName": "hunter2", "replicas": 2, "tags": ["x"],
        "containers": [{"name": "c", "image": "hunter2"}],
    }});
    let status = status(&live(entries, &value), &next);
    let text = serde_json::to_string(&status).unwrap();
    assert!(!text.contains("s3cr3t") && !text.contains("hunter2"), "{text}");
    assert_eq!(
        status.message,
        r#"Apply failed with 4 conflicts: conflicts with "b":
- .spec.containers[name="c"].image
- .spec.displayName
conflicts with "b" using g/v1:
- .spec.displayName
conflicts with "z" using g/v1:
- .spec.replicas"#
    );
    let causes = status.details.unwrap().causes;
    let lines: Vec<_> =
        causes.iter().map(|cause| format!("{} {}", cause.message, cause.field)).collect();
    assert_eq!(
        lines,
        [
            r#"conflict with "b" .spec.containers[name="c"].image"#,
            r#"conflict with "b" .spec.displayName"#,
            r#"conflict with "b" using g/v1 .spec.displayName"#,
            r#"conflict with "z" using g/v1 .spec.replicas"#,
        ]
    );
}

#[test]
fn an_error_names_only_so_many() {
    let map = |value: &str| -> serde_json::Map<String, Value> {
        (0..2000).map(|i| (format!("k{i}"), json!(value))).collect()
    };
    let fields = set_of(&json!({"spec": {"data": map("v")}}), schema()).to_fields_v1();
    let live = live(vec![entry("u", 1, &fields)], &json!({"spec": {"data": map("v")}}));
    let status = status(&live, &json!({"spec": {"data": map("w")}}));
    assert!(status.message.starts_with("Apply failed with 2000 conflicts: conflicts with \"u\""));
    assert!(status.message.ends_with("\nand 1500 more"), "{}", status.message.len());
    assert_eq!(status.details.unwrap().causes.len(), 500);
}

#[test]
fn lists_whose_items_cannot_be_told_apart_are_refused() {
    let problems = check_lists(
        &json!({"spec": {
            "tags": ["s3cr3t", "s3cr3t", null, {}],
            "containers": [{"image": "s3cr3t"}, {"name": "s3cr3t"}, {"name": "s3cr3t"}],
        }}),
        schema(),
    );
    assert_eq!(
        problems.to_string(),
        "[spec.containers[0]: Required value: its key: name, spec.containers[2]: Duplicate value, \
         spec.tags[1]: Duplicate value, spec.tags[2]: Invalid value: an item of a set is a text, a \
         number or a boolean, spec.tags[3]: Invalid value: an item of a set is a text, a number or \
         a boolean]"
    );
    let many = json!({"spec": {"tags": vec!["x"; 1000]}});
    assert_eq!(check_lists(&many, schema()).len(), crate::decode::MAX_STRICT_ERRORS);
}
