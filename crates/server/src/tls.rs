//! The server's certificate: self-made at the first start, unless one is given.
//!
//! The certificate authority is kept, so that kubeconfigs stay valid; the server's own
//! certificate is made anew at every start, so that it never expires unnoticed and always covers
//! the address that is listened on.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::data_dir::{DataDir, read_if_there, read_private_if_there, write_private};

/// Protocols that are offered, in the order in which they are preferred.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

const CA_NAME: &str = "Postern self-made certificate authority";

/// A certificate and key that somebody else has made.
#[derive(Clone, Debug)]
pub struct GivenCertificate {
    /// The certificate with its chain, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

/// What the listener and the kubeconfig need.
pub(crate) struct Tls {
    /// For the listener.
    pub(crate) config: Arc<ServerConfig>,
    /// What clients should trust, in PEM.
    pub(crate) trust: String,
}

/// Makes or reads the certificate for these host names and addresses.
///
/// # Errors
/// When files cannot be read or written, or hold no certificate and key.
pub(crate) fn prepare(
    dir: &DataDir,
    given: Option<&GivenCertificate>,
    hosts: &[String],
) -> anyhow::Result<Tls> {
    let (chain, key, trust) = match given {
        Some(given) => {
            let chain = read_if_there(&given.certificate)?;
            let key = read_if_there(&given.key)?;
            let missing = |path: &PathBuf| anyhow::anyhow!("{} does not exist", path.display());
            let chain = chain.ok_or_else(|| missing(&given.certificate))?;
            (chain.clone(), key.ok_or_else(|| missing(&given.key))?, chain)
        }
        None => self_made(dir, hosts)?,
    };
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<_, _>>()
            .with_context(|| unreadable(given, |given| &given.certificate))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .with_context(|| unreadable(given, |given| &given.key))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .with_context(|| unreadable(given, |given| &given.certificate))?;
    config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Tls { config: Arc::new(config), trust })
}

fn unreadable(
    given: Option<&GivenCertificate>,
    which: impl Fn(&GivenCertificate) -> &PathBuf,
) -> String {
    match given {
        Some(given) => {
            format!("{} does not hold a usable certificate or key in PEM", which(given).display())
        }
        None => "the self-made certificate cannot be used".to_owned(),
    }
}

fn self_made(dir: &DataDir, hosts: &[String]) -> anyhow::Result<(String, String, String)> {
    let (trust, ca_key) = authority(dir)?;
    let issuer = Issuer::new(authority_params(), ca_key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "postern");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    let chain = format!("{}{trust}", certificate.pem());
    Ok((chain, key.serialize_pem(), trust))
}

/// The authority: as it was made at the first start.
fn authority(dir: &DataDir) -> anyhow::Result<(String, KeyPair)> {
    let certificate = read_if_there(&dir.ca_certificate())?;
    let key = read_private_if_there(&dir.ca_key())?;
    if let (Some(certificate), Some(key)) = (certificate, key) {
        let key = KeyPair::from_pem(&key)
            .with_context(|| format!("{} holds no key in PEM", dir.ca_key().display()))?;
        return Ok((certificate, key));
    }
    let key = KeyPair::generate()?;
    let certificate = authority_params().self_signed(&key)?.pem();
    // The key first: a certificate without its key could not be used again.
    write_private(&dir.ca_key(), &key.serialize_pem())?;
    write_private(&dir.ca_certificate(), &certificate)?;
    Ok((certificate, key))
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, CA_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
