//! Authorization, from `Acting` to `Permit`. `auth` decides, from a snapshot of the policy and from names.

mod gateway;

use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::identity::{AUTHENTICATED_GROUP, Identity};
use postern_auth::policy::Decision;
use postern_meta::status::ApiError;
use postern_registry::cache::PolicyAt;
use postern_registry::permit::Permit;

pub use self::gateway::{
    GatewayPermit, SPACES, VIRTUAL_CLUSTERS, authorize_gateway, check_request,
};
use super::impersonate::Acting;
use super::not_served;
use super::parse::{Document, Parsed, Target};

/// An authorized request.
pub enum Authorized {
    /// A request for a resource.
    Resource(Parsed, Permit),
    /// A request for a document, such as discovery.
    Document(Parsed),
}

/// The permit, if `auth` allows the request.
///
/// # Errors
/// 403 in kube-apiserver's words. A path that is not served is 404, but only for callers that may
/// know the served paths.
pub fn authorize(acting: Acting, policy: Arc<PolicyAt>) -> Result<Authorized, ApiError> {
    let (parsed, credential) = acting.into_parts();
    let identity = credential.identity();
    match parsed.target() {
        Target::Resource(target) => {
            let permit = Permit::decide(policy, credential, target.clone())?;
            if parsed.is_upgrade() {
                permit.check_upgrade()?;
            }
            Ok(Authorized::Resource(parsed, permit))
        }
        // The gateway has another permit.
        Target::Gateway(_) => Err(ApiError::resource_not_served()),
        Target::Document(document) => {
            let verb = parsed.method().as_str().to_ascii_lowercase();
            check_path(
                &policy,
                identity,
                &path_attributes(*document, &verb, parsed.path_below_base()),
            )?;
            Ok(Authorized::Document(parsed))
        }
        Target::Nothing => {
            // All authenticated callers may know the paths of Postern's group.
            let is_known = identity.is_in(AUTHENTICATED_GROUP);
            if let Some(error) = not_served::error(parsed.path()).filter(|_| is_known) {
                return Err(error);
            }
            let verb = parsed.method().as_str().to_ascii_lowercase();
            let attributes = Attributes::Path { verb: &verb, path: parsed.path_below_base() };
            check_path(&policy, identity, &attributes)?;
            Ok(Authorized::Document(parsed))
        }
    }
}

/// The attributes of a document. Documents that describe the API are open to all authenticated callers.
fn path_attributes<'a>(document: Document, verb: &'a str, path: &'a str) -> Attributes<'a> {
    if document.describes_the_api() {
        Attributes::Description { verb, path }
    } else {
        Attributes::Path { verb, path }
    }
}

fn check_path(
    policy: &PolicyAt,
    identity: &Identity,
    attributes: &Attributes<'_>,
) -> Result<(), ApiError> {
    if policy.decide(identity, attributes) == Decision::Allow {
        return Ok(());
    }
    match attributes {
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => {
            Err(ApiError::forbidden_path(&identity.name, verb, path))
        }
        Attributes::Resource { .. } => unreachable!("a path is not a resource"),
    }
}
