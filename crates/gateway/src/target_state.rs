//! `TargetState`: the state of a target and the route to it, from the objects of the central server.

use std::sync::Arc;

use postern_auth::gateway_path::GatewayTarget;
use postern_auth::policy::target::{InstanceRef, ResolvedTarget};
use postern_kinds::cluster::{Cluster, RouteRule};
use postern_kinds::secret::Secret;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, KubeconfigRef, project};
use postern_meta::status::ApiError;
use postern_registry::registry::Registry;
use postern_registry::registry::deciding::ForDecision;
use postern_store::Position;
use serde::Deserialize;

use super::agent_route::{AgentRoute, EndpointAnnotations, LeadsTo};
use postern_http::stages::authorize::{SPACES, VIRTUAL_CLUSTERS};

/// The state of a target. If two states are equal, requests take the same route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetState {
    target: GatewayTarget,
    /// The resource, namespace and name of a target that is an instance.
    instance: Option<(&'static str, String, String)>,
    uid: String,
    space_namespace: Option<String>,
    /// Whether the target exists, as far as the central server knows.
    exists: bool,
    route: Route,
}

/// The route to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// With a kubeconfig in a core Secret.
    Kubeconfig(SecretKey),
    /// Through the agent of a cluster.
    Agent(AgentRoute),
    /// There is no route, for this reason.
    None(String),
}

/// A key of a core Secret, at one version of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretKey {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) key: String,
    /// The last change of the Secret; `None` if the Secret does not exist.
    pub(super) position: Option<Position>,
}

