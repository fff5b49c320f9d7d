//! `CaDigest`: the digest by which a client knows a certificate authority.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

/// The SHA-256 digest of an authority's public key, as kubeadm's `--discovery-token-ca-cert-hash` has it: of the
/// `SubjectPublicKeyInfo` of its certificate, in DER.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaDigest([u8; 32]);

/// The text is no digest of an authority.
#[derive(Debug, thiserror::Error)]
#[error("a digest is sha256: and 64 hexadecimal digits")]
pub struct InvalidDigest;

impl FromStr for CaDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        let mut digest = [0; 32];
        let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
            let pair = digits.get(at..at + 2).filter(|_| is_hex);
            let parsed = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = parsed.ok_or(InvalidDigest)?;
        }
        Ok(Self(digest))
    }
}

impl CaDigest {
    /// The digest of a certificate's public key; `None` when it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
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
