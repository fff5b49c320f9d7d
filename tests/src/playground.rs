//! A small platform on this machine, with a kubeconfig for each way in: a central server, two
//! connected clusters with an agent each, and two virtual clusters. All of them are Postern servers
//! on loopback, but one of the clusters can be a real kube-apiserver. `cargo xtask playground`
//! starts the platform.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::cli::CliUser;
use crate::http::Client;
use crate::kubectl::{CommandOutput, Kubectl};
use crate::objects::{CORE, GROUP, collection, make_kubeconfig, secret};
use crate::rights::{RBAC_GROUP, allow, binding, role};
use crate::{Agent, AgentSetup, ControlPlane, Home, Server, Setup, wait};

/// The namespace of the objects in the examples. Every Postern server has it.
const NAMESPACE: &str = "platform";

/// Everything that runs. Dropping it kills all of it.
#[derive(Debug)]
pub struct Playground {
    home: Home,
    // Agents go first: they speak to the others.
    agents: Vec<Agent>,
    clusters: Vec<Server>,
    west: West,
    central: Server,
    ways: Vec<Way>,
}

/// The cluster `west`.
#[derive(Debug)]
enum West {
    /// A Postern server.
    Ours(Server),
    /// A kube-apiserver, which knows none of our kinds.
    Kubernetes(ControlPlane),
}

impl West {
    async fn start(home: &Home, with_kubernetes: bool) -> Self {
        if with_kubernetes {
            let plane = ControlPlane::start(home).await;
            let admin = plane.admin();
            let namespace = json!({ "metadata": { "name": NAMESPACE } });
            admin.post("/api/v1/namespaces").json(&namespace).send().await.expect(201);
            let rules = json!([
                { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] },
                { "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"] },
            ]);
            let of_rbac = |what: &str| format!("/apis/{RBAC_GROUP}/v1/{what}");
            let (role, binding) =
                (role("ada", &rules), binding("ada", None, "ada", "platform:user:ada"));
            admin.post(&of_rbac("clusterroles")).json(&role).send().await.expect(201);
            admin.post(&of_rbac("clusterrolebindings")).json(&binding).send().await.expect(201);
            return Self::Kubernetes(plane);
        }
        let server = Setup::on(home).argument("--drain-timeout=1s").start().await;
        allow_ada(&server).await;
        Self::Ours(server)
    }

    /// The kubeconfig of its administrator.
    fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Ours(server) => server.home().kubeconfig(),
            Self::Kubernetes(plane) => plane.kubeconfig_of_admin(),
        }
    }

    /// The resource that is tried out there.
    fn resource(&self) -> &'static str {
        match self {
            Self::Ours(_) => "sharedsecrets",
            Self::Kubernetes(_) => "configmaps",
        }
    }
}

/// One way in.
#[derive(Debug)]
struct Way {
    name: &'static str,
    /// The resource that is tried out there.
    resource: &'static str,
    words: &'static str,
    kubeconfig: PathBuf,
}

/// The ways in: the name, a description, and the arguments of `postern connect`.
const WAYS: [(&str, &str, &[&str]); 9] = [
    ("east-direct", "the cluster east, at its agent", &["cluster", "east"]),
    (
        "east-gateway",
        "the same through the gateway, which goes by the agent",
        &["cluster", "east", "--gateway"],
    ),
    ("west-direct", "the cluster west, at its agent", &["cluster", "west"]),
    (
        "west-gateway",
        "the same through the gateway, which goes by a kubeconfig",
        &["cluster", "west", "--gateway"],
    ),
    (
        "dev",
        "the virtual cluster dev, by its own kubeconfig through the gateway",
        &["virtualcluster", "dev", "--project", "web"],
    ),
    (
        "ci-direct",
        "the virtual cluster ci on east, at the agent, which reads its Secret there",
        &["virtualcluster", "ci", "--project", "web"],
    ),
    (
        "ci-gateway",
        "the same through the gateway, which goes by the agent",
        &["virtualcluster", "ci", "--project", "web", "--gateway"],
    ),
    ("shop-direct", "the space shop on east, at the agent", &["space", "shop", "--project", "web"]),
    (
        "shop-gateway",
        "the same through the gateway",
        &["space", "shop", "--project", "web", "--gateway"],
    ),
];

