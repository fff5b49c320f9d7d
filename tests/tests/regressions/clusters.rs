//! The ways to clusters: the callers that they let in and for how long, the addresses that they
//! dial, and the information that they give.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::cli::CliUser;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{collection, create, endpoint_token, make, make_kubeconfig};
use postern_tests::rights::{RBAC, allow, merge, rule, rule_on, user, with_key};
use postern_tests::{Agent, AgentSetup, Home, SelfSigned, Server, Setup, wait};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::regressions::scene::{
    ENDS, End, Findings, acting, comes_true, in_namespace, may_impersonate,
};

/// Namespaces of a cluster, below its path.
const NAMESPACES: &str = "/api/v1/namespaces";

/// A central server, the cluster `member`, which is a Postern server, and its agent. ada may use
/// the cluster, and list namespaces in it.
struct Scene {
    admin: Client,
    ada: Client,
    central: Server,
    member: Server,
    home: Home,
    agent_key: String,
}

impl Scene {
    async fn new() -> Self {
        let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
        let central = setup.argument("--drain-timeout=1s").start().await;
        let admin = central.client();
        let kubeconfig = central.home().kubeconfig();
        let operator = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap());
        let agent_key = operator.ok(&["create", "cluster", "member"]).await.trim().to_owned();
        let ada = user(&admin, "ada").await;
        let rules = json!([rule_on("clusters", &["member"], &["use"])]);
        allow(&admin, "use-member", None, rules, "platform:user:ada").await;
        let member = Server::start().await;
        let rules = json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] }]);
        allow(&member.client(), "ada", None, rules, "platform:user:ada").await;
        Self { admin, ada, central, member, home: Home::new(), agent_key }
    }

    fn agent(&self) -> AgentSetup {
        let upstream = self.member.home().kubeconfig();
        let central = self.central.kubeconfig();
        let agent = AgentSetup::new(&self.home, central, "member", &self.agent_key, &upstream);
        agent.argument("--advertise=127.0.0.1").argument("--allow-local-upstreams")
    }
}

/// The code of a list of namespaces at the agent with a token.
async fn code_at(agent: &Agent, token: &str) -> u16 {
    agent.client(token).get(&format!("/kubernetes/cluster{NAMESPACES}")).send().await.status
}

async fn is_refused_at(agent: &Agent, token: &str) -> bool {
    comes_true(async || code_at(agent, token).await == 401).await
}

