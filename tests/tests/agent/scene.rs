//! A central server, a connected cluster, and the agent between them.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::{GROUP, collection, make};
use postern_tests::rights::{allow, rule_on, user};
use postern_tests::{Home, Kubeconfig, Relay, Server, Setup, binary, wait};
use serde_json::{Value, json};

/// Shared secrets of the namespace `platform`, below a target's path.
pub(crate) const SECRETS: &str =
    "/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";

/// The cluster's path at its agent.
pub(crate) const CLUSTER: &str = "/kubernetes/cluster";

/// A central server with the cluster `member`, which ada may use, and eve may not.
pub(crate) struct Central {
    pub(crate) server: Option<Server>,
    pub(crate) home: Home,
    /// The address that the agent knows, whatever port the server has.
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
        let made = CliUser::new()
            .with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap())
            .run(&["create", "cluster", "member"])
            .await;
        assert_eq!(made.code, 0, "{}", made.err);
        let (ada, eve) = (user(&admin, "ada").await, user(&admin, "eve").await);
        let rules = json!([rule_on("clusters", &["member"], &["use"])]);
        allow(&admin, "use-member", None, rules, "platform:user:ada").await;
        let relay = Relay::new().await;
        relay.connect_to(&server);
        let agent_key = made.text().trim().to_owned();
        Self { server: Some(server), home, relay, ada, eve, agent_key }
    }

    pub(crate) fn admin(&self) -> Client {
        self.server.as_ref().expect("the central server runs").client()
    }

    /// Stops the server. Only what needs no central server goes on.
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

/// Returns an endpoint token.
pub(crate) async fn token(client: &Client, spec: Value) -> String {
    let tokens = collection("directclusterendpointtokens");
    let made = client.post(&tokens).json(&json!({ "spec": spec })).send().await.expect(201);
    made["status"]["token"].as_str().expect("a token").to_owned()
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

/// A running agent. Dropping it kills it.
pub(crate) struct Agent {
    child: Child,
    pub(crate) home: Home,
    log: std::path::PathBuf,
    address: String,
}

impl Agent {
    /// Starts an agent, and waits until it listens.
    pub(crate) async fn start(central: &Central, member: &Server, home: &Home) -> Self {
        Self::start_with(central, member, home, &[]).await
    }

    pub(crate) async fn start_with(
        central: &Central,
        member: &Server,
        home: &Home,
        more: &[&str],
    ) -> Self {
        Self::start_at(central, &member.home().kubeconfig(), home, more).await
    }

    /// Starts an agent of a cluster that is reached by this kubeconfig.
    pub(crate) async fn start_at(
        central: &Central,
        upstream: &Path,
        home: &Home,
        more: &[&str],
    ) -> Self {
        let at = |name: &str| home.path().join(name);
        let authority = Kubeconfig::read(&central.home.kubeconfig()).unwrap().authority;
        std::fs::write(at("central-ca.pem"), authority).unwrap();
        std::fs::write(at("key"), format!("{}\n", central.agent_key)).unwrap();
        let log = at("agent.log");
        let mut command = Command::new(binary::path());
        command.arg("agent");
        if !more.iter().any(|one| one.starts_with("--ca-digest")) {
            command.arg("--ca-file").arg(at("central-ca.pem"));
        }
        let child = command
            .arg(format!("--server=https://127.0.0.1:{}", central.relay.port()))
            .arg("--cluster=member")
            .arg("--key-file")
            .arg(at("key"))
            .arg("--upstream")
            .arg(upstream)
            .arg("--listen=127.0.0.1:0")
            .arg("--drain-timeout=1s")
            .arg("--state-dir")
            .arg(at("state"))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("the binary under test can be started");
        let mut agent = Self { child, home: home.clone(), log, address: String::new() };
        agent.address = wait::until("the agent to listen", async || {
            if let Some(status) = agent.child.try_wait().unwrap() {
                panic!("the agent ended with {status}: {}", agent.logged());
            }
            let logged = agent.logged();
            let (_, rest) = logged.split_once("listening on https://")?;
            Some(rest.split_once('\n')?.0.trim().to_owned())
        })
        .await;
        agent
    }

    /// `HOST:PORT`
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What it has logged.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A client with an endpoint token.
    pub(crate) fn client(&self, token: &str) -> Client {
        Client::new(&self.kubeconfig(token))
    }

    /// How it is reached with an endpoint token.
    pub(crate) fn kubeconfig(&self, token: &str) -> Kubeconfig {
        let authority = std::fs::read(self.home.path().join("state/ca.pem")).unwrap();
        Kubeconfig {
            server: format!("https://{}{CLUSTER}", self.address),
            authority,
            token: token.to_owned(),
            namespace: "platform".to_owned(),
        }
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&self) {
        let client = self.client("x");
        wait::until("the agent to be ready", async || {
            let reply = client.get("/readyz").try_send().await.ok()?;
            (reply.status == 200).then_some(())
        })
        .await;
    }

    /// SIGTERM, and the exit status has to be 0.
    pub(crate) async fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let ended = async || self.child.try_wait().unwrap();
        let status = wait::until("the agent to end", ended).await;
        assert!(status.success(), "the agent ended with {status}: {}", self.logged());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("the agent's log:\n{}", self.logged());
        }
    }
}
