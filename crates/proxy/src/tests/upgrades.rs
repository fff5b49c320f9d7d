//! WebSocket and SPDY/3.1: from the request that asks for it to the end of both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Uri;
use http_body_util::Empty;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::support::*;
use crate::*;

pub(super) const WEBSOCKET: &str = "GET /exec HTTP/1.1\r\nHost: front\r\nConnection: keep-alive, Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a2V5\r\n\
     Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n\r\n";

pub(super) const SPDY: &str = "POST /exec HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\n\
     Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\
     X-Stream-Protocol-Version: v3.channel.k8s.io\r\nContent-Length: 0\r\n\r\n";

fn switched(protocol: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nX-Own: 1\r\n\r\n"
    )
}

/// An upstream that switches to the requested protocol, and then sends the received bytes back.
async fn echoing() -> RawUpstream {
    RawUpstream::start(|_, mut raw| async move {
        let head = raw.head().await;
        let is_websocket = head.contains("upgrade: websocket\r\n");
        let protocol = if is_websocket { "websocket" } else { "SPDY/3.1" };
        raw.send(switched(protocol)).await;
        let got = raw.rest().await;
        let _ = raw.stream.write_all(&got).await;
        let _ = raw.stream.write_all(b" and that is all").await;
        let _ = raw.stream.shutdown().await;
    })
    .await
}

#[tokio::test]
async fn upgrades_are_pumped_both_ways_and_half_closed() {
    for (request, protocol) in [(WEBSOCKET, "websocket"), (SPDY, "SPDY/3.1")] {
        let upstream = echoing().await;
        let proxy = Proxy::new();
        let front = Front::start(&proxy, &upstream.upstream(), forward).await;
        let mut client = Raw::connect(front.address).await;
        // Bytes right behind the request belong to the new protocol.
        client.send(format!("{request}early ")).await;
        let head = client.head().await.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(head.contains("connection: upgrade\r\n"), "{head}");
        assert!(
            head.contains(&format!("upgrade: {}\r\n", protocol.to_ascii_lowercase())),
            "{head}"
        );
        assert!(head.contains("x-own: 1\r\n"), "{head}");
        client.send("and late").await;
        // Standard input is closed, and the output still comes.
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.rest().await, b"early and late and that is all");
        let counts = until(&proxy, |counts| counts.connections == 0 && counts.sessions == 0).await;
        assert_eq!((counts.sessions_begun, counts.failures), (1, [0; 10]));
        assert_eq!(upstream.connections(), 1);
    }
}

#[tokio::test]
async fn an_upstream_may_close_first() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        raw.send(switched("websocket")).await;
        raw.send("bye").await;
        raw.stream.shutdown().await.unwrap();
        assert_eq!(raw.rest().await, b"thanks");
    })
    .await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    let mut client = Raw::connect(front.address).await;
    client.send(WEBSOCKET).await;
    client.head().await;
    assert_eq!(client.read_to("bye").await, "bye");
    client.send("thanks").await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, b"");
    until(&proxy, |counts| counts.connections == 0 && counts.sessions == 0).await;
}

