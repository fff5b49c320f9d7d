//! Certificates and authorities of a PEM text, and the authorities of the system.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Why the certificates of a PEM text cannot be used. The parser's errors show the bytes that it does not understand, so
/// they are not passed on.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// The text is not PEM.
    #[error("it is not PEM")]
    NotPem,
    /// The text has no certificate.
    #[error("there is no certificate in PEM form in it")]
    NoCertificate,
    /// A certificate cannot be an authority.
    #[error("{0}")]
    Certificate(rustls::Error),
}

/// The certificates of a PEM text, at least one.
///
/// # Errors
/// When the text is not PEM, or has no certificate.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Err(_) => Err(PemError::NotPem),
        Ok(found) if found.is_empty() => Err(PemError::NoCertificate),
        Ok(found) => Ok(found),
    }
}

/// The authorities of a PEM text, at least one.
///
/// # Errors
/// When the text is not PEM, has no certificate, or has one that cannot be an authority: the first of these.
pub fn roots(pem: &[u8]) -> Result<RootCertStore, PemError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| PemError::NotPem)?;
        roots.add(certificate).map_err(PemError::Certificate)?;
    }
    if roots.is_empty() { Err(PemError::NoCertificate) } else { Ok(roots) }
}

/// The authorities that the system trusts now; `None` when there are none. Unreadable ones are left out.
pub fn system_roots() -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    (!roots.is_empty()).then_some(roots)
}
