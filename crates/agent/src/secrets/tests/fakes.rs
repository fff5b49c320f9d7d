//! A cluster and a central server, as far as the secret sync needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use postern_client::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;

use crate::testing::CentralSocket;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A body of lines that the test sends.
struct Lines(mpsc::UnboundedReceiver<String>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data((line + "\n").into()))))
    }
}

fn whole(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Full::from(value.to_string()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn status(code: u16) -> Response<Body> {
    whole(code, &json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code }))
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
}

/// A JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        patch.clone_into(target);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

fn is_labelled(secret: &Value) -> bool {
    let labels = &secret["metadata"]["labels"];
    ["platform.sh/project", "platform.sh/project-secret-name"]
        .iter()
        .all(|name| labels[name].is_string())
}

/// The metadata of a Secret, as `PartialObjectMetadata`.
fn partial(secret: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "metadata": secret["metadata"] })
}

/// An API server with Secrets.
#[derive(Default)]
pub(super) struct ClusterState {
    version: u64,
    secrets: BTreeMap<[String; 2], Value>,
    watches: Vec<Watching>,
    pub(super) namespaces: BTreeMap<String, String>,
    /// The namespaces in which the agent may read Secrets; all, if there is none.
    pub(super) bound: BTreeSet<String>,
    /// The reason and the message of each Event, behind the name of its Secret.
    pub(super) events: Vec<String>,
    /// The method and path of each request.
    pub(super) requests: Vec<String>,
    /// The codes with which the next patches fail.
    pub(super) patch_codes: Vec<u16>,
}

struct Watching {
    namespace: Option<String>,
    lines: UnboundedSender<String>,
}

impl ClusterState {
    fn tell(&mut self, event_type: &str, secret: &Value) {
        let namespace = secret["metadata"]["namespace"].as_str().unwrap_or_default();
        let line = json!({ "type": event_type, "object": partial(secret) }).to_string();
        self.watches.retain(|watching| {
            let is_here = watching.namespace.as_deref().is_none_or(|one| one == namespace);
            !is_here || watching.lines.send(line.clone()).is_ok()
        });
    }

    /// Changes a Secret, or creates it.
    pub(super) fn change(&mut self, namespace: &str, name: &str, patch: &Value) {
        self.version += 1;
        let (version, key) = (self.version, [namespace.to_owned(), name.to_owned()]);
        let new = || {
            json!({ "metadata": { "name": name, "namespace": namespace, "uid": format!("u-{version}"),
                "creationTimestamp": "2026-01-01T00:00:00Z" }, "type": "Opaque" })
        };
        let secret = self.secrets.entry(key).or_insert_with(new);
        let was_labelled = is_labelled(secret);
        merge(secret, patch);
        secret["metadata"]["resourceVersion"] = version.to_string().into();
        let secret = secret.clone();
        match (was_labelled, is_labelled(&secret)) {
            (false, true) => self.tell("ADDED", &secret),
            (true, true) => self.tell("MODIFIED", &secret),
            (true, false) => self.tell("DELETED", &secret),
            (false, false) => {}
        }
    }

    /// Creates an empty Secret that asks for the data of `p/db`.
    pub(super) fn ask(&mut self, namespace: &str, name: &str) {
        let labels = json!({ "platform.sh/project": "p", "platform.sh/project-secret-name": "db" });
        self.change(namespace, name, &json!({ "metadata": { "labels": labels } }));
    }

    /// Ends all watches.
    pub(super) fn end_watches(&mut self) {
        self.watches.clear();
    }

    /// A Secret.
    pub(super) fn secret(&self, namespace: &str, name: &str) -> Value {
        self.secrets[&[namespace.to_owned(), name.to_owned()]].clone()
    }

