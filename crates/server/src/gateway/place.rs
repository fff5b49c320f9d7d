//! Where a target is: the objects of the central server that say so.

use std::collections::BTreeMap;

use postern_auth::gateway_path::GatewayTarget;
use postern_auth::policy::target::{InstanceRef, ResolvedTarget};
use postern_kinds::cluster::Cluster;
use postern_kinds::secret::Secret;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, KubeconfigRef, project};
use postern_meta::status::ApiError;
use postern_registry::registry::Registry;
use postern_registry::registry::deciding::ForDecision;
use postern_store::Position;
use serde::Deserialize;

use super::agent::AgentRoute;
use crate::stages::authorize::{SPACES, VIRTUAL_CLUSTERS};

/// The known state of a target. As long as two are equal, a request takes the same route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    target: GatewayTarget,
    /// Kind, namespace and name of the instance that it is, and its uid when it is there.
    instance: Option<(&'static str, String, String)>,
    uid: String,
    space_namespace: Option<String>,
    /// Is the target there, as far as the central server knows?
    is_there: bool,
    /// The way to it.
    way: Way,
}

/// The way to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a kubeconfig in a core Secret.
    Kubeconfig(SecretKey),
    /// Through the agent of a cluster.
    Agent(AgentRoute),
    /// There is none: why.
    None(String),
}

/// A key of a core Secret, at one state of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretKey {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) key: String,
    /// The Secret's last change; `None` when it is not there.
    pub(super) position: Option<Position>,
}

/// The fields of a Cluster or an instance that count here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    metadata: StoredMetadata,
    spec: StoredSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredMetadata {
    uid: String,
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredSpec {
    cluster_ref: Option<ClusterRef>,
    config: Option<KubeconfigRef>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterRef {
    cluster: String,
    namespace: String,
}

impl Found {
    /// The facts that access decisions need.
    pub(crate) fn place(&self) -> ResolvedTarget<'_> {
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

    /// Is the target there?
    pub(crate) fn is_there(&self) -> bool {
        self.is_there
    }

    /// The way to it.
    pub(super) fn way(&self) -> &Way {
        &self.way
    }

    /// Finds a target.
    ///
    /// # Errors
    /// 500 when what is stored is damaged; 503 when the store does not answer.
    pub(crate) async fn find(
        registry: &Registry,
        target: &GatewayTarget,
    ) -> Result<Self, ApiError> {
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
                    // Callers who may use the cluster reach it there, if its agent knows it.
                    let is_there = stored(registry, &Cluster, None, cluster)?.is_some();
                    let why =
                        "no instance is known there, and its cluster's agent serves instances";
                    let way = Way::None(why.to_owned());
                    return Ok(Self { is_there, way, ..Self::nowhere(target) });
                };
                let of = VIRTUAL_CLUSTERS;
                Self::of_instance(registry, target, kind, of, &in_namespace, &instance)
            }
        }
    }

    fn nowhere(target: &GatewayTarget) -> Self {
        Self {
            target: target.clone(),
            instance: None,
            uid: String::new(),
            space_namespace: None,
            is_there: false,
            way: Way::None("it is not there".to_owned()),
        }
    }

    fn of_cluster(
        registry: &Registry,
        target: &GatewayTarget,
        name: &str,
    ) -> Result<Self, ApiError> {
        let Some(cluster) = stored(registry, &Cluster, None, name)? else {
            return Ok(Self::nowhere(target));
        };
        let way = way_to_cluster(registry, &cluster, "/kubernetes/cluster".to_owned())?;
        let uid = cluster.metadata.uid;
        Ok(Self { uid, is_there: true, way, ..Self::nowhere(target) })
    }

    /// The known state of an instance of a project.
    fn of_instance(
        registry: &Registry,
        target: &GatewayTarget,
        kind: &'static dyn AnyKind,
        resource: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Self, ApiError> {
        let named = Some((resource, namespace.to_owned(), name.to_owned()));
        let nowhere = Self { instance: named, ..Self::nowhere(target) };
        let Some(instance) = stored(registry, kind, Some(namespace), name)? else {
            return Ok(nowhere);
        };
        let at = instance.spec.cluster_ref.unwrap_or_default();
        let is_space = resource == SPACES;
        let way = match instance.spec.config {
            Some(config) if !is_space => by_kubeconfig(registry, &config, namespace)?,
            _ if at.cluster.is_empty() => Way::None("it names no cluster yet".to_owned()),
            _ => match stored(registry, &Cluster, None, &at.cluster)? {
                None => Way::None("its cluster is not there".to_owned()),
                Some(cluster) => {
                    let policy = registry.cache().policy();
                    let project = policy.projects().of(namespace).unwrap_or_default();
                    let kind = if is_space { "space" } else { "virtualcluster" };
                    let prefix = format!("/kubernetes/project/{project}/{kind}/{name}");
                    if is_space {
                        way_to_cluster(registry, &cluster, prefix)?
                    } else {
                        by_agent(&cluster, prefix)
                    }
                }
            },
        };
        let space_namespace = is_space.then_some(at.namespace).filter(|name| !name.is_empty());
        let uid = instance.metadata.uid;
        Ok(Self { uid, space_namespace, is_there: true, way, ..nowhere })
    }
}

