//! An etcd with one member, as Debian has packaged it, and Postern servers on it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::Bench;
use super::server::{Server, directory, free_port, spawn};
use crate::{fetch, shell};

const READY_TIMEOUT: Duration = Duration::from_secs(30);

impl Bench {
    /// Starts an empty etcd, which syncs each write to the disk.
    pub(crate) fn start_etcd(&self) -> Result<Server> {
        let program = fetch::etcd(&self.root)?;
        let dir = directory()?;
        let client = format!("127.0.0.1:{}", free_port()?);
        let (url, peer) =
            (format!("http://{client}"), format!("http://127.0.0.1:{}", free_port()?));
        let mut command = Command::new(program);
        command
            .arg("--data-dir")
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"])
            .args(["--quota-backend-bytes", "4294967296"]);
        let child = spawn(&mut command, &dir)?;
        let mut server = Server::new("etcd", child, dir);
        server.access = vec!["--address".to_owned(), client.clone()];
        self.stop.wait_for("etcd did not start", READY_TIMEOUT, || {
            server.check()?;
            Ok(std::net::TcpStream::connect(&client).is_ok())
        })?;
        Ok(server)
    }

    /// The arguments of a Postern server for a prefix in an etcd. The packaged etcd has faults that
    /// do not occur here.
    pub(crate) fn on_etcd(etcd: &Server, prefix: &str) -> Result<Vec<String>> {
        let address = etcd.access.last().context("the etcd has no address")?;
        let store = format!("etcd://{address}/{prefix}");
        Ok(["--store", &store, "--allow-old-etcd"].map(str::to_owned).to_vec())
    }

    /// Prepares a prefix in an etcd. Returns the directory for the first server.
    pub(crate) fn init_on_etcd(&self, store: &[String]) -> Result<TempDir> {
        let dir = directory()?;
        let mut init = Command::new(&self.postern);
        init.arg("init").arg("--data-dir").arg(dir.path().join("data")).args(store);
        shell::output_of(&mut init)?;
        Ok(dir)
    }

    /// A directory for one more server, with the keys of another one.
    pub(crate) fn copy_of(server: &Server) -> Result<TempDir> {
        let dir = directory()?;
        shell::output_of(Command::new("cp").arg("-a").arg(server.path("data")).arg(dir.path()))?;
        Ok(dir)
    }
}
