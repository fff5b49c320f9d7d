//! Connections: one for each request under way, reused, bounded, and closed when idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};

use super::support::*;
use crate::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An upstream on which a watch never ends, and everything else does at once.
async fn watched() -> RawUpstream {
    RawUpstream::start(|_, mut raw| async move {
        loop {
            let head = raw.head().await;
            if head.is_empty() {
                return;
            }
            if head.contains("watch=1") {
                raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").await;
                raw.rest().await;
                return;
            }
            raw.send(OK).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_request_is_not_delayed_by_300_open_watches() {
    let upstream = watched().await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let mut watches = Vec::new();
    for _ in 0..300 {
        let mut body = get(&proxy, &made, "/pods?watch=1").await.unwrap().into_body();
        soon(body.frame()).await.unwrap().unwrap();
        watches.push(body);
    }
    assert_eq!(upstream.connections(), 300);
    let response = get(&proxy, &made, "/pods/a").await.unwrap();
    assert_eq!(text(response).await.unwrap(), "ok");
    // The request had a separate connection, and the next request uses the same one.
    assert_eq!(upstream.connections(), 301);
    until(&proxy, |counts| counts.idle_connections == 1).await;
    text(get(&proxy, &made, "/pods/a").await.unwrap()).await.unwrap();
    assert_eq!(upstream.connections(), 301);
    assert_eq!(proxy.counts().connections, 301);
    drop(watches);
    until(&proxy, |counts| counts.connections == 1).await;
}

#[tokio::test]
async fn connections_are_bounded() {
    let upstream = watched().await;
    let limits = Limits { max_connections: 3, ..Limits::default() };
    let (proxy, made) = (Proxy::with(limits, Arc::new(TcpDial::new())), upstream.upstream());
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(get(&proxy, &made, "/pods?watch=1").await.unwrap());
    }
    let error = get(&proxy, &made, "/pods/a").await.unwrap_err();
    assert!(matches!(error, ProxyError::Overloaded { max: 3 }), "{error}");
    assert_eq!((error.status().as_u16(), upstream.connections()), (503, 3));
    watches.pop();
    until(&proxy, |counts| counts.connections == 2).await;
    text(get(&proxy, &made, "/pods/a").await.unwrap()).await.unwrap();
}

async fn at_once(proxy: &Proxy, upstream: &Upstream, number: usize) {
    let mut answers = Vec::new();
    for _ in 0..number {
        answers.push(get(proxy, upstream, "/pods/a").await.unwrap());
    }
    for answer in answers {
        text(answer).await.unwrap();
    }
}

#[tokio::test]
async fn idle_connections_are_bounded() {
    for limits in [
        Limits { max_idle_per_upstream: 2, ..Limits::default() },
        Limits { max_idle: 2, ..Limits::default() },
    ] {
        let upstream = watched().await;
        let (proxy, made) = (Proxy::with(limits, Arc::new(TcpDial::new())), upstream.upstream());
        at_once(&proxy, &made, 5).await;
        until(&proxy, |counts| counts.connections == 2 && counts.idle_connections == 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_after_a_while() {
    let (dial, mut ends) = PipeDial::new(64 * 1024);
    let proxy = Proxy::with(Limits::default(), dial);
    let upstream = piped();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut served = tokio::task::JoinSet::new();
        while let Some(end) = ends.recv().await {
            served.spawn(async move {
                let mut raw = Raw::new(end);
                while !raw.head().await.is_empty() {
                    raw.send(OK).await;
                }
            });
        }
    });
    at_once(&proxy, &upstream, 4).await;
    until(&proxy, |counts| counts.idle_connections == 4).await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    text(get(&proxy, &upstream, "/pods/a").await.unwrap()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    until(&proxy, |counts| counts.connections == 1 && counts.idle_connections == 1).await;
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    until(&proxy, |counts| counts.connections == 0 && counts.idle_connections == 0).await;
    assert_eq!(proxy.counts().connections_opened, 4);
}

/// An upstream with connections that answer once, and that die without a word when they are used
/// again.
async fn dying(before_death: &'static str) -> (RawUpstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let count = count.clone();
        async move {
            raw.head().await;
            count.fetch_add(1, Ordering::SeqCst);
            raw.send(OK).await;
            if !raw.head().await.is_empty() {
                count.fetch_add(1, Ordering::SeqCst);
                raw.send(before_death).await;
            }
        }
    })
    .await;
    (upstream, requests)
}

/// The same, and the heads of the requests.
async fn dying_with_heads() -> (RawUpstream, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (sender, heads) = tokio::sync::mpsc::unbounded_channel();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            sender.send(raw.head().await).unwrap();
            raw.send(OK).await;
            let second = raw.head().await;
            if !second.is_empty() {
                sender.send(second).unwrap();
            }
        }
    })
    .await;
    (upstream, heads)
}

