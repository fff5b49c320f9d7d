//! Which headers pass, both ways, by table.

use http_body_util::BodyExt as _;
use tokio::sync::mpsc;

use super::support::*;
use crate::*;

/// Sends a request through a front, byte by byte. The result is the upstream's request, and the
/// head of the client's response. The former is empty when nothing reached the upstream.
async fn through(request: impl AsRef<[u8]>) -> (String, String) {
    answered_with(request, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await
}

async fn answered_with(request: impl AsRef<[u8]>, answer: &'static str) -> (String, String) {
    let (sender, mut heads) = mpsc::unbounded_channel();
    let seen = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            let mut got = raw.head().await;
            if got.contains("chunked\r\n") {
                got += &raw.read_to("0\r\n").await;
                // Up to the end of the trailers.
                while !got.ends_with("\r\n\r\n") {
                    got += &raw.read_to("\r\n").await;
                }
            }
            sender.send(got).unwrap();
            raw.send(answer).await;
            raw.rest().await;
        }
    })
    .await;
    let proxy = Proxy::new();
    let front = Front::start(&proxy, &seen.upstream(), forward).await;
    let mut client = Raw::connect(front.address).await;
    client.send(request).await;
    let head = client.head().await;
    (heads.try_recv().unwrap_or_default(), head)
}

fn lines(head: &str) -> Vec<&str> {
    head.lines().skip(1).filter(|line| !line.is_empty()).collect()
}

#[tokio::test]
async fn only_what_is_meant_for_the_upstream_reaches_it() {
    let refused = [
        "Authorization: Bearer caller",
        "AUTHORIZATION: Bearer caller",
        "Proxy-Authorization: Basic caller",
        "Cookie: session=caller",
        "Impersonate-User: caller",
        "impersonate-group: caller",
        "Impersonate-Uid: caller",
        "Impersonate-Extra-Scopes: caller",
        "Impersonate_User: caller",
        "Impersonate.Group: caller",
        "X-Remote-User: caller",
        "X-Remote-Group: caller",
        "X_Remote_User: caller",
        "X-Remote-Extra-a: caller",
        "X-Forwarded-For: caller",
        "X-Forwarded-Client-Cert: caller",
        "X-Forwarded: caller",
        "Forwarded: for=caller",
        "X-Real-IP: caller",
        "Proxy-Connection: caller",
        "Proxy: caller",
        "Keep-Alive: caller",
        "Upgrade: caller",
        "HTTP2-Settings: caller",
        "TE: caller",
        "Expect: caller",
        "Content_Length: caller",
        "Transfer_Encoding: caller",
        "Trailer: caller",
        "Sec-WebSocket-Protocol: caller",
        "Host: caller",
    ];
    for line in refused {
        let request = format!("GET /x HTTP/1.1\r\nHost: front\r\n{line}\r\nX-Own: 1\r\n\r\n");
        let (got, answer) = through(request).await;
        let is_proxy = line.starts_with("Proxy: ");
        assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 4"), "{line}");
        assert!(!got.contains("caller") || is_proxy, "{line}: {got}");
        if answer.starts_with("HTTP/1.1 200") {
            assert!(got.contains("x-own: 1\r\n"), "{line}: {got}");
            assert_eq!(got.to_ascii_lowercase().matches("\r\nhost:").count(), 1, "{line}: {got}");
            assert!(got.contains("impersonate-user: alice\r\n"), "{line}: {got}");
            assert!(got.contains("authorization: Bearer upstream\r\n"), "{line}: {got}");
        }
    }
}

#[tokio::test]
async fn connection_takes_away_what_is_for_one_connection_and_nothing_of_ours() {
    let request = "GET /x HTTP/1.1\r\nHost: front\r\nConnection: keep-alive, x-hop\r\nX-Hop: gone\r\n\
                   X-Own: 1\r\n\r\n";
    let (got, _) = through(request).await;
    assert!(got.contains("x-own: 1\r\n") && !got.contains("gone"), "{got}");
    assert!(!got.contains("connection:"), "{got}");

    let many: Vec<_> = (0..40).map(|number| format!("x-{number}")).collect();
    let many = many.join(",");
    for named in [
        "authorization",
        "Authorization",
        "Impersonate-User",
        "Impersonate_User",
        "close, impersonate-group",
        "X-Remote-User",
        "X-Forwarded-For",
        "cookie",
        "host",
        "Content-Length",
        "transfer-encoding",
        "content-type",
        "sec-websocket-protocol",
        "a b",
        many.as_str(),
    ] {
        let request = format!("GET /x HTTP/1.1\r\nHost: front\r\nConnection: {named}\r\n\r\n");
        let (got, answer) = through(request).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{named}: {answer}");
        assert_eq!(got, "", "{named}");
    }
}

#[tokio::test]
async fn trailers_that_were_asked_for_are_asked_for() {
    let request = "GET /x HTTP/1.1\r\nHost: front\r\nTE: gzip, trailers\r\nConnection: TE\r\n\r\n";
    let (got, _) = through(request).await;
    assert!(got.contains("te: trailers\r\n") && !got.contains("gzip"), "{got}");
    assert!(got.contains("connection: te\r\n"), "{got}");
}

