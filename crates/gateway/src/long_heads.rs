//! Requests with a long token. Their heads are longer than the limit of a listener for
//! unauthenticated clients. So their connections begin with a short request of the server itself.

use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};
use postern_auth::bearer::MAX_TUNNEL_TOKEN_BYTES;
use postern_auth::endpoint_token::cluster_gateway_audience;
use postern_auth::gateway_path::AGENT_LONG_HEADS;
use postern_meta::status::ApiError;
use postern_proxy::Opening;
use postern_registry::registry::Registry;

use super::session::Caller;
use super::target_state::Route;
use super::upstreams::Reached;
use super::{members, own_token};

/// The most bytes of a token on a usual connection. A listener of an agent or of another server takes heads of 48 KiB.
const MAX_SHORT_TOKEN_BYTES: usize = 40 * 1024;

/// How the head of a request gets through.
pub(super) struct LongHead {
    /// How the connection is opened, if a usual one does not take the head.
    pub(super) opening: Option<Opening>,
    /// The bytes of the token if it is long, which count for the owner until the response begins.
    pub(super) bytes: usize,
    /// The most bytes of a token that the connection takes.
    pub(super) max_token_bytes: usize,
}

impl LongHead {
    /// How a request with this value of `Authorization` gets to its agent.
    ///
    /// # Errors
    /// 503 when no token of the server can be issued.
    pub(super) fn of(
        registry: &Registry,
        caller: &Caller,
        reached: &Reached,
        authorization: Option<&HeaderValue>,
    ) -> Result<Self, ApiError> {
        let max_token_bytes =
            if reached.is_tunnel { MAX_TUNNEL_TOKEN_BYTES } else { MAX_SHORT_TOKEN_BYTES };
        let short = Self { opening: None, bytes: 0, max_token_bytes };
        let (Some(value), Route::Agent(route)) = (authorization, caller.target.route()) else {
            return Ok(short);
        };
        let bytes = value.len();
        if bytes <= MAX_SHORT_TOKEN_BYTES {
            return Ok(short);
        }
        let opening = match &reached.member {
            _ if reached.is_tunnel => None,
            Some(member) => Some(members::opening(registry, member)?),
            None => Some(at_agent(registry, &route.uid)?),
        };
        Ok(Self { opening, bytes, max_token_bytes: MAX_TUNNEL_TOKEN_BYTES })
    }
}

fn at_agent(registry: &Registry, cluster_uid: &str) -> Result<Opening, ApiError> {
    let token = own_token::header(registry, "Bearer ", cluster_gateway_audience(cluster_uid))?;
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, token);
    Ok(Opening { path: PathAndQuery::from_static(AGENT_LONG_HEADS), headers })
}
