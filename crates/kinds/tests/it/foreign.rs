//! Kinds of other groups that clients need, and reviews: validated in upstream's words.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Known, ada, check_text, context, whole};
use postern_kinds::custom_resource_definition::CustomResourceDefinition;
use postern_kinds::event::Event;
use postern_kinds::lease::Lease;
use postern_kinds::reviews::local_subject_access_review::LocalSubjectAccessReview;
use postern_kinds::reviews::resource_access_review::ResourceAccessReview;
use postern_kinds::reviews::self_subject_access_review::SelfSubjectAccessReview;
use postern_kinds::reviews::self_subject_review::SelfSubjectReview;
use postern_kinds::reviews::self_subject_rules_review::SelfSubjectRulesReview;
use postern_kinds::reviews::subject_access_review::SubjectAccessReview;
use postern_kinds::reviews::token_review::TokenReview;
use postern_kinds::secret::Secret;
use postern_kinds::{AnyKind, Verb};
use postern_meta::object::Object;
use serde_json::{Value, json};

fn object(kind: &dyn AnyKind, fields: &Value) -> Object {
    let info = kind.info();
    // A review has no name.
    let metadata = match (info.is_stored(), info.is_namespaced()) {
        (true, _) => json!({ "name": "a", "namespace": "ns" }),
        (false, true) => json!({ "namespace": "ns" }),
        (false, false) => json!({}),
    };
    whole(kind, &metadata, fields)
}

/// The object as it is stored or returned, and its invalid fields.
fn prepare(kind: &dyn AnyKind, old: Option<&Value>, new: &Value) -> (Object, String) {
    let (caller, principals) = (ada(), Known::all());
    let old = old.map(|fields| object(kind, fields));
    let mut new = object(kind, new);
    let prepared = kind.prepare(&mut new, old.as_ref(), &context(&caller, &principals)).unwrap();
    let errors = match prepared.verdict {
        Ok(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        Err(error) => format!("{}: {}", error.code(), error.status().message),
    };
    (new, errors)
}

fn check(kind: &dyn AnyKind, rows: &[(Value, &str)]) {
    for (fields, error) in rows {
        check_text(&prepare(kind, None, fields).1, error, fields);
    }
}

#[test]
fn secrets_have_the_keys_that_their_type_says() {
    let of =
        |kind: &str, data: Value| json!({ "type": format!("kubernetes.io/{kind}"), "data": data });
    check(
        &Secret,
        &[
            (json!({}), ""),
            (json!({ "type": "example.com/own", "data": { "k": "aGk=" } }), ""),
            (
                json!({ "data": { "a b": "" } }),
                "data[a b]: Invalid value: \"a b\": a valid config key",
            ),
            (
                json!({ "data": { "k": "canary!" } }),
                "400: Secret in version \"v1\" cannot be handled as a Secret: data[k]: illegal base64 data at input byte 6",
            ),
            (
                of("service-account-token", json!({})),
                "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            ),
            (of("dockercfg", json!({})), "data[.dockercfg]: Required value"),
            (of("dockercfg", json!({ ".dockercfg": "e30=" })), ""),
            (
                of("dockerconfigjson", json!({ ".dockerconfigjson": "aGk=" })),
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\"",
            ),
            (
                of("basic-auth", json!({})),
                "data[username]: Required value, data[password]: Required value",
            ),
            (of("basic-auth", json!({ "password": "" })), ""),
            (
                of("ssh-auth", json!({ "ssh-privatekey": "" })),
                "data[ssh-privatekey]: Required value",
            ),
            (of("ssh-auth", json!({ "ssh-privatekey": "aGk=" })), ""),
            (of("tls", json!({ "tls.crt": "" })), "data[tls.key]: Required value"),
            (of("tls", json!({ "tls.crt": "", "tls.key": "" })), ""),
        ],
    );
    assert!(Secret.info().confidential);
}

#[test]
fn text_data_is_merged_into_data_and_never_returned() {
    let sent = json!({ "data": { "a": "YQ==", "b": "Yg\n==\r\n" }, "stringData": { "a": "new", "c": "é" } });
    let (stored, errors) = prepare(&Secret, None, &sent);
    assert_eq!(errors, "");
    let expected = json!({ "data": { "a": "bmV3", "b": "Yg==", "c": "w6k=" }, "type": "Opaque" });
    assert_eq!(json!(stored.fields), expected);
    let kept = prepare(&Secret, Some(&json!({ "type": "t" })), &json!({})).0;
    assert_eq!(json!(kept.fields), json!({ "type": "t" }));
}

#[test]
fn an_immutable_secret_stays_as_it_is() {
    const DETAIL: &str = "Forbidden: field is immutable when `immutable` is set";
    let secret = |immutable: Value, value: &str| json!({ "immutable": immutable, "data": { "k": value }, "type": "Opaque" });
    let (fixed, open) = (secret(json!(true), "YQ=="), secret(json!(false), "YQ=="));
    for (old, new, errors) in [
        (&fixed, &fixed, String::new()),
        (&open, &secret(json!(true), "Yg=="), String::new()),
        (&fixed, &secret(json!(true), "Yg=="), format!("data: {DETAIL}")),
        (&fixed, &open, format!("immutable: {DETAIL}")),
        (&fixed, &secret(Value::Null, "Yg=="), format!("immutable: {DETAIL}, data: {DETAIL}")),
        (
            &open,
            &json!({ "type": "t", "data": { "k": "YQ==" } }),
            "type: Invalid value: field is immutable".to_owned(),
        ),
    ] {
        assert_eq!(prepare(&Secret, Some(old), new).1, errors, "{old} -> {new}");
    }
}

#[test]
fn events_and_leases_are_validated() {
    const OTHER: &str = "involvedObject.namespace: Invalid value: ";
    let about = |namespace: &str| json!({ "involvedObject": { "kind": "Pod", "name": "p", "namespace": namespace } });
    check(&Event, &[(about("ns"), ""), (about("other"), OTHER), (about(""), OTHER)]);
    let lease = |spec: Value| json!({ "spec": spec });
    check(
        &Lease,
        &[
            (lease(json!({})), ""),
            (
                lease(
                    json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0 }),
                ),
                "",
            ),
            (
                lease(json!({ "leaseDurationSeconds": 0 })),
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                lease(json!({ "leaseTransitions": -1 })),
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ),
            (lease(json!({ "preferredHolder": "a" })), "spec.preferredHolder: Forbidden"),
        ],
    );
    let spec =
        json!({ "spec": { "renewTime": "2026-01-02T03:04:05.000006Z", "holderIdentity": "" } });
    let stored = prepare(&Lease, None, &spec).0;
    assert_eq!(json!(stored.fields), spec, "microseconds are kept, and there is no status");
}