impl Playground {
    /// Starts everything in a directory. Each part has its own subdirectory. With
    /// `with_kubernetes`, the cluster `west` is a real one, from the downloads of `cargo xtask
    /// fetch --all`.
    pub async fn start(home: Home, with_kubernetes: bool) -> Self {
        let at = |name: &str| Home::at(&home.path().join(name));
        let (of_west, member) =
            (at("west"), |name: &str| Setup::on(&at(name)).argument("--drain-timeout=1s").start());
        let central = Setup::on(&at("central"))
            .argument("--allow-local-upstreams")
            .argument("--drain-timeout=1s");
        let (central, east, west, dev, ci) = tokio::join!(
            Box::pin(central.start()),
            Box::pin(member("east")),
            Box::pin(West::start(&of_west, with_kubernetes)),
            Box::pin(member("dev")),
            Box::pin(member("ci"))
        );
        let admin = CliUser::at(at("admin"))
            .with("KUBECONFIG", central.home().kubeconfig().to_str().expect("a readable path"));
        for cluster in [&east, &dev, &ci] {
            allow_ada(cluster).await;
        }
        let mut agents = Vec::new();
        keep_kubeconfig(&central.client(), NAMESPACE, "west-kubeconfig", &west.kubeconfig()).await;
        let by_kubeconfig = ["--kubeconfig-secret", "platform/west-kubeconfig"];
        let east_kubeconfig = east.home().kubeconfig();
        for (name, upstream, more) in
            [("east", east_kubeconfig, &[][..]), ("west", west.kubeconfig(), &by_kubeconfig)]
        {
            let create = [&["create", "cluster", name][..], more].concat();
            let key = admin.ok(&create).await;
            let setup = AgentSetup::new(&home, central.kubeconfig(), name, key.trim(), &upstream);
            // No name of a Service is resolved here: the virtual cluster is at its address on loopback.
            let setup = setup.argument("--advertise=127.0.0.1").argument("--allow-local-upstreams");
            agents.push(setup.start().await);
        }
        make_people(&admin, &home, &central).await;
        make_instances(&admin, &central.client(), &dev).await;
        make_ci(&central.client(), &east, &ci).await;
        wait_for_endpoints(&central.client()).await;
        let ways = connect(&home, &west).await;
        Self { home, agents, clusters: vec![east, dev, ci], west, central, ways }
    }

    /// A description for people: the servers, the ways in, and commands to try.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let server = &self.central.kubeconfig().server;
        let _ = writeln!(text, "the central server: {server}");
        let admin = self.central.home().kubeconfig();
        let _ = writeln!(text, "  export KUBECONFIG={}    # its administrator", admin.display());
        let ada = kubeconfig_of_ada(&self.home);
        let _ = writeln!(text, "  export KUBECONFIG={}    # the user ada", ada.display());
        let _ = writeln!(text, "\nthe ways in, as ada:");
        for way in &self.ways {
            let _ = writeln!(text, "  export KUBECONFIG={}", way.kubeconfig.display());
            let _ = writeln!(text, "      # {}", way.words);
        }
        if self.west.resource() == "configmaps" {
            let _ =
                writeln!(text, "\nwest is a real kube-apiserver, which has configmaps to try out;");
            let _ = writeln!(text, "try, by any of the other ways in:");
        } else {
            let _ = writeln!(text, "\ntry, by any of these ways in:");
        }
        for command in ["apply -f examples/sharedsecret.yaml", "get sharedsecrets --watch"] {
            let _ = writeln!(text, "  kubectl -n {NAMESPACE} {command}");
        }
        let _ = writeln!(text, "  kubectl -n {NAMESPACE} auth can-i --list");
        let program = crate::binary::path().display();
        let _ = writeln!(text, "and as ada, or as the administrator, at the central server:");
        let _ = writeln!(text, "  {program} whoami");
        let _ = writeln!(text, "  {program} list clusters -o wide");
        let _ = writeln!(text, "  {program} connect cluster east");
        text
    }

    /// Runs kubectl by each way in: get, auth can-i, apply, watch, delete. Panics where something does not work.
    pub async fn check(&self) {
        let kubectl = Kubectl::new(&self.home);
        for way in &self.ways {
            way.check(&kubectl).await;
        }
    }

    /// The names of the ways in.
    pub fn ways(&self) -> impl Iterator<Item = &'static str> {
        self.ways.iter().map(|way| way.name)
    }

    /// Ends everything, in the order in which nothing misses another.
    pub async fn stop(self) {
        for agent in self.agents {
            agent.stop().await;
        }
        let west = match self.west {
            West::Ours(server) => Some(server),
            West::Kubernetes(_) => None,
        };
        for server in self.clusters.into_iter().chain(west).chain([self.central]) {
            server.stop().await;
        }
    }
}

