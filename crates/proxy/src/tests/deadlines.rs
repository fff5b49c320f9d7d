//! Everything that can stall has a limit. Time is the test's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use tokio::time::Instant;

use super::support::*;
use crate::*;

/// Never gets anywhere.
struct Nowhere;

impl Dial for Nowhere {
    fn dial<'a>(&'a self, _target: Target<'a>) -> DialFuture<'a> {
        Box::pin(std::future::pending())
    }
}

async fn asked(
    proxy: &Proxy,
    upstream: &Upstream,
    limit: Option<Duration>,
    session: Session,
) -> ProxyError {
    let request = Request::get("/x").body(Empty::<Bytes>::new()).unwrap();
    let mut forward = forward(request.uri());
    forward.answer_timeout = limit;
    forward.session = session;
    proxy.forward(upstream, request, forward).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_taken_is_given_up_after_10_seconds() {
    let proxy = Proxy::with(Limits::default(), Arc::new(Nowhere));
    let start = Instant::now();
    let error = asked(&proxy, &piped(), None, Session::unlimited()).await;
    assert!(matches!(error, ProxyError::ConnectTimeout { .. }), "{error}");
    assert_eq!((error.status().as_u16(), start.elapsed().as_secs()), (503, 10));
    assert_eq!(proxy.counts().connections, 0);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_end_is_given_up_after_10_seconds() {
    let (dial, _ends) = PipeDial::new(64 * 1024);
    let proxy = Proxy::with(Limits::default(), dial);
    let mut config = UpstreamConfig::new("https://pipe.example".parse().unwrap());
    config.insecure = true;
    let start = Instant::now();
    let upstream = Upstream::new(config).unwrap();
    let error = asked(&proxy, &upstream, None, Session::unlimited()).await;
    assert!(matches!(error, ProxyError::ConnectTimeout { .. }), "{error}");
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_its_limit_and_a_long_request_has_none() {
    let (dial, _ends) = PipeDial::new(64 * 1024);
    let proxy = Proxy::with(Limits::default(), dial);
    let start = Instant::now();
    let limit = Some(Duration::from_secs(7));
    let error = asked(&proxy, &piped(), limit, Session::unlimited()).await;
    assert!(matches!(error, ProxyError::AnswerTimeout { .. }), "{error}");
    assert_eq!((error.status().as_u16(), start.elapsed().as_secs()), (503, 7));

    let start = Instant::now();
    let session = Session::unlimited().with_deadline(start + Duration::from_hours(8));
    let error = asked(&proxy, &piped(), None, session).await;
    assert!(matches!(error, ProxyError::SessionEnded(SessionEnd::Deadline)), "{error}");
    assert_eq!(start.elapsed().as_secs(), 8 * 3600);
    until(&proxy, |counts| counts.connections == 0).await;
}

/// A long upload is no late answer: the limit counts from the last piece.
#[tokio::test(start_paused = true)]
async fn the_limit_counts_from_the_last_of_the_request() {
    let (dial, mut ends) = PipeDial::new(64 * 1024);
    let proxy = Proxy::with(Limits::default(), dial);
    let (pieces, body) = Pieces::new();
    let request = Request::post("/x").body(body).unwrap();
    let mut forward = forward(request.uri());
    forward.answer_timeout = Some(Duration::from_secs(7));
    let start = Instant::now();
    let upstream = piped();
    let upload = async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            pieces.send(Ok(Bytes::from_static(b"piece"))).unwrap();
        }
        drop(pieces);
        let mut raw = Raw::new(ends.recv().await.unwrap());
        raw.read_to("0\r\n\r\n").await;
        raw
    };
    let (answer, _raw) = tokio::join!(proxy.forward(&upstream, request, forward), upload);
    let error = answer.unwrap_err();
    assert!(matches!(error, ProxyError::AnswerTimeout { .. }), "{error}");
    assert_eq!(start.elapsed().as_secs(), 57);
}
