//! One request to the agent: the caller, the decision, and the response.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use postern_auth::bearer::{self, BearerToken, MAX_TUNNEL_TOKEN_BYTES};
use postern_auth::endpoint_token::VerifiedToken;
use postern_auth::gateway_path::{self, GatewayTarget, OF_WORKLOAD};
use postern_auth::kube_request::{KubeRequest, check_host};
use postern_auth::target_review::{TargetReview, narrowed_rules};
use postern_kinds::access_key;
use postern_listen::{ConnectionTable, Peer};
use postern_meta::status::{ApiError, Reason};
use postern_proxy::{BoxError, Forward, Proxy, ProxyBody, ProxyError};
use postern_telemetry::{RequestIds, Span, SpanKind, request_span, span};
use tokio::sync::watch;

use crate::active_config::ActiveConfig;
use crate::answer::{self, Body, failed, forbidden, refused};
use crate::audit::{Audit, Record};
use crate::flow::Flow;
use crate::issuer;
use crate::lifespan::{GatewayTokens, Lifespan};
use crate::metrics::Metrics;
use crate::probe;
use crate::rare_line::RareLines;
use crate::readiness::Readiness;
use crate::review;
use crate::route::Route;
use crate::secret_counts::SecretCounts;
use crate::session::{self, Caller};
use crate::state::{Allowed, Refused, State};
use crate::tunnel_pool::Pool;
use crate::upstream::ClusterUpstream;
use crate::virtual_clusters::VirtualClusters;

/// The longest time from the head of a request until that of its answer, for those that are not long: that
/// of kube-apiserver.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The header with the id of the request's records, which those of the cluster have, too.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The state that requests are answered from.
pub(crate) struct Agent {
    pub(crate) state: Arc<State>,
    pub(crate) cluster: String,
    pub(crate) proxy: Proxy,
    pub(crate) upstream: ClusterUpstream,
    /// The routes to the virtual clusters in it.
    pub(crate) virtual_clusters: Arc<VirtualClusters>,
    pub(crate) max_session: Duration,
    /// How long a client may read nothing of an answer.
    pub(crate) stream_stall: Duration,
    pub(crate) audit: Arc<Audit>,
    pub(crate) metrics: Metrics,
    /// The counts of the Secrets that the agent fills.
    pub(crate) secrets: SecretCounts,
    pub(crate) flow: Arc<Flow>,
    pub(crate) gateway_tokens: GatewayTokens,
    pub(crate) connections: Arc<ConnectionTable>,
    /// How it gets to its cluster.
    pub(crate) readiness: Arc<ArcSwap<Readiness>>,
    /// The tunnels to the central server.
    pub(crate) tunnels: Arc<Pool>,
    pub(crate) draining: watch::Sender<bool>,
}

