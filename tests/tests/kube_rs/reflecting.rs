//! Reflectors: a controller's cache, filled by lists and by both kinds of watches.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::StreamExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, reflector as reflect};
use kube::{Api, ResourceExt as _};
use postern_tests::{Server, wait};
use serde_json::json;

use crate::kube_rs::setup::{client, display_name, object, secrets, shared_secret};

fn contents(store: &Store<DynamicObject>) -> BTreeMap<String, String> {
    store
        .state()
        .iter()
        .map(|object| (object.name_any(), display_name(object).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_reflector_has_the_same_objects_as_the_server() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = Server::start().await;
        let client = client(server.home()).await;
        let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
        for number in 0..20 {
            let object = object(&resource, &format!("old{number}"), "first");
            api.create(&PostParams::default(), &object).await.unwrap();
        }
        let writer = reflector::store::Writer::new(resource.clone());
        let store = writer.as_reader();
        let stream = reflect(writer, watcher(api.clone(), config.page_size(7))).touched_objects();
        let following = tokio::spawn(async move {
            let mut stream = pin!(stream);
            while let Some(event) = stream.next().await {
                event.expect("a watch without failures");
            }
        });
        wait::within("the first list", store.wait_until_ready()).await.unwrap();
        assert_eq!(contents(&store).len(), 20);

        let mut expected = contents(&store);
        for number in 0..20 {
            let name = format!("old{number}");
            if number % 2 == 0 {
                let patch = Patch::Merge(json!({"spec": {"displayName": "second"}}));
                api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
                expected.insert(name, "second".into());
            } else {
                api.delete(&name, &DeleteParams::default()).await.unwrap();
                expected.remove(&name);
            }
        }
        api.create(&PostParams::default(), &object(&resource, "new", "x")).await.unwrap();
        expected.insert("new".into(), "x".into());
        wait::until("the reflector to have seen it all", async || {
            (contents(&store) == expected).then_some(())
        })
        .await;
        following.abort();
    }
}

#[tokio::test]
async fn metadata_is_watched_alone() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    api.create(&PostParams::default(), &object(&resource, "s1", "v")).await.unwrap();
    let metadata: Api<PartialObjectMeta<DynamicObject>> =
        Api::namespaced_with(client, "platform", &resource);
    let config = watcher::Config::default().streaming_lists();
    let mut stream = pin!(watcher(metadata, config));
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = wait::within("an event", stream.next()).await.unwrap().unwrap();
        seen.push(event.to_string());
    }
    assert_eq!(seen, ["Init", "InitApply(s1)", "InitDone"]);
}
