//! Probes of instances: the central server asks whether requests get to a space or a virtual cluster, and the agent tries
//! (`docs/reference/projects.md#phase`). Only a token of the server itself asks for it, and it gets nothing else.

use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use postern_auth::endpoint_token::server_audience;
use postern_auth::gateway_path::{self, GatewayTarget};
use postern_meta::status::{ApiError, Reason};
use postern_proxy::{Forward, Proxy};

use crate::active_config::ActiveConfig;
use crate::answer::failed;
use crate::issuer::OWN_REQUEST;
use crate::route::Route;
use crate::server_token;
use crate::state::State;

/// The path below an instance by which the central server asks.
const VERSION: &str = "/version";

/// How long an instance has to respond.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of a response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The instance that the central server asks about; `None` for any other request.
pub(crate) fn instance_of(
    state: &State,
    cluster: &str,
    request: &Request<Incoming>,
) -> Option<GatewayTarget> {
    if request.method() != Method::GET || !request.uri().path().ends_with(VERSION) {
        return None;
    }
    let path = gateway_path::at_agent(request.uri().path(), cluster)?.ok()?;
    let is_instance = path.rest == VERSION && !matches!(path.target, GatewayTarget::Cluster { .. });
    let is_asked = is_instance && server_token::is_in(state, request.headers(), server_audience);
    is_asked.then_some(path.target)
}

/// The path by which the agent tries an instance: the namespace of a space, or the version of a virtual cluster.
///
/// # Errors
/// 503 when the agent does not know the instance.
pub(crate) fn path_of(
    config: &ActiveConfig,
    target: &GatewayTarget,
) -> Result<PathAndQuery, ApiError> {
    let resolved = config.resolve(target);
    if resolved.instance.is_none() {
        let message = "the agent does not know the instance yet";
        return Err(ApiError::unavailable(message, None));
    }
    let Some(namespace) = resolved.space_namespace else {
        return Ok(PathAndQuery::from_static(VERSION));
    };
    let path = format!("/api/v1/namespaces/{namespace}").parse();
    path.map_err(|_| ApiError::bad_request("the namespace of the space is not valid"))
}

/// Tries a route.
///
/// # Errors
/// 404 when the namespace of a space does not exist, 502 and 503 when the request does not get there.
pub(crate) async fn attempt(
    proxy: &Proxy,
    route: &Route,
    path: PathAndQuery,
) -> Result<(), ApiError> {
    let headers = HeaderMap::from_iter([(USER_AGENT, OWN_REQUEST)]);
    let forward = Forward { headers, answer_timeout: Some(TIMEOUT), ..Forward::new(path) };
    let request = Request::new(Empty::<Bytes>::new());
    let response = proxy.forward(route.upstream(), request, forward).await;
    let response = response.map_err(|error| {
        route.note_failure(&error);
        failed(error, route.target())
    })?;
    let status = response.status();
    let _ = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    match status {
        // The credential was accepted, and requests of clients have their own permissions.
        StatusCode::FORBIDDEN => Ok(()),
        status if status.is_success() => Ok(()),
        StatusCode::NOT_FOUND => {
            Err(ApiError::new(404, Reason::NotFound, "the namespace of the space does not exist"))
        }
        status => {
            if status == StatusCode::UNAUTHORIZED {
                route.note_rejected_credential();
            }
            let message = format!("{} responded with {status}", route.target());
            Err(ApiError::new(502, Reason::Unknown, message))
        }
    }
}
