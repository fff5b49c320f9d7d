//! The ServiceAccount of the agent's pod: the directory with its token and the certificate
//! authorities of the cluster. The kubelet replaces the token about every hour, so the files are
//! read repeatedly.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use postern_kinds::SecretText;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_proxy::{Upstream, UpstreamAddresses};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::state_dir::read_given;
use crate::upstream::{self, ClusterUpstream};

/// The time between two reads of the files, as in client-go. The kubelet replaces a token when a fifth of its lifetime
/// is left, and the shortest lifetime is ten minutes.
pub(crate) const READ_INTERVAL: Duration = Duration::from_mins(1);

/// The file with the token in the directory, and the one with the certificate authorities.
const TOKEN_FILE: &str = "token";
const CA_FILE: &str = "ca.crt";

/// The directory of a ServiceAccount, and the URL of its cluster.
pub(crate) struct ServiceAccount {
    directory: PathBuf,
    server: String,
    /// The contents of the files that the current upstream has.
    in_use: Mutex<Credential>,
}

/// The contents of the files.
#[derive(PartialEq, Eq)]
struct Credential {
    token: SecretText,
    ca_pem: String,
}

impl ServiceAccount {
    /// The ServiceAccount of a directory, and the cluster as this ServiceAccount.
    ///
    /// # Errors
    /// When a file cannot be read or used. No error has a value of it.
    pub(crate) fn open(directory: &Path, server: &str) -> anyhow::Result<(Self, Upstream)> {
        let credential = Credential::read(directory)?;
        let upstream = credential.upstream(directory, server)?;
        let (directory, server) = (directory.to_owned(), server.to_owned());
        Ok((Self { directory, server, in_use: Mutex::new(credential) }, upstream))
    }

    /// Reads the files, and returns the new upstream; `None` if they have not changed. It blocks.
    ///
    /// # Errors
    /// When a file cannot be read or used. No error has a value of it.
    fn reload(&self) -> anyhow::Result<Option<Upstream>> {
        let credential = Credential::read(&self.directory)?;
        let mut in_use = self.in_use.lock();
        if *in_use == credential {
            return Ok(None);
        }
        let upstream = credential.upstream(&self.directory, &self.server)?;
        *in_use = credential;
        Ok(Some(upstream))
    }
}

impl Credential {
    fn read(directory: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            let text = String::from_utf8(read_given(&path)?).ok();
            let text = text.filter(|text| !text.trim().is_empty());
            text.with_context(|| format!("{} is empty, or is no text", path.display()))
        };
        let token = SecretText::from(read(TOKEN_FILE)?);
        let token = SecretText::from(token.expose().trim().to_owned());
        Ok(Self { token, ca_pem: read(CA_FILE)? })
    }

    fn upstream(&self, directory: &Path, server: &str) -> anyhow::Result<Upstream> {
        let kubeconfig = Kubeconfig {
            server: server.to_owned(),
            tls_server_name: None,
            ca_pem: Some(self.ca_pem.clone()),
            is_insecure: false,
            token: Some(self.token.clone()),
            client_certificate: None,
        };
        let url = server.parse().ok().with_context(|| format!("{server:?} is no URL"))?;
        let upstream = upstream::of(&kubeconfig, url, None, UpstreamAddresses::any());
        upstream.with_context(|| {
            format!("the ServiceAccount in {} cannot be used", directory.display())
        })
    }
}

/// Reads the files at this interval, and gives the cluster the new credential. It never returns.
pub(crate) async fn keep_current(
    account: Arc<ServiceAccount>,
    cluster: ClusterUpstream,
    interval: Duration,
) {
    let mut is_warned = false;
    loop {
        sleep(interval).await;
        refresh(&account, &cluster, &mut is_warned).await;
    }
}

/// Reads the files, and gives the cluster the new credential. If that fails, the cluster keeps the old one. Only the
/// first of several failures is logged.
async fn refresh(account: &Arc<ServiceAccount>, cluster: &ClusterUpstream, is_warned: &mut bool) {
    let reader = account.clone();
    let read = spawn_blocking(move || reader.reload()).await;
    match read.context("the read was cancelled").flatten() {
        Ok(changed) => {
            *is_warned = false;
            if let Some(upstream) = changed {
                cluster.replace(upstream);
                tracing::debug!("the credential of the ServiceAccount has changed");
            }
        }
        Err(error) if !std::mem::replace(is_warned, true) => {
            tracing::warn!("the agent keeps its old credential of the cluster: {error:#}");
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