impl Way {
    async fn check(&self, kubectl: &Kubectl) {
        let name = format!("by-{}", self.name);
        let object = match self.resource {
            "configmaps" => {
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
            }
            _ => secret(&name, "v"),
        };
        let manifest = kubectl.file(&format!("{name}.json"), &object.to_string());
        self.ok(kubectl, &["get", self.resource]).await;
        self.ok(kubectl, &["auth", "can-i", "create", self.resource]).await;
        let rights = self.ok(kubectl, &["auth", "can-i", "--list"]).await;
        assert!(rights.contains(self.resource), "{}: {rights}", self.name);
        let mut watch = self.command(kubectl, &["get", self.resource, "--watch", "-o", "name"]);
        let mut watch = watch.stdout(Stdio::piped()).spawn().expect("kubectl starts");
        let output = watch.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(output).lines();
        let applied = self.ok(kubectl, &["apply", "-f", &manifest]).await;
        assert!(applied.contains("created"), "{}: {applied}", self.name);
        let again = self.ok(kubectl, &["apply", "-f", &manifest]).await;
        assert!(again.contains("unchanged"), "{}: {again}", self.name);
        let what = format!("the watch by {} to show what was applied", self.name);
        wait::within(&what, async {
            while let Some(line) = lines.next_line().await.expect("readable output") {
                if line.contains(&name) {
                    return;
                }
            }
            panic!("{}: the watch ended", self.name);
        })
        .await;
        watch.kill().await.expect("the watch can be ended");
        self.ok(kubectl, &["delete", self.resource, &name]).await;
    }

    fn command(&self, kubectl: &Kubectl, arguments: &[&str]) -> tokio::process::Command {
        let mut command = kubectl.command(&[&["-n", NAMESPACE], arguments].concat());
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    async fn ok(&self, kubectl: &Kubectl, arguments: &[&str]) -> String {
        let command = self.command(kubectl, arguments);
        let CommandOutput { out, err, ok } = kubectl.run_command(command).await;
        assert!(ok, "kubectl {arguments:?} by {} failed: {out}{err}", self.name);
        out
    }
}

/// Lets ada do everything with shared secrets.
async fn allow_ada(cluster: &Server) {
    let rules = json!([
        { "apiGroups": ["management.platform.sh"], "resources": ["sharedsecrets"], "verbs": ["*"] },
        { "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"] },
    ]);
    allow(&cluster.client(), "ada", None, rules, "platform:user:ada").await;
}

fn kubeconfig_of_ada(home: &Home) -> PathBuf {
    home.path().join("ada/.kube/config")
}

