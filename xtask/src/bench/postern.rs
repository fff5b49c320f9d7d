//! Our own server, with its default settings.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::Bench;
use super::server::{KUBECONFIG, Server, directory, spawn};

/// The time limit until the server is ready, for any amount of stored data.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// Bytes of a body that is stored as an object of about 1 KB, because the server adds its own
/// fields.
pub(crate) const BODY_BYTES: &str = "838";

/// The objects that are measured.
pub(crate) const COLLECTION: &str =
    "/kubernetes/management/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";

pub(crate) const CA: &str = "data/keys/tls-ca.pem";

/// The arguments with which it is started.
pub(crate) fn arguments(dir: &Path, address: &str) -> Vec<String> {
    let dir = dir.to_string_lossy();
    ["serve", "--data-dir", &dir, "--listen", address, "--log", "warn"].map(str::to_owned).to_vec()
}

/// Starts a server as a process of `command`, and does not wait for it.
pub(crate) fn spawn_postern(mut command: Command, dir: TempDir, more: &[String]) -> Result<Server> {
    let kubeconfig = dir.path().join(KUBECONFIG);
    let data = dir.path().join("data");
    let child = spawn(command.args(arguments(&data, "127.0.0.1:0")).args(more), &dir)?;
    let mut server = Server::new("postern", child, dir);
    server.access = vec!["--kubeconfig".to_owned(), kubeconfig.to_string_lossy().into_owned()];
    server.collection = String::from(COLLECTION);
    Ok(server)
}

impl Bench {
    /// Starts a new server without any objects.
    pub(crate) fn start_postern(&self) -> Result<Server> {
        self.start_postern_on(directory()?)
    }

    /// Starts a new server without an audit log, as its peers here have none.
    pub(crate) fn start_postern_unaudited(&self) -> Result<Server> {
        let dir = directory()?;
        let policy = dir.path().join("policy.json");
        let no_events =
            r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}"#;
        std::fs::write(&policy, no_events)?;
        self.start_with(dir, &["--audit-policy-file".to_owned(), policy.display().to_string()])
    }

    /// Starts a server on a directory that may have been used before.
    pub(crate) fn start_postern_on(&self, dir: TempDir) -> Result<Server> {
        self.start_with(dir, &[])
    }

    /// Starts a new server with these arguments.
    pub(crate) fn start_postern_with(&self, more: &[String]) -> Result<Server> {
        self.start_with(directory()?, more)
    }

    fn start_with(&self, dir: TempDir, more: &[String]) -> Result<Server> {
        self.start_postern_by(Command::new(&self.postern), dir, more)
    }

    /// Starts a server as a process of `command`, on a directory that may have been used before.
    pub(crate) fn start_postern_by(
        &self,
        command: Command,
        dir: TempDir,
        more: &[String],
    ) -> Result<Server> {
        let mut server = spawn_postern(command, dir, more)?;
        self.wait_until_ok(&mut server, "/readyz", READY_TIMEOUT)?;
        Ok(server)
    }

    /// Fills a server with objects called `base-…`, over many connections.
    pub(crate) fn fill_postern(&self, server: &mut Server, objects: u64) -> Result<()> {
        let count = objects.to_string();
        let fill =
            ["load create", "--prefix", "base", "--body-bytes", BODY_BYTES, "--seconds", "600"];
        let measurement = self.once(server, &[&fill[..], &["--count", &count]].concat())?;
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let all = measurement.number("succeeded") >= objects as f64;
        anyhow::ensure!(
            all,
            "only {} of {objects} objects were created",
            measurement.text("succeeded")
        );
        Ok(())
    }

    /// Runs the command line as the server's administrator. The result is the output.
    pub(crate) fn postern_cli(&self, server: &Server, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.postern);
        command.args(arguments).env("KUBECONFIG", server.path(KUBECONFIG));
        let output = command.output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Waits until the server responds to a GET of the path with 200.
    pub(crate) fn wait_until_ok(
        &self,
        server: &mut Server,
        path: &str,
        limit: Duration,
    ) -> Result<()> {
        let mut words = vec!["load".to_owned(), "list".to_owned()];
        words.extend(server.access.iter().cloned());
        words.extend(["--connections", "1", "--count", "1", "--path", path].map(str::to_owned));
        let what = format!("{} did not respond to {path} with 200", server.name);
        self.stop.wait_for(&what, limit, || {
            server.check()?;
            Ok(self.run_load(&words).is_ok_and(|measurement| measurement.number("succeeded") > 0.0))
        })
    }
}
