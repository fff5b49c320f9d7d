//! Clients that send requests and do not read: the responses that wait for them are bounded, and
//! reset in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::objects::{collection, secret, secret_path, secrets};
use postern_tests::rights::{allow, rule};
use serde_json::json;
use tokio::task::JoinSet;

use crate::attacks::frames::{Frames, INITIAL_WINDOW_SIZE, Streams, request};
use crate::attacks::raw_http1::Wire;
use crate::attacks::scene::{KEYS, Scene, key_path, pass};
use crate::attacks::trial::{SLOWDOWN, hold};
use crate::attacks::victims::Victims;
use postern_tests::{Form, wait};

/// Requests on one connection over HTTP/2.
const STREAMS: u32 = 250;

/// Lists of nearly this many bytes each are left unread.
const LARGE_KEYS: usize = 200;

/// Bytes of the value of one secret that is watched many times.
const LARGE_SECRET_BYTES: usize = 900_000;

/// A request that is sent repeatedly on one connection.
#[derive(Clone)]
struct Asked {
    /// The client with the key of the first request. A valid key allows more connections.
    first: Client,
    /// The client with the key of all other requests.
    client: Client,
    path: String,
    accept: &'static str,
    /// Bytes that each answer has room for.
    window: u32,
}

impl Asked {
    /// Requests for lists of keys.
    fn lists(client: Client, accept: &'static str) -> Self {
        Self { first: client.clone(), client, path: collection(KEYS), accept, window: 0 }
    }
}

/// Sends requests on a connection that leaves no room for the bodies of the answers, or hardly any, and reads
/// nothing but the heads.
async fn without_window(asked: Asked, time: Duration) -> Streams {
    let Asked { first, client, path, accept, window } = asked;
    let settings = [(INITIAL_WINDOW_SIZE, window)];
    let Ok(mut frames) = Frames::open(&client, &settings).await else {
        return Streams { closed: true, ..Streams::default() };
    };
    if frames.send(&request(&first, 1, &path, accept)).await.is_err() {
        return Streams { closed: true, ..Streams::default() };
    }
    let all = (1..STREAMS).flat_map(|n| request(&client, 2 * n + 1, &path, accept));
    tokio::task::yield_now().await;
    // A connection that has been closed is seen by the next line.
    drop(frames.send(&all.collect::<Vec<u8>>()).await);
    frames.held(time).await
}

/// Checks that nothing waits any more for clients that left no room: a stream that was answered has
/// been reset, or its connection closed.
fn all_reset(scene: &Scene, connections: &[Streams]) {
    let pinned = connections.iter().filter(|one| !one.closed && one.resets < one.open);
    let pinned = pinned.count();
    let all = connections.len();
    eprintln!("{pinned} of {all} connections still wait to be read");
    if scene.form == Form::Full {
        assert_eq!(pinned, 0, "answers that made no progress for 30 s are reset");
    }
}

async fn many_without_window(asked: &Asked, count: usize, time: Duration) -> Vec<Streams> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        tasks.spawn(without_window(asked.clone(), time));
    }
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unauthenticated_client_that_leaves_no_room_for_refusals() {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let stranger = scene.attacker_http2("pst_nobody");
    let count = scene.form.pick(240, 800);
    let asked = Asked::lists(stranger, "application/json");
    let attack = many_without_window(&asked, count, scene.holding());
    let name = "250 unread refusals on each connection";
    let connections = hold(name, &scene, &victims, SLOWDOWN, attack).await;
    all_reset(&scene, &connections);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_behind_one_valid_key_that_are_not_read() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    let stranger = scene.attacker_http2("pst_nobody");
    let lists = Asked::lists(stranger, "application/json");
    let asked = Asked { first: scene.attacker_http2(&mallory), ..lists };
    let count = scene.form.pick(240, 800);
    let attack = many_without_window(&asked, count, scene.holding());
    let name = "one valid key and 249 unread refusals on each connection";
    let connections = hold(name, &scene, &victims, SLOWDOWN, attack).await;
    all_reset(&scene, &connections);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_in_yaml_that_are_not_read() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    let large = secret("large", &"x".repeat(LARGE_SECRET_BYTES));
    scene.admin.post(&secrets("platform")).json(&large).send().await.expect(201);
    let rules = json!([rule(&["sharedsecrets"], &["get", "list", "watch"])]);
    allow(&scene.admin, "watchers", None, rules, "platform:user:mallory").await;
    let client = scene.attacker_http2(&mallory);
    let path = format!("{}?watch=true", secrets("platform"));
    // Without any room nothing would be made.
    let asked = Asked { path, window: 1, ..Asked::lists(client, "application/yaml") };
    // The server makes the first event of a watch when earlier watches have made room. It resets
    // the waiting responses one after the other.
    let time = scene.form.pick(scene.holding(), 2 * scene.holding() + scene.holding() / 2);
    let attack = many_without_window(&asked, 4, time);
    let name = "1000 unread watches in YAML";
    let connections = hold(name, &scene, &victims, SLOWDOWN, attack).await;
    all_reset(&scene, &connections);
}

