//! A fleet on this machine: three servers, an etcd with three members, and nginx in front of the servers.
//! `cargo xtask playground --fleet` starts it.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::json;

use crate::etcd_cluster::{EtcdCluster, MEMBERS};
use crate::kubectl::Kubectl;
use crate::links::Links;
use crate::objects::secret;
use crate::{Home, Kubeconfig, Nginx, Server, Setup, wait};

/// The servers.
const SERVERS: usize = 3;

/// The namespace of the objects that are tried out.
const NAMESPACE: &str = "platform";

/// Everything that runs. Dropping it kills all of it.
#[derive(Debug)]
pub struct FleetPlayground {
    home: Home,
    // The load balancer goes first, and etcd last.
    nginx: Nginx,
    servers: Vec<Option<Server>>,
    etcd: EtcdCluster,
}

impl FleetPlayground {
    /// Starts everything in a directory. Each part has its own subdirectory.
    pub async fn start(home: Home) -> Self {
        let etcd = EtcdCluster::start(&Links::default(), &[]).await;
        let members: Vec<String> =
            (0..MEMBERS).map(|number| format!("127.0.0.1:{}", etcd.client_port(number))).collect();
        let store = format!("etcd://{}/playground", members.join(","));
        // The packaged etcd has faults that are not met here.
        let on =
            |setup: Setup| setup.argument("--store").argument(&store).argument("--allow-old-etcd");
        let homes: Vec<Home> = (1..=SERVERS)
            .map(|number| Home::at(&home.path().join(format!("server-{number}"))))
            .collect();
        let first = &homes[0];
        let init =
            Setup::bare(first).argument("init").argument("--data-dir").argument(first.data());
        let ended = on(init).run_to_end().await;
        assert!(ended.status.success(), "{}", ended.stderr);
        let mut servers = Vec::new();
        for other in &homes[1..] {
            let mut copy = Command::new("cp");
            let copied = copy.arg("-a").arg(first.data()).arg(other.data()).status();
            assert!(copied.expect("cp can be started").success());
        }
        for home in &homes {
            servers.push(on(Setup::on(home)).start().await);
        }
        let behind: Vec<&Kubeconfig> = servers.iter().map(Server::kubeconfig).collect();
        let nginx = Nginx::balance(&home, "fleet", &behind).await;
        let _ = nginx.kubeconfig(behind[0]).write(&home.path().join("admin.kubeconfig"));
        Self { home, nginx, servers: servers.into_iter().map(Some).collect(), etcd }
    }

    /// A description for people: the servers, the members of etcd, and commands to try.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let kubeconfig = self.home.path().join("admin.kubeconfig");
        let _ = writeln!(text, "the load balancer, as the administrator:");
        let _ = writeln!(text, "  export KUBECONFIG={}", kubeconfig.display());
        let _ = writeln!(text, "\nthe servers behind it:");
        for server in self.servers.iter().flatten() {
            let address = server.kubeconfig().authority_of_server().to_owned();
            let kubeconfig = server.home().kubeconfig();
            let _ = writeln!(text, "  process {}, at {address}", server.id());
            let _ = writeln!(text, "    export KUBECONFIG={}", kubeconfig.display());
        }
        let _ = writeln!(text, "\nthe members of etcd:");
        for number in 0..MEMBERS {
            if let Some(process) = self.etcd.process(number) {
                let port = self.etcd.client_port(number);
                let _ = writeln!(text, "  process {process}, at 127.0.0.1:{port}");
            }
        }
        let _ = writeln!(text, "\ntry, and meanwhile end one of the processes with kill -9:");
        let _ = writeln!(text, "  kubectl apply -f examples/sharedsecret.yaml");
        let _ = writeln!(text, "  kubectl -n {NAMESPACE} get sharedsecrets --watch");
        text
    }

    /// Applies and gets with kubectl while all runs, without one server, and without one member of etcd. Panics where
    /// something does not work.
    pub async fn check(&mut self) {
        let kubectl = Kubectl::new(&self.home);
        self.apply(&kubectl, "all").await;
        if let Some(server) = self.servers[SERVERS - 1].take() {
            server.kill();
        }
        self.apply(&kubectl, "without-a-server").await;
        self.etcd.kill(MEMBERS - 1);
        self.apply(&kubectl, "without-a-member").await;
    }

    /// Applies a secret, and repeats the command until it works. kubectl itself retries only reads.
    async fn apply(&self, kubectl: &Kubectl, name: &str) {
        let mut object = secret(name, "v");
        object["metadata"]["namespace"] = json!(NAMESPACE);
        let manifest = kubectl.file(&format!("{name}.json"), &object.to_string());
        let kubeconfig = self.home.path().join("admin.kubeconfig");
        let run = async |arguments: &[&str]| {
            let mut command = kubectl.command(arguments);
            command.env("KUBECONFIG", &kubeconfig);
            kubectl.run_command(command).await
        };
        wait::until("kubectl to apply", async || {
            run(&["apply", "-f", &manifest]).await.ok.then_some(())
        })
        .await;
        wait::until("kubectl to get", async || {
            let got = run(&["-n", NAMESPACE, "get", "sharedsecrets", name, "-o", "name"]).await;
            (got.ok && got.out.contains(name)).then_some(())
        })
        .await;
    }

    /// Ends everything, in the order in which nothing misses another.
    pub async fn stop(self) {
        let Self { nginx, servers, etcd, .. } = self;
        drop(nginx);
        for server in servers.into_iter().flatten() {
            server.stop().await;
        }
        drop(etcd);
    }
}
