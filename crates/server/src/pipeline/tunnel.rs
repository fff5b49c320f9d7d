//! `clusters/NAME/tunnel`: the agent of a cluster opens a tunnel.

use futures_util::FutureExt as _;
use http::{HeaderName, HeaderValue, Response};
use postern_http::wire::respond;
use postern_kinds::AnyKind as _;
use postern_kinds::cluster::Cluster;
use postern_meta::options::GetOptions;
use postern_meta::status::ApiError;
use postern_registry::registry::agent_configs::access::{AgentAccess, AgentPurpose};
use postern_registry::registry::not_found;
use postern_tunnel::{AGENT_NAME, CLUSTER_UID, SERVER_NAME, SERVER_VERSION};

use super::Server;
use super::verbs::VerbRequest;
use postern_http::stages::parse::Parsed;
use postern_http::wire::body::Body;
use postern_http::wire::websocket;

/// The version of this server, for the log of agents.
const VERSION: HeaderValue = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));

/// Opens a tunnel.
///
/// # Errors
/// - 400 for a request that is not for a WebSocket, offers no known version of the tunnel, or names no agent
/// - those of [`AgentAccess::begin`]
/// - 429 when the cluster, or all clusters, have too many tunnels
pub(super) async fn serve(
    server: &Server,
    request: &VerbRequest,
) -> Result<Response<Body>, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    GetOptions::parse(parsed.query())?;
    let handshake = websocket::tunnel_handshake(parsed)?;
    let access = AgentAccess::begin(&server.registry, permit, AgentPurpose::Tunnels).await?;
    let expected = text(parsed, CLUSTER_UID);
    if !expected.is_empty() && expected != access.cluster_uid() {
        // The agent decides for a cluster of this name that was deleted.
        return Err(not_found(&Cluster, access.cluster()));
    }
    let agent = text(parsed, AGENT_NAME);
    if !postern_tunnel::is_name(agent) {
        let resource = Cluster.info().plural;
        let message = format!("invalid {AGENT_NAME}: the agent of {resource} must send its name");
        return Err(ApiError::bad_request(message));
    }
    let gateway = &server.gateway;
    let open = gateway.tunnels().admit(access, agent)?;
    let proxy = gateway.proxy().clone();
    let tunnel = Box::new(move |upgraded| open.serve(proxy, upgraded).boxed());
    let mut response = respond::switching_to_tunnel(handshake, tunnel);
    let name = HeaderValue::from_str(gateway.tunnels().server());
    let name = name.map_err(|error| ApiError::internal("the name of the server", error))?;
    response.headers_mut().insert(SERVER_NAME, name);
    response.headers_mut().insert(SERVER_VERSION, VERSION);
    Ok(response)
}

fn text<'a>(parsed: &'a Parsed, name: &'static str) -> &'a str {
    parsed.header(HeaderName::from_static(name)).unwrap_or_default()
}
