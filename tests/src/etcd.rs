//! An etcd with one member on loopback. `cargo xtask fetch` unpacks its program from Debian's package. One with three
//! members is in `etcd_cluster`.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tokio::net::TcpStream;

use crate::etcd_gateway::post;
use crate::kubectl::repository;
use crate::{Home, wait};

/// An etcd. Dropping it ends it.
#[derive(Debug)]
pub struct Etcd {
    child: Child,
    home: Home,
    client_port: u16,
    peer_port: u16,
}

impl Etcd {
    /// The program that `POSTERN_TEST_ETCD` names, or the one in `.cache`.
    #[must_use]
    pub fn program() -> PathBuf {
        let fetched = || repository().join(".cache/etcd-server/usr/bin/etcd");
        let program = std::env::var_os("POSTERN_TEST_ETCD").map_or_else(fetched, PathBuf::from);
        assert!(program.exists(), "there is no etcd: run `cargo xtask fetch`");
        program
    }

    /// Starts an etcd, and waits until it takes connections.
    pub async fn start() -> Self {
        Self::at(Home::new()).await
    }

    /// Starts an etcd on the data in a directory, and waits until it takes connections.
    pub async fn at(home: Home) -> Self {
        // The ports are free until etcd takes them.
        let ports = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client_port, peer_port] = ports.map(|port| port.local_addr().unwrap().port());
        let child = spawn(&home, client_port, peer_port);
        let mut etcd = Self { child, home, client_port, peer_port };
        etcd.ready().await;
        etcd
    }

    async fn ready(&mut self) {
        wait::until("etcd to take connections", async || {
            assert!(self.child.try_wait().unwrap().is_none(), "etcd ended: {}", self.home.logged());
            TcpStream::connect(("127.0.0.1", self.client_port)).await.ok()
        })
        .await;
    }

    /// The port for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.client_port
    }

    /// The value of `--store` for a prefix.
    #[must_use]
    pub fn store(&self, prefix: &str) -> String {
        format!("etcd://127.0.0.1:{}{prefix}", self.client_port)
    }

    /// Raises or removes the alarm that etcd raises when its storage is full. It then takes no writes.
    pub async fn set_full(&self, is_full: bool) {
        let action = if is_full { "ACTIVATE" } else { "DEACTIVATE" };
        let body = json!({ "action": action, "memberID": "1", "alarm": "NOSPACE" }).to_string();
        post(self.client_port, "/v3/maintenance/alarm".to_owned(), body).await.unwrap();
    }

    /// Ends the process without notice.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, on the same data and ports.
    pub async fn start_again(&mut self) {
        self.child = spawn(&self.home, self.client_port, self.peer_port);
        self.ready().await;
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

fn spawn(home: &Home, client_port: u16, peer_port: u16) -> Child {
    let log = File::options().create(true).append(true).open(home.stderr()).unwrap();
    let (client, peer) =
        (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
    Command::new(Etcd::program())
        .arg("--data-dir")
        .arg(home.path().join("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("etcd can be started")
}
