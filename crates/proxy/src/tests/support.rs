//! An upstream made of bytes, and a server in front of the proxy.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::{
    BoxError, Counts, DeliveredBody, Dial, DialFuture, Forward, Proxy, ProxyBody, ProxyError,
    SecretBytes, Stream, Target, Upstream, UpstreamAddresses, UpstreamConfig,
};

/// The time limit of a test. No test takes this long; a test that waits without end fails.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for something that must come.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not come")
}

/// Waits until the counts are as they should be.
pub(super) async fn until(proxy: &Proxy, is_so: impl Fn(&Counts) -> bool) -> Counts {
    soon(async {
        loop {
            let counts = proxy.counts();
            if is_so(&counts) {
                return counts;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

/// A connection, byte by byte.
pub(super) struct Raw {
    pub(super) stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

impl Raw {
    pub(super) fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), buffer: Vec::new() }
    }

    pub(super) async fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap())
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Reads up to and with `end`, or until the other side ends.
    pub(super) async fn read_to(&mut self, end: &str) -> String {
        let mut searched = 0;
        loop {
            let end = end.as_bytes();
            let found = self.buffer[searched..].windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                let rest = self.buffer.split_off(searched + at + end.len());
                let read = std::mem::replace(&mut self.buffer, rest);
                return String::from_utf8(read).unwrap();
            }
            searched = self.buffer.len().saturating_sub(end.len());
            if soon(self.stream.read_buf(&mut self.buffer)).await.unwrap_or(0) == 0 {
                return String::from_utf8(std::mem::take(&mut self.buffer)).unwrap();
            }
        }
    }

    /// Takes the bytes that came and were not read yet.
    pub(super) fn take_buffered(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// The head of a message; empty when there is none any more.
    pub(super) async fn head(&mut self) -> String {
        self.read_to("\r\n\r\n").await
    }

    /// Reads until the other side ends.
    pub(super) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.buffer);
        let _ = soon(self.stream.read_to_end(&mut rest)).await;
        rest
    }
}

/// An upstream: each connection is handed to the test's own function.
pub(super) struct RawUpstream {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl RawUpstream {
    pub(super) async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(usize, Raw) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self::start_on_streams(move |number, stream| serve(number, Raw::new(stream))).await
    }

    pub(super) async fn start_on_streams<F, R>(serve: F) -> Self
    where
        F: Fn(usize, TcpStream) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut served = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                served.spawn(serve(number, stream));
            }
        });
        Self { address, connections, _tasks: tasks }
    }

    /// An upstream that answers each request with the same bytes.
    pub(super) async fn answering(answer: &'static str) -> Self {
        Self::start(move |_, mut raw| async move {
            while !raw.head().await.is_empty() {
                raw.send(answer).await;
            }
        })
        .await
    }

    /// How many connections there were.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn config(&self) -> UpstreamConfig {
        let mut config = UpstreamConfig::new(format!("http://{}", self.address).parse().unwrap());
        config.allow_plain = true;
        config.addresses = UpstreamAddresses::any();
        config.authorization = Some(SecretBytes::new(b"Bearer upstream".to_vec()));
        config
    }

    pub(super) fn upstream(&self) -> Upstream {
        Upstream::new(self.config()).unwrap()
    }
}

/// Forwards a request under its own path, as the user alice.
pub(super) fn forward(uri: &Uri) -> Forward {
    let mut forward = Forward::new(uri.path_and_query().unwrap().clone());
    forward.headers.insert("impersonate-user", "alice".parse().unwrap());
    forward
}

pub(super) type Made = fn(&Uri) -> Forward;

/// Makes a request without a body, and sends it on.
pub(super) async fn get(
    proxy: &Proxy,
    upstream: &Upstream,
    path: &str,
) -> Result<Response<ProxyBody>, ProxyError> {
    let request = Request::get(path).body(Empty::<Bytes>::new()).unwrap();
    let forward = forward(request.uri());
    soon(proxy.forward(upstream, request, forward)).await
}

/// The whole body of an answer, and its trailers.
pub(super) async fn text(response: Response<ProxyBody>) -> Result<String, ProxyError> {
    let collected = soon(response.into_body().collect()).await?;
    Ok(String::from_utf8(collected.to_bytes().to_vec()).unwrap())
}

/// A server in front of the proxy, HTTP/1.1 or HTTP/2 as its client speaks.
pub(super) struct Front {
    pub(super) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Front {
    pub(super) async fn start(proxy: &Proxy, upstream: &Upstream, made: Made) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (proxy, upstream) = (proxy.clone(), upstream.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut served = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (proxy, upstream) = (proxy.clone(), upstream.clone());
                served.spawn(serve(proxy, upstream, made, stream));
            }
        });
        Self { address, _tasks: tasks }
    }

    /// A client's end of one connection that holds only so many bytes.
    pub(super) fn on_a_pipe(
        proxy: &Proxy,
        upstream: &Upstream,
        made: Made,
        bytes: usize,
    ) -> (Raw, JoinSet<()>) {
        let (client, server) = tokio::io::duplex(bytes);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(proxy.clone(), upstream.clone(), made, server));
        (Raw::new(client), tasks)
    }
}

async fn serve(proxy: Proxy, upstream: Upstream, made: Made, stream: impl Stream + 'static) {
    let service = service_fn(move |request| {
        let (proxy, upstream) = (proxy.clone(), upstream.clone());
        async move { answer(&proxy, &upstream, request, made).await }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

async fn answer(
    proxy: &Proxy,
    upstream: &Upstream,
    request: Request<Incoming>,
    made: Made,
) -> Result<Answer, Infallible> {
    let forward = made(request.uri());
    Ok(match proxy.forward(upstream, request, forward).await {
        Ok(response) => {
            response.map(|body| DeliveredBody::new(body).map_err(BoxError::from).boxed_unsync())
        }
        Err(error) => {
            let text = Full::new(Bytes::from(error.to_string()));
            let body = text.map_err(|never| match never {}).boxed_unsync();
            Response::builder().status(error.status()).body(body).unwrap()
        }
    })
}

/// Dials streams of a known, small buffer, so that the bytes under way can be counted exactly.
pub(super) struct PipeDial {
    bytes: usize,
    streams: UnboundedSender<DuplexStream>,
}

impl PipeDial {
    /// The dialler, and the upstream's ends of the streams.
    pub(super) fn new(bytes: usize) -> (Arc<Self>, UnboundedReceiver<DuplexStream>) {
        let (streams, ends) = unbounded_channel();
        (Arc::new(Self { bytes, streams }), ends)
    }
}

impl Dial for PipeDial {
    fn dial<'a>(&'a self, _target: Target<'a>) -> DialFuture<'a> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(self.bytes);
            self.streams.send(theirs).unwrap();
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// An upstream that no name is resolved for.
pub(super) fn piped() -> Upstream {
    let mut config = UpstreamConfig::new("http://pipe.example".parse().unwrap());
    config.allow_plain = true;
    Upstream::new(config).unwrap()
}

/// A body in pieces that the test sends; an error stands for a client that goes.
pub(super) struct Pieces(UnboundedReceiver<Result<Bytes, BoxError>>);

impl Pieces {
    pub(super) fn new() -> (UnboundedSender<Result<Bytes, BoxError>>, Self) {
        let (sender, receiver) = unbounded_channel();
        (sender, Self(receiver))
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
