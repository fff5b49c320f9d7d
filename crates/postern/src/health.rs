//! `postern health`: whether a server or an agent is ready, for health checks of containers and for scripts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use postern_client::{CertificateProblem, Error, ServerUrl, Trust, health};
use postern_server::admin::{AdminCommand, CommandOutput, ServerFiles, call};
use postern_server::{KeyringSetting, System};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use crate::print::{print_data, print_message};
use crate::settings::proxy_of_environment;
use crate::values::PositiveDuration;

/// The longest text of an agent that is read, in bytes.
const MAX_TEXT_BYTES: u64 = 16 * 1024;

/// `postern health`
#[derive(Args)]
pub(crate) struct Health {
    /// The data directory of the server on this machine, which is asked over its admin socket
    #[arg(long, env = "POSTERN_DATA_DIR", value_name = "DIR", default_value = "postern-data")]
    data_dir: PathBuf,

    /// The URL of a server or an agent. Its /readyz is asked, through the proxy that `HTTPS_PROXY`
    /// names; --data-dir is then not used
    #[arg(long, env = "POSTERN_HEALTH_URL", value_name = "URL", value_parser = url)]
    url: Option<ServerUrl>,

    /// The certificate authorities of the URL, in PEM; an agent's are in ca.pem of its state directory
    /// [default: those of the system]
    #[arg(long, env = "POSTERN_HEALTH_CA_FILE", value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,

    /// The state directory of an agent on this machine. The agent is asked over its socket;
    /// --data-dir is then not used [default: that of the agent's environment variable, if an agent
    /// runs there]
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    agent_state_dir: Option<PathBuf>,

    /// Succeed if the agent responds, even if it is not ready
    #[arg(long, conflicts_with = "url")]
    live: bool,

    /// How long to wait for the response
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    timeout: PositiveDuration,
}

/// The URL of a server or an agent.
///
/// # Errors
/// The reason why the text is not one. For `http`, the reason differs from that of
/// [`ServerUrl::parse`], because this command sends no access key.
fn url(text: &str) -> Result<ServerUrl, String> {
    let scheme = text.trim_start().split_once("://").map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http")) {
        return Err(
            "only https:// is supported: servers and agents serve /readyz with TLS".to_owned()
        );
    }
    ServerUrl::parse(text)
}

/// The state directory in the environment, if an agent has its socket there. The environment of an image names both
/// directories, and either program may run in it.
fn running_agent() -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("POSTERN_AGENT_STATE_DIR")?);
    dir.join(postern_agent::SOCKET).exists().then_some(dir)
}

/// The error as one text, which has its cause already.
fn explained(error: Error) -> anyhow::Error {
    match error {
        Error::Certificate { problem: CertificateProblem::UnknownIssuer, .. } => {
            anyhow::anyhow!("{error}: pass its certificate with --ca-file")
        }
        error => anyhow::anyhow!("{error}"),
    }
}

impl Health {
    /// Prints `ok`, or the checks that fail. The exit code is 0 if all checks pass.
    ///
    /// # Errors
    /// When there is no response.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let timeout = self.timeout.get();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (is_ready, text) = runtime.block_on(async {
            if let Some(url) = &self.url {
                return self.of_url(url, timeout).await;
            }
            let read = async {
                match self.agent_state_dir.clone().or_else(running_agent) {
                    Some(dir) => self.of_agent(&dir).await,
                    None => self.of_data_dir().await,
                }
            };
            let read = tokio::time::timeout(timeout, read).await;
            read.with_context(|| format!("no response within {} s", timeout.as_secs_f32()))?
        })?;
        if is_ready {
            print_data(&format!("{text}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        print_message(&text);
        Ok(ExitCode::FAILURE)
    }

    #[expect(clippy::disallowed_methods, reason = "the binary reads its own settings")]
    async fn of_url(&self, url: &ServerUrl, timeout: Duration) -> anyhow::Result<(bool, String)> {
        let trust = match &self.ca_file {
            None => Trust::System,
            Some(path) => {
                let pem = std::fs::read(path)
                    .with_context(|| format!("--ca-file: cannot read {}", path.display()))?;
                Trust::of_pem(pem).with_context(|| format!("--ca-file {}", path.display()))?
            }
        };
        let proxy = proxy_of_environment(url)?;
        let read = health(url, proxy.as_ref(), &trust, timeout).await.map_err(explained)?;
        Ok((read.is_ready, read.text))
    }

    async fn of_agent(&self, dir: &Path) -> anyhow::Result<(bool, String)> {
        let path = dir.join(postern_agent::SOCKET);
        let connected = UnixStream::connect(&path).await;
        let stream = connected.with_context(|| format!("no agent at {}", path.display()))?;
        let mut text = String::new();
        stream.take(MAX_TEXT_BYTES).read_to_string(&mut text).await?;
        let is_ready = text == postern_agent::READY;
        anyhow::ensure!(!text.is_empty(), "the agent has given no response");
        Ok((is_ready || self.live, if is_ready { text } else { format!("not ready: {text}") }))
    }

    async fn of_data_dir(&self) -> anyhow::Result<(bool, String)> {
        let clock = System::default();
        let keyring = KeyringSetting::default();
        let files = ServerFiles {
            data_dir: &self.data_dir,
            key_dir: None,
            keyring: &keyring,
            clock: &clock,
            store: None,
        };
        match call(&files, AdminCommand::Health, |_| {}).await? {
            CommandOutput::Health { failed } if failed.is_empty() => Ok((true, "ok".to_owned())),
            CommandOutput::Health { failed } => {
                Ok((false, format!("not ready: {}", failed.join(", "))))
            }
            _ => anyhow::bail!("the server has replied to another command"),
        }
    }
}
