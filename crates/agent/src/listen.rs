//! The listener: it accepts connections within limits, and ends them. The table of `postern-listen`
//! decides how many connections each client may have, as at the central server. The central server
//! may send long heads, after a first request with a separate token.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use postern_auth::endpoint_token::cluster_gateway_audience;
use postern_auth::gateway_path::AGENT_LONG_HEADS;
use postern_listen::{
    Admission, ConnectionTable, FullWarning, GuardedIo, HTTP1_BUFFER_BYTES, Http2Limits,
    OpenConnection, Peer, UnauthenticatedLimit, accept_until_draining, http1_builder,
    http2_builder,
};
use postern_proxy::{BoxError, MAX_LONG_HEAD_BYTES, is_opening, opened as long_heads_opened};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::answer::{self, Body};
use crate::serve::Agent;
use crate::server_token;

/// The maximum number of requests without a valid token on a connection that has sent no valid
/// token. The connection then closes.
const MAX_REFUSALS: u32 = 10;

/// The limits of bodies that the cluster does not take, and of responses that the client does not read.
const HTTP2_LIMITS: Http2Limits =
    Http2Limits { window_bytes: 256 * 1024, send_buffer_bytes: 64 * 1024 };

type Io = TokioIo<Pin<Box<GuardedIo>>>;

/// Accepts connections until the agent drains, then waits for those that are open, for at most
/// `drain_timeout`.
pub(crate) async fn serve(
    agent: Arc<Agent>,
    listener: TcpListener,
    tls: TlsAcceptor,
    drain_timeout: Duration,
) {
    let draining = agent.draining.subscribe();
    let mut warning = FullWarning::default();
    let start = |connections: &mut JoinSet<()>, stream, address| {
        let peer = Arc::new(Peer::new(address));
        let Some(open) = admitted(&agent.connections, &peer, &mut warning) else { return };
        let limit = UnauthenticatedLimit::new(peer.clone());
        let connection = Connection { agent: agent.clone(), peer, limit, refusals: Arc::default() };
        let tls = tls.clone();
        connections.spawn(async move {
            if let Err(error) = connection.serve(stream, tls, open).await {
                tracing::debug!("a connection ended: {error}");
            }
        });
    };
    accept_until_draining(listener, draining, drain_timeout, start).await;
}

/// The place of a new connection; `None` when there is none.
fn admitted(
    table: &Arc<ConnectionTable>,
    peer: &Arc<Peer>,
    warning: &mut FullWarning,
) -> Option<OpenConnection> {
    let (open, is_full) = match table.admit(peer) {
        Admission::Admitted { connection, evicted } => (Some(connection), evicted),
        Admission::Refused => (None, true),
    };
    if is_full {
        warning.warn(peer.address(), table.open());
    }
    open
}

/// One connection.
#[derive(Clone)]
struct Connection {
    agent: Arc<Agent>,
    peer: Arc<Peer>,
    limit: Arc<UnauthenticatedLimit>,
    refusals: Arc<Refusals>,
}

/// The requests of a connection that were refused for their tokens.
#[derive(Debug, Default)]
struct Refusals {
    count: AtomicU32,
    are_too_many: Notify,
}

impl Connection {
    async fn serve(
        self,
        stream: TcpStream,
        tls: TlsAcceptor,
        open: OpenConnection,
    ) -> Result<(), BoxError> {
        let limit = self.limit.clone();
        tokio::select! {
            served = self.served(stream, tls, open) => served,
            why = limit.closed(|| false, || None) => Err(why.into()),
        }
    }

