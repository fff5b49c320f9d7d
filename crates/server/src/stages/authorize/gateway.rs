//! From `Acting` to `GatewayPermit`: does a request get to its target behind the gateway, and as whom?

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

/// The proof that a request gets to its target. The gateway sends nothing without one. Only
/// [`authorize_gateway`] makes one.
pub(crate) struct GatewayPermit {
    parsed: Parsed,
    request: Arc<GatewayRequest>,
    credential: Credential,
    identity: HeaderMap,
}

impl GatewayPermit {
    /// The request, with its target.
    pub(crate) fn request(&self) -> &Arc<GatewayRequest> {
        &self.request
    }

    /// The request as it was read.
    pub(crate) fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    /// The caller's credential.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The head of the request as it came, and the headers that say as whom it is sent on.
    pub(crate) fn into_head(self) -> (Parts, HeaderMap) {
        (self.parsed.to_head(), self.identity)
    }
}

/// The permit, when `auth` lets the request get to its target. `is_there` says whether the
/// target is.
///
/// # Errors
/// 403 that says why; 404 when the target is not there, for those who may use it.
pub(crate) fn authorize_gateway(
    acting: Acting,
    request: Arc<GatewayRequest>,
    policy: &Policy,
    place: ResolvedTarget<'_>,
    is_there: bool,
    forward_groups: &[String],
) -> Result<GatewayPermit, ApiError> {
    let (parsed, credential) = acting.into_parts();
    let identity = credential.identity();
    let (resource, name) = resource_of(&place);
    let asked = TargetRequest::new(place, &request.kube);
    let forbidden = |refusal: &TargetRefusal| at_target(&place, refusal);
    match policy.decide_at_target(identity, &asked) {
        Ok(()) | Err(TargetRefusal::OutsideSpace) if !is_there => {
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

const UNPRINTABLE: &str = "the caller's name cannot be written in a header";

/// Checks whether a request that got to its target still would.
///
/// # Errors
/// 403 when it would not.
pub(crate) fn check_request(
    policy: &Policy,
    credential: &Credential,
    place: ResolvedTarget<'_>,
    request: &GatewayRequest,
) -> Result<(), ApiError> {
    let asked = TargetRequest::new(place, &request.kube);
    let decided = policy.decide_at_target(credential.identity(), &asked);
    decided.map_err(|refusal| at_target(&place, &refusal))
}

/// The 403 of a refusal.
fn at_target(place: &ResolvedTarget<'_>, refusal: &TargetRefusal) -> ApiError {
    let (resource, name) = resource_of(place);
    ApiError::forbidden(resource, name, refusal.to_string())
}

/// The object at the central server that a target is.
fn resource_of<'a>(place: &ResolvedTarget<'a>) -> (GroupResource, &'a str) {
    let (resource, name) = match place.target {
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

/// The plural names of the kinds of instances.
pub(crate) const SPACES: &str = <space_instance::SpaceInstance as postern_kinds::Kind>::INFO.plural;
pub(crate) const VIRTUAL_CLUSTERS: &str =
    <virtual_cluster_instance::VirtualClusterInstance as postern_kinds::Kind>::INFO.plural;
