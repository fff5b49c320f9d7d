//! A server with a search for secret values in its responses, logs and files.

use std::cell::RefCell;
use std::path::Path;

use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::{GROUP, based};
pub(crate) use postern_tests::objects::{collection, make};
use postern_tests::{Home, Random, Server, Setup};
use serde_json::{Value, json};

use crate::secrecy::canary::{self, Search};

pub(crate) const KEYS: &str = "ownedaccesskeys";

/// The path of one access key.
pub(crate) fn key_path(name: &str) -> String {
    format!("{GROUP}/{KEYS}/{name}")
}

/// Creates a user with an access key, and returns a client with this key.
pub(crate) async fn user(admin: &Client, name: &str) -> Client {
    make(admin, "users", name, json!({})).await;
    let key = make(admin, KEYS, &format!("{name}-key"), json!({ "user": name })).await;
    admin.with_token(key["spec"]["key"].as_str().unwrap())
}

/// Values for all write-only fields.
#[derive(Clone)]
pub(crate) struct Secrets {
    pub(crate) key: String,
    pub(crate) connector_data: String,
    pub(crate) id_token: String,
    pub(crate) access_token: String,
    pub(crate) refresh_token: String,
}

impl Secrets {
    fn new(random: &mut Random) -> Self {
        let mut value = || canary::value(random);
        Self {
            key: value(),
            connector_data: value(),
            id_token: value(),
            access_token: value(),
            refresh_token: value(),
        }
    }

    fn all(&self) -> [&str; 5] {
        [&self.key, &self.connector_data, &self.id_token, &self.access_token, &self.refresh_token]
    }

    /// A complete object with these values.
    pub(crate) fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": "management.platform.sh/v1",
            "kind": "OwnedAccessKey",
            "metadata": { "name": name },
            "spec": {
                "user": "admin",
                "key": self.key,
                "identity": { "email": "ada@example.com", "connectorData": self.connector_data },
                "oidcLogin": {
                    "idToken": self.id_token,
                    "accessToken": self.access_token,
                    "refreshToken": self.refresh_token,
                },
            },
        })
    }
}

/// A server that logs everything, and the values that must not appear in its responses, logs and
/// files.
pub(crate) struct LeakCheck {
    pub(crate) home: Home,
    pub(crate) server: Server,
    search: RefCell<Search>,
    random: RefCell<Random>,
}

impl LeakCheck {
    /// Starts a new server.
    pub(crate) async fn new(seed: u64) -> Self {
        let home = Home::new();
        let server = start(&home).await;
        let search = RefCell::new(Search::of([server.kubeconfig().token.as_str()]));
        Self { home, server, search, random: RefCell::new(Random::new(seed)) }
    }

    /// Clients of the administrator, one for HTTP/1.1 and one for HTTP/2.
    pub(crate) fn clients(&self) -> [Client; 2] {
        [self.server.client(), Client::http2(self.server.kubeconfig())]
    }

    /// Makes new values, which are searched for from now on.
    pub(crate) fn new_secrets(&self) -> Secrets {
        let secrets = Secrets::new(&mut self.random.borrow_mut());
        for value in secrets.all() {
            self.search.borrow_mut().add(value);
        }
        secrets
    }

    /// Makes one new value, which is searched for from now on.
    pub(crate) fn new_secret(&self) -> String {
        self.new_secrets().key
    }

    /// Adds a value that the server generated to the search.
    pub(crate) fn add_secret(&self, value: &str) {
        self.search.borrow_mut().add(value);
    }

    /// Sends a request. The response must contain no secret.
    pub(crate) async fn send(&self, request: Request<'_>) -> Response {
        let what = format!("{request:?}").split("headers").next().unwrap_or_default().to_owned();
        let reply = request.send().await;
        let text = format!("{} {:?} {}", reply.status, reply.headers, reply.text());
        self.assert_absent(&format!("the response to {what}"), text.as_bytes());
        reply
    }

    /// Panics if the bytes contain one of the secrets.
    pub(crate) fn assert_absent(&self, what: &str, bytes: &[u8]) {
        self.search.borrow().assert_absent(what, bytes);
    }

    /// Sends a create. Its response may contain the key, and no other secret.
    pub(crate) async fn create(&self, request: Request<'_>) -> Value {
        let reply = request.send().await;
        let mut object = reply.expect(201);
        let key = object["spec"].as_object_mut().unwrap().remove("key");
        self.assert_absent(
            "the response to a create, without its key",
            object.to_string().as_bytes(),
        );
        self.assert_absent("a header", format!("{:?}", reply.headers).as_bytes());
        object["spec"]["key"] = key.expect("the response to a create contains the key");
        object
    }

    /// Searches everything that is left: the metrics, then the files after SIGKILL, a list from a new
    /// server on these files, and its log.
    pub(crate) async fn finish(self) {
        // Over HTTP/2, because its library logs the most.
        let [_, client] = self.clients();
        let metrics = client.get(&based("/metrics")).send().await.expect_text(200);
        self.assert_absent("the metrics", metrics.as_bytes());
        let Self { home, server, search, .. } = self;
        let search = search.into_inner();
        server.kill();
        search.assert_absent("the database", &read_all(&home.data().join("db")));
        let server = start(&home).await;
        let list = server.client().get(&collection(KEYS)).send().await.expect_text(200);
        search.assert_absent("a list after a restart", list.as_bytes());
        server.stop().await;
        let rest = read_all(&home.data().join("db"));
        assert!(rest.len() > 10_000, "there is a database");
        search.assert_absent("the database at rest", &rest);
        let log = home.logged() + &home.printed();
        assert!(log.contains("TRACE") && log.len() > 10_000, "the log is as verbose as can be");
        search.assert_absent("the log", log.as_bytes());
        search.assert_absent("the audit log", &read_all(&home.audit_log()));
    }
}

async fn start(home: &Home) -> Server {
    Setup::on(home).argument("--log").argument("trace").start().await
}

fn read_all(path: &Path) -> Vec<u8> {
    if path.is_file() {
        return std::fs::read(path).unwrap();
    }
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| read_all(&entry)).collect()
}
