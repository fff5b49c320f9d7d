//! Field validation: unknown and duplicate fields are refused, reported in warnings, or ignored, as
//! the client requests.

use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::http::Response;
use postern_tests::objects::{GROUP, secret, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::json;

const DUPLICATE: &str = r#"{"apiVersion":"management.platform.sh/v1","kind":"Team","metadata":
    {"name":"t1"},"spec":{"displayName":"first","displayName":"second","foo":{"bar":1}}}"#;

const DUPLICATE_YAML: &str = "apiVersion: management.platform.sh/v1\nkind: Team\nmetadata:\n  \
    name: t1\nspec:\n  displayName: first\n  displayName: second\n  foo:\n    bar: 1\n";

async fn post(server: &Server, validation: &str, kind: &str, body: &str) -> Response {
    let path = format!("{GROUP}/teams?dryRun=All{validation}");
    server.client().post(&path).body(kind, body.to_owned()).send().await
}

#[tokio::test]
async fn strict_refuses_and_names_all_fields() {
    let server = Server::start().await;
    for (kind, body) in [("application/json", DUPLICATE), ("application/yaml", DUPLICATE_YAML)] {
        let reply = post(&server, "&fieldValidation=Strict", kind, body).await;
        let text = failure(&reply);
        let expected = "400 BadRequest\nTeam in version \"v1\" cannot be handled as a \
                        Team: strict decoding error: ";
        assert!(text.starts_with(expected), "{kind}: {text}");
        assert!(text.contains("unknown field \"spec.foo\""), "{kind}: {text}");
        assert!(text.contains("duplicate field \"spec.displayName\""), "{kind}: {text}");
    }
    let object = json!({ "metadata": { "name": "t1" }, "spec": { "foo": 1 } });
    let reply =
        post(&server, "&fieldValidation=Strict", "application/json", &object.to_string()).await;
    assert_snapshot!(failure(&reply), @r#"
    400 BadRequest
    Team in version "v1" cannot be handled as a Team: strict decoding error: unknown field "spec.foo"
    "#);
}

#[tokio::test]
async fn warn_is_the_default_and_reports_each_field_once() {
    let server = Server::start().await;
    for validation in ["", "&fieldValidation=Warn"] {
        for (kind, body) in [("application/json", DUPLICATE), ("application/yaml", DUPLICATE_YAML)]
        {
            let reply = post(&server, validation, kind, body).await;
            let made = reply.expect(201);
            let mut warnings = reply.warnings();
            warnings.sort();
            let expected = [
                r#"299 - "duplicate field \"spec.displayName\"""#,
                r#"299 - "unknown field \"spec.foo\"""#,
            ];
            assert_eq!(warnings, expected, "{kind}");
            assert_eq!(made["spec"]["displayName"], "second", "{kind}: the last one counts");
            assert!(made["spec"].get("foo").is_none(), "unknown fields are not stored");
        }
    }
}

#[tokio::test]
async fn ignore_reports_nothing() {
    let server = Server::start().await;
    for (kind, body) in [("application/json", DUPLICATE), ("application/yaml", DUPLICATE_YAML)] {
        let reply = post(&server, "&fieldValidation=Ignore", kind, body).await;
        let made = reply.expect(201);
        assert_eq!(reply.warnings(), [""; 0], "{kind}");
        assert_eq!(made["spec"]["displayName"], "second", "{kind}: the last one counts");
        assert!(made["spec"].get("foo").is_none(), "unknown fields are not stored");
    }
    let reply = post(&server, "&fieldValidation=Loud", "application/json", DUPLICATE).await;
    assert!(failure(&reply).starts_with("422 Invalid\n"), "{}", reply.text());
}

#[tokio::test]
async fn unknown_fields_are_found_everywhere() {
    let server = Server::start().await;
    let mut object = json!({ "metadata": { "name": "t1" }, "spec": {} });
    object["top"] = 1.into();
    object["metadata"]["colour"] = "red".into();
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "weight": 1,
    }]);
    object["spec"]["colour"] = "red".into();
    let reply =
        post(&server, "&fieldValidation=Strict", "application/json", &object.to_string()).await;
    let text = failure(&reply);
    for field in ["top", "metadata.colour", "metadata.ownerReferences[0].weight", "spec.colour"] {
        assert!(text.contains(&format!("unknown field \"{field}\"")), "{field}: {text}");
    }
}

