//! The agent of a connected cluster, which is a Postern server. The tests check the requests that
//! it lets through and the requests that it refuses, also while the central server is down.

mod audit;
mod hostile_agents;
mod issuer;
mod reach;
pub(crate) mod scene;
mod token_size;
mod trust;
mod tunnel;
mod tunnel_rights;

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postern_tests::cli::CliUser;
use postern_tests::objects::{collection, endpoint_token, make};
use postern_tests::rights::{allow, path, rule_on, set, with_key};
use postern_tests::{Agent, Home, wait};
use serde_json::{Value, json};

use crate::agent::scene::{
    CLUSTER, Central, SECRETS, make_space, member, start_agent, start_agent_with,
};

#[tokio::test]
async fn the_agent_goes_on_without_the_central_server_and_learns_of_revocations_when_it_is_back() {
    let (mut central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = start_agent(&central, &member, &home).await;
    agent.ready().await;
    let (first, second) = (
        endpoint_token(&central.ada, json!({})).await,
        endpoint_token(&central.ada, json!({})).await,
    );
    let of_eve = endpoint_token(&central.eve, json!({})).await;
    let secrets = format!("{CLUSTER}{SECRETS}");
    let object = json!({ "metadata": { "name": "s" }, "spec": {} });
    agent.client(&first).post(&secrets).json(&object).send().await.expect(201);
    let refused = agent.client(&of_eve).get(&secrets).send().await.expect(403);
    assert!(refused["message"].as_str().unwrap().contains("cannot use the cluster"), "{refused}");

    central.stop().await;
    agent.client(&first).get(&secrets).send().await.expect(200);
    agent.stop().await;
    let agent = start_agent(&central, &member, &home).await;
    agent.client(&first).get(&secrets).send().await.expect(200);
    agent.client(&of_eve).get(&secrets).send().await.expect(403);

    // Before the agent learns of it, ada's key is disabled.
    central.start().await;
    set(&central.admin(), &path("ownedaccesskeys", "ada-key"), json!({ "disabled": true })).await;
    let watch = agent.client(&second);
    let mut events = watch.get(&format!("{secrets}?watch=1")).stream().await;
    agent.client(&first).get(&secrets).send().await.expect(200);
    central.reconnect();
    let refused = wait::until("the revocation to arrive", async || {
        let reply = agent.client(&first).get(&secrets).send().await;
        (reply.status != 200).then_some(reply)
    })
    .await;
    let said = refused.expect(401);
    assert_eq!(
        (&said["reason"], &said["message"]),
        (&json!("Unauthorized"), &json!("Unauthorized"))
    );
    wait::within("the watch to end", async { while let Ok(Some(_)) = events.next().await {} })
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn what_is_no_good_token_for_this_cluster_is_refused_and_only_the_log_says_why() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let admin = central.admin();
    make(&admin, "clusters", "other", json!({})).await;
    let rules = json!([rule_on("clusters", &["other"], &["use"])]);
    allow(&admin, "use-other", None, rules, "platform:user:ada").await;
    let agent = start_agent(&central, &member, &home).await;
    agent.ready().await;
    let secrets = format!("{CLUSTER}{SECRETS}");
    let good = endpoint_token(&central.ada, json!({})).await;
    let (head, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = head.split_once('.').unwrap();
    let flipped = if signature.starts_with('A') { "B" } else { "A" };
    let of_eve = endpoint_token(&central.eve, json!({})).await;
    let payload_of_eve = of_eve.split('.').nth(1).unwrap();
    let elsewhere = json!({ "rules": [{ "cluster": "other" }] });
    let elsewhere =
        with_key(&admin, "elsewhere", json!({ "user": "ada", "scope": elsewhere })).await;
    let elsewhere = endpoint_token(&elsewhere, json!({})).await;
    for (text, why) in [
        (format!("{head}.{flipped}{}", &signature[1..]), "signature"),
        (format!("{header}.{payload_of_eve}.{signature}"), "signature"),
        (format!("{header}.{payload}."), "JWT"),
        (elsewhere, "audience"),
        ("a".repeat(9000), "JWT"),
    ] {
        let said = agent.client(&text).get(&secrets).send().await.expect(401);
        assert_eq!(said["message"], "Unauthorized", "{why}");
    }
    // The agent knows no access keys, and names the tokens that it accepts.
    let said = agent.client(central.ada.token()).get(&secrets).send().await.expect(401);
    assert!(said["message"].as_str().unwrap().contains("endpoint token"), "{said}");
    let logged = agent.logged();
    for why in ["signature", "another"] {
        assert!(logged.contains(why), "{why}: {logged}");
    }
    assert!(!logged.contains(signature) && !logged.contains(&good[..40]), "{logged}");
    let client = agent.client(&good);
    client.get(&secrets).without("authorization").send().await.expect(401);
    client.get(&secrets).header("impersonate-user", "eve").send().await.expect(403);
    client.get("/kubernetes/management/version").send().await.expect(404);
    client.get("/kubernetes/virtualcluster/member/ns/v/version").send().await.expect(404);
    client.get(&format!("{CLUSTER}/api/v1/namespaces/a/../b/pods")).send().await.expect(400);
    client.get("/healthz").without("authorization").send().await.expect_text(200);
    client.get(&secrets).send().await.expect(200);
    agent.stop().await;
}

#[tokio::test]
async fn requests_that_a_caller_repeats_do_not_fill_the_log_of_the_agent() {
    const REQUESTS: usize = 60;
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = start_agent(&central, &member, &home).await;
    agent.ready().await;
    let secrets = format!("{CLUSTER}{SECRETS}");
    let good = endpoint_token(&central.ada, json!({})).await;
    let of_eve = endpoint_token(&central.eve, json!({})).await;
    let lines = || agent.logged().lines().count();
    let before = lines();
    for _ in 0..REQUESTS {
        agent.client(&good).get(&secrets).send().await.expect(200);
        agent.client("no-token").get(&secrets).send().await.expect(401);
        agent.client(&of_eve).get(&secrets).send().await.expect(403);
        agent.client(&good).get(&secrets).without("authorization").send().await.expect(401);
    }
    member.stop().await;
    for _ in 0..REQUESTS {
        let reply = agent.client(&good).get(&secrets).send().await;
        assert!(reply.status >= 500, "{}", reply.status);
    }
    let logged = agent.logged();
    assert!(logged.contains("refused: ") && logged.contains("could not be reached"), "{logged}");
    assert!(lines() - before < REQUESTS, "{logged}");
    agent.stop().await;
}

/// Waits until the agent refuses a token.
async fn until_refused(agent: &Agent, token: &str) {
    let secrets = format!("{CLUSTER}{SECRETS}");
    wait::until("the revocation to arrive", async || {
        let reply = agent.client(token).get(&secrets).send().await;
        (reply.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_agent_learns_of_revocations_and_of_dropped_signing_keys() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let admin = central.admin();
    let agent = start_agent(&central, &member, &home).await;
    agent.ready().await;
    let secrets = format!("{CLUSTER}{SECRETS}");
    let key = with_key(&admin, "k", json!({ "user": "ada" })).await;
    let (of_key, of_ada) =
        (endpoint_token(&key, json!({})).await, endpoint_token(&central.ada, json!({})).await);
    for token in [&of_key, &of_ada] {
        agent.client(token).get(&secrets).send().await.expect(200);
    }
    set(&admin, &path("ownedaccesskeys", "k"), json!({ "disabled": true })).await;
    until_refused(&agent, &of_key).await;
    agent.client(&of_ada).get(&secrets).send().await.expect(200);

    // The agent has seen this token, and verified it.
    let data = central.home.data();
    let operator = CliUser::new().with("POSTERN_DATA_DIR", data.to_str().unwrap());
    let header = BASE64_URL_SAFE_NO_PAD.decode(of_ada.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    operator.ok(&["admin", "rotate-signing-key", "--force"]).await;
    // An id can begin with a hyphen.
    operator.ok(&["admin", "drop-signing-key", "--", header["kid"].as_str().unwrap()]).await;
    until_refused(&agent, &of_ada).await;
    let of_now = endpoint_token(&central.ada, json!({})).await;
    agent.client(&of_now).get(&secrets).send().await.expect(200);
    agent.stop().await;
}

/// Writes a kubeconfig that leads to a path of the agent with a token, and returns where it is.
fn write_kubeconfig(agent: &Agent, home: &Home, at: &str, token: &str) -> PathBuf {
    let file = home.path().join("kubeconfig");
    let kubeconfig = json!({
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x", "namespace": "platform" } }],
        "clusters": [{ "name": "x", "cluster": {
            "server": format!("https://{}{at}", agent.address()),
            "certificate-authority": agent.state_dir().join("ca.pem"),
        } }],
        "users": [{ "name": "x", "user": { "token": token } }],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

#[tokio::test]
async fn kubectl_works_through_the_agent_and_a_space_has_its_own_namespace_alone() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let admin = central.admin();
    make_space(&admin).await;
    let scope = json!({ "spaces": [{ "project": "p", "space": "s" }] });
    let of_space = with_key(&admin, "of-space", json!({ "user": "ada", "scope": scope })).await;
    let agent = start_agent_with(&central, &member, &home, &["--advertise=127.0.0.1"]).await;
    agent.ready().await;
    let (good, narrow) =
        (endpoint_token(&central.ada, json!({})).await, endpoint_token(&of_space, json!({})).await);
    let file = write_kubeconfig(&agent, &home, CLUSTER, &good);
    let kubectl = async |arguments: &[&str]| {
        let mut command = member.kubectl().command(arguments);
        command.env("KUBECONFIG", &file);
        member.kubectl().run_command(command).await
    };
    let made = kubectl(&["create", "-f", "examples/sharedsecret.yaml"]).await;
    assert!(made.ok, "{made:?}");
    let got = kubectl(&["get", "sharedsecrets", "-o", "name"]).await;
    assert!(got.ok && got.out.contains("sharedsecret"), "{got:?}");

    let space = "/kubernetes/project/p/space/s";
    let narrow = agent.client(&narrow);
    narrow.get(&format!("{space}{SECRETS}")).send().await.expect(200);
    narrow.get(&format!("{space}/api/v1/namespaces/platform")).send().await.expect(200);
    for path in [
        format!("{space}/api/v1/namespaces/default"),
        format!("{space}/api/v1/namespaces"),
        format!("{space}/apis/management.platform.sh/v1/sharedsecrets"),
        format!("{CLUSTER}{SECRETS}"),
        "/kubernetes/project/p/space/other/version".to_owned(),
    ] {
        narrow.get(&path).send().await.expect(403);
    }
    // Where it is reached is in the Cluster.
    wait::until("the endpoint in the Cluster", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let host = &cluster["metadata"]["annotations"]["platform.sh/direct-cluster-endpoint"];
        (host.as_str()?.starts_with("127.0.0.1:")).then_some(())
    })
    .await;
    agent.stop().await;
}

/// CVE-2026-4740, CVE-2024-9779: the agent of one cluster has no rights on another, and none at the centre.
#[tokio::test]
async fn cve_2026_4740_and_2024_9779_the_key_of_an_agent_is_for_its_own_cluster_alone() {
    let central = Central::new().await;
    let admin = central.admin();
    make(&admin, "clusters", "other", json!({})).await;
    let agent = admin.with_token(&central.agent_key);
    let config = |name: &str| format!("{}/agentconfig", path("clusters", name));
    let said = agent.get(&config("member")).send().await.expect(200);
    assert_eq!(
        (&said["kind"], &said["spec"]["cluster"]["name"]),
        (&json!("AgentConfig"), &json!("member"))
    );
    assert!(!said.to_string().contains(&central.agent_key));
    // An agent that has the configuration already gets it again only after a change.
    let tag = agent.get(&config("member")).send().await.header("etag").unwrap().to_owned();
    let again = async || agent.get(&config("member")).header("if-none-match", &tag).send().await;
    let same = again().await;
    assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, Some(tag.as_str())));
    let rules = json!([rule_on("clusters", &["member"], &["use"])]);
    allow(&admin, "more-use-member", None, rules, "platform:user:eve").await;
    let other = again().await;
    assert!(other.header("etag").unwrap() != tag && other.text().contains("platform:user:eve"));
    other.expect(200);
    // The response does not tell that the object exists.
    for hidden in [config("other"), path("clusters", "other")] {
        agent.get(&hidden).send().await.expect(404);
    }
    for listed in [collection("clusters"), collection("users")] {
        let reply = agent.get(&listed).send().await.text();
        assert!(!reply.contains("\"other\"") && !reply.contains("\"ada\""), "{reply}");
    }
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    agent.patch(&path("clusters", "other"), "merge-patch", &labels).send().await.expect(404);
    // The agent can change only the direct endpoint of its cluster object.
    agent.patch(&path("clusters", "member"), "merge-patch", &labels).send().await.expect(403);
    let endpoint = json!({ "platform.sh/direct-cluster-endpoint": "127.0.0.1:1" });
    let endpoint = json!({ "metadata": { "annotations": endpoint } });
    agent.patch(&path("clusters", "member"), "merge-patch", &endpoint).send().await.expect(200);
    admin.delete(&path("clusters", "member")).send().await.expect(200);
    wait::until("the agent's key to be gone", async || {
        let reply = admin.get(&path("ownedaccesskeys", "agent-member")).send().await;
        (reply.status == 404).then_some(())
    })
    .await;
    agent.get(&config("member")).send().await.expect(401);
}

#[tokio::test]
async fn what_a_space_does_not_reach_a_review_of_access_denies() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    make_space(&central.admin()).await;
    let agent = start_agent(&central, &member, &home).await;
    agent.ready().await;
    let token = endpoint_token(&central.ada, json!({})).await;
    let narrow = agent.client(&token);
    let space = "/kubernetes/project/p/space/s";
    let reviews = format!("{space}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let ask = async |namespace: &str| {
        let asked = json!({ "verb": "get", "group": "management.platform.sh",
            "resource": "sharedsecrets", "namespace": namespace, "name": "x" });
        let review = json!({ "spec": { "resourceAttributes": asked } });
        narrow.post(&reviews).json(&review).send().await.expect(201)["status"].clone()
    };
    assert_eq!(ask("platform").await["allowed"], true);
    let denied = ask("default").await;
    assert_eq!(denied["allowed"], false);
    assert!(
        denied["reason"].as_str().unwrap().contains("only requests to its own namespace"),
        "{denied}"
    );
    let rules = format!("{space}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews");
    let rules = async |namespace: &str| {
        let review = json!({ "spec": { "namespace": namespace } });
        let status = narrow.post(&rules).json(&review).send().await.expect(201)["status"].clone();
        status["resourceRules"].as_array().unwrap().len()
    };
    assert!(rules("platform").await > 0 && rules("default").await == 0);
    // kubectl sends these reviews only in protobuf.
    let file = write_kubeconfig(&agent, &home, space, &token);
    let can_i = async |arguments: &[&str]| {
        let mut command = member.kubectl().command(&[&["auth", "can-i"], arguments].concat());
        command.env("KUBECONFIG", &file);
        member.kubectl().run_command(command).await
    };
    let listed = can_i(&["--list", "-n", "platform"]).await;
    assert!(listed.ok && listed.out.contains("sharedsecrets"), "{listed:?}");
    let allowed = can_i(&["get", "sharedsecrets", "-n", "platform"]).await;
    assert!(allowed.ok && allowed.out.starts_with("yes"), "{allowed:?}");
    let denied = can_i(&["get", "sharedsecrets", "-n", "default"]).await;
    assert!(!denied.ok && denied.out.contains("only requests to its own namespace"), "{denied:?}");
    agent.stop().await;
}