async fn ask(
    proxy: &Proxy,
    upstream: &Upstream,
    method: Method,
    body: &'static str,
) -> Result<String, ProxyError> {
    let request = Request::builder().method(method).uri("/x").body(Full::from(body)).unwrap();
    let forward = forward(request.uri());
    text(soon(proxy.forward(upstream, request.map(Full::<Bytes>::from), forward)).await?).await
}

#[tokio::test]
async fn a_request_that_finds_its_connection_dead_is_sent_again_once() {
    for (method, body, before_death, is_again) in [
        (Method::GET, "", "", true),
        (Method::DELETE, "", "", true),
        (Method::POST, "", "", false),
        (Method::PATCH, "", "", false),
        (Method::PUT, "body", "", false),
        // The upstream began to answer.
        (Method::GET, "", "HTTP/1.1 2", false),
        (Method::GET, "", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", false),
    ] {
        let (upstream, requests) = dying(before_death).await;
        let (proxy, made) = (Proxy::new(), upstream.upstream());
        ask(&proxy, &made, Method::GET, "").await.unwrap();
        until(&proxy, |counts| counts.idle_connections == 1).await;
        let answer = ask(&proxy, &made, method.clone(), body).await;
        assert_eq!(answer.is_ok(), is_again, "{method} {before_death}: {answer:?}");
        assert_eq!(requests.load(Ordering::SeqCst), 2 + usize::from(is_again), "{method}");
        assert_eq!(proxy.counts().retries, u64::from(is_again), "{method}");
        assert_eq!(upstream.connections(), 1 + usize::from(is_again), "{method}");
    }
}

/// A credential that counts for one request may have been seen before the connection died.
#[tokio::test]
async fn a_request_that_is_sent_again_has_a_credential_of_its_own() {
    for (renewed, expected) in [(Some("Bearer second"), 3), (None, 2)] {
        let (upstream, mut heads) = dying_with_heads().await;
        let (proxy, made) = (Proxy::new(), upstream.upstream());
        ask(&proxy, &made, Method::GET, "").await.unwrap();
        until(&proxy, |counts| counts.idle_connections == 1).await;
        let request = Request::get("/x").body(Full::<Bytes>::default()).unwrap();
        let mut forward = forward(request.uri());
        forward.headers.insert("authorization", "Bearer first".parse().unwrap());
        forward.renewal = Some(Box::new(move || {
            Box::pin(async move { renewed.map(http::HeaderValue::from_static) })
        }));
        let answer = soon(proxy.forward(&made, request, forward)).await;
        // Without a new credential the request is not sent again, and the error is that of the
        // first attempt.
        let is_lost = matches!(answer, Err(ProxyError::Lost { .. }));
        assert_eq!((answer.is_ok(), is_lost), (renewed.is_some(), renewed.is_none()));
        let mut seen = Vec::new();
        while let Ok(head) = heads.try_recv() {
            let mut lines = head.lines().filter(|line| line.starts_with("authorization: "));
            seen.push(lines.next().unwrap_or_default().to_owned());
            assert_eq!(lines.next(), None, "there is one credential: {head}");
        }
        let all = ["upstream", "first", "second"].map(|of| format!("authorization: Bearer {of}"));
        assert_eq!(seen, all[..expected]);
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_not_used() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        raw.send(OK).await;
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    for number in 1..4 {
        ask(&proxy, &made, Method::POST, "body").await.unwrap();
        until(&proxy, |counts| counts.connections == 0).await;
        assert_eq!(upstream.connections(), number);
    }
    assert_eq!(proxy.counts().retries, 0);
}

/// Upstreams that were made apart share no connection: their credentials may differ.
#[tokio::test]
async fn connections_belong_to_one_upstream() {
    let upstream = watched().await;
    let proxy = Proxy::new();
    let (one, other) = (upstream.upstream(), upstream.upstream());
    for made in [&one, &one.clone(), &other] {
        text(get(&proxy, made, "/pods/a").await.unwrap()).await.unwrap();
        until(&proxy, |counts| counts.idle_connections == counts.connections).await;
    }
    assert_eq!(upstream.connections(), 2);
    drop(one);
    until(&proxy, |counts| counts.connections == 1).await;
}

#[tokio::test]
async fn a_drain_closes_what_is_idle_and_waits_for_the_rest() {
    let upstream = watched().await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    at_once(&proxy, &made, 3).await;
    until(&proxy, |counts| counts.idle_connections == 3).await;
    let answer = get(&proxy, &made, "/pods/a").await.unwrap();
    let (text, ()) = tokio::join!(text(answer), soon(proxy.drain(PATIENCE)));
    assert_eq!(text.unwrap(), "ok");
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.failures), (0, [0; 10]));
}
