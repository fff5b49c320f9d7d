//! Forwards an authorized request to its target, with its own body or another one.

use super::errors::{bad_gateway, failed, unreachable_target};
use super::gateway::Gateway;
use super::long_heads::LongHead;
use super::session::{self, Caller};
use super::target_state::{Route, TargetState};
use super::upstreams::Reached;
use super::{agent, members};
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use postern_auth::gateway_path::OF_WORKLOAD;
use postern_flow::budget::ByteBudget;
use postern_flow::{Requester, WatchPermit, too_many_requests};
use postern_http::stages::authorize::GatewayPermit;
use postern_http::stages::parse::GatewayRequest;
use postern_http::wire::body::Guards;
use postern_meta::status::ApiError;
use postern_proxy::{Forward, ProxyError};
use postern_registry::registry::Registry;
use postern_telemetry::{Span, SpanKind, span};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The timeout from the head of a request to the head of its response, as in kube-apiserver. Long requests have none.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The parts of the server that forward a request.
pub struct SendContext<'a> {
    /// The gateway.
    pub gateway: &'a Gateway,
    /// The registry of the stored objects.
    pub registry: &'a Arc<Registry>,
    /// The budget of request bodies, and of long heads, that are not sent yet.
    pub bodies: &'a Arc<ByteBudget>,
    /// The sender of the request, for the budget.
    pub requester: Requester,
    /// Whether the server is shutting down.
    pub draining: watch::Receiver<bool>,
    /// The permit of the request, which counts as a watch.
    pub under_way: WatchPermit,
    /// The request's id in the audit log, which the target's audit log also gets.
    pub audit_id: HeaderValue,
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

/// The headers of a request to an agent, perhaps through another server. Only the token contains
/// the caller's identity and permissions.
fn headers_with(
    token: HeaderValue,
    member: Option<&str>,
    registry: &Registry,
) -> Result<HeaderMap, ApiError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, token);
    if let Some(member) = member {
        headers.extend([members::token(registry, member)?]);
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
