//! A streaming list in every form that a client can ask for, over both versions of HTTP.

use postern_tests::Server;
use postern_tests::http::{Client, Lines};
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::rights::{path, set, user};
use postern_tests::watching::Watch;
use serde_json::{Value, json};

const STREAMING: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// The annotations of the object in an event, in each form of the event.
fn annotations(object: &Value) -> &Value {
    let object = if object["kind"] == "Table" { &object["rows"][0]["object"] } else { object };
    &object["metadata"]["annotations"]
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_end_of_the_initial_state_is_marked_in_every_form() {
    let server = Server::start().await;
    let plain = server.client();
    for name in ["a", "b"] {
        plain.post(&secrets("platform")).json(&secret(name, "v")).send().await.expect(201);
    }
    for http2 in [false, true] {
        let client = if http2 { Client::http2(server.kubeconfig()) } else { server.client() };
        for (form, include, kind, api) in [
            ("", "", "SharedSecret", "management.platform.sh/v1"),
            ("as=Table;v=v1;g=meta.k8s.io", "", "Table", "meta.k8s.io/v1"),
            ("as=Table;v=v1;g=meta.k8s.io", "None", "Table", "meta.k8s.io/v1"),
            ("as=Table;v=v1;g=meta.k8s.io", "Object", "Table", "meta.k8s.io/v1"),
            ("as=Table;v=v1beta1;g=meta.k8s.io", "Metadata", "Table", "meta.k8s.io/v1beta1"),
            (
                "as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                "",
                "PartialObjectMetadata",
                "meta.k8s.io/v1",
            ),
            (
                "as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
                "",
                "PartialObjectMetadata",
                "meta.k8s.io/v1beta1",
            ),
            ("stream=watch", "", "SharedSecret", "management.platform.sh/v1"),
        ] {
            let what = format!("{form} {include} {http2}");
            let path = format!("{}?{STREAMING}&includeObject={include}", secrets("platform"));
            let lines =
                client.get(&path).accept(&format!("application/json;{form}")).stream().await;
            let mut watch = Watch::new(lines);
            let events = watch.take(3).await;
            let kinds: Vec<_> = events.iter().map(|event| &*event.kind).collect();
            assert_eq!(kinds, ["ADDED", "ADDED", "BOOKMARK"], "{what}");
            for (index, event) in events.iter().enumerate() {
                assert_eq!(
                    (&event.object["kind"], &event.object["apiVersion"]),
                    (&json!(kind), &json!(api)),
                    "{what}"
                );
                let columns = event.object["columnDefinitions"].as_array().map_or(0, Vec::len);
                assert_eq!(columns > 0, kind == "Table" && index == 0, "{what}");
                let is_end = annotations(&event.object)["k8s.io/initial-events-end"] == "true";
                assert_eq!(is_end, index == 2, "{what}");
            }
            let at = version(&events[2].object);
            plain.post(&secrets("platform")).json(&secret("c", "v")).send().await.expect(201);
            plain.delete(&secret_path("c")).send().await.expect(200);
            let live = watch.take(2).await;
            let kinds: Vec<_> = live.iter().map(|event| &*event.kind).collect();
            assert_eq!(kinds, ["ADDED", "DELETED"], "{what}");
            assert!(
                at < version(&live[0].object)
                    && version(&live[0].object) < version(&live[1].object)
            );
        }
    }
}

/// Reads so many documents of a stream. The last one is whole when another one begins.
async fn documents(lines: &mut Lines, count: usize) -> Vec<Value> {
    let mut texts: Vec<String> = Vec::new();
    loop {
        let line = lines.next().await.unwrap().expect("the watch continues");
        match texts.last_mut() {
            _ if line == "---\n" => {
                if texts.len() == count {
                    break;
                }
                texts.push(String::new());
            }
            Some(text) => text.push_str(&line),
            None => panic!("the stream begins with {line}"),
        }
    }
    texts.iter().map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

#[tokio::test]
async fn events_in_yaml_are_documents() {
    let server = Server::start().await;
    let client = server.client();
    let partial = "application/yaml;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io";
    for (accept, kind, has_spec) in [
        ("application/yaml;stream=watch", "SharedSecret", true),
        ("application/yaml", "SharedSecret", true),
        (partial, "PartialObjectMetadata", false),
    ] {
        for name in ["a", "b"] {
            client.post(&secrets("platform")).json(&secret(name, "v")).send().await.expect(201);
        }
        let path = format!("{}?{STREAMING}", secrets("platform"));
        let mut lines = client.get(&path).accept(accept).stream().await;
        assert_eq!(lines.headers["content-type"], "application/yaml;stream=watch");
        for name in ["a", "b"] {
            client.delete(&secret_path(name)).send().await.expect(200);
        }
        let events = documents(&mut lines, 4).await;
        let summary =
            |event: &Value| format!("{} {}", event["type"], event["object"]["metadata"]["name"]);
        let summaries: Vec<_> = events.iter().map(summary).collect();
        let wanted = [r#""ADDED" "a""#, r#""ADDED" "b""#, r#""BOOKMARK" null"#, r#""DELETED" "a""#];
        assert_eq!(summaries, wanted, "{accept}");
        for event in &events {
            assert_eq!(event["object"]["kind"], kind, "{accept}");
        }
        assert_eq!(annotations(&events[2]["object"])["k8s.io/initial-events-end"], "true");
        assert_eq!(events[0]["object"].get("spec").is_some(), has_spec, "{accept}");
    }
}

#[tokio::test]
async fn an_error_is_a_status_in_every_form() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let mut open = Vec::new();
    for form in ["", "as=Table;v=v1;g=meta.k8s.io", "as=PartialObjectMetadata;v=v1;g=meta.k8s.io"] {
        let path = format!("{}?{STREAMING}", secrets("platform"));
        let lines = ada.get(&path).accept(&format!("application/json;{form}")).stream().await;
        let mut watch = Watch::new(lines);
        assert_eq!(watch.next().await.unwrap().kind, "BOOKMARK");
        open.push(watch);
    }
    set(&admin, &path("users", "ada"), json!({ "disabled": true })).await;
    for mut watch in open {
        let rest = watch.rest().await;
        assert_eq!((rest.len(), &*rest[0].kind), (1, "ERROR"));
        assert_eq!(
            (&rest[0].object["kind"], &rest[0].object["code"]),
            (&json!("Status"), &json!(401))
        );
    }
}
