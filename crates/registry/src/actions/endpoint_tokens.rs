//! Issues endpoint tokens: a JWT for the caller, within the scopes of its access key
//! (`docs/reference/endpoint-tokens.md`). Only this response has the token, and it is not stored. The time until
//! which tokens of the key can be valid is recorded.

use std::collections::HashSet;

use postern_auth::attributes::Attributes;
use postern_auth::bearer::MAX_TOKEN_BYTES;
use postern_auth::endpoint_token::{
    Bearer, Claims, ConnectedCluster, GENERAL_AUDIENCE, Issuance, IssueError, audiences,
};
use postern_auth::identity::Identity;
use postern_auth::policy::Policy;
use postern_auth::policy::target::{ForwardedIdentity, TargetRefusal};
use postern_auth::scope::{Instance, ReachableClusters, contains, reachable_clusters};
use postern_kinds::cluster::Cluster;
use postern_kinds::direct_cluster_endpoint_token::{DirectClusterEndpointToken, Fields, Status};
use postern_kinds::scope;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, MANAGEMENT_V1, SecretText};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::{ApiError, Reason};
use postern_meta::time::Timestamp;
use serde::Deserialize;

use super::cluster_groups;
use crate::admit::{self, Writing};
use crate::cache::PolicyAt;
use crate::clock::new_uid;
use crate::permit::Permit;
use crate::registry::deciding::ForDecision;
use crate::registry::issued_tokens::TokenIdentity;
use crate::registry::{EncodedObject, Registry};

/// The objects that are checked before other tasks get the thread.
const OBJECTS_PER_STEP: usize = 256;

/// Adds a token to the posted object.
///
/// # Errors
/// 422 for an invalid lifetime or scope, and for a scope that reaches no cluster. 403 for a scope that is not within
/// the scope of the access key.
pub(super) async fn issue(
    registry: &Registry,
    permit: &Permit,
    posted: Option<Object>,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    let posted = posted.ok_or_else(|| ApiError::bad_request("the request body is missing"))?;
    let mut object = admit::review(&registry.admission(), permit, posted)?;
    let mut fields = Fields::deserialize(&object.fields).unwrap_or_default();
    let ttl_seconds = fields.spec.ttl.unwrap_or_default();
    check_ttl(ttl_seconds, registry.token_policy().max_ttl_seconds)?;
    check_forwarded(registry, permit)?;
    let scope = fields.spec.scope.as_ref();
    let now = registry.source().now();
    let token_identity = if writing.dry_run {
        TokenIdentity::now(registry, permit.credential(), now).await?
    } else {
        TokenIdentity::noted(registry, permit.credential(), now, ttl_seconds).await?
    };
    let TokenIdentity { revocation_revision, current, .. } = token_identity;
    let wanted = permit.credential().wanted();
    let bearer = Bearer { key: &current.key, identity: current.identity(), wanted, scope };
    let policy = registry.cache().policy();
    check_contained(&policy, &bearer)?;
    let mut claims = Claims::of(
        &bearer,
        Issuance {
            issuer: registry.token_policy().issuer.clone(),
            audiences: audiences_of(registry, &policy, &bearer).await?,
            issued_at: now.unix_seconds(),
            ttl_seconds,
            token_id: new_uid(registry.source()),
            revocation_revision,
        },
    );
    claims.groups = cluster_groups::kept(registry, claims.groups);
    let token = signed(registry, now, &claims)?;
    fields.status = if writing.dry_run { Status::default() } else { Status { token } };
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(fields) else {
        return Err(ApiError::internal("the response could not be encoded", "a token"));
    };
    let ObjectMeta { name, labels, annotations, .. } = object.metadata;
    let creation_timestamp = Some(now);
    object.metadata =
        ObjectMeta { name, labels, annotations, creation_timestamp, ..ObjectMeta::default() };
    object.fields = fields;
    EncodedObject::for_action(permit, permit.kind(), &object)
}

fn invalid(error: FieldError) -> ApiError {
    let mut errors = FieldErrors::new();
    errors.push(error);
    ApiError::invalid(DirectClusterEndpointToken.info().group_kind(), "", errors)
}

/// Checks that agents can act as the whole identity that the caller impersonates. If a part cannot be forwarded, the
/// request is rejected; no part is dropped (`docs/reference/clusters.md#forwarded-identity`).
pub(super) fn check_forwarded(registry: &Registry, permit: &Permit) -> Result<(), ApiError> {
    let (credential, groups) = (permit.credential(), &registry.token_policy().forward_groups);
    let forwarded = ForwardedIdentity::of(credential.identity(), credential.wanted(), groups);
    let resource = DirectClusterEndpointToken.info().group_resource();
    let forbidden = |refusal: TargetRefusal| ApiError::forbidden(resource, "", refusal.to_string());
    forwarded.map(|_| ()).map_err(forbidden)
}

