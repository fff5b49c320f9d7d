//! The connected clusters that scopes reach (`docs/reference/endpoint-tokens.md#audiences`). A rule
//! names them, or they have an instance of a named project, space or virtual cluster.

use std::collections::BTreeSet;

use super::ScopeRules;
use crate::attributes::RequestTarget;

/// A name that no cluster, project or instance can have: a scope that reaches it reaches all.
const UNUSED_NAME: &str = "*";

/// An instance of a project, and the cluster that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance<'a> {
    /// A SpaceInstance.
    Space {
        /// Its project.
        project: &'a str,
        /// Its name.
        name: &'a str,
        /// The name of its cluster.
        cluster: &'a str,
    },
    /// A VirtualClusterInstance.
    VirtualCluster {
        /// Its project.
        project: &'a str,
        /// Its name.
        name: &'a str,
        /// The name of its cluster.
        cluster: &'a str,
        /// Its namespace there.
        namespace: &'a str,
        /// Its name there.
        virtual_cluster: &'a str,
    },
}

impl<'a> Instance<'a> {
    fn cluster(&self) -> &'a str {
        match *self {
            Self::Space { cluster, .. } | Self::VirtualCluster { cluster, .. } => cluster,
        }
    }
}

/// The clusters that scopes reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachableClusters {
    /// Every cluster, also one that is connected later.
    Every,
    /// The clusters of these names.
    Only(BTreeSet<String>),
}

/// The clusters that all of these scopes reach. Without a scope, that is every one. `clusters` are
/// the names of those that are connected, `instances` those of all projects.
pub fn reachable_clusters<'s>(
    scopes: impl IntoIterator<Item = &'s ScopeRules>,
    clusters: &[&str],
    instances: &[Instance<'_>],
) -> ReachableClusters {
    scopes.into_iter().fold(ReachableClusters::Every, |reached, scope| {
        match (reached, scope.clusters(clusters, instances)) {
            (ReachableClusters::Every, own) => own,
            (reached, ReachableClusters::Every) => reached,
            (ReachableClusters::Only(mut both), ReachableClusters::Only(own)) => {
                both.retain(|name| own.contains(name));
                ReachableClusters::Only(both)
            }
        }
    })
}

