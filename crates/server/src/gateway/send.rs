//! Sends an authorised request on, and returns the answer as it comes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use postern_auth::gateway_path::OF_WORKLOAD;
use postern_flow::budget::{ByteBudget, Charge};
use postern_flow::{Requester, WatchPermit, too_many_requests};
use postern_meta::status::{ApiError, Reason};
use postern_proxy::{Forward, ProxyError, UNREACHABLE};
use postern_registry::registry::Registry;
use postern_telemetry::{Span, SpanKind, span};
use tokio::sync::watch;

use super::place::{Found, Way};
use super::session::{self, Caller};
use super::{Gateway, agent, review};
use crate::stages::authorize::GatewayPermit;
use crate::wire::body::{Body, Guards};
use crate::wire::incoming::IncomingBody;
use crate::wire::input::RequestBody;
use crate::wire::respond;

/// The longest time from the head of a request until that of its answer, for those that are not long: that
/// of kube-apiserver.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The parts of the server that a request is sent on with.
pub(crate) struct SendContext<'a> {
    /// The gateway.
    pub(crate) gateway: &'a Gateway,
    /// The registry of the stored objects.
    pub(crate) registry: &'a Arc<Registry>,
    /// The limit of what waits to be context.
    pub(crate) bodies: &'a Arc<ByteBudget>,
    /// Whether the server is shutting down.
    pub(crate) draining: watch::Receiver<bool>,
    /// The request among those that are under way.
    pub(crate) under_way: WatchPermit,
    /// The request's id in the audit log, which the target's has, too.
    pub(crate) audit_id: HeaderValue,
}

/// Sends a request on.
///
/// # Errors
/// 503 when the target cannot be reached, or does not answer; 502 for an answer that is not passed on; 413, 415 and 400 for a review
/// that cannot be read.
pub(crate) async fn send(
    context: SendContext<'_>,
    permit: GatewayPermit,
    found: Found,
    body: RequestBody,
    requester: Requester,
) -> Result<Response<Body>, ApiError> {
    if let Some(asked) = review::of(&permit, &found) {
        let charge = context.bodies.open(&requester);
        return review::answer(context, permit, found, asked, body, charge).await;
    }
    let no_room = Arc::new(AtomicBool::new(false));
    let body = CountedBody {
        incoming: body.into_incoming(),
        charge: Box::new({
            let bodies = context.bodies.clone();
            move || bodies.open(&requester)
        }),
        no_room: no_room.clone(),
    };
    let request = permit.request().clone();
    let guards = Guards::default();
    let answer = forward(context, permit, found, |_| body, &guards).await;
    match answer {
        Err(_) if no_room.load(Ordering::Relaxed) => Err(too_many_requests()),
        answer => Ok(respond::proxied(answer?, &request.kube, guards)),
    }
}

/// Sends a request on with another body than its own, perhaps.
pub(super) async fn forward<B>(
    context: SendContext<'_>,
    permit: GatewayPermit,
    found: Found,
    body: impl FnOnce(&mut http::HeaderMap) -> B,
    guards: &Guards,
) -> Result<Response<postern_proxy::ProxyBody>, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<postern_proxy::BoxError>,
{
    let upstream = context.gateway.upstreams.of(context.registry, &found).await?;
    let request = permit.request().clone();
    let caller = Caller {
        registry: context.registry.clone(),
        credential: permit.credential().clone(),
        request: request.clone(),
        found,
    };
    let caller = Arc::new(caller);
    let token = match caller.found.way() {
        Way::Agent(route) => Some(agent::authorization(&caller, route).await?),
        Way::Kubeconfig(_) | Way::None(_) => None,
    };
    guards.keep(context.under_way);
    let max_session = context.gateway.settings.max_session;
    let session = session::of(caller.clone(), context.draining, max_session, guards.clone());
    let path = request.kube.path_and_query().parse::<PathAndQuery>();
    let path = path.map_err(|error| ApiError::internal("the path cannot be sent on", error))?;
    let (mut head, mut headers) = permit.into_head();
    if let Some(token) = token {
        // It says as whom, and within what: nothing else does.
        headers.clear();
        headers.insert(AUTHORIZATION, token);
    }
    headers.insert("audit-id", context.audit_id);
    let mut upstream_span = span("upstream", SpanKind::Client);
    headers.extend(traceparent(&upstream_span));
    let is_long = request.kube.is_long();
    let forward = Forward {
        headers,
        renewal: agent::renewal(&caller),
        answer_timeout: (!is_long).then_some(ANSWER_TIMEOUT),
        location_prefix: request.prefix.clone(),
        session,
        ..Forward::new(path)
    };
    let body = body(&mut head.headers);
    let answered =
        context.gateway.proxy.forward(&upstream, Request::from_parts(head, body), forward);
    let answer = if is_long {
        answered.await
    } else {
        let timed = tokio::time::timeout(ANSWER_TIMEOUT, answered).await;
        timed.map_err(|_| unreachable_target(&"it did not answer in time"))?
    };
    if let Err(ProxyError::SessionEnded(_)) = &answer {
        // To try again would not help a caller who may not make the request any more.
        caller.check().await?;
    }
    let mut answer = answer.map_err(failed)?;
    upstream_span.set_status(answer.status().as_u16());
    if refuses_credential(&mut answer, &caller) {
        // The caller's own credential is good: it was never sent there.
        return Err(bad_gateway(
            "the target does not accept the credential by which it is reached",
        ));
    }
    Ok(answer)
}