#[tokio::test]
async fn an_endpoint_token_made_under_impersonation_ends_with_it() {
    let scene = Scene::new().await;
    let (admin, agent) = (&scene.admin, scene.agent().start().await);
    let mut found = Findings::new();
    let tokens = collection("directclusterendpointtokens");
    for (index, end) in ENDS.into_iter().enumerate() {
        let name = format!("ops{index}");
        let ops = user(admin, &name).await;
        let rules = json!([may_impersonate("users", &["ada"])]);
        allow(admin, &name, None, rules, &format!("platform:user:{name}")).await;
        let request = acting(ops.post(&tokens), "ada", &[]).json(&json!({ "spec": {} }));
        let made = request.send().await.expect(201);
        let token = made["status"]["token"].as_str().unwrap();
        let accepted = comes_true(async || code_at(&agent, token).await == 200).await;
        found.check(accepted, format!("{end:?}: the token is not accepted at all"));
        end.come(admin, &name, &format!("{name}-key")).await;
        found.check(is_refused_at(&agent, token).await, format!("{end:?}: the token goes on"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_revocation_arrives_at_an_agent_while_another_tenant_changes_rules() {
    let scene = Scene::new().await;
    let (admin, agent) = (scene.admin.clone(), scene.agent().start().await);
    let token = endpoint_token(&scene.ada, json!({})).await;
    assert_eq!(code_at(&agent, &token).await, 200);
    let roles = format!("{RBAC}/namespaces/default/roles");
    create(&admin, &roles, "r", json!({ "rules": [] })).await;
    let writer = admin.clone();
    let changes = tokio::spawn(async move {
        for round in 0.. {
            let rule = rule_on("sharedsecrets", &[&format!("s{round}")], &["get"]);
            let change = json!({ "rules": [rule] });
            merge(&writer, &format!("{roles}/r"), change).await;
        }
    });
    End::KeyDisabled.come(&admin, "ada", "ada-key").await;
    assert!(is_refused_at(&agent, &token).await);
    changes.abort();
}

#[tokio::test]
async fn an_endpoint_token_ends_with_each_maker_of_its_key() {
    let scene = Scene::new().await;
    let (admin, agent) = (&scene.admin, scene.agent().start().await);
    let mut found = Findings::new();
    let scope = json!({ "scope": { "rules": [{}] } });
    let ends = [End::KeyDeleted, End::KeyDisabled, End::KeyNarrowed, End::KeyExpired];
    for (index, end) in ends.into_iter().enumerate() {
        let name = format!("parent{index}");
        let mut spec = scope.clone();
        spec["user"] = "ada".into();
        let parent = with_key(admin, &name, spec).await;
        let child = with_key(&parent, &format!("child{index}"), scope.clone()).await;
        let grandchild = with_key(&child, &format!("grand{index}"), scope.clone()).await;
        let mut tokens = Vec::new();
        for (what, key) in [("child", &child), ("grandchild", &grandchild)] {
            let token = endpoint_token(key, json!({})).await;
            let accepted = comes_true(async || code_at(&agent, &token).await == 200).await;
            found.check(accepted, format!("{end:?}: the token of the {what} is never accepted"));
            tokens.push((what, token));
        }
        end.come(admin, "ada", &name).await;
        for (what, token) in &tokens {
            let refused = is_refused_at(&agent, token).await;
            found.check(refused, format!("{end:?}: the token of the {what} goes on"));
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn an_endpoint_token_of_a_key_made_under_impersonation_ends_with_it() {
    let scene = Scene::new().await;
    let (admin, agent) = (&scene.admin, scene.agent().start().await);
    let ops = user(admin, "ops").await;
    let rules = json!([may_impersonate("users", &["ada"])]);
    allow(admin, "ops", None, rules, "platform:user:ops").await;
    let object = json!({ "metadata": { "name": "made" }, "spec": {} });
    let keys = collection("ownedaccesskeys");
    let made = acting(ops.post(&keys), "ada", &[]).json(&object).send().await.expect(201);
    let key = admin.with_token(made["spec"]["key"].as_str().unwrap());
    let token = endpoint_token(&key, json!({})).await;
    assert!(comes_true(async || code_at(&agent, &token).await == 200).await);
    End::RightTaken.come(admin, "ops", "ops-key").await;
    assert!(is_refused_at(&agent, &token).await, "the token goes on");
}

/// An address of this machine that is not of the loopback network, where it has one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // This sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

fn kubeconfig(server: &str, authority: &str) -> String {
    json!({
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        "clusters": [{ "name": "x", "cluster": { "server": server,
            "certificate-authority-data": STANDARD.encode(authority) } }],
        "users": [{ "name": "x", "user": { "token": "t" } }],
    })
    .to_string()
}

/// Creates a user with the right to use every cluster.
async fn caller(admin: &Client) -> Client {
    let ada = user(admin, "ada").await;
    allow(admin, "uses", None, json!([rule(&["clusters"], &["use"])]), "platform:user:ada").await;
    ada
}

/// Makes a cluster with this kubeconfig, and asks it for its namespaces. `None` where no such cluster can be made.
async fn ask(
    (admin, caller): (&Client, &Client),
    name: &str,
    kubeconfig: &str,
) -> Option<Response> {
    make_kubeconfig(admin, "platform", name, kubeconfig).await;
    let config = json!({ "secretName": name, "secretNamespace": "platform" });
    let object = json!({ "metadata": { "name": name }, "spec": { "config": config } });
    let made = admin.post(&collection("clusters")).json(&object).send().await;
    if made.status != 201 {
        assert_eq!(made.status, 422, "{}", made.text());
        return None;
    }
    Some(caller.get(&format!("/kubernetes/cluster/{name}{NAMESPACES}")).send().await)
}

/// A listener that counts connections, and ends each.
async fn counting(address: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (at, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    (at, count)
}

#[tokio::test]
async fn a_kubeconfig_does_not_lead_to_the_servers_own_addresses() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = caller(&admin).await;
    let authority = SelfSigned::make();
    let mut hosts: Vec<String> = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::]",
        "[::ffff:0:0]",
        "localhost",
        "127.0.0.9",
    ]
    .map(str::to_owned)
    .into();
    let (local, of_loopback) = counting("127.0.0.1:0".parse().unwrap()).await;
    let mut counts = vec![of_loopback];
    let mut port = local.port();
    let own = own_address();
    if let Some(own) = own {
        let (address, count) = counting(SocketAddr::new(own, 0)).await;
        port = address.port();
        counts.push(count);
        hosts.push(own.to_string());
        hosts.push(format!("[::ffff:{own}]"));
    }
    let mut found = Findings::new();
    for (index, host) in hosts.iter().enumerate() {
        let is_own = own.is_some_and(|own| host.contains(&own.to_string()));
        let port = if is_own { port } else { local.port() };
        let kubeconfig = kubeconfig(&format!("https://{host}:{port}"), authority.pem());
        ask((&admin, &ada), &format!("c{index}"), &kubeconfig).await;
        let reached: usize = counts.iter().map(|count| count.swap(0, Ordering::SeqCst)).sum();
        found.check(reached == 0, format!("https://{host} was dialled"));
        // The same as the endpoint of an agent, by which the gateway goes where there is no kubeconfig.
        let annotations = json!({ "platform.sh/direct-cluster-endpoint": format!("{host}:{port}"),
            "platform.sh/direct-cluster-endpoint-insecure": "true" });
        let object =
            json!({ "metadata": { "name": format!("e{index}"), "annotations": annotations } });
        let made = admin.post(&collection("clusters")).json(&object).send().await;
        if made.status == 201 {
            ada.get(&format!("/kubernetes/cluster/e{index}{NAMESPACES}")).send().await;
        }
        let reached: usize = counts.iter().map(|count| count.swap(0, Ordering::SeqCst)).sum();
        found.check(reached == 0, format!("the endpoint {host} was dialled"));
    }
    found.assert_none();
}

#[tokio::test]
async fn no_answer_tells_an_open_port_from_a_closed_one() {
    let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
    let server = setup.start().await;
    let admin = server.client();
    let ada = caller(&admin).await;
    let authority = SelfSigned::make();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let of_closed = closed.local_addr().unwrap();
    drop(closed);
    let (of_ended, _) = counting("127.0.0.1:0".parse().unwrap()).await;
    let of_plain = plain().await;
    let of_foreign = tls(SelfSigned::make().acceptor()).await;
    let mut answers = Vec::new();
    for (name, address) in
        [("closed", of_closed), ("ended", of_ended), ("plain", of_plain), ("foreign", of_foreign)]
    {
        let kubeconfig = kubeconfig(&format!("https://{address}"), authority.pem());
        let reply = ask((&admin, &ada), name, &kubeconfig).await.expect("the cluster can be made");
        let text = reply.text().replace(name, "NAME").replace(&address.to_string(), "ADDRESS");
        answers.push((reply.status, text, reply.header("retry-after").map(str::to_owned)));
    }
    let mut found = Findings::new();
    for other in &answers[1..] {
        found.check(*other == answers[0], format!("{:?} and {other:?}", answers[0]));
    }
    found.assert_none();
}

/// A server that answers in plain HTTP.
async fn plain() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 512];
                let _ = stream.read(&mut buffer).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                    .await;
            });
        }
    });
    address
}

