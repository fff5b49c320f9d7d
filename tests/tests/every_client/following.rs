//! An informer by kube-rs, and a watch by the newest kubectl, follow 100,000 changes that 200 connections make, while
//! the server is restarted five times. `POSTERN_TEST_CHANGES` says how many changes instead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Config};
use postern_tests::http::{Client, Connection};
use postern_tests::kubectl::Kubectl;
use postern_tests::objects::{secret_path, secrets, version_of};
use postern_tests::{Home, Relay, Server, Setup, wait};
use serde_json::{Value, json};

use crate::program::Program;

const WRITERS: usize = 200;
const RESTARTS: usize = 5;

/// One event: the version, the object's number, and which of the object's changes it is.
type Seen = (u64, usize, usize);

/// The events that one watcher has seen, in order.
type Log = Arc<Mutex<Vec<Seen>>>;

fn seen(object: &Value) -> Seen {
    let name = object["metadata"]["name"].as_str().unwrap();
    let change = object["spec"]["displayName"].as_str().unwrap();
    (version_of(object), name[1..].parse().unwrap(), change.parse().unwrap())
}

/// Where the server is now, and how many changes were made.
struct Scene {
    client: Mutex<Client>,
    made: AtomicUsize,
}

/// Makes one change of an object on an open connection. Returns whether it is made: a server that ends or has too much
/// to do makes none.
async fn change(
    client: &Client,
    connection: &mut Connection,
    number: usize,
    change: usize,
) -> Result<bool, String> {
    let name = format!("w{number}");
    let spec = json!({ "displayName": change.to_string() });
    let reply = if change == 0 {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        client.post(&secrets("platform")).json(&object).try_send_on(connection).await?
    } else {
        let changes = json!({ "spec": spec });
        let one = secret_path(&name);
        client.patch(&one, "merge-patch", &changes).try_send_on(connection).await?
    };
    match (reply.status, change) {
        (201 | 409, 0) | (200, _) => Ok(true),
        (429 | 503 | 504, _) => Ok(false),
        _ => panic!("{}", reply.text()),
    }
}

