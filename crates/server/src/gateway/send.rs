//! Forwards an authorized request, and returns the response as it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use postern_auth::gateway_path::OF_WORKLOAD;
use postern_flow::budget::{ByteBudget, Charge};
use postern_flow::{Requester, WatchPermit, too_many_requests};
use postern_meta::status::{ApiError, Reason};
use postern_proxy::{Forward, ProxyError, UNREACHABLE};
use postern_registry::registry::Registry;
use postern_telemetry::{Span, SpanKind, log_limited, span};
use tokio::sync::watch;

use super::long_heads::LongHead;
use super::session::{self, Caller};
use super::target_state::{Route, TargetState};
use super::upstreams::Reached;
use super::{Gateway, agent, relay, review};
use crate::stages::authorize::GatewayPermit;
use crate::stages::parse::GatewayRequest;
use crate::wire::body::{Body, Guards};
use crate::wire::incoming::IncomingBody;
use crate::wire::input::RequestBody;
use crate::wire::respond;

/// The timeout from the head of a request to the head of its response, as in kube-apiserver. Long requests have none.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The parts of the server that forward a request.
pub(crate) struct SendContext<'a> {
    /// The gateway.
    pub(crate) gateway: &'a Gateway,
    /// The registry of the stored objects.
    pub(crate) registry: &'a Arc<Registry>,
    /// The budget of request bodies, and of long heads, that are not sent yet.
    pub(crate) bodies: &'a Arc<ByteBudget>,
    /// The sender of the request, for the budget.
    pub(crate) requester: Requester,
    /// Whether the server is shutting down.
    pub(crate) draining: watch::Receiver<bool>,
    /// The permit of the request, which counts as a watch.
    pub(crate) under_way: WatchPermit,
    /// The request's id in the audit log, which the target's audit log also gets.
    pub(crate) audit_id: HeaderValue,
}

/// Forwards a request.
///
/// # Errors
/// - 503 when the target cannot be reached, or does not respond
/// - 502 for a response that is not returned to the client
/// - 400, 413 and 415 for an invalid review
/// - 429 when the bytes of the owner's requests are too many
pub(crate) async fn send(
    context: SendContext<'_>,
    permit: GatewayPermit,
    target: TargetState,
    body: RequestBody,
) -> Result<Response<Body>, ApiError> {
    if let Some(asked) = review::of(&permit, &target) {
        let charge = context.bodies.open(&context.requester);
        return review::answer(context, permit, target, asked, body, charge).await;
    }
    let no_room = Arc::new(AtomicBool::new(false));
    let body = CountedBody {
        incoming: body.into_incoming(),
        charge: Box::new({
            let (bodies, requester) = (context.bodies.clone(), context.requester.clone());
            move || bodies.open(&requester)
        }),
        no_room: no_room.clone(),
    };
    let request = permit.request().clone();
    let guards = Guards::default();
    let answer = forward(context, permit, target, |_| body, &guards).await;
    match answer {
        Err(_) if no_room.load(Ordering::Relaxed) => Err(too_many_requests()),
        answer => Ok(respond::proxied(answer?, &request.kube, guards)),
    }
}

/// Forwards a request, with its own body or another one.
pub(super) async fn forward<B>(
    context: SendContext<'_>,
    permit: GatewayPermit,
    target: TargetState,
    body: impl FnOnce(&mut http::HeaderMap) -> B,
    guards: &Guards,
) -> Result<Response<postern_proxy::ProxyBody>, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<postern_proxy::BoxError>,
{
    let reached = context.gateway.upstreams.of(context.registry, &target).await?;
    let request = permit.request().clone();
    let caller = Arc::new(Caller {
        registry: context.registry.clone(),
        credential: permit.credential().clone(),
        request: request.clone(),
        target,
    });
    let tokens = context.gateway.short_tokens();
    let token = agent::authorization(&caller, tokens).await?;
    let long_head = LongHead::of(context.registry, &caller, &reached, token.as_ref())?;
    let charge = context.bodies.charge(&context.requester, long_head.bytes);
    let charge = charge.ok_or_else(too_many_requests)?;
    let Reached { upstream, member, .. } = reached;
    guards.keep(context.under_way);
    let max_session = context.gateway.settings.max_session;
    let session = session::of(caller.clone(), context.draining, max_session, guards.clone());
    let path = path_of(&request)?;
    let (mut head, mut headers) = permit.into_head();
    if let Some(token) = token {
        // A connection for long heads has shown the token of the server already.
        let member = member.as_deref().filter(|_| long_head.opening.is_none());
        headers = headers_with(token, member, context.registry)?;
    }
    headers.insert("audit-id", context.audit_id);
    let mut upstream_span = span("upstream", SpanKind::Client);
    headers.extend(traceparent(&upstream_span));
    let is_long = request.kube.is_long();
    let forward = Forward {
        headers,
        renewal: agent::renewal(&caller, long_head.max_token_bytes),
        answer_timeout: (!is_long).then_some(ANSWER_TIMEOUT),
        location_prefix: request.prefix.clone(),
        opening: long_head.opening,
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
        timed.map_err(|_| unreachable_target(&"it did not respond in time"))?
    };
    drop(charge);
    if let Err(ProxyError::SessionEnded(_)) = &answer {
        // The caller gets the reason if a new request would be rejected: a retry would not help.
        caller.check().await?;
    }
    let mut answer = answer.map_err(failed)?;
    upstream_span.set_status(answer.status().as_u16());
    if rejects_credential(&mut answer, &caller) {
        // The caller's own credential was never sent to the target.
        return Err(bad_gateway(rejection_of(caller.target.route())));
    }
    Ok(answer)
}