/// A server that answers each request with an empty list, by TLS.
async fn tls(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = vec![0; 4096];
                let _ = stream.read(&mut buffer).await;
                let body = r#"{"kind":"NamespaceList","apiVersion":"v1","metadata":{},"items":[]}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(text.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_certificate_authority_that_is_the_servers_own_certificate_is_trusted() {
    let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
    let server = setup.start().await;
    let admin = server.client();
    let ada = caller(&admin).await;
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let address = tls(TlsAcceptor::from(Arc::new(config))).await;
    let kubeconfig = kubeconfig(&format!("https://{address}"), &certificate.pem());
    let reply = ask((&admin, &ada), "own", &kubeconfig).await.expect("the cluster can be made");
    assert_eq!(reply.status, 200, "{}", reply.text());
    // Another certificate with the same name is not trusted.
    let other = tls(SelfSigned::make().acceptor()).await;
    let kubeconfig = self::kubeconfig(&format!("https://{other}"), &certificate.pem());
    let reply = ask((&admin, &ada), "other", &kubeconfig).await.expect("the cluster can be made");
    assert!(reply.status >= 500, "{}", reply.text());
}

#[tokio::test]
async fn a_damaged_file_of_an_agent_does_not_stop_it_while_the_central_server_is_there() {
    let scene = Scene::new().await;
    let agent = scene.agent().start().await;
    let file = agent.state_dir().join("agentconfig.json");
    wait::until("the agent's file", async || file.exists().then_some(())).await;
    agent.stop().await;
    for content in ["", "{", "null", "{\"spec\":{\"cluster\":7}}", "\u{0}\u{1}"] {
        std::fs::write(&file, content).unwrap();
        let agent = scene.agent().start().await;
        let token = endpoint_token(&scene.ada, json!({})).await;
        assert_eq!(code_at(&agent, &token).await, 200, "{content:?}");
        agent.stop().await;
    }
}

