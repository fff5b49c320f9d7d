//! Which certificate authorities are trusted.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// Which certificate authorities are trusted.
#[derive(Clone, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that the system trusts.
    System,
    /// Only these, in PEM.
    Authorities(Vec<u8>),
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Authorities(_) => "Authorities(…)",
        })
    }
}

impl Trust {
    /// Checks that this PEM text has certificates, and that each can be an authority.
    ///
    /// # Errors
    /// [`Error::Trust`], which says what is wrong.
    pub fn of_pem(pem: Vec<u8>) -> Result<Self, Error> {
        given_roots(&pem)?;
        Ok(Self::Authorities(pem))
    }

    /// Returns a TLS configuration that verifies the server by these authorities.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, Error> {
        let roots = match self {
            Self::System => system_roots()?,
            Self::Authorities(pem) => given_roots(pem)?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Trust(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = certificate
            // The parser's error prints what it does not understand, byte by byte.
            .map_err(|_| "it is not PEM".to_owned())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|error| Error::Trust(format!("a certificate cannot be read: {error}")))?;
    }
    if roots.is_empty() {
        return Err(Error::Trust("there is no certificate in PEM form in it".to_owned()));
    }
    Ok(roots)
}

/// Returns the system's authorities; one that cannot be read is left out.
fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(Error::Trust("the system has no trusted certificate authorities".to_owned()));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_no_certificate_is_refused() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for pem in ["", "x", &key, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            let error = Trust::of_pem(pem.as_bytes().to_vec()).unwrap_err();
            assert!(error.to_string().contains("certificate"), "{error}");
        }
        let cut = "-----BEGIN CERTIFICATE\n".as_bytes().to_vec();
        let error = Trust::of_pem(cut).unwrap_err().to_string();
        assert!(error.contains("it is not PEM") && !error.contains("45, "), "{error}");
        let own = rcgen::generate_simple_self_signed(vec!["h".to_owned()]).unwrap().cert.pem();
        assert!(Trust::of_pem(own.into_bytes()).unwrap().tls().is_ok());
    }
}