impl ScopeRules {
    fn clusters(&self, clusters: &[&str], instances: &[Instance<'_>]) -> ReachableClusters {
        if self.has_rule_for_every_cluster() {
            return ReachableClusters::Every;
        }
        let named = clusters.iter().copied();
        let named = named.filter(|name| self.reaches(RequestTarget::Cluster { cluster: name }));
        let homes = instances.iter().filter(|instance| self.reaches_home(instance));
        // An instance may be on a cluster that is not connected any more.
        let homes = homes.map(Instance::cluster).filter(|name| clusters.contains(name));
        ReachableClusters::Only(named.chain(homes).map(str::to_owned).collect())
    }

    /// Whether it has a rule that names no cluster and no virtual cluster.
    fn has_rule_for_every_cluster(&self) -> bool {
        let (project, cluster, namespace, name) =
            (UNUSED_NAME, UNUSED_NAME, UNUSED_NAME, UNUSED_NAME);
        [
            RequestTarget::Cluster { cluster },
            RequestTarget::VirtualCluster { cluster, namespace, name },
            RequestTarget::ProjectSpace { project, space: name },
            RequestTarget::ProjectVirtualCluster { project, virtual_cluster: name },
        ]
        .into_iter()
        .any(|target| self.rules.reach_target(target))
    }

    fn reaches_home(&self, instance: &Instance<'_>) -> bool {
        match *instance {
            Instance::Space { project, name, .. } => {
                self.reaches(RequestTarget::ProjectSpace { project, space: name })
            }
            Instance::VirtualCluster { project, name, cluster, namespace, virtual_cluster } => {
                let by_project =
                    RequestTarget::ProjectVirtualCluster { project, virtual_cluster: name };
                let by_place =
                    RequestTarget::VirtualCluster { cluster, namespace, name: virtual_cluster };
                self.reaches(by_project) || self.reaches(by_place)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::scope::Scope;
    use serde_json::{Value, json};

    use super::*;

    fn scope(value: Value) -> ScopeRules {
        ScopeRules::new(&serde_json::from_value::<Scope>(value).unwrap())
    }

    const CLUSTERS: [&str; 3] = ["east", "north", "west"];

    const INSTANCES: [Instance<'_>; 5] = [
        Instance::Space { project: "web", name: "dev", cluster: "east" },
        Instance::Space { project: "web", name: "old", cluster: "gone" },
        Instance::Space { project: "db", name: "dev", cluster: "west" },
        Instance::VirtualCluster {
            project: "web",
            name: "ci",
            cluster: "west",
            namespace: "vc-ci",
            virtual_cluster: "ci-1",
        },
        Instance::VirtualCluster {
            project: "db",
            name: "ci",
            cluster: "north",
            namespace: "vc-db",
            virtual_cluster: "db-1",
        },
    ];

    fn reached(scopes: &[ScopeRules]) -> ReachableClusters {
        reachable_clusters(scopes, &CLUSTERS, &INSTANCES)
    }

    fn only(names: &[&str]) -> ReachableClusters {
        ReachableClusters::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_scope_reaches_the_clusters_that_it_names_and_those_of_its_instances() {
        for (value, clusters) in [
            (json!({}), only(&[])),
            (json!({ "allowPlatformCli": true }), only(&[])),
            (json!({ "projects": [{ "project": "web" }] }), only(&["east", "west"])),
            (json!({ "projects": [{ "project": "*" }] }), only(&["east", "north", "west"])),
            (json!({ "projects": [{ "project": "none" }] }), only(&[])),
            (json!({ "spaces": [{ "project": "web", "space": "dev" }] }), only(&["east"])),
            (json!({ "spaces": [{ "project": "web", "space": "old" }] }), only(&[])),
            (json!({ "spaces": [{ "project": "db", "space": "*" }] }), only(&["west"])),
            (
                json!({ "virtualClusters": [{ "project": "db", "virtualCluster": "ci" }] }),
                only(&["north"]),
            ),
            (json!({ "rules": [{ "cluster": "west" }] }), only(&["west"])),
            (json!({ "rules": [{ "cluster": "other" }] }), only(&[])),
            (json!({ "rules": [{ "cluster": "east", "verbs": ["get"] }] }), only(&["east"])),
            (
                json!({ "rules": [{ "cluster": "east", "requestTargets": ["Management"] }] }),
                only(&[]),
            ),
            (json!({ "rules": [{ "requestTargets": ["Management"] }] }), only(&[])),
            (json!({ "rules": [{ "requestTargets": ["Cluster"] }] }), ReachableClusters::Every),
            (
                json!({ "rules": [{ "requestTargets": ["ProjectSpace"] }] }),
                ReachableClusters::Every,
            ),
            (json!({ "rules": [{ "verbs": ["get"] }] }), ReachableClusters::Every),
            (json!({ "rules": [{ "virtualClusters": [{ "name": "db-1" }] }] }), only(&["north"])),
            (
                json!({ "rules": [{ "virtualClusters": [{ "namespace": "vc-ci" }] }] }),
                only(&["west"]),
            ),
            (json!({ "rules": [{ "virtualClusters": [{}] }] }), ReachableClusters::Every),
            (
                json!({
                    "rules": [{ "cluster": "north" }],
                    "spaces": [{ "project": "web", "space": "dev" }],
                }),
                only(&["east", "north"]),
            ),
        ] {
            assert_eq!(reached(&[scope(value.clone())]), clusters, "{value}");
        }
    }

    #[test]
    fn several_scopes_reach_what_all_of_them_reach() {
        let every = || scope(json!({ "rules": [{}] }));
        let web = || scope(json!({ "projects": [{ "project": "web" }] }));
        let db = || scope(json!({ "projects": [{ "project": "db" }] }));
        assert_eq!(reached(&[]), ReachableClusters::Every);
        assert_eq!(reached(&[every(), every()]), ReachableClusters::Every);
        assert_eq!(reached(&[every(), web()]), only(&["east", "west"]));
        assert_eq!(reached(&[web(), every(), db()]), only(&["west"]));
        assert_eq!(reached(&[web(), db(), scope(json!({}))]), only(&[]));
    }
}
