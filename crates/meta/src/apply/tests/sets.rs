//! FieldsV1, the sets of objects, and comparisons, as tables.

use super::*;

/// The FieldsV1 of a stored Deployment.
fn deployment_fields() -> Value {
    json!({
        "f:metadata": {
            "f:annotations": {".": {}, "f:deployment.kubernetes.io/revision": {}},
            "f:finalizers": {".": {}, "v:\"example.com/guard\"": {}},
            "f:labels": {".": {}, "f:app": {}, "f:app.kubernetes.io/name": {}},
            "f:ownerReferences": {".": {}, "k:{\"uid\":\"4d3f6b5e-0000\"}": {}},
        },
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
            "f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"web\"}": {
                    ".": {}, "f:image": {}, "f:name": {},
                    "f:ports": {
                        ".": {},
                        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                            ".": {}, "f:containerPort": {}, "f:protocol": {},
                        },
                    },
                },
            }}},
        },
    })
}

#[test]
fn the_fields_of_a_deployment_are_decoded_and_encoded_as_they_were() {
    let value = deployment_fields();
    assert_eq!(set(&value).to_fields_v1(), value);
    assert_eq!(set(&value).len(), 21);
    let text = serde_json::to_string(&set(&value)).unwrap();
    assert_eq!(decode(text.as_bytes(), Format::Json).unwrap().value, value);
}

#[test]
fn elements_are_written_in_upstreams_order() {
    let value = json!({"f:l": {
        "v:\"b\"": {}, "v:10": {}, "v:9": {}, "v:true": {}, "v:null": {}, "i:2": {},
        "i:10": {}, "k:{\"b\":1,\"a\":\"x\"}": {".": {}, "f:z": {}, "f:A": {}}, "f:x": {}, ".": {},
    }});
    assert_eq!(
        serde_json::to_string(&set(&value)).unwrap(),
        concat!(
            r#"{"f:l":{".":{},"f:x":{},"k:{\"a\":\"x\",\"b\":1}":{".":{},"f:A":{},"f:z":{}},"#,
            r#""v:9":{},"v:10":{},"v:\"b\"":{},"v:true":{},"v:null":{},"i:2":{},"i:10":{}}}"#
        )
    );
}

#[test]
fn paths_read_as_in_conflicts() {
    assert_eq!(
        set(&json!({
            "f:spec": {"f:a b": {}, "f:list": {
                "k:{\"uid\":\"x\"}": {"f:n": {}}, "v:\"q\\\"\"": {}, "i:3": {},
            }},
            "f:metadata": {".": {}},
        }))
        .paths(),
        [
            ".metadata",
            ".spec.a b",
            ".spec.list[uid=\"x\"].n",
            ".spec.list[=\"q\\\"\"]",
            ".spec.list[3]"
        ]
    );
}

#[test]
fn equal_elements_in_different_text_are_one() {
    let one = set(&json!({"f:l": {"v:1": {}, "k:{\"a\":1,\"b\":2}": {}}}));
    assert_eq!(one, set(&json!({"f:l": {"v:1.0": {}, "k:{ \"b\" : 2e0, \"a\":1 }": {}}})));
    assert_eq!(set(&json!({})), FieldSet::new());
    assert_eq!(set(&json!({".": {}, "f:a": {".": {}}})), set(&json!({"f:a": {}})));
}

#[test]
fn what_a_later_version_may_add_is_skipped() {
    let value = json!({"f:a": {"x:new": {"f:b": {}}}, "y:": {}});
    assert_eq!(set(&value), set(&json!({"f:a": {}})));
}

#[test]
fn errors_of_invalid_sets_do_not_repeat_them() {
    let long = "f:".to_owned() + &"s3cr3t".repeat(1000);
    let mut deep = json!({});
    for _ in 0..MAX_SET_DEPTH {
        deep = json!({"f:s3cr3t": deep});
    }
    for bad in [
        json!(null),
        json!([]),
        json!("s3cr3t"),
        json!({"s3cr3t": {}}),
        json!({"": {}}),
        json!({":": {}}),
        json!({"ff:s3cr3t": {}}),
        json!({"f:s3cr3t": null}),
        json!({"f:s3cr3t": {"f:x": true}}),
        json!({"k:s3cr3t": {}}),
        json!({"k:[]": {}}),
        json!({"k:{}": {}}),
        json!({"k:{\"a\":1,\"a\":2}": {}}),
        json!({"k:{\"s3cr3t\":[]}": {}}),
        json!({"v:": {}}),
        json!({"v:s3cr3t": {}}),
        json!({"v:{\"s3cr3t\":1}": {}}),
        json!({"v:1 2": {}}),
        json!({"i:s3cr3t": {}}),
        json!({"i:99999999999999999999": {}}),
        json!({ long: {} }),
        deep,
    ] {
        let error = FieldSet::from_fields_v1(&bad).unwrap_err().to_string();
        assert!(!error.contains("s3cr3t"), "{error}");
    }
}

