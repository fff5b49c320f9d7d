//! Bodies of requests and answers: streamed, bounded, and ended when their reader is gone.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::support::*;
use crate::*;

const HUGE_BYTES: usize = 64 * 1024 * 1024;

/// The capacity of a pipe of the tests, each way.
const PIPE_BYTES: usize = 16 * 1024;

/// The bytes that may be on their way between upstream and client. They are in the pipe, the buffer
/// of the connection, and some chunks that are handed over.
const UNDER_WAY_BYTES: usize = PIPE_BYTES + 3 * 64 * 1024;

#[tokio::test]
async fn a_huge_answer_is_never_gathered() {
    let (dial, mut ends) = PipeDial::new(PIPE_BYTES);
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut raw = Raw::new(ends.recv().await.unwrap());
        raw.head().await;
        raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {HUGE_BYTES}\r\n\r\n")).await;
        let chunk = vec![b'x'; 8 * 1024];
        for _ in 0..HUGE_BYTES / chunk.len() {
            raw.send(&chunk).await;
            count.fetch_add(chunk.len(), Ordering::SeqCst);
        }
        raw.rest().await;
    });
    let proxy = Proxy::with(Limits::default(), dial);
    let upstream = piped();
    let mut body = get(&proxy, &upstream, "/x").await.unwrap().into_body();
    let mut taken = 0;
    while let Some(frame) = soon(body.frame()).await {
        taken += frame.unwrap().into_data().unwrap().len();
        // Others run as far as they can.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let under_way = written.load(Ordering::SeqCst).saturating_sub(taken);
        assert!(under_way <= UNDER_WAY_BYTES, "{under_way} bytes are under way");
    }
    assert_eq!(taken, HUGE_BYTES);
    until(&proxy, |counts| counts.idle_connections == 1).await;
}

/// A body that counts the bytes that were taken from it.
struct Counting {
    left: usize,
    taken: Arc<AtomicUsize>,
}

impl Body for Counting {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const CHUNK: &[u8] = &[b'x'; 8 * 1024];
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= CHUNK.len();
        self.taken.fetch_add(CHUNK.len(), Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(CHUNK)))))
    }
}

#[tokio::test]
async fn a_huge_request_is_taken_as_fast_as_the_upstream_takes_it() {
    let (dial, mut ends) = PipeDial::new(PIPE_BYTES);
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut raw = Raw::new(ends.recv().await.unwrap());
        assert!(raw.head().await.contains("transfer-encoding: chunked\r\n"));
        let mut chunk = vec![0; 8 * 1024];
        let mut got = 0;
        while got < HUGE_BYTES {
            got += raw.stream.read(&mut chunk).await.unwrap();
            tokio::task::yield_now().await;
            let under_way = count.load(Ordering::SeqCst).saturating_sub(got);
            assert!(under_way <= UNDER_WAY_BYTES, "{under_way} bytes are under way");
        }
        raw.read_to("0\r\n\r\n").await;
        raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        raw.rest().await;
    });
    let proxy = Proxy::with(Limits::default(), dial);
    let body = Counting { left: HUGE_BYTES, taken: taken.clone() };
    let request = Request::post("/x").body(body).unwrap();
    let forward = forward(request.uri());
    let upstream = piped();
    let response = soon(proxy.forward(&upstream, request, forward)).await.unwrap();
    assert_eq!(text(response).await.unwrap(), "ok");
    assert_eq!(taken.load(Ordering::SeqCst), HUGE_BYTES);
}

#[tokio::test]
async fn pieces_come_when_they_are_sent() {
    let (sender, receiver) = mpsc::unbounded_channel::<()>();
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let upstream = RawUpstream::start(move |_, mut raw| {
        let receiver = receiver.clone();
        async move {
            raw.head().await;
            raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            while receiver.lock().await.recv().await.is_some() {
                raw.send("3\r\none\r\n").await;
            }
            raw.send("0\r\n\r\n").await;
            raw.rest().await;
        }
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let mut body = get(&proxy, &made, "/watch").await.unwrap().into_body();
    for _ in 0..5 {
        sender.send(()).unwrap();
        let frame = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "one");
    }
    drop(sender);
    assert!(soon(body.frame()).await.is_none());
    until(&proxy, |counts| counts.idle_connections == 1).await;
}

/// An upstream that answers with a body that never ends, and tells when its connection does.
async fn endless() -> (RawUpstream, mpsc::UnboundedReceiver<()>) {
    let (sender, ended) = mpsc::unbounded_channel();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            raw.head().await;
            raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").await;
            raw.rest().await;
            sender.send(()).unwrap();
        }
    })
    .await;
    (upstream, ended)
}

