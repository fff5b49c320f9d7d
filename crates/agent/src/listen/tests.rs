//! Connections that bring nothing, and those that are too many.
#![expect(clippy::disallowed_methods, reason = "tasks of a test end with its runtime")]

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use postern_auth::endpoint_token::Claims;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::certificate::Certificate;
use crate::state_dir::StateDir;
use crate::testing::{Scene, claims, read};

/// A listener of a scene's agent, and the settings of a client that trusts it.
struct Listening {
    address: SocketAddr,
    tls: TlsConnector,
    _home: tempfile::TempDir,
}

impl Listening {
    async fn new(scene: &Scene) -> Self {
        let home = tempfile::tempdir().unwrap();
        let dir = StateDir::open(home.path()).unwrap();
        let certificate = Certificate::prepare(&dir, vec!["127.0.0.1".to_owned()], now()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(certificate.authority.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(certificate.server_config().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(scene.agent.clone(), listener, acceptor, Duration::from_secs(1)));
        Self { address, tls: TlsConnector::from(Arc::new(config)), _home: home }
    }

    /// A connection over HTTP/1.1.
    async fn raw(&self) -> TlsStream<TcpStream> {
        let mut config = (**self.tls.config()).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        self.tls.connect(name, stream).await.unwrap()
    }

    async fn client(&self) -> SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.connect().await);
        let (client, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// The system's time: certificates are checked against it.
fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

const PODS: &str = "/kubernetes/cluster/api/v1/pods";

#[tokio::test]
async fn a_connection_that_brings_no_valid_token_is_closed() {
    let scene = Scene::new().await;
    let listening = Listening::new(&scene).await;
    let (mut idle, mut refused, mut known) =
        (listening.client().await, listening.client().await, listening.client().await);
    let url = |path: &str| format!("https://agent.test{path}");
    let of_nobody = Request::get(url(PODS)).body(Full::default()).unwrap();
    assert_eq!(read(refused.send_request(of_nobody).await.unwrap()).await.0, 401);
    let request = || scene.request("GET", &url(PODS));
    assert_eq!(read(known.send_request(request()).await.unwrap()).await.0, 200);
    assert_eq!(scene.agent.connections.open(), 3);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(30)).await;
    tokio::time::resume();
    for unauthenticated in [&mut idle, &mut refused] {
        while unauthenticated.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(read(known.send_request(request()).await.unwrap()).await.0, 200);
    assert_eq!(scene.agent.connections.open(), 1);
}

#[tokio::test]
async fn unauthenticated_connections_are_closed_first_when_all_are_taken() {
    let scene = Scene::new().await;
    let listening = Listening::new(&scene).await;
    let mut known = listening.client().await;
    let request = || scene.request("GET", &format!("https://agent.test{PODS}"));
    assert_eq!(read(known.send_request(request()).await.unwrap()).await.0, 200);
    // One address may have four of the eight.
    let mut unauthenticated = Vec::new();
    for _ in 0..12 {
        unauthenticated.push(listening.client().await);
    }
    assert!(scene.agent.connections.open() <= 4);
    assert_eq!(read(known.send_request(request()).await.unwrap()).await.0, 200);
}

/// Otherwise one connection could try tokens for half a minute, as fast as it can.
#[tokio::test]
async fn a_connection_that_brings_invalid_tokens_again_and_again_is_closed() {
    let scene = Scene::new().await;
    let listening = Listening::new(&scene).await;
    let (mut guessing, mut known) = (listening.client().await, listening.client().await);
    let url = format!("https://agent.test{PODS}");
    let of_nobody = || Request::get(&url).body(Full::default()).unwrap();
    let valid = || scene.request("GET", &url);
    assert_eq!(read(known.send_request(valid()).await.unwrap()).await.0, 200);
    for _ in 0..MAX_REFUSALS {
        assert_eq!(read(guessing.send_request(of_nobody()).await.unwrap()).await.0, 401);
        assert_eq!(read(known.send_request(of_nobody()).await.unwrap()).await.0, 401);
    }
    // The limit does not apply to connections that have sent a valid token.
    while guessing.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(read(known.send_request(valid()).await.unwrap()).await.0, 200);
}

/// Reads the head of a response, and its body if it has a length.
async fn response(stream: &mut TlsStream<TcpStream>) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return String::from_utf8(read).unwrap();
        }
    }
}

/// A token for ada with 500 groups of 256 bytes.
fn large_token(scene: &Scene) -> String {
    let mut claims = claims();
    claims.groups.extend((0..500).map(|number| format!("{number:0>256}")));
    scene.key.issue_within(1024 * 1024, &claims).unwrap().expose().to_owned()
}

fn get(path: &str, token: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
        .into_bytes()
}

const OPENING: &str = "Connection: Upgrade\r\nUpgrade: postern-long-heads/1\r\n";

#[tokio::test]
async fn the_central_server_may_send_long_heads_after_a_token_of_its_own() {
    let scene = Scene::new().await;
    let listening = Listening::new(&scene).await;
    let own = |audience: &str| {
        let claims = Claims { aud: vec![audience.to_owned()], ..claims() };
        scene.key.issue(&claims).unwrap().expose().to_owned()
    };
    let mut stream = listening.raw().await;
    let opening = get(AGENT_LONG_HEADS, &own("platform.sh/cluster-gateway:u"), OPENING);
    stream.write_all(&opening).await.unwrap();
    assert!(response(&mut stream).await.starts_with("HTTP/1.1 101 "));
    let token = large_token(&scene);
    assert!(token.len() > 150 * 1024);
    for _ in 0..2 {
        stream.write_all(&get(PODS, &token, "")).await.unwrap();
        let text = response(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("{}"), "{text}");
    }
    // It has a limit, too.
    let _ = stream.write_all(&get(PODS, &"x".repeat(2 * 1024 * 1024), "")).await;
    let text = response(&mut stream).await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431 "), "{text}");

    // Otherwise the listener keeps as little of a head as before.
    let mut stream = listening.raw().await;
    let _ = stream.write_all(&get(PODS, &token, "")).await;
    let text = response(&mut stream).await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431 "), "{text}");
    for token in [
        own("platform.sh/cluster:u"),
        own("platform.sh/cluster-gateway:other"),
        own("platform.sh/cluster-issuer:u"),
        "a.b.c".to_owned(),
    ] {
        let mut stream = listening.raw().await;
        stream.write_all(&get(AGENT_LONG_HEADS, &token, OPENING)).await.unwrap();
        let text = response(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 4"), "{text}");
    }
    // And the token of the server leads nowhere else.
    let mut stream = listening.raw().await;
    stream.write_all(&get(PODS, &own("platform.sh/cluster-gateway:u"), "")).await.unwrap();
    assert!(response(&mut stream).await.starts_with("HTTP/1.1 401 "));
}
