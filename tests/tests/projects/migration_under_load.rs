//! Migrations back and forth under load: with concurrent updates, deletions, watchers that reconnect, and kills of the
//! server. At every moment each instance is in exactly one project, and no watcher misses or repeats a change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postern_tests::http::{Client, Connection, Request, Response};
use postern_tests::objects::{GROUP, create, version_of};
use postern_tests::watching::Watch;
use postern_tests::{Home, Kubeconfig, Random, Relay, Server, Setup, wait};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::projects::scene::{instances, of_project, on_cluster, two_projects};

/// Instances that are only moved and changed, and instances that are also deleted and made again.
const LASTING: usize = 6;
const PASSING: usize = 3;

/// A request, or a line of a watch, that takes longer is given up; then the test looks again.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time without an event after which a watcher checks whether all is done.
const SILENCE: Duration = Duration::from_millis(200);

/// Which instances there are: name and namespace, by uid.
type Held = BTreeMap<String, (String, String)>;

/// The state that the tasks share.
#[derive(Default)]
struct Shared {
    migrations: AtomicUsize,
    is_over: AtomicBool,
    /// The instances at the end.
    last: Mutex<Option<Held>>,
    /// The round of updates of each lasting instance: the last that was answered, and the last that was sent.
    rounds: Mutex<BTreeMap<String, (usize, usize)>>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

fn lasting() -> Vec<String> {
    (0..LASTING).map(|number| format!("lasting-{number}")).collect()
}

fn passing() -> Vec<String> {
    (0..PASSING).map(|number| format!("passing-{number}")).collect()
}

/// A client that keeps its connection, and notices when the server is gone.
struct Caller {
    client: Client,
    open: Option<Connection>,
    random: Random,
}

impl Caller {
    fn new(client: &Client, seed: u64) -> Self {
        Self { client: client.clone(), open: None, random: Random::new(seed) }
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).unwrap()
    }

    /// Sends a request. `None` when it is not known whether it took effect, or the server is not ready.
    async fn send(
        &mut self,
        build: impl for<'a> FnOnce(&'a Client) -> Request<'a>,
    ) -> Option<Response> {
        let open = match self.open.take() {
            Some(open) => Ok(open),
            None => self.client.connect().await,
        };
        let Ok(mut connection) = open else {
            // The server is being started again.
            tokio::time::sleep(Duration::from_millis(20)).await;
            return None;
        };
        let sent = build(&self.client).try_send_on(&mut connection);
        let reply = timeout(PATIENCE, sent).await.ok()?.ok()?;
        self.open = Some(connection);
        (reply.status < 500).then_some(reply)
    }
}

/// Moves instances until there were as many migrations as are wanted.
async fn move_them(mut caller: Caller, shared: Arc<Shared>, wanted: usize) {
    let names = [lasting(), passing()].concat();
    while shared.migrations.load(Ordering::SeqCst) < wanted {
        let at = caller.below(names.len());
        let (from, to) = if caller.below(2) == 0 { ("a", "b") } else { ("b", "a") };
        let body = json!({
            "apiVersion": "management.platform.sh/v1",
            "kind": "ProjectMigrateVirtualClusterInstance",
            "sourceVirtualClusterInstance": { "name": names[at], "namespace": format!("p-{from}") },
        });
        let path = of_project(to, "migratevirtualclusterinstance");
        let Some(reply) = caller.send(|client| client.post(&path).json(&body)).await else {
            continue;
        };
        match reply.status {
            201 => drop(shared.migrations.fetch_add(1, Ordering::SeqCst)),
            // The instance is in the other project, or another task has just changed or removed it.
            404 | 409 => {}
            status => panic!("a migration: {status} {}", reply.text()),
        }
    }
}

/// Counts up a label of each lasting instance, in its current project.
async fn update(mut caller: Caller, shared: Arc<Shared>) {
    let names = lasting();
    while !shared.is_over() {
        let at = caller.below(names.len());
        let name = &names[at];
        let round = {
            let mut rounds = shared.rounds.lock().unwrap();
            let (_, sent) = rounds.entry(name.clone()).or_default();
            *sent += 1;
            *sent
        };
        let change = json!({ "metadata": { "labels": { "round": round.to_string() } } });
        for project in ["a", "b"] {
            let path = format!("{}/{name}", instances(project));
            let sent = caller.send(|client| client.patch(&path, "merge-patch", &change)).await;
            match sent.map(|reply| (reply.status, reply)) {
                Some((200, _)) => {
                    let mut rounds = shared.rounds.lock().unwrap();
                    rounds.entry(name.clone()).or_default().0 = round;
                    break;
                }
                None | Some((404 | 409, _)) => {}
                Some((status, reply)) => panic!("an update: {status} {}", reply.text()),
            }
        }
    }
}

