//! Crashes: many writers, SIGKILL at any moment, again and again on the same directory.
//!
//! No acknowledged write may be lost, and a watcher that resumes where it was disconnected must get
//! every change exactly once.

use std::time::Duration;

use postern_tests::http::{Client, Connection, Request};
use postern_tests::objects::{name_of, secret, secret_path, secrets, version_of};
use postern_tests::watching::Event;
use postern_tests::{Form, Home, Random, Server, Setup, wait};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::process::ledger::{Attempt, Ledger, Outcome};

const SEED: u64 = 20_260_101;
const WRITERS: usize = 16;
const NAMES_PER_WRITER: u64 = 3;
/// Writes in one round, before the server is killed.
const WRITES_MAX: u64 = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_nothing_acknowledged_is_lost() {
    let home = Home::new();
    let mut random = Random::new(SEED);
    let mut ledger = Ledger::default();
    let mut events: Vec<Event> = Vec::new();
    let server = Setup::on(&home).start().await;
    let start = version_of(&list(&server).await);
    server.kill();
    let rounds = Form::of_this_run().pick(10, 60);
    for round in 0..rounds {
        if random.below(6) == 0 {
            kill_while_starting(&home, &mut random).await;
        }
        let server = Setup::on(&home).start().await;
        ledger.compare(&list(&server).await);
        let resume = events.last().map_or(start, Event::version);
        let watching = tokio::spawn(watch(server.client(), resume));
        write_and_kill(server, round, &mut random, &mut ledger).await;
        events.extend(watching.await.unwrap());
    }
    let server = Setup::on(&home).start().await;
    let list = list(&server).await;
    ledger.compare(&list);
    let resume = events.last().map_or(start, Event::version);
    events.extend(catch_up(&server, resume).await);
    assert!(ledger.acknowledged() > rounds * 10, "only {} writes", ledger.acknowledged());
    ledger.check_events(&events, &list);
    let uninterrupted = catch_up(&server, start).await;
    assert_eq!(
        uninterrupted, events,
        "a watch with interruptions has the same events as one without"
    );
    server.stop().await;
}

async fn list(server: &Server) -> Value {
    server.client().get(&secrets("platform")).send().await.expect(200)
}

/// Kills the server while it starts.
async fn kill_while_starting(home: &Home, random: &mut Random) {
    let server = Setup::on(home).start_unready();
    tokio::time::sleep(Duration::from_millis(random.below(60))).await;
    server.kill();
}

/// Starts the writers, and kills the server at a random moment after a random number of
/// acknowledgements.
async fn write_and_kill(server: Server, round: usize, random: &mut Random, ledger: &mut Ledger) {
    let (attempts, mut reports) = unbounded_channel();
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let names = (0..NAMES_PER_WRITER).map(|name| format!("w{number}-{name}"));
        let writer = Writer {
            client: server.client(),
            objects: names.map(|name| (ledger.value(&name), name)).collect(),
            random: Random::new(random.draw()),
            prefix: format!("r{round}-w{number}"),
            attempts: attempts.clone(),
        };
        writers.spawn(writer.run());
    }
    drop(attempts);
    take(&mut reports, ledger, random.below(WRITES_MAX)).await;
    tokio::time::sleep(Duration::from_micros(random.below(3_000))).await;
    server.kill();
    writers.join_all().await;
    while let Some(attempt) = reports.recv().await {
        ledger.record(attempt);
    }
}

async fn take(reports: &mut UnboundedReceiver<Attempt>, ledger: &mut Ledger, count: u64) {
    for _ in 0..count {
        let attempt = wait::within("a write to be acknowledged", reports.recv()).await;
        ledger.record(attempt.expect("the writers continue until the server is killed"));
    }
}

/// A client with one connection, and a few objects that no other client writes.
struct Writer {
    client: Client,
    /// The value of each object, with its name.
    objects: Vec<(Option<String>, String)>,
    random: Random,
    prefix: String,
    attempts: UnboundedSender<Attempt>,
}

impl Writer {
    /// Writes until the connection breaks.
    async fn run(mut self) {
        let Ok(mut connection) = self.client.connect().await else { return };
        for number in 0.. {
            let index = usize::try_from(self.random.below(self.objects.len() as u64)).unwrap();
            let value = format!("{}-{number}", self.prefix);
            let delete = self.random.below(4) == 0;
            let (current, name) = self.objects[index].clone();
            let value = if current.is_some() && delete { None } else { Some(value) };
            let request = self.request(&name, current.is_some(), value.as_deref());
            let outcome = send(request, &mut connection).await;
            self.objects[index].0.clone_from(&value);
            self.attempts.send(Attempt { name, value, outcome }).unwrap();
            if outcome == Outcome::Unknown {
                return;
            }
        }
    }

    fn request(&mut self, name: &str, exists: bool, value: Option<&str>) -> Request<'_> {
        let path = secret_path(name);
        match value {
            None => self.client.delete(&path),
            Some(value) if exists => self.client.patch(&path, "merge-patch", &secret(name, value)),
            Some(value) => self.client.post(&secrets("platform")).json(&secret(name, value)),
        }
    }
}

async fn send(request: Request<'_>, connection: &mut Connection) -> Outcome {
    let Ok(reply) = request.try_send_on(connection).await else { return Outcome::Unknown };
    assert!(reply.status == 200 || reply.status == 201, "{} {}", reply.status, reply.text());
    let object = reply.json();
    Outcome::Done((object["kind"] != "Status").then(|| version_of(&object)))
}

/// The events until the server is killed. An incomplete line does not count.
async fn watch(client: Client, resume: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let path = format!("{}?watch=true&resourceVersion={resume}", secrets("platform"));
    let Ok(lines) = client.get(&path).try_stream().await else { return events };
    let mut watch = postern_tests::watching::Watch::new(lines);
    while let Ok(Some(event)) = watch.try_next().await {
        events.push(event);
    }
    events
}

/// The events after a version. One more write marks the end.
async fn catch_up(server: &Server, resume: u64) -> Vec<Event> {
    let mut object = secret("", "end");
    object["metadata"] = serde_json::json!({ "generateName": MARKER });
    let made = server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
    let query = format!("&resourceVersion={resume}");
    let mut watch = server.client().watch(&secrets("platform"), &query).await;
    let mut events = Vec::new();
    loop {
        let event = watch.next().await.expect("the watch continues to the marker");
        if event.version() == version_of(&made) {
            return events;
        }
        if !name_of(&event.object).starts_with(MARKER) {
            events.push(event);
        }
    }
}

/// The prefix of the names of objects that mark the end of a watch.
const MARKER: &str = "the-end-";