#[test]
fn the_size_of_a_set_is_limited() {
    let many: serde_json::Map<String, Value> =
        (0..=MAX_ELEMENTS).map(|i| (format!("f:{i}"), json!({}))).collect();
    assert!(FieldSet::from_fields_v1(&Value::Object(many)).is_err());
}

#[test]
fn differences_do_not_reach_below_unless_asked() {
    let all = set(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}));
    let mut left = all.clone();
    assert!(left.subtract(&set(&json!({"f:a": {}, "f:x": {}}))));
    assert_eq!(left, set(&json!({"f:a": {"f:b": {}}, "f:c": {"f:d": {}}})));
    assert!(!left.subtract(&set(&json!({"f:a": {}, "f:c": {}}))), "neither was there");
    left.subtract_below(&set(&json!({"f:a": {}, "f:c": {"f:x": {}}})));
    assert_eq!(left, set(&json!({"f:c": {"f:d": {}}})));
    assert_eq!(all.intersection(&set(&json!({"f:a": {"f:b": {}}, "f:c": {}}))), {
        set(&json!({"f:a": {"f:b": {}}}))
    });
    let path = [PathElement::field("a"), PathElement::field("b")];
    assert!(all.contains(&path) && all.contains(&path[..1]) && !all.contains(&[]));
    assert!(!all.contains(&[PathElement::field("c")]));
    assert_eq!(FieldSet::of_fields(&[&["a"], &["c", "d"], &["a", "b"], &[]]), all);
}

/// The fields that a manager owns if it applies these.
#[test]
fn sets_of_objects() {
    for (value, want) in [
        (json!({}), json!({})),
        (json!({"kind": "K"}), json!({"f:kind": {}})),
        (json!({"spec": {}}), json!({"f:spec": {}})),
        (json!({"spec": null}), json!({"f:spec": {}})),
        (json!({"spec": {"displayName": ""}}), json!({"f:spec": {"f:displayName": {}}})),
        (json!({"spec": {"owner": {"user": "a"}}}), json!({"f:spec": {"f:owner": {"f:user": {}}}})),
        (json!({"spec": {"owner": {}}}), json!({"f:spec": {"f:owner": {}}})),
        (
            json!({"spec": {"data": {"a": "1", "b.c": "2"}}}),
            json!({"f:spec": {"f:data": {"f:a": {}, "f:b.c": {}}}}),
        ),
        // Entries of maps are owned themselves, too; fields of structs are not.
        (
            json!({"spec": {"quotas": {"project": {"pods": "1"}, "user": {}}}}),
            json!({"f:spec": {"f:quotas": {
                "f:project": {".": {}, "f:pods": {}}, "f:user": {},
            }}}),
        ),
        (json!({"spec": {"selector": {"a": "b"}}}), json!({"f:spec": {"f:selector": {}}})),
        (json!({"spec": {"access": [{"user": "a"}]}}), json!({"f:spec": {"f:access": {}}})),
        (json!({"spec": {"tags": []}}), json!({"f:spec": {"f:tags": {}}})),
        (
            json!({"spec": {"tags": ["b", "a", "b"], "numbers": [2]}}),
            json!({"f:spec": {
                "f:tags": {"v:\"a\"": {}, "v:\"b\"": {}}, "f:numbers": {"v:2": {}},
            }}),
        ),
        (
            json!({"spec": {"containers": [
                {"name": "a", "image": "i", "args": ["x"], "ports": [{"containerPort": 80}]},
                {"name": "b"},
            ]}}),
            json!({"f:spec": {"f:containers": {
                "k:{\"name\":\"a\"}": {
                    ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                },
                "k:{\"name\":\"b\"}": {".": {}, "f:name": {}},
            }}}),
        ),
        // Two items of one name are owned as one; an item without a name has no owner.
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}, {"image": "i"}]}}),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {}}}}),
        ),
        (
            json!({"spec": {"free": {"a": {"b": 1}}, "freeMap": {"a": [1]}, "unknown": {"a": 1}}}),
            json!({"f:spec": {"f:free": {}, "f:freeMap": {}, "f:unknown": {}}}),
        ),
        (
            json!({"metadata": {
                "name": "n", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "finalizers": ["x.io/y"], "ownerReferences": [{"uid": "u", "name": "o"}],
            }}),
            json!({"f:metadata": {
                "f:name": {}, "f:labels": {"f:a": {}}, "f:annotations": {"f:c": {}},
                "f:finalizers": {"v:\"x.io/y\"": {}},
                "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}},
            }}),
        ),
    ] {
        assert_eq!(set_of(&value, schema()).to_fields_v1(), want, "{value}");
    }
}