#[tokio::test]
async fn the_upstream_is_asked_for_what_the_client_wants_and_no_more() {
    let (sender, mut heads) = mpsc::unbounded_channel();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            loop {
                let head = raw.head().await;
                if head.is_empty() || sender.send(head).is_err() {
                    return;
                }
                raw.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    let h2c = "GET /x HTTP/1.1\r\nHost: front\r\nConnection: Upgrade, HTTP2-Settings\r\n\
               Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let both =
        "GET /x HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: h2c, WebSocket\r\n\r\n";
    let unasked = "GET /x HTTP/1.1\r\nHost: front\r\nUpgrade: websocket\r\n\r\n";
    for (request, wanted) in [
        (WEBSOCKET, Some("upgrade: websocket\r\n")),
        (SPDY, Some("upgrade: SPDY/3.1\r\n")),
        (h2c, None),
        (both, Some("upgrade: websocket\r\n")),
        (unasked, None),
    ] {
        let mut client = Raw::connect(front.address).await;
        client.send(request).await;
        client.head().await;
        let head = soon(heads.recv()).await.unwrap();
        match wanted {
            Some(line) => {
                assert!(head.contains(line) && head.contains("connection: Upgrade\r\n"), "{head}");
            }
            None => assert!(!head.to_ascii_lowercase().contains("upgrade"), "{head}"),
        }
        assert!(!head.contains("h2c"), "{head}");
        if request == SPDY {
            assert_eq!(head.matches("x-stream-protocol-version: ").count(), 2, "{head}");
            assert!(head.contains("content-length: 0\r\n"), "{head}");
        }
    }
}

#[tokio::test]
async fn an_upgrade_with_a_body_or_over_http_1_0_is_none() {
    let upstream = echoing().await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    let body = SPDY.replace("Content-Length: 0\r\n\r\n", "Content-Length: 3\r\n\r\nabc");
    let mut client = Raw::connect(front.address).await;
    client.send(body).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert_eq!(upstream.connections(), 0);

    // A request that did not come through a server which can hand over its connection.
    let request = http::Request::get("/exec")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let made = upstream.upstream();
    let sent = proxy.forward(&made, request, forward(&Uri::from_static("/exec")));
    assert!(matches!(soon(sent).await, Err(ProxyError::BadRequest(_))));
}

#[tokio::test]
async fn another_protocol_or_sub_protocol_than_asked_for_is_refused() {
    for (line, is_good) in [
        ("Upgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io", true),
        ("Upgrade: WebSocket", true),
        ("Upgrade: websocket\r\nSec-WebSocket-Protocol: other", false),
        (
            "Upgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io",
            false,
        ),
        ("Upgrade: SPDY/3.1", false),
        ("Upgrade: websocket, h2c", false),
        ("X-Nothing: 1", false),
    ] {
        let upstream = RawUpstream::start(move |_, mut raw| async move {
            raw.head().await;
            raw.send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{line}\r\n\r\n"
            ))
            .await;
            raw.rest().await;
        })
        .await;
        let proxy = Proxy::new();
        let front = Front::start(&proxy, &upstream.upstream(), forward).await;
        let mut client = Raw::connect(front.address).await;
        client.send(WEBSOCKET).await;
        let head = client.head().await;
        assert_eq!(head.starts_with("HTTP/1.1 101"), is_good, "{line}: {head}");
        if !is_good {
            assert!(head.starts_with("HTTP/1.1 503"), "{line}: {head}");
            until(&proxy, |counts| counts.connections == 0).await;
        }
    }
}

/// By RFC 6455, the name of a sub-protocol has no slash, but the name of kubectl's port-forward has
/// one.
#[tokio::test]
async fn the_sub_protocol_of_port_forward_passes() {
    const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
    let upstream = RawUpstream::start(|_, mut raw| async move {
        let head = raw.head().await.to_ascii_lowercase();
        let offered = format!("sec-websocket-protocol: {}\r\n", TUNNEL.to_ascii_lowercase());
        assert!(head.contains(&offered), "{head}");
        let chosen = format!("Upgrade: websocket\r\nSec-WebSocket-Protocol: {TUNNEL}");
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade";
        raw.send(format!("{head}\r\n{chosen}\r\n\r\n")).await;
        raw.rest().await;
    })
    .await;
    let front = Front::start(&Proxy::new(), &upstream.upstream(), forward).await;
    for (offered, status) in [(TUNNEL, 101), ("a//b", 400), ("a/b c", 400), ("/", 400)] {
        let mut client = Raw::connect(front.address).await;
        let head =
            "GET /portforward HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: websocket";
        let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        client.send(format!("{head}\r\n{key}\r\nSec-WebSocket-Protocol: {offered}\r\n\r\n")).await;
        let head = client.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{offered}: {head}");
        assert_eq!(head.contains(TUNNEL), status == 101, "{head}");
    }
}

