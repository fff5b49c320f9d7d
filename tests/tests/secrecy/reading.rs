//! Reads contain no write-only fields, in any requested format.

use futures_util::future::join_all;
use postern_tests::http::Client;
use serde_json::{Value, json};

use crate::secrecy::leak_check::{KEYS, LeakCheck, collection, key_path, user};

const FORMATS: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
];

const INITIAL: &str =
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Creates a key, changes and rotates it, disables and enables it. Returns the version before.
async fn create_and_change_key(check: &LeakCheck, client: &Client) -> Value {
    let start = check.send(client.get(&collection(KEYS))).await.expect(200);
    check.create(client.post(&collection(KEYS)).json(&check.new_secrets().object("lived"))).await;
    for spec in [
        json!({ "displayName": "changed" }),
        check.new_secrets().object("lived")["spec"].clone(),
        json!({ "disabled": true }),
        json!({ "disabled": false }),
    ] {
        let patch = json!({ "spec": spec });
        check.send(client.patch(&key_path("lived"), "merge-patch", &patch)).await.expect(200);
    }
    start["metadata"]["resourceVersion"].clone()
}

async fn read_every_way(check: &LeakCheck, client: &Client, paths: &[String]) {
    for path in paths {
        for format in FORMATS {
            let reply = check.send(client.get(path).accept(format)).await;
            assert!([200, 406].contains(&reply.status), "{path} {format}: {}", reply.text());
            let joint = if path.contains('?') { '&' } else { '?' };
            let with_objects = format!("{path}{joint}includeObject=Object");
            check.send(client.get(&with_objects).accept(format)).await;
        }
    }
}

/// Reads a watch until it ends, and returns the number of events about the key.
async fn watch(check: &LeakCheck, client: &Client, query: &str, format: &str) -> usize {
    let path = format!("{}?watch=true&timeoutSeconds=1{query}", collection(KEYS));
    let Ok(mut lines) = client.get(&path).accept(format).try_stream().await else { return 0 };
    let mut events = 0;
    while let Some(line) = lines.next().await.unwrap() {
        check.assert_absent(&format!("a watch {query} as {format}"), line.as_bytes());
        events += usize::from(line.contains("lived"));
    }
    events
}

#[tokio::test]
async fn reads_contain_no_secret() {
    let check = LeakCheck::new(21).await;
    let [client, _] = check.clients();
    let start = create_and_change_key(&check, &client).await;
    let start = start.as_str().unwrap();
    let now = check.send(client.get(&key_path("lived"))).await.expect(200);
    let now = now["metadata"]["resourceVersion"].as_str().unwrap();
    let paths = [
        key_path("lived"),
        collection(KEYS),
        format!("{}?limit=1", collection(KEYS)),
        format!("{}?resourceVersion={now}&resourceVersionMatch=Exact", collection(KEYS)),
        format!("{}?fieldSelector=metadata.name%3Dlived", collection(KEYS)),
        collection("users/admin/accesskeys"),
        collection("users/admin"),
        collection("selves/me"),
    ];
    read_every_way(&check, &client, &paths).await;
    let since = format!("&resourceVersion={start}");
    let from_now = "&includeObject=Object&resourceVersion=0";
    let queries = [since.as_str(), "", INITIAL, from_now];
    let watches = queries.iter().flat_map(|query| FORMATS.map(|format| (query, format)));
    join_all(watches.map(|(query, format)| watch(&check, &client, query, format))).await;
    let events = watch(&check, &client, &since, FORMATS[0]).await;
    assert_eq!(events, 5, "the watch has all changes of the key");
    check.finish().await;
}

#[tokio::test]
async fn self_and_deletions_contain_no_secret() {
    let check = LeakCheck::new(22).await;
    let [client, _] = check.clients();
    let ada = user(&client, "ada").await;
    for name in ["held", "gone"] {
        let mut object = check.new_secrets().object(name);
        object["spec"]["user"] = json!("ada");
        check.create(client.post(&collection(KEYS)).json(&object)).await;
    }
    let ask = json!({ "spec": { "accessKey": "held" } });
    for who in [&client, &ada] {
        for format in FORMATS {
            let path = collection("selves");
            check.send(who.post(&path).json(&ask).accept(format)).await;
            check.send(who.post(&path).json(&json!({})).accept(format)).await;
        }
    }
    let finalizers = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    check.send(client.patch(&key_path("held"), "merge-patch", &finalizers)).await.expect(200);
    check.send(client.delete(&key_path("held"))).await.expect(200);
    let reply = check.send(ada.delete(&collection(KEYS))).await;
    assert!(
        reply.text().contains("gone"),
        "the response contains the deleted object: {}",
        reply.text()
    );
    let free = json!({ "metadata": { "finalizers": null } });
    check.send(client.patch(&key_path("held"), "merge-patch", &free)).await.expect(200);
    check.finish().await;
}
