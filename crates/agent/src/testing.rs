//! The common parts of this crate's tests: a token, which is a JWT, and the configuration that knows its key. An agent
//! runs in front of a cluster of the test's own.

#![expect(clippy::disallowed_methods, reason = "tasks of a test end with its runtime")]

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use postern_auth::endpoint_token::{Claims, KeyClaim, PlatformClaims, SigningKey};
use postern_auth::gateway_path::OF_WORKLOAD;
use postern_client::{Client, ServerUrl, Settings, Trust};
use postern_kinds::SecretText;
use postern_kinds::agent_config::{ClusterId, Spec, Use, UseSubject};
use postern_kinds::audit_event_list::AuditEvent;
use postern_listen::{ConnectionLimits, ConnectionTable, Peer};
use postern_meta::time::MicroTimestamp;
use postern_proxy::{Proxy, Upstream, UpstreamAddresses, UpstreamConfig};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::audit::{Audit, MAX_BYTES, Queue};
use crate::flow::{Flow, FlowLimits};
use crate::lifespan::GatewayTokens;
use crate::metrics::Metrics;
use crate::readiness::ReadinessCheck;
use crate::secret_counts::SecretCounts;
use crate::serve::Agent;
use crate::state::State;
use crate::tunnel_pool::Pool;
use crate::upstream::ClusterUpstream;
use crate::virtual_clusters::{Reader, VirtualClusters};

/// The time in tests, in seconds since 1970.
pub(crate) const NOW: i64 = 1_700_000_000;

/// The time so many seconds after 1970.
pub(crate) fn at_second(seconds: i64) -> MicroTimestamp {
    MicroTimestamp::from_unix_microseconds(seconds * 1_000_000)
}

/// A central server over TLS, as far as a test needs one: it has its socket and answers nothing.
pub(crate) struct CentralSocket {
    /// The socket that listens.
    pub(crate) listener: TcpListener,
    /// Accepts TLS on its connections.
    pub(crate) acceptor: TlsAcceptor,
    settings: Settings,
}

impl CentralSocket {
    /// Opens the socket on loopback.
    pub(crate) async fn open() -> Self {
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let settings = Settings {
            server: ServerUrl::parse(&format!("https://{address}")).unwrap(),
            key: SecretText::from("hush".to_owned()),
            impersonation: None,
            trust: Trust::of_pem(own.cert.pem().into_bytes()).unwrap(),
            tls_server_name: None,
            request_timeout: Duration::from_mins(1),
        };
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(tls)), settings }
    }

    /// A client of the server.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.settings.clone()).unwrap()
    }
}

/// The claims of ada's token.
pub(crate) fn claims() -> Claims {
    Claims {
        iss: "https://postern.test".to_owned(),
        sub: "ada".to_owned(),
        aud: vec!["platform.sh/cluster:u".to_owned()],
        iat: NOW,
        nbf: NOW,
        exp: NOW + 600,
        jti: "t".to_owned(),
        groups: vec!["system:authenticated".to_owned(), "g".to_owned()],
        platform: PlatformClaims {
            revocation_revision: 10,
            keys: vec![KeyClaim { name: "k".to_owned(), uid: "uid-k".to_owned() }],
            ..PlatformClaims::default()
        },
    }
}

/// The configuration that knows a key, and lets ada use the cluster.
pub(crate) fn spec_with(key: &SigningKey) -> Spec {
    let public = serde_json::to_value(key.public()).unwrap();
    let ada = UseSubject { user: "ada".to_owned(), ..UseSubject::default() };
    Spec {
        cluster: ClusterId { name: "c".to_owned(), uid: "u".to_owned() },
        issuer: "https://postern.test".to_owned(),
        audiences: vec!["platform.sh/cluster:u".to_owned()],
        max_offline_seconds: 1000,
        keys: vec![serde_json::from_value(public).unwrap()],
        uses: vec![Use {
            resource: "clusters".to_owned(),
            name: "c".to_owned(),
            subjects: vec![ada],
            ..Use::default()
        }],
        ..Spec::default()
    }
}

/// The cluster's answer.
pub(crate) type Answer = Arc<Mutex<(StatusCode, String)>>;

fn upstream(cluster: SocketAddr) -> ClusterUpstream {
    let url = format!("http://{cluster}").parse().unwrap();
    let (addresses, allow_plain) = (UpstreamAddresses::any(), true);
    let config = UpstreamConfig { addresses, allow_plain, ..UpstreamConfig::new(url) };
    Upstream::new(config).unwrap().into()
}

