//! Plain requests: the forwarded request, the response, and the reuse of connections.

use super::support::*;
use crate::*;

#[tokio::test]
async fn a_request_is_sent_on_and_its_connection_used_again() {
    let seen = RawUpstream::start(|_, mut raw| async move {
        for _ in 0..2 {
            let head = raw.head().await;
            assert!(head.starts_with("GET /api/v1/pods?limit=1 HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("authorization: Bearer upstream\r\n"), "{head}");
            assert!(head.contains("impersonate-user: alice\r\n"), "{head}");
            raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Own: yes\r\n\r\nok").await;
        }
        raw.rest().await;
    })
    .await;
    let (proxy, upstream) = (Proxy::new(), seen.upstream());
    for _ in 0..2 {
        let response = get(&proxy, &upstream, "/api/v1/pods?limit=1").await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-own"], "yes");
        assert_eq!(text(response).await.unwrap(), "ok");
        until(&proxy, |counts| counts.idle_connections == 1).await;
    }
    assert_eq!(seen.connections(), 1);
    drop(upstream);
    let counts = until(&proxy, |counts| counts.connections == 0).await;
    assert_eq!((counts.requests, counts.connections_opened), (2, 1));
}
