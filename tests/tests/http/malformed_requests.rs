//! Malformed requests: wrong credentials, broken headers, path traversal, and bytes that are not HTTP
//! at all. The response is a clear 4xx, and the server keeps running.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{GROUP, secret, secrets};
use postern_tests::status::failure;
use postern_tests::wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn an_invalid_credential_is_401() {
    let server = Server::start().await;
    let client = server.client();
    let key = server.kubeconfig().token.clone();
    let path = secrets("platform");
    let without = || client.get(&path).without("authorization");
    let text = failure(&without().send().await);
    assert!(text.starts_with("401 Unauthorized\nUnauthorized"), "{text}");
    for value in [
        String::new(),
        "Bearer".into(),
        "Bearer ".into(),
        format!("Basic {key}"),
        key.clone(),
        format!("Bearer {key} {key}"),
        format!("Bearer {key}x"),
        format!("Bearer {}", &key[..key.len() - 1]),
        format!("Bearer {key},{key}"),
        format!("Bearer {}", key.to_uppercase()),
        "Bearer é".into(),
        format!("Bearer {}", "a".repeat(8_000)),
        "Bearer pst_00000000_0000000000000000000000000000000000000000000_000000".into(),
    ] {
        let reply = without().header("authorization", &value).send().await;
        assert_eq!(reply.status, 401, "{value}");
        let text = failure(&reply);
        assert!(text.starts_with("401 Unauthorized\n"), "{value}: {text}");
        assert!(!reply.text().contains(&key), "a refusal repeats the credential");
    }
    let doubled = client.get(&path).header("authorization", &format!("Bearer {key}"));
    assert!(failure(&doubled.send().await).starts_with("401 Unauthorized\n"), "two of them");
    for scheme in ["bearer", "BEARER"] {
        let reply = without().header("authorization", &format!("{scheme} {key}")).send().await;
        reply.expect(200);
    }
}

#[tokio::test]
async fn a_refusal_does_not_reveal_what_exists() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("there", "v")).send().await.expect(201);
    let unauthenticated = client.with_token("pst_nobody");
    let there = unauthenticated.get(&format!("{}/there", secrets("platform"))).send().await;
    let absent = unauthenticated.get(&format!("{}/absent", secrets("platform"))).send().await;
    assert_eq!(failure(&there), failure(&absent));
}

#[tokio::test]
async fn path_traversal_is_refused() {
    let server = Server::start().await;
    for client in [server.client(), Client::http2(server.kubeconfig())] {
        for last in
            ["..", ".", "%2e%2e", "%2E%2E", "..%2fx", "%2f", "a%00b", "a%2fb", "%", "%zz", "%ff"]
        {
            for method in ["GET", "DELETE"] {
                let path = format!("{}/{last}", secrets("platform"));
                let reply = client.request(method, &path).send().await;
                let code = reply.status;
                assert!(
                    [400, 404, 422].contains(&code),
                    "{method} {last}: {code} {}",
                    reply.text()
                );
            }
        }
        for path in [
            format!("{GROUP}/namespaces/../sharedsecrets"),
            format!("{GROUP}/namespaces/%2e%2e/sharedsecrets"),
            format!("{GROUP}//namespaces/platform/sharedsecrets"),
            format!("{}/../../platform/sharedsecrets", secrets("platform")),
        ] {
            let reply = client.get(&path).send().await;
            assert!(
                [400, 404].contains(&reply.status),
                "{path}: {} {}",
                reply.status,
                reply.text()
            );
        }
    }
    for name in ["..", ".", "%2e%2e", "a/b", "a%b", "-a", "a_", " ", "ä", "a\u{0}b", "A"] {
        let reply =
            server.client().post(&secrets("platform")).json(&secret(name, "v")).send().await;
        assert!(failure(&reply).starts_with("422 Invalid\n"), "{name:?}: {}", reply.text());
    }
}

