//! Connections that go on in another protocol: they need the right to write, and end when that
//! right ends.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postern_tests::http::Client;
use postern_tests::rights::{allow, disallow, merge, path, user, with_key};
use postern_tests::wait;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::gateway::recording::Recording;
use crate::gateway::scene::{Central, MEMBER};

const EXEC: &str = "/api/v1/namespaces/a/pods/x/exec?command=sh";

/// Asks for an upgrade, and returns the connection and the head of the answer. Browsers send the credential of a
/// WebSocket as a sub-protocol; with SPDY, that means nothing, and must not be passed on either.
async fn upgrade(client: &Client, rest: &str, protocol: &str) -> (TlsStream<TcpStream>, String) {
    let header = format!("Authorization: Bearer {}\r\n", client.token());
    let (header, encoded) = match protocol {
        "websocket" => ("", BASE64_URL_SAFE_NO_PAD.encode(client.token())),
        _ => (header.as_str(), "c2VjcmV0".to_owned()),
    };
    upgrade_with(client, rest, protocol, header, &encoded).await
}

async fn upgrade_with(
    client: &Client,
    rest: &str,
    protocol: &str,
    header: &str,
    encoded: &str,
) -> (TlsStream<TcpStream>, String) {
    let mut stream = client.raw().await.unwrap();
    let address = client.address();
    let head = format!(
        "GET {MEMBER}{rest} HTTP/1.1\r\nHost: {address}\r\n{header}\
         Connection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v5.channel.k8s.io, \
         base64url.bearer.authorization.k8s.io.{encoded}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    wait::within("the head of the answer", async {
        while !received.ends_with(b"\r\n\r\n") {
            let byte = stream.read_u8().await.expect("the head of an answer");
            received.push(byte);
        }
    })
    .await;
    (stream, String::from_utf8(received).unwrap())
}

async fn echoes(stream: &mut TlsStream<TcpStream>, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut back = vec![0; text.len()];
    wait::within("the echo", stream.read_exact(&mut back)).await.unwrap();
    assert_eq!(back, text.as_bytes());
}

async fn is_closed(mut stream: TlsStream<TcpStream>) {
    let mut rest = Vec::new();
    let _ = wait::within("the end of the connection", stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn two_credentials_of_one_request_are_none() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let key = with_key(&central.admin, "k", json!({ "user": "ada" })).await;
    let header = format!("Authorization: Bearer {}\r\n", key.token());
    let (_, head) = upgrade_with(&key, EXEC, "websocket", &header, "c2VjcmV0").await;
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    assert!(recording.take().is_empty(), "nothing was sent on");
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_and_ends_with_the_key() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let key = with_key(&central.admin, "k", json!({ "user": "ada" })).await;
    for protocol in ["websocket", "SPDY/3.1"] {
        let (mut stream, head) = upgrade(&key, EXEC, protocol).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{protocol}: {head}");
        let arrived = recording.take();
        assert!(
            !format!("{arrived:?}").contains("base64url"),
            "the sub-protocol with a token stays"
        );
        assert_eq!(arrived[0].values("impersonate-user"), ["ada"]);
        echoes(&mut stream, "hello").await;
        stream.shutdown().await.unwrap();
    }
    let (mut stream, head) = upgrade(&key, EXEC, "websocket").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    echoes(&mut stream, "before").await;
    let disabled = json!({ "spec": { "disabled": true } });
    merge(&central.admin, &path("ownedaccesskeys", "k"), disabled).await.expect(200);
    is_closed(stream).await;
    let home = central.server.home();
    let ended = || {
        let records = home.records();
        let of = |stage: &str| {
            let is = |record: &&serde_json::Value| {
                record["objectRef"]["subresource"] == "exec" && record["stage"] == stage
            };
            records.iter().filter(is).count()
        };
        (of("ResponseStarted") == 3 && of("ResponseComplete") == 3).then_some(())
    };
    wait::until("the records of the streams", async || ended()).await;
}

#[tokio::test]
async fn a_request_under_way_gets_the_answer_of_a_new_one_when_its_right_ends() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let admin = &central.admin;
    let key = with_key(admin, "k", json!({ "user": "ada" })).await;
    for (client, code) in [(key, 401), (central.ada.clone(), 403)] {
        let held = format!("{MEMBER}/api/v1/namespaces/a/pods/held");
        let asked = tokio::spawn(async move { client.get(&held).send().await });
        wait::until("the request at the cluster", async || recording.take().pop()).await;
        if code == 401 {
            let disabled = json!({ "spec": { "disabled": true } });
            merge(admin, &path("ownedaccesskeys", "k"), disabled).await.expect(200);
        } else {
            disallow(admin, "use-member", None).await;
        }
        asked.await.unwrap().expect(code);
    }
}

