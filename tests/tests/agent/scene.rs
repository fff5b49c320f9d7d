//! A central server, a connected cluster, and the agent between them.

use std::path::Path;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::{GROUP, make};
use postern_tests::rights::{allow, rule_on, user};
use postern_tests::{Agent, AgentSetup, Home, Kubeconfig, Relay, Server, Setup};
use serde_json::json;

/// Shared secrets of the namespace `platform`, below a target's path.
pub(crate) const SECRETS: &str =
    "/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";

/// The cluster's path at its agent.
pub(crate) const CLUSTER: &str = "/kubernetes/cluster";

/// A central server with the cluster `member`, which ada may use, and eve may not.
pub(crate) struct Central {
    pub(crate) server: Option<Server>,
    pub(crate) home: Home,
    /// The address that the agent knows. It stays the same if the port of the server changes.
    pub(crate) relay: Relay,
    pub(crate) ada: Client,
    pub(crate) eve: Client,
    pub(crate) agent_key: String,
}

fn setup(home: &Home) -> Setup {
    Setup::on(home).argument("--external-url=https://postern.test").argument("--drain-timeout=1s")
}

impl Central {
    pub(crate) async fn new() -> Self {
        let home = Home::new();
        let server = setup(&home).start().await;
        let admin = server.client();
        let agent_key = create_cluster(&server, "member").await;
        let (ada, eve) = (user(&admin, "ada").await, user(&admin, "eve").await);
        let rules = json!([rule_on("clusters", &["member"], &["use"])]);
        allow(&admin, "use-member", None, rules, "platform:user:ada").await;
        let relay = Relay::new().await;
        relay.connect_to(&server);
        Self { server: Some(server), home, relay, ada, eve, agent_key }
    }

    pub(crate) fn admin(&self) -> Client {
        self.server.as_ref().expect("the central server runs").client()
    }

    /// Creates a cluster, and returns the access key of its agent.
    pub(crate) async fn create_cluster(&self, name: &str) -> String {
        create_cluster(self.server.as_ref().expect("the central server runs"), name).await
    }

    /// Stops the server. The parts that need no central server go on.
    pub(crate) async fn stop(&mut self) {
        self.relay.disconnect();
        self.server.take().expect("it runs").stop().await;
    }

    /// Starts it again, without the agent reaching it.
    pub(crate) async fn start(&mut self) {
        self.server = Some(setup(&self.home).start().await);
    }

    /// Lets the agent reach it again.
    pub(crate) fn reconnect(&self) {
        self.relay.connect_to(self.server.as_ref().expect("it runs"));
    }
}

async fn create_cluster(server: &Server, name: &str) -> String {
    let user = CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap());
    user.ok(&["create", "cluster", name]).await.trim().to_owned()
}

/// A connected cluster in which ada may do everything with shared secrets.
pub(crate) async fn member() -> Server {
    let server = Server::start().await;
    let rules = json!([
        { "apiGroups": ["management.platform.sh"], "resources": ["sharedsecrets"], "verbs": ["*"] },
        { "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"] },
    ]);
    allow(&server.client(), "ada", None, rules, "platform:user:ada").await;
    server
}

/// A project with a space in the namespace `platform` of the cluster `member`, which ada may use.
pub(crate) async fn make_space(admin: &Client) {
    make(admin, "projects", "p", json!({})).await;
    let space = json!({
        "metadata": { "name": "s" },
        "spec": { "clusterRef": { "cluster": "member", "namespace": "platform" } },
    });
    let spaces = format!("{GROUP}/namespaces/p-p/spaceinstances");
    admin.post(&spaces).json(&space).send().await.expect(201);
    let rules = json!([rule_on("spaceinstances", &["s"], &["use"])]);
    allow(admin, "use-space", Some("p-p"), rules, "platform:user:ada").await;
}

/// Starts the agent of the cluster, and waits until it listens.
pub(crate) async fn start_agent(central: &Central, member: &Server, home: &Home) -> Agent {
    start_agent_with(central, member, home, &[]).await
}

/// The same with more arguments.
pub(crate) async fn start_agent_with(
    central: &Central,
    member: &Server,
    home: &Home,
    more: &[&str],
) -> Agent {
    let setup = agent_setup(central, &member.home().kubeconfig(), home);
    more.iter().fold(setup, AgentSetup::argument).launch().await
}

/// The setup of an agent. This kubeconfig reaches its cluster.
pub(crate) fn agent_setup(central: &Central, upstream: &Path, home: &Home) -> AgentSetup {
    let known = Kubeconfig::read(&central.home.kubeconfig()).unwrap();
    let server = format!("https://127.0.0.1:{}", central.relay.port());
    let relayed = Kubeconfig { server, ..known };
    AgentSetup::new(home, &relayed, "member", &central.agent_key, upstream)
}
