//! Watchers across restarts, lost connections and compaction: no event is missed or repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams,
};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use postern_tests::cli::CliUser;
use postern_tests::{Home, Relay, Server, Setup, wait};
use serde_json::json;

use crate::kube_rs::setup::{client, client_over, display_name, object, secrets, shared_secret};

/// The events that a watcher received, in order, and the cache that they lead to.
#[derive(Default)]
struct Seen {
    /// `name=state@version` for each change after the first list.
    changes: Vec<String>,
    lists: usize,
    cache: BTreeMap<String, String>,
    relisted: BTreeMap<String, String>,
    failures: Vec<String>,
}

impl Seen {
    fn take(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.relisted.clear(),
            Ok(Event::InitApply(object)) => {
                self.relisted.insert(object.name_any(), display_name(&object).to_owned());
            }
            Ok(Event::InitDone) => {
                self.lists += 1;
                self.cache = std::mem::take(&mut self.relisted);
            }
            Ok(Event::Apply(object)) => {
                self.changes.push(entry(&object, display_name(&object)));
                self.cache.insert(object.name_any(), display_name(&object).to_owned());
            }
            Ok(Event::Delete(object)) => {
                self.changes.push(entry(&object, "deleted"));
                self.cache.remove(&object.name_any());
            }
            Err(error) => self.failures.push(error.to_string()),
        }
    }
}

fn entry(object: &DynamicObject, state: &str) -> String {
    let version = object.resource_version().expect("a version");
    // The response to a delete does not contain the version, so it is not compared.
    if state == "deleted" {
        format!("{} deleted", object.name_any())
    } else {
        format!("{}={state}@{version}", object.name_any())
    }
}

/// Watches in the background until the test ends.
fn follow(api: Api<DynamicObject>, config: watcher::Config) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(watcher(api, config).default_backoff());
        while let Some(event) = stream.next().await {
            shared.lock().unwrap().take(event);
        }
    });
    seen
}

/// Does a few writes of every kind, and adds the expected events to `log` in order.
async fn write(client: &Client, round: usize, log: &mut Vec<String>) {
    let (api, resource) = (secrets(client).await, shared_secret(client).await);
    for number in 0..6 {
        let name = format!("r{round}-{number}");
        let made =
            api.create(&PostParams::default(), &object(&resource, &name, "new")).await.unwrap();
        log.push(entry(&made, "new"));
        let patch = Patch::Merge(json!({"spec": {"displayName": "changed"}}));
        let changed = api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        log.push(entry(&changed, "changed"));
        if number % 2 == 0 {
            api.delete(&name, &DeleteParams::default()).await.unwrap();
            log.push(format!("{name} deleted"));
        }
    }
}

async fn listed(client: &Client) -> BTreeMap<String, String> {
    let list = secrets(client).await.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(|object| (object.name_any(), display_name(object).to_owned())).collect()
}

fn configurations() -> [watcher::Config; 2] {
    [watcher::Config::default(), watcher::Config::default().streaming_lists()]
}

#[tokio::test]
async fn heavy_watchers_resume_across_restarts() {
    let home = Home::new();
    let relay = Relay::new().await;
    let mut server = Setup::on(&home).start().await;
    relay.connect_to(&server);
    let watched = secrets(&client_over(&home, &relay).await).await;
    let watchers = configurations().map(|config| follow(watched.clone(), config));
    wait::until("the first lists", async || {
        watchers.iter().all(|seen| seen.lock().unwrap().lists == 1).then_some(())
    })
    .await;

    let mut log = Vec::new();
    for round in 0..6 {
        write(&client(&home).await, round, &mut log).await;
        relay.disconnect();
        if round % 2 == 0 {
            server.stop().await;
        } else {
            server.kill();
        }
        server = Setup::on(&home).start().await;
        // Some changes happen while no watcher is connected.
        write(&client(&home).await, 100 + round, &mut log).await;
        relay.connect_to(&server);
    }
    for seen in &watchers {
        wait::until("a watcher to have seen the last change", async || {
            (seen.lock().unwrap().changes.len() >= log.len()).then_some(())
        })
        .await;
        let seen = seen.lock().unwrap();
        assert_eq!(seen.changes, log);
        assert_eq!(seen.lists, 1, "no watcher had to list again: {:?}", seen.failures);
    }
}