    fn answer(&mut self, method: &str, path: &str, query: &str, body: &Value) -> Response<Body> {
        self.requests.push(format!("{method} {path}"));
        let parts: Vec<&str> = path.trim_start_matches("/api/v1/").split('/').collect();
        let namespace = (parts[0] == "namespaces").then(|| parts[1]);
        let is_of_secrets = parts.contains(&"secrets");
        let is_bound =
            self.bound.is_empty() || namespace.is_some_and(|one| self.bound.contains(one));
        if is_of_secrets && !is_bound {
            return status(403);
        }
        match (method, &parts[..]) {
            ("GET", ["namespaces", name]) => match self.namespaces.get(*name) {
                Some(uid) => whole(200, &json!({ "metadata": { "name": name, "uid": uid } })),
                None => status(404),
            },
            ("GET", ["secrets"] | ["namespaces", _, "secrets"]) => self.list(namespace, query),
            ("GET", ["namespaces", namespace, "secrets", name]) => {
                let found = self.secrets.get(&[(*namespace).to_owned(), (*name).to_owned()]);
                found.map_or_else(|| status(404), |secret| whole(200, secret))
            }
            ("PATCH", ["namespaces", namespace, "secrets", name]) => {
                self.patch(namespace, name, body)
            }
            ("POST", ["namespaces", _, "events"]) => {
                let text = |field: &str| body[field].as_str().unwrap().to_owned();
                let name = body["involvedObject"]["name"].as_str().unwrap();
                let event = format!("{name}: {}: {}", text("reason"), text("message"));
                self.events.push(event);
                whole(201, &json!({ "metadata": {} }))
            }
            _ => status(404),
        }
    }

    fn list(&mut self, namespace: Option<&str>, query: &str) -> Response<Body> {
        // Without the selector, the agent would read the other Secrets, too.
        let selector = "platform.sh%2Fproject%2Cplatform.sh%2Fproject-secret-name";
        assert_eq!(parameter(query, "labelSelector"), Some(selector));
        if parameter(query, "watch") == Some("true") {
            let (lines, received) = mpsc::unbounded_channel();
            self.watches.push(Watching { namespace: namespace.map(str::to_owned), lines });
            return Response::new(Lines(received).boxed_unsync());
        }
        let here = |key: &[String; 2]| namespace.is_none_or(|namespace| key[0] == namespace);
        let found = self.secrets.iter().filter(|(key, secret)| here(key) && is_labelled(secret));
        let all: Vec<Value> = found.map(|(_, secret)| partial(secret)).collect();
        let limit: usize = parameter(query, "limit").unwrap().parse().unwrap();
        let start: usize = parameter(query, "continue").map_or(0, |next| next.parse().unwrap());
        let end = all.len().min(start + limit);
        let next = if end < all.len() { end.to_string() } else { String::new() };
        let metadata = json!({ "resourceVersion": self.version.to_string(), "continue": next });
        whole(200, &json!({ "metadata": metadata, "items": all[start..end] }))
    }

    fn patch(&mut self, namespace: &str, name: &str, body: &Value) -> Response<Body> {
        if !self.patch_codes.is_empty() {
            return status(self.patch_codes.remove(0));
        }
        let Some(secret) = self.secrets.get(&[namespace.to_owned(), name.to_owned()]) else {
            return status(404);
        };
        let sent = &body["metadata"]["resourceVersion"];
        if !sent.is_string() || *sent != secret["metadata"]["resourceVersion"] {
            return status(409);
        }
        self.change(namespace, name, body);
        whole(200, &partial(&self.secret(namespace, name)))
    }
}

/// An API server that listens.
pub(super) struct FakeCluster {
    pub(super) state: Arc<Mutex<ClusterState>>,
    pub(super) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl FakeCluster {
    /// An API server over plain HTTP with the namespace `space`.
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Self::new_state();
        let (mut tasks, served) = (JoinSet::new(), state.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve_cluster(stream, served.clone()));
            }
        });
        Self { state, address, _tasks: tasks }
    }

    /// An API server over TLS.
    pub(super) async fn open_tls() -> Self {
        let CentralSocket { listener, acceptor, .. } = CentralSocket::open().await;
        let address = listener.local_addr().unwrap();
        let state = Self::new_state();
        let (mut tasks, served) = (JoinSet::new(), state.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, served) = (acceptor.clone(), served.clone());
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve_cluster(stream, served).await;
                    }
                });
            }
        });
        Self { state, address, _tasks: tasks }
    }

    fn new_state() -> Arc<Mutex<ClusterState>> {
        let namespaces = [("space".to_owned(), "ns-1".to_owned())].into();
        Arc::new(Mutex::new(ClusterState { namespaces, ..ClusterState::default() }))
    }
}

async fn body_of(request: Request<Incoming>) -> Value {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    std::str::from_utf8(&body).unwrap().parse().unwrap_or_default()
}

