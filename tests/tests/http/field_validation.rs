//! Field validation: unknown and duplicate fields are refused, reported in warnings, or ignored, as
//! the client requests.

use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::http::Response;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::json;

const DUPLICATE: &str = r#"{"apiVersion":"management.platform.sh/v1","kind":"SharedSecret","metadata":
    {"name":"s1"},"spec":{"displayName":"first","displayName":"second","foo":{"bar":1}}}"#;

const DUPLICATE_YAML: &str = "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  \
    name: s1\nspec:\n  displayName: first\n  displayName: second\n  foo:\n    bar: 1\n";

async fn post(server: &Server, validation: &str, kind: &str, body: &str) -> Response {
    let path = format!("{}?dryRun=All{validation}", secrets("platform"));
    server.client().post(&path).body(kind, body.to_owned()).send().await
}

#[tokio::test]
async fn strict_refuses_and_names_all_fields() {
    let server = Server::start().await;
    for (kind, body) in [("application/json", DUPLICATE), ("application/yaml", DUPLICATE_YAML)] {
        let reply = post(&server, "&fieldValidation=Strict", kind, body).await;
        let text = failure(&reply);
        let expected = "400 BadRequest\nSharedSecret in version \"v1\" cannot be handled as a \
                        SharedSecret: strict decoding error: ";
        assert!(text.starts_with(expected), "{kind}: {text}");
        assert!(text.contains("unknown field \"spec.foo\""), "{kind}: {text}");
        assert!(text.contains("duplicate field \"spec.displayName\""), "{kind}: {text}");
    }
    let mut object = secret("s1", "v");
    object["spec"]["foo"] = 1.into();
    let reply =
        post(&server, "&fieldValidation=Strict", "application/json", &object.to_string()).await;
    assert_snapshot!(failure(&reply), @r#"
    400 BadRequest
    SharedSecret in version "v1" cannot be handled as a SharedSecret: strict decoding error: unknown field "spec.foo"
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
    let mut object = secret("s1", "v");
    object["top"] = 1.into();
    object["metadata"]["colour"] = "red".into();
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "weight": 1,
    }]);
    object["spec"]["owner"] = json!({"user": "admin"});
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
    let reply = client.patch(&secret_path("s1"), "json-patch", &patch).send().await;
    reply.expect(200);
    assert_eq!(reply.warnings(), [r#"299 - "unknown field \"spec.foo\"""#]);
    let doubled = r#"{"spec":{"displayName":"a","displayName":"b"}}"#;
    let kind = "application/merge-patch+json";
    let reply = client.request("PATCH", &strict).body(kind, doubled).send().await;
    let text = failure(&reply);
    assert!(text.contains("duplicate field \"spec.displayName\""), "{text}");
}
