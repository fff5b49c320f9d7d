//! One connection: HTTP/1.1 or HTTP/2 over TLS, and the conditions that end it.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::rt::{Executor, Read, Write};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use postern_listen::{
    GuardedIo, HTTP1_BUFFER_BYTES, Http2Limits, Moved, OpenConnection, UnauthenticatedLimit,
    http1_builder, http2_builder, read_proxy_header,
};
use postern_proxy::MAX_LONG_HEAD_BYTES;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_rustls::TlsAcceptor;

use super::sending::{Outgoing, Sending, Transfer};
use crate::pipeline::{self, Client, Reply, ResponseGuard, Server, charge_stream};
use postern_gateway::relay::FromMember;
use postern_http::metrics::connections::Closed;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::respond::LongHeads;

/// How long an HTTP/2 connection that begins during the shutdown serves requests before it
/// announces its end. Without this time, its client would connect again for each request.
const LATE_CONNECTION_TIME: Duration = Duration::from_secs(1);

/// The most streams of one unauthenticated HTTP/2 connection. Further ones are reset. Clients open up to 100 streams
/// before they know the limit.
const MAX_UNAUTHENTICATED_STREAMS: usize = 100;

/// The most streams of all unauthenticated HTTP/2 connections together. The first few streams of each connection do not
/// count.
pub(super) const MAX_ALL_UNAUTHENTICATED_STREAMS: usize = 2000;
const FREE_UNAUTHENTICATED_STREAMS: usize = 2;

/// The limits of bodies that the server does not read, and of responses that the client does not read.
const HTTP2_LIMITS: Http2Limits =
    Http2Limits { window_bytes: 128 * 1024, send_buffer_bytes: 256 * 1024 };

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The bytes of a connection, without TLS.
type Io = TokioIo<Pin<Box<GuardedIo>>>;

tokio::task_local! {
    /// The transfer of the HTTP/2 stream that is being served.
    static TRANSFER: Arc<Transfer>;
}

/// The state of a connection.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) server: Arc<Server>,
    pub(super) client: Arc<Client>,
    unauthenticated: UnauthenticatedStreams,
    outgoing: Arc<Outgoing>,
    limit: Arc<UnauthenticatedLimit>,
}

impl Connection {
    /// A new connection. `unauthenticated` limits the streams of all unauthenticated connections.
    pub(super) fn new(
        server: Arc<Server>,
        client: Arc<Client>,
        unauthenticated: Arc<Semaphore>,
    ) -> Self {
        let unauthenticated = UnauthenticatedStreams::new(unauthenticated);
        let limit = UnauthenticatedLimit::new(client.peer.clone());
        let outgoing = Outgoing::new(server.gateway().stream_stall());
        Self { server, client, unauthenticated, outgoing, limit }
    }

    /// Serves the connection until it ends, must end, or is upgraded to another protocol. `open` is the entry in the
    /// table of connections.
    pub(super) async fn serve(
        self,
        stream: TcpStream,
        tls: TlsAcceptor,
        open: OpenConnection,
    ) -> Result<(), BoxError> {
        let (flow, client) = (self.server.flow().clone(), self.client.clone());
        let waits = move || client.waits();
        let serving = async move {
            tokio::select! {
                served = self.clone().served(stream, tls, open) => served,
                why = self.closed() => Err(Box::new(std::io::Error::other(why)).into()),
            }
        };
        let served = flow.serve(waits, Box::pin(serving)).await;
        // Without the message of the panic, which may contain stored values.
        served.unwrap_or_else(|_| Err("the task of the connection has panicked".into()))
    }

