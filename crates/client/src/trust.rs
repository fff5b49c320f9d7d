//! Which certificate authorities are trusted.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::error::Error;

/// Which certificate authorities are trusted.
#[derive(Clone, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that the system trusts.
    System,
    /// Only these, in PEM.
    Authorities(Vec<u8>),
    /// Only the authority in the server's chain of certificates whose public key has this digest.
    Pinned(CaDigest),
}

/// The SHA-256 digest of an authority's public key, as kubeadm's `--discovery-token-ca-cert-hash` has it: of the
/// `SubjectPublicKeyInfo` of its certificate, in DER.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaDigest([u8; 32]);

impl FromStr for CaDigest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        let mut digest = [0; 32];
        let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
            let pair = digits.get(at..at + 2).filter(|_| is_hex);
            let parsed = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = parsed.ok_or_else(|| {
                Error::Trust("a digest is sha256: and 64 hexadecimal digits".to_owned())
            })?;
        }
        Ok(Self(digest))
    }
}

impl CaDigest {
    /// The digest of a certificate's public key; `None` when it cannot be read.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let public = ParsedCertificate::try_from(certificate).ok()?.subject_public_key_info();
        digest(&SHA256, &public).as_ref().try_into().ok().map(Self)
    }
}

impl fmt::Display for CaDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Authorities(_) => "Authorities(…)",
            Self::Pinned(_) => "Pinned(…)",
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

    /// The digest of the one authority that is trusted; `None` where there are others, or the system's.
    pub fn digest(&self) -> Option<CaDigest> {
        match self {
            Self::System => None,
            Self::Pinned(digest) => Some(*digest),
            Self::Authorities(pem) => {
                let mut certificates = CertificateDer::pem_slice_iter(pem);
                let only = certificates.next()?.ok().filter(|_| certificates.next().is_none())?;
                CaDigest::of(&only)
            }
        }
    }

    /// A TLS configuration that verifies the server by these authorities.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Trust(error.to_string()))?;
        let builder = match self {
            Self::System => builder.with_root_certificates(system_roots()?),
            Self::Authorities(pem) => builder.with_root_certificates(given_roots(pem)?),
            Self::Pinned(digest) => {
                let verifier = Arc::new(PinnedAuthority { digest: *digest, provider });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Trusts the authority of a digest, which the server has to send: its certificate is verified by that as by one
/// that is given.
#[derive(Debug)]
struct PinnedAuthority {
    digest: CaDigest,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let pinned = intermediates
            .iter()
            .find(|one| CaDigest::of(one) == Some(self.digest))
            .ok_or_else(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(pinned.clone().into_owned())?;
        let provider = self.provider.clone();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().map_err(|_| unknown())?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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

/// The system's authorities; one that cannot be read is left out.
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
    use std::fmt::Write as _;

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
        let verifier = PinnedAuthority { digest: pin, provider };
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
