//! The request by which the server tries the route to a target. Requests of clients take the same route.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::USER_AGENT;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use postern_auth::gateway_path::GatewayTarget;
use postern_kinds::probe::ProbeResult;
use postern_oidc::discovery;
use postern_proxy::Forward;
use postern_registry::controllers::probes::Attempt;
use postern_registry::registry::Registry;
use postern_telemetry::log_limited;

use super::gateway::{Gateway, OwnRoute};
use super::target_state::Route;

/// The time that a target has to respond. An agent has 5 s to try an instance.
const TIMEOUT: Duration = Duration::from_secs(6);

/// The most characters of the reason of a failure in the log.
const MAX_REASON_CHARS: usize = 300;

/// The most bytes of a response. After a longer one, its connection is closed.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The path that every kube-apiserver serves, and an agent for its instances.
const VERSION: &str = "/version";

/// Attempts through this gateway.
pub fn attempt(registry: &Arc<Registry>, gateway: &Arc<Gateway>) -> Attempt {
    let (registry, gateway) = (registry.clone(), gateway.clone());
    Arc::new(move |target| {
        let (registry, gateway) = (registry.clone(), gateway.clone());
        async move { result_of(&registry, &gateway, &target).await }.boxed()
    })
}

/// Tries the route to a target. Only the log has the reason of a failure.
async fn result_of(registry: &Registry, gateway: &Gateway, target: &GatewayTarget) -> ProbeResult {
    let timed = tokio::time::timeout(TIMEOUT, request(registry, gateway, target)).await;
    let why = match timed {
        Ok(Ok(result)) => return result,
        Ok(Err(why)) => why,
        Err(_) => format!("no response within {TIMEOUT:?}"),
    };
    // A target can make it long, by the names in its certificate.
    let why: String = why.chars().take(MAX_REASON_CHARS).collect();
    let name = format!("{target:?}");
    // Tenants have instances that fail, and the lines about clusters have room of their own.
    if matches!(target, GatewayTarget::Cluster { .. }) {
        log_limited!(warn, for &name, target = name, "a probe did not get to a cluster: {why}");
    } else {
        log_limited!(warn, for &name, target = name, "a probe did not get to an instance: {why}");
    }
    ProbeResult::Failed
}

async fn request(
    registry: &Registry,
    gateway: &Gateway,
    target: &GatewayTarget,
) -> Result<ProbeResult, String> {
    let route = gateway.own_route(registry, target).await;
    let OwnRoute { state, upstream, mut headers } = route.map_err(|error| error.to_string())?;
    let is_by_agent = matches!(state.route(), Route::Agent(_));
    let path = match (target, state.space_namespace()) {
        // Agents of the version before serve this path, too.
        (GatewayTarget::Cluster { .. }, _) if is_by_agent => discovery::OF_CLUSTER.to_owned(),
        (_, Some(namespace)) if !is_by_agent => format!("/api/v1/namespaces/{namespace}"),
        _ => VERSION.to_owned(),
    };
    let path = path.parse::<PathAndQuery>().map_err(|error| error.to_string())?;
    headers.insert(USER_AGENT, HeaderValue::from_static("postern-probe"));
    let forward = Forward { headers, answer_timeout: Some(TIMEOUT), ..Forward::new(path) };
    let request = Request::new(Empty::<Bytes>::new());
    let response = gateway.probes.forward(&upstream, request, forward).await;
    let response = response.map_err(|error| error.to_string())?;
    let status = response.status();
    // The rest of the connection stays usable if the body was read.
    let _ = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let is_cluster = matches!(target, GatewayTarget::Cluster { .. });
    match status {
        // The credential was accepted, and requests of clients have their own permissions.
        StatusCode::FORBIDDEN => Ok(ProbeResult::Reached),
        // Clusters need not issue tokens.
        StatusCode::NOT_FOUND if is_cluster && is_by_agent => Ok(ProbeResult::Reached),
        // An agent of the version before does not try the routes to instances.
        StatusCode::UNAUTHORIZED if is_by_agent && !is_cluster => Ok(ProbeResult::Unknown),
        status if status.is_success() => Ok(ProbeResult::Reached),
        status => Err(format!("the response has the status {status}")),
    }
}
