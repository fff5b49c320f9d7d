//! A central server, two clusters of it that are one upstream, and each way there.

use std::path::Path;

use postern_tests::cli::CliUser;
use postern_tests::objects::{endpoint_token, make, make_kubeconfig};
use postern_tests::rights::{path, set, user};
use postern_tests::{Agent, AgentSetup, Home, Kubeconfig, Server, Setup, wait};
use serde_json::json;

/// The servers between ada and the upstream, and ada's credentials.
pub(crate) struct Scene {
    pub(crate) home: Home,
    pub(crate) agent: Agent,
    pub(crate) central: Server,
    ada: Kubeconfig,
    token: String,
}

impl Scene {
    /// Starts it: the cluster `near` is reached by a kubeconfig, and the cluster `far` by its agent. ada is in the
    /// team `devs`, and in two groups of their own.
    pub(crate) async fn new(home: Home, upstream: &Path) -> Self {
        Self::with(home, upstream, async |_| {}).await
    }

    /// The same scene, after `prepare` has used the command line's output about the cluster `far`.
    pub(crate) async fn with(
        home: Home,
        upstream: &Path,
        prepare: impl AsyncFnOnce(String),
    ) -> Self {
        let central = Self::central(&home).await;
        let kubeconfig = central.home().kubeconfig();
        let admin = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap());
        let client = central.client();
        let of_near = std::fs::read_to_string(upstream).unwrap();
        make_kubeconfig(&client, "platform", "near", &of_near).await;
        admin.ok(&["create", "cluster", "near", "--kubeconfig-secret", "platform/near"]).await;
        let created = admin.run(&["create", "cluster", "far"]).await;
        let key = created.text().trim().to_owned();
        prepare(created.err).await;
        let agent = AgentSetup::new(&home, central.kubeconfig(), "far", &key, upstream);
        let agent = agent.argument("--advertise=127.0.0.1").start().await;
        let ada = user(&client, "ada").await;
        set(&client, &path("users", "ada"), json!({ "groups": ["ops", "others"] })).await;
        make(&client, "teams", "devs", json!({ "users": ["ada"] })).await;
        for cluster in ["near", "far"] {
            admin.ok(&["share", "cluster", cluster, "--user", "ada"]).await;
        }
        let token = endpoint_token(&ada, json!({})).await;
        wait::until("the agent to know that ada may use the cluster", async || {
            let reply = agent.client(&token).get("/kubernetes/cluster/version").send().await;
            (reply.status != 403).then_some(())
        })
        .await;
        let server = format!("https://{}", ada.address());
        let ada = Kubeconfig {
            server,
            token: ada.token().to_owned(),
            namespace: "default".to_owned(),
            ..central.kubeconfig().clone()
        };
        Self { home, agent, central, ada, token }
    }

    /// The central server of a scene.
    pub(crate) async fn central(home: &Home) -> Server {
        Self::central_at(home, &[]).await
    }

    /// The same with these names and addresses.
    pub(crate) async fn central_at(home: &Home, hosts: &[&str]) -> Server {
        Self::setup(home, hosts).start().await
    }

    /// How it is started.
    pub(crate) fn setup(home: &Home, hosts: &[&str]) -> Setup {
        let setup = Setup::on(home).argument("--allow-local-upstreams");
        let setup = setup.argument("--forward-groups=ops").argument("--drain-timeout=1s");
        let add = |setup: Setup, host: &&str| setup.argument(format!("--host={host}"));
        hosts.iter().fold(setup, add)
    }

    fn through_the_gateway(&self, cluster: &str) -> Kubeconfig {
        let server = format!("{}/kubernetes/cluster/{cluster}", self.ada.server);
        Kubeconfig { server, ..self.ada.clone() }
    }

    /// The ways in, each with its name and its kubeconfig.
    pub(crate) fn ways(&self) -> Vec<(String, Kubeconfig)> {
        let direct =
            Kubeconfig { namespace: "default".to_owned(), ..self.agent.kubeconfig(&self.token) };
        vec![
            ("the gateway".to_owned(), self.through_the_gateway("near")),
            ("the gateway and the agent".to_owned(), self.through_the_gateway("far")),
            ("the agent".to_owned(), direct),
        ]
    }
}
