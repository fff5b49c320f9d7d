//! The paths of the gateway and of an agent (`docs/reference/clusters.md#gateway`). A path has a target,
//! and the rest is the path at the target.

use http::HeaderName;
use postern_meta::names::{dns1123_label, dns1123_subdomain};
use postern_meta::status::ApiError;

use crate::attributes::RequestTarget;

/// The start of all paths here. `/kubernetes/management` is not one of them.
const PREFIX: &str = "/kubernetes/";

/// The header with which an agent marks a 401 of a workload, so that it is not read as a refusal of
/// the token. It never comes from an upstream: the agent removes it from upstream responses, and
/// the gateway removes it before it responds.
pub const OF_WORKLOAD: HeaderName = HeaderName::from_static("postern-answer-of-workload");

/// The path at an agent at which the central server opens a connection for requests with long heads.
pub const AGENT_LONG_HEADS: &str = "/kubernetes/long-heads";

/// Where a request goes, with the names that its path had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayTarget {
    /// A connected cluster.
    Cluster {
        /// The Cluster.
        cluster: String,
    },
    /// A virtual cluster, by where it runs.
    VirtualCluster {
        /// The Cluster that it runs in.
        cluster: String,
        /// Its namespace there.
        namespace: String,
        /// Its name there.
        name: String,
    },
    /// A space of a project.
    Space {
        /// The project.
        project: String,
        /// The SpaceInstance.
        name: String,
    },
    /// A virtual cluster of a project.
    ProjectVirtualCluster {
        /// The project.
        project: String,
        /// The VirtualClusterInstance.
        name: String,
    },
}

impl GatewayTarget {
    /// The target, as scopes name it.
    pub fn request_target(&self) -> RequestTarget<'_> {
        match self {
            Self::Cluster { cluster } => RequestTarget::Cluster { cluster },
            Self::VirtualCluster { cluster, namespace, name } => {
                RequestTarget::VirtualCluster { cluster, namespace, name }
            }
            Self::Space { project, name } => RequestTarget::ProjectSpace { project, space: name },
            Self::ProjectVirtualCluster { project, name } => {
                RequestTarget::ProjectVirtualCluster { project, virtual_cluster: name }
            }
        }
    }
}

/// A path of the gateway, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPath<'a> {
    /// The target.
    pub target: GatewayTarget,
    /// The path at the target, as it was sent; never empty.
    pub rest: &'a str,
}

/// The target of a path at the central server; `None` when it is no path of the gateway.
///
/// # Errors
/// 400 when a name in it is none, or is missing.
pub fn at_server(path: &str) -> Option<Result<GatewayPath<'_>, ApiError>> {
    let rest = path.strip_prefix(PREFIX)?;
    let (kind, rest) = step(rest);
    match kind {
        "cluster" => Some(cluster(rest)),
        "virtualcluster" => Some(virtual_cluster(rest)),
        "project" => Some(of_project(rest)),
        _ => None,
    }
}

/// The target of a path at the agent of a cluster; `None` if it is no path of the agent. Paths at
/// an agent do not contain the name of the cluster.
///
/// # Errors
/// 400 if a name in the path is invalid or missing.
pub fn at_agent<'a>(path: &'a str, cluster: &str) -> Option<Result<GatewayPath<'a>, ApiError>> {
    let (kind, rest) = step(path.strip_prefix(PREFIX)?);
    match kind {
        "cluster" => {
            let target = GatewayTarget::Cluster { cluster: cluster.to_owned() };
            Some(Ok(GatewayPath { target, rest: or_root(rest) }))
        }
        "project" => Some(of_project(rest)),
        _ => None,
    }
}

/// The text up to the first slash, and the rest, which begins with that slash.
fn step(path: &str) -> (&str, &str) {
    path.split_at(path.find('/').unwrap_or(path.len()))
}

fn or_root(rest: &str) -> &str {
    if rest.is_empty() { "/" } else { rest }
}

/// Takes a name off the start of a path. The result is the name and the rest of the path. Names are
/// not decoded: a percent-encoded name is invalid.
fn name<'a>(
    path: &'a str,
    what: &str,
    rule: fn(&str) -> Result<(), String>,
) -> Result<(String, &'a str), ApiError> {
    let (name, rest) = step(path.strip_prefix('/').unwrap_or_default());
    rule(name)
        .map_err(|_| ApiError::bad_request(format!("the path has no valid name of a {what}")))?;
    Ok((name.to_owned(), rest))
}

fn cluster(path: &str) -> Result<GatewayPath<'_>, ApiError> {
    let (cluster, rest) = name(path, "cluster", dns1123_subdomain)?;
    Ok(GatewayPath { target: GatewayTarget::Cluster { cluster }, rest: or_root(rest) })
}

