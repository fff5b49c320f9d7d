//! A write that names an object tells nothing about it. The caller needs the right to see the
//! object, and the response is the same whether the object exists or not.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, collection, create, make};
use postern_tests::rights::{allow, merge, path, rule, rule_on, set, user};
use serde_json::{Value, json};

use crate::regressions::scene::Findings;

async fn create_project(client: &Client, name: &str, clusters: &[&str]) -> (u16, String) {
    let clusters: Vec<Value> = clusters.iter().map(|name| json!({ "name": name })).collect();
    let body = json!({ "metadata": { "name": name }, "spec": { "allowedClusters": clusters } });
    let reply = client.post(&collection("projects")).json(&body).send().await;
    (reply.status, reply.text())
}

#[tokio::test]
async fn a_hidden_cluster_is_neither_found_nor_read_by_naming_it() {
    let server = Server::start().await;
    let admin = server.client();
    let config = json!({ "secretName": "kubeconfig-canary", "secretNamespace": "platform" });
    let hidden = json!({ "displayName": "Hidden", "description": "canary-text", "config": config });
    let hidden = make(&admin, "clusters", "hidden", hidden).await;
    let ada = user(&admin, "ada").await;
    allow(&admin, "makes", None, json!([rule(&["projects"], &["create"])]), "platform:user:ada")
        .await;
    let mut found = Findings::new();
    for name in ["hidden", "absent"] {
        let (code, text) = create_project(&ada, "mine", &[name]).await;
        let same = text.replace(name, "NAME");
        found.check(
            code == 403 && same.contains("requires the verb get or use"),
            format!("{name}: {code} {text}"),
        );
    }
    let (code, text) = create_project(&ada, "mine", &[]).await;
    found.check(code == 201, format!("a project without clusters: {code} {text}"));
    for name in ["hidden", "absent"] {
        let change = json!({ "spec": { "allowedClusters": [{ "name": name }] } });
        let reply = merge(&ada, &path("projects", "mine"), change).await;
        found.check_code(&reply, &[403], &format!("adding {name}"));
    }
    // The administrator allows the cluster. Members learn only its name and phase.
    set(&admin, &path("projects", "mine"), json!({ "allowedClusters": [{ "name": "hidden" }] }))
        .await;
    let listed = format!("{}/clusters", path("projects", "mine"));
    let reply = ada.get(&listed).send().await.expect(200);
    let one = &reply["clusters"][0];
    found.check(one["metadata"]["name"] == "hidden", format!("the list: {reply}"));
    let text = reply.to_string();
    let uid = hidden["metadata"]["uid"].as_str().unwrap();
    for secret in [uid, "canary", "conditions", "message"] {
        found.check(!text.contains(secret), format!("the list tells {secret}: {text}"));
    }
    // An allowed cluster may stay when another field changes.
    let reply =
        merge(&ada, &path("projects", "mine"), json!({ "spec": { "description": "x" } })).await;
    found.check_code(&reply, &[200], "another field");
    // With the right to use the cluster, it can be named.
    allow(
        &admin,
        "uses",
        None,
        json!([rule_on("clusters", &["hidden"], &["use"])]),
        "platform:user:ada",
    )
    .await;
    let (code, text) = create_project(&ada, "other", &["hidden"]).await;
    found.check(code == 201, format!("with use: {code} {text}"));
    found.assert_none();
}

#[tokio::test]
async fn a_space_does_not_name_the_secret_of_its_cluster() {
    let server = Server::start().await;
    let admin = server.client();
    let config = json!({ "secretName": "kubeconfig-canary", "secretNamespace": "platform" });
    make(&admin, "clusters", "c", json!({ "config": config })).await;
    make(&admin, "projects", "shop", json!({})).await;
    let spaces = postern_tests::objects::based(
        "/apis/management.platform.sh/v1/namespaces/p-shop/spaceinstances",
    );
    let space = json!({
        "metadata": { "name": "s" },
        "spec": { "clusterRef": { "cluster": "c", "namespace": "team" } },
    });
    let mut found = Findings::new();
    let made = admin.post(&spaces).json(&space).send().await.expect(201);
    let text = made["status"].to_string();
    found.check(
        !text.contains("canary") && text.contains("ClusterNotReady"),
        format!("new: {text}"),
    );
    let reply =
        merge(&admin, &format!("{spaces}/s"), json!({ "spec": { "displayName": "x" } })).await;
    let text = reply.expect(200)["status"].to_string();
    found.check(
        !text.contains("canary") && text.contains("ClusterNotReady"),
        format!("changed: {text}"),
    );
    found.assert_none();
}