/// The header with the trace that a request on the way to a target belongs to.
fn traceparent(span: &Span) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static("traceparent"), span.traceparent()?.parse().ok()?))
}

/// Is an answer a 401 to the credential that the gateway has sent, and not one of a workload behind the subresource
/// `proxy`? Takes the mark away by which an agent says that it is the latter: without it, the agent has refused the token.
fn refuses_credential<B>(answer: &mut Response<B>, caller: &Caller) -> bool {
    let is_marked = answer.headers_mut().remove(&OF_WORKLOAD).is_some();
    let is_direct = !matches!(caller.found.way(), Way::Agent(_));
    let of_workload = caller.request.kube.is_by_proxy() && (is_direct || is_marked);
    answer.status() == StatusCode::UNAUTHORIZED && !of_workload
}

fn bad_gateway(message: &str) -> ApiError {
    ApiError::new(502, Reason::Unknown, message)
}

/// The error for the client. Where the target is, they need not know.
fn failed(error: ProxyError) -> ApiError {
    let message = match &error {
        ProxyError::BadRequest(_) | ProxyError::ClientGone => {
            return ApiError::bad_request(error.to_string());
        }
        ProxyError::SessionEnded(_) | ProxyError::Draining | ProxyError::Overloaded { .. } => {
            return ApiError::unavailable(error.to_string(), Some(1));
        }
        ProxyError::Redirect { .. } => "the target answered with a redirect to another place",
        // One text: by differences, authors of kubeconfigs could find open ports.
        _ => return unreachable_target(&error),
    };
    bad_gateway(message).with_inner(error)
}

/// The error for a target that could not be reached. Only the log has the reason.
fn unreachable_target(why: &dyn std::fmt::Display) -> ApiError {
    tracing::warn!("a target could not be reached: {why}");
    ApiError::new(503, Reason::ServiceUnavailable, format!("the target {UNREACHABLE}"))
}

/// The body of a request on its way to a target. Each part is counted until it is context.
struct CountedBody {
    incoming: IncomingBody,
    charge: Box<dyn Fn() -> Charge + Send>,
    /// Set when there was no room.
    no_room: Arc<AtomicBool>,
}

/// A part of a body, which is counted until it is dropped.
struct CountedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = postern_proxy::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        frame.map(|frame| {
            let frame = match frame? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error.into())),
            };
            let bytes = match frame.into_data() {
                Ok(bytes) => bytes,
                Err(other) => return Some(Ok(other)),
            };
            let mut charge = (self.charge)();
            if !charge.grow(bytes.len()) {
                self.no_room.store(true, Ordering::Relaxed);
                return Some(Err("too many bytes wait for this owner's targets".into()));
            }
            let counted = CountedBytes { bytes, _charge: charge };
            Some(Ok(Frame::data(Bytes::from_owner(counted))))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
