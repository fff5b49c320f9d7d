//! Virtual clusters that no kubeconfig at the central server leads to: the agent of their cluster
//! reaches them by the kubeconfig in their Secret. The cluster and the virtual cluster are Postern
//! servers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, endpoint_token, make, make_kubeconfig, secret};
use postern_tests::rights::{allow, merge, path, rule_on, user, with_key};
use postern_tests::{Agent, Home, Server, wait};
use serde_json::{Value, json};

use crate::gateway::scene::{Member, SECRETS, central, member_agent};

/// The virtual cluster's path, at the gateway and at the agent.
const BY_PROJECT: &str = "/kubernetes/project/p/virtualcluster/v";

/// Its path at the gateway by where it runs.
const BY_PLACE: &str = "/kubernetes/virtualcluster/member/platform/inside";

/// A central server, and the cluster `member` with its agent, in which the virtual cluster `inside` runs. ada may use
/// it, bob the cluster, and eve neither.
struct Scene {
    central: Server,
    admin: Client,
    ada: Client,
    bob: Client,
    eve: Client,
    member: Member,
    inside: Member,
    agent: Agent,
}

impl Scene {
    async fn new(home: &Home) -> Self {
        Self::by(home, "Endpoint").await
    }

    /// The agent is reached by this route, its endpoint or its tunnels.
    async fn by(home: &Home, route: &str) -> Self {
        let (member, inside) = (Member::new().await, Member::new().await);
        let central = central().await;
        let admin = central.client();
        make_kubeconfig(&member.admin, "platform", "vc-inside", &inside.kubeconfig()).await;
        let agent = member_agent(home, &central, &member.kubeconfig()).await;
        let connection = json!({ "spec": { "connection": route } });
        merge(&admin, &path("clusters", "member"), connection).await.expect(200);
        let people = ["ada", "bob", "eve"];
        let mut clients = Vec::new();
        for name in people {
            clients.push(user(&admin, name).await);
        }
        let [ada, bob, eve] = clients.try_into().unwrap();
        let rules = json!([rule_on("clusters", &["member"], &["use"])]);
        allow(&admin, "use-member", None, rules, "platform:user:bob").await;
        make(&admin, "projects", "p", json!({})).await;
        let at =
            json!({ "cluster": "member", "namespace": "platform", "virtualCluster": "inside" });
        let instance = json!({ "metadata": { "name": "v" }, "spec": { "clusterRef": at } });
        let instances = format!("{GROUP}/namespaces/p-p/virtualclusterinstances");
        admin.post(&instances).json(&instance).send().await.expect(201);
        let rules = json!([rule_on("virtualclusterinstances", &["v"], &["use"])]);
        allow(&admin, "use-v", Some("p-p"), rules, "platform:user:ada").await;
        wait::until("the endpoint in the Cluster", async || {
            let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
            let annotations = &cluster["metadata"]["annotations"];
            annotations["platform.sh/direct-cluster-endpoint"].as_str().map(drop)
        })
        .await;
        wait::until("the agent to hear who may use it", async || {
            let reply = ada.get(&format!("{BY_PROJECT}{SECRETS}")).send().await;
            (reply.status == 200).then_some(())
        })
        .await;
        Self { central, admin, ada, bob, eve, member, inside, agent }
    }

    /// A client of the agent, with an endpoint token of this caller.
    async fn direct(&self, client: &Client) -> Client {
        self.agent.client(&endpoint_token(client, json!({})).await)
    }

    /// Changes the Secret of the virtual cluster.
    async fn set_kubeconfig(&self, text: &str) {
        let data = json!({ "data": { "config": STANDARD.encode(text) } });
        merge(&self.member.admin, &secret_path(), data).await.expect(200);
    }

    async fn stop(self) {
        self.agent.stop().await;
        self.central.stop().await;
    }
}

fn secret_path() -> String {
    format!("{CORE}/namespaces/platform/secrets/vc-inside")
}

#[tokio::test]
async fn a_virtual_cluster_is_reached_through_the_agent_of_its_cluster() {
    for route in ["Endpoint", "Tunnel"] {
        let home = Home::new();
        reached(Scene::by(&home, route).await).await;
    }
}

