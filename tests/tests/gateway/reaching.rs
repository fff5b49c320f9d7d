//! Requests reach a cluster as their caller. Callers without the right reach nothing.

use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use postern_tests::objects::{GROUP, make, make_kubeconfig, secret};
use postern_tests::rights::{allow, disallow, merge, path, rule_on, set, with_key};
use postern_tests::{Home, Server, Setup, TlsServer, status, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::gateway::recording::Recording;
use crate::gateway::scene::{Central, MEMBER, Member, SECRETS, connect, make_space};

#[tokio::test]
async fn requests_reach_a_cluster_as_their_caller() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let of_ada = format!("{MEMBER}{SECRETS}");
    let made = central.ada.post(&of_ada).header("user-agent", "ada-1").json(&secret("s1", "v"));
    let made = made.send().await.expect(201);
    assert_eq!(made["metadata"]["name"], "s1");
    let list = central.ada.get(&of_ada).header("user-agent", "ada-1").send().await;
    let id = list.header("audit-id").unwrap().to_owned();
    assert_eq!(list.expect(200)["items"].as_array().unwrap().len(), 1);
    let version = central.ada.get(&format!("{MEMBER}/version")).send().await;
    assert!(version.expect(200)["gitVersion"].is_string());
    // The target's own answers come as they are.
    let nothing = central.ada.get(&format!("{of_ada}/none")).send().await;
    assert!(status::failure(&nothing).contains("404"), "{}", nothing.text());
    let users = format!("{MEMBER}/apis/management.platform.sh/v1/users");
    central.ada.post(&users).json(&json!({ "metadata": { "name": "x" } })).send().await.expect(403);
    let records = member.arrived("ada-1").await;
    assert_eq!(records.len(), 2, "{records:?}");
    for record in &records {
        assert_eq!(record["user"]["username"], "admin");
        let groups = &record["impersonatedUser"]["groups"];
        assert_eq!(record["impersonatedUser"]["username"], "ada", "{record}");
        for group in ["platform:user:ada", "platform:authenticated", "system:authenticated"] {
            assert!(groups.as_array().unwrap().contains(&json!(group)), "{groups}");
        }
    }
    assert_eq!(records[1]["auditID"], id.as_str(), "one id in both logs");
    let here = central.server.home();
    let find = || here.records().into_iter().find(|record| record["auditID"] == id.as_str());
    let record = wait::until("the record", async || find()).await;
    assert_eq!(record["verb"], "list");
    assert_eq!(record["objectRef"]["resource"], "sharedsecrets");
    assert_eq!(record["objectRef"]["namespace"], "platform");
}

#[tokio::test]
async fn an_answer_with_secrets_of_a_cluster_waits_for_its_record_on_demand() {
    let cluster = Recording::start().await;
    let central = Central::with(&cluster.kubeconfig(), &["--audit-before-answer"]).await;
    for number in 0..30 {
        let id = format!("5f0c1f6e-2b0a-4a56-9c39-{number:012}");
        let path = format!("{MEMBER}/api/v1/namespaces/n/secrets");
        let answer = central.ada.get(&path).header("audit-id", &id).send().await;
        let records = central.server.home().records();
        answer.expect(200);
        let is_it = |record: &&Value| {
            record["auditID"] == id.as_str() && record["stage"] != "RequestReceived"
        };
        assert!(records.iter().any(|record| is_it(&record)), "{number}");
    }
}