#[tokio::test]
async fn invalid_headers_never_break_the_server() {
    let server = Server::start().await;
    let client = server.client();
    for accept in [
        ";;;",
        ",",
        "*",
        "/",
        "application/",
        "application/json;q=x",
        "application/json;q=2",
        "application/json;as=Nothing;g=meta.k8s.io;v=v1",
        "application/json;as=Table",
        "\"",
        "é",
        "application/json;as=Table;v=v9;g=meta.k8s.io",
        "application/json;;;",
        "*/*;q=0",
    ] {
        let reply = client.get(&secrets("platform")).accept(accept).send().await;
        let code = reply.status;
        assert!([200, 400, 406].contains(&code), "{accept}: {code} {}", reply.text());
    }
    let many = vec!["application/x"; 2_000].join(",");
    let reply = client.get(&secrets("platform")).accept(&many).send().await;
    assert!((400..500).contains(&reply.status), "{}", reply.status);
    for kind in
        ["", ";", "application/json;charset", "application/json; charset=utf-16", "a/b/c", "é"]
    {
        let body = secret("s1", "v").to_string();
        let reply = client.post(&format!("{}?dryRun=All", secrets("platform"))).body(kind, body);
        let code = reply.send().await.status;
        assert!([201, 400, 415].contains(&code), "{kind}: {code}");
    }
    for (name, value) in [
        ("content-length", "-1"),
        ("content-length", "many"),
        ("expect", "the unexpected"),
        ("audit-id", "../../x"),
        ("impersonate-group", "g"),
        ("impersonate-uid", "u"),
        ("impersonate-user", "é"),
        ("impersonate-extra-%ff", "x"),
    ] {
        let reply = client.get(&secrets("platform")).header(name, value).try_send().await;
        let code = reply.map_or(400, |reply| reply.status);
        assert!((200..500).contains(&code), "{name}: {value}: {code}");
    }
    client.get("/readyz").send().await.expect_text(200);
}

#[tokio::test]
async fn headers_have_a_limit() {
    let server = Server::start().await;
    for client in [server.client(), Client::http2(server.kubeconfig())] {
        let path = secrets("platform");
        let reply = client.get(&path).header("x-large", &"x".repeat(1024 * 1024)).try_send().await;
        // A closed connection is a valid response here.
        assert!(reply.as_ref().map_or(431, |reply| reply.status) == 431, "{reply:?}");
        let mut request = client.get(&path);
        for number in 0..5_000 {
            request = request.header(format!("x-{number}").as_str(), "x");
        }
        let reply = request.try_send().await;
        assert!(reply.as_ref().map_or(431, |reply| reply.status) == 431, "{reply:?}");
        client.get("/readyz").send().await.expect_text(200);
    }
}

#[tokio::test]
async fn bytes_that_are_not_http_are_refused_or_disconnected() {
    let server = Server::start().await;
    let client = server.client();
    for bytes in [
        b"\x00\x01\x02\x03\r\n\r\n".as_slice(),
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\xff\xff\x00\x00\x00\x00",
    ] {
        let mut stream = client.raw().await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut response = Vec::new();
        // The server may close the connection without a TLS close_notify.
        drop(wait::within("a response or the end", stream.read_to_end(&mut response)).await);
        let response = String::from_utf8_lossy(&response);
        let first = response.lines().next().unwrap_or_default();
        assert!(!first.contains(" 200 ") && !first.contains(" 5"), "{bytes:?}: {response}");
    }
    let mut plain = TcpStream::connect(client.address()).await.unwrap();
    plain.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    drop(wait::within("the end of plain HTTP", plain.read_to_end(&mut response)).await);
    assert!(!String::from_utf8_lossy(&response).contains("200"), "there is no plain HTTP");
    client.get("/readyz").send().await.expect_text(200);
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let server = Server::start().await;
    let client = server.client();
    let mut silent = TcpStream::connect(client.address()).await.unwrap();
    let mut after_handshake = client.raw().await.unwrap();
    let mut partial = client.raw().await.unwrap();
    partial.write_all(b"GET /readyz HTTP/1.1\r\nhost").await.unwrap();
    let http2 = Client::http2(server.kubeconfig());
    let mut silent_http2 = http2.raw().await.unwrap();
    let mut bytes = [(); 4].map(|()| Vec::new());
    let [one, two, three, four] = &mut bytes;
    wait::within("silent connections to be closed", async {
        drop(silent.read_to_end(one).await);
        drop(after_handshake.read_to_end(two).await);
        drop(partial.read_to_end(three).await);
        drop(silent_http2.read_to_end(four).await);
    })
    .await;
    client.get("/readyz").send().await.expect_text(200);
}
