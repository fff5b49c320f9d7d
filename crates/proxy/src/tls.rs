//! TLS to an upstream: the authorities that the proxy trusts, and its own certificate. TLS 1.2 and
//! 1.3, by aws-lc-rs.

use std::sync::{Arc, OnceLock};

use postern_tls::{PemError, ServerTrust, certificates, roots};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::upstream_config::{ClientCertificate, UpstreamConfig, UpstreamError};

/// The configuration of TLS for an upstream. Its errors contain nothing of a key.
pub(crate) fn client_config(config: &UpstreamConfig) -> Result<Arc<ClientConfig>, UpstreamError> {
    let trust = match &config.ca_pem {
        _ if config.insecure => ServerTrust::Any,
        None => ServerTrust::Authorities(system_roots()?),
        Some(pem) => given(pem).map_err(|error| UpstreamError::Authorities(error.to_string()))?,
    };
    let builder =
        postern_tls::client_config(trust).map_err(|error| UpstreamError::Tls(error.to_string()))?;
    let mut tls = match &config.client_certificate {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = identity(own)?;
            // rustls says only which rule is broken.
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| UpstreamError::ClientCertificate(error.to_string()))?
        }
    };
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn given(pem: &[u8]) -> Result<ServerTrust, PemError> {
    // First, so that the faults of the text come before those of a certificate.
    let certificates = certificates(pem)?;
    Ok(ServerTrust::Given { authorities: roots(pem)?.into(), certificates })
}

/// The system's authorities, which are read once.
fn system_roots() -> Result<Arc<RootCertStore>, UpstreamError> {
    static ROOTS: OnceLock<Option<Arc<RootCertStore>>> = OnceLock::new();
    ROOTS.get_or_init(|| postern_tls::system_roots().map(Arc::new)).clone().ok_or_else(|| {
        let reason = "none is given, and the system has no trusted certificate authorities";
        UpstreamError::Authorities(reason.to_owned())
    })
}

type Chain = Vec<CertificateDer<'static>>;

fn identity(own: &ClientCertificate) -> Result<(Chain, PrivateKeyDer<'static>), UpstreamError> {
    let unusable = UpstreamError::ClientCertificate;
    let chain = certificates(&own.certificate_pem).map_err(|error| unusable(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(own.key_pem.expose())
        .map_err(|_| unusable("there is no private key in PEM form".to_owned()))?;
    Ok((chain, key))
}
