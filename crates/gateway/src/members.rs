//! The other servers on the store: the credentials for requests to them, and the routes through
//! them.

use super::agent_route::AgentRoute;
use super::own_token;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};
use postern_auth::endpoint_token::member_audience;
use postern_meta::status::ApiError;
use postern_proxy::{Opening, SecretBytes, Upstream, UpstreamAddresses, UpstreamConfig};
use postern_registry::controllers::connected_agents;
use postern_registry::registry::Registry;

/// The path of requests from other servers, before the uid of the cluster and the path at its agent.
pub(crate) const PREFIX: &str = "/kubernetes/relay/";

/// The path at which another server opens a connection for requests with long heads.
pub(crate) const LONG_HEADS: &str = "/kubernetes/relay/long-heads";

/// The header with the token of the other server.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("platform-member-token");

/// How this server reaches the others.
#[derive(Clone, Debug)]
pub struct MemberTrust {
    /// The certificate authorities of all servers, in PEM.
    pub authorities: String,
    /// A name that the certificate of each server is for.
    pub server_name: String,
}

/// A server that has a tunnel to a cluster.
pub(super) fn member_with_tunnel(
    registry: &Registry,
    gateway_name: &str,
    route: &AgentRoute,
) -> Option<String> {
    let members = registry.servers().members()?.borrow().clone();
    let is_live = |name: &str| members.iter().any(|member| member.address == name);
    let agents = connected_agents::of_cluster(registry, &route.cluster);
    let mut others = agents.into_iter().map(|agent| agent.server);
    others.find(|server| server != gateway_name && is_live(server))
}

/// The upstream behind another server.
///
/// # Errors
/// When its name is no address.
pub(super) fn upstream(
    member: &str,
    trust: &MemberTrust,
    route: &AgentRoute,
) -> Result<Upstream, String> {
    let url = format!("https://{member}{PREFIX}{}{}", route.uid, route.prefix).parse();
    let config = UpstreamConfig {
        ca_pem: Some(trust.authorities.clone().into_bytes()),
        server_name: Some(trust.server_name.clone()),
        // The address comes from the store, where only servers write it.
        addresses: UpstreamAddresses::any(),
        authorization: None::<SecretBytes>,
        ..UpstreamConfig::new(url.map_err(|_| "the name of a server is no address".to_owned())?)
    };
    Upstream::new(config).map_err(|error| error.to_string())
}

/// How a connection to another server is opened for requests with long heads, which need no token of their own.
///
/// # Errors
/// Those of [`token`].
pub(super) fn opening(registry: &Registry, member: &str) -> Result<Opening, ApiError> {
    let headers = [token(registry, member)?].into_iter().collect();
    Ok(Opening { path: PathAndQuery::from_static(LONG_HEADS), headers })
}

/// The header with a token for another server.
///
/// # Errors
/// 503 when no token can be issued.
pub(super) fn token(
    registry: &Registry,
    member: &str,
) -> Result<(HeaderName, HeaderValue), ApiError> {
    Ok((TOKEN, own_token::header(registry, "", member_audience(member))?))
}
