//! A cluster with a direct endpoint: the loft CLI gets an endpoint token for it. The vcluster CLI
//! sends the access key, which the endpoint refuses with the reason.

use postern_tests::cli::CliUser;
use postern_tests::rights::{path, set};
use postern_tests::{Agent, AgentSetup, Home, wait};
use serde_json::{Value, json};

use crate::platform_clients::go::GoClient;
use crate::platform_clients::loft_cli::Loft;
use crate::platform_clients::scene::{Platform, assert_reaches};
use crate::platform_clients::typed::Age;

/// The annotation that both clients read.
const ENDPOINT: &str = "platform.sh/direct-cluster-endpoint";

/// The path of the cluster at its own endpoint.
const AT_ENDPOINT: &str = "/kubernetes/cluster";

/// Connects the cluster `far` with an agent, and lets bob use it.
async fn connect(platform: &Platform, home: &Home) -> Agent {
    let kubeconfig = platform.server.home().kubeconfig();
    let by_cli = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap());
    let key = by_cli.ok(&["create", "cluster", "far"]).await;
    let upstream = platform.upstream.home().kubeconfig();
    let agent = AgentSetup::new(home, platform.server.kubeconfig(), "far", key.trim(), &upstream);
    let agent = agent.argument("--advertise=127.0.0.1").argument("--allow-local-upstreams");
    let agent = agent.start().await;
    let access = json!([{ "verbs": ["get", "use"], "users": ["bob"] }]);
    set(&platform.admin, &path("clusters", "far"), json!({ "access": access })).await;
    wait::until("the endpoint in the Cluster", async || {
        let found = platform.bob.get(&path("clusters", "far")).send().await.expect(200);
        found["metadata"]["annotations"][ENDPOINT].as_str().map(drop)
    })
    .await;
    agent
}

#[tokio::test]
async fn an_endpoint_token_is_taken_and_an_access_key_is_not() {
    let (platform, home) = (Platform::start(&[]).await, Home::new());
    let agent = connect(&platform, &home).await;
    // `use cluster far` of the loft CLI.
    let loft = Loft::of(&platform.bob);
    let found = loft.go.get("clusters/far").await.unwrap();
    assert!(found["metadata"]["annotations"][ENDPOINT].is_string());
    let made = loft.go.create("directclusterendpointtokens", &json!({})).await.unwrap();
    let token = made["status"]["token"].as_str().unwrap();
    let direct = agent.client(token);
    wait::until("the agent to know what bob may use", async || {
        let reply = direct.get(&format!("{AT_ENDPOINT}/version")).send().await;
        (reply.status == 200).then_some(())
    })
    .await;
    assert_reaches(&direct, AT_ENDPOINT).await;
    // `platform connect cluster far` of the vcluster CLI.
    let vcluster = GoClient::new(&platform.bob, Age::V4);
    let annotations: Value =
        vcluster.get("clusters/far").await.unwrap()["metadata"]["annotations"].take();
    assert!(annotations[ENDPOINT].is_string());
    let with_key = GoClient::new(&agent.client(platform.bob.token()), Age::V4);
    let refused = with_key.get_raw(&format!("{AT_ENDPOINT}/version")).await.unwrap_err();
    refused.expect(401, &["access key", "endpoint token"]);
    agent.stop().await;
}