fn virtual_cluster(path: &str) -> Result<GatewayPath<'_>, ApiError> {
    let (cluster, rest) = name(path, "cluster", dns1123_subdomain)?;
    let (namespace, rest) = name(rest, "namespace", dns1123_label)?;
    let (name, rest) = name(rest, "virtual cluster", dns1123_subdomain)?;
    let target = GatewayTarget::VirtualCluster { cluster, namespace, name };
    Ok(GatewayPath { target, rest: or_root(rest) })
}

fn of_project(path: &str) -> Result<GatewayPath<'_>, ApiError> {
    let (project, rest) = name(path, "project", dns1123_subdomain)?;
    let (kind, rest) = step(rest.strip_prefix('/').unwrap_or_default());
    let (target, rest) = match kind {
        "virtualcluster" => {
            let (name, rest) = name(rest, "virtual cluster", dns1123_subdomain)?;
            (GatewayTarget::ProjectVirtualCluster { project, name }, rest)
        }
        "space" => {
            let (name, rest) = name(rest, "space", dns1123_subdomain)?;
            (GatewayTarget::Space { project, name }, rest)
        }
        _ => {
            let message = "the path of a project goes on with virtualcluster/NAME or space/NAME";
            return Err(ApiError::bad_request(message));
        }
    };
    Ok(GatewayPath { target, rest: or_root(rest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target and the rest in a few words; or the code.
    fn words(path: Option<Result<GatewayPath<'_>, ApiError>>) -> String {
        match path {
            None => "none".to_owned(),
            Some(Err(error)) => error.code().to_string(),
            Some(Ok(GatewayPath { target, rest })) => {
                let target = match target {
                    GatewayTarget::Cluster { cluster } => format!("cluster {cluster}"),
                    GatewayTarget::VirtualCluster { cluster, namespace, name } => {
                        format!("place {cluster} {namespace} {name}")
                    }
                    GatewayTarget::Space { project, name } => format!("space {project} {name}"),
                    GatewayTarget::ProjectVirtualCluster { project, name } => {
                        format!("virtual {project} {name}")
                    }
                };
                format!("{target} {rest}")
            }
        }
    }

    #[test]
    fn the_paths_of_the_gateway() {
        for (path, want) in [
            ("/kubernetes/cluster/c", "cluster c /"),
            ("/kubernetes/cluster/c/", "cluster c /"),
            ("/kubernetes/cluster/c.x/api/v1/pods", "cluster c.x /api/v1/pods"),
            ("/kubernetes/cluster/c//api", "cluster c //api"),
            ("/kubernetes/virtualcluster/c/ns/v/api", "place c ns v /api"),
            ("/kubernetes/project/p/virtualcluster/v/version", "virtual p v /version"),
            ("/kubernetes/project/p/space/s/api/%2e", "space p s /api/%2e"),
            ("/kubernetes/project/p/space/s", "space p s /"),
            ("/kubernetes/cluster", "400"),
            ("/kubernetes/cluster/", "400"),
            ("/kubernetes/cluster//c/api", "400"),
            ("/kubernetes/cluster/../management/api", "400"),
            ("/kubernetes/cluster/%63/api", "400"),
            ("/kubernetes/cluster/C/api", "400"),
            ("/kubernetes/cluster/c;x=1/api", "400"),
            ("/kubernetes/virtualcluster/c/ns", "400"),
            ("/kubernetes/virtualcluster/c/n.s/v", "400"),
            ("/kubernetes/project/p", "400"),
            ("/kubernetes/project/p/spaces/s", "400"),
            ("/kubernetes/project/p/space//s", "400"),
            ("/kubernetes/project/p/virtualcluster/", "400"),
            ("/kubernetes/management/api", "none"),
            ("/kubernetes/clusters/c", "none"),
            ("/kubernetes/%63luster/c", "none"),
            ("//kubernetes/cluster/c", "none"),
            ("/kubernetes//cluster/c", "none"),
            ("/cluster/c", "none"),
        ] {
            assert_eq!(words(at_server(path)), want, "{path}");
        }
    }

    #[test]
    fn an_agents_paths_do_not_name_its_cluster() {
        for (path, want) in [
            ("/kubernetes/cluster/api/v1/pods", "cluster c /api/v1/pods"),
            ("/kubernetes/cluster", "cluster c /"),
            ("/kubernetes/project/p/space/s/api", "space p s /api"),
            ("/kubernetes/project/p/virtualcluster/v", "virtual p v /"),
            ("/kubernetes/virtualcluster/c/ns/v/api", "none"),
            ("/kubernetes/clusterx/api", "none"),
            ("/healthz", "none"),
        ] {
            assert_eq!(words(at_agent(path, "c")), want, "{path}");
        }
    }
}