#[tokio::test]
async fn who_may_not_use_a_cluster_reaches_nothing_and_learns_nothing() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let get = async |who: &postern_tests::http::Client, cluster: &str| {
        let path = format!("/kubernetes/cluster/{cluster}{SECRETS}");
        let answer = who.get(&path).header("user-agent", "nobody").send().await;
        answer
            .expect_text(if who.token() == central.admin.token() { 404 } else { 403 })
            .replace(cluster, "C")
    };
    let there = get(&central.eve, "member").await;
    assert_eq!(there, get(&central.eve, "nowhere").await);
    get(&central.admin, "nowhere").await;
    let unknown = central.eve.with_token("unknown-key-that-nobody-has-ever-had-here");
    let path = format!("{MEMBER}{SECRETS}");
    unknown.get(&path).header("user-agent", "nobody").send().await.expect(401);
    // Impersonation takes the right to it, is honoured then, and is never dropped.
    let as_user = async |who: &postern_tests::http::Client, name: &str, value: &str| {
        let request = who.get(&path).header("impersonate-user", "ada").header(name, value);
        request.header("user-agent", "as-ada").send().await
    };
    as_user(&central.eve, "x-nothing", "x").await.expect(403);
    as_user(&central.admin, "impersonate-uid", "u1").await.expect(403);
    as_user(&central.admin, "impersonate-group", "dev").await.expect(403);
    as_user(&central.admin, "impersonate-group", "system:masters").await.expect(403);
    as_user(&central.admin, "impersonate-extra-why", "x").await.expect(403);
    let system = central.admin.get(&path).header("impersonate-user", "system:kube-scheduler");
    let refused = system.header("user-agent", "as-ada").send().await.expect_text(403);
    assert!(refused.contains("system:kube-scheduler"), "{refused}");
    as_user(&central.admin, "x-nothing", "x").await.expect(200);
    assert_eq!(member.arrived("nobody").await.len(), 0);
    let records = member.arrived("as-ada").await;
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["impersonatedUser"]["username"], "ada");
}

#[tokio::test]
async fn a_cluster_without_a_way_says_which_is_missing() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let get = async || central.admin.get(&format!("{MEMBER}/version")).send().await;
    get().await.expect(200);
    let cluster = path("clusters", "member");
    merge(&central.admin, &cluster, json!({ "spec": { "config": null } })).await.expect(200);
    let without = get().await;
    assert_eq!(without.header("retry-after"), None, "kubectl would try again for minutes");
    let without = without.expect_text(503);
    assert!(without.contains("kubeconfig") && without.contains("agent"), "{without}");
    let instance = "/kubernetes/project/p/virtualcluster/v/version";
    central.admin.get(instance).send().await.expect(404);
    central.ada.get(instance).send().await.expect(403);
    let place = "/kubernetes/virtualcluster/member/ns/v/version";
    let none = central.admin.get(place).send().await.expect_text(503);
    assert!(none.contains("no instance"), "{none}");
    central.admin.get(&place.replace("member", "nowhere")).send().await.expect(404);
    central.eve.get(place).send().await.expect(403);
}

#[tokio::test]
async fn a_virtual_cluster_is_reached_by_its_own_kubeconfig() {
    let (member, virtual_cluster) = (Member::new().await, Member::new().await);
    let central = Central::new(&member.kubeconfig()).await;
    let admin = &central.admin;
    make(admin, "projects", "p", json!({})).await;
    make_kubeconfig(admin, "p-p", "v-kubeconfig", &virtual_cluster.kubeconfig()).await;
    let at = json!({ "cluster": "member", "namespace": "ns", "virtualCluster": "inside" });
    let instance = json!({
        "metadata": { "name": "v" },
        "spec": { "clusterRef": at, "config": { "secretName": "v-kubeconfig" } },
    });
    let instances = format!("{GROUP}/namespaces/p-p/virtualclusterinstances");
    admin.post(&instances).json(&instance).send().await.expect(201);
    let by_project = format!("/kubernetes/project/p/virtualcluster/v{SECRETS}");
    let by_place = format!("/kubernetes/virtualcluster/member/ns/inside{SECRETS}");
    // A user that may use the cluster alone does not reach an instance on it, by either form of its
    // path.
    for path in [&by_project, &by_place] {
        central.ada.get(path).header("user-agent", "ada").send().await.expect(403);
    }
    let rules = json!([rule_on("virtualclusterinstances", &["v"], &["use"])]);
    allow(admin, "use-v", Some("p-p"), rules, "platform:user:eve").await;
    for path in [&by_project, &by_place] {
        // The user's requests get there, and the virtual cluster decides on their response.
        let list = central.eve.get(path).header("user-agent", "eve").send().await.expect(200);
        assert_eq!(list["items"], json!([]));
    }
    central.eve.get(&by_place.replace("inside", "other")).send().await.expect(403);
    assert_eq!(virtual_cluster.arrived("ada").await.len(), 0);
    assert_eq!(virtual_cluster.arrived("eve").await.len(), 2);
    assert_eq!(member.arrived("ada").await.len() + member.arrived("eve").await.len(), 0);
}

