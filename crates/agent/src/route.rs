//! The way of a request: to the agent's cluster, or to a virtual cluster in it.

use std::future::pending;

use postern_proxy::{ProxyError, Upstream};

use crate::virtual_clusters::{Place, Reached};

/// Where a request goes.
pub(crate) enum Way {
    /// To the cluster.
    Cluster(Upstream),
    /// To a virtual cluster, which is at this place.
    VirtualCluster(Place, Reached),
}

impl Way {
    /// The upstream that it leads to.
    pub(crate) fn upstream(&self) -> &Upstream {
        match self {
            Self::Cluster(upstream) => upstream,
            Self::VirtualCluster(_, reached) => reached.upstream(),
        }
    }

    /// The kind of target, in words.
    pub(crate) fn target(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "the cluster",
            Self::VirtualCluster(..) => "the virtual cluster",
        }
    }

    /// The place of the virtual cluster, if it leads to one.
    pub(crate) fn place(&self) -> Option<&Place> {
        match self {
            Self::Cluster(_) => None,
            Self::VirtualCluster(place, _) => Some(place),
        }
    }

    /// Waits until requests to the same target take another way.
    pub(crate) async fn changed(&self) {
        match self {
            Self::Cluster(_) => pending().await,
            Self::VirtualCluster(_, reached) => reached.changed().await,
        }
    }

    /// Notes an error, which may come from a way that is out of date.
    pub(crate) fn suspect_after(&self, error: &ProxyError) {
        if let Self::VirtualCluster(_, reached) = self {
            reached.suspect_after(error);
        }
    }

    /// Notes that the target does not take the credential.
    pub(crate) fn suspect_credential(&self) {
        if let Self::VirtualCluster(_, reached) = self {
            reached.suspect();
        }
    }
}
