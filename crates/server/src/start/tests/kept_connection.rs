//! What a connection keeps changes no answer.
//!
//! A connection keeps the digest of its last credential and the JSON of its last sender. Random changes of keys, users,
//! roles and the time are mixed with requests. Each request is sent on a kept connection, two at once, and on a new
//! connection that keeps nothing. Both have the same response, the same audit records and the same metrics, and both note the
//! use of the key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use http::Request;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::user::User;
use postern_kinds::{AnyKind, Verb};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::options::DeleteOptions;
use postern_meta::time::MicroTimestamp;
use postern_registry::admit::Writing;
use postern_registry::clock::{Source, System};
use postern_registry::operations;
use postern_registry::permit::Permit;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use super::*;
use crate::admin::tests::settings;
use crate::open;
use crate::pipeline::{Client, handle};
use postern_http::metrics;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;

/// The changes of one connection. An address has room for that many audit records of failures.
const STEPS: u64 = 40;

/// The time after which the key `idle` ends, if it is not used.
const IDLE_SECONDS: i64 = 600;

/// A clock that the test sets.
struct SetClock(System, AtomicI64);

impl Source for SetClock {
    fn now_micro(&self) -> MicroTimestamp {
        MicroTimestamp::from_unix_microseconds(self.1.load(Ordering::SeqCst))
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// Random numbers from a seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// A request: its path, its key, and the user as whom it acts.
#[derive(Clone, Copy, Debug)]
struct Sent {
    path: &'static str,
    key: &'static str,
    acts_as: Option<&'static str>,
}

/// A response, as its client sees it.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

struct Scene {
    registry: Arc<Registry>,
    server: Arc<Server>,
    clock: Arc<SetClock>,
    admin_key: String,
    reload: watch::Sender<()>,
    random: Random,
    requests: u64,
}

/// The value of a key. A key that is created again has the same value.
fn value_of(key: &str) -> String {
    format!("{key}-{}", "0123456789abcdef".repeat(3))
}

impl Scene {
    async fn create(&self, kind: &'static dyn AnyKind, at: (Option<&str>, &str), fields: Value) {
        let (namespace, name) = at;
        let info = kind.info();
        let mut object = json!({ "apiVersion": info.version.to_string(), "kind": info.kind,
            "metadata": { "name": name, "namespace": namespace } });
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object: Object = serde_json::from_value(object).unwrap();
        let permit = Permit::for_server(kind, Verb::Create, namespace, name);
        let writing = Writing::by_server();
        operations::create(&self.registry, &permit, object, &writing).await.unwrap();
    }

    /// Removes an object, if it is there. Returns whether it was.
    async fn remove(&self, kind: &'static dyn AnyKind, name: &str) -> bool {
        let permit = Permit::for_server(kind, Verb::Delete, None, name);
        let options = DeleteOptions::default();
        operations::delete(&self.registry, &permit, &options).await.is_ok()
    }

    async fn toggle_disabled(&self, kind: &'static dyn AnyKind, name: &str) {
        let permit = Permit::for_server(kind, Verb::Update, None, name);
        let toggled = |object: &Object| {
            let mut object = object.clone();
            let spec = object.fields.get_mut("spec").and_then(Value::as_object_mut).unwrap();
            if spec.remove("disabled").is_none() {
                spec.insert("disabled".to_owned(), true.into());
            }
            Ok(object)
        };
        let registry = &self.registry;
        let _ = operations::update(registry, &permit, &Writing::by_server(), toggled).await;
    }

    async fn key(&self, name: &'static str, owner: &str, more: Value) {
        self.remove(&OwnedAccessKey, name).await;
        let mut spec = json!({ "user": owner, "key": value_of(name) });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.create(&OwnedAccessKey, (None, name), json!({ "spec": spec })).await;
    }

    async fn keys_that_end(&self) {
        let idle = json!({ "ttl": IDLE_SECONDS, "ttlAfterLastActivity": true });
        self.key("idle", "ada", idle).await;
        self.key("made", "ada", json!({ "parent": "idle" })).await;
    }

    async fn toggle_binding(&self, role: &str, user: &str) {
        let name = format!("{role}-{user}");
        if self.remove(&ClusterRoleBinding, &name).await {
            return;
        }
        let group = "rbac.authorization.k8s.io";
        let fields = json!({
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": group, "kind": "Group", "name": format!("platform:user:{user}") }],
        });
        self.create(&ClusterRoleBinding, (None, &name), fields).await;
    }

    async fn set_up(&self) {
        for user in ["ada", "bob"] {
            self.create(&User, (None, user), json!({ "spec": {} })).await;
        }
        let rule = |resource: &str, verb: &str, group: &str| json!([{ "apiGroups": [group], "resources": [resource], "verbs": [verb] }]);
        let reads = rule("sharedsecrets", "get", "management.platform.sh");
        self.create(&ClusterRole, (None, "reads"), json!({ "rules": reads })).await;
        let acts = rule("users", "impersonate", "");
        self.create(&ClusterRole, (None, "acts"), json!({ "rules": acts })).await;
        let secret = json!({ "spec": { "data": { "a": "Yg==" } } });
        self.create(&SharedSecret, (Some("default"), "db"), secret).await;
        self.key("plain", "ada", json!({})).await;
        self.keys_that_end().await;
    }

    /// One random change.
    async fn change(&mut self) {
        match self.random.below(10) {
            0 => self.toggle_disabled(&OwnedAccessKey, "plain").await,
            1 => {
                let owner = self.random.of(&["ada", "bob"]);
                self.key("plain", owner, json!({})).await;
            }
            2 => self.toggle_disabled(&User, "ada").await,
            3 => self.toggle_binding("reads", "ada").await,
            4 => self.toggle_binding("acts", "ada").await,
            5 => self.toggle_binding("reads", "bob").await,
            6 => self.keys_that_end().await,
            7 => self.reload.send(()).unwrap(),
            _ => {
                let seconds = self.random.of(&[1, 60, IDLE_SECONDS - 1, IDLE_SECONDS + 1]);
                self.clock.1.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
            }
        }
    }

    fn sent(&mut self) -> Sent {
        Sent {
            path: self.random.of(&[
                "/namespaces/default/sharedsecrets/db",
                "/namespaces/default/sharedsecrets/none",
                "/users/ada",
                "/nothing",
            ]),
            key: self.random.of(&["plain", "plain", "idle", "made", "unknown"]),
            acts_as: self.random.of(&[None, None, Some("bob")]),
        }
    }

    async fn send(&self, client: &Arc<Client>, sent: Sent, id: u64) -> Seen {
        let path = format!("/kubernetes/management/apis/management.platform.sh/v1{}", sent.path);
        let mut request = Request::builder()
            .uri(path)
            .header("host", "a")
            .header("audit-id", format!("00000000-0000-4000-8000-{id:012x}"))
            .header("authorization", format!("Bearer {}", value_of(sent.key)));
        if let Some(user) = sent.acts_as {
            request = request.header("impersonate-user", user);
        }
        self.seen(client, request.body(IncomingBody::empty()).unwrap()).await
    }

    async fn seen(&self, client: &Arc<Client>, request: Request<IncomingBody>) -> Seen {
        let reply = handle(&self.server, client, request, None).await;
        let (head, body) = reply.response.into_parts();
        let Body::Whole(Some(bytes)) = body else { panic!("no response of these is a stream") };
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        Seen {
            status: head.status.as_u16(),
            headers: head.headers.iter().map(header).collect(),
            body: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// The last use of a key.
    async fn last_use(&self, client: &Arc<Client>, key: &str) -> Value {
        let path =
            format!("/kubernetes/management/apis/management.platform.sh/v1/ownedaccesskeys/{key}");
        let request = Request::builder().uri(path).header("host", "a");
        let request = request.header("authorization", format!("Bearer {}", self.admin_key));
        let seen = self.seen(client, request.body(IncomingBody::empty()).unwrap()).await;
        let object: Value = decode_typed(seen.body.as_bytes()).unwrap();
        object["status"]["lastActivity"].clone()
    }

    fn new_client(&self, number: u64) -> Arc<Client> {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(number).unwrap());
        let client = Client::new(address.into(), self.server.flow().clone());
        client.set_streams();
        Arc::new(client)
    }

    /// Changes, and requests after each of them, on one kept connection.
    async fn connection(&mut self, number: u64) {
        let kept = self.new_client(number);
        let mut seen_statuses = BTreeMap::new();
        for step in 0..STEPS {
            self.change().await;
            let (one, two) = (self.sent(), self.sent());
            let id = self.requests;
            self.requests += 2;
            let (first, second) =
                tokio::join!(self.send(&kept, one, id), self.send(&kept, two, id + 1));
            if [200, 403, 404].contains(&first.status) {
                let now = self.clock.now().to_string();
                let last = self.last_use(&self.new_client(number), one.key).await;
                assert_eq!(last, now, "connection {number}, step {step}: {one:?}");
            }
            for (sent, id, on_kept) in [(one, id, first), (two, id + 1, second)] {
                let on_new = self.send(&self.new_client(number), sent, id).await;
                assert_eq!(on_kept, on_new, "connection {number}, step {step}: {sent:?}");
                *seen_statuses.entry(on_new.status).or_insert(0) += 1;
            }
        }
        tracing::debug!("{number}: {seen_statuses:?}");
    }

    /// The number of requests for secrets, by their labels.
    fn counts(&self) -> Vec<(String, u64)> {
        let text = metrics::write(self.server.metrics(), &self.server.readings());
        let of_secrets = |line: &&str| {
            line.starts_with("apiserver_request_total{") && line.contains("sharedsecrets")
        };
        let lines = text.lines().filter(of_secrets);
        lines
            .map(|line| {
                let (labels, count) = line.rsplit_once(' ').unwrap();
                (labels.to_owned(), count.parse().unwrap())
            })
            .collect()
    }
}

#[tokio::test]
async fn what_a_connection_keeps_changes_no_answer() {
    let connections = match std::env::var("POSTERN_TEST_FORM").as_deref() {
        Ok("full") => 2500,
        _ => 25,
    };
    let home = tempfile::tempdir().unwrap();
    let now = System::default().now_micro().unix_microseconds();
    let clock = Arc::new(SetClock(System::default(), now.into()));
    let opening = Box::pin(open(settings(home.path()), clock.clone()));
    let (running, welcome) = opening.await.unwrap();
    let kubeconfig = super::read_kubeconfig(&welcome.kubeconfig.unwrap()).unwrap();
    let admin_key = kubeconfig.split_once("token: ").unwrap().1.lines().next().unwrap().trim();
    let (reload, reloads) = watch::channel(());
    let mut scene = Scene {
        registry: running.parts.registry.clone(),
        server: running.parts.server.clone(),
        clock,
        admin_key: admin_key.trim_matches('"').to_owned(),
        reload,
        random: Random(1),
        requests: 0,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let work = async {
        scene.set_up().await;
        for number in 0..connections {
            scene.connection(number).await;
        }
        let counts = scene.counts();
        assert!(counts.len() > 3, "{counts:?}");
        for (labels, count) in counts {
            assert_eq!(count % 2, 0, "{labels}");
        }
        stop.send(()).unwrap();
        scene.requests
    };
    let until = async { stopped.await.unwrap() };
    let (ended, requests) = tokio::join!(Box::pin(running.serve(until, reloads)), work);
    ended.unwrap();
    let log = std::fs::File::open(DataDir::audit_log_in(home.path())).unwrap();
    let log = std::io::read_to_string(log).unwrap();
    let mut lines: BTreeMap<&str, u64> = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains("00000000-0000-4000-8000-")) {
        *lines.entry(line).or_default() += 1;
    }
    let recorded = lines.len() as u64;
    assert!(recorded * 2 > requests, "{recorded} records of {requests} requests");
    let uneven = lines.iter().find(|(_, count)| **count % 2 != 0);
    assert_eq!(uneven, None, "a record on one of the connections alone");
}