#[tokio::test]
async fn a_body_that_nobody_wants_any_more_closes_its_connection() {
    let (upstream, mut ended) = endless().await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let mut body = get(&proxy, &made, "/watch").await.unwrap().into_body();
    soon(body.frame()).await.unwrap().unwrap();
    drop(body);
    soon(ended.recv()).await.unwrap();
    until(&proxy, |counts| counts.connections == 0).await;

    // The same with a client behind a server, which goes away.
    let front = Front::start(&proxy, &made, forward).await;
    let mut client = Raw::connect(front.address).await;
    client.send("GET /watch HTTP/1.1\r\nHost: front\r\n\r\n").await;
    client.read_to("one").await;
    drop(client);
    soon(ended.recv()).await.unwrap();
    until(&proxy, |counts| counts.connections == 0).await;
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_closes_its_connection() {
    let (sender, mut ended) = mpsc::unbounded_channel();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            raw.head().await;
            sender.send("asked").unwrap();
            raw.rest().await;
            sender.send("ended").unwrap();
        }
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let mut tasks = JoinSet::new();
    let asking = proxy.clone();
    let asked = tasks.spawn(async move { get(&asking, &made, "/x").await.map(drop) });
    assert_eq!(soon(ended.recv()).await, Some("asked"));
    asked.abort();
    assert_eq!(soon(ended.recv()).await, Some("ended"));
    until(&proxy, |counts| counts.connections == 0).await;
}

#[tokio::test]
async fn the_end_of_the_session_ends_a_watch_with_an_error() {
    let (upstream, mut ended) = endless().await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let (revoke, revoked) = tokio::sync::oneshot::channel::<()>();
    let request = Request::get("/watch").body(Empty::<Bytes>::new()).unwrap();
    let mut forward = forward(request.uri());
    forward.session = Session::until(async {
        let _ = revoked.await;
    });
    let mut body = soon(proxy.forward(&made, request, forward)).await.unwrap().into_body();
    soon(body.frame()).await.unwrap().unwrap();
    revoke.send(()).unwrap();
    let error = soon(body.frame()).await.unwrap().unwrap_err();
    assert!(matches!(error, ProxyError::SessionEnded(SessionEnd::Revoked)), "{error}");
    assert!(soon(body.frame()).await.is_none() && body.is_end_stream());
    soon(ended.recv()).await.unwrap();
    let counts = until(&proxy, |counts| counts.connections == 0).await;
    assert_eq!(counts.failures_of(Failure::SessionEnded), 1);
}

#[tokio::test]
async fn a_drain_ends_a_watch_with_an_error() {
    let (upstream, _ended) = endless().await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let mut body = get(&proxy, &made, "/watch").await.unwrap().into_body();
    soon(body.frame()).await.unwrap().unwrap();
    soon(proxy.drain(std::time::Duration::from_millis(10))).await;
    let error = soon(body.frame()).await.unwrap().unwrap_err();
    assert!(matches!(error, ProxyError::SessionEnded(SessionEnd::Drain)), "{error}");
    assert_eq!(proxy.counts().connections, 0);
}

/// The upstream says whether it wants the body, and the proxy tells the client.
#[tokio::test]
async fn a_client_that_asks_first_is_told_when_to_send() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        loop {
            let head = raw.head().await;
            if head.is_empty() {
                return;
            }
            assert!(head.contains("expect: 100-continue\r\n"), "{head}");
            if head.starts_with("POST /no ") {
                raw.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
                // The body is never sent: the connection ends.
                assert_eq!(raw.rest().await, b"");
                return;
            }
            raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            assert_eq!(raw.read_to("body").await, "body");
            raw.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes").await;
        }
    })
    .await;
    // Long enough that only the upstream's word opens.
    let limits = Limits { continue_timeout: PATIENCE, ..Limits::default() };
    let proxy = Proxy::with(limits, Arc::new(TcpDial::new()));
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: front\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    let mut client = Raw::connect(front.address).await;
    client.send(head("/yes")).await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.read_to("yes").await, "yes");

    let mut client = Raw::connect(front.address).await;
    client.send(head("/no")).await;
    let refused = client.head().await;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    until(&proxy, |counts| counts.connections == 0).await;

    // An upstream that says nothing gets the body after a while.
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        assert_eq!(raw.read_to("body").await, "body");
        raw.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes").await;
        raw.rest().await;
    })
    .await;
    let limits =
        Limits { continue_timeout: std::time::Duration::from_millis(5), ..Limits::default() };
    let proxy = Proxy::with(limits, Arc::new(TcpDial::new()));
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    let mut client = Raw::connect(front.address).await;
    client.send(head("/yes")).await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_early_answer_is_passed_on_and_its_connection_closed() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        raw.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
        raw.rest().await;
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let (_pieces, body) = Pieces::new();
    let request = Request::post("/x").body(body).unwrap();
    let forward = forward(request.uri());
    let response = soon(proxy.forward(&made, request, forward)).await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(text(response).await.unwrap(), "no");
    let counts = until(&proxy, |counts| counts.connections == 0).await;
    assert_eq!(counts.idle_connections, 0);
}

