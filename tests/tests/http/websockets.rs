//! Watches over a WebSocket: the handshake, sub-protocols, credentials among them, origins, and the end.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::{GROUP, secret, secret_path, secrets};
use postern_tests::rights::{path, set, user};
use postern_tests::watching::Event;
use postern_tests::websocket::{Received, Socket};
use postern_tests::{Home, Server, Setup};
use serde_json::json;

const STREAMING: &str =
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const HEADLAMP: &str = "base64.binary.k8s.io";

fn bearer(client: &Client) -> String {
    format!("Bearer {}", client.token())
}

/// The sub-protocol that carries a key.
fn as_protocol(token: &str) -> String {
    format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token))
}

fn of_secrets(query: &str) -> String {
    format!("{}?watch=true{query}", secrets("platform"))
}

async fn open(client: &Client, query: &str, headers: &[(&str, &str)]) -> Socket {
    let bearer = bearer(client);
    let mut all = vec![("authorization", &*bearer)];
    all.extend_from_slice(headers);
    client.websocket(&of_secrets(query), &all).await.expect("a WebSocket")
}

/// A request for a WebSocket, over a client that reads the answer if there is none.
fn asking<'a>(client: &'a Client, path: &str) -> Request<'a> {
    let request = client.get(path).header("connection", "Upgrade").header("upgrade", "websocket");
    request.header("sec-websocket-version", "13").header("sec-websocket-key", KEY)
}

fn refused(reply: &Response, code: u16, words: &str) {
    let status = reply.expect(code);
    assert_eq!(status["kind"], "Status");
    assert!(status.to_string().contains(words), "{words}: {status}");
}

#[tokio::test]
async fn events_are_messages_in_every_form() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("a", "v")).send().await.expect(201);
    for (accept, kind) in [
        ("application/json", "SharedSecret"),
        (TABLE, "Table"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "PartialObjectMetadata"),
    ] {
        let path = of_secrets(STREAMING);
        let lines = client.get(&path).accept(accept).stream().await;
        let mut plain = postern_tests::watching::Watch::new(lines);
        let mut socket = open(&client, STREAMING, &[("accept", accept)]).await;
        assert!(socket.headers.get("sec-websocket-protocol").is_none(), "none was offered");
        socket.say("what a client says is ignored").await;
        let events = [socket.event().await, socket.event().await];
        // Ages in tables can differ by a second.
        let kinds: Vec<_> = plain.take(2).await.into_iter().map(|event| event.kind).collect();
        assert_eq!([&events[0].kind, &events[1].kind], [&kinds[0], &kinds[1]], "{accept}");
        assert_eq!(kinds, ["ADDED", "BOOKMARK"], "{accept}");
        assert_eq!(events[0].object["kind"], kind);
        client.post(&secrets("platform")).json(&secret("b", "v")).send().await.expect(201);
        client.delete(&secret_path("b")).send().await.expect(200);
        let events = [socket.event().await, socket.event().await];
        assert_eq!([&*events[0].kind, &*events[1].kind], ["ADDED", "DELETED"], "{accept}");
        assert_eq!(plain.take(2).await, events, "{accept}: as over a stream");
        let answer = socket.close().await;
        assert!(matches!(answer, Received::Close(_) | Received::End), "{answer:?}");
    }
}

#[tokio::test]
async fn a_known_sub_protocol_is_chosen_and_an_unknown_one_refused() {
    let server = Server::start().await;
    let client = server.client();
    for offered in [HEADLAMP, "other, base64.binary.k8s.io"] {
        let socket = open(&client, "", &[("sec-websocket-protocol", offered)]).await;
        assert_eq!(socket.headers["sec-websocket-protocol"], HEADLAMP, "{offered}");
    }
    let reply =
        asking(&client, &of_secrets("")).header("sec-websocket-protocol", "v5.channel.k8s.io");
    refused(&reply.send().await, 400, HEADLAMP);
}

#[tokio::test]
async fn a_credential_as_a_sub_protocol_is_neither_echoed_nor_recorded() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--log").argument("trace").start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let of_ada = as_protocol(ada.token());
    let offered = format!("{of_ada}, {HEADLAMP}");
    let query = "&resourceVersion=0&timeoutSeconds=1";
    let headers = [("sec-websocket-protocol", &*offered)];
    let mut socket = ada.websocket(&of_secrets(query), &headers).await.expect("a WebSocket");
    assert_eq!(socket.headers["sec-websocket-protocol"], HEADLAMP);
    assert_eq!(socket.received().await, Received::Close(Some(1000)));
    drop(socket);

    let with = |offered: &str| {
        let request = asking(&ada, &of_secrets("")).without("authorization");
        request.header("sec-websocket-protocol", offered)
    };
    let unknown = as_protocol("0123456789-0123456789-0123456789-xyz");
    for (offered, words) in [
        (of_ada.clone(), "only sub-protocol"),
        (format!("{of_ada}, {of_ada}, {HEADLAMP}"), "more than one"),
        (format!("{unknown}, {HEADLAMP}"), "access key not found"),
        (format!("{}, {HEADLAMP}", of_ada.replace("k8s.io.", "k8s.io.=")), "base64url"),
        (HEADLAMP.to_owned(), "no credential: send"),
    ] {
        refused(&with(&offered).send().await, 401, words);
    }
    let both = asking(&ada, &of_secrets("")).header("sec-websocket-protocol", &offered);
    refused(&both.send().await, 401, "send one credential");
    let plain = ada.get(&of_secrets("")).without("authorization");
    let plain = plain.header("sec-websocket-protocol", &offered).send().await;
    refused(&plain, 401, "no credential: send");

    server.stop().await;
    let audit = std::fs::read_to_string(home.audit_log()).unwrap();
    assert!(audit.contains("\"ada\""), "it was recorded who watched");
    for text in [audit, home.logged()] {
        let encoded = of_ada.rsplit('.').next().unwrap();
        assert!(!text.contains(encoded) && !text.contains(ada.token()));
        assert!(!text.contains("base64url.bearer"), "nor any other credential");
    }
}