/// CVE-2023-40025: a connection must not outlive the right that opened it.
#[tokio::test]
async fn cve_2023_40025_what_goes_on_ends_with_the_right_to_impersonate() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let admin = &central.admin;
    let ops = user(admin, "ops").await;
    let rules = json!([{ "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"] }]);
    allow(admin, "acting", None, rules, "platform:user:ops").await;
    let headers = format!("Authorization: Bearer {}\r\nImpersonate-User: ada\r\n", ops.token());
    let (mut stream, head) = upgrade_with(&ops, EXEC, "SPDY/3.1", &headers, "c2VjcmV0").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(recording.take()[0].values("impersonate-user"), ["ada"]);
    echoes(&mut stream, "before").await;
    let pod = format!("{MEMBER}/api/v1/namespaces/a/pods/held");
    let asking = ops.clone();
    let asked =
        tokio::spawn(
            async move { asking.get(&pod).header("impersonate-user", "ada").send().await },
        );
    wait::until("the request at the cluster", async || recording.take().pop()).await;
    disallow(admin, "acting", None).await;
    is_closed(stream).await;
    let said = asked.await.unwrap().expect(403);
    assert!(said["message"].as_str().unwrap().contains("cannot impersonate"), "{said}");
}

/// Kubernetes issues 78741, 134577, 136550: an upgrade arrives as a GET, and is no read.
#[tokio::test]
async fn kubernetes_78741_a_key_that_reads_does_not_upgrade() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let resources = json!([{ "group": "", "resources": ["*"] }]);
    let rule = json!({ "verbs": ["get", "list", "watch"], "resources": resources });
    let reader = central.scoped("reader", json!({ "rules": [rule] })).await;
    for rest in [EXEC, "/api/v1/nodes/n/proxy/exec", "/api/v1/namespaces/a/pods/x", "/version"] {
        let (_, head) = upgrade(&reader, rest, "websocket").await;
        assert!(head.starts_with("HTTP/1.1 403"), "{rest}: {head}");
    }
    reader.get(&format!("{MEMBER}{EXEC}")).send().await.expect(403);
    assert!(recording.take().is_empty());
    reader.get(&format!("{MEMBER}/api/v1/nodes/n/proxy/metrics")).send().await.expect(200);
}

/// CVE-2019-13209, CVE-2026-42283: nor does such a page open a stream in a cluster.
#[tokio::test]
async fn cve_2019_13209_and_2026_42283_a_page_of_another_origin_opens_no_stream() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let ada = &central.ada;
    let encoded = BASE64_URL_SAFE_NO_PAD.encode(ada.token());
    for origin in ["https://evil.example", "null"] {
        let header = format!("Origin: {origin}\r\n");
        let (_, head) = upgrade_with(ada, EXEC, "websocket", &header, &encoded).await;
        assert!(head.starts_with("HTTP/1.1 403"), "{origin}: {head}");
    }
    assert!(recording.take().is_empty(), "nothing was sent on");
    let header = format!("Origin: https://{}\r\n", ada.address());
    let (_, head) = upgrade_with(ada, EXEC, "websocket", &header, &encoded).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
}

/// CVE-2018-1002105: after an upgrade that was refused, the connection to the cluster is no pipe.
#[tokio::test]
async fn cve_2018_1002105_a_refused_upgrade_is_one_exchange() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let (mut stream, head) =
        upgrade(&central.ada, "/api/v1/namespaces/a/pods/noupgrade/exec", "websocket").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let smuggled = format!(
        "GET /api/v1/secrets HTTP/1.1\r\nHost: {}\r\nImpersonate-User: admin\r\n\r\n",
        central.ada.address()
    );
    let _ = stream.write_all(smuggled.as_bytes()).await;
    let mut rest = Vec::new();
    wait::within("the end, or a refusal of the second request", async {
        while !String::from_utf8_lossy(&rest).contains("HTTP/1.1 401") {
            if stream.read_buf(&mut rest).await.unwrap_or(0) == 0 {
                break;
            }
        }
    })
    .await;
    let arrived = recording.take();
    assert_eq!(arrived.len(), 1, "{arrived:?}");
}

#[tokio::test]
async fn a_shutdown_ends_upgraded_connections() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let (mut stream, head) = upgrade(&central.ada, EXEC, "websocket").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    echoes(&mut stream, "before").await;
    let mut server = central.server;
    server.terminate();
    is_closed(stream).await;
    wait::within("the end of the server", server.ended()).await;
}
