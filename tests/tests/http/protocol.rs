//! HTTP/1.1 and HTTP/2: persistent connections, many requests on one connection, and HEAD.

use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::{Server, wait};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn both_protocols_return_the_same() {
    let server = Server::start().await;
    let (one, two) = (server.client(), Client::http2(server.kubeconfig()));
    one.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let (first, second) =
        (one.get(&secret_path("s1")).send().await, two.get(&secret_path("s1")).send().await);
    assert_eq!(first.version, http::Version::HTTP_11);
    assert_eq!(second.version, http::Version::HTTP_2);
    assert_eq!(first.body, second.body);
    assert_eq!(first.header("content-type"), second.header("content-type"));
}

#[tokio::test]
async fn a_connection_serves_many_requests_failures_between_them() {
    let server = Server::start().await;
    for client in [server.client(), Client::http2(server.kubeconfig())] {
        let mut connection = client.connect().await.unwrap();
        for round in 0..20 {
            let name = format!("s{round}");
            let made = client.post(&secrets("platform")).json(&secret(&name, "v"));
            made.try_send_on(&mut connection).await.unwrap().expect(201);
            let refused = client.post(&secrets("platform")).json(&secret("Bad", "v"));
            assert_eq!(refused.try_send_on(&mut connection).await.unwrap().status, 422);
            let unauthenticated = client.with_token("wrong");
            let refused = unauthenticated.post(&secrets("platform")).json(&secret("x", "v"));
            assert_eq!(refused.try_send_on(&mut connection).await.unwrap().status, 401);
            let gone = client.delete(&secret_path(&name));
            gone.try_send_on(&mut connection).await.unwrap().expect(200);
        }
    }
}

/// An exchange may have made a key, which no client has without the answer.
#[tokio::test]
async fn a_request_whose_body_is_under_way_is_answered_after_the_time_of_an_unauthenticated_connection()
 {
    // The body is complete after 31 s, within the 5 s that it may take.
    const HEAD_AFTER: Duration = Duration::from_secs(28);
    const BODY_AFTER: Duration = Duration::from_secs(3);
    let server = Server::start().await;
    let mut stream = server.client().raw().await.unwrap();
    tokio::time::sleep(HEAD_AFTER).await;
    let body = "grant_type=unknown";
    let head = format!(
        "POST /auth/token HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
        server.client().address(),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(BODY_AFTER).await;
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut reply = String::new();
    wait::within("the answer", stream.read_to_string(&mut reply)).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
    assert!(reply.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{reply}");
    assert!(reply.contains("unsupported_grant_type"), "{reply}");
}

#[tokio::test]
async fn head_is_a_get_without_the_body() {
    let server = Server::start().await;
    for client in [server.client(), Client::http2(server.kubeconfig())] {
        for (path, code) in
            [(secrets("platform"), 200), (secret_path("none"), 404), ("/readyz".into(), 200)]
        {
            let reply = client.request("HEAD", &path).send().await;
            assert_eq!(reply.status, code, "{path}");
            assert!(reply.body.is_empty(), "{path}");
        }
    }
}
