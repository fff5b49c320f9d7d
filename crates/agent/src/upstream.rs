//! How the agent reaches its own cluster: by the current context of a kubeconfig that the operator names, or as the
//! ServiceAccount of its pod; and what else is reached by a kubeconfig.

use std::path::Path;

use anyhow::Context as _;
use http::Uri;
use postern_kinds::SecretText;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_proxy::{
    ClientCertificate, SecretBytes, Upstream, UpstreamAddresses, UpstreamConfig, UpstreamError,
};

use crate::state_dir::read_given;

/// The file with the token in the directory of a ServiceAccount, and the one with the certificate authorities.
const TOKEN_FILE: &str = "token";
const CA_FILE: &str = "ca.crt";

/// The cluster of a kubeconfig, or of the directory of a ServiceAccount. Such a directory has no address: that is
/// `server`.
///
/// # Errors
/// When a file cannot be read, or has what is not served. No error has a value of it.
pub(crate) fn of_path(path: &Path, server: &str) -> anyhow::Result<Upstream> {
    let upstream = if path.is_dir() { of_service_account(path, server) } else { of_file(path) };
    upstream.context("--upstream")
}

/// The cluster at a URL, as a ServiceAccount. The token is read once, so it must stay valid as long as the agent runs.
fn of_service_account(directory: &Path, server: &str) -> anyhow::Result<Upstream> {
    let read = |name: &str| {
        let path = directory.join(name);
        let text = String::from_utf8(read_given(&path)?).ok();
        let text = text.filter(|text| !text.trim().is_empty());
        text.with_context(|| format!("{} is empty, or is no text", path.display()))
    };
    let token = SecretText::from(read(TOKEN_FILE)?);
    let kubeconfig = Kubeconfig {
        server: server.to_owned(),
        tls_server_name: None,
        ca_pem: Some(read(CA_FILE)?),
        is_insecure: false,
        token: Some(SecretText::from(token.expose().trim().to_owned())),
        client_certificate: None,
    };
    let url = server.parse().ok().with_context(|| format!("{server:?} is no URL"))?;
    let upstream = of(&kubeconfig, url, None, UpstreamAddresses::any());
    upstream
        .with_context(|| format!("the ServiceAccount in {} cannot be used", directory.display()))
}

/// The cluster of a kubeconfig.
///
/// # Errors
/// When the file cannot be read, or has what is not served. No error has a value of it.
fn of_file(path: &Path) -> anyhow::Result<Upstream> {
    let text = read_given(path)?;
    of_text(&text).with_context(|| format!("the kubeconfig {} cannot be used", path.display()))
}

fn of_text(text: &[u8]) -> anyhow::Result<Upstream> {
    let kubeconfig = Kubeconfig::parse(text)?;
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::state_dir::create_anew;

    /// An authority that is valid as a certificate.
    fn authority() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn a_directory_of_a_service_account_needs_a_token_and_authorities() {
        let home = tempfile::tempdir().unwrap();
        let of = || {
            let upstream = of_path(home.path(), "https://kubernetes.default.svc");
            upstream.map_err(|error| format!("{error:#}"))
        };
        let write = |name: &str, text: &str| {
            let mut file = create_anew(&home.path().join(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write(CA_FILE, &authority());
        assert!(of().unwrap_err().contains("token does not exist"));
        write(TOKEN_FILE, " \n");
        assert!(of().unwrap_err().contains("token is empty"));
        write(TOKEN_FILE, "the-token\n");
        assert_eq!(of().unwrap().address(), "kubernetes.default.svc:443");
        write(TOKEN_FILE, "the\ntoken");
        let refused = of().unwrap_err();
        assert!(refused.contains("cannot be used") && !refused.contains("the\ntoken"), "{refused}");
        write(TOKEN_FILE, "the-token");
        write(CA_FILE, "no certificate");
        assert!(of().unwrap_err().contains("cannot be used"));
    }
}
