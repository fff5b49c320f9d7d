//! Which certificate authorities are trusted.

use std::fmt;
use std::sync::Arc;

use postern_tls::{CaDigest, PemError, ServerTrust, certificates, client_config, roots};
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// The common name of the authority that a Postern server creates for itself. It never changes.
const SELF_MADE: &[u8] = b"Postern self-made certificate authority";

/// Which certificate authorities are trusted.
#[derive(Clone, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that the system trusts.
    System,
    /// Only these, in PEM.
    Authorities(Vec<u8>),
    /// Only the authority in the server's chain of certificates with a public key of this digest.
    Pinned(CaDigest),
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
    /// [`Error::Trust`], with the reason.
    pub fn of_pem(pem: Vec<u8>) -> Result<Self, Error> {
        given_roots(&pem)?;
        Ok(Self::Authorities(pem))
    }

    /// The digest of the one authority that is trusted; `None` where there are others, or the system's.
    pub fn digest(&self) -> Option<CaDigest> {
        match self {
            Self::System => None,
            Self::Pinned(digest) => Some(*digest),
            Self::Authorities(pem) => match &certificates(pem).ok()?[..] {
                [only] => CaDigest::of(only),
                _ => None,
            },
        }
    }

    /// The digest of the one authority that is trusted, if a Postern server created it for itself. Such a server sends it.
    pub fn self_made(&self) -> Option<CaDigest> {
        let Self::Authorities(pem) = self else { return None };
        let found = certificates(pem).ok()?;
        let [only] = &found[..] else { return None };
        let is_self_made = only.windows(SELF_MADE.len()).any(|part| part == SELF_MADE);
        CaDigest::of(only).filter(|_| is_self_made)
    }

    /// A TLS configuration that verifies the server by these authorities.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, Error> {
        let trust = match self {
            Self::System => ServerTrust::Authorities(Arc::new(system_roots()?)),
            Self::Authorities(pem) => ServerTrust::Authorities(Arc::new(given_roots(pem)?)),
            Self::Pinned(digest) => ServerTrust::Pinned(*digest),
        };
        let builder = client_config(trust).map_err(|error| Error::Trust(error.to_string()))?;
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    roots(pem).map_err(|error| match error {
        PemError::NoCertificate => Error::Trust(error.to_string()),
        _ => Error::Trust(format!("a certificate cannot be read: {error}")),
    })
}

fn system_roots() -> Result<RootCertStore, Error> {
    postern_tls::system_roots()
        .ok_or_else(|| Error::Trust("the system has no trusted certificate authorities".to_owned()))
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