#[test]
fn there_is_nothing_to_do_with_definitions_but_to_find_none() {
    let info = CustomResourceDefinition.info();
    assert_eq!(info.verbs, [Verb::Get, Verb::List, Verb::Watch]);
    assert!(info.is_stored() && info.actions.is_empty());
}

#[test]
fn reviews_ask_about_one_request_of_somebody() {
    const BOTH: &str = "spec.nonResourceAttributes: Invalid value: cannot be specified in combination with resourceAttributes";
    const NONE: &str = "spec.resourceAttributes: Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified";
    const NOBODY: &str =
        "spec.user: Invalid value: \"\": at least one of user or group must be specified";
    let request = json!({ "resourceAttributes": { "verb": "get", "namespace": "ns" } });
    let path = json!({ "nonResourceAttributes": { "verb": "get", "path": "/" } });
    let with = |base: &Value, more: Value| {
        let mut spec = base.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "spec": spec })
    };
    let user = || json!({ "user": "ada" });
    check(
        &SelfSubjectAccessReview,
        &[
            (with(&request, json!({})), ""),
            (with(&path, json!({})), ""),
            (with(&request, path.clone()), BOTH),
            (json!({}), NONE),
        ],
    );
    check(
        &SubjectAccessReview,
        &[
            (with(&request, user()), ""),
            (with(&path, json!({ "groups": ["a"], "extra": { "k": ["v"] } })), ""),
            (with(&request, json!({})), NOBODY),
            (json!({ "spec": user() }), NONE),
        ],
    );
    let elsewhere = json!({ "resourceAttributes": { "verb": "get", "namespace": "other" } });
    check(
        &LocalSubjectAccessReview,
        &[
            (with(&request, user()), ""),
            (
                with(&elsewhere, user()),
                "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace",
            ),
            (
                with(&path, user()),
                "spec.nonResourceAttributes: Invalid value: disallowed on this kind of request",
            ),
        ],
    );
    check(
        &SelfSubjectRulesReview,
        &[
            (json!({ "spec": { "namespace": "ns" } }), ""),
            (json!({}), "400: no namespace on request"),
        ],
    );
    check(
        &ResourceAccessReview,
        &[
            (json!({ "spec": { "verb": "get", "resource": "secrets" } }), ""),
            (json!({ "spec": { "verb": "get", "path": "/version" } }), ""),
            (
                json!({ "spec": { "verb": "get", "path": "/version", "name": "a" } }),
                "spec.path: Forbidden",
            ),
            (json!({ "spec": { "verb": "get" } }), "spec.resource: Required value"),
            (json!({ "spec": { "path": "/" } }), "spec.verb: Required value"),
        ],
    );
}