/// Compares two specs and checks the added, modified and removed fields.
fn check(cases: &[[Value; 5]]) {
    for [old, new, added, modified, removed] in cases {
        let changes = compare(&json!({ "spec": old }), &json!({ "spec": new }), schema());
        for (set, want) in
            [(&changes.added, added), (&changes.modified, modified), (&changes.removed, removed)]
        {
            let fields = set.to_fields_v1().get("f:spec").cloned();
            assert_eq!(fields.unwrap_or_else(|| json!({})), *want, "{new}");
        }
    }
}

#[test]
fn comparisons_of_structs_and_maps() {
    check(&[
        [json!({"replicas": 1}), json!({"replicas": 1}), json!({}), json!({}), json!({})],
        [
            json!({"replicas": 1}),
            json!({"replicas": 2}),
            json!({}),
            json!({"f:replicas": {}}),
            json!({}),
        ],
        [
            json!({}),
            json!({"owner": {"user": "a"}}),
            json!({"f:owner": {".": {}, "f:user": {}}}),
            json!({}),
            json!({}),
        ],
        [
            json!({"owner": {"user": "a"}}),
            json!({"owner": {"team": "a"}}),
            json!({"f:owner": {"f:team": {}}}),
            json!({}),
            json!({"f:owner": {"f:user": {}}}),
        ],
        [
            json!({"owner": {"user": "a"}, "data": {"a": "1"}}),
            json!({"owner": {}, "data": {"a": "2", "b": "3"}}),
            json!({"f:data": {"f:b": {}}}),
            json!({"f:data": {"f:a": {}}}),
            json!({"f:owner": {"f:user": {}}}),
        ],
        [json!({"owner": {}}), json!({}), json!({}), json!({}), json!({"f:owner": {}})],
        [
            json!({"owner": null}),
            json!({"owner": {}}),
            json!({}),
            json!({"f:owner": {}}),
            json!({}),
        ],
    ]);
}

#[test]
fn comparisons_of_lists_and_wholes() {
    check(&[
        [
            json!({"selector": {"a": "1"}, "access": [{}]}),
            json!({"selector": {"b": "1"}, "access": [{"user": "a"}]}),
            json!({}),
            json!({"f:selector": {}, "f:access": {}}),
            json!({}),
        ],
        [
            json!({"tags": ["a", "b"], "containers": [{"name": "x", "image": "1"}, {"name": "y"}]}),
            json!({"tags": ["c", "a"], "containers": [{"name": "z"}, {"name": "x", "image": "2"}]}),
            json!({
                "f:tags": {"v:\"c\"": {}},
                "f:containers": {"k:{\"name\":\"z\"}": {".": {}, "f:name": {}}},
            }),
            json!({"f:containers": {"k:{\"name\":\"x\"}": {"f:image": {}}}}),
            json!({
                "f:tags": {"v:\"b\"": {}},
                "f:containers": {"k:{\"name\":\"y\"}": {".": {}, "f:name": {}}},
            }),
        ],
        // The order of items is no change.
        [json!({"tags": ["a", "b"]}), json!({"tags": ["b", "a"]}), json!({}), json!({}), json!({})],
        // One item becomes two of the same name.
        [
            json!({"containers": [{"name": "x"}]}),
            json!({"containers": [{"name": "x"}, {"name": "x"}]}),
            json!({"f:containers": {"k:{\"name\":\"x\"}": {}}}),
            json!({}),
            json!({"f:containers": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}}),
        ],
        [
            json!({"free": {"a": 1}}),
            json!({"free": [1]}),
            json!({}),
            json!({"f:free": {}}),
            json!({}),
        ],
        // A value that does not fit the schema is compared as a whole.
        [json!({"data": "x"}), json!({"data": {}}), json!({}), json!({"f:data": {}}), json!({})],
    ]);
}

#[test]
fn changes_can_be_ignored() {
    let mut changes = compare(
        &json!({"spec": {"displayName": "a", "owner": {"user": "x"}}}),
        &json!({"spec": {"displayName": "b", "data": {"k": "v"}}}),
        schema(),
    );
    changes.ignore(&FieldSet::of_fields(&[&["spec", "data"], &["spec", "owner"]]));
    assert_eq!(changes.modified, FieldSet::of_fields(&[&["spec", "displayName"]]));
    assert!(changes.added.is_empty() && changes.removed.is_empty() && !changes.is_empty());
}