/// CVE-2019-13209, CVE-2026-42283: a page of another origin opens no WebSocket with the credential of a browser.
#[tokio::test]
async fn cve_2019_13209_and_2026_42283_pages_of_other_origins_are_refused() {
    let home = Home::new();
    let setup = Setup::on(&home).argument("--external-url").argument("https://api.example:8443");
    let server = setup.start().await;
    let client = server.client();
    let own = format!("https://{}", client.address());
    for origin in [&*own, "https://api.example:8443"] {
        open(&client, "", &[("origin", origin)]).await;
    }
    let plain = format!("http://{}", client.address());
    for origin in ["https://evil.example", "null", "https://api.example", &*plain] {
        let reply = asking(&client, &of_secrets("")).header("origin", origin).send().await;
        refused(&reply, 403, "Origin");
    }
    let reply =
        client.get(&of_secrets("&timeoutSeconds=1")).header("origin", "https://evil.example");
    assert_eq!(reply.send().await.status, 200, "what is no WebSocket is as it was");
    server.stop().await;
    let audit = std::fs::read_to_string(home.audit_log()).unwrap();
    let refused = audit
        .lines()
        .filter(|line| line.contains("\"ResponseComplete\"") && line.contains("\"code\":403"));
    let decisions: Vec<bool> =
        refused.map(|line| line.contains("\"authorization.k8s.io/decision\":\"forbid\"")).collect();
    assert_eq!(decisions, [true; 4], "{audit}");
}

#[tokio::test]
async fn what_is_no_handshake_or_no_watch_is_refused() {
    let server = Server::start().await;
    let client = server.client();
    let path = of_secrets("");
    let asked = || client.get(&path).header("connection", "Upgrade").header("upgrade", "websocket");
    let reply = asked().header("sec-websocket-version", "12").header("sec-websocket-key", KEY);
    let reply = reply.send().await;
    refused(&reply, 426, "13");
    assert_eq!(reply.header("sec-websocket-version"), Some("13"));
    let reply = asked().header("sec-websocket-key", KEY).send().await;
    assert_eq!(reply.status, 426, "{}", reply.text());
    for key in [None, Some("YQ=="), Some("not base64")] {
        let mut request = asked().header("sec-websocket-version", "13");
        if let Some(key) = key {
            request = request.header("sec-websocket-key", key);
        }
        refused(&request.send().await, 400, "Sec-WebSocket-Key");
    }
    for path in [secrets("platform"), format!("{GROUP}/users/admin"), based("/apis"), based("/x")] {
        refused(&asking(&client, &path).send().await, 400, "only a watch");
    }
    let options = asking(&client, &of_secrets("&resourceVersion=x")).send().await;
    refused(&options, 400, "resource version");
    // Other protocols are not served, and HTTP lets a server ignore them.
    let h2c =
        client.get(&secrets("platform")).header("connection", "Upgrade").header("upgrade", "h2c");
    assert_eq!(h2c.send().await.status, 200);
}

fn based(path: &str) -> String {
    format!("/kubernetes/management{path}")
}

#[tokio::test]
async fn lost_rights_end_it_with_an_error_and_a_close() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    admin.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let share = |access| json!({ "access": access });
    let to_ada = json!([{ "verbs": ["get"], "users": ["ada"] }]);
    set(&admin, &secret_path("s1"), share(to_ada)).await;
    let mut first = open(&ada, "", &[]).await;
    assert_eq!(first.event().await.summary(), "ADDED s1");
    set(&admin, &secret_path("s1"), share(json!([]))).await;
    ends_with(&mut first, 410).await;
    let mut second = open(&ada, "&allowWatchBookmarks=true", &[]).await;
    assert!(second.event().await.ends_initial_events());
    set(&admin, &path("users", "ada"), json!({ "disabled": true })).await;
    ends_with(&mut second, 401).await;
}

async fn ends_with(socket: &mut Socket, code: u64) {
    // A change of the object itself may come before the end.
    let mut last: Event = socket.event().await;
    while last.kind != "ERROR" {
        last = socket.event().await;
    }
    assert_eq!(last.object["code"], code);
    assert_eq!(last.object["kind"], "Status");
    assert_eq!(socket.received().await, Received::Close(Some(1000)));
    assert_eq!(socket.received().await, Received::End);
}

#[tokio::test]
async fn a_timeout_and_a_shutdown_end_it_cleanly() {
    let server = Server::start().await;
    let client = server.client();
    let query = "&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=false\
                 &resourceVersionMatch=NotOlderThan";
    let mut socket = open(&client, query, &[]).await;
    assert_eq!(socket.event().await.kind, "BOOKMARK");
    assert_eq!(socket.received().await, Received::Close(Some(1000)));
    drop(socket);
    let mut socket = open(&client, "", &[]).await;
    server.terminate();
    assert_eq!(socket.received().await, Received::Close(Some(1000)));
    assert_eq!(socket.received().await, Received::End);
    server.stop().await;
}

#[tokio::test]
async fn they_are_counted_as_watches() {
    let home = Home::new();
    let setup = Setup::on(&home).argument("--max-watches-per-owner").argument("2");
    let server = setup.start().await;
    let client = server.client();
    let _held = [open(&client, "", &[]).await, open(&client, "", &[]).await];
    refused(&asking(&client, &of_secrets("")).send().await, 429, "open watches");
    let first = client.get(&of_secrets("")).send().await;
    assert_eq!(first.status, 429, "{}", first.text());
}
