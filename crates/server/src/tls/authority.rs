//! The self-signed certificate authority. It is created once and stored, because clients trust it: in files, or in a
//! store that several servers share. Each start checks it, as it checks the keyring. A lost authority is never replaced
//! silently.

use anyhow::{Context as _, bail, ensure};
use postern_kinds::SecretText;
use postern_registry::kubeconfig;
use postern_registry::registry::shared_authority::SharedAuthority;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::provider;
use crate::data_dir::{DataDir, read_if_there, read_private_if_there, write_private};

/// The common name. It must not change, because it identifies the authorities that clients trust.
const NAME: &str = "Postern self-made certificate authority";

/// The certificate authority.
pub(super) struct Authority {
    /// The certificate in PEM, which clients trust.
    pub(super) certificate: String,
    /// Whether it was created now.
    pub(super) is_new: bool,
    key: KeyPair,
}

impl Authority {
    /// A new one, which is not stored yet.
    pub(super) fn generate() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = params().self_signed(&key)?.pem();
        Ok(Self { certificate, is_new: true, key })
    }

    /// The authority of a store.
    ///
    /// # Errors
    /// When the certificate or the key is corrupt, or they do not belong together.
    pub(super) fn of_store(shared: &SharedAuthority) -> anyhow::Result<Self> {
        let corrupt = "the certificate authority in the store is corrupt: restore a backup, or pass --tls-cert-file and \
                       --tls-key-file";
        let parsed = CertificateDer::from_pem_slice(shared.certificate.as_bytes()).ok();
        let parsed = parsed.filter(is_intact).context(corrupt)?;
        let key = shared.key.expose();
        let der = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok().context(corrupt)?;
        let pair = KeyPair::from_pem(key).ok().context(corrupt)?;
        ensure!(CertifiedKey::from_der(vec![parsed], der, &provider()).is_ok(), corrupt);
        Ok(Self { certificate: shared.certificate.clone(), is_new: false, key: pair })
    }

    /// The authority as the store keeps it.
    pub(super) fn to_store(&self) -> SharedAuthority {
        let key = SecretText::from(self.key.serialize_pem());
        SharedAuthority { certificate: self.certificate.clone(), key }
    }

    /// The issuer that signs certificates.
    pub(super) fn into_issuer(self) -> Issuer<'static, KeyPair> {
        Issuer::new(params(), self.key)
    }
}

/// Opens the certificate authority, or creates the first one. `is_used` is whether the database has been used before.
/// Then an authority must exist, unless the administrator's kubeconfig trusts another certificate.
///
/// # Errors
/// When a file is missing, corrupt, or belongs to another authority. The error names the file.
pub(super) fn open(dir: &DataDir, is_used: bool) -> anyhow::Result<Authority> {
    let certificate = read_if_there(&dir.ca_certificate())?;
    let key = read_private_if_there(&dir.ca_key())?;
    let (at, key_at) = (dir.ca_certificate(), dir.ca_key());
    let (at, key_at) = (at.display(), key_at.display());
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let authority = read(dir, certificate, &key)?;
            check_trusted(dir, &authority)?;
            Ok(authority)
        }
        (Some(_), None) => bail!(
            "the certificate authority {at} has no key, because {key_at} is missing: put the key back, or \
             move the certificate away as well: the next start says how to create a new authority"
        ),
        (None, key) if is_trusted(dir, is_used) => bail!(
            "the certificate authority {at} {} missing, and clients trust it: put it back, or pass \
             --key-dir; to create a new one, which every client must then trust, replace {} with an \
             empty file for one start, and then run postern admin reset-key",
            if key.is_some() { "is" } else { "and its key are" },
            dir.admin_kubeconfig().display()
        ),
        // The first start stopped between the two files.
        (None, Some(key)) => make(dir, parse_key(dir, &key)?),
        (None, None) => {
            let key = KeyPair::generate()?;
            // The key is written first: a certificate without its key could not be used again.
            write_private(&dir.ca_key(), &key.serialize_pem())?;
            make(dir, key)
        }
    }
}

fn make(dir: &DataDir, key: KeyPair) -> anyhow::Result<Authority> {
    let certificate = params().self_signed(&key)?.pem();
    write_private(&dir.ca_certificate(), &certificate)?;
    Ok(Authority { certificate, is_new: true, key })
}

/// Whether the directory has an authority, or a part of one.
pub(super) fn is_in(dir: &DataDir) -> bool {
    dir.ca_certificate().exists() || dir.ca_key().exists()
}