fn check_ttl(ttl_seconds: i64, max_seconds: i64) -> Result<(), ApiError> {
    if ttl_seconds <= max_seconds {
        return Ok(());
    }
    let detail = format!("must be at most {max_seconds} seconds");
    Err(invalid(FieldError::invalid("spec.ttl", ttl_seconds, detail)))
}

/// Checks that a token reaches no further than the access key of the request
/// (`docs/reference/scopes.md#containment`). The key's own scopes limit the token in any case. The error tells a
/// caller that requests more.
fn check_contained(policy: &Policy, bearer: &Bearer<'_>) -> Result<(), ApiError> {
    let Some(scope) = bearer.scope else { return Ok(()) };
    contains(&bearer.identity.scopes, scope, policy.projects()).map_err(|why| {
        let text = format!("the token exceeds the scope of your own access key: {why}");
        let resource = DirectClusterEndpointToken.info().group_resource();
        ApiError::forbidden(resource, "", text)
    })
}

fn signed(registry: &Registry, now: Timestamp, claims: &Claims) -> Result<SecretText, ApiError> {
    let keys = registry.cache().signing_keys();
    let signer = keys.signer(now).ok_or_else(|| {
        let message = "no signing key is valid: the operator of the server must run postern admin \
                       rotate-signing-key --force";
        ApiError::new(503, Reason::ServiceUnavailable, message)
    })?;
    signer.issue(claims).map_err(|error| match error {
        IssueError::TooLong => too_long(claims),
        IssueError::Failed => ApiError::internal("the token could not be signed", "signing"),
    })
}

/// The 422 for a token that would be too long. It names the longest list in it, and how to shorten that list.
fn too_long(claims: &Claims) -> ApiError {
    let platform = &claims.platform;
    let bytes_of =
        |list: &dyn Fn() -> serde_json::Result<String>| list().map_or(0, |text| text.len());
    let lists = [
        (
            "groups of the caller",
            claims.groups.len(),
            bytes_of(&|| serde_json::to_string(&claims.groups)),
            "list those that clusters need in spec.clusterGroups of the Connector, or remove others from spec.groups of the \
             User",
        ),
        (
            "teams of the caller",
            platform.teams.len(),
            bytes_of(&|| serde_json::to_string(&(&platform.teams, &platform.principal_uids))),
            "leave teams, or use the access key of one team",
        ),
        (
            "entries in the scopes of the access key, of the keys that made it and of the token",
            platform.scopes.iter().map(scope::count).sum(),
            bytes_of(&|| serde_json::to_string(&platform.scopes)),
            "use an access key with fewer entries in its scope, or name less in spec.scope",
        ),
        (
            "clusters of the token",
            claims.aud.len(),
            bytes_of(&|| serde_json::to_string(&claims.aud)),
            "name fewer clusters in spec.scope",
        ),
    ];
    let longest = lists.into_iter().max_by_key(|(_, _, bytes, _)| *bytes);
    let Some((what, count, bytes, how)) = longest else {
        return ApiError::internal("the token is too long", "without a list");
    };
    let detail = format!(
        "the token would be longer than {MAX_TOKEN_BYTES} bytes: the {what} ({count}) take {bytes} bytes: {how}; \
         requests through the central server (postern connect --gateway) have no such limit"
    );
    invalid(FieldError::invalid("spec.scope", BadValue::Omitted, detail))
}

/// The audiences of the token: its clusters, or the general audience.
async fn audiences_of(
    registry: &Registry,
    policy: &PolicyAt,
    bearer: &Bearer<'_>,
) -> Result<Vec<String>, ApiError> {
    let scopes = bearer.scopes();
    let scopes = || scopes.iter().map(|scope| &**scope);
    if reachable_clusters(scopes(), &[], &[]) == ReachableClusters::Every {
        return Ok(vec![GENERAL_AUDIENCE.to_owned()]);
    }
    let known = KnownObjects::visible_to(registry, policy, bearer.identity).await?;
    let clusters: Vec<_> =
        known.clusters.iter().map(|(name, uid)| ConnectedCluster { name, uid }).collect();
    let instances: Vec<_> = known.instances.iter().map(LocatedInstance::borrowed).collect();
    audiences(scopes(), &clusters, &instances).map_err(|_| {
        let detail = "the token would reach no connected cluster: name a cluster that you may use, or a \
                      project, a space or a virtual cluster on one; the scope of the access key also \
                      applies";
        invalid(FieldError::invalid("spec.scope", BadValue::Omitted, detail))
    })
}

