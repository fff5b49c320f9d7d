//! Streams that are slow, long, half closed, broken off or malformed, by each way to the upstream that makes them.

use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::{Home, wait};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::scene::Scene;
use super::upstream::{
    ANSWER, ENDS_ABRUPTLY, EXEC, LISTENS, MALFORMED, SAYS_MUCH, Upstream, last_bytes, long_bytes,
};

/// The memory that a stream may cost, in MB. It is far below the bytes that are sent.
const MOST_MEMORY_MB: u64 = 64;

/// One way to the upstream.
struct Way {
    name: String,
    client: Client,
    /// The path of the cluster there.
    prefix: String,
}

impl Way {
    fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// An answer of the upstream.
    fn answer(&self, name: &str) -> String {
        self.path(&format!("{ANSWER}{name}"))
    }

    /// Checks that another request gets a response, regardless of the earlier ones.
    async fn works(&self) {
        let reply = self.client.get(&self.answer("good")).send().await;
        assert_eq!(reply.expect_text(201), "took 0", "{}", self.name);
    }

    /// Begins a stream.
    async fn upgraded(&self, path: &str) -> TlsStream<TcpStream> {
        let headers = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\
                       X-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
        let mut stream = self.begin("POST", &self.path(path), headers).await;
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{}: {head}", self.name);
        stream
    }

    /// Sends the head of a request, and returns the connection.
    async fn begin(&self, method: &str, path: &str, headers: &str) -> TlsStream<TcpStream> {
        let mut stream = self.client.raw().await.unwrap();
        let (address, token) = (self.client.address(), self.client.token());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }
}

async fn start() -> (Upstream, Scene, Vec<Way>) {
    let (upstream, home) = (Upstream::start().await, Home::new());
    let kubeconfig = upstream.kubeconfig(&home);
    let scene = Scene::new(home, &kubeconfig).await;
    let ways = scene.ways().into_iter().map(|(name, kubeconfig)| {
        let (_, prefix) = kubeconfig.server.split_once(kubeconfig.authority_of_server()).unwrap();
        Way { name, client: Client::new(&kubeconfig), prefix: prefix.to_owned() }
    });
    let ways = ways.collect();
    (upstream, scene, ways)
}

