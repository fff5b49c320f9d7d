//! Requests that one server hands to another one, because the agent of the target has its tunnel
//! there (`docs/adr/0055-servers-hand-requests-to-each-other.md`). The first server has decided,
//! recorded and counted the request. The second server only sends it on through a tunnel. The token
//! of a server is a JWT.

use crate::members::LONG_HEADS;
use crate::members::PREFIX;
use crate::members::TOKEN;
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Request, Response};
use postern_auth::endpoint_token::{Verifier, member_audience};
use postern_meta::status::ApiError;
use postern_proxy::{Forward, ProxyBody, Session, Upstream, is_opening};
use postern_registry::registry::Registry;
use postern_telemetry::log_limited;

use super::errors::failed;
use super::gateway::Gateway;
use super::own_token;
use postern_http::wire::incoming::IncomingBody;

/// The headers of the first server that the agent gets.
const PASSED_ON: [HeaderName; 3] =
    [AUTHORIZATION, HeaderName::from_static("audit-id"), HeaderName::from_static("traceparent")];

/// Marks a request on a connection that another server has opened for long heads.
#[derive(Clone, Copy)]
pub struct FromMember;

/// A request on the path of other servers.
pub enum Relay {
    /// Not on this path, or the store has no other servers: a request as any other one.
    None,
    /// It has a valid token of another server, or its connection has shown one.
    Valid,
    /// It has a valid token, and requests with long heads are to follow on its connection.
    Opening,
    /// It has no valid token. It is then a request for a path that does not exist, and counts as a failed authentication.
    Refused,
}

/// Whether a request comes from another server.
pub fn check(gateway: &Gateway, registry: &Registry, request: &Request<IncomingBody>) -> Relay {
    if !request.uri().path().starts_with(PREFIX) || registry.servers().members().is_none() {
        return Relay::None;
    }
    if request.extensions().get::<FromMember>().is_some() {
        return Relay::Valid;
    }
    match has_token(gateway, registry, request.headers()) {
        true if is_opening(request, LONG_HEADS) => Relay::Opening,
        true => Relay::Valid,
        false => Relay::Refused,
    }
}

/// Sends a request of another server through a tunnel, after [`check`]. It is never handed to a third one.
///
/// # Errors
/// 503 when no tunnel is open, or the agent does not answer
pub async fn serve(
    gateway: &Gateway,
    request: Request<IncomingBody>,
) -> Result<Response<ProxyBody>, ApiError> {
    let (mut head, body) = request.into_parts();
    let no_tunnel =
        || ApiError::unavailable("the agent of the cluster has no tunnel to this server", Some(1));
    let path = head.uri.path_and_query().map(PathAndQuery::as_str).unwrap_or_default();
    let (uid, _) =
        path.strip_prefix(PREFIX).and_then(|rest| rest.split_once('/')).ok_or_else(no_tunnel)?;
    let at_agent = path[PREFIX.len() + uid.len()..].parse::<PathAndQuery>();
    let at_agent = at_agent.map_err(|_| ApiError::bad_request("the path cannot be forwarded"))?;
    let tunnels = gateway.tunnels().of_cluster(uid).ok_or_else(no_tunnel)?;
    let upstream = Upstream::through(&http::Uri::from_static("http://agent"), &tunnels);
    let upstream = upstream.map_err(|error| ApiError::internal("the route to an agent", error))?;
    let mut forward = Forward { session: Session::unlimited(), ..Forward::new(at_agent) };
    for name in PASSED_ON {
        if let Some(value) = head.headers.remove(&name) {
            forward.headers.insert(name, value);
        }
    }
    head.headers.remove(TOKEN);
    gateway
        .proxy()
        .forward(&upstream, Request::from_parts(head, body), forward)
        .await
        .map_err(failed)
}

/// Whether the headers have a valid token of another server for this one.
fn has_token(gateway: &Gateway, registry: &Registry, headers: &HeaderMap) -> bool {
    let mut tokens = headers.get_all(TOKEN).iter();
    let (Some(token), None) = (tokens.next(), tokens.next()) else { return false };
    let Ok(token) = token.to_str() else { return false };
    let audience = member_audience(gateway.tunnels().server());
    let verifier = Verifier::new(registry.token_policy().issuer.clone(), [audience]);
    verifier.set_keys(registry.cache().signing_keys().public());
    match verifier.verify(token, registry.source().now().unix_seconds()) {
        Ok(token) => token.claims.sub == own_token::SUBJECT,
        Err(why) => {
            log_limited!(info, "a request of another server was refused: {why}");
            false
        }
    }
}
