//! `managedFields` from write to write.

use super::*;

fn entries(object: &Object) -> Value {
    serde_json::to_value(&object.metadata.managed_fields).unwrap()
}

/// Manager, time and fields of each entry.
fn owners(object: &Object) -> Vec<(String, i64, Value)> {
    let entries = object.metadata.managed_fields.iter();
    entries
        .map(|entry| {
            let seconds = entry.time.unwrap().unix_seconds();
            (entry.manager.clone(), seconds, entry.fields_v1.clone().unwrap())
        })
        .collect()
}

fn owner(name: &str, seconds: i64, fields: Value) -> (String, i64, Value) {
    (name.to_owned(), seconds, fields)
}

fn created() -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "K",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": "5",
            "creationTimestamp": "2006-01-02T15:04:05Z", "generateName": "a-",
            "labels": {"app": "web"}, "annotations": {"x.io/note": "s3cr3t"},
            "finalizers": ["x.io/guard"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "ou"}],
        },
        "spec": {"displayName": "A", "data": {"k": "djE="}, "owner": {"user": "u"}},
        "status": {},
    })
}

#[test]
fn a_create_owns_all_that_was_set() {
    let object = write(None, &created(), &manager("kubectl-create"), 7);
    assert_eq!(
        entries(&object),
        json!([{
            "manager": "kubectl-create", "operation": "Update", "apiVersion": API_VERSION,
            "time": "1970-01-01T00:00:07Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:annotations": {".": {}, "f:x.io/note": {}},
                    "f:finalizers": {".": {}, "v:\"x.io/guard\"": {}},
                    "f:generateName": {},
                    "f:labels": {".": {}, "f:app": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"ou\"}": {}},
                },
                "f:spec": {
                    "f:data": {".": {}, "f:k": {}},
                    "f:displayName": {},
                    "f:owner": {".": {}, "f:user": {}},
                },
            },
        }])
    );
}

#[test]
fn a_map_at_the_top_is_owned_itself_and_a_struct_is_not() {
    let new = json!({"data": {"a": "1"}, "spec": {"replicas": 1}, "metadata": {"name": "a"}});
    let object = write(None, &new, &manager(""), 7);
    let want = json!({"f:data": {".": {}, "f:a": {}}, "f:spec": {"f:replicas": {}}});
    assert_eq!(owners(&object), [owner("unknown", 7, want)]);
}

#[test]
fn an_update_takes_what_it_changes_and_gives_up_what_it_removes() {
    let first = write(
        None,
        &json!({"spec": {"displayName": "A", "data": {"a": "1", "b": "1", "c": "1"}}}),
        &manager("a"),
        1,
    );
    let second = rewrite(
        &first,
        &json!({"spec": {"displayName": "A", "data": {"a": "1", "b": "2", "d": "1"}}}),
        &manager("b"),
        2,
    );
    assert_eq!(
        owners(&second),
        [
            owner("a", 1, json!({"f:spec": {"f:displayName": {}, "f:data": {".": {}, "f:a": {}}}})),
            owner("b", 2, json!({"f:spec": {"f:data": {"f:b": {}, "f:d": {}}}})),
        ],
        "the time of the manager that lost a field stays"
    );
    // The first manager takes one field back and removes one of its fields; the time is that of the
    // change.
    let third = rewrite(
        &second,
        &json!({"spec": {"data": {"a": "1", "b": "3", "d": "1"}}}),
        &manager("a"),
        3,
    );
    assert_eq!(
        owners(&third),
        [
            owner("b", 2, json!({"f:spec": {"f:data": {"f:d": {}}}})),
            owner("a", 3, json!({"f:spec": {"f:data": {".": {}, "f:a": {}, "f:b": {}}}})),
        ]
    );
    // A manager that owns nothing any more has no entry.
    let fourth =
        rewrite(&third, &json!({"spec": {"data": {"a": "1", "b": "3"}}}), &manager("c"), 4);
    assert_eq!(owners(&fourth).len(), 1);
}

#[test]
fn removing_an_owned_field_changes_the_time() {
    let first =
        write(None, &json!({"spec": {"displayName": "A", "replicas": 1}}), &manager("a"), 1);
    let second = rewrite(&first, &json!({"spec": {"replicas": 1}}), &manager("a"), 2);
    assert_eq!(owners(&second), [owner("a", 2, json!({"f:spec": {"f:replicas": {}}}))]);
    let both = rewrite(&second, &json!({"spec": {"displayName": "B"}}), &manager("b"), 3);
    assert_eq!(owners(&both), [owner("b", 3, json!({"f:spec": {"f:displayName": {}}}))]);
}

