//! A server that was started here: how it is reached, its processes, and how it is ended.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Its kubeconfig and its CA, in the server's directory.
pub(crate) const KUBECONFIG: &str = "data/admin.kubeconfig";

/// A server that gets SIGTERM has so long to end, before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// A running server; ended, and its directory removed, when dropped.
pub(crate) struct Server {
    /// Its name in the report.
    pub(crate) name: &'static str,
    /// The load program's arguments for it: its address, and our credentials.
    pub(crate) access: Vec<String>,
    /// The collection of the objects.
    pub(crate) collection: String,
    /// Its data, configuration and output.
    pub(crate) dir: TempDir,
    child: Child,
    /// Processes that it has started, which end with it.
    helpers: Vec<u32>,
    /// Another server's processes, to which it sends requests on. Their work does not disturb a measurement.
    pub(crate) upstream: String,
}

impl Server {
    /// The server that this process is.
    pub(crate) fn new(name: &'static str, child: Child, dir: TempDir) -> Self {
        let (access, collection, upstream) = (Vec::new(), String::new(), String::new());
        Self { name, access, collection, dir, child, helpers: Vec::new(), upstream }
    }

    /// The path of a file in the server's own directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The address in the kubeconfig that a Postern server has written: scheme, host and port.
    pub(crate) fn address(&self) -> Result<String> {
        let url = self.kubeconfig_field("server")?;
        let end = url.match_indices('/').nth(2).map_or(url.len(), |(at, _)| at);
        Ok(url[..end].to_owned())
    }

    /// The token in that kubeconfig.
    pub(crate) fn token(&self) -> Result<String> {
        self.kubeconfig_field("token")
    }

    fn kubeconfig_field(&self, name: &str) -> Result<String> {
        let kubeconfig = std::fs::read_to_string(self.path(KUBECONFIG))?;
        let field = format!("{name}: ");
        let value = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(&field));
        Ok(value
            .with_context(|| format!("the kubeconfig has no {name}"))?
            .trim_matches('"')
            .to_owned())
    }

    /// Fails if the server has ended already, with the last lines of its output.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let output = std::fs::read_to_string(self.path("output")).unwrap_or_default();
        let end: Vec<_> = output.lines().rev().take(5).collect();
        anyhow::bail!("{} ended: {status}\n{}", self.name, end.join("\n"))
    }

    /// Finds the processes that the server has started.
    pub(crate) fn find_helpers(&mut self) -> Result<()> {
        let own = self.child.id().to_string();
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
            if parent == Some(own.as_str()) {
                self.helpers.push(pid);
            }
        }
        Ok(())
    }

    /// Its processes, as the load program takes them.
    pub(crate) fn pids(&self) -> String {
        let all = std::iter::once(self.child.id()).chain(self.helpers.iter().copied());
        all.map(|pid| pid.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Ends the server and returns its directory, so that it can be started again.
    pub(crate) fn stop(mut self) -> Result<TempDir> {
        end(&mut self.child);
        self.into_dir()
    }

    /// Kills the server, and returns its directory.
    pub(crate) fn kill(mut self) -> Result<TempDir> {
        self.child.kill()?;
        self.child.wait()?;
        self.into_dir()
    }

    fn into_dir(mut self) -> Result<TempDir> {
        let empty = tempfile::tempdir()?;
        Ok(std::mem::replace(&mut self.dir, empty))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Starts a program with a file of its directory as the output.
pub(crate) fn spawn(command: &mut Command, dir: &TempDir) -> Result<Child> {
    let output = File::create(dir.path().join("output"))?;
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {program}"))
}

/// Sends SIGTERM to a process, and kills it if it does not end in time.
pub(crate) fn end(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let deadline = Instant::now() + END_TIMEOUT;
    if let (Some(pid), Ok(None)) = (pid, child.try_wait()) {
        // The process may have ended just now, which is the aim.
        kill_process(pid, Signal::TERM).ok();
    }
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            child.kill().ok();
            child.wait().ok();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes a temporary directory for a server.
pub(crate) fn directory() -> Result<TempDir> {
    tempfile::Builder::new().prefix("postern-bench-").tempdir().context("no temporary directory")
}

/// A port that was free a moment ago, for servers that cannot report the one they bind.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
