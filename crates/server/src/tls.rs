//! The server's certificate: that of the operator, or a self-signed one.
//!
//! The self-signed certificate authority is stored, so that kubeconfigs stay valid. Each start creates a new server
//! certificate, which covers the listen address. It is renewed before it expires. The operator's certificate is read
//! again when its files change.

mod authority;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use jiff::tz::TimeZone;
use postern_meta::time::Timestamp;
use postern_registry::clock::Source;
use postern_registry::registry::shared_authority::{self, SharedAuthority};
use postern_store::Store;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use zeroize::Zeroizing;

use self::authority::Authority;
use crate::data_dir::{DataDir, read_if_there};

/// The protocols for ALPN, in order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The operator's certificate and key.
#[derive(Clone, Debug)]
pub struct GivenCertificate {
    /// The certificate with its chain, in PEM.
    pub certificate: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

/// How often the operator's files, and the expiry of a self-signed certificate, are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// How long a self-signed certificate is valid, and how long before its expiry it is renewed.
const VALID_DAYS: i64 = 90;
const RENEW_DAYS: i64 = 30;

/// A self-signed certificate is valid from at least a day before its creation. If the clock moves back by more than
/// this, a new one is created, because the old one would not be valid yet.
const CLOCK_BACK_SECONDS: i64 = DAY_SECONDS / 2;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub(crate) enum CertificateSource {
    /// From the operator's files.
    Given(GivenCertificate),
    /// It is self-signed.
    SelfSigned(AuthoritySource),
}

/// The certificates of the listener and of the kubeconfig.
pub(crate) struct Tls {
    /// The TLS configuration of the listener.
    pub(crate) config: Arc<ServerConfig>,
    /// The certificates that clients must trust, in PEM.
    pub(crate) trust: String,
    /// Whether `trust` is a certificate authority that was created now.
    pub(crate) is_new_authority: bool,
    /// Renews the certificate while the server runs.
    pub(crate) renewer: Renewer,
    /// The certificate that clients get, for the metrics.
    pub(crate) served: ServedCertificate,
}

/// The certificate that clients get now.
#[derive(Clone)]
pub(crate) struct ServedCertificate(Arc<CurrentCertificate>);

impl ServedCertificate {
    /// When it expires, in seconds since 1970; `None` when it cannot be parsed.
    pub(crate) fn expires_at(&self) -> Option<i64> {
        let key = self.0.0.load();
        let (_, parsed) = x509_parser::parse_x509_certificate(key.cert.first()?).ok()?;
        Some(parsed.validity().not_after.timestamp())
    }
}

/// The certificate for the next handshake.
#[derive(Debug)]
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// A certificate with its key, from the operator or self-signed.
struct Material {
    /// The certificate with its chain, in PEM.
    chain: String,
    key: Zeroizing<String>,
    /// The certificates that clients must trust, in PEM.
    trust: String,
    /// Whether `trust` is a certificate authority that was created now.
    is_new_authority: bool,
}

/// The source of certificates, and the state that decides the next renewal.
enum Origin {
    /// The operator's files, and the hash of their content at the last read.
    Given(GivenCertificate, Vec<u8>),
    /// A self-signed certificate, which is used while the clock is in this range.
    SelfSigned { authority: AuthoritySource, hosts: Vec<String>, used: Range<Timestamp> },
}

/// Where the self-signed certificate authority is.
#[derive(Clone, Debug)]
pub(crate) enum AuthoritySource {
    /// In files of the key directory.
    Files(DataDir),
    /// In a store that several servers share.
    Store(SharedAuthority),
}

impl AuthoritySource {
    /// The source for a server. A store that several servers share has the authority. The first
    /// server stores it, from the files of its key directory if it has them.
    ///
    /// # Errors
    /// The errors of the store; when an authority is corrupt, or is missing in a store in use.
    pub(crate) async fn find(
        dir: &DataDir,
        store: &Arc<dyn Store>,
        is_shared: bool,
        is_used: bool,
    ) -> anyhow::Result<Self> {
        if let Some(stored) = shared_authority::read(store).await? {
            return Ok(Self::Store(stored));
        }
        if !is_shared {
            return Ok(Self::Files(dir.clone()));
        }
        let own = if is_used || authority::is_in(dir) {
            authority::open(dir, is_used)?
        } else {
            Authority::generate()?
        };
        let stored = shared_authority::store_first(store, own.to_store()).await?;
        Ok(Self::Store(stored))
    }

