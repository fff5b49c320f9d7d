//! The setup of the tests here: projects, clusters and instances.

use postern_tests::http::{Client, Response};
use postern_tests::objects::{CORE, GROUP, create, make};
use serde_json::{Value, json};

/// The collection of a namespaced kind of our own group.
pub(crate) fn in_namespace(namespace: &str, resource: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/{resource}")
}

/// The collection of instances of a project.
pub(crate) fn instances(project: &str) -> String {
    in_namespace(&format!("p-{project}"), "virtualclusterinstances")
}

/// The collection of core Secrets in a namespace.
pub(crate) fn core_secrets(namespace: &str) -> String {
    format!("{CORE}/namespaces/{namespace}/secrets")
}

/// The path of an action or a list of a project.
pub(crate) fn of_project(project: &str, what: &str) -> String {
    format!("{GROUP}/projects/{project}/{what}")
}

/// A virtual cluster instance on a cluster.
pub(crate) fn on_cluster(cluster: &str, name: &str) -> Value {
    json!({ "spec": { "clusterRef":
        { "cluster": cluster, "namespace": "n", "virtualCluster": name } } })
}

/// Creates the clusters `c1` and `c2`, the projects `a` and `b`, and the instance `v` in `a` on `c1`.
pub(crate) async fn two_projects(admin: &Client) -> Value {
    for cluster in ["c1", "c2"] {
        make(admin, "clusters", cluster, json!({})).await;
    }
    for project in ["a", "b"] {
        make(admin, "projects", project, json!({})).await;
    }
    create(admin, &instances("a"), "v", on_cluster("c1", "v")).await
}

/// Asks for a migration.
pub(crate) async fn migrate(
    client: &Client,
    (namespace, name): (&str, &str),
    to: &str,
    query: &str,
) -> Response {
    let path = of_project(to, "migratevirtualclusterinstance");
    let body = json!({
        "apiVersion": "management.platform.sh/v1",
        "kind": "ProjectMigrateVirtualClusterInstance",
        "sourceVirtualClusterInstance": { "name": name, "namespace": namespace },
    });
    client.post(&format!("{path}{query}")).json(&body).send().await
}