#[tokio::test]
async fn an_agent_honours_an_audit_id_that_is_a_uuid() {
    let scene = Scene::new().await;
    let agent = scene.agent().start().await;
    let token = endpoint_token(&scene.ada, json!({})).await;
    let client = agent.client(&token);
    let list = format!("/kubernetes/cluster{NAMESPACES}");
    let id = "5f0c1f6e-2b0a-4a56-9c39-000000000001";
    let reply = client.get(&list).header("audit-id", id).send().await;
    assert_eq!((reply.status, reply.header("audit-id")), (200, Some(id)));
    wait::until("the record of the cluster", async || {
        let records = scene.member.home().records();
        records.iter().any(|record| record["auditID"] == id).then_some(())
    })
    .await;
    for other in ["mine", "5f0c1f6e-2b0a-4a56-9c39-00000000000g"] {
        let reply = client.get(&list).header("audit-id", other).send().await;
        assert_ne!(reply.header("audit-id"), Some(other));
    }
}

#[tokio::test]
async fn the_record_of_an_exec_has_its_command_and_nothing_else_of_the_query() {
    let scene = Scene::new().await;
    let agent = scene.agent().start().await;
    let token = endpoint_token(&scene.ada, json!({})).await;
    let query = "command=first-canary&container=hidden-canary&command=second%20canary&stdin=true&token=hidden-canary";
    let exec = format!("/api/v1/namespaces/a/pods/x/exec?{query}");
    let at_gateway = "7f0c1f6e-2b0a-4a56-9c39-000000000001";
    let request = scene.ada.post(&format!("/kubernetes/cluster/member{exec}"));
    request.header("audit-id", at_gateway).send().await;
    let reply = agent.client(&token).post(&format!("/kubernetes/cluster{exec}")).send().await;
    let at_agent = reply.header("audit-id").unwrap().to_owned();
    let home = scene.central.home();
    let mut found = Findings::new();
    for (what, id) in [("gateway", at_gateway.to_owned()), ("agent", at_agent)] {
        let record = wait::until("the record", async || {
            let mut records = home.records();
            records.extend(home.reported_records());
            let is_it = |record: &Value| {
                record["auditID"] == id.as_str() && record["stage"] != "RequestReceived"
            };
            records.into_iter().find(is_it)
        })
        .await;
        let text = record.to_string();
        let (first, second) = (text.find("first-canary"), text.find("second"));
        found.check(first.is_some() && first < second, format!("{what}: no command in {text}"));
        found
            .check(!text.contains("hidden-canary"), format!("{what}: more of the query in {text}"));
    }
    found.assert_none();
}

#[tokio::test]
async fn entering_a_virtual_cluster_takes_use_on_its_instance_by_every_path() {
    let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
    let server = setup.start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    let inside = Server::start().await;
    let rules = json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"] }]);
    allow(&inside.client(), "all", None, rules, "platform:authenticated").await;
    let kubeconfig = std::fs::read_to_string(inside.home().kubeconfig()).unwrap();
    make(&admin, "clusters", "c", json!({})).await;
    make(&admin, "projects", "p", json!({})).await;
    make_kubeconfig(&admin, "p-p", "v", &kubeconfig).await;
    let spec = json!({ "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": "inside" },
        "config": { "secretName": "v", "secretNamespace": "p-p" } });
    create(&admin, &in_namespace("p-p", "virtualclusterinstances"), "v", json!({ "spec": spec }))
        .await;
    let of_cluster = json!([rule_on("clusters", &["c"], &["use"])]);
    allow(&admin, "use-c", None, of_cluster, "platform:user:bob").await;
    let of_instance = json!([rule_on("virtualclusterinstances", &["v"], &["use"])]);
    allow(&admin, "use-v", Some("p-p"), of_instance, "platform:user:ada").await;
    let mut found = Findings::new();
    for at in ["/kubernetes/project/p/virtualcluster/v", "/kubernetes/virtualcluster/c/n/inside"] {
        let list = format!("{at}{NAMESPACES}");
        let code = bob.get(&list).send().await.status;
        found.check(code == 403, format!("{at} with `use` on the cluster alone: {code}"));
        let code = ada.get(&list).send().await.status;
        let wanted = if at.contains("project") { &[200][..] } else { &[200, 403] };
        found.check(wanted.contains(&code), format!("{at} with `use` on the instance: {code}"));
    }
    let allowed = json!([rule(&["clusters", "virtualclusterinstances"], &["use"])]);
    allow(&admin, "use-all", None, allowed, "platform:user:bob").await;
    let list = format!("/kubernetes/virtualcluster/c/n/inside{NAMESPACES}");
    found.check_code(&bob.get(&list).send().await, &[200], "with `use` on both");
    found.assert_none();
}