    /// The authority itself. `is_used` is whether the database has been used before.
    fn open(&self, is_used: bool) -> anyhow::Result<Authority> {
        match self {
            Self::Files(dir) => authority::open(dir, is_used),
            Self::Store(stored) => Authority::of_store(stored),
        }
    }
}

/// Renews the certificate: reads the operator's files when they change, or creates a new self-signed certificate before
/// the old one expires. Open connections keep their certificate.
pub(crate) struct Renewer {
    current: Arc<CurrentCertificate>,
    origin: Origin,
}

/// The certificate for these host names and addresses: that of the operator, or one that the authority signs. `is_used`
/// is whether the database has been used before.
///
/// # Errors
/// When files cannot be read or written, or contain no certificate or key.
pub(crate) fn prepare(
    origin: &CertificateSource,
    hosts: &[String],
    now: Timestamp,
    is_used: bool,
) -> anyhow::Result<Tls> {
    let (material, origin, given) = match origin {
        CertificateSource::Given(given) => {
            let material = read_given(given)?;
            let hash = hash(&material);
            (material, Origin::Given(given.clone(), hash), Some(given))
        }
        CertificateSource::SelfSigned(authority) => {
            let (authority, hosts) = (authority.clone(), hosts.to_vec());
            let material = self_signed(&authority, &hosts, now, is_used)?;
            let used = used_from(now, VALID_DAYS - RENEW_DAYS);
            (material, Origin::SelfSigned { authority, hosts, used }, None)
        }
    };
    let current = Arc::new(CurrentCertificate(ArcSwap::from_pointee(certified(&material, given)?)));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(current.clone());
    config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
    let served = ServedCertificate(current.clone());
    let renewer = Renewer { current, origin };
    let Material { trust, is_new_authority, .. } = material;
    Ok(Tls { config: Arc::new(config), trust, is_new_authority, renewer, served })
}

impl Renewer {
    /// Renews the certificate until it is dropped. Each change of `reload` also reads the operator's files.
    /// `trust_changed` is called after each renewal, with the certificates that clients must trust.
    pub(crate) async fn run(
        mut self,
        source: Arc<dyn Source>,
        mut reload: watch::Receiver<()>,
        trust_changed: impl Fn(&str) + Send + Sync + 'static,
    ) {
        let trust_changed = Arc::new(trust_changed);
        loop {
            let forced = async {
                match reload.changed().await {
                    Ok(()) => {}
                    Err(_) => std::future::pending().await,
                }
            };
            let forced = tokio::time::timeout(CHECK_INTERVAL, forced).await.is_ok();
            let (now, changed) = (source.now(), trust_changed.clone());
            let checked = tokio::task::spawn_blocking(move || {
                match self.refresh(now, forced) {
                    Ok(Some(trust)) => changed(&trust),
                    Ok(None) => {}
                    Err(error) => tracing::error!(
                        "cannot renew the certificate, the current one stays in use: {error:#}"
                    ),
                }
                self
            });
            match checked.await {
                Ok(renewer) => self = renewer,
                // The runtime is shutting down.
                Err(_) => return,
            }
        }
    }

