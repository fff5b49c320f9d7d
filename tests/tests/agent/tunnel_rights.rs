//! The right to open a tunnel: the agent of a cluster has it, for its own cluster alone, for as
//! long as its key is valid.

use postern_tests::http::Client;
use postern_tests::objects::make;
use postern_tests::rights::{RBAC_GROUP, allow, merge, path, rbac, set, user, with_key};
use postern_tests::{Home, wait};
use serde_json::json;

use crate::agent::scene::{Central, SECRETS, agent_setup, member};

const PROTOCOL: &str = "v1.tunnel.platform.sh";

fn tunnel_of(cluster: &str) -> String {
    format!("{}/tunnel", path("clusters", cluster))
}

/// Asks for a tunnel, and returns the status of the refusal, or 101.
async fn ask(client: &Client, cluster: &str) -> (u16, String) {
    let headers = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("sec-websocket-protocol", PROTOCOL),
        ("platform-agent-name", "mallory"),
    ];
    let path = tunnel_of(cluster);
    let bearer = format!("Bearer {}", client.token());
    let with_key = [headers[4], headers[5], ("authorization", &*bearer)];
    if let Ok(socket) = client.websocket(&path, &with_key).await {
        assert!(socket.headers.contains_key("platform-server-name"), "{:?}", socket.headers);
        return (101, String::new());
    }
    let request = headers
        .iter()
        .fold(client.get(&path), |request, (name, value)| request.header(*name, value));
    let reply = request.send().await;
    (reply.status, reply.text())
}