#[test]
fn a_write_that_changes_nothing_changes_no_entry() {
    let mut first = write(None, &created(), &manager("a"), 1);
    // Not even one that the server would encode differently.
    first.metadata.managed_fields.push(entry("b", 1, &json!({"f:gone": {".": {}}})));
    for who in ["a", "b"] {
        assert_eq!(rewrite(&first, &created(), &manager(who), 2), first);
        assert_eq!(write(Some(&first), &created(), &manager(who), 2), first, "none sent");
    }
    let mut other_times = object(&created());
    other_times.metadata.managed_fields.clone_from(&first.metadata.managed_fields);
    other_times.metadata.managed_fields[0].time = None;
    let again = write(Some(&first), &other_times.into_value(), &manager("a"), 2);
    assert_eq!(again, first, "times that a client made up are not taken");
}

#[test]
fn updates_and_applies_and_subresources_have_entries_of_their_own() {
    let mut live = write(None, &json!({"spec": {"displayName": "A"}}), &manager("m"), 1);
    let mut applied = entry("m", 1, &json!({"f:spec": {"f:replicas": {}, "f:displayName": {}}}));
    applied.operation = crate::object::Operation::Apply;
    live.metadata.managed_fields.push(applied);
    let status = Manager { subresource: "status".to_owned(), ..manager("m") };
    let new = json!({"spec": {"displayName": "B"}, "status": {"phase": "x"}});
    let object = rewrite(&live, &new, &status, 2);
    let identities: Vec<_> = object
        .metadata
        .managed_fields
        .iter()
        .map(|entry| (entry.operation.as_str(), entry.subresource.as_str()))
        .collect();
    assert_eq!(identities, [("Apply", ""), ("Update", "status")]);
    assert_eq!(
        owners(&object),
        [
            owner("m", 1, json!({"f:spec": {"f:replicas": {}}})),
            owner(
                "m",
                2,
                json!({"f:spec": {"f:displayName": {}}, "f:status": {".": {}, "f:phase": {}}})
            ),
        ]
    );
}

fn apply_and_admit(live: Option<&Object>, spec: &Value, name: &str, seconds: i64) -> Object {
    admitted(live, spec, (name, false), seconds).unwrap()
}

/// Applies, and normalises as admission does: empty values go, and an owner has a team.
fn admitted(
    live: Option<&Object>,
    spec: &Value,
    (name, force): (&str, bool),
    seconds: i64,
) -> Result<Object, Vec<String>> {
    let ignored = FieldSet::new();
    let kind = TrackedKind { schema: schema(), ignored: &ignored };
    let (spec_less, with_spec) = (json!({}), json!({ "spec": spec }));
    let configuration = &object(if spec.is_null() { &spec_less } else { &with_spec });
    let (manager, now) = (&manager(name), at(seconds));
    let applied = apply(live, &Apply { configuration, manager, force, now }, &kind);
    let mut new = applied.map_err(|conflicts| {
        let causes = conflicts.into_error().into_status().details.unwrap().causes;
        causes.into_iter().map(|cause| cause.field).collect::<Vec<_>>()
    })?;
    let mut nothing = serde_json::Map::new();
    let spec = new.fields.get_mut("spec").and_then(Value::as_object_mut).unwrap_or(&mut nothing);
    spec.retain(|_, value| ![json!(""), json!([]), json!({}), json!(0)].contains(value));
    for owner in spec.get_mut("access").and_then(Value::as_array_mut).into_iter().flatten() {
        owner["team"] = json!("all");
    }
    track_apply(live, &mut new, &kind, manager);
    Ok(new)
}

fn empties() -> Value {
    json!({ "displayName": "", "replicas": 0, "access": [], "data": {}, "tags": [] })
}