    /// Renews the certificate if it is due. Returns the certificates that clients must trust after a renewal. An error
    /// is returned once for each state of the files. If `forced`, the operator's files are used even without a change.
    fn refresh(&mut self, now: Timestamp, forced: bool) -> anyhow::Result<Option<String>> {
        let material = match &mut self.origin {
            Origin::Given(given, seen) => {
                let material = match read_given(given) {
                    Ok(material) => material,
                    Err(_) if seen.is_empty() && !forced => return Ok(None),
                    Err(error) => {
                        seen.clear();
                        return Err(error);
                    }
                };
                let hash = hash(&material);
                if *seen == hash && !forced {
                    return Ok(None);
                }
                *seen = hash;
                let key = certified(&material, Some(given))?;
                self.current.0.store(Arc::new(key));
                material
            }
            Origin::SelfSigned { authority, hosts, used } => {
                if used.contains(&now) {
                    return Ok(None);
                }
                // This is set before the renewal. So after an error, the next attempt is a day later.
                *used = used_from(now, 1);
                let material = self_signed(authority, hosts, now, true)?;
                self.current.0.store(Arc::new(certified(&material, None)?));
                *used = used_from(now, VALID_DAYS - RENEW_DAYS);
                material
            }
        };
        tracing::info!("the certificate was renewed for new connections");
        Ok(Some(material.trust))
    }
}

/// The time range in which a self-signed certificate of now is not renewed.
fn used_from(now: Timestamp, days: i64) -> Range<Timestamp> {
    let after = |seconds| Timestamp::from_unix_seconds(now.unix_seconds() + seconds);
    after(-CLOCK_BACK_SECONDS)..after(days * DAY_SECONDS)
}

fn hash(material: &Material) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [material.chain.as_bytes(), &[0], material.key.as_bytes()] {
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn read_given(given: &GivenCertificate) -> anyhow::Result<Material> {
    let read = |path: &PathBuf| -> anyhow::Result<String> {
        read_if_there(path)?.with_context(|| format!("{} does not exist", path.display()))
    };
    let chain = read(&given.certificate)?;
    let key = Zeroizing::new(read(&given.key)?);
    Ok(Material { trust: chain.clone(), chain, key, is_new_authority: false })
}

/// A certificate with its key, ready for handshakes.
fn certified(
    material: &Material,
    given: Option<&GivenCertificate>,
) -> anyhow::Result<CertifiedKey> {
    // The parser's errors are omitted: they print the bytes of invalid input, which may be a key.
    let certificates: Option<Vec<CertificateDer<'static>>> =
        CertificateDer::pem_slice_iter(material.chain.as_bytes()).collect::<Result<_, _>>().ok();
    let certificates = certificates.with_context(|| unusable(given, |given| &given.certificate))?;
    let key = PrivateKeyDer::from_pem_slice(material.key.as_bytes()).ok();
    let key = key.with_context(|| unusable(given, |given| &given.key))?;
    CertifiedKey::from_der(certificates, key, &provider())
        .with_context(|| unusable(given, |given| &given.certificate))
}

fn unusable(
    given: Option<&GivenCertificate>,
    which: impl Fn(&GivenCertificate) -> &PathBuf,
) -> String {
    match given {
        Some(given) => {
            format!("{} contains no valid certificate or key in PEM", which(given).display())
        }
        None => "cannot use the self-signed certificate".to_owned(),
    }
}

fn self_signed(
    authority: &AuthoritySource,
    hosts: &[String],
    now: Timestamp,
    is_used: bool,
) -> anyhow::Result<Material> {
    let authority = authority.open(is_used)?;
    let (trust, is_new_authority) = (authority.certificate.clone(), authority.is_new);
    let issuer = authority.into_issuer();
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "postern");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    // It is valid from the day before, for clients with a clock that is behind.
    let day = |days: i64| -> anyhow::Result<_> {
        let at = jiff::Timestamp::from_second(now.unix_seconds() + days * DAY_SECONDS)?;
        let date = TimeZone::UTC.to_datetime(at).date();
        Ok(date_time_ymd(
            date.year().into(),
            date.month().cast_unsigned(),
            date.day().cast_unsigned(),
        ))
    };
    (params.not_before, params.not_after) = (day(-1)?, day(VALID_DAYS)?);
    let certificate = params.signed_by(&key, &issuer)?;
    let chain = format!("{}{trust}", certificate.pem());
    Ok(Material { chain, key: Zeroizing::new(key.serialize_pem()), trust, is_new_authority })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::write_private;

    fn own(dir: &DataDir) -> CertificateSource {
        CertificateSource::SelfSigned(AuthoritySource::Files(dir.clone()))
    }

    fn serving(tls: &Tls) -> CertificateDer<'static> {
        tls.renewer.current.0.load().cert[0].clone()
    }