/// Deletes passing instances, and makes them again in the project `a`.
async fn delete(mut caller: Caller, shared: Arc<Shared>) {
    let names = passing();
    while !shared.is_over() {
        let at = caller.below(names.len());
        let name = &names[at];
        for project in ["a", "b"] {
            let path = format!("{}/{name}", instances(project));
            if let Some(reply) = caller.send(|client| client.delete(&path)).await {
                assert!([200, 404, 409].contains(&reply.status), "{}", reply.text());
            }
        }
        let mut new = on_cluster("c1", name);
        new["metadata"] = json!({ "name": name });
        let all = instances("a");
        if let Some(reply) = caller.send(|client| client.post(&all).json(&new)).await {
            // Where it is in the other project, its place in the cluster is taken.
            assert!([201, 409].contains(&reply.status), "{}", reply.text());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The instances in a list of all projects.
fn held_in(list: &Value) -> Held {
    let text = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|one| (text(one, "uid"), (text(one, "name"), text(one, "namespace")))).collect()
}

/// Checks that each lasting instance is in exactly one project, and each passing one in one at most.
fn check(held: &Held) {
    let count = |name: &String| held.values().filter(|(of, _)| of == name).count();
    for name in lasting() {
        assert_eq!(count(&name), 1, "{name}: {held:?}");
    }
    for name in passing() {
        assert!(count(&name) <= 1, "{name}: {held:?}");
    }
}

/// Lists all projects at once, again and again.
async fn look(mut caller: Caller, shared: Arc<Shared>) -> usize {
    let all = format!("{GROUP}/virtualclusterinstances");
    let mut looks = 0;
    while !shared.is_over() {
        if let Some(reply) = caller.send(|client| client.get(&all)).await {
            check(&held_in(&reply.expect(200)));
            looks += 1;
        }
    }
    looks
}

/// Follows all projects by a watch that is broken off at any point and goes on where it was.
struct Follower {
    caller: Caller,
    held: Held,
    version: Option<u64>,
    resumed: usize,
    events: usize,
}

impl Follower {
    /// Lists, if there is nothing to go on from. Returns whether there is now.
    async fn start(&mut self) -> bool {
        if self.version.is_none() {
            let all = format!("{GROUP}/virtualclusterinstances");
            let Some(reply) = self.caller.send(|client| client.get(&all)).await else {
                return false;
            };
            let list = reply.expect(200);
            self.held = held_in(&list);
            self.version = Some(version_of(&list));
        }
        true
    }

    /// Reads some events of one connection. Returns whether nothing came for a while.
    async fn read_some(&mut self) -> bool {
        let Some(version) = self.version else { return false };
        let path = format!("{GROUP}/virtualclusterinstances?watch=true&resourceVersion={version}");
        let Ok(lines) = self.caller.client.get(&path).try_stream().await else { return false };
        let mut watch = Watch::new(lines);
        for _ in 0..=self.caller.below(5) {
            match timeout(SILENCE, watch.try_next()).await {
                Err(_) => return true,
                Ok(Ok(Some(event))) if event.kind == "ERROR" => {
                    // If the version is not available any more, the follower
                    // lists again. No other error may end the watch.
                    assert_eq!(event.object["code"], 410, "{event:?}");
                    self.version = None;
                    return false;
                }
                Ok(Ok(Some(event))) => self.take(&event.kind, &event.object),
                Ok(Ok(None) | Err(_)) => return false,
            }
        }
        self.resumed += 1;
        false
    }

    fn take(&mut self, kind: &str, object: &Value) {
        let version = version_of(object);
        assert!(Some(version) > self.version, "a change came twice: {kind} {object}");
        self.version = Some(version);
        self.events += 1;
        let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let (uid, name) = (text("uid"), text("name"));
        match kind {
            "ADDED" => {
                let is_twice = self.held.values().any(|(of, _)| *of == name);
                assert!(!is_twice, "a removal was missed: {name} {:?}", self.held);
                self.held.insert(uid, (name, text("namespace")));
            }
            "MODIFIED" => assert!(self.held.contains_key(&uid), "an addition was missed: {object}"),
            "DELETED" => {
                let was_there = self.held.remove(&uid).is_some();
                assert!(was_there, "an addition was missed: {object}");
            }
            other => panic!("an event {other}"),
        }
    }
}

/// Follows until it holds exactly the objects of the end.
async fn follow(caller: Caller, shared: Arc<Shared>) -> (usize, usize) {
    let (held, version) = (Held::new(), None);
    let mut follower = Follower { caller, held, version, resumed: 0, events: 0 };
    loop {
        if !follower.start().await || !follower.read_some().await {
            continue;
        }
        let last = shared.last.lock().unwrap();
        if last.as_ref().is_some_and(|last| *last == follower.held) {
            return (follower.resumed, follower.events);
        }
    }
}

/// The server, which is killed and started again, at one address.
struct Killable {
    server: Option<Server>,
    home: Home,
    relay: Relay,
}

impl Killable {
    async fn start() -> Self {
        let home = Home::new();
        let server = Setup::on(&home).start().await;
        let relay = Relay::new().await;
        relay.connect_to(&server);
        Self { server: Some(server), home, relay }
    }

    fn client(&self) -> Client {
        let kubeconfig = self.server.as_ref().expect("it runs").kubeconfig();
        let server = format!("https://127.0.0.1:{}/kubernetes/management", self.relay.port());
        Client::new(&Kubeconfig { server, ..kubeconfig.clone() })
    }

    async fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
        self.relay.disconnect();
        let server = Setup::on(&self.home).start().await;
        self.relay.connect_to(&server);
        self.server = Some(server);
    }
}

/// Makes so many migrations, with so many kills in between.
async fn run(wanted: usize, kills: usize) {
    let mut server = Killable::start().await;
    let client = server.client();
    two_projects(&client).await;
    client.delete(&format!("{}/v", instances("a"))).send().await.expect(200);
    for name in [lasting(), passing()].concat() {
        create(&client, &instances("a"), &name, on_cluster("c1", &name)).await;
    }
    let shared: Arc<Shared> = Arc::default();
    let (mut movers, mut others) = (JoinSet::new(), JoinSet::new());
    let (mut watchers, mut looking) = (JoinSet::new(), JoinSet::new());
    for seed in 0..3 {
        movers.spawn(move_them(Caller::new(&client, seed), shared.clone(), wanted));
        watchers.spawn(follow(Caller::new(&client, 10 + seed), shared.clone()));
    }
    others.spawn(update(Caller::new(&client, 20), shared.clone()));
    others.spawn(delete(Caller::new(&client, 21), shared.clone()));
    looking.spawn(look(Caller::new(&client, 22), shared.clone()));
    for kill in 1..=kills {
        let after = wanted * kill / (kills + 1);
        let mut last = (0, std::time::Instant::now());
        while last.0 < after {
            let now = shared.migrations.load(Ordering::SeqCst);
            if now > last.0 {
                last = (now, std::time::Instant::now());
            }
            assert!(last.1.elapsed() < wait::DEADLINE, "{now} migrations, and no more");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill().await;
    }
    while let Some(moved) = movers.join_next().await {
        moved.unwrap();
    }
    shared.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = others.join_next().await {
        ended.unwrap();
    }
    let looks = looking.join_next().await.unwrap().unwrap();
    let all = format!("{GROUP}/virtualclusterinstances");
    let list = client.get(&all).send().await.expect(200);
    check_rounds(&list, &shared);
    *shared.last.lock().unwrap() = Some(held_in(&list));
    let mut resumed = 0;
    let caught_up = wait::within("the watchers to hold what there is", async {
        while let Some(followed) = watchers.join_next().await {
            let (times, events) = followed.unwrap();
            assert!(events > wanted, "each migration is two events, and {events} came");
            resumed += times;
        }
    });
    caught_up.await;
    assert!(
        looks > kills && resumed > 10,
        "it was looked {looks} times, and resumed {resumed} times"
    );
}

/// Checks that no update was lost on the way: each instance has the last round that was answered, or a later one.
fn check_rounds(list: &Value, shared: &Shared) {
    check(&held_in(list));
    let rounds = shared.rounds.lock().unwrap();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        let Some((answered, sent)) = rounds.get(name) else { continue };
        let round = item["metadata"]["labels"]["round"].as_str().unwrap_or("0");
        let round: usize = round.parse().unwrap();
        assert!((*answered..=*sent).contains(&round), "{name}: {round}, {answered} to {sent}");
    }
}

#[tokio::test]
async fn instances_are_in_one_project_at_every_moment_while_they_move() {
    run(60, 3).await;
}

#[tokio::test]
async fn heavy_instances_are_in_one_project_at_every_moment_while_they_move() {
    run(1000, 20).await;
}
