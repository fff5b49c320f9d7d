//! Requests of an ordinary user that are small to send and long to serve: quadratic work, large
//! bodies, and lists of many large objects.

use std::fmt::Write as _;

use bytes::Bytes;
use postern_tests::http::{Client, Request};
use postern_tests::objects::collection;
use serde_json::json;
use tokio::task::JoinSet;

use crate::attacks::load::{Load, hammer};
use crate::attacks::scene::{KEYS, Scene, key_path};
use crate::attacks::trial::{SLOWDOWN, hold};
use crate::attacks::victims::Victims;

/// The largest body that the server reads, less some bytes.
const LARGE_BYTES: usize = 3 * 1024 * 1024 - 1024;

/// Where an ordinary user can send bodies of any content, and nothing gets stored.
fn places() -> [String; 2] {
    [format!("{}?dryRun=All", collection(KEYS)), collection("selves")]
}

/// Sends each body to both places at once, over so many connections each.
async fn send_all(scene: &Scene, client: &Client, each: usize, kind: &str, bodies: &[Bytes]) {
    let load = Load { connections: each, streams: 1, lasting: scene.lasting() };
    let mut senders = JoinSet::new();
    for body in bodies {
        for path in places() {
            let (client, kind, body) = (client.clone(), kind.to_owned(), body.clone());
            senders.spawn(async move {
                hammer(&client, load, move |client| client.post(&path).body(&kind, body.clone()))
                    .await
            });
        }
    }
    senders.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_owner_references() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    let client = scene.attacker(&mallory);
    let references: Vec<_> = (0..20_000).map(|n| json!({ "uid": format!("{n:x}") })).collect();
    let body = json!({
        "metadata": { "name": "x", "ownerReferences": references },
        "spec": { "user": "mallory" },
    });
    let body = [Bytes::from(body.to_string())];
    let attack = send_all(&scene, &client, 2, "application/json", &body);
    hold("20,000 owner references", &scene, &victims, SLOWDOWN, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_at_the_front_of_a_long_list() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    let client = scene.attacker(&mallory);
    let list = vec![0; 190_000];
    let mut operations = vec![json!({ "op": "add", "path": "/spec/groups", "value": list })];
    for number in 0..9_999 {
        operations.push(match number % 3 {
            0 => json!({ "op": "add", "path": "/spec/groups/0", "value": 1 }),
            1 => json!({ "op": "remove", "path": "/spec/groups/0" }),
            _ => json!({ "op": "move", "from": "/spec/groups/0", "path": "/spec/groups/1" }),
        });
    }
    let patch = serde_json::Value::from(operations);
    let load = Load { connections: 4, streams: 1, lasting: scene.lasting() };
    let attack = hammer(&client, load, move |client| {
        client.patch(&format!("{}?dryRun=All", key_path("mallory-key")), "json-patch", &patch)
    });
    hold("JSON Patch at the front", &scene, &victims, SLOWDOWN, attack).await;
}

/// An alias for a list that is itself made of aliases, and so on.
fn yaml_of_aliases() -> String {
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 10].join(",");
        writeln!(text, "a{level}: &a{level} [{below}]").expect("text can be written");
    }
    while text.len() < LARGE_BYTES {
        text.push_str("- *a0\n");
    }
    text
}

fn yaml_of_depth() -> String {
    let depth = LARGE_BYTES / 2;
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Indented one step further on each line.
fn yaml_of_blocks() -> String {
    let mut text = String::new();
    for depth in 0.. {
        if text.len() > LARGE_BYTES - 4_000 {
            return text;
        }
        writeln!(text, "{}a:", " ".repeat(depth)).expect("text can be written");
    }
    text
}

fn yaml_of_scalars() -> String {
    format!("spec: {{groups: [{}]}}", "a, ".repeat(LARGE_BYTES / 3 - 20))
}

fn yaml_of_fields() -> String {
    let mut text = "metadata:\n  annotations:\n".to_owned();
    let mut number = 0;
    while text.len() < LARGE_BYTES {
        writeln!(text, "    a{number:x}: b").expect("text can be written");
        number += 1;
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_yaml_bodies() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    let client = scene.attacker(&mallory);
    let bodies =
        [yaml_of_aliases(), yaml_of_depth(), yaml_of_blocks(), yaml_of_scalars(), yaml_of_fields()];
    let bodies = bodies.map(Bytes::from);
    let attack = send_all(&scene, &client, 2, "application/yaml", &bodies);
    hold("YAML bodies of 3 MiB", &scene, &victims, SLOWDOWN, attack).await;
}

/// JSON bodies with many, deep, or wide values.
fn json_bodies() -> [String; 4] {
    let groups = format!(r#"{{"spec":{{"groups":[{}"a"]}}}}"#, r#""a","#.repeat(LARGE_BYTES / 4));
    let lists = format!("[{}[]]", "[],".repeat(LARGE_BYTES / 3 - 4));
    let numbers = format!(r#"{{"spec":[{}0]}}"#, "0,".repeat(LARGE_BYTES / 2 - 20));
    let mut fields = r#"{"metadata":{"annotations":{"#.to_owned();
    let mut number = 0;
    while fields.len() < LARGE_BYTES {
        write!(fields, r#""{number:x}":"","#).expect("text can be written");
        number += 1;
    }
    fields.push_str(r#""z":""}}}"#);
    [groups, lists, numbers, fields]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_json_bodies() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    let client = scene.attacker(&mallory);
    let bodies = json_bodies().map(Bytes::from);
    let attack = send_all(&scene, &client, 8, "application/json", &bodies);
    hold("64 JSON bodies of 3 MiB", &scene, &victims, SLOWDOWN, attack).await;
}

/// A list, in the way that is asked for by `accept`.
fn list<'a>(client: &'a Client, query: &str, accept: &str) -> Request<'a> {
    client.get(&format!("{}{query}", collection(KEYS))).accept(accept)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_lists() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    scene.large_keys("mallory", scene.form.pick(100, 200)).await;
    let client = scene.attacker(&mallory);
    let load = Load { connections: 8, streams: 1, lasting: scene.lasting() };
    let attack = async {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let all = tokio::join!(
            hammer(&client, load, |client| list(client, "", "application/json")),
            hammer(&client, load, |client| list(client, "?pretty=true", "application/json")),
            hammer(&client, load, |client| list(client, "", "application/yaml")),
            hammer(&client, load, move |client| list(client, "", table)),
        );
        drop(all);
    };
    hold("32 large lists at once", &scene, &victims, SLOWDOWN, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_lists_among_large_keys_of_others() {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let mallory = scene.user("mallory").await;
    scene.user("owner").await;
    scene.large_keys("owner", scene.form.pick(200, 900)).await;
    let client = scene.attacker(&mallory);
    let load = Load { connections: 16, streams: 1, lasting: scene.lasting() };
    let attack = hammer(&client, load, |client| list(client, "?limit=1", "application/json"));
    let statuses = hold("?limit=1 among keys of others", &scene, &victims, SLOWDOWN, attack).await;
    assert!(statuses.contains_key(&200), "no list was answered: {statuses:?}");
}
