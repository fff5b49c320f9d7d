//! One owner that sends many more requests than its share, while twenty others send few.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::objects::{collection, make};
use serde_json::json;
use tokio::task::JoinSet;

use crate::attacks::load::{Load, hammer};
use crate::attacks::raw_http1::{Framing, Wire, head};
use crate::attacks::scene::{KEYS, Scene, key_path, pass};
use crate::attacks::trial::{SLOWDOWN, hold};
use crate::attacks::victims::Victims;

/// The others, each with one read and one write in a period.
const OTHERS: usize = 20;
const PERIOD: Duration = Duration::from_millis(200);

/// The highest slowdown of the others while one owner sends ten times the capacity of the server.
const SLOWDOWN_BY_ONE_OWNER: f64 = 2.0;

/// Places for reads and for writes: few, so that few clients are ten times as many.
const FEW_READS: &str = "--max-reads-in-flight=40";
const FEW_WRITES: &str = "--max-writes-in-flight=20";

/// A body nearly as large as one may be.
const LARGE_BODY_BYTES: usize = 3 * 1024 * 1024 - 1024;

/// The time between two bytes of a slow body.
const BETWEEN_BYTES: Duration = Duration::from_millis(300);

/// Announces a body and sends a byte of it now and then.
async fn slow_write(client: Client) {
    let path = key_path("mallory-key");
    let body = [b' '; 1000];
    let kind = "application/merge-patch+json";
    let head = head(&client, "PATCH", &path, kind, Framing::ContentLength, &body);
    let Ok(mut wire) = Wire::open(&client).await else { return pass(BETWEEN_BYTES).await };
    if wire.send(&head).await.is_err() {
        return;
    }
    while wire.send(b" ").await.is_ok() {
        pass(BETWEEN_BYTES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_take_no_places_of_others() {
    let scene = Scene::start(&[FEW_WRITES]).await;
    let victims = Victims::of(&scene, OTHERS, PERIOD).await;
    let client = scene.attacker(&scene.user("mallory").await);
    let attack = async {
        let mut tasks = JoinSet::new();
        for _ in 0..200 {
            tasks.spawn(slow_write(client.clone()));
        }
        pass(scene.lasting()).await;
    };
    hold("200 slow bodies of one owner", &scene, &victims, SLOWDOWN, attack).await;
}

/// Sends all of a large body but its end, and waits for the server's response.
async fn unfinished_body(client: Client) {
    let body = vec![b' '; LARGE_BODY_BYTES];
    let kind = "application/json";
    let head = head(&client, "POST", &collection(KEYS), kind, Framing::ContentLength, &body);
    let Ok(mut wire) = Wire::open(&client).await else { return };
    for part in [&head, &body[1..]] {
        if wire.send(part).await.is_err() {
            return;
        }
    }
    drop(wire.answer().await);
}

/// The bodies that are there in part are bounded, too, however many connections bring them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_that_do_not_end() {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let client = scene.attacker(&scene.user("mallory").await);
    let attack = async {
        let mut tasks = JoinSet::new();
        for _ in 0..200 {
            tasks.spawn(unfinished_body(client.clone()));
        }
        pass(scene.lasting()).await;
    };
    hold("200 bodies without their end", &scene, &victims, SLOWDOWN, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_owner_with_ten_times_what_can_be_carried() {
    // The default limits in the full form: 64 reads and as many writes at once.
    let few = [FEW_READS, FEW_WRITES];
    let form = postern_tests::Form::of_figures();
    let scene = Scene::start(form.pick(&few[..], &[])).await;
    let victims = Victims::of(&scene, OTHERS, PERIOD).await;
    let client = scene.attacker_http2(&scene.user("mallory").await);
    for number in 0..KEYS_OF_MALLORY {
        let name = format!("mallory-{number}");
        make(&scene.admin, KEYS, &name, json!({ "user": "mallory" })).await;
    }
    let load = |connections, streams| Load { connections, streams, lasting: scene.lasting() };
    let (reads, writes) = form.pick((load(4, 100), load(2, 100)), (load(8, 80), load(8, 80)));
    let number = Arc::new(AtomicUsize::new(0));
    let attack = async {
        let both = tokio::join!(
            hammer(&client, reads, |client| client.get(&collection(KEYS))),
            hammer(&client, writes, move |client| {
                let number = number.fetch_add(1, Ordering::Relaxed);
                let key = key_path(&format!("mallory-{}", number % KEYS_OF_MALLORY));
                let change = json!({ "metadata": { "annotations": { "n": number.to_string() } } });
                client.patch(&key, "merge-patch", &change)
            }),
        );
        drop(both);
    };
    let name = "one owner, ten times what can be carried";
    hold(name, &scene, &victims, SLOWDOWN_BY_ONE_OWNER, attack).await;
}

/// Keys that the one owner changes: changes of one object wait for each other.
const KEYS_OF_MALLORY: usize = 16;
