//! The route of a request: to the agent's cluster, or to a virtual cluster in it.

use std::future::pending;

use postern_proxy::{ProxyError, Upstream};

use crate::virtual_clusters::{VirtualClusterRef, VirtualClusterRoute};

/// The agent's cluster, in words.
pub(crate) const CLUSTER: &str = "the cluster";

/// Where a request goes.
pub(crate) enum Route {
    /// To the cluster.
    Cluster(Upstream),
    /// To this virtual cluster.
    VirtualCluster(VirtualClusterRef, VirtualClusterRoute),
}

impl Route {
    /// The upstream that it leads to.
    pub(crate) fn upstream(&self) -> &Upstream {
        match self {
            Self::Cluster(upstream) => upstream,
            Self::VirtualCluster(_, route) => route.upstream(),
        }
    }

    /// The kind of target, in words.
    pub(crate) fn target(&self) -> &'static str {
        match self {
            Self::Cluster(_) => CLUSTER,
            Self::VirtualCluster(..) => "the virtual cluster",
        }
    }

    /// The virtual cluster, if the route leads to one.
    pub(crate) fn virtual_cluster(&self) -> Option<&VirtualClusterRef> {
        match self {
            Self::Cluster(_) => None,
            Self::VirtualCluster(target, _) => Some(target),
        }
    }

    /// Waits until requests to the same target take another route.
    pub(crate) async fn changed(&self) {
        match self {
            Self::Cluster(_) => pending().await,
            Self::VirtualCluster(_, route) => route.changed().await,
        }
    }

    /// Reads the kubeconfig again if the error can come from an outdated route.
    pub(crate) fn note_failure(&self, error: &ProxyError) {
        if let Self::VirtualCluster(_, route) = self {
            route.note_failure(error);
        }
    }

    /// Reads the kubeconfig again, because the target rejected its credential.
    pub(crate) fn note_rejected_credential(&self) {
        if let Self::VirtualCluster(_, route) = self {
            route.refresh_soon();
        }
    }
}
