//! A central server, and the clusters behind its gateway.

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::{GROUP, endpoint_token, make, make_kubeconfig};
use postern_tests::rights::{allow, rule_on, user};
use postern_tests::{Agent, AgentSetup, Home, Server, Setup, wait};
use serde_json::{Value, json};

/// The cluster's path at the gateway.
pub(crate) const MEMBER: &str = "/kubernetes/cluster/member";

/// The cluster's path at its agent.
pub(crate) const AT_AGENT: &str = "/kubernetes/cluster";

/// Shared secrets of the namespace `platform`, below a target's path.
pub(crate) const SECRETS: &str =
    "/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";

/// A central server with the user ada, with the right to use the cluster `member`, and the user eve
/// without it.
pub(crate) struct Central {
    pub(crate) admin: Client,
    pub(crate) ada: Client,
    pub(crate) eve: Client,
    pub(crate) server: Server,
}

impl Central {
    /// Starts a server with the cluster `member`, which is reached by this kubeconfig.
    pub(crate) async fn new(kubeconfig: &str) -> Self {
        Self::with(kubeconfig, &[]).await
    }

    /// The same with more arguments.
    pub(crate) async fn with(kubeconfig: &str, arguments: &[&str]) -> Self {
        let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
        let setup = setup.argument("--drain-timeout").argument("1s");
        let setup = arguments.iter().fold(setup, Setup::argument);
        let server = setup.start().await;
        let admin = server.client();
        connect(&admin, "member", kubeconfig).await;
        let (ada, eve) = (user(&admin, "ada").await, user(&admin, "eve").await);
        let rules = json!([rule_on("clusters", &["member"], &["use"])]);
        allow(&admin, "use-member", None, rules, "platform:user:ada").await;
        Self { admin, ada, eve, server }
    }

    /// A client of ada, with a new key of this scope.
    pub(crate) async fn scoped(&self, name: &str, scope: Value) -> Client {
        let spec = json!({ "user": "ada", "scope": scope });
        postern_tests::rights::with_key(&self.admin, name, spec).await
    }
}

/// A central server, and the cluster `member`, to which its agent alone leads. ada may use it.
pub(crate) struct ByAgent {
    pub(crate) ada: Client,
    /// ada's client of the agent.
    pub(crate) direct: Client,
    _agent: Agent,
    _central: Server,
}

impl ByAgent {
    /// Starts a server and an agent. This kubeconfig reaches the agent's cluster.
    pub(crate) async fn new(home: &Home, kubeconfig: &str) -> Self {
        let central = central().await;
        let admin = central.client();
        let ada = user(&admin, "ada").await;
        let rules = json!([rule_on("clusters", &["member"], &["use"])]);
        allow(&admin, "use-member", None, rules, "platform:user:ada").await;
        let agent = member_agent(home, &central, kubeconfig).await;
        let version = format!("{MEMBER}/version");
        wait::until("the way through the agent", async || {
            (ada.get(&version).send().await.status == 200).then_some(())
        })
        .await;
        let direct = agent.client(&endpoint_token(&ada, json!({})).await);
        Self { ada, direct, _agent: agent, _central: central }
    }
}

/// Starts a central server that a cluster on this machine can be connected to.
pub(crate) async fn central() -> Server {
    let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
    setup.argument("--drain-timeout=1s").start().await
}

/// Makes the cluster `member` by the command line, and starts its agent, which reaches it by this kubeconfig.
pub(crate) async fn member_agent(home: &Home, central: &Server, kubeconfig: &str) -> Agent {
    let by_cli = CliUser::new().with("KUBECONFIG", central.home().kubeconfig().to_str().unwrap());
    let key = by_cli.ok(&["create", "cluster", "member"]).await;
    let upstream = home.path().join("upstream");
    std::fs::write(&upstream, kubeconfig).unwrap();
    let agent = AgentSetup::new(home, central.kubeconfig(), "member", key.trim(), &upstream);
    let agent = agent.argument("--advertise=127.0.0.1").argument("--allow-local-upstreams");
    agent.start().await
}

/// Creates a Cluster with a kubeconfig.
pub(crate) async fn connect(admin: &Client, name: &str, kubeconfig: &str) {
    let secret = format!("{name}-kubeconfig");
    make_kubeconfig(admin, "platform", &secret, kubeconfig).await;
    let config = json!({ "secretName": secret, "secretNamespace": "platform" });
    make(admin, "clusters", name, json!({ "config": config })).await;
}

/// A connected cluster that is a Postern server.
pub(crate) struct Member {
    pub(crate) admin: Client,
    pub(crate) server: Server,
}

impl Member {
    /// Starts one in which ada may do everything with shared secrets.
    pub(crate) async fn new() -> Self {
        let server = Server::start().await;
        let admin = server.client();
        let rules = json!([
            { "apiGroups": ["management.platform.sh"], "resources": ["sharedsecrets"], "verbs": ["*"] },
            { "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"] },
        ]);
        allow(&admin, "ada", None, rules, "platform:user:ada").await;
        Self { admin, server }
    }

    /// The administrator's kubeconfig, by which the gateway reaches it.
    pub(crate) fn kubeconfig(&self) -> String {
        std::fs::read_to_string(self.server.home().kubeconfig()).unwrap()
    }

    /// The records of requests that came through the gateway with the user agent `agent`. They
    /// include everything that arrived before this call.
    pub(crate) async fn arrived(&self, agent: &str) -> Vec<Value> {
        // A record of a later request is behind those of all earlier ones.
        let marker = format!("{GROUP}/namespaces/platform/sharedsecrets/{agent}-{}", self.marker());
        self.admin.get(&marker).send().await;
        let is_marker = |record: &Value| record["requestURI"] == marker.as_str();
        let home = self.server.home();
        wait::until("the marker in the audit log", async || {
            home.records().iter().any(is_marker).then_some(())
        })
        .await;
        let mut records = home.records();
        records
            .retain(|record| record["userAgent"] == agent && record["stage"] != "RequestReceived");
        records
    }

    fn marker(&self) -> usize {
        self.server.home().records().len()
    }
}

/// Creates a project with a space in the namespace `platform` of the cluster `member`, which ada may use.
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
