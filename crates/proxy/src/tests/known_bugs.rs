//! Bugs that other proxies have had. Each test carries the name of one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::support::*;
use super::upgrades::{SPDY, WEBSOCKET};
use crate::*;

/// An upgrade that is refused leaves no connection on which more could be sent.
#[tokio::test]
async fn cve_2018_1002105_a_refused_upgrade_leaves_no_open_pipe() {
    for answer in
        ["403 Forbidden", "200 OK", "404 Not Found", "500 Internal Server Error", "302 Found"]
    {
        for request in [WEBSOCKET, SPDY] {
            let (sender, mut got) = mpsc::unbounded_channel();
            let upstream = RawUpstream::start(move |_, mut raw| {
                let sender = sender.clone();
                async move {
                    raw.head().await;
                    raw.send(format!(
                        "HTTP/1.1 {answer}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Content-Length: 2\r\n\r\nno"
                    ))
                    .await;
                    sender.send(raw.rest().await).unwrap();
                }
            })
            .await;
            let proxy = Proxy::new();
            let made = upstream.upstream();
            let front = Front::start(&proxy, &made, forward).await;
            let mut client = Raw::connect(front.address).await;
            let second = "GET /secret HTTP/1.1\r\nHost: front\r\nImpersonate-User: admin\r\n\r\n";
            client.send(format!("{request}{second}")).await;
            let head = client.head().await;
            assert!(head.starts_with(&format!("HTTP/1.1 {answer}\r\n")), "{head}");
            assert!(!head.to_ascii_lowercase().contains("upgrade"), "{head}");
            assert!(head.to_ascii_lowercase().contains("connection: close\r\n"), "{head}");
            // The client's connection ends, and the upstream's did with nothing more on it.
            assert_eq!(client.rest().await, b"no");
            assert_eq!(soon(got.recv()).await.unwrap(), b"", "{answer}");
            let counts = until(&proxy, |counts| counts.connections == 0).await;
            assert_eq!((counts.idle_connections, counts.sessions_begun), (0, 0));
            assert_eq!(upstream.connections(), 1);
        }
    }
}

/// Redirects are not followed, and those that lead elsewhere are not passed on.
#[tokio::test]
async fn cve_2020_8559_and_2022_3172_redirects_never_carry_credentials_elsewhere() {
    let elsewhere = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let target = elsewhere.address;
    for status in [301, 302, 303, 307, 308] {
        let upstream = RawUpstream::start(move |_, mut raw| async move {
            raw.head().await;
            raw.send(format!(
                "HTTP/1.1 {status} Moved\r\nLocation: http://{target}/x\r\nContent-Length: 0\r\n\r\n"
            ))
            .await;
            raw.rest().await;
        })
        .await;
        let proxy = Proxy::new();
        let front = Front::start(&proxy, &upstream.upstream(), forward).await;
        for request in ["GET /x HTTP/1.1\r\nHost: front\r\n\r\n", WEBSOCKET] {
            let mut client = Raw::connect(front.address).await;
            client.send(request).await;
            let head = client.head().await;
            assert!(head.starts_with("HTTP/1.1 502"), "{status}: {head}");
            assert!(!head.to_ascii_lowercase().contains("location"), "{head}");
        }
        until(&proxy, |counts| counts.connections == 0).await;
    }
    assert_eq!(elsewhere.connections(), 0);

    let upstream = RawUpstream::answering(
        "HTTP/1.1 301 Moved\r\nLocation: /api/v1/proxy/\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let request =
        http::Request::get("/x").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let mut forward = forward(request.uri());
    forward.location_prefix = "/kubernetes/cluster/c".to_owned();
    let answer = soon(Proxy::new().forward(&upstream.upstream(), request, forward)).await.unwrap();
    assert_eq!(answer.status(), 301);
    assert_eq!(answer.headers()["location"], "/kubernetes/cluster/c/api/v1/proxy/");
    assert_eq!(upstream.connections(), 1);
}

/// A name server that says something else each time it is asked.
struct Rebinding {
    answers: Vec<SocketAddr>,
    asked: AtomicUsize,
}

impl Resolve for Rebinding {
    fn resolve<'a>(&'a self, _host: &'a str, _port: u16) -> ResolveFuture<'a> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers[number % self.answers.len()];
        Box::pin(async move { Ok::<_, io::Error>(vec![answer]) })
    }
}