/// The fields of a Cluster or an instance that the gateway reads.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    metadata: StoredMetadata,
    spec: StoredSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredMetadata {
    name: String,
    uid: String,
    annotations: EndpointAnnotations,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredSpec {
    cluster_ref: Option<ClusterRef>,
    config: Option<KubeconfigRef>,
    connection: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterRef {
    cluster: String,
    namespace: String,
}

impl TargetState {
    /// The target for access decisions.
    pub fn resolved(&self) -> ResolvedTarget<'_> {
        let instance = self.instance.as_ref();
        ResolvedTarget {
            target: self.target.request_target(),
            instance: instance.map(|(resource, namespace, name)| InstanceRef {
                resource,
                namespace,
                name,
            }),
            space_namespace: self.space_namespace.as_deref(),
        }
    }

    /// Whether the target exists.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// The namespace of a space in its cluster.
    pub(super) fn space_namespace(&self) -> Option<&str> {
        self.space_namespace.as_deref()
    }

    /// The route to the target.
    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// Finds a target.
    ///
    /// # Errors
    /// 500 when a stored object is corrupt; 503 when the store does not respond.
    pub async fn find(registry: &Registry, target: &GatewayTarget) -> Result<Self, ApiError> {
        match target {
            GatewayTarget::Cluster { cluster } => Self::of_cluster(registry, target, cluster),
            GatewayTarget::Space { project, name } => {
                let namespace = namespace_of(registry, project);
                Self::of_instance(registry, target, &SpaceInstance, SPACES, &namespace, name)
            }
            GatewayTarget::ProjectVirtualCluster { project, name } => {
                let (namespace, kind) = (namespace_of(registry, project), &VirtualClusterInstance);
                Self::of_instance(registry, target, kind, VIRTUAL_CLUSTERS, &namespace, name)
            }
            GatewayTarget::VirtualCluster { cluster, namespace, name } => {
                let kind = &VirtualClusterInstance;
                let at = [cluster.as_str(), namespace, name].join("/");
                let Some((in_namespace, instance)) = registry.holder_of(kind, &at).await? else {
                    // Callers with access to the cluster reach the virtual cluster there, if the agent knows it.
                    let exists = stored(registry, &Cluster, None, cluster)?.is_some();
                    let why = "the central server has no instance for it, and the cluster's agent serves only instances";
                    let route = Route::None(why.to_owned());
                    return Ok(Self { exists, route, ..Self::missing(target) });
                };
                let of = VIRTUAL_CLUSTERS;
                Self::of_instance(registry, target, kind, of, &in_namespace, &instance)
            }
        }
    }

    fn missing(target: &GatewayTarget) -> Self {
        Self {
            target: target.clone(),
            instance: None,
            uid: String::new(),
            space_namespace: None,
            exists: false,
            route: Route::None("it does not exist".to_owned()),
        }
    }

    fn of_cluster(
        registry: &Registry,
        target: &GatewayTarget,
        name: &str,
    ) -> Result<Self, ApiError> {
        let Some(cluster) = stored(registry, &Cluster, None, name)? else {
            return Ok(Self::missing(target));
        };
        let route = route_to_cluster(registry, &cluster, "/kubernetes/cluster".to_owned())?;
        let uid = cluster.metadata.uid.clone();
        Ok(Self { uid, exists: true, route, ..Self::missing(target) })
    }

    /// The state of an instance of a project.
    fn of_instance(
        registry: &Registry,
        target: &GatewayTarget,
        kind: &'static dyn AnyKind,
        resource: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Self, ApiError> {
        let named = Some((resource, namespace.to_owned(), name.to_owned()));
        let missing = Self { instance: named, ..Self::missing(target) };
        let Some(instance) = stored(registry, kind, Some(namespace), name)? else {
            return Ok(missing);
        };
        let nowhere = ClusterRef::default();
        let at = instance.spec.cluster_ref.as_ref().unwrap_or(&nowhere);
        let is_space = resource == SPACES;
        let route = match &instance.spec.config {
            Some(config) if !is_space => by_kubeconfig(registry, config, namespace)?,
            _ if at.cluster.is_empty() => {
                Route::None("it has no cluster yet (spec.clusterRef)".to_owned())
            }
            _ => match stored(registry, &Cluster, None, &at.cluster)? {
                None => Route::None("its cluster does not exist".to_owned()),
                Some(cluster) => {
                    let policy = registry.cache().policy();
                    let project = policy.projects().of(namespace).unwrap_or_default();
                    let kind = if is_space { "space" } else { "virtualcluster" };
                    let prefix = format!("/kubernetes/project/{project}/{kind}/{name}");
                    if is_space {
                        route_to_cluster(registry, &cluster, prefix)?
                    } else {
                        let rule = RouteRule::of(&cluster.spec.connection).to_agent();
                        by_agent(&cluster, rule, prefix, LeadsTo::VirtualCluster)
                    }
                }
            },
        };
        let named = is_space && !at.namespace.is_empty();
        let space_namespace = named.then(|| at.namespace.clone());
        let uid = instance.metadata.uid.clone();
        Ok(Self { uid, space_namespace, exists: true, route, ..missing })
    }
}

/// The namespace of a project. If the project does not exist, it is the namespace that the project would have. So a
/// response to a caller without permission does not reveal whether the project exists.
fn namespace_of(registry: &Registry, project: &str) -> String {
    let namespace = project::namespace_of(project);
    let policy = registry.cache().policy();
    // The name of a namespace alone does not decide its project.
    if policy.projects().of(&namespace).is_none_or(|of| of == project) {
        namespace
    } else {
        String::new()
    }
}

/// The fields of an object that the gateway reads.
fn stored(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Arc<Stored>>, ApiError> {
    let object = registry.read_to_decide(kind, namespace, name)?;
    object.map(|object| object.kept_part()).transpose()
}

/// The route to a cluster, or to the target at `prefix` of its agent.
fn route_to_cluster(
    registry: &Registry,
    cluster: &Stored,
    prefix: String,
) -> Result<Route, ApiError> {
    let rule = RouteRule::of(&cluster.spec.connection);
    match &cluster.spec.config {
        Some(config) if rule.kubeconfig => by_kubeconfig(registry, config, ""),
        _ => Ok(by_agent(cluster, rule, prefix, LeadsTo::Cluster)),
    }
}

fn by_agent(cluster: &Stored, rule: RouteRule, prefix: String, leads_to: LeadsTo) -> Route {
    let StoredMetadata { name, uid, annotations } = &cluster.metadata;
    AgentRoute::of(name, uid, annotations, rule, prefix, leads_to).map_or_else(
        || {
            let why = if rule.endpoint {
                "its agent has no endpoint (annotation platform.sh/direct-cluster-endpoint), and spec.connection of the \
                 Cluster is Endpoint"
            } else {
                "the Cluster has no kubeconfig (spec.config), and spec.connection is Kubeconfig"
            };
            Route::None(why.to_owned())
        },
        Route::Agent,
    )
}

fn by_kubeconfig(
    registry: &Registry,
    config: &KubeconfigRef,
    namespace: &str,
) -> Result<Route, ApiError> {
    let in_namespace = config.namespace_in(namespace).to_owned();
    let secret = registry.read_to_decide(&Secret, Some(&in_namespace), &config.secret_name)?;
    Ok(Route::Kubeconfig(SecretKey {
        namespace: in_namespace,
        name: config.secret_name.clone(),
        key: config.key_or_default().to_owned(),
        position: secret.map(|secret| secret.position()),
    }))
}

/// The Secret with a kubeconfig, if it has not changed.
pub(super) fn secret_of(
    registry: &Registry,
    key: &SecretKey,
) -> Result<Option<ForDecision>, ApiError> {
    let secret = registry.read_to_decide(&Secret, Some(&key.namespace), &key.name)?;
    Ok(secret.filter(|secret| Some(secret.position()) == key.position))
}

/// The kinds of the objects that a target's state depends on.
pub(super) fn kinds() -> [&'static dyn AnyKind; 4] {
    [&Cluster, &SpaceInstance, &VirtualClusterInstance, &Secret]
}
