//! The bare fan-out server of the load program.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

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
        let child = spawn(&mut command, &dir)?;
        let mut server = Server::new("probe", child, dir);
        let address = server.path("address");
        self.stop.wait_for("the probe did not start", READY_TIMEOUT, || {
            server.check()?;
            Ok(address.exists())
        })?;
        let base = format!("https://{}", std::fs::read_to_string(&address)?);
        let ca = server.path("ca.pem").to_string_lossy().into_owned();
        server.access = ["--base", &base, "--ca", &ca].map(str::to_owned).to_vec();
        server.collection = String::from("/events");
        Ok(server)
    }
}