/// A kubeconfig could name an address that only this machine should reach, so the operator has to
/// allow it.
#[tokio::test]
async fn loopback_addresses_are_refused_unless_they_are_allowed() {
    let member = Member::new().await;
    let server = Server::start().await;
    let admin = server.client();
    connect(&admin, "member", &member.kubeconfig()).await;
    let get = admin.get(&format!("{MEMBER}{SECRETS}")).header("user-agent", "local");
    let refused = get.send().await.expect_text(503);
    // Which address it is and why it is not dialled, the log says.
    assert!(!refused.contains("loopback"), "{refused}");
    let address = member.admin.address().to_owned();
    assert!(!refused.contains(&address), "where a cluster is, its users need not know: {refused}");
    assert_eq!(member.arrived("local").await.len(), 0);
}

#[tokio::test]
async fn requests_and_streams_over_http_2_reach_a_cluster() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let kubeconfig = central.server.kubeconfig();
    let client = postern_tests::http::Client::http2(kubeconfig).with_token(central.ada.token());
    let path = format!("{MEMBER}{SECRETS}");
    client.post(&path).json(&secret("s1", "v")).send().await.expect(201);
    let mut watch = client.get(&format!("{path}?watch=1")).stream().await;
    assert!(watch.next().await.unwrap().unwrap().contains("\"s1\""));
    client.delete(&format!("{path}/s1")).send().await.expect(200);
    assert!(watch.next().await.unwrap().unwrap().contains("DELETED"));
    let metrics = central.admin.get("/metrics").send().await.expect_text(200);
    assert!(metrics.contains("postern_gateway_requests_total 3"), "{metrics}");
}

#[tokio::test]
async fn clusters_are_told_of_the_groups_that_the_operator_names() {
    let recording = Recording::start().await;
    let arguments = ["--forward-groups", "ops,deployers"];
    let central = Central::with(&recording.kubeconfig(), &arguments).await;
    let groups = json!(["ops", "dev"]);
    set(&central.admin, &path("users", "ada"), json!({ "groups": groups })).await;
    central.ada.get(&format!("{MEMBER}/version")).send().await.expect(200);
    let arrived = recording.take();
    let told = arrived[0].values("impersonate-group");
    let is_ours = |group: &&String| !group.starts_with("platform:");
    assert_eq!(told.iter().filter(is_ours).collect::<Vec<_>>(), ["ops", "system:authenticated"]);
    // Clusters do not get the administrator's own group.
    central.admin.get(&format!("{MEMBER}/version")).send().await.expect(200);
    assert!(
        !recording.take()[0].values("impersonate-group").contains(&"system:masters".to_owned())
    );
    for (flag, value) in [("--forward-groups", "a,system:nodes"), ("--max-session", "soon")] {
        let ended = Setup::on(&Home::new()).argument(flag).argument(value).run_to_end().await;
        assert!(!ended.status.success() && ended.stderr.contains(flag), "{}", ended.stderr);
    }
}

