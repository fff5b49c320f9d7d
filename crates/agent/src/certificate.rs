//! The agent's own certificate: of a certificate authority that it makes once, and keeps. The certificate is
//! made again at each start, and before it expires.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::state_dir::StateDir;

const NAME: &str = "Postern agent's self-made certificate authority";

/// The files of the certificate authority.
const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca-key.pem";

/// The protocols for ALPN, in order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How long a certificate is valid, and when the next one is made.
const VALID: Duration = Duration::from_hours(90 * 24);
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_hours(24);

/// Clients with a clock that is behind accept a new certificate.
const BACKDATED: Duration = Duration::from_hours(24);

/// The certificate for the next handshake, and the authority that issues the next one.
pub(crate) struct Certificate {
    current: ArcSwap<CertifiedKey>,
    issuer: Issuer<'static, KeyPair>,
    hosts: Vec<String>,
    /// The certificate of the authority, in PEM. Clients trust it.
    pub(crate) authority: String,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl Certificate {
    /// A certificate for these hosts.
    ///
    /// # Errors
    /// When the authority's files cannot be read or written, or are corrupt.
    pub(crate) fn prepare(
        dir: &StateDir,
        hosts: Vec<String>,
        now: i64,
    ) -> anyhow::Result<Arc<Self>> {
        let key = authority_key(dir)?;
        let authority = if let Some(pem) = dir.read(CERTIFICATE)? {
            pem
        } else {
            let pem = authority_params().self_signed(&key)?.pem();
            dir.write(CERTIFICATE, pem.as_bytes())?;
            pem
        };
        let issuer = Issuer::new(authority_params(), key);
        let current = ArcSwap::from_pointee(made(&issuer, &hosts, &authority, now)?);
        Ok(Arc::new(Self { current, issuer, hosts, authority }))
    }

    /// Issues another certificate for later handshakes.
    ///
    /// # Errors
    /// If it cannot be issued; the present one stays.
    pub(crate) fn renew(&self, now: i64) -> anyhow::Result<()> {
        self.current.store(Arc::new(made(&self.issuer, &self.hosts, &self.authority, now)?));
        Ok(())
    }

    /// The configuration of the listener.
    ///
    /// # Errors
    /// That of the TLS library.
    pub(crate) fn server_config(self: Arc<Self>) -> anyhow::Result<Arc<ServerConfig>> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self);
        config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The key of the authority; makes it where there has been none.
fn authority_key(dir: &StateDir) -> anyhow::Result<KeyPair> {
    if let Some(pem) = dir.read(KEY)? {
        // The parser's error contains the text that it cannot parse.
        return KeyPair::from_pem(&pem).ok().with_context(|| {
            format!("{KEY} in the state directory is corrupt: restore it from a copy")
        });
    }
    anyhow::ensure!(
        dir.read(CERTIFICATE)?.is_none(),
        "{CERTIFICATE} is in the state directory, and its {KEY} is missing: put it back, or remove both \
         to have new ones made, which every client must be given"
    );
    let key = KeyPair::generate()?;
    dir.write(KEY, key.serialize_pem().as_bytes())?;
    Ok(key)
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A new certificate with its key, ready for handshakes.
fn made(
    issuer: &Issuer<'static, KeyPair>,
    hosts: &[String],
    authority: &str,
    now: i64,
) -> anyhow::Result<CertifiedKey> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "postern agent");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let now = std::time::UNIX_EPOCH + Duration::from_secs(now.try_into().unwrap_or_default());
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + VALID).into();
    let certificate = params.signed_by(&key, issuer)?.der().clone();
    let authority =
        CertificateDer::from_pem_slice(authority.as_bytes()).ok().with_context(|| {
            format!("{CERTIFICATE} in the state directory is corrupt: restore it from a copy")
        })?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let certified = CertifiedKey::from_der(vec![certificate, authority], key, &provider());
    Ok(certified?)
}