/// An applied value that the kind does not store had no owner. Another manager set it, and the first one got no
/// conflict.
#[test]
fn an_applied_empty_value_is_owned_by_who_applied_it() {
    let own = json!({"f:spec": {
        "f:access": {}, "f:data": {}, "f:displayName": {}, "f:replicas": {}, "f:tags": {},
    }});
    let live = apply_and_admit(None, &empties(), "a", 1);
    assert_eq!(live.fields["spec"], json!({}));
    assert_eq!(owners(&live), [owner("a", 1, own.clone())]);
    assert_eq!(apply_and_admit(Some(&live), &empties(), "a", 2), live);
    for (spec, path) in [
        (json!({ "displayName": "B" }), ".spec.displayName"),
        (json!({ "replicas": 1 }), ".spec.replicas"),
        (json!({ "access": [{ "user": "u" }] }), ".spec.access"),
    ] {
        assert_eq!(admitted(Some(&live), &spec, ("b", false), 2), Err(vec![path.to_owned()]));
        let forced = admitted(Some(&live), &spec, ("b", true), 2).unwrap();
        assert!(owners(&forced).iter().any(|(name, ..)| name == "b"), "{path}");
    }
    // A manager that applies the same shares it. A manager that gives it up no longer owns it.
    let both = apply_and_admit(Some(&live), &empties(), "b", 2);
    assert_eq!(owners(&both), [owner("a", 1, own.clone()), owner("b", 2, own.clone())]);
    let rest = apply_and_admit(Some(&both), &Value::Null, "a", 3);
    assert_eq!(owners(&rest), [owner("b", 2, own)]);
    // A manager that sets a value by an update owns it alone.
    let updated = rewrite(&live, &json!({"spec": {"displayName": "U"}}), &manager("u"), 3);
    let left = json!({"f:spec": {"f:access": {}, "f:data": {}, "f:replicas": {}, "f:tags": {}}});
    let set = json!({"f:spec": {"f:displayName": {}}});
    assert_eq!(owners(&updated), [owner("a", 1, left), owner("u", 3, set)]);
}

#[test]
fn an_empty_value_over_anothers_conflicts_and_is_taken_by_force() {
    let live = write(None, &json!({"spec": {"displayName": "A", "replicas": 1}}), &manager("u"), 1);
    let empty = json!({ "displayName": "" });
    let refused = admitted(Some(&live), &empty, ("a", false), 2);
    assert_eq!(refused, Err(vec![".spec.displayName".to_owned()]));
    let forced = admitted(Some(&live), &empty, ("a", true), 2).unwrap();
    assert_eq!(forced.fields["spec"], json!({ "replicas": 1 }));
    assert_eq!(
        owners(&forced),
        [
            owner("a", 2, json!({"f:spec": {"f:displayName": {}}})),
            owner("u", 1, json!({"f:spec": {"f:replicas": {}}})),
        ]
    );
    assert_eq!(apply_and_admit(Some(&forced), &empty, "a", 3), forced);
}

/// A value that the server had set in an object without a spec belonged to `before-first-apply`. That manager then
/// conflicted with the first apply.
#[test]
fn what_nobody_set_is_nobodys_at_the_first_apply() {
    let filled = json!({"metadata": {"name": "a"}, "spec": {"owner": {"user": "ada"}}});
    let by_server = FieldSet::of_fields(&[&["spec", "owner"]]);
    let mut posted = object(&filled);
    let kind = TrackedKind { schema: schema(), ignored: &by_server };
    track_update(None, &mut posted, &kind, &manager("curl"), at(1));
    assert_eq!(owners(&posted), [owner("curl", 1, json!({}))], "it is tracked");
    // Or the first apply has nothing, or nothing any more.
    let mut applied = apply_and_admit(None, &Value::Null, "first", 1);
    applied.fields.insert("spec".to_owned(), filled["spec"].clone());
    applied.metadata.managed_fields = vec![entry("first", 1, &json!({}))];
    let mut emptied = write(None, &json!({"spec": {"displayName": "A"}}), &manager("u"), 1);
    emptied.fields["spec"]["owner"] = filled["spec"]["owner"].clone();
    let emptied = rewrite(&emptied, &filled, &manager("u"), 1);
    assert_eq!(owners(&emptied), [owner("u", 1, json!({}))]);
    for live in [posted, applied, emptied] {
        // A write that changes nothing, or reads a field without an owner, leaves it so.
        assert_eq!(rewrite(&live, &live.clone().into_value(), &manager("other"), 2), live);
        assert_eq!(apply_and_admit(Some(&live), &Value::Null, "other", 2), live);
        for owner_of in [json!({ "user": "ada" }), json!({ "user": "bob" })] {
            let next = apply_and_admit(Some(&live), &json!({ "owner": owner_of }), "m", 2);
            let own = json!({"f:spec": {"f:owner": {"f:user": {}}}});
            assert_eq!(owners(&next), [owner("m", 2, own)]);
        }
    }
    // An object in which there is nothing has no entries, as upstream.
    let nothing = write(None, &json!({"metadata": {"name": "a"}}), &manager("curl"), 1);
    assert_eq!(nothing.metadata.managed_fields, []);
}

