//! A cluster of the test's own that answers with bytes: slowly, in halves, broken, malformed, or a very long body.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use postern_tests::{Form, Home, Kubeconfig, TlsServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;

/// The path before the name of an answer.
pub(crate) const ANSWER: &str = "/api/v1/namespaces/default/pods/p/proxy/";

/// Where connections are upgraded.
pub(crate) const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=sh";

/// Where an upgraded connection says [`last_bytes`] and ends without the end of TLS.
pub(crate) const ENDS_ABRUPTLY: &str = "/api/v1/namespaces/default/pods/p/exec?command=abrupt";

/// The path of an upgraded connection that is read to its end. Its length is then in
/// [`Signals::heard`].
pub(crate) const LISTENS: &str = "/api/v1/namespaces/default/pods/p/exec?command=listen";

/// Where an upgraded connection says as much as the long answer.
pub(crate) const SAYS_MUCH: &str = "/api/v1/namespaces/default/pods/p/exec?command=much";

/// The bytes before an abrupt end: more than one record of TLS, and more than one buffer on the
/// way.
pub(crate) fn last_bytes() -> Vec<u8> {
    (0..50_000).map(|at: u32| u8::try_from(at % 251).expect("less than 256")).collect()
}

/// The response to an agent that asks for its own rights.
const MAY_IMPERSONATE: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":true}}"#;

/// The bytes of the long answer, and of the long request: more than a process may have in memory.
pub(crate) fn long_bytes() -> u64 {
    Form::of_this_run().pick(192, 1024) * 1024 * 1024
}

/// Malformed answers, and whether each begins as an answer: then something of it may reach the client.
pub(crate) const MALFORMED: [(&str, bool); 16] = [
    ("", false),
    ("nonsense\r\n\r\n", false),
    ("HTTP/1.1 20x OK\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nX: a\r\n folded: b\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nX: a\rInjected: b\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", false),
    (
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        false,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Le", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\npart", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", true),
];

const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";

/// The cluster, which ends with the test.
pub(crate) struct Upstream {
    server: Kubeconfig,
    pub(crate) signals: Arc<Signals>,
}

/// The signals between the test and an answer.
#[derive(Default)]
pub(crate) struct Signals {
    /// An answer goes on.
    pub(crate) go: Notify,
    /// A part of a request has come.
    pub(crate) seen: Notify,
    /// The lengths of the messages to [`LISTENS`].
    pub(crate) heard: Mutex<Vec<usize>>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let signals: Arc<Signals> = Arc::default();
        let told = signals.clone();
        let started = TlsServer::start(move |stream| {
            let told = told.clone();
            async move {
                // A client that goes is no failure here.
                let _ = answer(stream, &told).await;
            }
        })
        .await;
        let server = Kubeconfig {
            server: format!("https://{}", started.address()),
            authority: started.authority().as_bytes().to_vec(),
            token: "credential-of-the-cluster".to_owned(),
            namespace: "default".to_owned(),
        };
        Self { server, signals }
    }

    /// Writes its kubeconfig into the home, and returns the path.
    pub(crate) fn kubeconfig(&self, home: &Home) -> PathBuf {
        self.server.write(&home.path().join("upstream.kubeconfig"))
    }
}

/// One request and its answer, which its path names, and the end of the connection.
async fn answer(mut stream: TlsStream<TcpStream>, signals: &Signals) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let length = head.split_once("content-length: ").and_then(|(_, rest)| {
        let (length, _) = rest.split_once('\r')?;
        length.parse::<u64>().ok()
    });
    let name = path.strip_prefix(ANSWER).unwrap_or(path);
    match name {
        ENDS_ABRUPTLY => return abrupt(&mut stream, SWITCHED, "").await,
        SAYS_MUCH => {
            send(&mut stream, SWITCHED).await?;
            send_long(&mut stream).await?;
        }
        LISTENS => {
            send(&mut stream, SWITCHED).await?;
            let mut received = Vec::new();
            // The connection may end without the end of TLS.
            let _ = stream.read_to_end(&mut received).await;
            signals.heard.lock().expect("no panic").push(received.len());
        }
        "abrupt" => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let head = format!("{head}{:x}\r\n", last_bytes().len());
            return abrupt(&mut stream, &head, "\r\n").await;
        }
        _ if head.contains("\r\nupgrade: ") => upgraded(&mut stream).await?,
        "slow" => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            send(&mut stream, format!("{head}6\r\nfirst\n\r\n")).await?;
            signals.go.notified().await;
            send(&mut stream, "7\r\nsecond\n\r\n0\r\n\r\n").await?;
        }
        "reset" => {
            send(&mut stream, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart\n").await?;
            signals.go.notified().await;
            // Unsent bytes are thrown away, and the other side is told so.
            return stream.get_ref().0.set_zero_linger();
        }
        "long" => {
            let long = long_bytes();
            send(&mut stream, format!("HTTP/1.1 200 OK\r\nContent-Length: {long}\r\n\r\n")).await?;
            send_long(&mut stream).await?;
        }
        _ if name.starts_with("malformed-") => {
            let number = name.trim_start_matches("malformed-").parse::<usize>();
            send(&mut stream, MALFORMED[number.expect("a number")].0).await?;
        }
        _ => {
            let taken = take(&mut stream, length.unwrap_or(0), signals).await?;
            let mut body = format!("took {taken}");
            if path.ends_with("/selfsubjectaccessreviews") {
                MAY_IMPERSONATE.clone_into(&mut body);
            }
            let length = body.len();
            let head =
                "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close";
            send(&mut stream, format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}")).await?;
        }
    }
    stream.shutdown().await
}

async fn send(stream: &mut TlsStream<TcpStream>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    stream.write_all(bytes.as_ref()).await?;
    stream.flush().await
}

async fn send_long(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let block = vec![b'x'; 256 * 1024];
    for _ in 0..long_bytes() / 262_144 {
        stream.write_all(&block).await?;
    }
    Ok(())
}

/// Sends [`last_bytes`], and ends TCP without TLS. The kernel does so for a process that dies.
async fn abrupt(stream: &mut TlsStream<TcpStream>, before: &str, after: &str) -> io::Result<()> {
    send(stream, [before.as_bytes(), &last_bytes(), after.as_bytes()].concat()).await?;
    stream.get_mut().0.shutdown().await
}

/// Reads a body to its end, tells when its first part has come, and returns how long it was.
async fn take(
    stream: &mut TlsStream<TcpStream>,
    length: u64,
    signals: &Signals,
) -> io::Result<u64> {
    let (mut taken, mut buffer) = (0, vec![0; 256 * 1024]);
    while taken < length {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        if taken == 0 {
            signals.seen.notify_one();
        }
        taken += read as u64;
    }
    Ok(taken)
}

/// Reads until the client has said that nothing more comes, and only then sends all of it back.
async fn upgraded(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    send(stream, SWITCHED).await?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await?;
    received.extend_from_slice(b" and that is all");
    send(stream, received).await
}
