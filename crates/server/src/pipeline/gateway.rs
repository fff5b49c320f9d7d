//! Serves a request to a target behind the gateway. The request has a slot until the head of the target's response
//! arrives. An authorized request is forwarded, and its body is not buffered.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use postern_meta::status::ApiError;
use postern_registry::credential::check_impersonation;
use postern_telemetry::{SpanKind, span};
use tokio::time::timeout;

use super::{Exchange, Outcome};
use postern_gateway::{SendContext, TargetState, send};
use postern_http::stages::authorize::authorize_gateway;
use postern_http::stages::impersonate::Acting;
use postern_http::stages::parse::GatewayRequest;
use postern_http::stages::websocket;
use postern_http::wire::input::RequestBody;

/// The time after which a request releases its slot, even if the head of the response has not arrived. The request
/// then only counts as a watch.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a request to a target behind the gateway.
///
/// # Errors
/// - 403 and 404 before anything is sent
/// - 429 when no slot is free, or when the owner has too many watches
/// - 502 to 504 when the target does not respond
pub(super) async fn serve(
    exchange: &mut Exchange<'_>,
    acting: Acting,
    request: Arc<GatewayRequest>,
    body: RequestBody,
) -> Result<Outcome, ApiError> {
    let Exchange { server, audit: audit_context, guard, .. } = exchange;
    if websocket::has_credential(acting.parsed().headers()) {
        // A browser sent the request, perhaps from a page of another origin.
        let own_url = &server.registry.token_policy().issuer;
        let parsed = acting.parsed();
        websocket::check_origin(parsed.uri(), parsed.headers(), own_url)
            .inspect_err(|error| audit_context.set_forbidden(error))?;
    }
    let requester = guard.requester();
    guard.keep_slot(server.flow.acquire_proxied(&requester).await?);
    let under_way = server.flow.acquire_watch(&requester.account)?;
    let (registry, gateway) = (&server.registry, &server.gateway);
    let cache = registry.cache();
    cache.wait_until_current().await?;
    acting.credential().check(cache, &cache.policy(), server.source.now())?;
    let target = TargetState::find(registry, &request.target).await?;
    let (policy, groups) = (cache.policy(), gateway.forward_groups());
    let decision = span("decision", SpanKind::Internal);
    let permit = check_impersonation(acting.credential(), &policy).and_then(|()| {
        let (resolved, exists) = (target.resolved(), target.exists());
        authorize_gateway(acting, request.clone(), &policy, resolved, exists, groups)
    });
    drop(decision);
    let permit = permit.inspect_err(|error| audit_context.set_forbidden(error))?;
    audit_context.set_allowed();
    if request.kube.changes() {
        audit_context.written().await?;
    }
    let context = SendContext {
        gateway,
        registry,
        bodies: &server.flow.bodies,
        requester,
        draining: server.draining(),
        under_way,
        audit_id: audit_context.id().clone(),
    };
    let mut answer = pin!(send(context, permit, target, body));
    if let Ok(answer) = timeout(SLOT_TIMEOUT, &mut answer).await {
        return answer.map(Outcome::from);
    }
    guard.release_slot();
    answer.await.map(Outcome::from)
}