#[tokio::test]
async fn heavy_compaction_leads_to_a_new_list_and_the_right_cache() {
    let home = Home::new();
    let relay = Relay::new().await;
    let server: Server = Setup::on(&home).argument("--history").argument("1s").start().await;
    relay.connect_to(&server);
    let direct = client(&home).await;
    let watched = secrets(&client_over(&home, &relay).await).await;
    let watchers = configurations().map(|config| follow(watched.clone(), config));
    let mut log = Vec::new();
    write(&direct, 0, &mut log).await;
    wait::until("the watchers to follow", async || {
        let expected = listed(&direct).await;
        watchers.iter().all(|seen| seen.lock().unwrap().cache == expected).then_some(())
    })
    .await;
    let old = secrets(&direct).await.list(&ListParams::default()).await.unwrap();
    let old = old.metadata.resource_version.unwrap();

    relay.disconnect();
    write(&direct, 1, &mut log).await;
    let api = secrets(&direct).await;
    wait::until("history to be compacted", async || {
        write(&direct, 2, &mut Vec::new()).await;
        for object in api.list(&ListParams::default()).await.unwrap().items {
            if object.name_any().starts_with("r2-") {
                api.delete(&object.name_any(), &DeleteParams::default()).await.unwrap();
            }
        }
        let mut events = api.watch(&WatchParams::default(), &old).await.unwrap().boxed();
        match wait::within("the first event", events.next()).await.unwrap() {
            Ok(kube::api::WatchEvent::Error(status)) => {
                assert_eq!(status.code, 410);
                assert_eq!(status.reason, "Expired");
                Some(())
            }
            _ => None,
        }
    })
    .await;
    relay.connect_to(&server);
    for seen in &watchers {
        wait::until("a watcher to list again", async || {
            (seen.lock().unwrap().lists == 2).then_some(())
        })
        .await;
    }
    write(&direct, 3, &mut log).await;
    let expected = listed(&direct).await;
    for seen in &watchers {
        wait::until("a watcher to have the right cache", async || {
            (seen.lock().unwrap().cache == expected).then_some(())
        })
        .await;
        let seen = seen.lock().unwrap();
        assert_eq!(seen.lists, 2, "{:?}", seen.failures);
        let mut changes = seen.changes.clone();
        changes.sort();
        changes.dedup();
        assert_eq!(changes.len(), seen.changes.len(), "no event is repeated");
    }
}

/// Watches over a restore. The lost server and the restored one each make changes that only that
/// server has. Clients ask both to continue from the same versions.
#[tokio::test]
async fn heavy_a_restore_leads_to_a_new_list_and_the_right_cache() {
    let home = Home::new();
    let relay = Relay::new().await;
    let server = Setup::on(&home).start().await;
    relay.connect_to(&server);
    let watched = secrets(&client_over(&home, &relay).await).await;
    let watchers = configurations().map(|config| follow(watched.clone(), config));
    let follow_all = async |expected: &BTreeMap<String, String>, lists: usize| {
        for seen in &watchers {
            wait::until("a watcher to have the right cache", async || {
                let seen = seen.lock().unwrap();
                (seen.lists == lists && seen.cache == *expected).then_some(())
            })
            .await;
        }
    };
    let direct = client(&home).await;
    write(&direct, 0, &mut Vec::new()).await;
    let backup = home.path().join("backup");
    let backup = backup.to_str().unwrap();
    let operator = CliUser::new().with("POSTERN_DATA_DIR", home.data().to_str().unwrap());
    operator.ok(&["storage", "backup", "--to", backup]).await;
    write(&direct, 1, &mut Vec::new()).await;
    secrets(&direct).await.delete("r0-1", &DeleteParams::default()).await.unwrap();
    follow_all(&listed(&direct).await, 1).await;

    relay.disconnect();
    server.kill();
    std::fs::remove_dir_all(home.data().join("db")).unwrap();
    operator.ok(&["storage", "restore", backup]).await;
    let server = Setup::on(&home).start().await;
    let direct = client(&home).await;
    write(&direct, 2, &mut Vec::new()).await;
    relay.connect_to(&server);
    follow_all(&listed(&direct).await, 2).await;
    write(&direct, 3, &mut Vec::new()).await;
    let expected = listed(&direct).await;
    follow_all(&expected, 2).await;
    assert!(expected.contains_key("r0-1") && !expected.contains_key("r1-1"), "{expected:?}");
}