#[tokio::test]
async fn only_the_agent_of_a_cluster_opens_a_tunnel_to_it() {
    let central = Central::new().await;
    let admin = central.admin();
    make(&admin, "clusters", "other", json!({})).await;
    let agent = admin.with_token(&central.agent_key);
    assert_eq!(ask(&agent, "member").await.0, 101);
    // The agent does not even learn that another cluster exists.
    assert_eq!(ask(&agent, "other").await.0, 404);
    assert_eq!(ask(&agent, "nowhere").await.0, 404);
    // The administrator holds every verb, and is no agent.
    let (code, why) = ask(&admin, "member").await;
    assert_eq!(code, 403, "{why}");
    assert!(why.contains("agent:member"), "{why}");
    // ada may use the cluster and not get it, so the response is 404.
    assert_eq!(ask(&central.ada, "member").await.0, 404);
    // A user with the role of agents is none, either.
    let bob = user(&admin, "bob").await;
    let role = json!({ "apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "platform-agent" });
    let subjects = json!([{ "apiGroup": RBAC_GROUP, "kind": "User", "name": "bob" }]);
    let binding = json!({ "metadata": { "name": "bob" }, "roleRef": role, "subjects": subjects });
    admin.post(&rbac(None, "rolebinding")).json(&binding).send().await.expect(201);
    assert_eq!(ask(&bob, "member").await.0, 403);
    // The administrator does not become one by impersonation.
    let request = admin.get(&tunnel_of("member")).header("impersonate-user", "agent:member");
    let refused = request
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")
        .header("sec-websocket-protocol", PROTOCOL)
        .header("platform-agent-name", "mallory");
    assert_eq!(refused.send().await.status, 403);
    // A key of the subject without the role.
    let rules = json!([{ "apiGroups": ["management.platform.sh"], "resources": ["clusters"], "verbs": ["get"] }]);
    allow(&admin, "get-clusters", None, rules, "platform:authenticated").await;
    let stranger = with_key(&admin, "stranger", json!({ "subject": "agent:other" })).await;
    assert_eq!(ask(&stranger, "other").await.0, 403);
    assert_eq!(ask(&stranger, "member").await.0, 403);
}

#[tokio::test]
async fn a_tunnel_is_a_websocket_of_a_known_version() {
    let central = Central::new().await;
    let agent = central.admin().with_token(&central.agent_key);
    let path = tunnel_of("member");
    let plain = agent.get(&path).send().await.expect_text(400);
    assert!(plain.contains("WebSocket"), "{plain}");
    let offer = async |protocol: &str, name: &str| {
        let request =
            agent.get(&path).header("connection", "Upgrade").header("upgrade", "websocket");
        let request = request.header("sec-websocket-version", "13");
        let request = request.header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
        let request = request.header("sec-websocket-protocol", protocol);
        request.header("platform-agent-name", name).send().await.expect_text(400)
    };
    let unknown = offer("v9.tunnel.platform.sh", "a").await;
    assert!(unknown.contains(PROTOCOL), "{unknown}");
    assert!(offer(PROTOCOL, "two words").await.contains("platform-agent-name"));
    // The newest that both know.
    let offered = format!("v9.tunnel.platform.sh, {PROTOCOL}");
    let bearer = format!("Bearer {}", central.agent_key);
    let headers = [
        ("sec-websocket-protocol", offered.as_str()),
        ("platform-agent-name", "a"),
        ("authorization", &*bearer),
    ];
    let socket = agent.websocket(&path, &headers).await.unwrap();
    assert_eq!(socket.headers["sec-websocket-protocol"], PROTOCOL);
    // An agent that decides for a cluster of this name that was deleted.
    let request = agent.get(&path).header("connection", "Upgrade").header("upgrade", "websocket");
    let request = request.header("sec-websocket-version", "13");
    let request = request.header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
    let request = request.header("sec-websocket-protocol", PROTOCOL);
    let request = request.header("platform-agent-name", "a").header("platform-cluster-uid", "x");
    request.send().await.expect(404);
}

/// A stolen key after it was disabled: open tunnels end, and no further one is opened.
#[tokio::test]
async fn tunnels_end_when_the_key_of_the_agent_or_its_role_or_its_cluster_does() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let admin = central.admin();
    let agent = agent_setup(&central, &member.home().kubeconfig(), &home).tunnel().await;
    let secrets = format!("/kubernetes/cluster/member{SECRETS}");
    let reached = async || central.ada.get(&secrets).send().await.status == 200;
    let until = async |wanted: bool| {
        wait::until("the tunnels to change", async || (reached().await == wanted).then_some(()))
            .await;
    };
    until(true).await;
    let mut events = central.ada.get(&format!("{secrets}?watch=1")).stream().await;
    let key = path("ownedaccesskeys", "agent-member");
    set(&admin, &key, json!({ "disabled": true })).await;
    wait::within("the stream to end", async { while let Ok(Some(_)) = events.next().await {} })
        .await;
    until(false).await;
    assert_eq!(ask(&admin.with_token(&central.agent_key), "member").await.0, 401);
    set(&admin, &key, json!({ "disabled": false })).await;
    until(true).await;
    // The role.
    let binding = format!("{}/agent-member", rbac(None, "rolebinding"));
    let kept = admin.get(&binding).send().await.expect(200);
    admin.delete(&binding).send().await.expect(200);
    until(false).await;
    let again = json!({ "metadata": { "name": "agent-member" }, "roleRef": kept["roleRef"], "subjects": kept["subjects"] });
    admin.post(&rbac(None, "rolebinding")).json(&again).send().await.expect(201);
    until(true).await;
    // The route.
    merge(&admin, &path("clusters", "member"), json!({ "spec": { "connection": "Endpoint" } }))
        .await
        .expect(200);
    until(false).await;
    merge(&admin, &path("clusters", "member"), json!({ "spec": { "connection": "Auto" } }))
        .await
        .expect(200);
    until(true).await;
    // The cluster.
    let mut events = central.ada.get(&format!("{secrets}?watch=1")).stream().await;
    admin.delete(&path("clusters", "member")).send().await.expect(200);
    wait::within("the stream to end", async { while let Ok(Some(_)) = events.next().await {} })
        .await;
    let logged = agent.logged();
    assert!(!logged.contains(&central.agent_key), "{logged}");
    agent.stop().await;
}