/// The connected clusters that the scopes of an identity reach, without those that it may not know.
///
/// # Errors
/// 500 for a cluster that cannot be decoded.
pub(super) async fn reached_clusters(
    registry: &Registry,
    policy: &PolicyAt,
    identity: &Identity,
) -> Result<ReachableClusters, ApiError> {
    let scopes = || identity.scopes.iter().map(|scope| &**scope);
    if reachable_clusters(scopes(), &[], &[]) == ReachableClusters::Every {
        return Ok(ReachableClusters::Every);
    }
    let known = KnownObjects::visible_to(registry, policy, identity).await?;
    let clusters: Vec<&str> = known.clusters.iter().map(|(name, _)| name.as_str()).collect();
    let instances: Vec<_> = known.instances.iter().map(LocatedInstance::borrowed).collect();
    Ok(reachable_clusters(scopes(), &clusters, &instances))
}

/// The clusters and instances that the bearer of a token may know. The response must not tell whether others exist,
/// and a token has no use at them.
#[derive(Default)]
struct KnownObjects {
    /// Names and uids.
    clusters: Vec<(String, String)>,
    instances: Vec<LocatedInstance>,
}

/// An instance and its location.
struct LocatedInstance {
    project: String,
    name: String,
    is_space: bool,
    location: ClusterRef,
}

impl LocatedInstance {
    fn borrowed(&self) -> Instance<'_> {
        let Self { project, name, location, .. } = self;
        let ClusterRef { cluster, namespace, virtual_cluster } = location;
        if self.is_space {
            Instance::Space { project, name, cluster }
        } else {
            Instance::VirtualCluster { project, name, cluster, namespace, virtual_cluster }
        }
    }
}

/// The part of an instance with its location.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterRef {
    cluster: String,
    namespace: String,
    virtual_cluster: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InstanceSpec {
    cluster_ref: ClusterRef,
}

#[derive(Deserialize)]
struct InstanceParts {
    #[serde(default)]
    spec: InstanceSpec,
}

impl KnownObjects {
    async fn visible_to(
        registry: &Registry,
        policy: &PolicyAt,
        identity: &Identity,
    ) -> Result<Self, ApiError> {
        let mut known = Self::default();
        for (kind, is_space) in
            [(&VirtualClusterInstance as &dyn AnyKind, false), (&SpaceInstance, true)]
        {
            for (object, namespace, name) in visible(registry, policy, identity, kind).await {
                let Some(project) = policy.projects().of(&namespace) else { continue };
                let Ok(parts) = object.part::<InstanceParts>() else { continue };
                let (project, location) = (project.to_owned(), parts.spec.cluster_ref);
                known.instances.push(LocatedInstance { project, name, is_space, location });
            }
        }
        let on: HashSet<&str> =
            known.instances.iter().map(|one| one.location.cluster.as_str()).collect();
        // Corrupt clusters are left out: without them, a token only reaches less.
        for object in registry.all_to_decide(&Cluster, None).0 {
            let name = object.name();
            // A caller that may use an instance may know its cluster.
            if on.contains(name) || may_know(policy, identity, &Cluster, "", name) {
                let uid = object.part::<Object>()?.metadata.uid;
                known.clusters.push((name.to_owned(), uid));
            }
        }
        Ok(known)
    }
}

/// The objects of a kind that an identity may use or read, with their namespaces and names, without corrupt objects.
async fn visible(
    registry: &Registry,
    policy: &PolicyAt,
    identity: &Identity,
    kind: &'static dyn AnyKind,
) -> Vec<(ForDecision, String, String)> {
    let mut visible = Vec::new();
    let (all, _) = registry.all_to_decide(kind, None);
    for (index, object) in all.into_iter().enumerate() {
        if index % OBJECTS_PER_STEP == OBJECTS_PER_STEP - 1 {
            tokio::task::yield_now().await;
        }
        let namespace = object.namespace().unwrap_or_default().to_owned();
        let name = object.name().to_owned();
        if may_know(policy, identity, kind, &namespace, &name) {
            visible.push((object, namespace, name));
        }
    }
    visible
}

/// Whether an identity may use or read an object. Its scopes are not checked.
fn may_know(
    policy: &Policy,
    identity: &Identity,
    kind: &dyn AnyKind,
    namespace: &str,
    name: &str,
) -> bool {
    ["use", "get"].into_iter().any(|verb| {
        let resource = kind.info().plural;
        let group = MANAGEMENT_V1.group;
        let attributes =
            Attributes::Resource { verb, group, resource, subresource: "", namespace, name };
        policy.is_held(identity, &attributes)
    })
}
