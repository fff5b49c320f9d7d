//! Connections for requests with long heads.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::Empty;

use super::support::*;
use crate::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const OPENED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: postern-long-heads/1\r\n\r\n";

fn opening() -> Opening {
    let headers = [("x-token", "own")].map(|(name, value)| {
        (http::HeaderName::from_static(name), HeaderValue::from_static(value))
    });
    Opening { path: PathAndQuery::from_static("/open"), headers: HeaderMap::from_iter(headers) }
}

/// Sends a request with a head of a megabyte.
async fn send(
    proxy: &Proxy,
    upstream: &Upstream,
    opening: Option<Opening>,
) -> Result<String, ProxyError> {
    let request = Request::get("/pods").body(Empty::<bytes::Bytes>::new()).unwrap();
    let mut forward = forward(request.uri());
    forward.headers.insert("authorization", "x".repeat(1024 * 1024).parse().unwrap());
    forward.opening = opening;
    text(soon(proxy.forward(upstream, request, forward)).await?).await
}

#[tokio::test]
async fn a_connection_for_long_heads_begins_with_a_short_request_and_takes_many() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        let head = raw.head().await;
        if head.starts_with("GET /pods ") {
            raw.send(OK).await;
            return;
        }
        assert!(head.starts_with("GET /open HTTP/1.1\r\n") && head.len() < 200, "{head}");
        assert!(head.contains("x-token: own\r\n") && !head.contains("upstream"), "{head}");
        assert!(head.contains("upgrade: postern-long-heads/1\r\n"), "{head}");
        raw.send(OPENED).await;
        loop {
            let head = raw.head().await;
            if head.is_empty() {
                return;
            }
            assert!(head.len() > 1024 * 1024 && !head.contains("x-token"), "{}", head.len());
            raw.send(OK).await;
        }
    })
    .await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    for _ in 0..3 {
        assert_eq!(send(&proxy, &made, Some(opening())).await.unwrap(), "ok");
    }
    assert_eq!(upstream.connections(), 1);
    // A usual request never gets such a connection.
    assert_eq!(text(get(&proxy, &made, "/pods").await.unwrap()).await.unwrap(), "ok");
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn an_upstream_that_takes_no_long_heads_gets_none() {
    for (answer, code) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200),
        ("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 101),
    ] {
        let upstream = RawUpstream::answering(answer).await;
        let (proxy, made) = (Proxy::new(), upstream.upstream());
        match send(&proxy, &made, Some(opening())).await.unwrap_err() {
            ProxyError::NoLongHeads { status, .. } => {
                assert_eq!(status, StatusCode::from_u16(code).unwrap());
            }
            other => panic!("{other}"),
        }
        until(&proxy, |counts| counts.connections == 0).await;
    }
    // One upstream closes, and one sends nothing.
    let upstream = RawUpstream::start(|_, mut raw| async move { drop(raw.head().await) }).await;
    let (proxy, made) = (Proxy::new(), upstream.upstream());
    let lost = send(&proxy, &made, Some(opening())).await.unwrap_err();
    assert!(matches!(lost, ProxyError::Lost { .. }), "{lost}");
}
