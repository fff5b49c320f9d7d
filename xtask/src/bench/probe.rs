//! The bare servers of the load program: one for watches, and one for GET.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::Bench;
use super::server::{Server, directory, spawn};

const READY_TIMEOUT: Duration = Duration::from_secs(10);

impl Bench {
    /// Starts the bare fan-out server, with the syncs and pages of our own server's commit.
    pub(crate) fn start_probe(&self) -> Result<Server> {
        let dir = directory()?;
        let mut command = Command::new(&self.load);
        command
            .args(["fanout-probe", "--threads", "2", "--seconds", "3600", "--dir"])
            .arg(dir.path());
        let mut server = self.start_announcing("probe", &mut command, dir)?;
        server.collection = String::from("/events");
        Ok(server)
    }
    /// Starts the bare server as a process of `command`, which runs the load program.
    pub(crate) fn start_bare(&self, mut command: Command, dir: TempDir) -> Result<Server> {
        command.args(["bare", "--seconds", "3600", "--dir"]).arg(dir.path());
        let mut server = self.start_announcing("bare", &mut command, dir)?;
        server.collection = String::from("/objects");
        Ok(server)
    }

    /// Starts a server that writes its address into its directory once it listens.
    fn start_announcing(
        &self,
        name: &'static str,
        command: &mut Command,
        dir: TempDir,
    ) -> Result<Server> {
        let child = spawn(command, &dir)?;
        let mut server = Server::new(name, child, dir);
        let address = server.path("address");
        self.stop.wait_for(&format!("the server {name} did not start"), READY_TIMEOUT, || {
            server.check()?;
            Ok(address.exists())
        })?;
        let base = format!("https://{}", std::fs::read_to_string(&address)?);
        let ca = server.path("ca.pem").to_string_lossy().into_owned();
        server.access = ["--base", &base, "--ca", &ca].map(str::to_owned).to_vec();
        Ok(server)
    }
}