#[tokio::test]
async fn trailers_of_a_request_pass_without_forbidden_names() {
    let request = "POST /x HTTP/1.1\r\nHost: front\r\nTransfer-Encoding: chunked\r\n\
                   Trailer: X-Sum, Impersonate-User, impersonate_group, Authorization, \
                   Content-Length, Host, X-Remote-User, Set-Cookie\r\n\r\n\
                   3\r\nabc\r\n0\r\nX-Sum: 7\r\nImpersonate-User: caller\r\n\
                   impersonate_group: caller\r\nAuthorization: caller\r\nContent-Length: 99\r\n\
                   Host: caller\r\nX-Remote-User: caller\r\nX-Unannounced: caller\r\n\r\n";
    let (got, answer) = through(request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(got.contains("trailer: x-sum\r\n") || got.contains("trailer: X-Sum\r\n"), "{got}");
    assert!(got.contains("0\r\nx-sum: 7\r\n\r\n"), "{got}");
    assert!(!got.contains("caller") && !got.contains(": 99\r\n"), "{got}");
}

#[tokio::test]
async fn one_framing_reaches_the_upstream() {
    for request in [
        "POST /x HTTP/1.1\r\nHost: front\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: front\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: front\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST /x HTTP/1.1\r\nHost: front\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST /x HTTP/1.1\r\nHost: front\r\nTransfer-Encoding: chunked, identity\r\n\r\nabc",
        "GET /x HTTP/1.1\r\nHost: front\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: front\r\n\r\n",
    ] {
        let (got, answer) = through(request).await;
        let framings =
            got.matches("content-length: ").count() + got.matches("transfer-encoding: ").count();
        if answer.starts_with("HTTP/1.1 200") {
            assert_eq!(framings, 1, "{request}: {got}");
        } else {
            assert!(answer.starts_with("HTTP/1.1 400"), "{request}: {answer}");
            assert_eq!(got, "", "{request}");
        }
    }
}

#[tokio::test]
async fn an_answer_says_nothing_in_our_name() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a=gone\r\nSet_Cookie: gone\r\n\
                  Alt-Svc: h2=\"gone\"\r\nRefresh: 0; url=gone\r\nKeep-Alive: gone\r\n\
                  Connection: keep-alive, x-hop\r\nX-Hop: gone\r\nProxy-Authenticate: gone\r\n\
                  Strict-Transport-Security: gone\r\nPublic-Key-Pins: gone\r\nNEL: gone\r\n\
                  Clear-Site-Data: \"gone\"\r\nReport-To: gone\r\nReporting-Endpoints: gone\r\n\
                  Service-Worker-Allowed: /gone\r\nUpgrade: gone\r\nWWW-Authenticate: Bearer realm=\"k\"\r\nX-Own: 1\r\n\
                  Warning: 299 - \"deprecated\"\r\n\r\n";
    let (_, head) = answered_with("GET /x HTTP/1.1\r\nHost: front\r\n\r\n", answer).await;
    assert!(!head.contains("gone"), "{head}");
    let head = head.to_ascii_lowercase();
    for line in
        ["x-own: 1", "www-authenticate: bearer realm=\"k\"", "warning: 299 - \"deprecated\""]
    {
        assert!(lines(&head).contains(&line), "{line}: {head}");
    }
}

#[tokio::test]
async fn lengths_of_bodies_that_are_not_there_are_told() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n";
    let (_, head) = answered_with("HEAD /x HTTP/1.1\r\nHost: front\r\n\r\n", answer).await;
    assert!(head.to_ascii_lowercase().contains("content-length: 77\r\n"), "{head}");
    let answer = "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nETag: \"a\"\r\n\r\n";
    let (_, head) = answered_with("GET /x HTTP/1.1\r\nHost: front\r\n\r\n", answer).await;
    assert!(head.starts_with("HTTP/1.1 304") && head.contains("etag: \"a\"\r\n"), "{head}");
}

#[tokio::test]
async fn trailers_of_an_answer_pass_without_forbidden_names() {
    let seen = RawUpstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Set-Cookie\r\n\r\n\
         2\r\nok\r\n0\r\nX-Sum: 7\r\nSet-Cookie: a\r\nContent-Length: 9\r\nAuthorization: b\r\n\r\n",
    )
    .await;
    let (proxy, upstream) = (Proxy::new(), seen.upstream());
    for _ in 0..2 {
        let response = get(&proxy, &upstream, "/x").await.unwrap();
        assert_eq!(response.headers()["trailer"].to_str().unwrap().to_ascii_lowercase(), "x-sum");
        let body = soon(response.into_body().collect()).await.unwrap();
        let trailers = body.trailers().unwrap().clone();
        assert_eq!(trailers.len(), 1, "{trailers:?}");
        assert_eq!(trailers["x-sum"], "7");
        assert_eq!(body.to_bytes(), "ok");
        until(&proxy, |counts| counts.idle_connections == 1).await;
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn methods_that_would_show_our_credential_are_refused() {
    let (got, answer) = through("TRACE /x HTTP/1.1\r\nHost: front\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(got, "");
}