async fn serve_cluster(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    state: Arc<Mutex<ClusterState>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let state = state.clone();
        async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let body = body_of(request).await;
            let query = uri.query().unwrap_or_default();
            let answer = state.lock().answer(method.as_str(), uri.path(), query, &body);
            Ok::<_, Infallible>(answer)
        }
    });
    let serving = hyper::server::conn::http1::Builder::new();
    let _ = serving.serve_connection(TokioIo::new(stream), service).await;
}

/// The data of a project secret, and the offer of it.
#[derive(Clone, Default)]
pub(super) struct Offer {
    pub(super) version: String,
    pub(super) data: Value,
    pub(super) on_end: String,
}

/// A central server with the project secret `p/db`.
#[derive(Default)]
pub(super) struct CentreState {
    offer: Option<Offer>,
    /// The wishes of each subscription, in their order.
    pub(super) subscriptions: Vec<Vec<Value>>,
    open: Vec<Subscription>,
    /// Whether it rejects all requests.
    pub(super) is_down: bool,
}

struct Subscription {
    secrets: Vec<Value>,
    lines: UnboundedSender<String>,
}

impl CentreState {
    fn delivery(&self, secret: &Value) -> Value {
        let mut spec = secret.clone();
        let fields = spec.as_object_mut().unwrap();
        fields.remove("namespaceUid");
        fields.remove("version");
        let is_of_offer = secret["project"] == "p" && secret["projectSecret"] == "db";
        if let Some(offer) = self.offer.as_ref().filter(|_| is_of_offer) {
            spec["version"] = offer.version.clone().into();
            spec["data"] = offer.data.clone();
            spec["onEnd"] = offer.on_end.clone().into();
        } else {
            spec["reason"] = "NotOffered".into();
            spec["message"] = "not offered here".into();
        }
        let object = json!({ "apiVersion": "management.platform.sh/v1", "kind": "SecretDelivery",
            "metadata": {}, "spec": spec });
        json!({ "type": "MODIFIED", "object": object })
    }

    fn subscribe(&mut self, secrets: Vec<Value>) -> Response<Body> {
        let (lines, received) = mpsc::unbounded_channel();
        for secret in &secrets {
            let delivery = self.delivery(secret);
            let spec = &delivery["object"]["spec"];
            if spec["reason"].is_string() || secret["version"] != spec["version"] {
                lines.send(delivery.to_string()).unwrap();
            }
        }
        let bookmark = json!({ "type": "BOOKMARK", "object": { "metadata": {} } });
        lines.send(bookmark.to_string()).unwrap();
        self.subscriptions.push(secrets.clone());
        self.open.push(Subscription { secrets, lines });
        Response::new(Lines(received).boxed_unsync())
    }

    /// Changes the offer, and tells the subscriptions. `None` withdraws it.
    pub(super) fn set_offer(&mut self, offer: Option<Offer>) {
        self.offer = offer;
        for subscription in &self.open {
            for secret in &subscription.secrets {
                // The agent may have dropped the connection.
                let _ = subscription.lines.send(self.delivery(secret).to_string());
            }
        }
    }

    /// Ends all subscriptions, and rejects all requests.
    pub(super) fn go_down(&mut self) {
        self.is_down = true;
        self.open.clear();
    }
}

/// A central server that listens.
pub(super) struct FakeCentre {
    pub(super) state: Arc<Mutex<CentreState>>,
    settings: postern_client::Settings,
    _tasks: JoinSet<()>,
}

impl FakeCentre {
    pub(super) async fn open() -> Self {
        let central = CentralSocket::open().await;
        let settings = central.client().settings().clone();
        let CentralSocket { listener, acceptor, .. } = central;
        let state = Arc::new(Mutex::new(CentreState::default()));
        let (mut tasks, served) = (JoinSet::new(), state.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, served) = (acceptor.clone(), served.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let served = served.clone();
                        async move {
                            let path = request.uri().path().to_owned();
                            assert!(path.ends_with("/clusters/c/secretsubscriptions"), "{path}");
                            let body = body_of(request).await;
                            let secrets = body["spec"]["secrets"].as_array().unwrap().clone();
                            let mut state = served.lock();
                            Ok::<_, Infallible>(if state.is_down {
                                status(503)
                            } else {
                                state.subscribe(secrets)
                            })
                        }
                    });
                    let serving = hyper::server::conn::http1::Builder::new();
                    let _ = serving.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { state, settings, _tasks: tasks }
    }

    /// A client of it.
    pub(super) fn client(&self) -> Client {
        Client::new(self.settings.clone()).unwrap()
    }
}
