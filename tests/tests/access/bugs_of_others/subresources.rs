//! Rights on a subresource or on a reference that reach further than they say.

use postern_tests::Server;
use postern_tests::objects::{collection, make};
use postern_tests::rights::{allow, rule, rule_on, user};
use serde_json::json;

use crate::access::scene::{assert_refused, make_project};

#[tokio::test]
async fn cve_2023_2727_a_right_on_the_status_is_none_on_the_spec() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let spec = json!({ "displayName": "Shop", "allowedClusters": [{ "name": "c1" }] });
    make(&admin, "projects", "shop", spec).await;
    let one = collection("projects/shop");
    let verbs = ["get", "update", "patch"];
    let status = json!([rule(&["projects/status"], &verbs)]);
    allow(&admin, "status-writers", None, status, "platform:user:ada").await;
    let body = json!({ "spec": { "displayName": "Mine", "allowedClusters": [{ "name": "*" }] } });
    for at in [one.clone(), format!("{one}/status"), format!("{one}/status?dryRun=All")] {
        let reply = ada.patch(&at, "merge-patch", &body).send().await;
        assert!([200, 403, 404, 405].contains(&reply.status), "{at}: {}", reply.text());
        assert!(!reply.text().contains("Mine"), "{at}: {}", reply.text());
    }
    for at in [one.clone(), format!("{one}/members"), format!("{one}/clusters")] {
        let reply = ada.get(&at).send().await;
        assert!([403, 404].contains(&reply.status), "{at}: {}", reply.text());
    }
    let after = admin.get(&one).send().await.expect(200);
    assert_eq!(after["spec"]["displayName"], "Shop");
    assert_eq!(after["spec"]["allowedClusters"], json!([{ "name": "c1" }]));
}

#[tokio::test]
async fn cve_2021_25320_nobody_uses_a_credential_that_they_may_not_read() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let members =
        json!([{ "kind": "User", "name": "ada", "clusterRole": "platform-project-user" }]);
    make_project(&admin, "shop", members).await;
    make(&admin, "clusters", "c1", json!({})).await;
    let at = collection("namespaces/p-shop/virtualclusterinstances");
    let place = json!({ "cluster": "c1", "namespace": "n", "virtualCluster": "v" });
    let instance = |spec| json!({ "metadata": { "name": "vc" }, "spec": spec });
    let on_cluster = instance(json!({ "clusterRef": place }));
    let reply = ada.post(&at).json(&on_cluster).send().await;
    assert_refused(&reply, &["cannot use resource \"clusters\""]);
    let uses = json!([rule_on("clusters", &["c1"], &["use"])]);
    allow(&admin, "cluster-users", None, uses, "platform:user:ada").await;
    let config = json!({ "secretName": "kubeconfig", "key": "config" });
    let by_secret = instance(json!({ "clusterRef": place, "config": config }));
    for query in ["?dryRun=All", ""] {
        let reply = ada.post(&format!("{at}{query}")).json(&by_secret).send().await;
        assert_refused(&reply, &["cannot get resource \"secrets\""]);
    }
    ada.post(&at).json(&on_cluster).send().await.expect(201);
    let reference = json!({ "spec": { "config": config } });
    let reply = ada.patch(&format!("{at}/vc"), "merge-patch", &reference).send().await;
    assert_refused(&reply, &["cannot get resource \"secrets\""]);
}
