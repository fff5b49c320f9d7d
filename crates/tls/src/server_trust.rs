//! Which certificates of servers a client accepts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::ca_digest::CaDigest;

/// The certificates of servers that a client accepts. In every case, the server proves that it has the key of its
/// certificate.
#[derive(Debug)]
pub enum ServerTrust {
    /// Certificates that one of these authorities has signed.
    Authorities(Arc<RootCertStore>),
    /// Certificates that one of these authorities has signed, and the given certificates themselves: a kubeconfig can have
    /// the certificate of the server as its authority. Go's verifier accepts that, and so does kubectl. webpki accepts no
    /// such certificate that is marked as an authority, and none with a signature that it cannot check.
    Given {
        /// The authorities.
        authorities: Arc<RootCertStore>,
        /// The given certificates.
        certificates: Vec<CertificateDer<'static>>,
    },
    /// Certificates that the authority with this digest has signed. The server has to send the authority, which then
    /// verifies the server's certificate like a given authority.
    Pinned(CaDigest),
    /// Any certificate, for `insecure-skip-tls-verify`.
    Any,
}

/// The configuration of a client that accepts these certificates. The caller says which certificate the client has itself.
///
/// # Errors
/// That of the TLS library.
pub fn client_config(
    trust: ServerTrust,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let verifier = Arc::new(Verifier { trust, provider });
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier))
}

#[derive(Debug)]
struct Verifier {
    trust: ServerTrust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let signed_by = |roots: Arc<RootCertStore>| {
            WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone())
                .build()
                .map_err(|_| unknown())?
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        match &self.trust {
            ServerTrust::Authorities(authorities) => signed_by(authorities.clone()),
            ServerTrust::Given { authorities, certificates } => {
                let verified = signed_by(authorities.clone());
                // Byte for byte.
                if verified.is_err() && certificates.contains(end_entity) {
                    verify_given(end_entity, server_name, now)?;
                    return Ok(ServerCertVerified::assertion());
                }
                verified
            }
            ServerTrust::Pinned(digest) => {
                let pinned = intermediates.iter().find(|one| CaDigest::of(one) == Some(*digest));
                let mut roots = RootCertStore::empty();
                roots.add(pinned.ok_or_else(unknown)?.clone().into_owned())?;
                signed_by(Arc::new(roots))
            }
            ServerTrust::Any => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks a certificate that was given itself. No authority has to have signed it. The other checks apply: its critical
/// extensions, its validity in time, its purpose, and its names.
fn verify_given(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    // The parser refuses critical extensions that it does not know.
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use aws_lc_rs::digest::{SHA256, digest};

    use super::*;

    #[test]
    fn a_pinned_authority_is_trusted_for_the_names_of_its_certificates_alone() {
        use rcgen::{
            BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData as _,
        };
        let authority = || {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap().der().clone();
            (Issuer::new(params, key), certificate)
        };
        let ((issuer, ca), (other_issuer, other_ca)) = (authority(), authority());
        let leaf = |issuer: &Issuer<'_, KeyPair>| {
            let params = CertificateParams::new(vec!["h".to_owned()]).unwrap();
            params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
        };
        // The digest according to openssl: x509 -pubkey, pkey -pubin -outform der, dgst -sha256.
        let public = issuer.key().subject_public_key_info();
        let mut hex = String::new();
        for byte in digest(&SHA256, &public).as_ref() {
            let _ = write!(hex, "{byte:02x}");
        }
        let pin: CaDigest = format!("sha256:{hex}").parse().unwrap();
        assert_eq!(CaDigest::of(&ca), Some(pin));
        assert_ne!(CaDigest::of(&other_ca), Some(pin));
        assert_eq!(pin.to_string(), format!("sha256:{hex}"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Verifier { trust: ServerTrust::Pinned(pin), provider };
        let verify = |leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>], name: &str| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            verifier.verify_server_cert(leaf, chain, &name, &[], UnixTime::now()).is_ok()
        };
        let (own, foreign) = (leaf(&issuer), leaf(&other_issuer));
        assert!(verify(&own, std::slice::from_ref(&ca), "h"));
        assert!(!verify(&own, std::slice::from_ref(&ca), "elsewhere"));
        assert!(!verify(&own, &[], "h"), "the authority is not in the chain");
        assert!(!verify(&foreign, std::slice::from_ref(&other_ca), "h"));
        // The authority next to it does not vouch for it.
        assert!(!verify(&foreign, &[other_ca, ca], "h"));
        for text in
            ["", "sha256:", "sha256:zz", &hex, &format!("sha512:{hex}"), &format!("sha256:{hex}00")]
        {
            let error = text.parse::<CaDigest>().unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{text}: {error}");
        }
    }
}