#[test]
fn an_apply_that_admission_normalises_changes_nothing_the_second_time() {
    let dropped = json!({ "displayName": "", "replicas": 1 });
    let filled = json!({ "access": [{ "user": "ann" }], "tags": ["a"] });
    let first = apply_and_admit(None, &dropped, "a", 1);
    let mut live = apply_and_admit(Some(&first), &filled, "b", 2);
    assert_eq!(live.metadata.managed_fields.len(), 2);
    for seconds in 3..6 {
        for (name, spec) in [("a", &dropped), ("b", &filled)] {
            let next = apply_and_admit(Some(&live), spec, name, seconds);
            assert_eq!(next.clone().into_value(), live.into_value(), "{name} {seconds}");
            live = next;
        }
    }
}

#[test]
fn one_empty_entry_ends_tracking() {
    let live = write(None, &created(), &manager("a"), 1);
    let mut new = created();
    new["metadata"]["managedFields"] = json!([{}]);
    new["spec"]["displayName"] = json!("B");
    let reset = write(Some(&live), &new, &manager("a"), 2);
    assert_eq!(reset.metadata.managed_fields, []);
    // After that there are no entries, until an apply starts tracking again.
    new["metadata"]["managedFields"] = json!([]);
    new["spec"]["displayName"] = json!("C");
    assert_eq!(write(Some(&reset), &new, &manager("a"), 3).metadata.managed_fields, []);
    // In a create, there was nothing to end.
    new["metadata"]["managedFields"] = json!([{}]);
    assert_eq!(owners(&write(None, &new, &manager("a"), 1)).len(), 1);
}

#[test]
fn entries_that_a_client_rewrote_are_taken_over() {
    let live = write(None, &created(), &manager("kubectl-client-side-apply"), 1);
    let mut new = created();
    let moved = entry("flux", 5, live.metadata.managed_fields[0].fields_v1.as_ref().unwrap());
    new["metadata"]["managedFields"] = json!([&moved]);
    let same = write(Some(&live), &new, &manager("patcher"), 6);
    assert_eq!(same.metadata.managed_fields, [moved], "the patcher set no field");

    new["spec"]["displayName"] = json!("B");
    let changed = write(Some(&live), &new, &manager("patcher"), 6);
    let names: Vec<_> = owners(&changed).into_iter().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["flux", "patcher"]);

    let status = Manager { subresource: "status".to_owned(), ..manager("patcher") };
    let through_status = write(Some(&live), &new, &status, 6);
    assert_eq!(owners(&through_status)[0].0, "kubectl-client-side-apply");
}

#[test]
fn invalid_entries_are_ignored_and_the_stored_ones_kept() {
    let live = write(None, &created(), &manager("a"), 1);
    let good = serde_json::to_value(entry("b", 1, &json!({"f:x": {}}))).unwrap();
    for (field, value) in [
        ("operation", json!("Guess")),
        ("operation", json!(null)),
        ("apiVersion", json!("")),
        ("fieldsType", json!("")),
        ("fieldsType", json!("FieldsV2")),
        ("fieldsV1", json!({"x": {}})),
        ("fieldsV1", json!({"v:{": {}})),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let mut new = created();
        new["metadata"]["managedFields"] = json!([good, bad]);
        assert_eq!(write(Some(&live), &new, &manager("a"), 2), live, "{bad}");
    }
    let mut new = created();
    new["metadata"]["managedFields"] = json!(vec![good; MAX_ENTRIES + 1]);
    assert_eq!(write(Some(&live), &new, &manager("a"), 2), live);
}

#[test]
fn a_stored_entry_that_is_invalid_is_dropped_alone() {
    let mut live = write(None, &created(), &manager("a"), 1);
    live.metadata.managed_fields.push(ManagedFieldsEntry::default());
    live.metadata.managed_fields.push(ManagedFieldsEntry {
        api_version: "g/v0".to_owned(),
        ..entry("old", 1, &json!({"f:spec": {"f:gone": {}}}))
    });
    let mut new = created();
    new["spec"]["displayName"] = json!("B");
    let names = |object: &Object| -> Vec<String> {
        owners(object).into_iter().map(|(name, _, _)| name).collect()
    };
    assert_eq!(names(&write(Some(&live), &new, &manager("b"), 2)), ["a", "b"]);
}

