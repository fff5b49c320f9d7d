//! Watches: the order of events, streaming lists, bookmarks, and where a watch starts and ends.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, secret, secret_path, secrets, value_of, version_of};
use postern_tests::watching::Event;
use serde_json::json;

const STREAMING: &str =
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn now(client: &Client) -> u64 {
    version_of(&client.get(&secrets("platform")).send().await.expect(200))
}

#[tokio::test]
async fn each_change_is_one_event_in_order() {
    for http2 in [false, true] {
        let server = Server::start().await;
        let client = if http2 { Client::http2(server.kubeconfig()) } else { server.client() };
        let query = format!("&resourceVersion={}", now(&client).await);
        let mut watch = client.watch(&secrets("platform"), &query).await;
        let made =
            client.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
        let patch = json!({"spec": {"displayName": "D"}});
        let changed =
            client.patch(&secret_path("s1"), "merge-patch", &patch).send().await.expect(200);
        client.delete(&secret_path("s1")).send().await.expect(200);
        let events = watch.take(3).await;
        let summaries: Vec<_> = events.iter().map(Event::summary).collect();
        assert_eq!(summaries, ["ADDED s1", "MODIFIED s1", "DELETED s1"]);
        assert_eq!(events[0].object, made, "an event carries what the write answered");
        assert_eq!(events[1].object, changed);
        assert!(events[2].version() > version_of(&changed), "a deletion has its own version");
        assert_eq!(value_of(&events[2].object), "one", "and the last state");
        for (resume, rest) in [(0, 2), (1, 1)] {
            let query = format!("&resourceVersion={}", events[resume].version());
            let again = client.watch(&secrets("platform"), &query).await.take(rest).await;
            assert_eq!(again, events[resume + 1..], "resumed behind event {resume}");
        }
    }
}

#[tokio::test]
async fn headers_come_before_the_first_event() {
    let server = Server::start().await;
    let client = server.client();
    let path = format!("{}?watch=true&resourceVersion={}", secrets("platform"), now(&client).await);
    let lines = client.get(&path).stream().await;
    assert_eq!(lines.headers["content-type"], "application/json");
    assert!(lines.headers.get("content-length").is_none());
}

#[tokio::test]
async fn a_bookmark_ends_the_initial_events_of_a_streaming_list() {
    let server = Server::start().await;
    let client = server.client();
    for name in ["a", "b"] {
        client.post(&secrets("platform")).json(&secret(name, "v")).send().await.expect(201);
    }
    let list = now(&client).await;
    for query in [
        STREAMING.to_owned(),
        format!("{STREAMING}&resourceVersion=0"),
        format!("{STREAMING}&resourceVersion={list}"),
    ] {
        let mut watch = client.watch(&secrets("platform"), &query).await;
        let mut events = watch.initial().await;
        let end = events.pop().unwrap();
        let mut summaries: Vec<_> = events.iter().map(Event::summary).collect();
        summaries.sort();
        assert_eq!(summaries, ["ADDED a", "ADDED b"], "{query}");
        assert!(end.version() >= list, "{query}");
        assert_eq!(end.object["kind"], "SharedSecret");
        assert_eq!(end.object["apiVersion"], "management.platform.sh/v1");
        let mut fields: Vec<_> = end.object["metadata"].as_object().unwrap().keys().collect();
        fields.retain(|field| !["creationTimestamp"].contains(&field.as_str()));
        assert_eq!(fields, ["annotations", "resourceVersion"], "a bookmark holds no object");
        let name = format!("live-{}", query.len());
        client.post(&secrets("platform")).json(&secret(&name, "v")).send().await.expect(201);
        assert_eq!(watch.summaries(1).await, [format!("ADDED {name}")]);
        client.delete(&secret_path(&name)).send().await.expect(200);
    }
    let empty = client.watch(&secrets("default"), STREAMING).await.initial().await;
    assert_eq!(empty.len(), 1, "an empty list ends at once");
}

#[tokio::test]
async fn an_initial_state_can_be_left_out() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("old", "v")).send().await.expect(201);
    let query =
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = client.watch(&secrets("platform"), query).await;
    client.post(&secrets("platform")).json(&secret("new", "v")).send().await.expect(201);
    assert_eq!(watch.summaries(1).await, ["ADDED new"]);
}