/// Without a kubeconfig, a request goes through the cluster's agent, with a token for this caller and this
/// cluster in place of any other identity.
#[tokio::test]
async fn through_an_agent_a_request_carries_a_token_and_nothing_else() {
    let agent = Recording::start().await;
    let central = Central::new(&agent.kubeconfig()).await;
    make_space(&central.admin).await;
    let cluster = path("clusters", "member");
    let annotations = json!({
        "platform.sh/direct-cluster-endpoint": agent.address(),
        "platform.sh/direct-cluster-endpoint-insecure": "true",
    });
    let changes = json!({ "metadata": { "annotations": annotations }, "spec": { "config": null } });
    let uid = merge(&central.admin, &cluster, changes).await.expect(200)["metadata"]["uid"].clone();
    let key = central.scoped("scoped", json!({ "projects": [{ "project": "p" }] })).await;
    let space = "/kubernetes/project/p/space/s";
    key.get(&format!("{space}{SECRETS}")).send().await.expect(200);
    central.ada.get(&format!("{MEMBER}/version")).send().await.expect(200);
    central.ada.get(&format!("{MEMBER}{SECRETS}?watch=1")).send().await.expect(200);
    let arrived = agent.take();
    assert_eq!(arrived[0].line, format!("GET {space}{SECRETS}"));
    assert_eq!(arrived[1].line, "GET /kubernetes/cluster/version");
    for (index, one) in arrived.iter().enumerate() {
        assert!(!one.headers.keys().any(|name| name.as_str().starts_with("impersonate")));
        let token = one.values("authorization");
        let says = token[0].strip_prefix("Bearer ").unwrap().split('.').nth(1).unwrap();
        let says: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(says).unwrap()).unwrap();
        assert_eq!(says["sub"], "ada");
        assert_eq!(says["aud"], json!([format!("platform.sh/cluster:{}", uid.as_str().unwrap())]));
        let life = says["exp"].as_i64().unwrap() - says["iat"].as_i64().unwrap();
        assert!(life <= 60, "{says}");
        // The gateway itself ends a watch, and checks the end of the key. Any other token, even a
        // stolen one, opens nothing that lasts longer than the token.
        let is_watch = index == 2;
        assert_eq!(says["platform.sh"]["gatewaySession"].as_bool(), is_watch.then_some(true));
        let keys_end = if is_watch { Value::Null } else { says["exp"].clone() };
        assert_eq!(says["platform.sh"]["keysEnd"], keys_end);
    }
    // A request that the centre refuses does not reach the agent.
    key.get(&format!("{space}/api/v1/nodes")).send().await.expect(403);
    assert!(agent.take().is_empty());
    // A watch at an agent also ends there when its key changes. A key without a watch has no revocation.
    let revoked = async |key: &str, count: usize| {
        merge(
            &central.admin,
            &path("ownedaccesskeys", key),
            json!({ "spec": { "disabled": true } }),
        )
        .await
        .expect(200);
        let config = format!("{cluster}/agentconfig");
        let heard = central.admin.get(&config).send().await.expect(200);
        let revocations = heard["spec"]["revocations"].as_array().map_or(0, Vec::len);
        assert_eq!(revocations, count, "{heard}");
    };
    revoked("scoped", 0).await;
    revoked("ada-key", 1).await;
    let first = arrived[0].values("authorization");
    let says = URL_SAFE_NO_PAD.decode(first[0].split('.').nth(1).unwrap()).unwrap();
    let says: Value = serde_json::from_slice(&says).unwrap();
    assert_eq!(says["platform.sh"]["scopes"][0]["projects"][0]["project"], "p", "{says}");
}

/// An agent that has seen the token of the first attempt would end the second attempt's stream with
/// that token, after a minute.
#[tokio::test]
async fn a_request_to_an_agent_that_is_sent_again_has_a_token_of_its_own() {
    let (sender, mut heads) = tokio::sync::mpsc::unbounded_channel();
    // Its connections answer once, and die without a word when they are used again.
    let agent = TlsServer::start(move |mut stream| {
        let sender = sender.clone();
        async move {
            for is_answered in [true, false] {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                let head = String::from_utf8(head).unwrap();
                let is_probe = head.contains("postern-probe");
                if !is_probe {
                    sender.send(head).unwrap();
                }
                if is_answered || is_probe {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.write_all(answer).await.unwrap();
                    stream.flush().await.unwrap();
                }
            }
        }
    })
    .await;
    let central = Central::new(&Recording::start().await.kubeconfig()).await;
    let annotations = json!({
        "platform.sh/direct-cluster-endpoint": agent.address().to_string(),
        "platform.sh/direct-cluster-endpoint-ca-data": STANDARD.encode(agent.authority()),
    });
    let changes = json!({ "metadata": { "annotations": annotations }, "spec": { "config": null } });
    merge(&central.admin, &path("clusters", "member"), changes).await.expect(200);
    let log = format!("{MEMBER}/api/v1/namespaces/platform/pods/x/log?follow=true");
    let [first, second] = wait::until("a request that is sent again", async || {
        central.ada.get(&log).send().await.expect(200);
        let mut arrived = Vec::new();
        while let Ok(head) = heads.try_recv() {
            arrived.push(head);
        }
        // The first finds no connection.
        <[String; 2]>::try_from(arrived).ok()
    })
    .await
    .map(|head| {
        let (_, token) = head.split_once("\r\nauthorization: Bearer ").unwrap();
        let says = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        serde_json::from_slice::<Value>(&says).unwrap()
    });
    assert_eq!(first["platform.sh"]["gatewaySession"], true, "{first}");
    assert_eq!(second["platform.sh"]["gatewaySession"], true, "{second}");
    assert_eq!(first["sub"], second["sub"]);
    assert_ne!(first["jti"], second["jti"]);
}