#[test]
fn the_oldest_updates_become_one() {
    let data = |count: usize| -> Value {
        let data: serde_json::Map<_, _> =
            (0..count).map(|i| (format!("k{i:02}"), json!("v"))).collect();
        json!({"spec": {"data": data}})
    };
    let mut object = write(None, &data(1), &manager("m00"), 0);
    for (seconds, i) in (1..).zip(1..13) {
        object = rewrite(&object, &data(i + 1), &manager(&format!("m{i:02}")), seconds);
    }
    let owners = owners(&object);
    assert_eq!(owners.len(), MAX_UPDATE_MANAGERS);
    let ancient = json!({"f:spec": {"f:data": {
        ".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {},
    }}});
    assert_eq!(owners[0], owner(ANCIENT_CHANGES, 3, ancient));
    assert_eq!(owners[1], owner("m04", 4, json!({"f:spec": {"f:data": {"f:k04": {}}}})));
}

#[test]
fn the_entries_are_sorted() {
    let managers = Managers::decode(&[
        entry("b", 2, &json!({"f:x": {}})),
        entry("a", 2, &json!({"f:x": {}})),
        entry("z", 1, &json!({"f:x": {}})),
        ManagedFieldsEntry {
            operation: crate::object::Operation::Apply,
            ..entry("zz", 9, &json!({"f:x": {}}))
        },
        ManagedFieldsEntry { subresource: "status".to_owned(), ..entry("a", 2, &json!({})) },
        ManagedFieldsEntry { time: None, ..entry("none", 0, &json!({})) },
    ])
    .unwrap();
    let order: Vec<_> = managers
        .encode()
        .into_iter()
        .map(|entry| entry.manager + "/" + &entry.subresource)
        .collect();
    assert_eq!(order, ["zz/", "none/", "z/", "a/", "a/status", "b/"]);
}

#[test]
fn secret_fields_are_never_owned() {
    let ignored = FieldSet::of_fields(&[&["spec", "owner"], &["spec", "displayName"]]);
    let kind = TrackedKind { schema: schema(), ignored: &ignored };
    let mut new = object(&json!({"spec": {"owner": {"user": "u"}, "displayName": "d"}}));
    track_update(None, &mut new, &kind, &manager("m"), at(1));
    assert_eq!(owners(&new), [owner("m", 1, json!({}))]);
    let mut new = object(&json!({"spec": {"owner": {"user": "u"}, "replicas": 1}}));
    track_update(None, &mut new, &kind, &manager("m"), at(1));
    assert_eq!(owners(&new), [owner("m", 1, json!({"f:spec": {"f:replicas": {}}}))]);
    // Not even if a client sends an entry for them.
    let mut sent = object(&json!({"spec": {"owner": {"user": "u"}, "replicas": 1}}));
    let fields = json!({"f:spec": {"f:owner": {".": {}, "f:user": {}}, "f:replicas": {}}});
    sent.metadata.managed_fields = vec![entry("m", 1, &fields)];
    track_update(Some(&new), &mut sent, &kind, &manager("other"), at(2));
    assert_eq!(sent, new);
}

#[test]
fn an_annotation_of_the_server_is_never_owned() {
    let ignored = FieldSet::of_fields(&[&["metadata", "annotations", "own"]]);
    let kind = TrackedKind { schema: schema(), ignored: &ignored };
    let with = |annotations: Value| {
        let mut object = object(&json!({"spec": {"replicas": 1}}));
        object.metadata.annotations = serde_json::from_value(annotations).unwrap();
        object
    };
    let mut new = with(json!({"own": "1"}));
    track_update(None, &mut new, &kind, &manager("m"), at(1));
    assert_eq!(owners(&new), [owner("m", 1, json!({"f:spec": {"f:replicas": {}}}))]);
    // The server changes it, or sets it for an object from before.
    for annotations in [json!({"own": "2"}), json!({})] {
        let mut next = with(annotations);
        track_update(Some(&new), &mut next, &kind, &manager("other"), at(2));
        assert_eq!(next.metadata.managed_fields, new.metadata.managed_fields);
    }
    let mut next = with(json!({"own": "1", "other": "1"}));
    track_update(Some(&new), &mut next, &kind, &manager("other"), at(2));
    let theirs = json!({"f:metadata": {"f:annotations": {".": {}, "f:other": {}}}});
    assert!(owners(&next).contains(&owner("other", 2, theirs)));
}