/// Creates the user ada with every right that the examples need, and logs the user in.
async fn make_people(admin: &CliUser, home: &Home, central: &Server) {
    admin.ok(&["create", "user", "ada"]).await;
    for cluster in ["east", "west"] {
        admin.ok(&["share", "cluster", cluster, "--user", "ada"]).await;
    }
    admin.ok(&["create", "project", "web", "--member", "user/ada"]).await;
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = CliUser::at(Home::at(&home.path().join("ada")));
    let authority = ada.file("ca.pem", &central.kubeconfig().authority);
    let server = &central.kubeconfig().server;
    let login = ["login", server, "--access-key", "-", "--ca-file", &authority];
    let done = ada.run_with(&login, key.as_bytes()).await;
    assert_eq!(done.code, 0, "ada cannot log in: {}", done.err);
}

/// Makes the virtual cluster `dev`, which has a kubeconfig at the central server, and the space.
async fn make_instances(admin: &CliUser, client: &Client, dev: &Server) {
    keep_kubeconfig(client, "p-web", "dev-kubeconfig", &dev.home().kubeconfig()).await;
    let at = json!({ "cluster": "east", "namespace": "dev", "virtualCluster": "dev" });
    let config = json!({ "secretName": "dev-kubeconfig" });
    let spec = json!({ "clusterRef": at, "config": config });
    make_instance(client, "virtualclusterinstances", "dev", spec).await;
    let at = json!({ "cluster": "east", "namespace": NAMESPACE });
    make_instance(client, "spaceinstances", "shop", json!({ "clusterRef": at })).await;
    // The members of the project may use both by their role; this shows that it is so.
    admin.ok(&["can-i", "use", "space/shop", "-n", "p-web", "--as", "ada"]).await;
}

/// Makes the virtual cluster `ci`, which only the agent of its cluster reaches: by the kubeconfig in its Secret there.
async fn make_ci(client: &Client, east: &Server, ci: &Server) {
    let member = east.client();
    let namespace = json!({ "metadata": { "name": "ci" } });
    member.post(&format!("{CORE}/namespaces")).json(&namespace).send().await.expect(201);
    keep_kubeconfig(&member, "ci", "vc-ci", &ci.home().kubeconfig()).await;
    let at = json!({ "cluster": "east", "namespace": "ci", "virtualCluster": "ci" });
    make_instance(client, "virtualclusterinstances", "ci", json!({ "clusterRef": at })).await;
}

async fn make_instance(client: &Client, resource: &str, name: &str, spec: Value) {
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    let path = format!("{GROUP}/namespaces/p-web/{resource}");
    client.post(&path).json(&object).send().await.expect(201);
}

/// Makes a Secret with the kubeconfig in a file.
async fn keep_kubeconfig(client: &Client, namespace: &str, secret: &str, file: &Path) {
    let text = std::fs::read_to_string(file).expect("it was written");
    make_kubeconfig(client, namespace, secret, &text).await;
}

/// Waits until the agents have said where they are reached.
async fn wait_for_endpoints(client: &Client) {
    for cluster in ["east", "west"] {
        let path = collection(&format!("clusters/{cluster}"));
        wait::until("the agent to register its endpoint", async || {
            let object = client.get(&path).send().await.expect(200);
            let annotations = &object["metadata"]["annotations"];
            annotations["platform.sh/direct-cluster-endpoint"].as_str().map(drop)
        })
        .await;
    }
}

/// Has `postern connect` print a kubeconfig for each way in.
async fn connect(home: &Home, west: &West) -> Vec<Way> {
    let ada = CliUser::at(Home::at(&home.path().join("ada")));
    let directory = home.path().join("kubeconfigs");
    std::fs::create_dir_all(&directory).expect("the directory can be made");
    let mut ways = Vec::new();
    for (name, words, target) in WAYS {
        let printed = ada.ok(&[&["connect"], target, &["--print"]].concat()).await;
        let kubeconfig = directory.join(format!("{name}.yaml"));
        write_private(&kubeconfig, &printed);
        let resource = if name.starts_with("west") { west.resource() } else { "sharedsecrets" };
        ways.push(Way { name, resource, words, kubeconfig });
    }
    ways
}

/// Writes a file that only its owner can read: through the gateway, a kubeconfig has an access key.
fn write_private(path: &Path, text: &str) {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the file can be written");
}
