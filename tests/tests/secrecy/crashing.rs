//! Crashes while keys are created: acknowledged keys work, all others are complete or absent.

use postern_tests::http::Client;
use postern_tests::{Form, Home, Random, Server, Setup, wait};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::secrecy::canary;
use crate::secrecy::leak_check::{KEYS, collection, key_path};

const WRITERS: usize = 8;
/// Keys in one round, before the server is killed.
const KEYS_MAX: u64 = 60;

/// A key that a client tried to create.
#[derive(Clone)]
struct Attempt {
    name: String,
    value: String,
    acknowledged: bool,
}

/// Creates keys until the connection breaks.
async fn write(client: Client, prefix: String, seed: u64, notes: UnboundedSender<Attempt>) {
    let mut random = Random::new(seed);
    let Ok(mut connection) = client.connect().await else { return };
    for number in 0.. {
        let (name, value) = (format!("{prefix}-{number}"), canary::value(&mut random));
        let object = json!({ "metadata": { "name": name }, "spec": { "key": value } });
        let path = collection(KEYS);
        let request = client.post(&path).json(&object);
        let reply = request.try_send_on(&mut connection).await;
        let acknowledged = reply.is_ok();
        if let Ok(reply) = reply {
            assert_eq!(reply.expect(201)["spec"]["key"], value);
        }
        notes.send(Attempt { name, value, acknowledged }).unwrap();
        if !acknowledged {
            return;
        }
    }
}

/// Creates keys until the server is killed, and returns all attempts.
async fn round(server: Server, number: usize, random: &mut Random) -> Vec<Attempt> {
    let (notes, mut reports) = unbounded_channel();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let prefix = format!("r{number}-w{writer}");
        writers.spawn(write(server.client(), prefix, random.draw(), notes.clone()));
    }
    drop(notes);
    let mut attempts = Vec::new();
    for _ in 0..random.below(KEYS_MAX) {
        let report = wait::within("a key to be made", reports.recv()).await;
        attempts.push(report.expect("the writers continue until the server is killed"));
    }
    server.kill();
    writers.join_all().await;
    while let Some(report) = reports.recv().await {
        attempts.push(report);
    }
    attempts
}

async fn works(client: &Client, value: &str) -> bool {
    client.with_token(value).get(&collection("selves/me")).send().await.status == 200
}

/// Checks that the object and all side records of a key are there, or none of them.
async fn check(client: &Client, key: &Attempt) {
    let Attempt { name, value, acknowledged } = key;
    let there = client.get(&key_path(name)).send().await.status == 200;
    assert!(there || !acknowledged, "{name} was acknowledged and is lost");
    assert_eq!(works(client, value).await, there, "{name}: the object and its digest");
    if *acknowledged {
        return;
    }
    // A record that is left would prevent a new key with the same name or the same value.
    if there {
        client.delete(&key_path(name)).send().await.expect(200);
        assert!(!works(client, value).await, "{name} is deleted");
    }
    let object = json!({ "metadata": { "name": name }, "spec": { "key": value } });
    client.post(&collection(KEYS)).json(&object).send().await.expect(201);
    assert!(works(client, value).await, "{name} is created again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_a_key_is_created_completely_or_not_at_all() {
    let home = Home::new();
    let mut random = Random::new(20_260_102);
    let mut acknowledged: Vec<Attempt> = Vec::new();
    let rounds = Form::of_this_run().pick(4, 12);
    for number in 0..rounds {
        let server = Setup::on(&home).start().await;
        let attempts = round(server, number, &mut random).await;
        let server = Setup::on(&home).start().await;
        for key in &attempts {
            check(&server.client(), key).await;
        }
        acknowledged.extend(attempts);
        server.kill();
    }
    assert!(acknowledged.len() > rounds * WRITERS, "only {} keys", acknowledged.len());
    let server = Setup::on(&home).start().await;
    for key in &acknowledged {
        assert!(works(&server.client(), &key.value).await, "{} works to the end", key.name);
    }
}
