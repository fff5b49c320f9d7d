//! The proxy: one for a process.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::{Instant, timeout};

use crate::body::ProxyBody;
use crate::connect::{Wanted, connect};
use crate::counts::Counts;
use crate::dial::{Dial, Stream, TcpDial};
use crate::error::{BoxError, ProxyError};
use crate::exchange::{AnswerLimits, Exchange, Failed};
use crate::forward::{Forward, Renewal};
use crate::headers::{self, Framing, RequestFacts};
use crate::link::Link;
use crate::request_body::RequestBody;
use crate::session::Session;
use crate::shared::{Counted, Limits, Shared};
use crate::tunnels::Tunnels;
use crate::upgrade::pump;
use crate::upstream::{Inner, Upstream};

/// Sends requests on to upstreams. It has the limits, the counters and the tasks of all connections; the
/// connections that are idle belong to the [`Upstream`]. Cheap to clone; clones are the same proxy.
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
}

/// The head of an answer, and the connection on which the rest comes.
struct Answer {
    response: Response<Incoming>,
    exchange: Exchange,
    facts: RequestFacts,
    /// The client's side of an upgrade.
    client: Option<OnUpgrade>,
}

impl Proxy {
    /// A proxy with usual limits, which dials over TCP.
    pub fn new() -> Self {
        Self::with(Limits::default(), Arc::new(TcpDial::new()))
    }

    /// A proxy with other limits, or another way to open connections.
    pub fn with(limits: Limits, dial: Arc<dyn Dial>) -> Self {
        Self { shared: Shared::new(limits, dial) }
    }

    /// Sends a request on, and returns the head of its response; bodies follow as they come.
    /// Dropped, it closes the connection on which the request was sent.
    ///
    /// The proxy sends the method, the headers and the body of the request, without headers that
    /// name a caller or are for one connection only. A WebSocket or SPDY/3.1 upgrade over HTTP/1.1
    /// is passed on (the server's connection must be served with upgrades). The client gets 101
    /// only when the upstream sends 101. A task of the proxy then pumps the bytes, until the
    /// session ends. Any other request stays one exchange, and its connection is closed.
    ///
    /// # Errors
    /// [`ProxyError`], from which the caller makes the response. [`ProxyError::status`] has its
    /// status.
    pub async fn forward<B>(
        &self,
        upstream: &Upstream,
        request: Request<B>,
        forward: Forward,
    ) -> Result<Response<ProxyBody>, ProxyError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.shared.counters.count_request();
        let answered = self.answered(&upstream.inner, request, forward).await;
        answered.inspect_err(|error| self.shared.counters.count_failure(error.failure()))
    }

    async fn answered<B>(
        &self,
        upstream: &Inner,
        request: Request<B>,
        forward: Forward,
    ) -> Result<Response<ProxyBody>, ProxyError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if self.shared.draining.is_cancelled() {
            return Err(ProxyError::Draining);
        }
        let Forward {
            path_and_query,
            mut headers,
            renewal,
            answer_timeout,
            location_prefix,
            opening,
            mut session,
        } = forward;
        if let Some(own) = &upstream.authorization {
            headers.entry(AUTHORIZATION).or_insert_with(|| own.clone());
        }
        let (mut parts, body) = request.into_parts();
        let client = client_upgrade(&mut parts, &body)?;
        let uri = upstream.origin.uri(&path_and_query).map_err(|_| bad("its path is no URI"))?;
        let own = headers.keys().cloned().collect();
        let (headers, facts) = headers::request(&parts, framing(&body), headers, &upstream.origin)?;
        let mut outgoing = Request::new(RequestBody::new(body, own));
        *outgoing.method_mut() = parts.method;
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = headers;
        let limits = AnswerLimits {
            answer_timeout,
            continue_timeout: facts.expects_continue.then_some(self.shared.limits.continue_timeout),
        };
        let opening = opening.filter(|_| !upstream.pool.is_of_tunnels());
        let wanted = Wanted { is_upgrade: client.is_some(), opening: opening.as_ref() };
        let (response, exchange) = tokio::select! {
            biased;
            end = poll_fn(|cx| session.poll_ended(cx)) => return Err(ProxyError::SessionEnded(end)),
            () = self.shared.ending.cancelled() => return Err(ProxyError::Draining),
            sent = self.send(upstream, outgoing, renewal, &limits, wanted) => sent?,
        };
        let answer = Answer { response, exchange, facts, client };
        self.passed_on(upstream, answer, &location_prefix, session)
    }

    /// Sends a request on an idle connection, or on a new one. If the connection was dead, the
    /// request is sent again, with a separate credential if it needs one.
    async fn send(
        &self,
        upstream: &Inner,
        request: Request<RequestBody>,
        renewal: Option<Renewal>,
        limits: &AnswerLimits,
        wanted: Wanted<'_>,
    ) -> Result<(Response<Incoming>, Exchange), ProxyError> {
        let (mut request, mut renewal, begun) = (request, renewal, Instant::now());
        let pool = upstream.pool_for(wanted.opening.is_some());
        if (pool.is_of_tunnels() || !wanted.is_upgrade)
            && let Some(link) = pool.take()
        {
            upstream.tell_waiting(&mut request);
            let mut exchange = Exchange::new(link, pool.clone());
            match exchange.send(request, upstream, limits, true).await {
                Ok(response) => return Ok((response, exchange)),
                // The next tunnel may be just as dead, if noticing the first one took long.
                Err(failed)
                    if pool.is_of_tunnels()
                        && begun.elapsed() > self.shared.limits.connect_timeout =>
                {
                    return Err(failed.error);
                }
                Err(failed) => request = again(failed, renewal.take()).await?,
            }
            self.shared.counters.count_retry();
        }
        let link = connect(&self.shared, upstream, wanted, begun).await?;
        upstream.tell_waiting(&mut request);
        let mut exchange = Exchange::new(link, pool.clone());
        let sent = exchange.send(request, upstream, limits, false).await;
        sent.map(|response| (response, exchange)).map_err(|failed| failed.error)
    }

    fn passed_on(
        &self,
        upstream: &Inner,
        answer: Answer,
        location_prefix: &str,
        session: Session,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let Answer { mut response, mut exchange, facts, client } = answer;
        let switched = (response.status() == StatusCode::SWITCHING_PROTOCOLS)
            .then(|| hyper::upgrade::on(&mut response));
        let (parts, incoming) = response.into_parts();
        // From here on, an error closes the connection.
        let headers = headers::response(&parts, &facts, &upstream.origin, location_prefix)?;
        let body = match (switched, client) {
            (Some(switched), Some(client)) => {
                let counted = Counted::new(&self.shared, |shared| &shared.counters.sessions);
                if let Some(link) = exchange.release() {
                    let pumped = pump(client, switched, link, session, counted);
                    self.shared.tasks.spawn(pumped);
                }
                ProxyBody::empty()
            }
            (_, client) => {
                // CVE-2018-1002105: after an upgrade that was refused, nothing more may be sent on it.
                exchange.may_be_reused &= client.is_none();
                let shared = self.shared.clone();
                ProxyBody::new(incoming, exchange, session, shared, upstream.origin.address.clone())
            }
        };
        let mut passed = Response::new(body);
        *passed.status_mut() = parts.status;
        *passed.headers_mut() = headers;
        Ok(passed)
    }

    /// Takes a connection that the other side has opened. Requests to the upstreams of these tunnels use it from now
    /// on, one after the other, until it ends. The caller polls the future until then; the shutdown waits for it.
    ///
    /// # Errors
    /// [`ProxyError::Overloaded`] and [`ProxyError::Draining`].
    pub async fn offer(
        &self,
        tunnels: &Tunnels,
        stream: Box<dyn Stream>,
    ) -> Result<impl Future<Output = ()> + Send + use<>, ProxyError> {
        if self.shared.draining.is_cancelled() {
            return Err(ProxyError::Draining);
        }
        let counted = self.shared.connection()?;
        let started = Link::start(&self.shared, stream, counted).await;
        let lost = |error: hyper::Error| ProxyError::Lost {
            address: "a tunnel".to_owned(),
            reason: error.to_string(),
        };
        let (link, driven) = started.map_err(lost)?;
        tunnels.pool.give_back(link);
        Ok(driven)
    }

    /// The current counters.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// Shuts the proxy down: new requests are refused, idle connections are closed, and requests
    /// under way have `grace` to end. Then bodies end with [`ProxyError::SessionEnded`], and
    /// upgraded connections are closed. Waits until all connections have gone.
    pub async fn drain(&self, grace: Duration) {
        self.shared.draining.cancel();
        self.shared.tasks.close();
        // The remaining connections are ended.
        let _ = timeout(grace, self.shared.tasks.wait()).await;
        self.shared.ending.cancel();
        self.shared.tasks.wait().await;
    }
}