#[tokio::test]
async fn a_watch_ends_cleanly_after_its_timeout_with_a_bookmark() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let version = now(&client).await;
    client
        .post(&format!("{CORE}/namespaces"))
        .json(&json!({"metadata": {"name": "elsewhere"}}))
        .send()
        .await
        .expect(201);
    let query = format!("&resourceVersion={version}&timeoutSeconds=3&allowWatchBookmarks=true");
    let events = client.watch(&secrets("platform"), &query).await.rest().await;
    assert!(
        !events.is_empty() && events.iter().all(|event| event.kind == "BOOKMARK"),
        "{events:?}"
    );
    let last = events.last().unwrap();
    assert!(
        last.version() > version,
        "a bookmark has a newer version, also when only other objects changed"
    );
    assert_eq!(last.object["kind"], "SharedSecret");
    assert!(last.object.get("spec").is_none());
    let query = format!("&resourceVersion={version}&timeoutSeconds=1");
    let events = client.watch(&secrets("platform"), &query).await.rest().await;
    assert_eq!(events, [], "no bookmarks for who did not ask");
}

/// As for kube-apiserver, 0 sets no limit: neither for a watch nor for a request. A duration of 0
/// needs no unit.
#[tokio::test]
async fn a_timeout_of_zero_is_none() {
    let server = Server::start().await;
    let client = server.client();
    for query in ["timeout=0", "timeout=0s", "timeout=", "timeout=-1s", "timeout=.5h"] {
        let reply = client.get(&format!("{}?{query}", secrets("platform"))).send().await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.text());
    }
    let reply = client.get(&format!("{}?timeout=1", secrets("platform"))).send().await;
    assert_eq!(reply.status, 400, "any other number needs a unit: {}", reply.text());
    for (name, query) in
        [("one", "timeoutSeconds=0"), ("two", "timeout=0"), ("three", "timeout=1ms")]
    {
        let query = format!("&resourceVersion={}&{query}", now(&client).await);
        let mut watch = client.watch(&secrets("platform"), &query).await;
        client.post(&secrets("platform")).json(&secret(name, "v")).send().await.expect(201);
        assert_eq!(watch.summaries(1).await, [format!("ADDED {name}")], "{query}");
    }
}

#[tokio::test]
async fn a_watch_sees_its_own_collection_and_no_other() {
    let server = Server::start().await;
    let client = server.client();
    let version = now(&client).await;
    let mut one = client.watch(&secrets("platform"), &format!("&resourceVersion={version}")).await;
    let mut all = client
        .watch(&format!("{GROUP}/sharedsecrets"), &format!("&resourceVersion={version}"))
        .await;
    let query = format!("&resourceVersion={version}&fieldSelector=metadata.name%3Dwanted");
    let mut single = client.watch(&secrets("platform"), &query).await;
    for (namespace, name) in [("default", "x"), ("platform", "other"), ("platform", "wanted")] {
        client.post(&secrets(namespace)).json(&secret(name, "v")).send().await.expect(201);
    }
    assert_eq!(all.summaries(3).await, ["ADDED x", "ADDED other", "ADDED wanted"]);
    assert_eq!(one.summaries(2).await, ["ADDED other", "ADDED wanted"]);
    assert_eq!(single.summaries(1).await, ["ADDED wanted"]);
}

#[tokio::test]
async fn every_watcher_sees_the_same_order() {
    let server = Server::start().await;
    let client = server.client();
    let query = format!("&resourceVersion={}", now(&client).await);
    let mut watches = Vec::new();
    for _ in 0..5 {
        watches.push(client.watch(&secrets("platform"), &query).await);
    }
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let client = client.clone();
        writers.spawn(async move {
            for number in 0..10 {
                let object = secret(&format!("w{writer}-{number}"), "v");
                client.post(&secrets("platform")).json(&object).send().await.expect(201);
            }
        });
    }
    writers.join_all().await;
    let first = watches[0].take(80).await;
    assert!(first.is_sorted_by(|one, two| one.version() < two.version()), "strictly ascending");
    for watch in &mut watches[1..] {
        assert_eq!(watch.take(80).await, first);
    }
}

#[tokio::test]
async fn a_list_and_a_watch_from_it_leave_no_gap() {
    let server = Server::start().await;
    let client = server.client();
    let writer = client.clone();
    let writing = tokio::spawn(async move {
        for number in 0..60 {
            let object = secret(&format!("s{number:02}"), "v");
            writer.post(&secrets("platform")).json(&object).send().await.expect(201);
        }
    });
    for _ in 0..6 {
        let list = client.get(&secrets("platform")).send().await.expect(200);
        let have = list["items"].as_array().unwrap().len();
        let query = format!("&resourceVersion={}", version_of(&list));
        let events = client.watch(&secrets("platform"), &query).await.take(60 - have).await;
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event.summary(), format!("ADDED s{:02}", have + index));
        }
    }
    writing.await.unwrap();
}
