//! The errors for clients of the gateway. They do not reveal the address of a target.

use postern_meta::status::{ApiError, Reason};
use postern_proxy::{ProxyError, UNREACHABLE};
use postern_telemetry::log_limited;

pub(super) fn bad_gateway(message: &str) -> ApiError {
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
pub(super) fn unreachable_target(why: &dyn std::fmt::Display) -> ApiError {
    let why = why.to_string();
    log_limited!(warn, for &why, "cannot reach a target: {why}");
    ApiError::new(503, Reason::ServiceUnavailable, format!("the target {UNREACHABLE}"))
}
