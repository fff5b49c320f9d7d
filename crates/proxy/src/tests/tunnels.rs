//! Connections that the upstream opens itself.

use http::{HeaderName, Request};
use http_body_util::Empty;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::support::*;
use crate::*;

const WAITING: HeaderName = HeaderName::from_static("x-waiting");
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

struct Scene {
    proxy: Proxy,
    tunnels: Tunnels,
    upstream: Upstream,
    driven: Mutex<JoinSet<()>>,
}

impl Scene {
    fn new() -> Self {
        let limits = Limits { connect_timeout: PATIENCE, ..Limits::default() };
        Self::with(Proxy::with(limits, std::sync::Arc::new(TcpDial::new())))
    }

    fn with(proxy: Proxy) -> Self {
        let tunnels = Tunnels::new(WAITING);
        let upstream = Upstream::through(&"http://agent/base".parse().unwrap(), &tunnels).unwrap();
        Self { proxy, tunnels, upstream, driven: Mutex::default() }
    }

    /// Opens a tunnel, and returns its other end.
    async fn open(&self) -> Raw {
        let (own, peer) = tokio::io::duplex(64 * 1024);
        let driven = self.proxy.offer(&self.tunnels, Box::new(own)).await.unwrap();
        self.driven.lock().spawn(driven);
        Raw::new(peer)
    }

    async fn get(&self, path: &str) -> Result<String, ProxyError> {
        text(get(&self.proxy, &self.upstream, path).await?).await
    }

    async fn until_idle(&self, count: usize) {
        until(&self.proxy, |_| self.tunnels.idle() == count).await;
    }
}

#[tokio::test]
async fn requests_follow_each_other_in_a_tunnel_and_have_the_path_of_the_upstream() {
    let scene = Scene::new();
    let mut raw = scene.open().await;
    scene.until_idle(1).await;
    for number in 0..5 {
        let answered = async {
            let head = raw.head().await;
            assert!(head.starts_with(&format!("GET /base/{number} HTTP/1.1\r\n")), "{head}");
            assert!(head.contains("\r\nx-waiting: 0\r\n"), "{head}");
            raw.send(OK).await;
        };
        let path = format!("/{number}");
        let (answer, ()) = tokio::join!(scene.get(&path), answered);
        assert_eq!(answer.unwrap(), "ok");
        scene.until_idle(1).await;
    }
    assert_eq!((scene.proxy.counts().connections, scene.tunnels.idle()), (1, 1));
}

#[tokio::test]
async fn a_request_waits_for_a_tunnel_and_the_first_one_comes_first() {
    let scene = std::sync::Arc::new(Scene::new());
    let mut asked = JoinSet::new();
    for number in 0..20 {
        let asking = scene.clone();
        asked.spawn(async move { (number, asking.get(&format!("/{number}")).await.unwrap()) });
        until(&scene.proxy, |_| scene.tunnels.waiting() == number + 1).await;
    }
    let mut raw = scene.open().await;
    for number in 0..20 {
        let head = raw.head().await;
        assert!(head.starts_with(&format!("GET /base/{number} ")), "{head}");
        // The upstream learns how many tunnels are missing.
        assert!(head.contains(&format!("\r\nx-waiting: {}\r\n", 19 - number)), "{head}");
        let body = number.to_string();
        raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
    }
    for (number, answer) in asked.join_all().await {
        assert_eq!(answer, number.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_tunnel_a_request_ends_after_the_time_limit_and_leaves_nothing() {
    let scene = Scene::with(Proxy::new());
    let error = scene.get("/").await.unwrap_err();
    assert!(matches!(error, ProxyError::NoTunnel { .. }), "{error}");
    assert_eq!(error.status(), 503);
    assert_eq!(scene.tunnels.waiting(), 0);
    // A tunnel that comes later is not given to it.
    let _raw = scene.open().await;
    scene.until_idle(1).await;
}

/// A request that was cancelled while it waited must not take a tunnel with it.
#[tokio::test]
async fn a_request_that_was_given_up_takes_no_tunnel() {
    let scene = Scene::new();
    for _ in 0..10 {
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, scene.get("/gone")).await;
        assert!(waiting.is_err());
    }
    let mut raw = scene.open().await;
    let answered = async {
        assert!(raw.head().await.starts_with("GET /base/here "));
        raw.send(OK).await;
    };
    let (answer, ()) = tokio::join!(scene.get("/here"), answered);
    assert_eq!(answer.unwrap(), "ok");
}

#[tokio::test]
async fn bytes_without_a_request_close_the_tunnel() {
    let scene = Scene::new();
    let mut raw = scene.open().await;
    scene.until_idle(1).await;
    raw.send(OK).await;
    scene.until_idle(0).await;
    assert_eq!(raw.rest().await, b"");
    // After an answer, too.
    let mut raw = scene.open().await;
    let answered = async {
        raw.head().await;
        raw.send(format!("{OK}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")).await;
    };
    let (answer, ()) = tokio::join!(scene.get("/a"), answered);
    assert_eq!(answer.unwrap(), "ok");
    until(&scene.proxy, |counts| counts.connections == 0).await;
    assert_eq!(raw.rest().await, b"");
}

#[tokio::test]
async fn an_answer_that_is_none_ends_its_own_request_and_its_tunnel_alone() {
    let scene = Scene::new();
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(256 * 1024));
    for bytes in [
        "nothing like HTTP\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
        "HTTP/1.1 200".to_owned(),
        long,
    ] {
        let mut bad = scene.open().await;
        let answered = async {
            bad.head().await;
            // The reader may close before the last byte.
            let _ = bad.stream.write_all(bytes.as_bytes()).await;
            let _ = bad.stream.shutdown().await;
        };
        let (answer, ()) = tokio::join!(scene.get("/a"), answered);
        answer.unwrap_err();
        until(&scene.proxy, |counts| counts.connections == 0).await;
    }
    let mut good = scene.open().await;
    let answered = async {
        good.head().await;
        good.send(OK).await;
    };
    let (answer, ()) = tokio::join!(scene.get("/b"), answered);
    assert_eq!(answer.unwrap(), "ok");
}

#[tokio::test]
async fn an_upgrade_takes_its_tunnel_for_good() {
    let scene = Scene::new();
    let front = Front::start(&scene.proxy, &scene.upstream, forward).await;
    let mut raw = scene.open().await;
    let mut client = Raw::connect(front.address).await;
    client
        .send("GET /exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        .await;
    assert!(raw.head().await.to_ascii_lowercase().contains("upgrade: spdy/3.1"));
    raw.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n",
    )
    .await;
    assert!(client.head().await.starts_with("HTTP/1.1 101"));
    client.send("ping").await;
    let mut read = [0; 4];
    raw.stream.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"ping");
    assert_eq!(scene.tunnels.idle(), 0);
    drop(client);
    assert_eq!(raw.rest().await, b"");
    drop(raw);
    until(&scene.proxy, |counts| counts.connections == 0).await;
}