fn path_of(request: &GatewayRequest) -> Result<PathAndQuery, ApiError> {
    let path = request.kube.path_and_query().parse();
    path.map_err(|error| ApiError::internal("the path cannot be forwarded", error))
}

/// The headers of a request to an agent, perhaps through another server. Only the token says who the caller is, and what
/// is allowed.
fn headers_with(
    token: HeaderValue,
    member: Option<&str>,
    registry: &Registry,
) -> Result<HeaderMap, ApiError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, token);
    if let Some(member) = member {
        headers.extend([relay::token(registry, member)?]);
    }
    Ok(headers)
}

/// The header with the trace that a request on the way to a target belongs to.
fn traceparent(span: &Span) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static("traceparent"), span.traceparent()?.parse().ok()?))
}

/// Whether a response is a 401 to the gateway's credential, and not a 401 of a workload behind the subresource `proxy`.
/// An agent marks responses of workloads with a header, which is removed. Without it, the agent rejected the token.
fn rejects_credential<B>(answer: &mut Response<B>, caller: &Caller) -> bool {
    let is_marked = answer.headers_mut().remove(&OF_WORKLOAD).is_some();
    let is_direct = !matches!(caller.target.route(), Route::Agent(_));
    let of_workload = caller.request.kube.is_by_proxy() && (is_direct || is_marked);
    answer.status() == StatusCode::UNAUTHORIZED && !of_workload
}

/// The text for a rejected credential of the gateway. Tokens for agents are valid for a minute, so the clock of a server is the
/// first thing to look at.
fn rejection_of(route: &Route) -> &'static str {
    match route {
        Route::Agent(_) => {
            "the agent of the cluster, or the server with its tunnel, rejected the token of this server: check that the \
             clocks of all servers and of the agent agree, and then the agent"
        }
        Route::Kubeconfig(_) | Route::None(_) => {
            "the target rejected the credential of the gateway: check the kubeconfig of the cluster"
        }
    }
}

fn bad_gateway(message: &str) -> ApiError {
    ApiError::new(502, Reason::Unknown, message)
}

/// The error for the client. It does not reveal the address of the target.
pub(super) fn failed(error: ProxyError) -> ApiError {
    let message = match &error {
        ProxyError::BadRequest(_) | ProxyError::ClientGone => {
            return ApiError::bad_request(error.to_string());
        }
        ProxyError::SessionEnded(_) | ProxyError::Draining | ProxyError::Overloaded { .. } => {
            return ApiError::unavailable(error.to_string(), Some(1));
        }
        ProxyError::NoTunnel { .. } => {
            let message = "the agent of the cluster has no free tunnel: try again later";
            return ApiError::unavailable(message, Some(1)).with_inner(error);
        }
        ProxyError::NoLongHeads { .. } => {
            let message = "the agent of the cluster, or the server with its tunnel, is older than this server, and takes no \
                           token of this length: upgrade it, or use a key with fewer entries in its scope";
            return ApiError::unavailable(message, None).with_inner(error);
        }
        ProxyError::Redirect { .. } => "the target responded with a redirect to another address",
        // All have the same message. Otherwise authors of kubeconfigs could scan for open ports.
        _ => return unreachable_target(&error),
    };
    bad_gateway(message).with_inner(error)
}

/// The error for an unreachable target. Only the log has the reason.
fn unreachable_target(why: &dyn std::fmt::Display) -> ApiError {
    let why = why.to_string();
    log_limited!(warn, for &why, "cannot reach a target: {why}");
    ApiError::new(503, Reason::ServiceUnavailable, format!("the target {UNREACHABLE}"))
}

/// The body of a forwarded request. Each part is counted until it is sent.
struct CountedBody {
    incoming: IncomingBody,
    charge: Box<dyn Fn() -> Charge + Send>,
    /// Whether the byte budget was exceeded.
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
                return Some(Err(
                    "too many bytes of this owner's requests wait for their targets".into()
                ));
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
