//! The agent of a cluster with several servers: requests reach it on every server, also where it has no tunnel.

use postern_tests::cli::CliUser;
use postern_tests::etcd::Etcd;
use postern_tests::http::Client;
use postern_tests::rights::{allow, path, rule_on, set, user};
use postern_tests::{AgentSetup, Home, Kubeconfig, Server, Setup, wait};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{copy_of, init, on};

const SECRETS: &str =
    "/kubernetes/cluster/member/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";

/// Three servers on a new store, which reach each other on this machine.
async fn three(etcd: &Etcd) -> Vec<Server> {
    let store = etcd.store("/tunnels");
    let first = init(&store).await;
    let homes = [copy_of(&first), copy_of(&first), first];
    let mut servers = Vec::new();
    for home in &homes {
        let setup = on(Setup::on(home), &store).argument("--member-host=127.0.0.1");
        servers.push(setup.argument("--external-url=https://postern.test").start().await);
    }
    servers
}

/// A connected cluster that ada may use, and the access key of its agent.
async fn cluster(server: &Server) -> (Server, Client, String) {
    let admin = server.client();
    let known = server.home().kubeconfig();
    let cli = CliUser::new().with("KUBECONFIG", known.to_str().unwrap());
    let key = cli.ok(&["create", "cluster", "member"]).await.trim().to_owned();
    let ada = user(&admin, "ada").await;
    let rules = json!([rule_on("clusters", &["member"], &["use"])]);
    allow(&admin, "use-member", None, rules, "platform:user:ada").await;
    let member = Server::start().await;
    let rules = json!([
        { "apiGroups": ["management.platform.sh"], "resources": ["sharedsecrets"], "verbs": ["*"] },
    ]);
    allow(&member.client(), "ada", None, rules, "platform:user:ada").await;
    (member, ada, key)
}

async fn until_reached(client: &Client) {
    wait::until("a request to get through", async || {
        let reply = client.get(SECRETS).try_send().await.ok()?;
        (reply.status == 200).then_some(())
    })
    .await;
}

/// Creates a secret of this name in the cluster, and waits until a watch there has it.
async fn watch_and_create(client: &Client, name: &str) {
    until_reached(client).await;
    let mut events = client.get(&format!("{SECRETS}?watch=1")).stream().await;
    let object = json!({ "metadata": { "name": name }, "spec": {} });
    client.post(SECRETS).json(&object).send().await.expect(201);
    loop {
        let event = wait::within("the event", events.next()).await.unwrap().unwrap();
        if event.contains(name) {
            return;
        }
    }
}

#[tokio::test]
async fn a_server_without_a_tunnel_hands_a_request_to_one_that_has_one() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let (member, ada, key) = cluster(&servers[0]).await;
    // The agent reaches one server alone.
    let (home, upstream) = (Home::new(), member.home().kubeconfig());
    let central = servers[0].kubeconfig();
    let agent = AgentSetup::new(&home, central, "member", &key, &upstream).tunnel().await;
    for server in &servers {
        let client = server.client().with_token(ada.token());
        watch_and_create(&client, &format!("s{}", server.id())).await;
        // The request was recorded once, at the server that received it.
        let records = |server: &Server| {
            let of = |record: &&serde_json::Value| {
                record["verb"] == "create"
                    && record["objectRef"]["namespace"] == "platform"
                    && record["requestURI"]
                        .as_str()
                        .is_some_and(|uri| uri.contains("/cluster/member/"))
            };
            server.home().records().iter().filter(of).count()
        };
        wait::until("the record", async || (records(server) > 0).then_some(())).await;
    }
    let admin = servers[0].client();
    wait::until("the condition that says which servers are missing", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let conditions = cluster["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|one| one["type"] == "Tunnel")?;
        (found["reason"] == "ServersMissing").then_some(())
    })
    .await;
    // No caller gets through without the token of a server: it gets the response for a missing
    // path.
    let uid = admin.get(&path("clusters", "member")).send().await.expect(200);
    let uid = uid["metadata"]["uid"].as_str().unwrap();
    let relay = format!("/kubernetes/relay/{uid}/kubernetes/cluster/version");
    admin.get(&relay).header("platform-member-token", "a.b.c").send().await.expect(404);
    let ask =
        || admin.get(&relay).without("authorization").header("platform-member-token", "a.b.c");
    ask().send().await.expect(401);
    wait::until("the record", async || {
        let records = servers[0].home().records();
        let failed = |one: &&serde_json::Value| one["responseStatus"]["code"] == 401;
        records.iter().filter(failed).find(|one| one["requestURI"] == relay.as_str()).map(drop)
    })
    .await;
    wait::until("the limit of failures", async || (ask().send().await.status == 429).then_some(()))
        .await;
    // The other servers have the same address here. Their tokens are valid, so they are not refused.
    for server in &servers {
        until_reached(&server.client().with_token(ada.token())).await;
    }
    agent.stop().await;
}

/// The token of a caller with 500 groups of 256 bytes is longer than a server takes from unauthenticated clients.
#[tokio::test]
async fn a_server_hands_over_requests_of_the_largest_identity_too() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let (member, ada, key) = cluster(&servers[0]).await;
    let groups: Vec<String> = (0..500).map(|number| format!("{number:0>256}")).collect();
    set(&servers[0].client(), &path("users", "ada"), json!({ "groups": groups })).await;
    let (home, upstream) = (Home::new(), member.home().kubeconfig());
    let central = servers[0].kubeconfig();
    let agent = AgentSetup::new(&home, central, "member", &key, &upstream).tunnel().await;
    for server in &servers {
        let client = server.client().with_token(ada.token());
        watch_and_create(&client, &format!("s{}", server.id())).await;
    }
    // Only the token of a server opens such connections.
    let admin = servers[0].client();
    let open = || {
        let request = admin.get("/kubernetes/relay/long-heads");
        let request = request.header("connection", "upgrade");
        request.header("upgrade", "postern-long-heads/1").header("platform-member-token", "a.b.c")
    };
    open().send().await.expect(404);
    open().without("authorization").send().await.expect(401);
    agent.stop().await;
}

/// A load balancer that passes each connection to the next server.
async fn balance(listener: TcpListener, servers: Vec<String>) {
    let mut connections = JoinSet::new();
    for server in servers.iter().cycle() {
        let (mut client, _) = listener.accept().await.unwrap();
        let server = server.clone();
        connections.spawn(async move {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            // When one side ends, the opposite side ends too.
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

#[tokio::test]
async fn through_one_load_balancer_an_agent_finds_all_servers() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let (member, ada, key) = cluster(&servers[0]).await;
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().to_string();
    let known = servers[0].kubeconfig();
    let server = known.server.replacen(known.authority_of_server(), &own, 1);
    let balanced = Kubeconfig { server, ..known.clone() };
    let behind = servers.iter().map(|server| server.kubeconfig().authority_of_server().to_owned());
    let mut passing = JoinSet::new();
    passing.spawn(balance(listener, behind.collect()));
    let upstream = member.home().kubeconfig();
    let agent = AgentSetup::new(&home, &balanced, "member", &key, &upstream).tunnel().await;
    let admin = servers[0].client();
    wait::until("a tunnel to each server", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let agents = cluster["status"]["agents"].as_array()?;
        (agents.len() == servers.len()).then_some(())
    })
    .await;
    for server in &servers {
        until_reached(&server.client().with_token(ada.token())).await;
    }
    agent.stop().await;
}
