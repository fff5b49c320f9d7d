//! How the agent reaches its own cluster: by the current context of a kubeconfig that the operator names.

use std::path::Path;

use anyhow::Context as _;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_proxy::{ClientCertificate, LocalAddresses, SecretBytes, Upstream, UpstreamConfig};

use crate::state_dir::read_given;

/// Returns the cluster of a kubeconfig.
///
/// # Errors
/// When the file cannot be read, or has what is not served. No error has a value of it.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<Upstream> {
    let text = read_given(path)?;
    of_text(&text).with_context(|| format!("the kubeconfig {} cannot be used", path.display()))
}

fn of_text(text: &[u8]) -> anyhow::Result<Upstream> {
    let kubeconfig = Kubeconfig::parse(text)?;
    let url = kubeconfig.server.parse().ok().context("server is no URL")?;
    let bytes = |text: &str| SecretBytes::new(text.as_bytes().to_vec());
    let authorization = kubeconfig.token.as_ref().map(|token| bearer(token.expose()));
    let client_certificate = kubeconfig.client_certificate.map(|one| ClientCertificate {
        certificate_pem: one.chain_pem.into_bytes(),
        key_pem: bytes(one.key_pem.expose()),
    });
    let config = UpstreamConfig {
        ca_pem: kubeconfig.ca_pem.map(String::into_bytes),
        server_name: kubeconfig.tls_server_name,
        insecure: kubeconfig.is_insecure,
        client_certificate,
        authorization,
        // The operator has chosen it.
        local: LocalAddresses::Allowed,
        ..UpstreamConfig::new(url)
    };
    Ok(Upstream::new(config)?)
}

/// Returns the value of `Authorization`. It is written once, so that no copy stays in memory.
fn bearer(token: &str) -> SecretBytes {
    const SCHEME: &str = "Bearer ";
    let mut value = Vec::with_capacity(SCHEME.len() + token.len());
    value.extend_from_slice(SCHEME.as_bytes());
    value.extend_from_slice(token.as_bytes());
    SecretBytes::new(value)
}
