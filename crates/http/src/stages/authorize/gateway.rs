//! Authorization of a request to a target behind the gateway, from `Acting` to `GatewayPermit`.

use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;
use postern_auth::attributes::RequestTarget;
use postern_auth::policy::Policy;
use postern_auth::policy::target::{
    ForwardedIdentity, ResolvedTarget, TargetRefusal, TargetRequest,
};
use postern_kinds::{MANAGEMENT_V1, space_instance, virtual_cluster_instance};
use postern_meta::gvk::GroupResource;
use postern_meta::status::ApiError;
use postern_registry::credential::Credential;

use crate::stages::impersonate::Acting;
use crate::stages::parse::{GatewayRequest, Parsed};

/// The proof that a request may be sent to its target. The gateway sends nothing without one. Only [`authorize_gateway`]
/// makes one.
pub struct GatewayPermit {
    parsed: Parsed,
    request: Arc<GatewayRequest>,
    credential: Credential,
    identity: HeaderMap,
}

impl GatewayPermit {
    /// The request, with its target.
    pub fn request(&self) -> &Arc<GatewayRequest> {
        &self.request
    }

    /// The parsed request.
    pub fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    /// The caller's credential.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The head of the request as it was received, and the headers with the forwarded identity.
    pub fn into_head(self) -> (Parts, HeaderMap) {
        (self.parsed.to_head(), self.identity)
    }
}

/// The permit, if `auth` allows the request. `exists` is whether the target exists.
///
/// # Errors
/// 403 with the reason; 404 when the target does not exist, for callers with access to it.
pub fn authorize_gateway(
    acting: Acting,
    request: Arc<GatewayRequest>,
    policy: &Policy,
    target: ResolvedTarget<'_>,
    exists: bool,
    forward_groups: &[String],
) -> Result<GatewayPermit, ApiError> {
    let (parsed, credential) = acting.into_parts();
    let identity = credential.identity();
    let (resource, name) = resource_of(&target);
    let asked = TargetRequest::new(target, &request.kube);
    let forbidden = |refusal: &TargetRefusal| forbidden_target(&target, refusal);
    match policy.decide_at_target(identity, &asked) {
        Ok(()) | Err(TargetRefusal::OutsideSpace) if !exists => {
            return Err(ApiError::not_found(resource, name));
        }
        decided => decided.map_err(|refusal| forbidden(&refusal))?,
    }
    let forwarded = ForwardedIdentity::of(identity, credential.wanted(), forward_groups);
    let forwarded = forwarded.map_err(|refusal| forbidden(&refusal))?;
    let headers = forwarded.headers();
    let headers = headers.ok_or_else(|| ApiError::forbidden(resource, name, UNPRINTABLE))?;
    Ok(GatewayPermit { parsed, request, credential, identity: headers })
}

const UNPRINTABLE: &str = "the name of the caller contains characters that no header can contain";

/// Checks whether a request in progress is still allowed.
///
/// # Errors
/// 403 when it is not.
pub fn check_request(
    policy: &Policy,
    credential: &Credential,
    target: ResolvedTarget<'_>,
    request: &GatewayRequest,
) -> Result<(), ApiError> {
    let asked = TargetRequest::new(target, &request.kube);
    let decided = policy.decide_at_target(credential.identity(), &asked);
    decided.map_err(|refusal| forbidden_target(&target, &refusal))
}

/// The 403 for a refusal.
fn forbidden_target(target: &ResolvedTarget<'_>, refusal: &TargetRefusal) -> ApiError {
    let (resource, name) = resource_of(target);
    ApiError::forbidden(resource, name, refusal.to_string())
}

/// The object of a target at the central server.
fn resource_of<'a>(target: &ResolvedTarget<'a>) -> (GroupResource, &'a str) {
    let (resource, name) = match target.target {
        RequestTarget::Management => ("", ""),
        RequestTarget::Cluster { cluster } => ("clusters", cluster),
        RequestTarget::VirtualCluster { name, .. } => (VIRTUAL_CLUSTERS, name),
        RequestTarget::ProjectSpace { space, .. } => (SPACES, space),
        RequestTarget::ProjectVirtualCluster { virtual_cluster, .. } => {
            (VIRTUAL_CLUSTERS, virtual_cluster)
        }
    };
    (GroupResource { group: MANAGEMENT_V1.group, resource }, name)
}

/// The plural name of spaces.
pub const SPACES: &str = <space_instance::SpaceInstance as postern_kinds::Kind>::INFO.plural;
/// The plural name of virtual clusters.
pub const VIRTUAL_CLUSTERS: &str =
    <virtual_cluster_instance::VirtualClusterInstance as postern_kinds::Kind>::INFO.plural;