    #[test]
    fn a_self_signed_certificate_is_renewed_before_it_expires() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&home.path().join("data"), None).unwrap();
        let day = |day: i64| Timestamp::from_unix_seconds(1_800_000_000 + day * DAY_SECONDS);
        let mut tls = prepare(&own(&dir), &["localhost".to_owned()], day(0), false).unwrap();
        let first = serving(&tls);
        assert_eq!(tls.renewer.refresh(day(59), false).unwrap(), None);
        assert_eq!(serving(&tls), first);
        let trust = tls.renewer.refresh(day(60), false).unwrap();
        assert_eq!(trust, Some(tls.trust.clone()), "clients still trust the same authority");
        assert_ne!(serving(&tls), first);
        assert_eq!(tls.renewer.refresh(day(61), false).unwrap(), None);
    }

    #[test]
    fn a_self_signed_certificate_from_the_future_is_renewed() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&home.path().join("data"), None).unwrap();
        let hour = |hour: i64| Timestamp::from_unix_seconds(1_800_000_000 + hour * 60 * 60);
        let mut tls = prepare(&own(&dir), &["localhost".to_owned()], hour(0), false).unwrap();
        let first = serving(&tls);
        assert_eq!(
            tls.renewer.refresh(hour(-11), false).unwrap(),
            None,
            "the certificate is valid from the day before"
        );
        assert!(tls.renewer.refresh(hour(-116 * 24), false).unwrap().is_some());
        assert_ne!(serving(&tls), first);
        assert_eq!(tls.renewer.refresh(hour(-116 * 24 + 1), false).unwrap(), None);
        assert!(
            tls.renewer.refresh(hour(0), false).unwrap().is_some(),
            "the clock is ahead again, and the certificate would expire"
        );
    }

    #[test]
    fn an_invalid_file_changes_nothing_and_is_an_error_once() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&home.path().join("data"), None).unwrap();
        let now = Timestamp::from_unix_seconds(1_800_000_000);
        let given = GivenCertificate {
            certificate: home.path().join("cert.pem"),
            key: home.path().join("key.pem"),
        };
        let put = |material: &Material| {
            write_private(&given.certificate, &material.chain).unwrap();
            write_private(&given.key, &material.key).unwrap();
        };
        let files = AuthoritySource::Files(dir.clone());
        let make = || self_signed(&files, &["localhost".to_owned()], now, false).unwrap();
        put(&make());
        let mut tls = prepare(&CertificateSource::Given(given.clone()), &[], now, false).unwrap();
        let first = serving(&tls);
        assert_eq!(tls.renewer.refresh(now, false).unwrap(), None);
        // The certificate does not match the key; the key is missing; the key is invalid.
        write_private(&given.certificate, &make().chain).unwrap();
        assert!(tls.renewer.refresh(now, false).is_err());
        assert_eq!(tls.renewer.refresh(now, false).unwrap(), None);
        assert!(
            tls.renewer.refresh(now, true).is_err(),
            "a forced refresh returns the error again"
        );
        std::fs::remove_file(&given.key).unwrap();
        assert!(tls.renewer.refresh(now, false).is_err());
        assert_eq!(tls.renewer.refresh(now, false).unwrap(), None);
        write_private(&given.key, "nonsense").unwrap();
        assert!(tls.renewer.refresh(now, false).is_err());
        assert_eq!(serving(&tls), first);
        let second = make();
        put(&second);
        assert_eq!(tls.renewer.refresh(now, false).unwrap(), Some(second.chain));
        assert_ne!(serving(&tls), first);
    }
}