async fn reached(scene: Scene) {
    let direct = scene.direct(&scene.ada).await;
    let ways = [(&direct, BY_PROJECT), (&scene.ada, BY_PROJECT), (&scene.ada, BY_PLACE)];
    for (index, (client, at)) in ways.into_iter().enumerate() {
        let (name, secrets) = (format!("s{index}"), format!("{at}{SECRETS}"));
        let mut watch = client.get(&format!("{secrets}?watch=1")).stream().await;
        let made = client.post(&secrets).header("user-agent", "ada").json(&secret(&name, "v"));
        made.send().await.expect(201);
        wait::within("the event", async {
            while !watch.next().await.unwrap().unwrap().contains(&name) {}
        })
        .await;
    }
    // The virtual cluster has seen the requests, as ada, and the cluster has not.
    let arrived = scene.inside.arrived("ada").await;
    assert_eq!(arrived.len(), 3, "{arrived:?}");
    assert!(arrived.iter().all(|record| record["impersonatedUser"]["username"] == "ada"));
    assert_eq!(scene.member.arrived("ada").await, Vec::<Value>::new());
    // Its own roles decide there.
    scene
        .ada
        .get(&format!("{BY_PROJECT}/api/v1/namespaces/platform/secrets"))
        .send()
        .await
        .expect(403);

    // A user without the right to use the instance does not reach it. The agent decides by the
    // instance, also if the path names the namespace of the virtual cluster.
    for (client, at) in [(&scene.eve, BY_PROJECT), (&scene.eve, BY_PLACE), (&scene.bob, BY_PROJECT)]
    {
        client.get(&format!("{at}{SECRETS}")).send().await.expect(403);
    }
    scene.bob.get(&format!("{BY_PLACE}{SECRETS}")).send().await.expect(403);
    let of_bob = scene.direct(&scene.bob).await;
    of_bob.get(&format!("{BY_PROJECT}{SECRETS}")).send().await.expect(403);

    // A key for it alone gets there, and nowhere else.
    let scope = json!({ "virtualClusters": [{ "project": "p", "virtualCluster": "v" }] });
    let narrow = with_key(&scene.admin, "narrow", json!({ "user": "ada", "scope": scope })).await;
    let direct = scene.direct(&narrow).await;
    for client in [&narrow, &direct] {
        client.get(&format!("{BY_PROJECT}{SECRETS}")).send().await.expect(200);
    }
    direct.get(&format!("/kubernetes/cluster{SECRETS}")).send().await.expect(403);
    let scope = json!({ "virtualClusters": [{ "project": "p", "virtualCluster": "other" }] });
    let other = with_key(&scene.admin, "other", json!({ "user": "ada", "scope": scope })).await;
    other.get(&format!("{BY_PROJECT}{SECRETS}")).send().await.expect(403);
    scene.stop().await;
}

#[tokio::test]
async fn what_the_secret_of_a_virtual_cluster_says_counts_within_seconds() {
    let home = Home::new();
    let scene = Scene::new(&home).await;
    let secrets = format!("{BY_PROJECT}{SECRETS}");
    let says = async |words: &str| {
        wait::until(words, async || {
            let reply = scene.ada.get(&secrets).send().await;
            (reply.status == 503 && reply.text().contains(words)).then_some(reply)
        })
        .await
    };
    let mut watch = scene.ada.get(&format!("{secrets}?watch=1")).stream().await;
    scene.set_kubeconfig(&scene.inside.kubeconfig().replace("127.0.0.1", "192.0.2.1")).await;
    let ended = async { while let Ok(Some(_)) = watch.next().await {} };
    wait::within("the end of the watch", ended).await;
    let refused = says("names another server than a Service").await;
    assert_eq!(refused.header("retry-after"), None);
    assert!(!refused.text().contains("192.0.2.1"), "{}", refused.text());
    assert!(scene.agent.logged().contains("its server is https://192.0.2.1"));
    scene.set_kubeconfig("{}").await;
    says("cannot be used").await;
    scene.set_kubeconfig(&scene.inside.kubeconfig()).await;
    wait::until("the way to be back", async || {
        let reply = scene.ada.get(&secrets).send().await;
        (reply.status == 200).then_some(())
    })
    .await;
    scene.member.admin.delete(&secret_path()).send().await.expect(200);
    says(
        "\\\"vc-inside\\\" in the namespace \\\"platform\\\" of the cluster, which does not exist",
    )
    .await;
    assert!(!scene.agent.logged().contains(scene.inside.admin.token()));
    scene.stop().await;
}

/// The agent lets it go on after the token of a minute that it has come with: the gateway ends it.
#[tokio::test]
async fn a_watch_through_the_gateway_and_an_agent_ends_with_its_key_at_both() {
    let home = Home::new();
    let scene = Scene::new(&home).await;
    let key = with_key(&scene.admin, "k", json!({ "user": "ada" })).await;
    let watched = format!("{BY_PROJECT}{SECRETS}?watch=1");
    let mut watch = key.get(&watched).header("user-agent", "watcher").stream().await;
    let made = scene.ada.post(&format!("{BY_PROJECT}{SECRETS}")).json(&secret("s", "v"));
    made.send().await.expect(201);
    assert!(watch.next().await.unwrap().unwrap().contains("ADDED"));
    let disabled = json!({ "spec": { "disabled": true } });
    merge(&scene.admin, &path("ownedaccesskeys", "k"), disabled).await.expect(200);
    assert_eq!(watch.next().await, Ok(None));
    wait::until("the end of the watch at the virtual cluster", async || {
        let ended = |record: &Value| {
            (&record["verb"], &record["stage"]) == (&json!("watch"), &json!("ResponseComplete"))
        };
        scene.inside.arrived("watcher").await.iter().any(ended).then_some(())
    })
    .await;
    scene.stop().await;
}

#[tokio::test]
async fn a_domain_of_services_that_is_none_is_refused_at_the_start() {
    let needed =
        ["--server=https://x", "--ca-file=f", "--cluster=c", "--key-file=k", "--upstream=u"];
    for domain in ["", "Cluster.Local", "cluster.local:53", "a..b"] {
        let mut command = tokio::process::Command::new(postern_tests::binary::path());
        let command = command.arg("agent").args(needed).args(["--cluster-domain", domain]);
        let output = wait::within("the agent to end", command.env_clear().output()).await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains("--cluster-domain <DOMAIN>"), "{text}");
        assert!(text.contains("RFC 1123") || domain.is_empty(), "{text}");
    }
}
