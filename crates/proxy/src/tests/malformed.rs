//! Malformed answers: they give a clear error, and the connection is closed.

use super::support::*;
use crate::*;

async fn fails(answer: &'static str) -> ProxyError {
    let seen = RawUpstream::start(move |_, mut raw| async move {
        raw.head().await;
        raw.send(answer).await;
    })
    .await;
    let (proxy, upstream) = (Proxy::new(), seen.upstream());
    let error = match get(&proxy, &upstream, "/x").await {
        Err(error) => error,
        Ok(response) => text(response).await.expect_err(answer),
    };
    let counts = until(&proxy, |counts| counts.connections == 0).await;
    assert_eq!(counts.failures_of(error.failure()), 1, "{answer}");
    error
}

#[tokio::test]
async fn what_is_no_answer_is_said_to_be_none() {
    for answer in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/3.7 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n folded: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rInjected: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
    ] {
        let error = fails(answer).await;
        assert!(matches!(error, ProxyError::Malformed { .. }), "{answer}: {error:?}");
        assert_eq!(error.status(), 503, "{answer}");
        assert!(error.to_string().contains("sent a malformed answer: "), "{error}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_given_up() {
    let seen = RawUpstream::start(|_, mut raw| async move {
        raw.head().await;
        raw.send("HTTP/1.1 200 OK\r\n").await;
        // The proxy reads only as much as its buffer holds, and closes.
        let line = format!("X-Long: {}\r\n", "a".repeat(1000));
        let mut sent = 0;
        while tokio::io::AsyncWriteExt::write_all(&mut raw.stream, line.as_bytes()).await.is_ok() {
            sent += line.len();
            assert!(sent < 64 * 1024 * 1024, "the proxy reads on");
        }
    })
    .await;
    let (proxy, upstream) = (Proxy::new(), seen.upstream());
    let error = get(&proxy, &upstream, "/x").await.unwrap_err();
    assert!(matches!(error, ProxyError::Malformed { .. }), "{error:?}");
    until(&proxy, |counts| counts.connections == 0).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\no",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok",
    ] {
        let error = fails(answer).await;
        assert!(matches!(error, ProxyError::Lost { .. }), "{answer}: {error:?}");
        assert_eq!(error.status(), 503, "{answer}");
    }
}

#[tokio::test]
async fn informational_answers_are_passed_over() {
    let seen = RawUpstream::answering(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let response = get(&Proxy::new(), &seen.upstream(), "/x").await.unwrap();
    assert!(!response.headers().contains_key("link"));
    assert_eq!(text(response).await.unwrap(), "ok");
}

#[tokio::test]
async fn bytes_after_an_answer_are_no_answer_to_the_next_request() {
    let seen = RawUpstream::start(|number, mut raw| async move {
        raw.head().await;
        let extra = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
        let body = if number == 0 { "first" } else { "other" };
        raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}{extra}")).await;
        raw.rest().await;
    })
    .await;
    let (proxy, upstream) = (Proxy::new(), seen.upstream());
    assert_eq!(text(get(&proxy, &upstream, "/x").await.unwrap()).await.unwrap(), "first");
    until(&proxy, |counts| counts.connections == 0).await;
    assert_eq!(text(get(&proxy, &upstream, "/x").await.unwrap()).await.unwrap(), "other");
}

/// All bytes lead to a response or an error, and never to a panic: bytes of a good response are
/// changed, cut out and doubled.
#[tokio::test]
async fn no_bytes_make_the_proxy_panic() {
    const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTrailer: X-Sum\r\n\
        Connection: x-hop\r\nLocation: /a\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";
    let (dial, mut ends) = PipeDial::new(64 * 1024);
    let (proxy, upstream) = (Proxy::with(Limits::default(), dial), piped());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        // Knuth's generator: the same bytes in each run.
        let mut state = 1u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        };
        while let Some(end) = ends.recv().await {
            let mut bytes = GOOD.to_vec();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] = u8::try_from(random(256)).unwrap(),
                    1 if bytes.len() > 1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"\r\n :,\0"[random(6)]),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let mut raw = Raw::new(end);
            raw.head().await;
            let _ = tokio::io::AsyncWriteExt::write_all(&mut raw.stream, &bytes).await;
        }
    });
    let mut whole = 0;
    for _ in 0..2000 {
        if let Ok(response) = get(&proxy, &upstream, "/x").await {
            whole += usize::from(text_of_any(response).await.is_ok());
        }
    }
    assert!((100..1900).contains(&whole), "{whole}");
    drop(upstream);
    until(&proxy, |counts| counts.connections == 0).await;
}

async fn text_of_any(response: http::Response<ProxyBody>) -> Result<(), ProxyError> {
    soon(http_body_util::BodyExt::collect(response.into_body())).await.map(drop)
}