    /// Waits until the connection must end. Returns the reason.
    async fn closed(&self) -> &'static str {
        let stalled = || {
            let is_stalled = self.outgoing.is_stalled();
            is_stalled.then(|| {
                self.server.metrics().connections.count_closed(Closed::Stalled);
                "its client does not read the responses"
            })
        };
        self.limit.closed(|| self.outgoing.has_unsent(), stalled).await
    }

    /// Waits until the connection takes no further request, because none had a valid key in time.
    async fn overdue(&self) {
        self.limit.overdue().await;
        self.server.metrics().connections.count_closed(Closed::Unauthenticated);
    }

    async fn served(
        self,
        mut stream: TcpStream,
        tls: TlsAcceptor,
        mut open: OpenConnection,
    ) -> Result<(), BoxError> {
        self.read_proxy_header(&mut stream, &mut open).await?;
        let lingers = Arc::new(AtomicBool::new(false));
        // A connection that waits needs no room for its handshake, nor for the other protocol: both are boxed.
        let (io, speaks_http2) =
            Box::pin(GuardedIo::accept(stream, tls, lingers.clone(), open)).await?;
        if speaks_http2 {
            self.client.set_streams();
            return Box::pin(self.http2(TokioIo::new(io))).await;
        }
        let Some(opened) = self.http1(TokioIo::new(io), &lingers, HTTP1_BUFFER_BYTES).await? else {
            return Ok(());
        };
        // Boxed: other connections need no room for it.
        Box::pin(self.long_heads(opened, &lingers)).await
    }

    /// Finds the client behind a trusted proxy that sends the PROXY protocol.
    async fn read_proxy_header(
        &self,
        stream: &mut TcpStream,
        open: &mut OpenConnection,
    ) -> Result<(), BoxError> {
        if !self.server.clients().has_proxy_header(self.client.peer.address()) {
            return Ok(());
        }
        let Some(address) = Box::pin(read_proxy_header(stream)).await? else { return Ok(()) };
        let counts = &self.server.metrics().connections;
        match open.move_to(address) {
            Moved::Admitted { evicted: false } => Ok(()),
            Moved::Admitted { evicted: true } => {
                counts.count_closed(Closed::Evicted);
                Ok(())
            }
            Moved::Refused => {
                counts.count_closed(Closed::Refused);
                Err("there is no room for a connection of the client behind the proxy".into())
            }
        }
    }

    /// Serves the requests of another server. The heads of these requests may be long.
    async fn long_heads(&self, opened: OnUpgrade, lingers: &AtomicBool) -> Result<(), BoxError> {
        self.client.peer.set_stall_timeout(self.server.gateway().stream_stall());
        self.http1(opened.await?, lingers, MAX_LONG_HEAD_BYTES).await.map(drop)
    }

    /// Serves HTTP/1.1 with heads of at most `max_head_bytes`. Returns the connection if another server sends long heads on
    /// it afterwards.
    async fn http1<I>(
        &self,
        io: I,
        lingers: &AtomicBool,
        max_head_bytes: usize,
    ) -> Result<Option<OnUpgrade>, BoxError>
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let is_of_member = max_head_bytes > HTTP1_BUFFER_BYTES;
        let mut draining = self.server.draining();
        let (switched, opened) = (Mutex::new(None), Mutex::new(None));
        let service = service_fn(|mut request| {
            let (connection, switched, opened) = (self, &switched, &opened);
            async move {
                if is_of_member {
                    request.extensions_mut().insert(FromMember);
                }
                let mut reply = connection.http1_reply(request, lingers).await;
                *opened.lock() = reply.response.extensions_mut().remove::<LongHeads>();
                let outgoing = &connection.outgoing;
                let Some(socket) = reply.response.body_mut().take_socket() else {
                    let Reply { response, guard } = reply;
                    let sending = |body| Sending::over_http1(body, guard, outgoing);
                    return Ok::<_, Infallible>(response.map(sending));
                };
                if socket.may_stall() {
                    connection.client.peer.set_stall_timeout(Duration::MAX);
                }
                *switched.lock() = Some((socket, reply.guard));
                let transfer = Transfer::new(outgoing.clone());
                Ok(reply.response.map(|body| Sending::unguarded(body, transfer)))
            }
        });
        let mut connection =
            pin!(http1_builder(max_head_bytes).serve_connection(io, service).with_upgrades());
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = self.overdue() => None,
            _ = draining.wait_for(|draining| *draining) => None,
        };
        if let Some(ended) = ended {
            ended?;
        } else {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await?;
        }
        let switched = switched.lock().take();
        if let Some((socket, guard)) = switched {
            socket.serve(|bytes| guard.charge(bytes)).await;
        }
        let opened = opened.lock().take();
        Ok(opened.map(|LongHeads(opened)| opened))
    }

    /// The response to a request. If the request's body was not read to the end, the response closes the connection,
    /// without a reset.
    async fn http1_reply(&self, request: Request<Incoming>, lingers: &AtomicBool) -> Reply {
        let (parts, incoming) = request.into_parts();
        let (body, leftover) = IncomingBody::with_leftover(incoming, &parts.headers);
        let request = Request::from_parts(parts, body);
        let answering = self.limit.begin_answer();
        let mut reply = pipeline::handle(&self.server, &self.client, request, None).await;
        drop(answering);
        self.allow_pauses(&reply);
        let is_unread = match leftover {
            Some(leftover) => !leftover.read().await,
            None => false,
        };
        if is_unread {
            lingers.store(true, Ordering::Release);
        }
        let switches = reply.response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let is_last = self.server.is_ending() || self.limit.is_overdue();
        if is_unread || (is_last && !switches) {
            let close = HeaderValue::from_static("close");
            reply.response.headers_mut().insert(header::CONNECTION, close);
        }
        reply
    }

    async fn http2(self, io: Io) -> Result<(), BoxError> {
        let (mut ending, mut draining) = (self.server.ending(), self.server.draining());
        let service = service_fn(|request| {
            let connection = self.clone();
            async move { connection.http2_response(request).await }
        });
        let builder = http2_builder(StreamExecutor(self.clone()), HTTP2_LIMITS);
        let mut connection = pin!(builder.serve_connection(io, service));
        let announced = async {
            if *ending.borrow() {
                sleep(LATE_CONNECTION_TIME).await;
            }
            let _ = ending.wait_for(|ending| *ending).await;
        };
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = announced => {}
            () = self.overdue() => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
        connection.as_mut().graceful_shutdown();
        Ok(connection.await?)
    }

    async fn http2_response(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Sending>, h2::Error> {
        let transfer = TRANSFER.with(Arc::clone);
        if !self.client.is_authenticated() {
            transfer.keep(self.client.served.clone().acquire_owned().await);
        }
        let (parts, incoming) = request.into_parts();
        let (body, leftover) = IncomingBody::with_leftover(incoming, &parts.headers);
        let request = Request::from_parts(parts, body);
        let stream = transfer.take_stream();
        let answering = self.limit.begin_answer();
        let mut reply = pipeline::handle(&self.server, &self.client, request, stream).await;
        drop(answering);
        self.allow_pauses(&reply);
        if reply.guard.is_refused {
            return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
        }
        if let Some(leftover) = leftover {
            // The stream of an unread body is reset, and some clients then drop the response.
            let _ = leftover.read().await;
        }
        // A stream that began before the connection's first valid key now counts for the owner of the connection.
        if reply.guard.is_authenticated()
            || transfer.has_unauthenticated_permits() && self.counts_stream(&mut reply.guard)
        {
            transfer.release_unauthenticated_permits();
        }
        let Reply { response, guard } = reply;
        Ok(response.map(|body| Sending::guarded(body, guard, transfer)))
    }

    /// Lets the client of a target's response read nothing for long, also after an upgrade. Responses of the server
    /// itself are aborted earlier.
    fn allow_pauses(&self, reply: &Reply) {
        if matches!(reply.response.body(), Body::Proxied(_)) {
            self.client.peer.set_stall_timeout(self.server.gateway().stream_stall());
        }
    }

    /// Counts an unauthenticated stream for the owner of the connection, if there is one now. Returns whether it is
    /// counted.
    fn counts_stream(&self, guard: &mut ResponseGuard) -> bool {
        self.client.is_authenticated() && guard.opens_stream()
    }

    /// The transfer of a new stream; `None` when unauthenticated clients, or the owner of the connection, have too
    /// many. This is checked before the stream has a task: many streams may come before the first task is polled.
    fn new_transfer(&self) -> Option<Arc<Transfer>> {
        let transfer = Transfer::new(self.outgoing.clone());
        if self.client.is_authenticated() {
            transfer.set_stream(charge_stream(&self.client).ok()?);
        } else {
            transfer.keep(self.unauthenticated.enter()?);
        }
        Some(transfer)
    }
}