impl Agent {
    /// The answer to a request from this peer.
    pub(crate) async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            "/healthz" | "/livez" => return answer::health(None),
            "/readyz" => return answer::health(self.problem()),
            _ => {}
        }
        if let Some(path) = issuer::document_of(&self.state, &request) {
            // Boxed, since the future of each request would contain room for it.
            return Box::pin(issuer::answer(&self.proxy, &self.upstream, path)).await;
        }
        if let Some(target) = probe::instance_of(&self.state, &self.cluster, &request) {
            return match Box::pin(self.probe(&target)).await {
                Ok(()) => answer::health(None),
                Err(error) => answer::status(&error),
            };
        }
        let (mut head, body) = request.into_parts();
        let record = Record::new(&self.audit, self.state.clock(), peer.address(), &head);
        let mut ids = RequestIds::of_headers(record.uuid(), &mut head.headers);
        let mut span = request_span("request", &mut ids);
        record.set_trace(ids.trace());
        let response = ids.scope(pin!(self.respond(peer, &record, head, body))).await;
        span.set_status(response.status().as_u16());
        response
    }

    async fn respond(
        &self,
        peer: &Peer,
        record: &Arc<Record>,
        head: Parts,
        body: Incoming,
    ) -> Response<Body> {
        let mut response = match self.forwarded(peer, record, head, body).await {
            Ok((response, goes_on)) => {
                record.answered(response.status().as_u16(), None, goes_on);
                response
            }
            Err(error) => {
                tracing::debug!(
                    code = error.code(),
                    inner = error.inner(),
                    "an answer of the agent's own"
                );
                record.answered(error.code(), Some(&error), false);
                answer::status(&error)
            }
        };
        self.metrics.count_answer(record.verb(), response.status().as_u16());
        if let Ok(id) = record.id().parse() {
            response.headers_mut().insert(AUDIT_ID, id);
        }
        response
    }

    /// Why the agent is not ready; `None` when it is.
    pub(crate) fn problem(&self) -> Option<String> {
        let unheard = self.state.config().err().map(|why| why.to_string());
        unheard.or_else(|| self.readiness.load().problem())
    }

    /// Tries the route to an instance, for the central server.
    async fn probe(&self, target: &GatewayTarget) -> Result<(), ApiError> {
        let config = self.state.config().map_err(|why| refused(&why))?;
        let path = probe::path_of(&config, target)?;
        let route = self.route_to(&config, target).await?;
        probe::attempt(&self.proxy, &route, path).await
    }

    /// The response to a forwarded request, and whether the request continues after the head of the
    /// response.
    async fn forwarded(
        &self,
        peer: &Peer,
        record: &Arc<Record>,
        mut head: Parts,
        body: Incoming,
    ) -> Result<(Response<Body>, bool), ApiError> {
        let path = head.uri.path().to_owned();
        let at = gateway_path::at_agent(&path, &self.cluster).unwrap_or_else(|| {
            let message = "an agent serves /kubernetes/cluster/… and /kubernetes/project/…";
            Err(ApiError::new(404, Reason::NotFound, message))
        })?;
        // Authentication comes before any message about the requested object.
        let bearer = bearer_of(&head.headers)?;
        let config = self.state.config().map_err(|why| refused(&why))?;
        let verified = config.verifier.verify(bearer.expose(), self.state.now());
        self.metrics.count_token(verified.as_ref().err().copied());
        let verified = verified.map_err(|why| {
            let error = logged(&Refused::Token(why));
            if access_key::is_well_formed(bearer.expose()) { answer::wants_token() } else { error }
        })?;
        let owner = verified.owner().to_owned();
        peer.set_authenticated(&owner, false);
        record.set_authenticated(&verified);
        check_host(&head)?;
        let kube = Arc::new(KubeRequest::parse(&head, at.rest)?);
        record.set_asked(&kube);
        let mut allowed = self.allowed(&bearer, &at.target, &kube)?;
        refuse_impersonation(&head.headers)?;
        let (is_long, is_watch) = (kube.is_long(), kube.is_watch());
        let permit = self.flow.acquire(&owner, is_long)?;
        let route = self.route_to(&config, &at.target).await?;
        record.allowed(kube.changes()).await?;
        if let Ok(id) = record.id().parse() {
            allowed.headers.insert(AUDIT_ID, id);
        }
        let upstream_span = span("upstream", SpanKind::Client);
        allowed.headers.extend(traceparent(&upstream_span));
        let prefix = path.strip_suffix(at.rest).unwrap_or(&path).trim_end_matches('/').to_owned();
        head.headers.remove(AUTHORIZATION);
        let path_and_query = PathAndQuery::try_from(kube.path_and_query())
            .map_err(|_| ApiError::bad_request("the path cannot be sent on"))?;
        let is_scoped = allowed.token.identity.is_scoped();
        let asked = TargetReview::of(is_scoped, &config.resolve(&at.target), &kube);
        let lifespan = self.lifespan(&kube, &allowed.token);
        let caller = Arc::new(Caller {
            state: self.state.clone(),
            bearer,
            token: allowed.token,
            target: at.target,
            kube,
            route,
            lifespan,
            _permit: permit,
            _record: record.clone(),
        });
        let forward = Forward {
            headers: allowed.headers,
            answer_timeout: (!is_long).then_some(ANSWER_TIMEOUT),
            location_prefix: prefix,
            session: session::of(caller.clone(), self.draining.subscribe(), self.max_session),
            ..Forward::new(path_and_query)
        };
        let pending = PendingForward { caller, config, forward };
        if let Some(asked) = asked {
            return self.review(asked, pending, head, body).await.map(|answer| (answer, false));
        }
        let response = self.send(Request::from_parts(head, body), pending).await?;
        Ok((response.map(|body| answer::proxied(body, is_watch)), is_long))
    }

    /// Sends a request on.
    async fn send<B>(
        &self,
        request: Request<B>,
        pending: PendingForward,
    ) -> Result<Response<ProxyBody>, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let PendingForward { caller, forward, .. } = pending;
        let limit = forward.answer_timeout;
        let (route, target) = (&caller.route, caller.route.target());
        let sent = self.proxy.forward(route.upstream(), request, forward);
        let response = match limit {
            None => sent.await,
            Some(limit) => {
                let timed = tokio::time::timeout(limit, sent).await;
                let late = format!("{target} did not answer in time");
                timed.map_err(|_| ApiError::timeout(late))?
            }
        };
        let mut response = response.map_err(|error| unsent(error, &caller))?;
        response.headers_mut().remove(&OF_WORKLOAD);
        if response.status() == StatusCode::UNAUTHORIZED {
            if caller.kube.is_by_proxy() {
                response.headers_mut().insert(OF_WORKLOAD, HeaderValue::from_static("true"));
                return Ok(response);
            }
            route.note_rejected_credential();
            // The caller's own token is good: it was never sent there.
            let message = format!("{target} does not accept the credential of its agent");
            return Err(ApiError::new(502, Reason::Unknown, message));
        }
        Ok(response)
    }

    /// The response to an access review of a caller that does not have every permission.
    async fn review(
        &self,
        asked: TargetReview,
        pending: PendingForward,
        mut head: Parts,
        body: Incoming,
    ) -> Result<Response<Body>, ApiError> {
        let (caller, config) = (pending.caller.clone(), pending.config.clone());
        let (policy, identity) = (&config.policy, &caller.token.identity);
        let place = config.resolve(&caller.target);
        let read = tokio::time::timeout(ANSWER_TIMEOUT, review::read(&head, body)).await;
        let value = read.map_err(|_| ApiError::timeout("the review did not arrive in time"))??;
        if let Some(status) = asked.status_without_target(policy, identity, place, &value)? {
            return Ok(review::answered(value, status));
        }
        let bytes = review::rewritten(&mut head, &value);
        let request = Request::from_parts(head, Full::new(bytes));
        let response = self.send(request, pending).await?;
        if asked == TargetReview::Rules && response.status() == StatusCode::CREATED {
            let answer = review::read_answer(response).await?;
            let status = narrowed_rules(policy, identity, &place, &value, &answer)?;
            return Ok(review::answered(value, status));
        }
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    /// The lifespan of a request that is about to be sent.
    fn lifespan(&self, kube: &KubeRequest, token: &VerifiedToken) -> Lifespan {
        let is_first =
            token.is_for_gateway_session() && self.gateway_tokens.note(token, self.state.now());
        Lifespan::of(kube, token, is_first)
    }

    /// The route to a target.
    ///
    /// # Errors
    /// 503 with the reason why there is none.
    async fn route_to(
        &self,
        config: &ActiveConfig,
        target: &GatewayTarget,
    ) -> Result<Route, ApiError> {
        match target {
            GatewayTarget::Cluster { .. } | GatewayTarget::Space { .. } => {
                Ok(Route::Cluster(self.upstream.current()))
            }
            GatewayTarget::ProjectVirtualCluster { .. } | GatewayTarget::VirtualCluster { .. } => {
                let place = config.virtual_cluster(target).ok_or_else(|| {
                    let message = "no route to the target: its location in the cluster is unknown";
                    ApiError::unavailable(message, None)
                })?;
                let reached = self.virtual_clusters.route_to(&place).await?;
                Ok(Route::VirtualCluster(place, reached))
            }
        }
    }

    fn allowed(
        &self,
        bearer: &BearerToken,
        target: &GatewayTarget,
        kube: &KubeRequest,
    ) -> Result<Allowed, ApiError> {
        let decided = self.state.decide(bearer.expose(), target, kube);
        let decided = decided.inspect(|allowed| {
            // The audit log has it.
            tracing::debug!(
                user = allowed.token.identity.name,
                token = allowed.token.token_id,
                verb = kube.verb(),
                path = kube.path_and_query().split('?').next(),
                "let through"
            );
        });
        decided.map_err(|why| logged(&why))
    }
}

