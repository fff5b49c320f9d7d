//! A migration takes the rights to all that it moves, and a check of escalation has an end.

use postern_tests::Server;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{GROUP, create, make, make_kubeconfig};
use postern_tests::rights::{allow, rbac, rule, rule_on, user};
use serde_json::{Value, json};

use crate::regressions::scene::{core_rule, in_namespace};

async fn migrate(client: &Client, query: &str) -> Response {
    let path = format!("{GROUP}/projects/b/migratevirtualclusterinstance{query}");
    let body = json!({
        "apiVersion": "management.platform.sh/v1",
        "kind": "ProjectMigrateVirtualClusterInstance",
        "sourceVirtualClusterInstance": { "name": "v", "namespace": "p-a" },
    });
    client.post(&path).json(&body).send().await
}

#[tokio::test]
async fn a_migration_takes_the_rights_to_the_secret_that_it_moves() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "clusters", "c", json!({})).await;
    for project in ["a", "b"] {
        make(&admin, "projects", project, json!({})).await;
    }
    make_kubeconfig(
        &admin,
        "p-a",
        "kc",
        &std::fs::read_to_string(server.home().kubeconfig()).unwrap(),
    )
    .await;
    let spec = json!({ "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": "v" },
        "config": { "secretName": "kc", "secretNamespace": "p-a" } });
    let instances = in_namespace("p-a", "virtualclusterinstances");
    create(&admin, &instances, "v", json!({ "spec": spec })).await;
    let ada = user(&admin, "ada").await;
    let group = "platform:user:ada";
    let rules = json!([rule(&["virtualclusterinstances"], &["get", "delete"])]);
    allow(&admin, "source", Some("p-a"), rules, group).await;
    let rules = json!([rule(&["virtualclusterinstances"], &["create"])]);
    allow(&admin, "target", Some("p-b"), rules, group).await;
    let mut rules = vec![rule(&["projects/migratevirtualclusterinstance"], &["create"])];
    rules.push(rule_on("projects", &["a", "b"], &["get"]));
    allow(&admin, "migrates", None, Value::from(rules), group).await;
    // As to set the reference to it.
    allow(&admin, "reads", Some("p-a"), json!([core_rule(&["secrets"], &["get"])]), group).await;
    for (name, namespace, verb) in [("deletes", "p-a", "delete"), ("creates", "p-b", "create")] {
        for query in ["?dryRun=All", ""] {
            let reply = migrate(&ada, query).await;
            assert_eq!(reply.status, 403, "without {verb} on the Secret: {}", reply.text());
            assert!(reply.text().contains("secrets"), "{}", reply.text());
        }
        allow(&admin, name, Some(namespace), json!([core_rule(&["secrets"], &[verb])]), group)
            .await;
    }
    migrate(&ada, "").await.expect(201);
}

/// A rule of as many names of each part.
fn wide(number: usize, count: usize) -> Value {
    let names = |part: &str| -> Vec<String> {
        (0..count).map(|index| format!("{part}{index}-{number}")).collect()
    };
    json!({ "apiGroups": names("g"), "resources": names("r"), "resourceNames": names("n"), "verbs": names("v") })
}

#[tokio::test]
async fn a_check_of_escalation_that_would_take_too_long_is_refused() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let writes = json!({ "apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["create", "update", "get"],
        "resources": ["roles", "clusterroles"] });
    let mut rules: Vec<Value> = (0..400).map(|number| wide(number, 16)).collect();
    let own = Value::from([&rules[..1], &[writes]].concat());
    allow(&admin, "makes-roles", None, own, "platform:user:ada").await;
    for (namespace, kind) in [(None, "ClusterRole"), (Some("platform"), "Role")] {
        let body = json!({ "metadata": { "name": "wide" }, "rules": rules });
        let reply = ada.post(&rbac(namespace, "role")).json(&body).send().await;
        assert_eq!(reply.status, 422, "{kind}: {}", reply.text());
    }
    // Small roles are checked as before.
    rules.truncate(2);
    let body = json!({ "metadata": { "name": "small" }, "rules": [wide(0, 2)] });
    let reply = ada.post(&rbac(None, "role")).json(&body).send().await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let body = json!({ "metadata": { "name": "more" }, "rules": [wide(7, 2)] });
    assert_eq!(ada.post(&rbac(None, "role")).json(&body).send().await.status, 403);
}
