//! SIGTERM: what is under way comes to its end, what is open is closed, and the exit code is 0.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use postern_tests::http::Client;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::{Server, Setup, wait};
use tokio::sync::oneshot;

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    Server::start().await.stop().await;
}

#[tokio::test]
async fn open_watches_and_kept_connections_do_not_hold_it() {
    let mut server = Server::start().await;
    let two = Client::http2(server.kubeconfig());
    let mut watches = Vec::new();
    for client in [server.client(), two.clone()] {
        watches.push(client.watch(&secrets("platform"), "&resourceVersion=0").await);
    }
    let mut kept = Vec::new();
    for client in [server.client(), two] {
        let mut connection = client.connect().await.unwrap();
        client.get("/readyz").try_send_on(&mut connection).await.unwrap().expect_text(200);
        kept.push(connection);
    }
    let raw = server.client().raw().await.unwrap();
    server.terminate();
    for watch in &mut watches {
        assert_eq!(watch.rest().await, [], "a watch ends cleanly, without an error");
    }
    let status = server.ended().await;
    assert!(status.success(), "{status}");
    drop((kept, raw));
}

/// A request whose body ends when the sender says so.
fn slow_body(object: &serde_json::Value) -> (oneshot::Sender<()>, postern_tests::http::Body) {
    let (finish, finished) = oneshot::channel::<()>();
    let text = object.to_string();
    let (one, two) = text.split_at(text.len() / 2);
    let (one, two) = (Bytes::from(one.to_owned()), Bytes::from(two.to_owned()));
    let frames = stream::unfold((0, Some(finished)), move |(step, mut finished)| {
        let (one, two) = (one.clone(), two.clone());
        async move {
            let frame = match step {
                0 => one,
                1 => {
                    drop(finished.take().unwrap().await);
                    two
                }
                _ => return None,
            };
            Some((Ok::<_, Infallible>(Frame::data(frame)), (step + 1, finished)))
        }
    });
    (finish, StreamBody::new(frames).boxed_unsync())
}

#[tokio::test]
async fn a_request_under_way_is_answered() {
    for http2 in [false, true] {
        let mut server = Server::start().await;
        let client = if http2 { Client::http2(server.kubeconfig()) } else { server.client() };
        let (finish, body) = slow_body(&secret("late", "v"));
        let request = {
            let client = client.clone();
            tokio::spawn(async move {
                client.post(&secrets("platform")).streamed("application/json", body).send().await
            })
        };
        // The server has the request's beginning when it counts it, or at the latest when it is
        // not ready any more and the request is still not refused.
        wait::until("the request to be under way", async || {
            let metrics = server.home().logged();
            (!metrics.is_empty()).then_some(())
        })
        .await;
        let mut probe = client.connect().await.unwrap();
        client.get("/readyz").try_send_on(&mut probe).await.unwrap().expect_text(200);
        server.terminate();
        wait::until("the drain to begin", async || {
            let answer = client.get("/readyz").try_send_on(&mut probe).await;
            (!answer.is_ok_and(|reply| reply.status == 200)).then_some(())
        })
        .await;
        finish.send(()).unwrap();
        let reply = wait::within("the answer", request).await.unwrap();
        reply.expect(201);
        assert!(server.ended().await.success());
        let home = server.home().clone();
        drop(server);
        let server = Setup::on(&home).start().await;
        server.client().get(&secret_path("late")).send().await.expect(200);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_never_ends_its_request_does_not_hold_it_for_ever() {
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
async fn a_signal_during_the_start_is_heeded() {
    let home = postern_tests::Home::new();
    for _ in 0..5 {
        let mut server = Setup::on(&home).start_unready();
        wait::until("the process to have begun", async || home.data().exists().then_some(())).await;
        server.terminate();
        server.ended().await;
    }
    Setup::on(&home).start().await.stop().await;
}
