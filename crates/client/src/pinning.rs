//! The certificate authority of a server, for a client that knows only its digest.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tls::{CaDigest, ServerTrust, client_config};
use rustls::pki_types::CertificateDer;

use crate::connection;
use crate::error::{CertificateProblem, Error};
use crate::proxy::Proxy;
use crate::server_url::ServerUrl;
use crate::trust::Trust;

/// The length of a line of PEM (RFC 7468 section 2).
const PEM_LINE: usize = 64;

/// The trust in the authority that has this digest. The server sends the authority with its certificate. Nothing is sent
/// on this connection: it only reads the authority, and later connections verify the server by it.
///
/// # Errors
/// [`CertificateProblem::OtherAuthority`] if the server sends no such authority, and the errors of a connection.
pub async fn pinned_trust(
    server: &ServerUrl,
    proxy: Option<&Proxy>,
    digest: CaDigest,
    timeout: Duration,
) -> Result<Trust, Error> {
    let config =
        client_config(ServerTrust::Any).map_err(|error| Error::Trust(error.to_string()))?;
    let config = Arc::new(config.with_no_client_auth());
    let opened = tokio::time::timeout(timeout, connection::secure(server, proxy, None, &config));
    let late = |_| Error::Timeout { address: server.authority(), after: timeout };
    let stream = opened.await.map_err(late)??;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    if let Some(authority) = chain.iter().find(|one| CaDigest::of(one) == Some(digest)) {
        return Trust::of_pem(pem(authority));
    }
    let sent = chain.last().and_then(CaDigest::of);
    let problem = CertificateProblem::OtherAuthority { wanted: digest, sent };
    Err(Error::Certificate { address: server.authority(), problem })
}

/// A certificate in PEM.
fn pem(certificate: &CertificateDer<'_>) -> Vec<u8> {
    let text = STANDARD.encode(certificate);
    let mut out = b"-----BEGIN CERTIFICATE-----\n".to_vec();
    for line in text.as_bytes().chunks(PEM_LINE) {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.extend_from_slice(b"-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_in_pem_is_the_same_certificate() {
        let own = rcgen::generate_simple_self_signed(vec!["h".to_owned()]).unwrap().cert;
        let text = pem(own.der());
        assert_eq!(postern_tls::certificates(&text).unwrap(), [own.der().clone()]);
        let lines = std::str::from_utf8(&text).unwrap().lines();
        assert!(lines.map(str::len).max().unwrap() <= PEM_LINE);
    }
}