#[tokio::test]
async fn a_hidden_user_or_connector_is_not_found_by_adding_it_to_a_team() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "hidden").await;
    user(&admin, "seen").await;
    make(&admin, "teams", "night", json!({})).await;
    let secret = json!({ "secretName": "client", "secretNamespace": "platform" });
    let at = format!("{CORE}/namespaces/platform/secrets");
    create(&admin, &at, "client", json!({ "data": { "clientSecret": "eA==" } })).await;
    let connector = json!({
        "disabled": true, "issuer": "https://issuer.example", "clientId": "postern", "clientSecret": secret,
        "allow": { "everyone": true },
    });
    make(&admin, "connectors", "corp", connector).await;
    let lead = user(&admin, "lead").await;
    let rules = json!([
        rule_on("teams", &["night"], &["get", "update", "patch", "bind"]),
        rule_on("users", &["seen"], &["get"]),
    ]);
    allow(&admin, "leads", None, rules, "platform:user:lead").await;
    let mut found = Findings::new();
    let mut texts = Vec::new();
    for (field, name, code) in [
        ("users", "hidden", 403),
        ("users", "absent", 403),
        ("ssoGroups", "corp:devs", 422),
        ("ssoGroups", "gone:devs", 422),
        ("users", "seen", 200),
    ] {
        let reply =
            merge(&lead, &path("teams", "night"), json!({ "spec": { field: [name] } })).await;
        found.check_code(&reply, &[code], name);
        let of_connector = name.strip_suffix(":devs").unwrap_or(name);
        texts.push(reply.text().replace(name, "NAME").replace(of_connector, "NAME"));
    }
    found.check(texts[0] == texts[1], format!("users: {} {}", texts[0], texts[1]));
    found.check(texts[2] == texts[3], format!("connectors: {} {}", texts[2], texts[3]));
    found.assert_none();
}

#[tokio::test]
async fn an_admin_of_a_project_applies_it_and_does_not_forge_who_applied_what() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let member = json!({ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" });
    make(&admin, "projects", "web", json!({ "members": [member] })).await;
    let at = path("projects", "web");
    let forged = json!({ "metadata": { "managedFields": [{
        "manager": "gitops", "operation": "Apply", "apiVersion": "management.platform.sh/v1",
        "time": "2026-11-29T09:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:spec": { "f:quotas": {}, "f:allowedClusters": {} } },
    }] } });
    merge(&ada, &at, forged).await.expect(403);
    merge(&ada, &at, json!({ "metadata": { "managedFields": [{}] } })).await.expect(403);
    merge(&ada, &at, json!({ "spec": { "description": "x" } })).await.expect(200);
    let body = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "Project", "metadata": { "name": "web" },
        "spec": { "displayName": "Web" },
    });
    let apply = ada.request("PATCH", &format!("{at}?fieldManager=gitops"));
    apply.body("application/apply-patch+yaml", body.to_string()).send().await.expect(200);
}

/// A certificate authority in PEM, and then in base64.
const PEM: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCmFHVnNiRzg9Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";

#[tokio::test]
async fn an_agent_changes_its_endpoint_and_nothing_else() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "clusters", "edge", json!({})).await;
    let agent = user(&admin, "agent").await;
    let binding = json!({
        "metadata": { "name": "agent" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "platform-agent" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "platform:user:agent" }],
    });
    let bindings = postern_tests::rights::rbac(None, "rolebinding");
    admin.post(&bindings).json(&binding).send().await.expect(201);
    let (edge, endpoint) = (path("clusters", "edge"), "platform.sh/direct-cluster-endpoint");
    let mut found = Findings::new();
    for change in [
        json!({ "spec": { "connection": "Endpoint" } }),
        json!({ "spec": { "description": "x" } }),
        json!({ "spec": { "owner": { "user": "agent" } } }),
        json!({ "spec": { "access": [{ "users": ["agent"], "verbs": ["*"] }] } }),
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "metadata": { "annotations": { "a": "b" } } }),
        json!({ "metadata": { "finalizers": ["example.com/stay"] } }),
        json!({ "metadata": { "annotations": { endpoint: "thief:443" } }, "spec": { "connection": "Endpoint" } }),
        json!({ "metadata": { "annotations": { format!("{endpoint}-x"): "b" } } }),
        // These fields decide the fields that the next apply of the manager removes.
        json!({ "metadata": { "managedFields": [{}] } }),
        json!({ "metadata": { "managedFields": [{
            "manager": "gitops", "operation": "Apply", "apiVersion": "management.platform.sh/v1",
            "time": "2026-11-29T09:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { "f:displayName": {}, "f:connection": {} } },
        }] } }),
    ] {
        found.check_code(&merge(&agent, &edge, change.clone()).await, &[403], &change.to_string());
    }
    let forged = json!({ "status": {
        "agents": [{ "name": "forged", "server": "nowhere:1" }],
        "probe": { "route": "0", "result": "Reached" },
    } });
    let status = format!("{edge}/status");
    agent.patch(&status, "merge-patch", &forged).send().await.expect(200);
    let stored = admin.get(&edge).send().await.expect(200)["status"].clone();
    found.check(
        stored["agents"].is_null() && stored["probe"].is_null(),
        format!("the agents and the probe: {stored}"),
    );
    // The patch of agents of the previous version.
    let patch = json!({ "metadata": { "annotations": { endpoint: "one:443", format!("{endpoint}-ca-data"): PEM } } });
    found.check_code(&merge(&agent, &edge, patch).await, &[200], "the annotations of the endpoint");
    // The patch of agents of this version.
    let body = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "ClusterEndpoint",
        "spec": { "host": "two:443", "insecure": true },
    });
    let at = format!("{edge}/endpoint");
    let reply = agent.post(&format!("{at}?fieldValidation=Strict")).json(&body).send().await;
    found.check_code(&reply, &[200, 201], "the endpoint");
    let annotations = admin.get(&edge).send().await.expect(200)["metadata"]["annotations"].clone();
    let wanted = json!({ endpoint: "two:443", format!("{endpoint}-insecure"): "true" });
    found.check(annotations == wanted, format!("the annotations: {annotations}"));
    found.check_code(
        &user(&admin, "eve").await.post(&at).json(&body).send().await,
        &[403, 404],
        "another user",
    );
    found.assert_none();
}
