//! The connection of the agent to its own cluster: by the current context of a kubeconfig that the
//! operator names, or as the ServiceAccount of its pod. The module also makes the connections for
//! other kubeconfigs. `service_account.rs` reads the files of a ServiceAccount.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use http::Uri;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_proxy::{
    ClientCertificate, SecretBytes, Upstream, UpstreamAddresses, UpstreamConfig, UpstreamError,
};

use crate::state_dir::read_given;

/// The agent's own cluster, with its current credential. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ClusterUpstream(Arc<ArcSwap<Upstream>>);

impl ClusterUpstream {
    /// The upstream for the next request.
    pub(crate) fn current(&self) -> Upstream {
        Upstream::clone(&self.0.load())
    }

    /// Replaces the upstream. Requests in progress keep the old one and its connections.
    pub(crate) fn replace(&self, upstream: Upstream) {
        self.0.store(Arc::new(upstream));
    }
}

impl From<Upstream> for ClusterUpstream {
    fn from(upstream: Upstream) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(upstream)))
    }
}

/// The cluster of a kubeconfig. The file is read once: after `kubectl config use-context`, it names another cluster.
///
/// # Errors
/// If the file cannot be read, or has a setting that is not supported. No error contains a value of
/// the file.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<Upstream> {
    let text = read_given(path)?;
    of_text(&text).with_context(|| format!("the kubeconfig {} cannot be used", path.display()))
}

fn of_text(text: &[u8]) -> anyhow::Result<Upstream> {
    let kubeconfig = Kubeconfig::parse_own_file(text)?;
    let url = kubeconfig.server.parse().ok().context("server is no URL")?;
    let server_name = kubeconfig.tls_server_name.clone();
    // The operator has chosen it.
    Ok(of(&kubeconfig, url, server_name, UpstreamAddresses::any())?)
}

/// The upstream at a URL, with the trust and the credential of a kubeconfig. Without a server name, its
/// certificate must be for the URL's host.
///
/// # Errors
/// The reason why it cannot be used. No error has a value of the kubeconfig.
pub(crate) fn of(
    kubeconfig: &Kubeconfig,
    url: Uri,
    server_name: Option<String>,
    addresses: UpstreamAddresses,
) -> Result<Upstream, UpstreamError> {
    let bytes = |text: &str| SecretBytes::new(text.as_bytes().to_vec());
    let authorization = kubeconfig.token.as_ref().map(|token| bearer(token.expose()));
    let client_certificate = kubeconfig.client_certificate.as_ref().map(|one| ClientCertificate {
        certificate_pem: one.chain_pem.clone().into_bytes(),
        key_pem: bytes(one.key_pem.expose()),
    });
    Upstream::new(UpstreamConfig {
        ca_pem: kubeconfig.ca_pem.clone().map(String::into_bytes),
        server_name,
        insecure: kubeconfig.is_insecure,
        client_certificate,
        authorization,
        addresses,
        ..UpstreamConfig::new(url)
    })
}

/// The value of `Authorization`. It is written once, so that no copy stays in memory.
fn bearer(token: &str) -> SecretBytes {
    const SCHEME: &str = "Bearer ";
    let mut value = Vec::with_capacity(SCHEME.len() + token.len());
    value.extend_from_slice(SCHEME.as_bytes());
    value.extend_from_slice(token.as_bytes());
    SecretBytes::new(value)
}