/// A request on its way to the cluster.
struct PendingForward {
    caller: Arc<Caller>,
    /// The configuration that decided.
    config: Arc<ActiveConfig>,
    forward: Forward,
}

/// The header with the trace that a request on the way to a cluster belongs to.
fn traceparent(span: &Span) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static("traceparent"), span.traceparent()?.parse().ok()?))
}

/// The error of a request without a response. If a change from the central server ended the
/// request, the error is the refusal that the same request gets now. Another attempt would not
/// help.
fn unsent(error: ProxyError, caller: &Caller) -> ApiError {
    caller.route.note_failure(&error);
    let target = caller.route.target();
    match &error {
        ProxyError::SessionEnded(_) => {
            caller.refusal().map_or_else(|| failed(error, target), |why| logged(&why))
        }
        _ => failed(error, target),
    }
}

/// The refusals of requests. Their counts by reason are in the metrics.
static REFUSALS: RareLines = RareLines::new();

/// The error of a refusal. The reason is in the log, unless many refusals have the same kind of
/// reason.
fn logged(why: &Refused) -> ApiError {
    REFUSALS.write(why.kind(), |left_out| tracing::info!(left_out, "refused: {why}"));
    refused(why)
}

/// The credential of a request.
///
/// # Errors
/// 401 without the reason: it is in the log if it is not one of many.
fn bearer_of(headers: &HeaderMap) -> Result<BearerToken, ApiError> {
    let values = headers.get_all(AUTHORIZATION).iter().map(http::HeaderValue::as_bytes);
    // The limits of heads are smaller at the listener.
    bearer::parse_within(MAX_TUNNEL_TOKEN_BYTES, values).map_err(|why| {
        REFUSALS.write("bearer", |left_out| {
            tracing::info!(left_out, "refused: {}", why.message());
        });
        ApiError::unauthorized("Unauthorized")
    })
}

/// Rejects impersonation: only the central server knows the impersonated identity.
///
/// # Errors
/// 403, when the headers ask for it.
fn refuse_impersonation(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        let message = "an agent takes no impersonation headers: ask the central server for a token as \
                       that user, or go through its gateway";
        return Err(forbidden(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
