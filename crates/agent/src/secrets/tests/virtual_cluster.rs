//! Secrets inside virtual clusters.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_kinds::agent_config::{ClusterLocation, Instance};
use serde_json::json;

use super::super::SecretsMode;
use super::fakes::FakeCluster;
use super::scenes::{Filling, offer, password_of, until};

#[tokio::test]
async fn a_secret_inside_a_virtual_cluster_is_filled_by_lists() {
    let inner = FakeCluster::open_tls().await;
    let instance = Instance {
        kind: "VirtualClusterInstance".to_owned(),
        project: "p".to_owned(),
        namespace: "p-p".to_owned(),
        name: "v".to_owned(),
        uid: "uid-v".to_owned(),
        cluster_ref: ClusterLocation {
            namespace: "space".to_owned(),
            virtual_cluster: "inner".to_owned(),
        },
    };
    let filling = Filling::with(SecretsMode::Bound, vec![instance]).await;
    let kubeconfig = json!({
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        "clusters": [{ "name": "x", "cluster": {
            "server": format!("https://127.0.0.1:{}", inner.address.port()),
            "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "x", "user": { "token": "hunter2" } }],
    });
    filling.cluster(|cluster| {
        let config = STANDARD.encode(kubeconfig.to_string());
        cluster.change("space", "vc-inner", &json!({ "data": { "config": config } }));
        // The namespace of a virtual cluster is no space.
        cluster.ask("space", "outer");
    });
    inner.state.lock().ask("default", "db");
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    let password = || password_of(&inner.state.lock().secret("default", "db"));
    until("it is filled", || password().as_deref() == Some("one")).await;
    filling.centre(|centre| centre.set_offer(Some(offer("v2", "two"))));
    until("a rotation arrives", || password().as_deref() == Some("two")).await;
    let wishes = filling.centre(|centre| centre.subscriptions.last().unwrap().clone());
    assert_eq!(wishes.len(), 1);
    assert_eq!(wishes[0]["virtualCluster"], json!({ "namespace": "p-p", "name": "v" }));
    assert_eq!(wishes[0]["namespaceUid"], "ns-1", "that of the namespace of the virtual cluster");
    inner.state.lock().ask("other", "late");
    let late = || password_of(&inner.state.lock().secret("other", "late"));
    until("a list brings it", || late().as_deref() == Some("two")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(filling.password("outer"), None);
}