/// The limits of unauthenticated streams: of this connection, and of all.
#[derive(Clone)]
struct UnauthenticatedStreams {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl UnauthenticatedStreams {
    fn new(all: Arc<Semaphore>) -> Self {
        Self { own: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED_STREAMS)), all }
    }

    /// The permits of a new stream; `None` when there are too many. The first few streams of each connection do not
    /// depend on other connections.
    fn enter(&self) -> Option<Vec<OwnedSemaphorePermit>> {
        let own = self.own.clone().try_acquire_owned().ok()?;
        if MAX_UNAUTHENTICATED_STREAMS - self.own.available_permits()
            <= FREE_UNAUTHENTICATED_STREAMS
        {
            return Some(vec![own]);
        }
        let all = self.all.clone().try_acquire_owned().ok()?;
        Some(vec![own, all])
    }
}

/// Runs each stream of an HTTP/2 connection as a separate task.
#[derive(Clone)]
struct StreamExecutor(Connection);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        // A dropped stream is reset. Nothing is allocated for it yet.
        let Some(transfer) = self.0.new_transfer() else { return };
        let task = StreamTask {
            stream,
            transfer: transfer.clone(),
            timer: None,
            is_done: false,
            connection: self.0.clone(),
        };
        let client = self.0.client.clone();
        let stream = TRANSFER.scope(transfer, task);
        let flow = self.0.server.flow();
        flow.begin_stream(move || client.waits(), stream);
    }
}

pin_project! {
    /// A stream, which is reset if its client does not read the response.
    struct StreamTask<F> {
        #[pin]
        stream: F,
        transfer: Arc<Transfer>,
        timer: Option<Pin<Box<Sleep>>>,
        is_done: bool,
        connection: Connection,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if !*this.is_done {
            *this.is_done = this.stream.poll(cx).is_ready();
        }
        // The last bytes of a complete stream may not be sent yet.
        if *this.is_done && (this.transfer.is_small() || this.transfer.is_taken(cx)) {
            return Poll::Ready(());
        }
        ready!(this.transfer.poll_stalled(this.timer, cx));
        let counts = &this.connection.server.metrics().connections;
        counts.count_reset();
        if *this.is_done {
            // The HTTP/2 connection has the remaining bytes, and frees them only when it is closed.
            counts.count_closed(Closed::Stalled);
            this.connection.client.peer.close();
        }
        Poll::Ready(())
    }
}
