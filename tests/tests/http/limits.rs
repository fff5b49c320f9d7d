//! Limits: bodies, depth, aliases, names, values. Each has a clear response, and the server keeps
//! running.

use std::convert::Infallible;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::json;

const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// JSON of exactly `length` bytes, padded with spaces.
fn padded(name: &str, length: usize) -> String {
    let mut text = secret(name, "v").to_string();
    text.push_str(&" ".repeat(length - text.len()));
    text
}

#[tokio::test]
async fn a_body_of_3_mib_is_read_and_one_byte_more_is_not() {
    let server = Server::start().await;
    for client in [server.client(), Client::http2(server.kubeconfig())] {
        let name = if client.connect().await.is_ok() { "whole" } else { unreachable!() };
        let full = client
            .post(&secrets("platform"))
            .body("application/json", padded(name, BODY_BYTES_MAX));
        full.send().await.expect(201);
        client.delete(&secret_path(name)).send().await.expect(200);
        let over = client
            .post(&secrets("platform"))
            .body("application/json", padded(name, BODY_BYTES_MAX + 1));
        let expected = "413 RequestEntityTooLarge\nRequest entity too large: limit is 3145728\n";
        assert_eq!(failure(&over.send().await), expected);
        client.get("/readyz").send().await.expect_text(200);
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_has_the_same_limit() {
    let server = Server::start().await;
    for client in [server.client(), Client::http2(server.kubeconfig())] {
        let frames = (0..=BODY_BYTES_MAX / 65_536)
            .map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b' '; 65_536]))));
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let reply =
            client.post(&secrets("platform")).streamed("application/json", body).send().await;
        assert!(failure(&reply).starts_with("413 RequestEntityTooLarge\n"), "{}", reply.text());
    }
}

#[tokio::test]
async fn twenty_thousand_brackets_are_400() {
    let server = Server::start().await;
    let client = server.client();
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let objects = format!("{}1{}", "{\"a\":".repeat(20_000), "}".repeat(20_000));
    let field =
        secret("s1", "v").to_string().replacen("\"spec\":", &format!("\"x\":{deep},\"spec\":"), 1);
    let unclosed = "[".repeat(20_000);
    for body in [&deep, &objects, &field, &unclosed] {
        for kind in ["application/json", "application/yaml"] {
            let reply = client.post(&secrets("platform")).body(kind, body.clone()).send().await;
            let text = failure(&reply);
            assert!(text.starts_with("400 BadRequest\n"), "{kind}: {text}");
        }
    }
    let indented = (0..2_000).fold(String::new(), |text, depth| text + &" ".repeat(depth) + "a:\n");
    let dashes = "- ".repeat(20_000);
    for body in [indented, dashes] {
        let reply = client.post(&secrets("platform")).yaml(&body).send().await;
        assert!(failure(&reply).starts_with("400 BadRequest\n"), "{}", reply.text());
    }
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    for kind in ["json-patch", "merge-patch"] {
        for body in [&deep, &objects, &unclosed] {
            let kind = format!("application/{kind}+json");
            let patch = client.request("PATCH", &secret_path("s1")).body(&kind, body.clone());
            let text = failure(&patch.send().await);
            assert!(text.starts_with("400 BadRequest\n"), "{kind}: {text}");
        }
    }
    client.get("/readyz").send().await.expect_text(200);
}

#[tokio::test]
async fn an_alias_bomb_is_400() {
    let server = Server::start().await;
    let client = server.client();
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let list = vec![below; 9].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{list}]").unwrap();
    }
    let reply = client.post(&secrets("platform")).yaml(&bomb).send().await;
    assert!(failure(&reply).starts_with("400 BadRequest\n"), "{}", reply.text());
    let itself = "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata: &m\n  name: s\n  labels: *m\n";
    let reply = client.post(&secrets("platform")).yaml(itself).send().await;
    assert!(failure(&reply).starts_with("400 BadRequest\n"), "{}", reply.text());
    client.get("/readyz").send().await.expect_text(200);
}

#[tokio::test]
async fn a_patch_has_a_limited_number_of_operations() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let operation = json!({"op": "test", "path": "/kind", "value": "SharedSecret"});
    let patch = json!(vec![operation.clone(); 10_001]);
    let reply = client.patch(&secret_path("s1"), "json-patch", &patch).send().await;
    assert_snapshot!(failure(&reply), @"
    413 RequestEntityTooLarge
    Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001
    ");
    let patch = json!(vec![operation; 10_000]);
    client.patch(&secret_path("s1"), "json-patch", &patch).send().await.expect(200);
}

#[tokio::test]
async fn a_patch_cannot_grow_an_object_without_end() {
    let server = Server::start().await;
    let client = server.client();
    let made = client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let mut operations = vec![json!({
        "op": "add", "path": "/metadata/annotations/a", "value": "x".repeat(100_000),
    })];
    for copy in 0..2_000 {
        operations.push(json!({
            "op": "copy", "from": "/metadata/annotations/a", "path": format!("/metadata/annotations/b{copy}"),
        }));
    }
    let reply = client.patch(&secret_path("s1"), "json-patch", &json!(operations)).send().await;
    assert!((400..500).contains(&reply.status), "{} {}", reply.status, reply.text());
    let read = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(read["metadata"], made["metadata"], "the failed patch left nothing");
}

#[tokio::test]
async fn data_may_have_1_mib_in_all() {
    let server = Server::start().await;
    let client = server.client();
    let half = STANDARD.encode(vec![7_u8; 512 * 1024]);
    let mut object = secret("s1", "v");
    object["spec"]["data"] = json!({"one": half, "two": half});
    client.post(&secrets("platform")).json(&object).send().await.expect(201);
    object["metadata"]["name"] = "s2".into();
    object["spec"]["data"]["three"] = STANDARD.encode("!").into();
    let reply = client.post(&secrets("platform")).json(&object).send().await.expect(422);
    assert_eq!(reply["details"]["causes"][0]["reason"], "FieldValueTooLong");
    assert_eq!(reply["details"]["causes"][0]["field"], "spec.data");
}

#[tokio::test]
async fn names_labels_and_annotations_have_their_lengths() {
    let server = Server::start().await;
    let client = server.client();
    let cause = async |object: serde_json::Value| {
        let reply = client.post(&secrets("platform")).json(&object).send().await.expect(422);
        let cause = &reply["details"]["causes"][0];
        format!("{} {}", cause["reason"].as_str().unwrap(), cause["field"].as_str().unwrap())
    };
    client.post(&secrets("platform")).json(&secret(&"a".repeat(253), "v")).send().await.expect(201);
    assert_eq!(cause(secret(&"a".repeat(254), "v")).await, "FieldValueInvalid metadata.name");
    let mut object = secret("s1", "v");
    object["metadata"]["labels"] = json!({"app": "x".repeat(64)});
    assert_eq!(cause(object).await, "FieldValueInvalid metadata.labels");
    let mut object = secret("s1", "v");
    object["metadata"]["annotations"] = json!({"note": "x".repeat(256 * 1024)});
    assert_eq!(cause(object).await, "FieldValueTooLong metadata.annotations");
    let mut object = secret("s1", "v");
    object["spec"]["data"] = json!({"k".repeat(254): "djE="});
    let reason = cause(object).await;
    assert!(reason.starts_with("FieldValue"), "{reason}");
}