#[tokio::test]
async fn the_end_of_the_session_closes_both_sides() {
    fn with_deadline(uri: &Uri) -> Forward {
        let mut forward = forward(uri);
        let soon = Instant::now() + std::time::Duration::from_millis(50);
        forward.session = Session::unlimited().with_deadline(soon);
        forward
    }
    let (sender, mut ended) = mpsc::unbounded_channel();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            raw.head().await;
            raw.send(switched("websocket")).await;
            raw.rest().await;
            sender.send(()).unwrap();
        }
    })
    .await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), with_deadline).await;
    let mut client = Raw::connect(front.address).await;
    client.send(WEBSOCKET).await;
    // The deadline may pass at any point. The test checks only that both sides end.
    client.head().await;
    client.rest().await;
    soon(ended.recv()).await.unwrap();
    let counts = until(&proxy, |counts| counts.connections == 0 && counts.sessions == 0).await;
    assert_eq!(counts.failures_of(Failure::SessionEnded), 1);
}

#[tokio::test]
async fn a_client_that_vanishes_closes_the_upstream() {
    let (sender, ended) = oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.lock().unwrap().take();
        async move {
            raw.head().await;
            raw.send(switched("websocket")).await;
            raw.rest().await;
            sender.unwrap().send(()).unwrap();
        }
    })
    .await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    let mut client = Raw::connect(front.address).await;
    client.send(WEBSOCKET).await;
    client.head().await;
    drop(client);
    soon(ended).await.unwrap();
    until(&proxy, |counts| counts.connections == 0 && counts.sessions == 0).await;
}

#[tokio::test]
async fn a_drain_gives_sessions_their_time_and_ends_them() {
    let upstream = echoing().await;
    let proxy = Proxy::new();
    let made = upstream.upstream();
    let front = Front::start(&proxy, &made, forward).await;
    let mut client = Raw::connect(front.address).await;
    client.send(WEBSOCKET).await;
    client.head().await;
    soon(proxy.drain(std::time::Duration::from_millis(20))).await;
    client.rest().await;
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.sessions), (0, 0));
    assert_eq!(counts.failures_of(Failure::SessionEnded), 1);
    let refused = get(&proxy, &made, "/x").await.unwrap_err();
    assert!(matches!(refused, ProxyError::Draining), "{refused}");
}

/// Bytes from one side wait until the other side takes them.
#[tokio::test]
async fn a_huge_session_is_never_gathered() {
    const HUGE_BYTES: usize = 64 * 1024 * 1024;
    const PIPE_BYTES: usize = 16 * 1024;
    let (dial, mut ends) = PipeDial::new(PIPE_BYTES);
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut raw = Raw::new(ends.recv().await.unwrap());
        raw.head().await;
        raw.send(switched("SPDY/3.1")).await;
        let chunk = vec![b'x'; 8 * 1024];
        for _ in 0..HUGE_BYTES / chunk.len() {
            raw.send(&chunk).await;
            count.fetch_add(chunk.len(), Ordering::SeqCst);
        }
        raw.stream.shutdown().await.unwrap();
        raw.rest().await;
    });
    let proxy = Proxy::with(Limits::default(), dial);
    let (mut client, _tasks) = Front::on_a_pipe(&proxy, &piped(), forward, PIPE_BYTES);
    client.send(SPDY).await;
    client.head().await;
    let (mut taken, mut chunk) = (client.take_buffered().len(), vec![0; 8 * 1024]);
    while taken < HUGE_BYTES {
        taken += soon(client.stream.read(&mut chunk)).await.unwrap();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let under_way = written.load(Ordering::SeqCst).saturating_sub(taken);
        // Two pipes, the two buffers of the pump, and the bytes behind the head.
        assert!(under_way <= 2 * PIPE_BYTES + 2 * 16 * 1024 + 64 * 1024, "{under_way} bytes");
    }
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, b"");
    until(&proxy, |counts| counts.connections == 0 && counts.sessions == 0).await;
}
