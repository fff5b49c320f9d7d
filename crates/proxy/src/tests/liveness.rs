//! An upstream that dies without a word, as when its machine loses power: its kernel does not answer any
//! more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use socket2::{SockFilter, SockRef};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::support::*;
use crate::*;

/// Makes the kernel drop all packets for a socket: nothing is acknowledged from here on.
fn kill(stream: &TcpStream) {
    // BPF: "return 0", take no byte of the packet.
    let drop_all = [SockFilter::new(0x06, 0, 0, 0)];
    SockRef::from(stream).attach_filter(&drop_all).unwrap();
}

/// Knows addresses only.
struct Addresses;

impl Resolve for Addresses {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        let found = format!("{host}:{port}").parse().unwrap();
        Box::pin(async move { Ok(vec![found]) })
    }
}

/// The shortest times that a kernel knows, in place of 30 s.
fn proxy() -> Proxy {
    let liveness = Liveness {
        probe_after: Duration::from_secs(1),
        probe_interval: Duration::from_secs(1),
        probes: 1,
        user_timeout: Duration::from_millis(500),
    };
    let dial = TcpDial::with(Arc::new(Addresses), liveness);
    Proxy::with(Limits::default(), Arc::new(dial))
}

/// An upstream that begins a watch, and dies after its first event.
async fn dying() -> RawUpstream {
    RawUpstream::start_on_streams(|_, mut stream| async move {
        let mut head = vec![0; 64 * 1024];
        tokio::io::AsyncReadExt::read(&mut stream, &mut head).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
            .await
            .unwrap();
        // All sent bytes are acknowledged before the first event is read, as both are in order.
        let mut rest = Vec::new();
        kill(&stream);
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
    })
    .await
}

#[tokio::test]
async fn a_dead_upstream_is_noticed_under_an_open_watch() {
    let upstream = dying().await;
    let (proxy, made) = (proxy(), upstream.upstream());
    let mut body = get(&proxy, &made, "/pods?watch=1").await.unwrap().into_body();
    assert_eq!(soon(body.frame()).await.unwrap().unwrap().into_data().unwrap(), "one");
    let error = soon(body.frame()).await.unwrap().unwrap_err();
    assert!(matches!(error, ProxyError::Lost { .. }), "{error}");
    assert!(soon(body.frame()).await.is_none());
    let counts = until(&proxy, |counts| counts.connections == 0).await;
    assert_eq!(counts.failures_of(Failure::Lost), 1);
}

#[tokio::test]
async fn a_dead_upstream_is_noticed_while_a_request_is_sent() {
    let upstream = RawUpstream::start_on_streams(|_, mut stream| async move {
        kill(&stream);
        let mut rest = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
    })
    .await;
    let (proxy, made) = (proxy(), upstream.upstream());
    let request = Request::post("/x").body(Full::new(Bytes::from(vec![b'x'; 1024]))).unwrap();
    let mut forward = forward(request.uri());
    forward.answer_timeout = None;
    let error = soon(proxy.forward(&made, request, forward)).await.unwrap_err();
    assert!(matches!(error, ProxyError::Lost { .. }), "{error}");
    until(&proxy, |counts| counts.connections == 0).await;
}
