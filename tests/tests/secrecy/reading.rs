//! What reading tells: nothing of what is never shown, in whatever form one asks.

use futures_util::future::join_all;
use postern_tests::http::Client;
use serde_json::{Value, json};

use crate::stage::{KEYS, Stage, collection, key_path, user};

const FORMS: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
];

const INITIAL: &str =
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// A key that has lived: made, changed, rotated, switched off and on.
async fn live(stage: &Stage, client: &Client) -> Value {
    let start = stage.ask(client.get(&collection(KEYS))).await.expect(200);
    stage.create(client.post(&collection(KEYS)).json(&stage.secrets().object("lived"))).await;
    for spec in [
        json!({ "displayName": "changed" }),
        stage.secrets().object("lived")["spec"].clone(),
        json!({ "disabled": true }),
        json!({ "disabled": false }),
    ] {
        let patch = json!({ "spec": spec });
        stage.ask(client.patch(&key_path("lived"), "merge-patch", &patch)).await.expect(200);
    }
    start["metadata"]["resourceVersion"].clone()
}

async fn read_every_way(stage: &Stage, client: &Client, paths: &[String]) {
    for path in paths {
        for form in FORMS {
            let reply = stage.ask(client.get(path).accept(form)).await;
            assert!([200, 406].contains(&reply.status), "{path} {form}: {}", reply.text());
            let joint = if path.contains('?') { '&' } else { '?' };
            let with_objects = format!("{path}{joint}includeObject=Object");
            stage.ask(client.get(&with_objects).accept(form)).await;
        }
    }
}

/// Reads what a watch tells until it ends by itself.
async fn watch(stage: &Stage, client: &Client, query: &str, form: &str) -> usize {
    let path = format!("{}?watch=true&timeoutSeconds=1{query}", collection(KEYS));
    let Ok(mut lines) = client.get(&path).accept(form).try_stream().await else { return 0 };
    let mut told = 0;
    while let Some(line) = lines.next().await.unwrap() {
        stage.refuse(&format!("a watch {query} as {form}"), line.as_bytes());
        told += usize::from(line.contains("lived"));
    }
    told
}

#[tokio::test]
async fn nothing_that_is_read_tells_a_secret() {
    let stage = Stage::new(21).await;
    let [client, _] = stage.clients();
    let start = live(&stage, &client).await;
    let start = start.as_str().unwrap();
    let now = stage.ask(client.get(&key_path("lived"))).await.expect(200);
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
    read_every_way(&stage, &client, &paths).await;
    let since = format!("&resourceVersion={start}");
    let from_now = "&includeObject=Object&resourceVersion=0";
    let queries = [since.as_str(), "", INITIAL, from_now];
    let watches = queries.iter().flat_map(|query| FORMS.map(|form| (query, form)));
    join_all(watches.map(|(query, form)| watch(&stage, &client, query, form))).await;
    let told = watch(&stage, &client, &since, FORMS[0]).await;
    assert_eq!(told, 5, "all of its life is told again");
    stage.end().await;
}

#[tokio::test]
async fn self_and_deletions_tell_no_secret() {
    let stage = Stage::new(22).await;
    let [client, _] = stage.clients();
    let ada = user(&client, "ada").await;
    for name in ["held", "gone"] {
        let mut object = stage.secrets().object(name);
        object["spec"]["user"] = json!("ada");
        stage.create(client.post(&collection(KEYS)).json(&object)).await;
    }
    let ask = json!({ "spec": { "accessKey": "held" } });
    for who in [&client, &ada] {
        for form in FORMS {
            let path = collection("selves");
            stage.ask(who.post(&path).json(&ask).accept(form)).await;
            stage.ask(who.post(&path).json(&json!({})).accept(form)).await;
        }
    }
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    stage.ask(client.patch(&key_path("held"), "merge-patch", &held)).await.expect(200);
    stage.ask(client.delete(&key_path("held"))).await.expect(200);
    let reply = stage.ask(ada.delete(&collection(KEYS))).await;
    assert!(reply.text().contains("gone"), "the answer shows what went: {}", reply.text());
    let free = json!({ "metadata": { "finalizers": null } });
    stage.ask(client.patch(&key_path("held"), "merge-patch", &free)).await.expect(200);
    stage.end().await;
}