/// Whether clients trust a self-signed authority, by the administrator's kubeconfig. Operators may have moved the
/// kubeconfig away. Then clients trust one as soon as the database has been used.
fn is_trusted(dir: &DataDir, is_used: bool) -> bool {
    match read_if_there(&dir.admin_kubeconfig()) {
        Ok(None) => is_used,
        found => !self_signed_in(&found.ok().flatten().unwrap_or_default()).is_empty(),
    }
}

/// The certificates of self-signed authorities that a kubeconfig trusts.
fn self_signed_in(kubeconfig: &str) -> Vec<CertificateDer<'static>> {
    let trusted = kubeconfig::trust_in(kubeconfig).unwrap_or_default();
    let certificates = CertificateDer::pem_slice_iter(&trusted).flatten();
    certificates.filter(|one| memchr::memmem::find(one, NAME.as_bytes()).is_some()).collect()
}

/// Rejects the authority of another server, although its files match each other: the administrator's kubeconfig trusts
/// another authority. A corrupt certificate in the kubeconfig is ignored.
fn check_trusted(dir: &DataDir, authority: &Authority) -> anyhow::Result<()> {
    let kubeconfig = read_if_there(&dir.admin_kubeconfig()).ok().flatten().unwrap_or_default();
    let trusted = self_signed_in(&kubeconfig);
    let own = CertificateDer::from_pem_slice(authority.certificate.as_bytes())?;
    ensure!(
        trusted.is_empty() || trusted.contains(&own) || !trusted.iter().any(is_intact),
        "{} is not the certificate authority that {} trusts: put back the certificate and the key \
         that clients trust; if this authority is correct, replace the kubeconfig with an empty \
         file, and then run postern admin reset-key",
        dir.ca_certificate().display(),
        dir.admin_kubeconfig().display()
    );
    Ok(())
}