/// An agent in front of a cluster that answers when it is let.
pub(crate) struct Scene {
    pub(crate) key: SigningKey,
    pub(crate) agent: Arc<Agent>,
    /// The paths that have arrived at the cluster.
    pub(crate) arrived: mpsc::UnboundedReceiver<String>,
    /// While it is `true`, the cluster does not answer.
    pub(crate) holds: watch::Sender<bool>,
    /// The cluster's answer.
    pub(crate) answer: Answer,
    seconds: Arc<AtomicI64>,
    /// The state directory of the agent.
    pub(crate) home: tempfile::TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with_queue(MAX_BYTES).await
    }

    /// A scene with a cluster that does not answer the agent.
    pub(crate) async fn without_cluster() -> Self {
        let mut scene = Self::new().await;
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let agent = Arc::get_mut(&mut scene.agent).unwrap();
        agent.upstream = upstream(gone);
        scene
    }

    /// A scene with an agent that keeps at most this many bytes of audit records.
    pub(crate) async fn with_queue(max_bytes: u64) -> Self {
        let (holds, held) = watch::channel(false);
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let answer = Answer::new(Mutex::new((StatusCode::OK, "{}".to_owned())));
        let cluster = cluster(arrivals, held, answer.clone()).await;
        Self { arrived, holds, answer, ..Self::of_cluster(cluster, max_bytes) }
    }

    /// A scene with an agent of this cluster, over plain HTTP.
    pub(crate) fn of_cluster(cluster: SocketAddr, max_bytes: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        let queue = Queue::open(&home.path().join("audit"), max_bytes).unwrap();
        let (holds, arrived) = (watch::Sender::new(false), mpsc::unbounded_channel().1);
        let answer = Answer::default();
        let seconds = Arc::new(AtomicI64::new(NOW));
        let clock = seconds.clone();
        let clock = move || at_second(clock.load(Ordering::Relaxed));
        let state = State::new(Arc::new(clock), 500);
        let key = SigningKey::generate().unwrap();
        state.apply_config(spec_with(&key), NOW);
        let (proxy, upstream) = (Proxy::new(), upstream(cluster));
        let domain = "cluster.test".parse().unwrap();
        let reader = Reader::new(proxy.clone(), upstream.clone(), true, domain);
        let agent = Arc::new(Agent {
            state: Arc::new(state),
            cluster: "c".to_owned(),
            proxy,
            upstream,
            virtual_clusters: VirtualClusters::new(reader),
            max_session: Duration::from_mins(1),
            stream_stall: postern_proxy::STREAM_STALL,
            metrics: Metrics::default(),
            secrets: SecretCounts::default(),
            audit: Audit::new(queue, 1, true),
            flow: Flow::new(FlowLimits { requests: 2, long_requests: 1 }),
            gateway_tokens: GatewayTokens::default(),
            connections: ConnectionTable::new(ConnectionLimits::of_descriptors(16)),
            readiness: Arc::default(),
            tunnels: Pool::new(0, 1),
            draining: watch::Sender::new(false),
        });
        Self { key, agent, arrived, holds, answer, seconds, home }
    }

    /// Sets the time, in seconds since 1970.
    pub(crate) fn set_seconds(&self, seconds: i64) {
        self.seconds.store(seconds, Ordering::Relaxed);
    }

    /// The task that asks the cluster.
    pub(crate) fn readiness_check(&self) -> ReadinessCheck {
        ReadinessCheck {
            proxy: self.agent.proxy.clone(),
            upstream: self.agent.upstream.clone(),
            state: self.agent.state.clone(),
            cluster: self.agent.cluster.clone(),
            readiness: self.agent.readiness.clone(),
        }
    }

    /// A request with ada's token.
    pub(crate) fn request(&self, method: &str, path: &str) -> Request<Full<Bytes>> {
        self.request_of(&claims(), method, path)
    }

    /// A request with a token that says this.
    pub(crate) fn request_of(
        &self,
        claims: &Claims,
        method: &str,
        path: &str,
    ) -> Request<Full<Bytes>> {
        let token = self.key.issue(claims).unwrap();
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "agent.test")
            .header("authorization", format!("Bearer {}", token.expose()))
            .body(Full::default())
            .unwrap()
    }

    /// A client of the agent.
    pub(crate) async fn client(&self) -> SendRequest<Full<Bytes>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let agent = self.agent.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let agent = agent.clone();
            let peer = Peer::new(IpAddr::from([127, 0, 0, 1]));
            async move { Ok::<_, Infallible>(agent.answer(&peer, request).await) }
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(theirs), service)
            .with_upgrades();
        tokio::spawn(serving);
        let (client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        client
    }
}

impl Scene {
    /// The records that wait for the central server.
    pub(crate) async fn records(&self) -> Vec<AuditEvent> {
        let (queue, mut records) = (&self.agent.audit.queue, Vec::new());
        while let Some(segment) = queue.oldest().await {
            records.extend(queue.read(segment).await.unwrap().0);
            queue.remove(segment).await;
        }
        records
    }
}

/// Starts a cluster, and returns its address.
async fn cluster(
    arrivals: mpsc::UnboundedSender<String>,
    held: watch::Receiver<bool>,
    answer: Answer,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (arrivals, held, answer) = (arrivals.clone(), held.clone(), answer.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (arrivals, mut held, answer) = (arrivals.clone(), held.clone(), answer.clone());
                async move {
                    let _ = arrivals.send(request.uri().path().to_owned());
                    let _ = held.wait_for(|held| !held).await;
                    let (code, text) = answer.lock().clone();
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    *response.status_mut() = code;
                    // No upstream can say this.
                    response.headers_mut().insert(OF_WORKLOAD, HeaderValue::from_static("true"));
                    Ok::<_, Infallible>(response)
                }
            });
            let io = TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    address
}

/// The code of an answer, its `Retry-After`, and its body as text.
pub(crate) async fn read(answer: Response<Incoming>) -> (u16, Option<String>, String) {
    let code = answer.status().as_u16();
    let retry_after = answer.headers().get("retry-after");
    let retry_after = retry_after.map(|value| value.to_str().unwrap().to_owned());
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, retry_after, String::from_utf8(body.to_vec()).unwrap())
}
