//! The phases of clusters and instances: `Ready` means that a request of the gateway gets there.
//! The clusters are Postern servers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, make, make_kubeconfig};
use postern_tests::rights::{merge, path};
use postern_tests::{Home, wait};
use serde_json::{Value, json};

use crate::gateway::scene::{Central, Member, central, connect, member_agent};

const INSTANCES: [&str; 2] = ["virtualclusterinstances", "spaceinstances"];

fn instance(kind: &str, name: &str) -> String {
    format!("{GROUP}/namespaces/p-p/{kind}/{name}")
}

/// Creates an instance in the cluster `member`, in this namespace of it.
async fn make_instance(admin: &Client, kind: &str, name: &str, namespace: &str) {
    let mut at = json!({ "cluster": "member", "namespace": namespace });
    if kind == INSTANCES[0] {
        at["virtualCluster"] = name.into();
    }
    let body = json!({ "metadata": { "name": name }, "spec": { "clusterRef": at } });
    let list = format!("{GROUP}/namespaces/p-p/{kind}");
    admin.post(&list).json(&body).send().await.expect(201);
}

/// Waits until an object has this phase and reason, and returns its status.
async fn until(admin: &Client, path: &str, phase: &str, reason: &str) -> Value {
    wait::until(&format!("{phase} {reason} of {path}"), async || {
        let object = admin.get(path).send().await.expect(200);
        let status = object["status"].clone();
        let reason = if reason.is_empty() { Value::Null } else { reason.into() };
        if (&status["phase"], &status["reason"]) != (&json!(phase), &reason) {
            return None;
        }
        let conditions = status["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
        let expected = if phase == "Ready" { "True" } else { "False" };
        assert_eq!(ready["status"], expected, "{status}");
        if ready["reason"] != "AgentReady" {
            assert_eq!(ready["observedGeneration"], object["metadata"]["generation"], "{object}");
        }
        Some(status)
    })
    .await
}

async fn set_kubeconfig(admin: &Client, namespace: &str, name: &str, text: &str) {
    let data = json!({ "data": { "config": STANDARD.encode(text) } });
    let at = format!("{CORE}/namespaces/{namespace}/secrets/{name}");
    merge(admin, &at, data).await.expect(200);
}

#[tokio::test]
async fn a_target_with_a_kubeconfig_is_ready_while_a_request_gets_there() {
    let member = Member::new().await;
    let good = member.kubeconfig();
    let server = good.lines().find(|line| line.trim().starts_with("server:")).unwrap();
    let closed = good.replace(server, "    server: https://127.0.0.1:1");
    let central = Central::new(&closed).await;
    let admin = &central.admin;
    let elsewhere = good.replace(server, &format!("{server}/elsewhere"));
    let authority = good.lines().find(|line| line.contains("certificate-authority")).unwrap();
    let untrusted = good.replace(&format!("{authority}\n"), "");
    let of_member = path("clusters", "member");
    let first = until(admin, &of_member, "Failed", "Unreachable").await;
    // The cause of the failure is in the log alone: authors of kubeconfigs must not scan ports.
    for (name, text) in [("elsewhere", elsewhere), ("untrusted", untrusted)] {
        connect(admin, name, &text).await;
        let status = until(admin, &path("clusters", name), "Failed", "Unreachable").await;
        assert_eq!(status["message"], first["message"], "{name}");
    }
    make(admin, "projects", "p", json!({})).await;
    make_instance(admin, "spaceinstances", "there", "platform").await;
    make_instance(admin, "spaceinstances", "nowhere", "nowhere").await;
    until(admin, &instance("spaceinstances", "there"), "Pending", "Unreachable").await;
    make_kubeconfig(admin, "p-p", "web", &closed).await;
    make_instance(admin, "virtualclusterinstances", "web", "n").await;
    let web = instance("virtualclusterinstances", "web");
    merge(admin, &web, json!({ "spec": { "config": { "secretName": "web" } } })).await.expect(200);
    until(admin, &web, "Pending", "Unreachable").await;

    set_kubeconfig(admin, "platform", "member-kubeconfig", &good).await;
    until(admin, &of_member, "Ready", "").await;
    until(admin, &instance("spaceinstances", "there"), "Ready", "").await;
    until(admin, &instance("spaceinstances", "nowhere"), "Pending", "Unreachable").await;
    set_kubeconfig(admin, "p-p", "web", &good).await;
    until(admin, &web, "Ready", "").await;
    set_kubeconfig(admin, "p-p", "web", &closed).await;
    until(admin, &web, "Pending", "Unreachable").await;

    // Only the server writes a result, and a report does not make an object ready.
    let status = admin.get(&web).send().await.expect(200)["status"].clone();
    let probe = json!({ "route": status["probe"]["route"], "result": "Reached" });
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Up", "message": "" }]);
    for status in [json!({ "probe": probe }), json!({ "conditions": ready })] {
        let reply = merge(admin, &format!("{web}/status"), json!({ "status": status })).await;
        let after = reply.expect(200)["status"].clone();
        assert_eq!((&after["phase"], &after["reason"]), (&json!("Pending"), &json!("Unreachable")));
    }
}

#[tokio::test]
async fn an_agent_says_whether_requests_get_to_its_instances() {
    let (home, member, inside) = (Home::new(), Member::new().await, Member::new().await);
    let central = central().await;
    let admin = central.client();
    let agent = member_agent(&home, &central, &member.kubeconfig()).await;
    until(&admin, &path("clusters", "member"), "Ready", "").await;
    make(&admin, "projects", "p", json!({})).await;
    for (kind, name, namespace) in [
        ("spaceinstances", "there", "platform"),
        ("spaceinstances", "nowhere", "nowhere"),
        ("virtualclusterinstances", "inside", "platform"),
        ("virtualclusterinstances", "missing", "platform"),
    ] {
        if name == "inside" {
            make_kubeconfig(&member.admin, "platform", "vc-inside", &inside.kubeconfig()).await;
        }
        make_instance(&admin, kind, name, namespace).await;
    }
    for (kind, name, phase, reason) in [
        ("spaceinstances", "there", "Ready", ""),
        ("spaceinstances", "nowhere", "Pending", "Unreachable"),
        ("virtualclusterinstances", "inside", "Ready", ""),
        ("virtualclusterinstances", "missing", "Pending", "Unreachable"),
    ] {
        until(&admin, &instance(kind, name), phase, reason).await;
    }
    agent.stop().await;
}

/// The kubeconfig of the Cluster does not lead to a virtual cluster.
#[tokio::test]
async fn an_instance_without_a_kubeconfig_of_its_own_says_which_one_is_missing() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let admin = &central.admin;
    make(admin, "projects", "p", json!({})).await;
    make_instance(admin, "virtualclusterinstances", "web", "n").await;
    let status =
        until(admin, &instance("virtualclusterinstances", "web"), "Pending", "NoAgent").await;
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("spec.config of this instance"), "{message}");
    let at = "/kubernetes/project/p/virtualcluster/web/version";
    let refused = admin.get(at).send().await.expect(503);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("no kubeconfig (its own spec.config)"), "{message}");
}