/// One writer: it changes its own object again and again, on its own connection. If the connection
/// breaks, it repeats the change, which may have been made or not. A change without an effect is
/// not written.
async fn write(scene: Arc<Scene>, number: usize, changes: usize) {
    let mut connection: Option<Connection> = None;
    let mut next = 0;
    let mut failed = None;
    while next < changes {
        let client = scene.client.lock().unwrap().clone();
        let open = match &mut connection {
            Some(open) => Ok(open),
            None => client.connect().await.map(|new| connection.insert(new)),
        };
        let made = match open {
            Ok(open) => change(&client, open, number, next).await,
            Err(error) => Err(error),
        };
        if let Ok(true) = made {
            (next, failed) = (next + 1, None);
            scene.made.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if made.is_err() {
            connection = None;
        }
        let since = failed.get_or_insert_with(Instant::now);
        assert!(since.elapsed() < wait::DEADLINE, "change {next} of w{number}: {made:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// kube-rs' informer, over a relay that leads to the server at its current address.
async fn start_kube_rs(home: &Home, relay: &Relay) -> (Log, Arc<AtomicUsize>) {
    let file = Kubeconfig::read_from(home.kubeconfig()).unwrap();
    let mut config =
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let url = format!("https://127.0.0.1:{}/kubernetes/management", relay.port());
    config.cluster_url = url.parse().unwrap();
    let kind = GroupVersionKind::gvk("management.platform.sh", "v1", "SharedSecret");
    let resource = ApiResource::from_gvk_with_plural(&kind, "sharedsecrets");
    let client = kube::Client::try_from(config).unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client, "platform", &resource);
    let (log, lists) = (Log::default(), Arc::new(AtomicUsize::new(0)));
    let (shared, counted) = (Arc::clone(&log), Arc::clone(&lists));
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(watcher(api, watcher::Config::default()));
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Apply(object)) => {
                    let object = serde_json::to_value(&object).unwrap();
                    shared.lock().unwrap().push(seen(&object));
                }
                Ok(Event::InitDone) => {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {}
                // A broken connection, after which it goes on. Its own delays grow to a minute.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    (log, lists)
}

/// A watch by kubectl: when it ends, another one begins at the last version.
fn start_kubectl(server: &Server, mut version: u64) -> Log {
    let log = Log::default();
    let shared = Arc::clone(&log);
    let program = Program::new(Kubectl::program(), server);
    tokio::spawn(async move {
        loop {
            let path = "/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";
            let line = format!("get --raw {path}?watch=true&resourceVersion={version}");
            let mut watch = program.start(&line);
            while let Some(line) = watch.next().await {
                // The end of a connection can be within a line.
                let Ok(event) = serde_json::from_str::<Value>(&line) else { break };
                assert!(event["type"] != "ERROR", "{event}");
                let seen = seen(&event["object"]);
                version = seen.0;
                shared.lock().unwrap().push(seen);
            }
        }
    });
    log
}

/// Checks that a log has each change of each object once, in the order in which the server made them.
fn check(what: &str, log: &Log, changes: usize) {
    let log = log.lock().unwrap();
    let mut next = [0; WRITERS];
    let mut last = 0;
    for &(version, number, change) in log.iter() {
        assert!(version > last, "{what}: {version} after {last}");
        assert_eq!(change, next[number], "{what}: the next change of w{number}");
        (last, next[number]) = (version, change + 1);
    }
    assert_eq!(next, [changes; WRITERS], "{what}: nothing is missing");
}

fn wanted_changes() -> usize {
    let text = std::env::var("POSTERN_TEST_CHANGES").unwrap_or_else(|_| "100000".to_owned());
    text.parse::<usize>().unwrap() / WRITERS
}

#[tokio::test]
async fn heavy_watchers_see_100000_changes_once_and_in_order_across_five_restarts() {
    let changes = wanted_changes();
    let home = Home::new();
    let relay = Relay::new().await;
    let mut server = Setup::on(&home).start().await;
    relay.connect_to(&server);
    let list = server.client().get(&secrets("platform")).send().await.expect(200);
    let by_kubectl = start_kubectl(&server, version_of(&list));
    let (by_kube_rs, lists) = start_kube_rs(&home, &relay).await;
    wait::until("the first list", async || (lists.load(Ordering::Relaxed) == 1).then_some(()))
        .await;

    let started = Instant::now();
    let scene = Scene { client: Mutex::new(server.client()), made: AtomicUsize::new(0) };
    let scene = Arc::new(scene);
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        writers.spawn(write(Arc::clone(&scene), number, changes));
    }
    for restart in 1..=RESTARTS {
        // Some of the changes at a time, so that a slow machine is no failure.
        for part in 1..=20 {
            let made = changes * WRITERS * (20 * (restart - 1) + part) / (20 * (RESTARTS + 1));
            wait::until("some of the changes", async || {
                (scene.made.load(Ordering::Relaxed) >= made).then_some(())
            })
            .await;
        }
        relay.disconnect();
        if restart % 2 == 0 {
            server.kill();
        } else {
            server.stop().await;
        }
        server = Setup::on(&home).start().await;
        relay.connect_to(&server);
        *scene.client.lock().unwrap() = server.client();
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let written = started.elapsed();
    let list = server.client().get(&secrets("platform")).send().await.expect(200);
    let newest = list["items"].as_array().unwrap().iter().map(version_of).max();
    for log in [&by_kubectl, &by_kube_rs] {
        // A client that still gets events is not too slow.
        let (mut seen_until, mut count) = (None, 0);
        while seen_until != newest {
            (seen_until, count) = wait::until("a watcher to see more", async || {
                let log = log.lock().unwrap();
                (log.len() > count).then(|| (log.last().map(|seen| seen.0), log.len()))
            })
            .await;
        }
    }
    println!("written in {written:?}, seen in {:?}", started.elapsed());
    assert_eq!(lists.load(Ordering::Relaxed), 1, "the informer never had to list again");
    check("kubectl", &by_kubectl, changes);
    check("kube-rs", &by_kube_rs, changes);
    assert_eq!(*by_kubectl.lock().unwrap(), *by_kube_rs.lock().unwrap());
}
