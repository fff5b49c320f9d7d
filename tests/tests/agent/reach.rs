//! The reports of an agent that cannot act as callers in its cluster, or gets no answer from it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::objects::endpoint_token;
use postern_tests::rights::{path, user};
use postern_tests::{Agent, Home, Kubeconfig, wait};
use serde_json::{Value, json};

use crate::agent::scene::{CLUSTER, Central, SECRETS, agent_setup, member, start_agent};

/// Waits until the Cluster has the condition Ready with one of these reasons, and returns its status and message.
async fn ready_by(central: &Central, reasons: &[&str]) -> (String, String) {
    let admin = central.admin();
    wait::until("the condition of the Cluster", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let conditions = cluster["status"]["conditions"].as_array()?;
        let is_wanted = |reason: &Value| reason.as_str().is_some_and(|one| reasons.contains(&one));
        let ready =
            conditions.iter().find(|one| one["type"] == "Ready" && is_wanted(&one["reason"]))?;
        let text = |field: &str| ready[field].as_str().unwrap().to_owned();
        let of_type = conditions.iter().filter(|one| one["type"] == "Ready").count();
        assert_eq!(of_type, 1, "{cluster}");
        Some((text("status"), text("message")))
    })
    .await
}

/// Waits until the agent is not ready for this reason.
async fn not_ready(agent: &Agent, why: &str) {
    let client = agent.client("x");
    wait::until("the agent to say why it is not ready", async || {
        let reply = client.get("/readyz").without("authorization").send().await;
        assert_eq!(reply.status, 503, "{}", reply.text());
        reply.text().contains(why).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cluster_says_whether_its_agent_may_impersonate() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let weak = user(&member.client(), "weak").await;
    let good = Kubeconfig::read(&member.home().kubeconfig()).unwrap();
    let kubeconfig = json!({
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        "clusters": [{ "name": "x", "cluster": {
            "server": good.server,
            "certificate-authority-data": STANDARD.encode(&good.authority),
        } }],
        "users": [{ "name": "x", "user": { "token": weak.token() } }],
    });
    let file = home.path().join("weak");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let agent = agent_setup(&central, &file, &home).launch().await;
    let (status, message) = ready_by(&central, &["CannotImpersonate"]).await;
    assert_eq!(status, "False");
    assert!(message.contains("may not impersonate users and groups"), "{message}");
    not_ready(&agent, "may not impersonate users and groups").await;
    agent.stop().await;

    let agent = start_agent(&central, &member, &home).await;
    // A report that arrives before the tunnel is that of a disconnected agent, and then the probe of the server decides.
    assert_eq!(ready_by(&central, &["AgentReady", "RouteFound"]).await.0, "True");
    agent.ready().await;
    agent.stop().await;

    // A cluster that does not respond has another reason than a cluster that refuses.
    let kubeconfig = home.path().join("gone");
    std::fs::copy(member.home().kubeconfig(), &kubeconfig).unwrap();
    member.stop().await;
    let agent = agent_setup(&central, &kubeconfig, &home).launch().await;
    assert_eq!(ready_by(&central, &["ClusterDoesNotAnswer"]).await.0, "False");
    let client = agent.client("x");
    not_ready(&agent, "the cluster does not answer").await;
    client.get("/healthz").without("authorization").send().await.expect_text(200);
    let logged = agent.logged();
    assert!(logged.contains("the cluster does not answer: cannot connect to"), "{logged}");
    agent.stop().await;
}

/// As in a pod: the files of a service account, and no kubeconfig.
#[tokio::test]
async fn the_agent_reaches_its_cluster_as_the_service_account_of_its_pod() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let known = Kubeconfig::read(&member.home().kubeconfig()).unwrap();
    let account = home.path().join("account");
    std::fs::create_dir(&account).unwrap();
    std::fs::write(account.join("token"), format!("{}\n", known.token)).unwrap();
    std::fs::write(account.join("ca.crt"), &known.authority).unwrap();
    let setup = agent_setup(&central, &account, &home);
    let agent = setup.argument(format!("--upstream-server={}", known.server)).start().await;
    let token = endpoint_token(&central.ada, json!({})).await;
    agent.client(&token).get(&format!("{CLUSTER}{SECRETS}")).send().await.expect(200);
    agent.stop().await;
}
