//! SIGTERM: requests in flight are finished, open connections are closed, and the exit code is 0.

use postern_tests::http::Client;
use postern_tests::objects::{collection, secret, secret_path, secrets};
use postern_tests::slow::slow_body;
use postern_tests::{Home, Server, Setup, wait};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    Server::start().await.stop().await;
}

#[tokio::test]
async fn open_watches_and_connections_do_not_delay_shutdown() {
    let mut server = Server::start().await;
    let two = Client::http2(server.kubeconfig());
    let mut watches = Vec::new();
    for client in [server.client(), two.clone()] {
        watches.push(client.watch(&secrets("platform"), "&resourceVersion=0").await);
    }
    let mut connections = Vec::new();
    for client in [server.client(), two] {
        let mut connection = client.connect().await.unwrap();
        client.get("/readyz").try_send_on(&mut connection).await.unwrap().expect_text(200);
        connections.push(connection);
    }
    let raw = server.client().raw().await.unwrap();
    server.terminate();
    for watch in &mut watches {
        assert_eq!(watch.rest().await, [], "a watch ends cleanly, without an error");
    }
    let status = server.ended().await;
    assert!(status.success(), "{status}");
    drop((connections, raw));
}

/// Sends SIGTERM and waits until the server is no longer ready.
async fn begin_shutdown(server: &Server, client: &Client) {
    let mut probe = client.connect().await.unwrap();
    client.get("/readyz").try_send_on(&mut probe).await.unwrap().expect_text(200);
    server.terminate();
    wait::until("the drain to start", async || {
        let result = client.get("/readyz").try_send_on(&mut probe).await;
        (!result.is_ok_and(|reply| reply.status == 200)).then_some(())
    })
    .await;
}

/// A balancer loses the write that it sends on a connection which the server closes at the same time.
#[tokio::test]
async fn connections_announce_their_end_during_the_shutdown_delay() {
    let home = Home::new();
    let mut server = Setup::on(&home).argument("--shutdown-delay=5s").start().await;
    let (one, two) = (server.client(), Client::http2(server.kubeconfig()));
    let me = collection("selves/me");
    let (mut first, mut second) = (one.connect().await.unwrap(), two.connect().await.unwrap());
    let reply = one.get(&me).try_send_on(&mut first).await.unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, None));
    two.get(&me).try_send_on(&mut second).await.unwrap().expect(200);
    server.terminate();
    wait::until("readiness to fail", async || {
        (one.get("/readyz").send().await.status != 200).then_some(())
    })
    .await;
    let reply = one.get(&me).try_send_on(&mut first).await.unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    wait::until("the end of the HTTP/2 connection", async || {
        let again = two.get(&me).try_send_on(&mut second).await;
        again.map_or(Some(()), |reply| (reply.status != 200).then_some(()))
    })
    .await;
    // New ones are still served: a balancer may not have noticed yet.
    two.get(&me).send().await.expect(200);
    one.get(&me).send().await.expect(200);
    assert!(server.ended().await.success());
}

async fn assert_stored(mut server: Server) {
    assert!(server.ended().await.success());
    let again = Setup::on(server.home()).start().await;
    again.client().get(&secret_path("late")).send().await.expect(200);
    again.stop().await;
}

#[tokio::test]
async fn a_request_in_flight_is_answered() {
    let server = Server::start().await;
    let client = server.client();
    let body = secret("late", "v").to_string();
    let (one, two) = body.split_at(body.len() / 2);
    let mut stream = client.raw().await.unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        secrets("platform"),
        client.address(),
        server.kubeconfig().token,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body, so it has the request.
    let mut go_on = [0; 25];
    wait::within("to be asked for the body", stream.read_exact(&mut go_on)).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(one.as_bytes()).await.unwrap();
    begin_shutdown(&server, &client).await;
    stream.write_all(two.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    // The server may close the connection without a TLS close_notify.
    drop(wait::within("the response", stream.read_to_end(&mut response)).await);
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 201 Created\r\n"), "{response}");
    assert_stored(server).await;
}

#[tokio::test]
async fn a_request_in_flight_is_answered_on_http2_too() {
    let server = Server::start().await;
    let client = Client::http2(server.kubeconfig());
    let mut connection = client.connect().await.unwrap();
    let (finish, body) = slow_body(&secret("late", "v"));
    let (posting, mut posts) = (client.clone(), connection.shared());
    let request = tokio::spawn(async move {
        let request = posting.post(&secrets("platform")).streamed("application/json", body);
        request.try_send_on(&mut posts).await
    });
    // The runtime has one thread: the request is sent before this one starts, and the requests of
    // one connection arrive in order.
    tokio::task::yield_now().await;
    client.get("/readyz").try_send_on(&mut connection).await.unwrap().expect_text(200);
    begin_shutdown(&server, &client).await;
    finish.send(()).unwrap();
    let reply = wait::within("the response", request).await.unwrap().unwrap();
    reply.expect(201);
    assert_stored(server).await;
}

#[tokio::test]
async fn an_endless_request_does_not_delay_shutdown_for_ever() {
    let home = postern_tests::Home::new();
    let mut server = Setup::on(&home).argument("--drain-timeout").argument("1s").start().await;
    let client = server.client();
    let (_never, body) = slow_body(&secret("never", "v"));
    let request = tokio::spawn(async move {
        client.post(&secrets("platform")).streamed("application/json", body).try_send().await
    });
    let client = server.client();
    client.get("/readyz").send().await.expect_text(200);
    server.terminate();
    assert!(server.ended().await.success());
    request.abort();
    let server = Setup::on(&home).start().await;
    assert_eq!(server.client().get(&secret_path("never")).send().await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_signal_during_the_start_is_obeyed() {
    let home = postern_tests::Home::new();
    for _ in 0..5 {
        let mut server = Setup::on(&home).start_unready();
        wait::until("the process to have started", async || home.data().exists().then_some(()))
            .await;
        server.terminate();
        server.ended().await;
    }
    Setup::on(&home).start().await.stop().await;
}
