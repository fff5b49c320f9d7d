//! Bodies written by hand from the public field numbers, hostile ones, and an encoder that undoes
//! the decoder.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Writes a field of bytes: text, a message, an entry of a map.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// Writes a field that is a number or a flag.
fn number(number: u64, value: i64) -> Vec<u8> {
    [varint(number << 3), varint(value.cast_unsigned())].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
    out
}

fn time(seconds: i64, nanos: i64) -> Vec<u8> {
    [number(1, seconds), number(2, nanos)].concat()
}

fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    [field(1, key), field(2, value)].concat()
}

fn body(version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let r#type = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    // Go clients write the encoding and the media type as well, empty.
    [MAGIC.to_vec(), field(1, &r#type), field(2, object), field(3, b""), field(4, b"")].concat()
}

/// The object in a body, without its type.
fn object_of(version: &str, kind: &str, object: &[u8]) -> Value {
    let mut value = decode(&body(version, kind, object)).unwrap();
    let r#type = (value["apiVersion"].take(), value["kind"].take());
    assert_eq!(r#type, (json!(version), json!(kind)));
    value.as_object_mut().unwrap().retain(|name, _| name != "apiVersion" && name != "kind");
    value
}

fn error_of(kind: &str, object: &[u8]) -> String {
    decode(&body("v1", kind, object)).unwrap_err().to_string()
}

#[test]
fn a_namespace_as_kubectl_sends_it() {
    // Go clients send an empty creationTimestamp, and texts and numbers that are not set.
    let metadata = [
        field(1, b"team-a"),
        field(2, b""),
        number(7, 0),
        field(8, b""),
        field(11, &entry(b"app", b"shop")),
        field(14, b"x.io/a"),
        field(15, b""),
    ]
    .concat();
    let object = [field(1, &metadata), field(2, b""), field(3, &field(1, b""))].concat();
    let want = json!({
        "spec": {}, "status": {},
        "metadata": {
            "name": "team-a", "creationTimestamp": null, "labels": { "app": "shop" },
            "finalizers": ["x.io/a"],
        },
    });
    assert_eq!(object_of("v1", "Namespace", &object), want);
    let condition =
        [field(1, b"T"), field(2, b"True"), field(4, &time(0, 0)), field(5, b"R"), field(6, b"M")];
    let object = field(3, &[field(1, b"Active"), field(2, &condition.concat())].concat());
    let condition = json!({
        "type": "T", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z", "reason": "R",
        "message": "M",
    });
    let want = json!({ "status": { "phase": "Active", "conditions": [condition] } });
    assert_eq!(object_of("v1", "Namespace", &object), want);
}

#[test]
fn metadata_whole() {
    let owner = [
        field(1, b"User"),
        field(3, b"u"),
        field(4, b"7"),
        field(5, b"g/v1"),
        number(6, 1),
        number(7, 0),
    ];
    let managed = [
        field(1, b"kubectl"),
        field(2, b"Apply"),
        field(3, b"v1"),
        field(4, &time(1_136_214_245, 0)),
        field(6, b"FieldsV1"),
        field(7, &field(1, br#"{"f:data":{".":{}}}"#)),
        field(8, b"status"),
    ];
    let metadata = [
        field(1, b"a"),
        field(2, b"a-"),
        field(3, b"n"),
        field(4, b"/x"),
        field(5, b"u"),
        field(6, b"7"),
        number(7, 3),
        field(8, &time(1_136_214_245, 999_999_999)),
        field(9, &time(-1, 0)),
        number(10, 0),
        field(11, &entry(b"a", b"b")),
        field(12, &entry(b"c", b"")),
        field(13, &owner.concat()),
        field(14, b"f"),
        field(17, &managed.concat()),
    ];
    let want = json!({
        "name": "a", "generateName": "a-", "namespace": "n", "selfLink": "/x", "uid": "u",
        "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2006-01-02T15:04:05Z",
        "deletionTimestamp": "1969-12-31T23:59:59Z", "deletionGracePeriodSeconds": 0,
        "labels": {"a": "b"}, "annotations": {"c": ""},
        "ownerReferences": [{
            "apiVersion": "g/v1", "kind": "User", "name": "u", "uid": "7", "controller": true,
            "blockOwnerDeletion": false,
        }],
        "finalizers": ["f"],
        "managedFields": [{
            "manager": "kubectl", "operation": "Apply", "apiVersion": "v1",
            "time": "2006-01-02T15:04:05Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}}}, "subresource": "status",
        }],
    });
    let got = object_of("rbac.authorization.k8s.io/v1", "Role", &field(1, &metadata.concat()));
    assert_eq!(got, json!({ "metadata": want }));
}

#[test]
fn delete_options_in_any_version() {
    let preconditions = [field(1, b"u"), field(2, b"7")].concat();
    let object = [
        number(1, 0),
        field(2, &preconditions),
        number(3, 0),
        field(4, b"Background"),
        field(5, b"All"),
        number(6, 1),
    ];
    let want = json!({
        "gracePeriodSeconds": 0, "preconditions": { "uid": "u", "resourceVersion": "7" },
        "orphanDependents": false, "propagationPolicy": "Background", "dryRun": ["All"],
        "ignoreStoreReadErrorWithClusterBreakingPotential": true,
    });
    for version in ["v1", "meta.k8s.io/v1", "coordination.k8s.io/v1", "management.platform.sh/v1"] {
        assert_eq!(object_of(version, "DeleteOptions", &object.concat()), want);
    }
}

#[test]
fn secrets() {
    let object = [
        field(2, &entry(b"a", &[0xff, 0x00])),
        field(2, &field(1, b"empty")),
        field(3, b"Opaque"),
        field(4, &entry(b"b", b"text")),
        number(5, 0),
    ];
    let want = json!({
        "data": { "a": "/wA=", "empty": "" }, "type": "Opaque", "stringData": { "b": "text" },
        "immutable": false,
    });
    assert_eq!(object_of("v1", "Secret", &object.concat()), want);
}

#[test]
fn events() {
    let about: Vec<u8> = (1..=7).flat_map(|n| field(n, format!("o{n}").as_bytes())).collect();
    let series = [number(1, 2), field(2, &time(1, 500_000_999)), field(3, b"")];
    let object = [
        field(2, &about),
        field(3, b"Started"),
        field(4, b"message"),
        field(5, &[field(1, b"kubelet"), field(2, b"node")].concat()),
        field(6, &time(1, 0)),
        field(7, b""),
        number(8, 5),
        field(9, b"Normal"),
        field(10, &time(-1, 1000)),
        field(11, &series.concat()),
        field(12, b"Start"),
        field(13, &field(3, b"other")),
        field(14, b"x.io/c"),
        field(15, b""),
    ];
    let want = json!({
        "involvedObject": {
            "kind": "o1", "namespace": "o2", "name": "o3", "uid": "o4", "apiVersion": "o5",
            "resourceVersion": "o6", "fieldPath": "o7",
        },
        "reason": "Started", "message": "message",
        "source": { "component": "kubelet", "host": "node" },
        "firstTimestamp": "1970-01-01T00:00:01Z", "lastTimestamp": null, "count": 5,
        "type": "Normal", "eventTime": "1969-12-31T23:59:59.000001Z",
        "series": { "count": 2, "lastObservedTime": "1970-01-01T00:00:01.500000Z" },
        "action": "Start", "related": { "name": "other" },
        "reportingComponent": "x.io/c", "reportingInstance": "",
    });
    assert_eq!(object_of("v1", "Event", &object.concat()), want);
}

#[test]
fn leases() {
    let spec = [
        field(1, b""),
        number(2, 15),
        field(3, &time(0, 1000)),
        field(4, b""),
        number(5, 0),
        field(6, b"OldestEmulationVersion"),
        field(7, b"p"),
    ];
    let want = json!({
        "holderIdentity": "", "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-01T00:00:00.000001Z", "renewTime": null, "leaseTransitions": 0,
        "strategy": "OldestEmulationVersion", "preferredHolder": "p",
    });
    let got = object_of("coordination.k8s.io/v1", "Lease", &field(2, &spec.concat()));
    assert_eq!(got, json!({ "spec": want }));
}

/// Attributes of a resource in all their fields, and the same as JSON.
fn resource_attributes() -> (Vec<u8>, Value) {
    let requirement = [field(1, b"k"), field(2, b"In"), field(3, b"v"), field(3, b"w")].concat();
    let selector = [field(1, b""), field(2, &requirement)].concat();
    let texts: Vec<u8> = (1..=7).flat_map(|n| field(n, format!("r{n}").as_bytes())).collect();
    let bytes = [texts, field(8, &field(1, b"metadata.name=a")), field(9, &selector)].concat();
    let requirement = json!({ "key": "k", "operator": "In", "values": ["v", "w"] });
    let value = json!({
        "namespace": "r1", "verb": "r2", "group": "r3", "version": "r4", "resource": "r5",
        "subresource": "r6", "name": "r7", "fieldSelector": { "rawSelector": "metadata.name=a" },
        "labelSelector": { "requirements": [requirement] },
    });
    (bytes, value)
}

#[test]
fn access_reviews() {
    const VERSION: &str = "authorization.k8s.io/v1";
    let (attributes, of_resource) = resource_attributes();
    let path = [field(1, b"/healthz"), field(2, b"get")].concat();
    let of_path = json!({ "path": "/healthz", "verb": "get" });
    let own = [field(1, &attributes), field(2, &path)].concat();
    let status = [number(1, 0), field(2, b"why"), field(3, b"e"), number(4, 1)].concat();
    let object = [field(1, b""), field(2, &own), field(3, &status)].concat();
    let want = json!({
        "metadata": {},
        "spec": { "resourceAttributes": of_resource, "nonResourceAttributes": of_path },
        "status": { "allowed": false, "reason": "why", "evaluationError": "e", "denied": true },
    });
    assert_eq!(object_of(VERSION, "SelfSubjectAccessReview", &object), want);
    let items = [field(1, b"ci"), field(1, b"cd")].concat();
    let subject = [
        field(3, b"jane"),
        field(4, b"devs"),
        field(5, &entry(b"platform.sh/access-key", &items)),
        field(5, &entry(b"none", b"")),
        field(6, b"u"),
    ];
    let object = field(2, &[own, subject.concat()].concat());
    let want = json!({ "spec": {
        "resourceAttributes": of_resource, "nonResourceAttributes": of_path, "user": "jane",
        "groups": ["devs"], "extra": { "platform.sh/access-key": ["ci", "cd"], "none": [] },
        "uid": "u",
    } });
    for kind in ["SubjectAccessReview", "LocalSubjectAccessReview"] {
        assert_eq!(object_of(VERSION, kind, &object), want);
    }
    let rule: Vec<u8> = (1..=4).flat_map(|n| field(n, format!("r{n}").as_bytes())).collect();
    let of_path = [field(1, b"get"), field(2, b"/x")].concat();
    let status = [field(1, &rule), field(2, &of_path), number(3, 1), field(4, b"e")].concat();
    let object = [field(2, &field(1, b"team-a")), field(3, &status)].concat();
    let rule = json!({
        "verbs": ["r1"], "apiGroups": ["r2"], "resources": ["r3"], "resourceNames": ["r4"],
    });
    let want = json!({
        "spec": { "namespace": "team-a" },
        "status": {
            "resourceRules": [rule], "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/x"] }],
            "incomplete": true, "evaluationError": "e",
        },
    });
    assert_eq!(object_of(VERSION, "SelfSubjectRulesReview", &object), want);
}

#[test]
fn authentication_reviews() {
    let extra = entry(b"k", &field(1, b"v"));
    let user = [field(1, b"jane"), field(2, b"u"), field(3, b"devs"), field(4, &extra)].concat();
    let info =
        json!({ "username": "jane", "uid": "u", "groups": ["devs"], "extra": { "k": ["v"] } });
    let status = [number(1, 1), field(2, &user), field(3, b"e"), field(4, b"api")].concat();
    let spec = [field(1, b"token"), field(2, b"api")].concat();
    let review = [field(2, &spec), field(3, &status)].concat();
    let want = json!({
        "spec": { "token": "token", "audiences": ["api"] },
        "status": { "authenticated": true, "user": info, "error": "e", "audiences": ["api"] },
    });
    for version in ["authentication.k8s.io/v1", "authentication.k8s.io/v1beta1"] {
        assert_eq!(object_of(version, "TokenReview", &review), want);
        let own = object_of(version, "SelfSubjectReview", &field(2, &field(1, &user)));
        assert_eq!(own, json!({ "status": { "userInfo": info } }));
    }
}

#[test]
fn roles_and_bindings() {
    const VERSION: &str = "rbac.authorization.k8s.io/v1";
    let rule: Vec<u8> = (1..=5).flat_map(|n| field(n, format!("r{n}").as_bytes())).collect();
    let rules = json!([{
        "verbs": ["r1"], "apiGroups": ["r2"], "resources": ["r3"], "resourceNames": ["r4"],
        "nonResourceURLs": ["r5"],
    }]);
    assert_eq!(object_of(VERSION, "Role", &field(2, &rule)), json!({ "rules": rules }));
    let requirement = [field(1, b"k"), field(2, b"Exists")].concat();
    let selector = [field(1, &entry(b"a", b"b")), field(2, &requirement)].concat();
    let object = [field(2, &rule), field(3, &field(1, &selector))].concat();
    let selector = json!({
        "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "k", "operator": "Exists" }],
    });
    let want = json!({ "rules": rules, "aggregationRule": { "clusterRoleSelectors": [selector] } });
    assert_eq!(object_of(VERSION, "ClusterRole", &object), want);
    let subject = [field(1, b"Group"), field(2, b"g"), field(3, b"devs"), field(4, b"")].concat();
    let reference = [field(1, b"g"), field(2, b"Role"), field(3, b"r")].concat();
    let object = [field(2, &subject), field(2, &field(4, b"n")), field(3, &reference)].concat();
    let want = json!({
        "subjects": [{ "kind": "Group", "apiGroup": "g", "name": "devs" }, { "namespace": "n" }],
        "roleRef": { "apiGroup": "g", "kind": "Role", "name": "r" },
    });
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        assert_eq!(object_of(VERSION, kind, &object), want);
    }
}

#[test]
fn only_known_kinds_of_known_versions() {
    for (version, kind, read) in [
        (GroupVersion::new("", "v1"), "Secret", true),
        (GroupVersion::new("", "v1"), "Pod", false),
        (GroupVersion::new("", "v2"), "Secret", false),
        (GroupVersion::new("management.platform.sh", "v1"), "Secret", false),
        (GroupVersion::new("management.platform.sh", "v1"), "SharedSecret", false),
        (GroupVersion::new("authorization.k8s.io", "v1beta1"), "SubjectAccessReview", false),
    ] {
        assert_eq!(reads_protobuf(version, kind), read, "{version} {kind}");
        let got = decode(&body(&version.to_string(), kind, b""));
        assert_eq!(got.is_ok(), read, "{version} {kind}");
    }
    assert!(error_of("Pod", b"").ends_with("this kind cannot be sent as protobuf: send JSON"));
}

#[test]
fn unknown_fields_are_there_for_those_who_refuse_them() {
    let spec = [field(1, b"a"), number(99, 7), vec![98 << 3 & 0x7f | 0x80 | 5, 6, 1, 2, 3, 4]];
    let object = [field(2, &spec.concat()), field(77, b"hunter2"), field(77, b"x")].concat();
    let got = object_of("authorization.k8s.io/v1", "SelfSubjectRulesReview", &object);
    assert_eq!(got, json!({ "#77": null, "spec": { "namespace": "a", "#99": null, "#98": null } }));
    // Numbers that clients of another time write are not unknown while they are empty.
    let series = field(11, &field(3, b"Ongoing"));
    assert_eq!(object_of("v1", "Event", &series), json!({ "series": { "state": "Ongoing" } }));
}

#[test]
fn what_occurs_twice_is_refused() {
    let twice = |part: Vec<u8>| [part.clone(), part].concat();
    for (kind, object) in [
        ("Namespace", twice(field(1, b""))),
        ("Namespace", field(1, &[field(1, b""), field(1, b"a")].concat())),
        ("Secret", twice(field(2, &entry(b"a", b"b")))),
        ("Secret", field(2, &twice(field(1, b"a")))),
        ("Secret", field(2, &twice(field(2, b"a")))),
        ("Secret", field(1, &field(8, &twice(number(1, 1))))),
        ("Secret", field(1, &field(17, &field(7, &twice(field(1, b"{}")))))),
        ("Secret", field(1, &field(17, &field(7, &field(1, br#"{"a":1,"a":2}"#))))),
    ] {
        assert!(error_of(kind, &object).ends_with("a field occurs twice"), "{kind} {object:?}");
    }
    let r#type = field(1, &[field(1, b"v1"), field(2, b"Secret")].concat());
    for bad in [[twice(r#type.clone()), field(2, b"")], [r#type, twice(field(2, b""))]] {
        assert!(decode(&[MAGIC, &bad.concat()].concat()).is_err());
    }
}

#[test]
fn malformed_bodies() {
    let long = [&[0x08][..], &[0xff; 9], &[0x02]].concat();
    for (object, why) in [
        (vec![0x08, 1], "wrong type"),
        (field(1, &number(1, 1)), "wrong type"),
        (field(1, &field(7, b"a")), "wrong type"),
        (number(2, 1), "wrong type"),
        (field(2, &[entry(b"a", b"b"), field(3, b"")].concat()), "wrong type"),
        (field(1, &field(1, &[0xff])), "UTF-8"),
        (field(2, &entry(&[0xff], b"")), "UTF-8"),
        (long, "too long"),
        (vec![0x0a, 5, 1], "too early"),
        (vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], "too early"),
        (vec![0x80], "too early"),
        (vec![0x0b], "wire type"),
        (vec![0x02, 0], "number is out of range"),
        ([varint(1 << 32 | 2), vec![0]].concat(), "number is out of range"),
        (field(1, &field(8, &time(i64::MAX, 0))), "time is out of range"),
        (field(1, &field(8, &time(0, -1))), "time is out of range"),
        (field(1, &field(8, &time(0, 1_000_000_000))), "time is out of range"),
        (field(1, &field(8, &time(0, i64::MAX))), "number is out of range"),
        (field(1, &field(17, &field(7, &field(1, b"{hunter2")))), "managed fields"),
    ] {
        let error = error_of("Secret", &object);
        assert!(error.contains(why) && !error.contains("hunter2"), "{object:?}: {error}");
    }
    let whole = body("v1", "Namespace", &field(1, &field(1, b"hunter2")));
    for cut in 0..whole.len() {
        if let Err(error) = decode(&whole[..cut]) {
            assert!(!error.to_string().contains("hunter2"));
        }
    }
    for bad in [b"", &b"{}"[..], b"k8s", b"k8s\0"] {
        assert!(decode(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn an_envelope_of_another_type_is_refused() {
    let r#type = field(1, &[field(1, b"v1"), field(2, b"Secret")].concat());
    let with = |more: Vec<u8>| decode(&[MAGIC, &r#type, &more].concat());
    assert!(with(field(4, MEDIA_TYPE.as_bytes())).is_ok());
    assert!(with(field(9, b"later")).is_ok());
    for bad in [field(3, b"gzip"), field(4, b"application/json"), number(2, 1)] {
        assert!(with(bad).is_err());
    }
}

#[test]
fn values_are_limited_as_in_json() {
    let many = |n: usize| field(1, &field(14, b"").repeat(n));
    assert!(decode(&body("v1", "Secret", &many(MAX_JSON_NODES - 10))).is_ok());
    assert!(error_of("Secret", &many(MAX_JSON_NODES)).contains("too many values"));
    // Lists in lists count, as they do in JSON.
    let rules = |n: usize| field(2, &field(1, b"")).repeat(n);
    let role = |n| decode(&body("rbac.authorization.k8s.io/v1", "Role", &rules(n)));
    let most = role(MAX_JSON_NODES / 3 - 10).unwrap();
    assert!(crate::decode(most.to_string().as_bytes(), crate::Format::Json).is_ok());
    assert!(role(MAX_JSON_NODES / 3 + 1).is_err());
    let unknown: Vec<u8> = (100..100 + MAX_JSON_NODES as u64).flat_map(|n| number(n, 1)).collect();
    assert!(error_of("Secret", &unknown).contains("too many values"));
    // The JSON of all managed fields together may have only as many values as one body.
    let managed = |n: usize| {
        let list = format!("[{}1]", "1,".repeat(n / 4 - 1));
        field(1, &field(17, &field(7, &field(1, list.as_bytes()))).repeat(4))
    };
    assert!(decode(&body("v1", "Secret", &managed(MAX_JSON_NODES - 40))).is_ok());
    assert!(error_of("Secret", &managed(MAX_JSON_NODES)).contains("too many values"));
    let nested = |depth: usize| {
        let json = "[".repeat(depth) + &"]".repeat(depth);
        field(1, &field(17, &field(7, &field(1, json.as_bytes()))))
    };
    // Around them are the object, its metadata, the list and the entry.
    let whole = decode(&body("v1", "Secret", &nested(MAX_DEPTH - 4))).unwrap();
    assert!(crate::decode(whole.to_string().as_bytes(), crate::Format::Json).is_ok());
    assert!(error_of("Secret", &nested(MAX_DEPTH - 3)).contains("nested too deeply"));
}

/// Encodes the decoder's result for a message: fields in the order of the table.
fn encode(table: &[Field], object: &Value) -> Vec<u8> {
    table
        .iter()
        .filter_map(|(number, name, of)| Some(encode_field(*number, of, object.get(name)?)))
        .flatten()
        .collect()
}

fn encode_field(at: u64, of: &Type, value: &Value) -> Vec<u8> {
    match (of, value) {
        (Type::List(of), Value::Array(items)) => {
            items.iter().flat_map(|item| encode_field(at, of, item)).collect()
        }
        (Type::Map(of), Value::Object(entries)) => entries
            .iter()
            .flat_map(|(key, item)| {
                field(at, &[field(1, key.as_bytes()), encode_field(2, of, item)].concat())
            })
            .collect(),
        (Type::Explicit(of), value) => encode_field(at, of, value),
        (Type::Message(table), value) => field(at, &encode(table, value)),
        (Type::Texts, value) => field(at, &encode_field(1, &Type::List(&Type::Text), value)),
        (Type::Json, value) => field(at, &field(1, value.to_string().as_bytes())),
        (_, Value::Null) => field(at, b""),
        (Type::Bytes, Value::String(text)) => field(at, &BASE64.decode(text).unwrap()),
        (Type::Time, Value::String(text)) => {
            field(at, &time(text.parse::<Timestamp>().unwrap().unix_seconds(), 0))
        }
        (Type::MicroTime, Value::String(text)) => {
            let micros = text.parse::<MicroTimestamp>().unwrap().unix_microseconds();
            let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
            field(at, &time(seconds, micros * 1000))
        }
        (_, Value::String(text)) => field(at, text.as_bytes()),
        (_, Value::Bool(flag)) => number(at, i64::from(*flag)),
        (_, value) => number(at, value.as_i64().unwrap()),
    }
}

fn values(of: &'static Type) -> BoxedStrategy<Value> {
    const YEARS: i64 = 200_000_000_000;
    match of {
        Type::Text => ".{1,6}".prop_map(Value::from).boxed(),
        Type::Integer => (1..=i64::MAX).prop_map(Value::from).boxed(),
        Type::Integer32 => (i32::MIN..0).prop_map(Value::from).boxed(),
        Type::Bool => Just(Value::Bool(true)).boxed(),
        Type::Bytes => proptest::collection::vec(any::<u8>(), 0..9)
            .prop_map(|bytes| Value::from(BASE64.encode(bytes)))
            .boxed(),
        Type::Time => proptest::option::of(-50_000_000_000..YEARS)
            .prop_map(|at| at.map(|at| Timestamp::from_unix_seconds(at).to_string()).into())
            .boxed(),
        Type::MicroTime => proptest::option::of(-50_000_000_000_000_000..YEARS * 1_000_000)
            .prop_map(|at| {
                at.map(|at| MicroTimestamp::from_unix_microseconds(at).to_string()).into()
            })
            .boxed(),
        Type::Json => {
            prop_oneof![Just(json!({ "f:spec": { "f:a": {} } })), Just(json!([1, "x"]))].boxed()
        }
        Type::Texts => {
            proptest::collection::vec(values(&Type::Text), 0..3).prop_map(Value::from).boxed()
        }
        Type::Message(table) => objects(table),
        Type::List(of) => proptest::collection::vec(values(of), 1..3).prop_map(Value::from).boxed(),
        Type::Map(of) => proptest::collection::btree_map(".{0,4}", values(of), 1..3)
            .prop_map(|map: BTreeMap<String, Value>| map.into_iter().collect())
            .boxed(),
        Type::Explicit(Type::Text) => ".{0,2}".prop_map(Value::from).boxed(),
        Type::Explicit(Type::Bool) => any::<bool>().prop_map(Value::from).boxed(),
        Type::Explicit(_) => (-1..2).prop_map(Value::from).boxed(),
    }
}

fn objects(table: &'static [Field]) -> BoxedStrategy<Value> {
    let fields: Vec<_> = table
        .iter()
        .map(|(_, name, of)| {
            proptest::option::of(values(of)).prop_map(|value| Some((*name, value?)))
        })
        .collect();
    fields
        .prop_map(|fields| {
            fields.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)).collect()
        })
        .boxed()
}

/// Any kind, by its place in the table, and an object of it.
fn typed_objects() -> impl Strategy<Value = (usize, Value)> {
    (0..OBJECTS.len()).prop_flat_map(|at| (Just(at), objects(OBJECTS[at].2)))
}

fn encoded(at: usize, object: &Value) -> Vec<u8> {
    let (version, kind, table) = OBJECTS[at];
    body(&version.to_string(), kind, &encode(table, object))
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_to_the_same((at, object) in typed_objects()) {
        let bytes = encoded(at, &object);
        let decoded = decode(&bytes).unwrap();
        let mut want = object;
        want["apiVersion"] = json!(OBJECTS[at].0.to_string());
        want["kind"] = json!(OBJECTS[at].1);
        prop_assert_eq!(&decoded, &want);
        prop_assert_eq!(encoded(at, &decoded), bytes);
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..OBJECTS.len()) {
        let _ = decode(&[MAGIC, &bytes].concat());
        let (version, kind, _) = OBJECTS[at];
        let _ = decode(&body(&version.to_string(), kind, &bytes));
    }

    #[test]
    fn a_damaged_body_never_panics((at, object) in typed_objects(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encoded(at, &object);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let _ = decode(&bytes);
        let _ = decode(&bytes[..place]);
    }
}