#[tokio::test(start_paused = true)]
async fn of_many_idle_tunnels_some_are_kept_and_the_others_closed_after_a_minute() {
    let scene = Scene::new();
    let mut all = Vec::new();
    for _ in 0..40 {
        all.push(scene.open().await);
    }
    until(&scene.proxy, |_| scene.tunnels.idle() == 40).await;
    tokio::time::sleep(std::time::Duration::from_secs(50)).await;
    assert_eq!(scene.tunnels.idle(), 40);
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    until(&scene.proxy, |counts| counts.connections == 16).await;
    tokio::time::sleep(std::time::Duration::from_hours(5)).await;
    assert_eq!((scene.tunnels.idle(), scene.proxy.counts().connections), (16, 16));
}

/// A tunnel that died while it was idle costs a request nothing.
#[tokio::test]
async fn a_dead_tunnel_is_passed_over() {
    let scene = Scene::new();
    let mut good = scene.open().await;
    scene.until_idle(1).await;
    for _ in 0..3 {
        // The tunnel closes as the request comes.
        let mut bad = scene.open().await;
        scene.until_idle(2).await;
        let dies = async {
            bad.head().await;
            drop(bad);
        };
        let answered = async {
            good.head().await;
            good.send(OK).await;
        };
        let (answer, (), ()) = tokio::join!(scene.get("/a"), dies, answered);
        assert_eq!(answer.unwrap(), "ok");
        scene.until_idle(1).await;
    }
}

/// Several tunnels can die at once, and each takes 45 seconds to be noticed. A request waits for one of them.
#[tokio::test(start_paused = true)]
async fn a_request_waits_for_one_dead_tunnel_and_not_for_the_next() {
    let scene = Scene::with(Proxy::new());
    let _other = scene.open().await;
    scene.until_idle(1).await;
    let mut dead = scene.open().await;
    scene.until_idle(2).await;
    let start = tokio::time::Instant::now();
    let dies = async {
        dead.head().await;
        tokio::time::sleep(std::time::Duration::from_secs(45)).await;
        drop(dead);
    };
    let (answer, ()) = tokio::join!(scene.get("/a"), dies);
    assert!(matches!(answer.unwrap_err(), ProxyError::Lost { .. }));
    assert!(start.elapsed() < std::time::Duration::from_secs(46), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_shutdown_closes_idle_tunnels_and_lets_an_exchange_end() {
    let scene = Scene::new();
    let mut idle = scene.open().await;
    let mut busy = scene.open().await;
    scene.until_idle(2).await;
    let request = Request::get("/slow").body(Empty::<bytes::Bytes>::new()).unwrap();
    let ahead = forward(request.uri());
    let asked = async { text(scene.proxy.forward(&scene.upstream, request, ahead).await?).await };
    let drained = async {
        busy.head().await;
        let drain = scene.proxy.drain(PATIENCE);
        let answered = async {
            assert_eq!(idle.rest().await, b"");
            busy.send(OK).await;
        };
        tokio::join!(drain, answered);
    };
    let (answer, ()) = tokio::join!(asked, drained);
    assert_eq!(answer.unwrap(), "ok");
    let (own, _theirs) = tokio::io::duplex(64);
    assert!(matches!(
        scene.proxy.offer(&scene.tunnels, Box::new(own)).await.err(),
        Some(ProxyError::Draining)
    ));
}