#[tokio::test]
async fn a_client_that_goes_while_it_sends_is_not_the_upstreams_fault() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.rest().await;
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let (pieces, body) = Pieces::new();
    pieces.send(Ok(Bytes::from_static(b"piece"))).unwrap();
    pieces.send(Err("gone".into())).unwrap();
    let request = Request::post("/x").body(body).unwrap();
    let forward = forward(request.uri());
    let error = soon(proxy.forward(&made, request, forward)).await.unwrap_err();
    assert!(matches!(error, ProxyError::ClientGone), "{error}");
    until(&proxy, |counts| counts.connections == 0).await;
}

/// HTTP/2 in, HTTP/1.1 out: bodies and trailers both ways.
#[tokio::test]
async fn http2_comes_in_and_http1_goes_out() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        let head = raw.head().await;
        assert!(
            head.starts_with("POST /x HTTP/1.1\r\nhost: ") || head.contains("\r\nhost: "),
            "{head}"
        );
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("front"), "{head}");
        let body = raw.read_to("0\r\nx-sum: 7\r\n\r\n").await;
        assert!(body.starts_with("5\r\nhello\r\n"), "{body}");
        raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n").await;
        raw.send("2\r\nok\r\n0\r\nX-Sum: 8\r\n\r\n").await;
        raw.rest().await;
    })
    .await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &upstream.upstream(), forward).await;
    let stream = TcpStream::connect(front.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    trailers.insert("impersonate-user", "admin".parse().unwrap());
    let body = Full::new(Bytes::from("hello")).with_trailers(async { Some(Ok(trailers)) });
    let request = Request::post("http://front/x")
        .header("trailer", "x-sum, impersonate-user")
        .body(body.boxed_unsync())
        .unwrap();
    let response = soon(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = soon(response.into_body().collect()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "8");
    assert_eq!(body.to_bytes(), "ok");
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_whole() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        raw.send("HTTP/1.0 200 OK\r\n\r\nall of it").await;
        raw.stream.shutdown().await.unwrap();
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let response = get(&proxy, &made, "/x").await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_11);
    assert_eq!(text(response).await.unwrap(), "all of it");
    until(&proxy, |counts| counts.connections == 0).await;
}

/// A connection that is reset tells its reader so.
#[tokio::test]
async fn a_reset_is_an_error_of_the_body() {
    let upstream = RawUpstream::start_on_streams(|_, mut stream| async move {
        let mut head = vec![0; 4096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsome").await.unwrap();
        // Unread bytes, and a close without delay: the kernel sends RST.
        stream.set_zero_linger().unwrap();
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let error = match get(&proxy, &made, "/x").await {
        Ok(response) => text(response).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, ProxyError::Lost { .. }), "{error}");
    until(&proxy, |counts| counts.connections == 0).await;
}

/// A response of unknown length, such as a log, fails after its last bytes have left. A client that
/// pauses gets them, too.
#[tokio::test]
async fn the_last_bytes_before_a_failure_arrive() {
    for length in [5, 70_000] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let upstream = RawUpstream::start(move |_, mut raw| async move {
                raw.head().await;
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                raw.send(format!("{head}{length:x}\r\n{}\r\n", "x".repeat(length))).await;
                // The last chunk is missing.
            })
            .await;
            let proxy = Proxy::new();
            let (received, is_broken) = received(&proxy, &upstream, version).await;
            assert_eq!(received, length, "{version:?}");
            assert!(is_broken, "{version:?} {length}");
        }
    }
}

/// The bytes of an answer that a client gets through a connection which holds few bytes, and whether the answer broke off.
async fn received(proxy: &Proxy, upstream: &RawUpstream, version: Version) -> (usize, bool) {
    let (client, _served) = Front::on_a_pipe(proxy, &upstream.upstream(), forward, 4096);
    let io = TokioIo::new(client.stream);
    let request = Request::get("http://front/x").body(Empty::<Bytes>::new()).unwrap();
    let mut tasks = JoinSet::new();
    let response = if version == Version::HTTP_2 {
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
        let (mut sender, connection) = shaken.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        soon(sender.send_request(request)).await.unwrap()
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        soon(sender.send_request(request)).await.unwrap()
    };
    let (mut body, mut received) = (response.into_body(), 0);
    loop {
        match soon(body.frame()).await {
            Some(Ok(frame)) => received += frame.into_data().map_or(0, |bytes| bytes.len()),
            Some(Err(_)) => return (received, true),
            None => return (received, false),
        }
    }
}