async fn read_head(stream: &mut TlsStream<TcpStream>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = wait::within("the head of an answer", stream.read_u8()).await.unwrap();
        head.push(byte);
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn what_is_sent_slowly_arrives_as_it_is_sent() {
    let (upstream, _scene, ways) = start().await;
    for way in &ways {
        let mut lines = way.client.get(&way.answer("slow")).stream().await;
        assert_eq!(lines.next().await, Ok(Some("first\n".to_owned())), "{}", way.name);
        upstream.signals.go.notify_one();
        assert_eq!(lines.next().await, Ok(Some("second\n".to_owned())), "{}", way.name);
        assert_eq!(lines.next().await, Ok(None), "{}", way.name);

        let headers = "Content-Length: 10\r\nConnection: close\r\n";
        let mut request = way.begin("POST", &way.answer("upload"), headers).await;
        request.write_all(b"01234").await.unwrap();
        wait::within("the first half at the upstream", upstream.signals.seen.notified()).await;
        request.write_all(b"56789").await.unwrap();
        let mut reply = String::new();
        wait::within("the answer", request.read_to_string(&mut reply)).await.unwrap();
        assert!(reply.ends_with("took 10"), "{}: {reply}", way.name);
    }
}

#[tokio::test]
async fn what_is_broken_off_has_no_clean_end() {
    let (upstream, _scene, ways) = start().await;
    for way in &ways {
        let mut lines = way.client.get(&way.answer("reset")).stream().await;
        assert_eq!(lines.next().await, Ok(Some("part\n".to_owned())), "{}", way.name);
        upstream.signals.go.notify_one();
        let end = lines.next().await;
        assert!(end.is_err(), "{}: {end:?}", way.name);
        way.works().await;
    }
}

#[tokio::test]
async fn what_is_half_closed_still_answers() {
    let (_upstream, _scene, ways) = start().await;
    for way in &ways {
        let mut stream = way.upgraded(EXEC).await;
        stream.write_all(b"this").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = String::new();
        wait::within("the answer", stream.read_to_string(&mut rest)).await.unwrap();
        assert_eq!(rest, "this and that is all", "{}", way.name);
    }
}

/// kubectl reads the exit status of a command from the last bytes.
#[tokio::test]
async fn the_last_bytes_before_an_abrupt_end_arrive_both_ways() {
    const ROUNDS: usize = 9;
    let (upstream, _scene, ways) = start().await;
    let said = last_bytes();
    for way in &ways {
        for round in 0..ROUNDS {
            let mut stream = way.upgraded(ENDS_ABRUPTLY).await;
            let mut rest = Vec::new();
            let _ = wait::within("the end", stream.read_to_end(&mut rest)).await;
            assert!(rest == said, "{} {round}: {} bytes of a stream", way.name, rest.len());

            let headers = "Connection: close\r\n";
            let mut log = way.begin("GET", &way.answer("abrupt"), headers).await;
            let head = read_head(&mut log).await;
            assert!(head.starts_with("HTTP/1.1 200"), "{}: {head}", way.name);
            let mut body = Vec::new();
            let _ = wait::within("the end", log.read_to_end(&mut body)).await;
            assert!(!body.ends_with(b"0\r\n\r\n"), "{}: it looks complete", way.name);
            let taken = body.len();
            assert!(taken >= said.len(), "{} {round}: {taken} bytes of a log", way.name);

            let mut stream = way.upgraded(LISTENS).await;
            stream.write_all(&said).await.unwrap();
            stream.flush().await.unwrap();
            // Only TCP ends: the kernel does so for a process that dies.
            stream.get_mut().0.shutdown().await.unwrap();
            let received = || upstream.signals.heard.lock().unwrap().pop();
            let bytes = wait::until("the upstream", async || received()).await;
            assert_eq!(bytes, said.len(), "{} {round}", way.name);
        }
        way.works().await;
    }
}

/// A pager waits for its reader. The pause is longer than any other client may read nothing.
#[tokio::test]
async fn a_client_that_pauses_keeps_its_log_and_its_exec() {
    const PAUSE: Duration = Duration::from_secs(40);
    let (_upstream, scene, ways) = start().await;
    let mut streams = Vec::new();
    for way in &ways {
        let mut log = way.begin("GET", &way.answer("long"), "Connection: close\r\n").await;
        let head = read_head(&mut log).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{}: {head}", way.name);
        streams.push((&way.name, "log", log));
        streams.push((&way.name, "exec", way.upgraded(SAYS_MUCH).await));
    }
    let processes = [scene.central.id(), scene.agent.id()];
    let before = processes.map(peak_memory_mb);
    tokio::time::sleep(PAUSE).await;
    for (id, before) in processes.into_iter().zip(before) {
        let after = peak_memory_mb(id);
        assert!(after <= before + 8, "paused streams are gathered: {before} MB became {after} MB");
    }
    for (way, what, stream) in &mut streams {
        assert_eq!(read_body(stream, long_bytes()).await, long_bytes(), "{way}: {what}");
    }
}

#[tokio::test]
async fn what_is_malformed_is_an_error_and_harms_nothing_else() {
    let (_upstream, _scene, ways) = start().await;
    for way in &ways {
        for (number, (bytes, begins)) in MALFORMED.into_iter().enumerate() {
            let path = way.answer(&format!("malformed-{number}"));
            let reply = way.client.get(&path).try_send().await;
            // An answer that has begun breaks off, unless it ends before anything of it was passed on.
            if !begins || reply.is_ok() {
                let reply = reply.unwrap();
                assert_eq!(reply.status, 503, "{} {bytes:?}: {}", way.name, reply.text());
                assert_eq!(reply.json()["kind"], "Status", "{} {bytes:?}", way.name);
                assert!(reply.header("x").is_none() && reply.header("injected").is_none());
            }
        }
        way.works().await;
    }
}

/// The most memory that a process has had so far, in MB, as `/proc` says.
fn peak_memory_mb(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024 / 1_000_000
}

/// Reads that many bytes.
async fn read_body(stream: &mut TlsStream<TcpStream>, length: u64) -> u64 {
    let (mut read, mut buffer) = (0, vec![0; 256 * 1024]);
    while read < length {
        match wait::within("more of the answer", stream.read(&mut buffer)).await.unwrap() {
            0 => break,
            more => read += more as u64,
        }
    }
    read
}

#[tokio::test]
async fn heavy_long_bodies_pass_each_way_and_are_never_gathered() {
    let (_upstream, scene, ways) = start().await;
    let long = long_bytes();
    for way in &ways {
        way.works().await;
    }
    let processes = [scene.central.id(), scene.agent.id()];
    let before = processes.map(peak_memory_mb);
    for way in &ways {
        let mut down = way.begin("GET", &way.answer("long"), "Connection: close\r\n").await;
        let head = read_head(&mut down).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{}: {head}", way.name);
        assert_eq!(read_body(&mut down, long).await, long, "{}", way.name);

        let headers = format!("Content-Length: {long}\r\nConnection: close\r\n");
        let mut up = way.begin("POST", &way.answer("upload"), &headers).await;
        let block = vec![b'x'; 256 * 1024];
        for _ in 0..long / 262_144 {
            wait::within("the request to be taken", up.write_all(&block)).await.unwrap();
        }
        // The last records may still be in the buffer of TLS, which reading does not send.
        wait::within("the request to be sent", up.flush()).await.unwrap();
        let mut reply = String::new();
        wait::within("the answer", up.read_to_string(&mut reply)).await.unwrap();
        assert!(reply.ends_with(&format!("took {long}")), "{}: {reply}", way.name);
    }
    for (id, before) in processes.into_iter().zip(before) {
        let after = peak_memory_mb(id);
        assert!(after < before + MOST_MEMORY_MB, "{before} MB became {after} MB");
    }
}