    async fn served(
        self,
        stream: TcpStream,
        tls: TlsAcceptor,
        open: OpenConnection,
    ) -> Result<(), BoxError> {
        let lingers = Arc::new(AtomicBool::new(false));
        // A connection that waits needs no room for its handshake, nor for the other protocol: both are boxed.
        let (io, speaks_http2) =
            Box::pin(GuardedIo::accept(stream, tls, lingers.clone(), open)).await?;
        if speaks_http2 {
            return Box::pin(self.http2(TokioIo::new(io))).await;
        }
        let opened = Mutex::new(None);
        self.http1(TokioIo::new(io), &lingers, HTTP1_BUFFER_BYTES, &opened).await?;
        let Some(opened) = opened.into_inner() else { return Ok(()) };
        // Boxed: other connections need no room for it.
        Box::pin(self.http1(opened.await?, &lingers, MAX_LONG_HEAD_BYTES, &Mutex::new(None))).await
    }

    /// The answer to a request.
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let _answering = self.limit.begin_answer();
        let response = self.agent.answer(&self.peer, request).await;
        if self.peer.is_authenticated() {
            self.peer.set_stall_timeout(self.agent.stream_stall);
        }
        if response.status() == StatusCode::UNAUTHORIZED && !self.peer.is_authenticated() {
            let before = self.refusals.count.fetch_add(1, Ordering::Relaxed);
            if before + 1 >= MAX_REFUSALS {
                self.refusals.are_too_many.notify_one();
            }
        }
        response
    }

    /// Waits until the connection must not take another request.
    async fn last_request(&self) {
        let mut draining = self.agent.draining.subscribe();
        tokio::select! {
            _ = draining.wait_for(|draining| *draining) => {}
            () = self.limit.overdue() => {}
            () = self.refusals.are_too_many.notified() => {
                tracing::debug!(address = %self.peer.address(), "a connection brought no valid token, again and again");
            }
        }
    }

    /// Serves HTTP/1.1 with heads of at most `max_head_bytes`. If the connection takes long heads afterwards, it is in
    /// `opened`.
    async fn http1(
        &self,
        io: impl Read + Write + Unpin + Send + 'static,
        lingers: &AtomicBool,
        max_head_bytes: usize,
        opened: &Mutex<Option<OnUpgrade>>,
    ) -> Result<(), BoxError> {
        let service = service_fn(|mut request: Request<Incoming>| async move {
            if self.opens_long_heads(&request) {
                *opened.lock() = Some(hyper::upgrade::on(&mut request));
                return Ok(long_heads_opened(answer::whole(Bytes::new())));
            }
            self.http1_answer(request, lingers).await
        });
        let mut connection =
            pin!(http1_builder(max_head_bytes).serve_connection(io, service).with_upgrades());
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = self.last_request() => connection.as_mut().graceful_shutdown(),
        }
        Ok(connection.await?)
    }

    /// Whether a request of the central server asks for a connection that takes long heads.
    fn opens_long_heads(&self, request: &Request<Incoming>) -> bool {
        is_opening(request, AGENT_LONG_HEADS)
            && server_token::is_in(&self.agent.state, request.headers(), cluster_gateway_audience)
    }

    /// The answer to a request over HTTP/1.1. It sets `lingers` if the client may still be sending: a reset must not
    /// overtake the answer.
    async fn http1_answer(
        &self,
        request: Request<Incoming>,
        lingers: &AtomicBool,
    ) -> Result<Response<Body>, Infallible> {
        let has_body = !request.body().is_end_stream();
        let mut response = self.answer(request).await;
        let is_refused = self.refusals.count.load(Ordering::Relaxed) >= MAX_REFUSALS
            && !self.peer.is_authenticated();
        if is_refused || self.limit.is_overdue() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let is_unread = has_body && response.status() >= StatusCode::BAD_REQUEST;
        lingers.store(is_unread, Ordering::Release);
        Ok(response)
    }

    async fn http2(self, io: Io) -> Result<(), BoxError> {
        let this = self.clone();
        let service = service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        });
        let mut connection =
            pin!(http2_builder(TokioExecutor::new(), HTTP2_LIMITS).serve_connection(io, service));
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = self.last_request() => connection.as_mut().graceful_shutdown(),
        }
        Ok(connection.await?)
    }
}

#[cfg(test)]
mod tests;