impl Default for Proxy {
    fn default() -> Self {
        Self::new()
    }
}

/// The request to be sent again.
///
/// # Errors
/// The error that the request ended with, when it cannot be sent again.
async fn again(
    failed: Failed,
    renewal: Option<Renewal>,
) -> Result<Request<RequestBody>, ProxyError> {
    let Failed { error, again: Some(mut request) } = failed else { return Err(failed.error) };
    if let Some(renew) = renewal {
        let Some(credential) = renew().await else { return Err(error) };
        request.headers_mut().insert(AUTHORIZATION, credential);
    }
    Ok(request)
}

fn bad(reason: &str) -> ProxyError {
    ProxyError::BadRequest(reason.to_owned())
}

fn framing(body: &impl Body) -> Framing {
    if body.is_end_stream() {
        return Framing::None;
    }
    body.size_hint().exact().map_or(Framing::Chunked, Framing::Exact)
}

/// The client's side of an upgrade, if the proxy passes the requested upgrade on.
fn client_upgrade(
    parts: &mut request::Parts,
    body: &impl Body,
) -> Result<Option<OnUpgrade>, ProxyError> {
    // TRACE would show the client our credential.
    if [Method::CONNECT, Method::TRACE].contains(&parts.method) {
        return Err(bad("CONNECT and TRACE are not passed on"));
    }
    if parts.version < Version::HTTP_11
        && parts.headers.contains_key(http::header::TRANSFER_ENCODING)
    {
        return Err(bad("HTTP/1.0 has no Transfer-Encoding"));
    }
    if headers::wanted_upgrade(parts).is_none() {
        return Ok(None);
    }
    if !body.is_end_stream() {
        return Err(bad("a request that asks for an upgrade must not have a body"));
    }
    let client = parts.extensions.remove::<OnUpgrade>();
    client.map(Some).ok_or_else(|| bad("this connection cannot be upgraded"))
}