#[tokio::test]
async fn a_patch_is_validated_too_and_repeats_no_secret() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "canary")).send().await.expect(201);
    let strict = format!("{}?fieldValidation=Strict", secret_path("s1"));
    let patch = json!({"spec": {"foo": 1}});
    let reply = client.patch(&strict, "merge-patch", &patch).send().await;
    let text = failure(&reply);
    assert!(text.starts_with("422 Invalid\n"), "{text}");
    assert!(text.contains("unknown field \"spec.foo\""), "{text}");
    assert!(text.contains("\"field\":\"patch\""), "{text}");
    assert!(!text.contains("Y2FuYXJ5"), "the stored value is repeated: {text}");
    let patch = json!([{"op": "add", "path": "/spec/foo", "value": 1}]);
    let reply = client.patch(&strict, "json-patch", &patch).send().await;
    assert!(failure(&reply).starts_with("422 Invalid\n"), "{}", reply.text());
    let team = format!("{GROUP}/teams/t1");
    let made = json!({ "metadata": { "name": "t1" }, "spec": { "displayName": "a" } });
    client.post(&format!("{GROUP}/teams")).json(&made).send().await.expect(201);
    let reply = client.patch(&team, "json-patch", &patch).send().await;
    reply.expect(200);
    assert_eq!(reply.warnings(), [r#"299 - "unknown field \"spec.foo\"""#]);
    let doubled = r#"{"spec":{"displayName":"a","displayName":"b"}}"#;
    let kind = "application/merge-patch+json";
    let reply = client.request("PATCH", &strict).body(kind, doubled).send().await;
    let text = failure(&reply);
    assert!(text.contains("duplicate field \"spec.displayName\""), "{text}");
}

/// An unknown field in a secret loses its value, and clients such as Flux show no warning.
#[tokio::test]
async fn no_value_of_a_secret_is_dropped_whatever_the_validation() {
    let server = Server::start().await;
    let client = server.client();
    let core = "/kubernetes/management/api/v1/namespaces/platform/secrets";
    let list = secrets("platform");
    for (path, fields, field, hint) in [
        (
            &*list,
            json!({ "spec": { "stringdata": {} } }),
            "spec.stringdata",
            "write spec.stringData",
        ),
        (&list, json!({ "spec": { "foo": 1 } }), "spec.foo", "known here: access"),
        (&list, json!({ "spec": { "dta": {} } }), "spec.dta", "did you mean spec.data?"),
        (&list, json!({ "data": {} }), "data", "write spec.data instead"),
        (
            &list,
            json!({ "metadata": { "name": "s1", "stringData": {} } }),
            "metadata.stringData",
            "write spec.stringData instead",
        ),
        (core, json!({ "strngData": {} }), "strngData", "did you mean stringData?"),
        (core, json!({ "spec": { "data": {} } }), "spec", "known here"),
    ] {
        let mut object = json!({ "metadata": { "name": "s1" } });
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        for validation in ["Ignore", "Warn"] {
            let path = format!("{path}?dryRun=All&fieldValidation={validation}");
            let text = failure(&client.post(&path).json(&object).send().await);
            assert!(text.starts_with("422 Invalid\n"), "{field}: {text}");
            assert!(text.contains(&format!("\"field\":\"{field}\"")), "{field}: {text}");
            assert!(text.contains(hint), "{field}: {text}");
        }
    }
    // Elsewhere in a secret, an unknown field is a warning.
    let mut other = secret("s1", "v");
    other["metadata"]["colour"] = "red".into();
    other["top"] = 1.into();
    let reply = client.post(&list).json(&other).send().await;
    assert_eq!(reply.warnings().len(), 2);
    reply.expect(201);
}

/// The status of a write is dropped, so nothing in it is a problem.
#[tokio::test]
async fn an_unknown_field_in_a_dropped_status_is_not_reported() {
    let server = Server::start().await;
    let client = server.client();
    let mut object = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "Project",
        "metadata": { "name": "web" }, "spec": { "displayName": "Web" },
        "status": { "colour": "red", "conditions": [{ "type": "A", "shade": 1 }] },
    });
    let list = format!("{GROUP}/projects");
    for validation in ["Strict", "Warn", "Ignore"] {
        let path = format!("{list}?dryRun=All&fieldValidation={validation}");
        let reply = client.post(&path).json(&object).send().await;
        assert_eq!((reply.status, reply.warnings()), (201, vec![]), "{validation}");
    }
    let apply = format!("{list}/web?fieldManager=me");
    let body = object.to_string();
    let reply =
        client.request("PATCH", &apply).body("application/apply-patch+yaml", body).send().await;
    assert_eq!((reply.status, reply.warnings()), (201, vec![]));
    // Through the subresource, only the status of the body is used.
    object["metadata"]["resourceVersion"] =
        reply.expect(201)["metadata"]["resourceVersion"].clone();
    let reply = client.put(&format!("{list}/web/status")).json(&object).send().await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.warnings().len(), 2, "{:?}", reply.warnings());
}
