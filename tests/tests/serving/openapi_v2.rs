//! `/openapi/v2`, in both of its formats.

use std::collections::BTreeSet;

use postern_tests::Server;
use postern_tests::objects::based;
use serde_json::{Value, json};

use crate::serving::gnostic;

const OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const NEW: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

#[tokio::test]
async fn protobuf_equals_json() {
    let server = Server::start().await;
    let client = server.client();
    let reply = client.get(&based("/openapi/v2")).send().await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let json = reply.expect(200);
    assert_eq!(json["swagger"], "2.0");
    for accept in [OLD, NEW] {
        let reply = client.get(&based("/openapi/v2")).header("accept", accept).send().await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), Some(NEW));
        let mut read = gnostic::document(&reply.body);
        let mut json = json.clone();
        // Part by part, so that a difference can be found.
        for part in ["definitions", "paths"] {
            let (read, json) = (read[part].take(), json[part].take());
            let names =
                |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(names(&read), names(&json));
            for (name, value) in json.as_object().unwrap() {
                assert!(&read[name] == value, "{name}: {} is not {value}", read[name]);
            }
        }
        assert_eq!(read, json);
    }
}

#[tokio::test]
async fn formats_are_negotiated_and_have_an_etag() {
    let server = Server::start().await;
    let client = server.client();
    let form = async |path: &str, accept: &str| {
        let reply = client.get(path).header("accept", accept).send().await;
        (reply.status, reply.header("content-type").unwrap_or_default().to_owned())
    };
    let json = (200, "application/json".to_owned());
    let protobuf = (200, NEW.to_owned());
    for path in ["/openapi/v2".to_owned(), based("/openapi/v2")] {
        for accept in ["*/*", "", "application/json", "text/html, application/*;q=0.1"] {
            assert_eq!(form(&path, accept).await, json, "{accept}");
        }
        for accept in [OLD, NEW, &format!("application/json;q=0.5,{NEW}")] {
            assert_eq!(form(&path, accept).await, protobuf, "{accept}");
        }
        assert_eq!(form(&path, "application/yaml").await.0, 406);
    }
    for accept in ["*/*", NEW] {
        let get = || client.get("/openapi/v2").header("accept", accept);
        let reply = get().send().await;
        assert_eq!(reply.header("vary"), Some("Accept"));
        let tag = reply.header("etag").expect("an etag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        let again = get().header("if-none-match", &tag).send().await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        let other = get().header("if-none-match", "\"other\"").send().await;
        assert_eq!(other.status, 200);
    }
    let nobody = client.get("/openapi/v2").without("authorization").send().await;
    assert_eq!(nobody.status, 401);
}

#[tokio::test]
async fn the_document_describes_what_is_served() {
    let server = Server::start().await;
    let client = server.client();
    let document: Value = client.get(&based("/openapi/v2")).send().await.expect(200);
    let definitions = document["definitions"].as_object().unwrap();
    let ours = definitions
        .values()
        .find(|schema| schema["x-kubernetes-group-version-kind"][0]["kind"] == "SharedSecret");
    let ours = ours.expect("a definition with group, version and kind");
    assert_eq!(
        ours["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert!(definitions.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    let base = "/apis/management.platform.sh/v1";
    let one = &document["paths"][format!("{base}/namespaces/{{namespace}}/sharedsecrets/{{name}}")];
    assert_eq!(one["get"]["x-kubernetes-action"], "get");
    let patch = &one["patch"];
    let v3: Value = client.get(&based(&format!("/openapi/v3{base}"))).send().await.expect(200);
    let content = &v3["paths"][format!("{base}/namespaces/{{namespace}}/sharedsecrets/{{name}}")]["patch"]
        ["requestBody"]["content"];
    let types: Vec<&String> = content.as_object().unwrap().keys().collect();
    assert_eq!(patch["consumes"], json!(types));
    let mut ids = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            if let Some(id) = operation["operationId"].as_str() {
                assert!(ids.insert(id.to_owned()), "{id} is the id of two operations");
            }
        }
    }
    check_words(&document, definitions);
}

/// Every reference has a target, and every keyword exists in version 2.
fn check_words(value: &Value, definitions: &serde_json::Map<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let ("$ref", Some(target)) = (name.as_str(), value.as_str()) {
                    let name = target.strip_prefix("#/definitions/").expect("a definition");
                    assert!(definitions.contains_key(name), "{name} is not there");
                }
                let is_schema = fields.contains_key("type") || fields.contains_key("$ref");
                let unknown = ["oneOf", "anyOf", "nullable", "allOf"].contains(&name.as_str());
                assert!(!(is_schema && unknown), "{name} in {value}");
                check_words(value, definitions);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| check_words(item, definitions)),
        _ => {}
    }
}
