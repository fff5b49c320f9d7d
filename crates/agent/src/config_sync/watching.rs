//! An agent with the test's own central server: its watches, and its behaviour without them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postern_auth::endpoint_token::SigningKey;
use postern_kinds::agent_config::Revocation;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::state::Refused;
use crate::testing::{CentralSocket, NOW, at_second, spec_with};

type Lines = mpsc::UnboundedReceiver<Value>;

/// The body of a watch: a line for each event that the test sends.
struct Events(Lines);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|line| line.map(|line| Ok(Frame::data(format!("{line}\n").into()))))
    }
}

/// The central server's answers.
#[derive(Default)]
struct Answers {
    /// The next watch of each part. Without one, a watch is refused.
    watches: HashMap<&'static str, Lines>,
    /// Whether it knows no watch, so that it responds as to a GET.
    is_old: bool,
    whole: Value,
}

struct Scene {
    answers: Arc<Mutex<Answers>>,
    state: Arc<State>,
    seconds: Arc<AtomicI64>,
    changes: watch::Receiver<u64>,
    _kept: watch::Receiver<Option<Arc<StoredConfig>>>,
    _tasks: JoinSet<()>,
}

fn config(spec: &Spec) -> Value {
    json!({ "apiVersion": "management.platform.sh/v1", "kind": "AgentConfig",
        "metadata": { "name": "c" }, "spec": spec })
}

fn event(event_type: &str, spec: &Spec) -> Value {
    json!({ "type": event_type, "object": config(spec) })
}

fn tokens_of(spec: &Spec) -> Spec {
    let (instances, uses, part) = (Vec::new(), Vec::new(), "tokens".to_owned());
    Spec { instances, uses, part, ..spec.clone() }
}

fn places_of(spec: &Spec) -> Spec {
    let Spec { cluster, instances, uses, .. } = spec.clone();
    Spec { cluster, instances, uses, part: "places".to_owned(), ..Spec::default() }
}

fn answer(answers: &Mutex<Answers>, query: &str) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let mut answers = answers.lock();
    if query.contains("watch=true") && !answers.is_old {
        let watched = answers.watches.keys().find(|part| query.contains(&format!("part={part}")));
        let lines = watched.copied().and_then(|part| answers.watches.remove(part));
        if let Some(lines) = lines {
            return Response::new(Events(lines).boxed_unsync());
        }
        let refused =
            json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "no" });
        let mut response = Response::new(Full::from(refused.to_string()).boxed_unsync());
        *response.status_mut() = http::StatusCode::FORBIDDEN;
        return response;
    }
    Response::new(Full::from(answers.whole.to_string()).boxed_unsync())
}

impl Scene {
    /// An agent that follows a central server.
    async fn new(answers: Answers) -> Self {
        let central = CentralSocket::open().await;
        let clients = [central.client(), central.client()];
        let CentralSocket { listener, acceptor, .. } = central;
        let answers = Arc::new(Mutex::new(answers));
        let mut tasks = JoinSet::new();
        let answering = answers.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answering) = (acceptor.clone(), answering.clone());
                connections.spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    let service = service_fn(|request: Request<Incoming>| {
                        let answer = answer(&answering, request.uri().query().unwrap_or_default());
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let serving = hyper::server::conn::http1::Builder::new();
                    let _ = serving.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let seconds = Arc::new(AtomicI64::new(NOW));
        let clock = seconds.clone();
        let clock = move || at_second(clock.load(Ordering::Relaxed));
        let state = Arc::new(State::new(Arc::new(clock), 500));
        let (to_store, kept) = watch::channel(None);
        tasks.spawn(run(state.clone(), clients, "c".to_owned(), to_store));
        let changes = state.subscribe();
        Self { answers, state, seconds, changes, _kept: kept, _tasks: tasks }
    }

    /// An agent with both parts from its watches, and the senders of the next events of each part.
    async fn watching() -> (Self, Spec, [mpsc::UnboundedSender<Value>; 2]) {
        let (tokens, of_tokens) = mpsc::unbounded_channel();
        let (places, of_places) = mpsc::unbounded_channel();
        let watches = HashMap::from([("tokens", of_tokens), ("places", of_places)]);
        let scene = Self::new(Answers { watches, ..Answers::default() }).await;
        let first = spec_with(&SigningKey::generate().unwrap());
        tokens.send(event("ADDED", &tokens_of(&first))).unwrap();
        places.send(event("ADDED", &places_of(&first))).unwrap();
        (scene, first, [tokens, places])
    }

    /// The configuration after the next change.
    async fn next(&mut self) -> Spec {
        self.changes.changed().await.unwrap();
        self.state.last_config().unwrap().0
    }
}

#[tokio::test]
async fn an_agent_watches_both_parts_and_asks_for_the_whole_where_it_may_not_watch() {
    let (mut scene, first, [tokens, places]) = Scene::watching().await;
    assert_eq!(scene.next().await, first, "with both parts");

    // A revocation is in one part. If the other part was confirmed long ago, the whole is old.
    scene.seconds.store(NOW + 100, Ordering::Relaxed);
    let revocations = vec![Revocation { uid: "uid-k".to_owned(), revocation_revision: 11 }];
    let revoked = Spec { revocations, ..first };
    tokens.send(event("MODIFIED", &tokens_of(&revoked))).unwrap();
    assert_eq!(scene.next().await, revoked);
    assert_eq!(scene.state.seconds_without_contact(), Some(100));
    scene.seconds.store(NOW + 501, Ordering::Relaxed);
    assert_eq!(scene.state.config().err(), Some(Refused::Offline));
    let unused = Spec { uses: Vec::new(), ..revoked };
    tokens.send(json!({ "type": "BOOKMARK", "object": { "metadata": {} } })).unwrap();
    places.send(json!({ "type": "BOOKMARK", "object": { "metadata": {} } })).unwrap();
    places.send(event("MODIFIED", &places_of(&unused))).unwrap();
    assert_eq!(scene.next().await, unused);
    let more = Spec { max_offline_seconds: 400, ..unused };
    tokens.send(event("MODIFIED", &tokens_of(&more))).unwrap();
    assert_eq!(scene.next().await, more);
    assert_eq!(scene.state.seconds_without_contact(), Some(0));

    // Its watches end, and it gets no others.
    let last = Spec { max_offline_seconds: 300, ..more };
    scene.answers.lock().whole = config(&last);
    drop((tokens, places));
    assert_eq!(scene.next().await, last);
}

#[tokio::test]
async fn an_agent_asks_an_older_central_server_for_the_whole() {
    let first = spec_with(&SigningKey::generate().unwrap());
    let answers = Answers { is_old: true, whole: config(&first), ..Answers::default() };
    let mut scene = Scene::new(answers).await;
    assert_eq!(scene.next().await, first);
}

#[tokio::test]
async fn a_cluster_that_is_made_anew_has_nothing_of_the_one_before() {
    let (mut scene, first, [tokens, places]) = Scene::watching().await;
    assert_eq!(scene.next().await, first);
    let mut second = first.clone();
    "other".clone_into(&mut second.cluster.uid);
    tokens.send(event("MODIFIED", &tokens_of(&second))).unwrap();
    scene.changes.changed().await.unwrap();
    assert_eq!(
        scene.state.config().err(),
        Some(Refused::NotConfigured),
        "who may use it is not known"
    );
    places.send(event("MODIFIED", &places_of(&second))).unwrap();
    assert_eq!(scene.next().await, second);
}