/// The record of a read says what left the server, also if the response was replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_a_read_that_is_rejected_for_want_of_room_has_no_values() {
    // One owner has an eighth of the slots: 64 reads of 1.2 MB need more than the 48 MiB of an owner.
    let scene = Scene::start(&["--max-reads-in-flight=512"]).await;
    let mallory = scene.user("mallory").await;
    let large = secret("large", &"x".repeat(LARGE_SECRET_BYTES));
    scene.admin.post(&secrets("platform")).json(&large).send().await.expect(201);
    let rules = json!([rule(&["sharedsecrets"], &["get"])]);
    allow(&scene.admin, "readers", None, rules, "platform:user:mallory").await;
    let lists = Asked::lists(scene.attacker_http2(&mallory), "application/json");
    let asked = Asked { path: secret_path("large"), window: 1, ..lists };
    let held = without_window(asked, scene.holding()).await;
    assert!(held.answers.contains(&429), "{:?}", held.answers);
    let path = secret_path("large");
    let said = wait::until("the record of a rejected read", async || {
        let records = scene.server.home().records();
        let reads = records.iter().filter(|one| one["verb"] == "get" && one["requestURI"] == path);
        let ended = reads.filter(|one| one["stage"] == "ResponseComplete");
        let said = ended.map(|one| {
            let values = one["annotations"]["platform.sh/values"].as_str().unwrap_or("-");
            (one["responseStatus"]["code"].as_u64().unwrap_or_default(), values.to_owned())
        });
        let said: BTreeSet<(u64, String)> = said.collect();
        said.iter().any(|(code, _)| *code == 429).then_some(said)
    })
    .await;
    let wanted = [(200, "true".to_owned()), (429, "false".to_owned())];
    assert_eq!(said, BTreeSet::from(wanted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_on_one_connection_that_are_not_read() {
    attack_one_connection("250 unread lists on one connection", "application/json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_in_yaml_on_one_connection_that_are_not_read() {
    attack_one_connection("the same in YAML", "application/yaml").await;
}

async fn attack_one_connection(name: &str, accept: &'static str) {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    scene.large_keys("mallory", LARGE_KEYS).await;
    let client = scene.attacker_http2(&mallory);
    let asked = Asked::lists(client, accept);
    let attack = many_without_window(&asked, 1, scene.holding());
    let connections = hold(name, &scene, &victims, SLOWDOWN, attack).await;
    all_reset(&scene, &connections);
}

/// Asks for a list and does not read it for a while. Returns the connection, if the server let it in.
async fn unread(client: Client, query: &str, accept: &str, time: Duration) -> Option<Wire> {
    let request = format!(
        "GET {}{query} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: {accept}\r\n\r\n",
        collection(KEYS),
        client.address(),
        client.token(),
    );
    let mut wire = Wire::open(&client).await.ok()?;
    wire.send(request.as_bytes()).await.ok()?;
    pass(time).await;
    Some(wire)
}

/// Checks that lists without a reader are not sent as a whole any more.
async fn all_cut_off(wires: Vec<Wire>) {
    let mut whole = 0;
    for mut wire in wires {
        whole += usize::from(wire.answer().await.is_ok_and(|answer| answer.status == 200));
    }
    // A Table has only some bytes of each key: it fits into the kernel's buffers.
    assert!(whole <= 20, "lists that made no progress for 30 s are reset: {whole} were not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_in_every_format_that_are_not_read() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    scene.large_keys("mallory", LARGE_KEYS).await;
    let client = scene.attacker(&mallory);
    let formats = [
        ("", "application/yaml"),
        ("", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ("?pretty=true", "application/json"),
    ];
    let attack = async {
        let mut tasks = JoinSet::new();
        for number in 0..60 {
            let (query, accept) = formats[number % formats.len()];
            tasks.spawn(unread(client.clone(), query, accept, scene.holding()));
        }
        tasks.join_all().await
    };
    let name = "60 unread lists: YAML, Table, pretty";
    let wires = hold(name, &scene, &victims, SLOWDOWN, attack).await;
    if scene.form == Form::Full {
        all_cut_off(wires.into_iter().flatten().collect()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_a_pipeline_that_nobody_reads() {
    let scene = Scene::start(&[]).await;
    let (victims, mallory) = (Victims::new(&scene).await, scene.user("mallory").await);
    let client = scene.attacker(&mallory);
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {mallory}\r\n\r\n",
        key_path("mallory-key"),
        client.address(),
    );
    let pipeline = request.repeat(200);
    let attack = async {
        let mut tasks = JoinSet::new();
        for _ in 0..50 {
            let (client, pipeline) = (client.clone(), pipeline.clone());
            tasks.spawn(async move {
                let Ok(mut wire) = Wire::open(&client).await else { return };
                while wire.send(pipeline.as_bytes()).await.is_ok() {}
            });
        }
        // Clients that can still send after that are stopped with their tasks.
        pass(scene.lasting()).await;
    };
    hold("50 pipelines without a reader", &scene, &victims, SLOWDOWN, attack).await;
}
