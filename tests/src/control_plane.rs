//! The control plane of a real Kubernetes cluster: a kube-apiserver with RBAC and an audit log, and its etcd. It has
//! no nodes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::http::Client;
use crate::kubectl::repository;
use crate::{Home, Kubeconfig, SelfSigned, wait};

/// The token of its administrator.
const ADMIN: &str = "token-of-the-administrator";

/// The token of the user `postern-agent`, which has no rights yet.
const AGENT: &str = "token-of-the-agent";

/// A running one. Dropping it ends it.
#[derive(Debug)]
pub struct ControlPlane {
    // The server goes first: it misses the other.
    processes: Vec<Child>,
    directory: PathBuf,
    port: u16,
    /// Keeps the port from others.
    _reserved: TcpSocket,
}

impl ControlPlane {
    /// Starts it, with its files in a directory of the home, and waits until it is ready. A test that needs it fails
    /// where `cargo xtask fetch --all` has not brought it.
    pub async fn start(home: &Home) -> Self {
        let directory = home.path().join("control-plane");
        std::fs::create_dir_all(&directory).unwrap();
        SelfSigned::make().write(&directory);
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "rules": [{ "level": "Metadata" }],
        });
        for (name, content) in [
            ("tokens.csv", format!("{ADMIN},root,1,system:masters\n{AGENT},postern-agent,2\n")),
            ("policy.json", policy.to_string()),
        ] {
            std::fs::write(directory.join(name), content).unwrap();
        }
        // The server cannot choose a port. It shares a port that is bound here, where nothing
        // listens.
        let reserved = TcpSocket::new_v4().unwrap();
        reserved.set_reuseport(true).unwrap();
        reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = reserved.local_addr().unwrap().port();
        let mut plane = Self { processes: Vec::new(), directory, port, _reserved: reserved };
        let store = plane.start_etcd().await;
        plane.start_server(&store).await;
        plane
    }

    async fn start_etcd(&mut self) -> String {
        // Only the server knows where etcd listens, and etcd looks for no other member.
        let mut command = Command::new(program("etcd-package/usr/bin/etcd"));
        command.arg("--data-dir").arg(self.directory.join("etcd"));
        command.args([
            "--listen-client-urls=http://127.0.0.1:0",
            "--advertise-client-urls=http://127.0.0.1:1",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--initial-advertise-peer-urls=http://127.0.0.1:1",
            "--initial-cluster=default=http://127.0.0.1:1",
            "--unsafe-no-fsync",
        ]);
        self.spawn(command, "etcd");
        let address = wait::until("etcd to listen", async || {
            self.panic_if_ended("etcd");
            let log = self.read("etcd.log");
            let (_, rest) = log.split_once("serving insecure client requests on ")?;
            Some(rest.split_once(',')?.0.to_owned())
        });
        format!("http://{}", address.await)
    }

    async fn start_server(&mut self, store: &str) {
        let file = |name: &str| self.directory.join(name).display().to_string();
        let mut command = Command::new(program("kube-apiserver"));
        command.args([
            format!("--etcd-servers={store}"),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", file("ca.pem")),
            format!("--tls-private-key-file={}", file("key.pem")),
            format!("--token-auth-file={}", file("tokens.csv")),
            format!("--audit-policy-file={}", file("policy.json")),
            format!("--audit-log-path={}", file("audit.log")),
            format!("--service-account-key-file={}", file("ca.pem")),
            format!("--service-account-signing-key-file={}", file("key.pem")),
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--permit-port-sharing",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://cluster.test",
            // Without a controller manager, no namespace would get its service account.
            "--disable-admission-plugins=ServiceAccount",
            // An address that is for documents: nothing goes there.
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
        ]);
        self.spawn(command, "server");
        let admin = self.admin();
        wait::until("kube-apiserver to be ready", async || {
            self.panic_if_ended("server");
            let reply = admin.get("/readyz").try_send().await.ok()?;
            (reply.status == 200).then_some(())
        })
        .await;
    }

    fn spawn(&mut self, mut command: Command, name: &str) {
        let log = File::create(self.directory.join(format!("{name}.log"))).unwrap();
        let child = command
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        self.processes.insert(0, child);
    }

    fn panic_if_ended(&mut self, name: &str) {
        if let Some(status) = self.processes[0].try_wait().unwrap() {
            let log = self.read(&format!("{name}.log"));
            panic!("{name} ended with {status}: {log}");
        }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    fn kubeconfig(&self, token: &str) -> Kubeconfig {
        Kubeconfig {
            server: format!("https://127.0.0.1:{}", self.port),
            authority: std::fs::read(self.directory.join("ca.pem")).unwrap(),
            token: token.to_owned(),
            namespace: "default".to_owned(),
        }
    }

    /// A client of its administrator, a member of `system:masters`.
    #[must_use]
    pub fn admin(&self) -> Client {
        Client::new(&self.kubeconfig(ADMIN))
    }

    /// Writes the kubeconfig of its administrator, and returns the path.
    #[must_use]
    pub fn kubeconfig_of_admin(&self) -> PathBuf {
        self.kubeconfig(ADMIN).write(&self.directory.join("admin.kubeconfig"))
    }

    /// Writes the kubeconfig of the user `postern-agent`, and returns the path.
    #[must_use]
    pub fn kubeconfig_of_agent(&self) -> PathBuf {
        self.kubeconfig(AGENT).write(&self.directory.join("agent.kubeconfig"))
    }

    /// Its audit log so far.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        let text = self.read("audit.log");
        // The last line may be about to be written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for child in &mut self.processes {
            // Fails if it has exited already, which is fine.
            if child.kill().is_ok() {
                drop(child.wait());
            }
        }
    }
}

fn program(name: &str) -> PathBuf {
    let path: &Path = &repository().join(".cache/cluster").join(name);
    assert!(path.exists(), "there is no {name}: `cargo xtask fetch --all` brings it");
    path.to_path_buf()
}