/// The address that was checked is the one that is dialled: the name is asked for once.
#[tokio::test]
async fn cve_2020_8562_and_2022_3294_a_name_is_not_resolved_again_after_the_check() {
    let first = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst").await;
    let second = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond").await;
    let resolver = Arc::new(Rebinding {
        answers: vec![first.address, second.address],
        asked: AtomicUsize::new(0),
    });
    let dial = TcpDial::with(resolver.clone(), Liveness::default());
    let proxy = Proxy::with(Limits::default(), Arc::new(dial));
    let mut config = first.config();
    config.url = "http://cluster.example:6443".parse().unwrap();
    let upstream = Upstream::new(config.clone()).unwrap();
    let response = get(&proxy, &upstream, "/x").await.unwrap();
    assert_eq!(text(response).await.unwrap(), "first");
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
    assert_eq!(second.connections(), 0);

    // The next connection asks again, and the new answer is checked again.
    config.addresses = UpstreamAddresses::default();
    let error = get(&proxy, &Upstream::new(config).unwrap(), "/x").await.unwrap_err();
    assert!(matches!(error, ProxyError::AddressRefused { .. }), "{error}");
    assert_eq!(second.connections(), 0);
}

/// `Connection` cannot take away the headers that name the caller.
#[tokio::test]
async fn cve_2021_31999_and_32813_connection_names_no_identity_header() {
    let upstream = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    for named in ["Impersonate-User, Impersonate-Group", "impersonate-user", "Authorization"] {
        let mut client = Raw::connect(front.address).await;
        client.send(format!("GET /x HTTP/1.1\r\nHost: front\r\nConnection: {named}\r\n\r\n")).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    }
    assert_eq!(upstream.connections(), 0);
}

/// The caller's credential stays here: in a header, a cookie, a trailer or a sub-protocol.
#[tokio::test]
async fn cve_2026_4525_and_2025_54468_the_callers_credential_reaches_no_upstream() {
    let (sender, mut heads) = mpsc::unbounded_channel();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            sender.send(raw.head().await).unwrap();
            raw.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
            raw.rest().await;
        }
    })
    .await;
    let front = Front::start(&Proxy::new(), &upstream.upstream(), forward).await;
    let protocols = "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0, \
                     v4.channel.k8s.io\r\nSec-WebSocket-Protocol: \
                     BASE64URL.bearer.authorization.k8s.io.c2VjcmV0";
    let websocket = WEBSOCKET.replace("v5.channel.k8s.io, v4.channel.k8s.io", protocols);
    let plain = "GET /x HTTP/1.1\r\nHost: front\r\n\r\n".to_owned();
    for request in [websocket, plain] {
        let credentials = "Authorization: Bearer c2VjcmV0\r\nCookie: c2VjcmV0\r\n\
                           Proxy-Authorization: Basic c2VjcmV0\r\n\r\n";
        let request = request.strip_suffix("\r\n").unwrap().to_owned() + credentials;
        let mut client = Raw::connect(front.address).await;
        client.send(&request).await;
        client.head().await;
        let head = soon(heads.recv()).await.unwrap();
        assert!(!head.contains("c2VjcmV0"), "{head}");
        assert_eq!(head.matches("authorization: ").count(), 1, "{head}");
        if request.contains("websocket") {
            let kept = "sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n";
            assert!(head.contains(kept), "{head}");
        }
    }
}

/// A sub-protocol that carries a token is no choice that an upstream can make.
#[tokio::test]
async fn an_upstream_cannot_choose_the_sub_protocol_that_is_a_token() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        raw.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0\r\n\r\n",
        )
        .await;
        raw.rest().await;
    })
    .await;
    let front = Front::start(&Proxy::new(), &upstream.upstream(), forward).await;
    let token = "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io";
    let mut client = Raw::connect(front.address).await;
    client.send(WEBSOCKET.replace("v5.channel.k8s.io", token)).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
}

/// A terminal ends when the right to it ends.
#[tokio::test]
async fn cve_2023_40025_and_2024_41666_a_terminal_does_not_outlive_its_right() {
    fn revocable(uri: &http::Uri) -> Forward {
        let mut forward = forward(uri);
        forward.session = Session::until(REVOKED.notified());
        forward
    }
    static REVOKED: tokio::sync::Notify = tokio::sync::Notify::const_new();
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        raw.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n$ ")
            .await;
        raw.rest().await;
    })
    .await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), revocable).await;
    let mut client = Raw::connect(front.address).await;
    client.send(WEBSOCKET).await;
    client.head().await;
    assert_eq!(client.read_to("$ ").await, "$ ");
    REVOKED.notify_waiters();
    assert_eq!(client.rest().await, b"");
    until(&proxy, |counts| counts.sessions == 0 && counts.connections == 0).await;
}