/// The namespace of a project. If there is no project, it is the namespace that it would have: a
/// response to a caller without permission must not tell whether the project exists.
fn namespace_of(registry: &Registry, project: &str) -> String {
    let namespace = project::namespace_of(project);
    let policy = registry.cache().policy();
    // Which project a namespace belongs to is never read off its name alone.
    if policy.projects().of(&namespace).is_none_or(|of| of == project) {
        namespace
    } else {
        String::new()
    }
}

/// An object, as far as it counts here.
fn stored(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Stored>, ApiError> {
    let object = registry.read_to_decide(kind, namespace, name)?;
    object.map(|object| object.part()).transpose()
}

/// The way to a cluster, or to what is at `prefix` of its agent.
fn way_to_cluster(registry: &Registry, cluster: &Stored, prefix: String) -> Result<Way, ApiError> {
    match &cluster.spec.config {
        Some(config) => by_kubeconfig(registry, config, ""),
        None => Ok(by_agent(cluster, prefix)),
    }
}

fn by_agent(cluster: &Stored, prefix: String) -> Way {
    let StoredMetadata { uid, annotations } = &cluster.metadata;
    AgentRoute::of(uid, annotations, prefix).map_or_else(
        || {
            let why = "it has no kubeconfig (spec.config), and no agent says where it is reached \
                       (platform.sh/direct-cluster-endpoint on the Cluster)";
            Way::None(why.to_owned())
        },
        Way::Agent,
    )
}

fn by_kubeconfig(
    registry: &Registry,
    config: &KubeconfigRef,
    namespace: &str,
) -> Result<Way, ApiError> {
    let in_namespace = config.namespace_in(namespace).to_owned();
    let secret = registry.read_to_decide(&Secret, Some(&in_namespace), &config.secret_name)?;
    Ok(Way::Kubeconfig(SecretKey {
        namespace: in_namespace,
        name: config.secret_name.clone(),
        key: config.key_or_default().to_owned(),
        position: secret.map(|secret| secret.position()),
    }))
}

/// The Secret that a kubeconfig is in, if it is still in that state.
pub(super) fn secret_of(
    registry: &Registry,
    key: &SecretKey,
) -> Result<Option<ForDecision>, ApiError> {
    let secret = registry.read_to_decide(&Secret, Some(&key.namespace), &key.name)?;
    Ok(secret.filter(|secret| Some(secret.position()) == key.position))
}

/// The kinds whose objects say where a target is.
pub(super) fn kinds() -> [&'static dyn AnyKind; 4] {
    [&Cluster, &SpaceInstance, &VirtualClusterInstance, &Secret]
}