/// Whether a self-signed certificate is intact. Only its content is signed. The rest follows from the content (RFC 5280
/// section 4.1): the algorithm is that in the content, and the encoding is DER.
fn is_intact(certificate: &CertificateDer<'_>) -> bool {
    let Ok((rest, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
    let content: &[u8] = parsed.tbs_certificate.as_ref();
    let signature = der(0x03, &[&[0], &*parsed.signature_value.data]);
    let after = memchr::memmem::find(certificate, content)
        .and_then(|at| certificate.get(at + content.len()..));
    let Some(algorithm) = after.and_then(|after| after.strip_suffix(signature.as_slice())) else {
        return false;
    };
    rest.is_empty()
        && parsed.verify_signature(None).is_ok()
        && memchr::memmem::find(content, algorithm).is_some()
        && **certificate == *der(0x30, &[content, algorithm, &signature])
}

/// An element in DER: the tag, the length and the content.
fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut element = vec![tag];
    match length {
        [short] if *short < 0x80 => element.push(*short),
        long => {
            element.extend(u8::try_from(long.len()).map(|count| 0x80 | count));
            element.extend(long);
        }
    }
    element.extend(content);
    element
}

fn read(dir: &DataDir, certificate: String, key: &str) -> anyhow::Result<Authority> {
    let (at, key_at) = (dir.ca_certificate(), dir.ca_key());
    let (at, key_at) = (at.display(), key_at.display());
    // The errors of these parsers print the bytes of invalid input, which may be a key.
    let parsed = CertificateDer::from_pem_slice(certificate.as_bytes()).ok();
    let parsed = parsed.with_context(|| {
        format!("{at} is corrupt: it contains no certificate in PEM; restore it from a copy")
    })?;
    ensure!(
        is_intact(&parsed),
        "{at} is corrupt: its signature does not match its content; restore it from a copy, or take the \
         certificate authority from the kubeconfig of a client"
    );
    let pair = parse_key(dir, key)?;
    let der = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok();
    let der = der.with_context(|| corrupt_key(dir))?;
    let matching = CertifiedKey::from_der(vec![parsed.clone()], der, &provider());
    ensure!(
        matching.is_ok() && memchr::memmem::find(&parsed, NAME.as_bytes()).is_some(),
        "{at} is not the certificate of the self-signed authority whose key is in {key_at}: put back \
         both files of the same authority"
    );
    Ok(Authority { certificate, is_new: false, key: pair })
}

fn parse_key(dir: &DataDir, key: &str) -> anyhow::Result<KeyPair> {
    KeyPair::from_pem(key).ok().with_context(|| corrupt_key(dir))
}

fn corrupt_key(dir: &DataDir) -> String {
    format!(
        "{} is corrupt: it contains no key in PEM; restore it from a copy",
        dir.ca_key().display()
    )
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

#[cfg(test)]
mod tests {
    use postern_auth::bearer::BearerToken;
    use tempfile::TempDir;

    use super::*;

    struct Home {
        _directory: TempDir,
        dir: DataDir,
    }

    impl Home {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let dir = DataDir::open(&directory.path().join("data"), None).unwrap();
            Self { _directory: directory, dir }
        }

        /// A `Home` with an authority that the administrator's kubeconfig trusts.
        fn started() -> Self {
            let home = Self::new();
            let trust = open(&home.dir, false).unwrap().certificate;
            let key = BearerToken::of_key(&postern_kinds::access_key::generate(&mut || 0));
            let text = kubeconfig::new("127.0.0.1:8443", &trust, &key);
            write_private(&home.dir.admin_kubeconfig(), &text).unwrap();
            home
        }

        fn problem(&self) -> String {
            format!("{:#}", open(&self.dir, true).err().expect("an error"))
        }
    }

    #[test]
    fn it_is_created_once() {
        let home = Home::new();
        let first = open(&home.dir, false).unwrap();
        let second = open(&home.dir, false).unwrap();
        assert_eq!((first.is_new, second.is_new), (true, false));
        assert_eq!(first.certificate, second.certificate);
        // As after an interrupted first start: the key stays the same.
        std::fs::remove_file(home.dir.ca_certificate()).unwrap();
        let third = open(&home.dir, false).unwrap();
        assert_eq!(third.key.serialize_pem(), second.key.serialize_pem());
    }

    #[test]
    fn missing_files_are_not_created_again() {
        let home = Home::started();
        std::fs::remove_file(home.dir.ca_certificate()).unwrap();
        assert!(home.problem().contains("tls-ca.pem is missing"), "{}", home.problem());
        std::fs::remove_file(home.dir.ca_key()).unwrap();
        assert!(home.problem().contains("and its key are missing"), "{}", home.problem());
        assert!(!home.dir.ca_key().exists());
        std::fs::remove_file(home.dir.admin_kubeconfig()).unwrap();
        assert!(home.problem().contains("and its key are missing"), "{}", home.problem());
        assert!(!home.dir.ca_key().exists(), "also with the kubeconfig elsewhere");
        write_private(&home.dir.admin_kubeconfig(), "").unwrap();
        assert!(open(&home.dir, true).unwrap().is_new, "this creates a new authority");
        std::fs::remove_file(home.dir.ca_key()).unwrap();
        assert!(home.problem().contains("tls-ca-key.pem is missing"), "{}", home.problem());
    }

    #[test]
    fn corrupt_and_foreign_files_are_named() {
        let (home, other) = (Home::started(), Home::started());
        let (certificate, key) = (home.dir.ca_certificate(), home.dir.ca_key());
        let keep = |path| (read_if_there(path).unwrap().unwrap(), path);
        let kept = [keep(&certificate), keep(&key)];
        let put_back = || {
            for (text, path) in &kept {
                write_private(path, text).unwrap();
            }
        };
        for text in ["", "nonsense", "-----BEGIN CERT", "-----BEGIN CERTIFICATE-----\n!\n"] {
            for (path, wanted) in
                [(&certificate, "tls-ca.pem is corrupt"), (&key, "key.pem is corrupt")]
            {
                write_private(path, text).unwrap();
                let problem = home.problem();
                assert!(problem.contains(wanted) && !problem.contains("[45"), "{problem}");
                put_back();
            }
        }
        let foreign = read_if_there(&other.dir.ca_certificate()).unwrap().unwrap();
        write_private(&certificate, &foreign).unwrap();
        assert!(home.problem().contains("both files of the same"), "{}", home.problem());
        // An authority of another server. Its files match each other.
        let foreign_key = read_if_there(&other.dir.ca_key()).unwrap().unwrap();
        write_private(&key, &foreign_key).unwrap();
        assert!(home.problem().contains("is not the certificate authority that"));
        write_private(&home.dir.admin_kubeconfig(), "").unwrap();
        open(&home.dir, true).unwrap();
        // An authority of no Postern server. Its files match each other.
        let own = KeyPair::generate().unwrap();
        write_private(&key, &own.serialize_pem()).unwrap();
        let mut foreign = params();
        foreign.distinguished_name = rcgen::DistinguishedName::new();
        write_private(&certificate, &foreign.self_signed(&own).unwrap().pem()).unwrap();
        assert!(home.problem().contains("self-signed authority"), "{}", home.problem());
        put_back();
        open(&home.dir, false).unwrap();
    }

    #[test]
    fn a_flipped_bit_anywhere_in_the_certificate_is_detected() {
        let home = Home::started();
        let whole = read_if_there(&home.dir.ca_certificate()).unwrap().unwrap();
        let der = CertificateDer::from_pem_slice(whole.as_bytes()).unwrap();
        assert!(is_intact(&der));
        for bit in 0..der.len() * 8 {
            let mut flipped = der.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(&flipped.into()), "bit {bit}");
        }
    }
}