#[test]
fn reviews_are_created_only_and_whoever_asks_does_not_answer() {
    let kinds: [&dyn AnyKind; 7] = [
        &SelfSubjectAccessReview,
        &SubjectAccessReview,
        &LocalSubjectAccessReview,
        &SelfSubjectRulesReview,
        &SelfSubjectReview,
        &TokenReview,
        &ResourceAccessReview,
    ];
    for kind in kinds {
        let info = kind.info();
        assert_eq!((info.verbs, info.is_stored()), (&[Verb::Create][..], false), "{kind:?}");
        assert_eq!(info.is_namespaced(), info.kind.starts_with("Local"));
        let sent = json!({ "status": {
            "allowed": true, "authenticated": true, "complete": true, "incomplete": true,
            "userInfo": { "username": "eve" },
        } });
        let answered = json!(prepare(kind, None, &sent).0.fields).to_string();
        assert!(!answered.contains("true") && !answered.contains("eve"), "{kind:?}: {answered}");
    }
    let token = json!({ "spec": { "token": "canary" } });
    let answered = prepare(&TokenReview, None, &token).0;
    assert!(
        TokenReview.info().confidential && !json!(answered.fields).to_string().contains("canary")
    );
}

#[test]
fn reviews_of_access_have_no_metadata_and_a_review_of_a_token_has_a_token() {
    let spec = json!({ "resourceAttributes": { "namespace": "ns" }, "user": "ada" });
    let local: &dyn AnyKind = &LocalSubjectAccessReview;
    let (empty, except) = (
        "metadata: Invalid value: must be empty",
        "metadata: Invalid value: must be empty except for namespace",
    );
    let fields =
        json!([{ "manager": "m", "operation": "Update", "apiVersion": "v1", "time": null }]);
    for (kind, metadata, error) in [
        (&SubjectAccessReview as &dyn AnyKind, json!({}), ""),
        (&SubjectAccessReview, json!({ "creationTimestamp": null }), ""),
        (&SubjectAccessReview, json!({ "managedFields": fields }), ""),
        (&SubjectAccessReview, json!({ "name": "a" }), empty),
        (&SubjectAccessReview, json!({ "labels": { "a": "b" } }), empty),
        (&SubjectAccessReview, json!({ "namespace": "ns" }), empty),
        (&SelfSubjectAccessReview, json!({ "generateName": "a-" }), empty),
        (&SelfSubjectAccessReview, json!({ "annotations": { "a": "b" } }), empty),
        (local, json!({ "namespace": "ns" }), ""),
        (local, json!({ "namespace": "ns", "name": "a" }), except),
        // As upstream: neither of these says anything about metadata.
        (&SelfSubjectReview, json!({ "name": "a" }), ""),
        (&SelfSubjectRulesReview, json!({ "name": "a" }), ""),
    ] {
        let asks = kind.info().kind.ends_with("AccessReview");
        let of_it = if asks { &spec } else { &json!({ "namespace": "ns" }) };
        let fields = json!({ "metadata": metadata, "spec": of_it });
        let found = prepare(kind, None, &fields).1;
        assert_eq!(found, error, "{kind:?} {metadata}");
    }
    let required = "400: token is required for TokenReview in authentication";
    check(
        &TokenReview,
        &[
            (json!({}), required),
            (json!({ "spec": { "token": "" } }), required),
            (json!({ "metadata": { "name": "a" }, "spec": { "token": "t" } }), ""),
        ],
    );
}