#[tokio::test]
async fn an_open_watch_ends_when_its_caller_may_not_watch_any_more() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let watched = format!("{MEMBER}{SECRETS}?watch=1");
    let make = async |name: &str| {
        let secrets = format!("{}{SECRETS}", postern_tests::objects::BASE);
        member.admin.post(&secrets).json(&secret(name, "v")).send().await.expect(201);
    };
    make("s1").await;
    let keys = "ownedaccesskeys";
    let disabled = with_key(&central.admin, "disabled", json!({ "user": "ada" })).await;
    let scoped = with_key(&central.admin, "scoped", json!({ "user": "ada" })).await;
    let deleted = with_key(&central.admin, "deleted", json!({ "user": "ada" })).await;
    let disable = json!({ "spec": { "disabled": true } });
    let scope = json!({ "spec": { "scope": { "allowPlatformCli": true } } });
    let changes: [(&postern_tests::http::Client, &str, Option<serde_json::Value>); 3] = [
        (&disabled, "disabled", Some(disable)),
        (&scoped, "scoped", Some(scope)),
        (&deleted, "deleted", None),
    ];
    let mut witness = central.ada.get(&watched).stream().await;
    assert!(witness.next().await.unwrap().unwrap().contains("\"s1\""));
    for (client, name, change) in changes {
        let mut open = client.get(&watched).stream().await;
        assert!(open.next().await.unwrap().unwrap().contains("ADDED"), "{name}");
        match change {
            Some(change) => merge(&central.admin, &path(keys, name), change).await,
            None => central.admin.delete(&path(keys, name)).send().await,
        }
        .expect(200);
        assert_eq!(open.next().await, Ok(None), "{name}");
    }
    // Other watches go on, until a change concerns them.
    make("s2").await;
    assert!(witness.next().await.unwrap().unwrap().contains("\"s2\""));
    disallow(&central.admin, "use-member", None).await;
    assert_eq!(witness.next().await, Ok(None));
}

#[tokio::test]
async fn a_change_of_the_kubeconfig_counts_at_once() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let version = format!("{MEMBER}/version");
    central.ada.get(&version).send().await.expect(200);
    let mut open = central.ada.get(&format!("{MEMBER}{SECRETS}?watch=1")).stream().await;
    let secret =
        format!("{}/namespaces/platform/secrets/member-kubeconfig", postern_tests::objects::CORE);
    merge(&central.admin, &secret, json!({ "data": { "config": "e30=" } })).await;
    assert_eq!(open.next().await, Ok(None));
    let broken = central.ada.get(&version).send().await.expect_text(503);
    assert!(broken.contains("invalid kubeconfig"), "{broken}");
    central.admin.delete(&secret).send().await.expect(200);
    let gone = central.ada.get(&version).send().await.expect_text(503);
    assert!(gone.contains("does not exist"), "{gone}");
}

#[tokio::test]
async fn kubectl_works_through_the_gateway() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let address = format!("https://{}{MEMBER}", central.ada.address());
    let kubectl = central.server.kubectl();
    let with = |arguments: &[&str]| {
        let through = ["--server", &address, "--token", central.ada.token()].map(str::to_owned);
        let all: Vec<String> =
            through.into_iter().chain(arguments.iter().map(|&text| text.to_owned())).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        kubectl.command(&all)
    };
    let manifest = kubectl.file("s1.json", &secret("s1", "v").to_string());
    let run = async |arguments: &[&str]| {
        let output = kubectl.run_command(with(arguments)).await;
        assert!(output.ok, "{arguments:?}: {}{}", output.out, output.err);
        output.out
    };
    assert!(run(&["apply", "-f", &manifest]).await.contains("created"));
    assert!(run(&["apply", "-f", &manifest]).await.contains("unchanged"));
    assert!(run(&["get", "sharedsecrets", "-o", "name"]).await.contains("s1"));
    let mut watching = with(&["get", "sharedsecrets", "--watch", "-o", "name"]);
    let mut watching = watching.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let line = wait::within("a line of the watch", lines.next_line()).await.unwrap();
    assert!(line.unwrap().contains("s1"));
    watching.kill().await.unwrap();
    assert!(run(&["auth", "can-i", "delete", "sharedsecrets"]).await.contains("yes"));
    assert!(run(&["delete", "sharedsecret", "s1"]).await.contains("deleted"));
}
