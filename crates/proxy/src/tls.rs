//! TLS to an upstream: whom we trust, and who we are. TLS 1.2 and 1.3, by aws-lc-rs.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::upstream_config::{ClientCertificate, UpstreamConfig, UpstreamError};

/// The configuration of TLS for an upstream. Its errors contain nothing of a key.
pub(crate) fn client_config(config: &UpstreamConfig) -> Result<Arc<ClientConfig>, UpstreamError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| UpstreamError::Tls(error.to_string()))?;
    let builder = if config.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }))
    } else {
        let roots = match &config.ca_pem {
            Some(pem) => Arc::new(roots(pem)?),
            None => system_roots()?,
        };
        match &config.ca_pem {
            None => builder.with_root_certificates(roots),
            Some(pem) => {
                let given = certificates(pem).map_err(UpstreamError::Authorities)?;
                let verifier = GivenCertificates::new(roots, given, provider)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        }
    };
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

/// The errors of the PEM parser show what they do not understand, so they are not passed on.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Err(_) => Err("it is not PEM".to_owned()),
        Ok(found) if found.is_empty() => {
            Err("there is no certificate in PEM form in it".to_owned())
        }
        Ok(found) => Ok(found),
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, UpstreamError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem).map_err(UpstreamError::Authorities)? {
        roots.add(certificate).map_err(|error| UpstreamError::Authorities(error.to_string()))?;
    }
    Ok(roots)
}

/// The system's authorities, which are read once; one that cannot be read is left out.
fn system_roots() -> Result<Arc<RootCertStore>, UpstreamError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        let reason = "none is given, and the system has no trusted certificate authorities";
        return Err(UpstreamError::Authorities(reason.to_owned()));
    }
    Ok(roots.clone())
}

type Chain = Vec<CertificateDer<'static>>;

fn identity(own: &ClientCertificate) -> Result<(Chain, PrivateKeyDer<'static>), UpstreamError> {
    let chain = certificates(&own.certificate_pem).map_err(UpstreamError::ClientCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(own.key_pem.expose()).map_err(|_| {
        UpstreamError::ClientCertificate("there is no private key in PEM form".to_owned())
    })?;
    Ok((chain, key))
}

/// Trusts the authorities that are given, and the given certificates themselves: a kubeconfig can have the certificate
/// of the server as its authority. Go's verifier takes that, and so does kubectl. webpki does not take every such
/// certificate: none that is marked as an authority, and none whose signature it cannot check.
#[derive(Debug)]
struct GivenCertificates {
    by_authority: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl GivenCertificates {
    fn new(
        roots: Arc<RootCertStore>,
        given: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, UpstreamError> {
        let by_authority = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let by_authority =
            by_authority.map_err(|error| UpstreamError::Authorities(error.to_string()))?;
        Ok(Self { by_authority, given })
    }

    /// Whether a certificate is one of the given ones, byte for byte.
    fn contain(&self, certificate: &CertificateDer<'_>) -> bool {
        self.given.iter().any(|given| given.as_ref() == certificate.as_ref())
    }
}

/// Checks a certificate that was given itself. No authority has to have signed it; all else counts as for others: its
/// critical extensions, its validity in time, what it is for, and its names.
fn verify_given(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    // It refuses critical extensions that it does not know.
    let names = ParsedCertificate::try_from(certificate)?;
    let bad = |_| CertificateError::BadEncoding;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(bad)?;
    let (validity, now) = (parsed.validity(), i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&names, server_name)
}

impl ServerCertVerifier for GivenCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        if verified.is_err() && self.contain(end_entity) {
            verify_given(end_entity, server_name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Takes any certificate, for `insecure-skip-tls-verify`. The peer still proves that it has the key of what
/// it shows.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
