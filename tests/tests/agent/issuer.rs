//! A cluster that only its agent's tunnel reaches, as the issuer of tokens of its workloads.

use postern_tests::http::Response;
use postern_tests::identity_provider::{
    IdentityProvider, exchange_form, make_pod_identity, post_form,
};
use postern_tests::objects::collection;
use postern_tests::{Home, Kubeconfig};
use serde_json::{Value, json};

use super::scene::{Central, agent_setup};

const AUDIENCE: &str = "https://postern.test/auth/token";

#[tokio::test]
async fn a_cluster_is_an_issuer_that_is_reached_through_its_agent() {
    let (central, provider, home) =
        (Central::new().await, IdentityProvider::start().await, Home::new());
    // The cluster names an issuer that is no address of this network.
    let issuer = "https://kubernetes.default.svc.cluster.local";
    provider.set(|state| {
        state.discovery =
            json!({ "issuer": issuer, "jwks_uri": "https://10.0.0.1/openid/v1/jwks" });
    });
    let cluster = Kubeconfig {
        server: provider.issuer(),
        authority: provider.authority(),
        token: "token-of-the-agent".to_owned(),
        namespace: "default".to_owned(),
    };
    let kubeconfig = cluster.write(&home.path().join("cluster"));
    let agent = agent_setup(&central, &kubeconfig, &home).tunnel().await;
    let admin = central.admin();
    make_pod_identity(&admin, "member", issuer, &provider.thumbprint()).await;
    let exchange = async |audience: &str| -> Response {
        let token = provider.token(&json!({
            "iss": issuer,
            "aud": [audience],
            "sub": "system:serviceaccount:shop:deployer",
            "kubernetes.io": { "namespace": "shop", "serviceaccount": { "name": "deployer" } },
        }));
        post_form(&admin, &exchange_form(&token, "pod")).await
    };
    let key: Value = exchange(AUDIENCE).await.expect(200);
    let workload = admin.with_token(key["access_token"].as_str().unwrap());
    let me = workload.get(&collection("selves/me")).send().await.expect(200);
    assert_eq!(me["status"]["user"]["name"], "bot");
    exchange("https://kubernetes.default.svc").await.expect(400);
    assert_eq!((provider.asked("/openid/v1/jwks"), provider.asked("/keys")), (1, 0));
    // Keys that the agent tells and the trusted issuer does not name count for nothing: its key may be stolen.
    provider.set(|state| state.rotate_keys("stolen"));
    exchange(AUDIENCE).await.expect(400);
    // Another caller gets these documents as the cluster gives them to this caller, or not at all.
    let at_gateway = "/kubernetes/cluster/member/openid/v1/jwks";
    central.eve.get(at_gateway).send().await.expect(403);
    drop(agent);
}
