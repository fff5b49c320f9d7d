//! The source of the at-rest keys: the setting `--keyring`, and the server's handling of each
//! source.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, anyhow};
use postern_store::seal::{KeyId, Keyring, Kms, KmsV2, Sealed};

use crate::data_dir::DataDir;
use crate::transit::{Transit, TransitSettings};

/// The sources that an operator can name.
const SOURCES: &str = "file:PATH, kms-v2:unix:///PATH or transit:https://HOST:PORT/MOUNT/keys/NAME";

/// The setting `--keyring`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyringSetting {
    /// The file `seal.keys` in the key directory.
    #[default]
    KeyDirectory,
    /// A file that is never written, such as a Secret in Kubernetes.
    File(PathBuf),
    /// The keys are in the store, wrapped by the KMS v2 plugin at this socket.
    KmsV2(PathBuf),
    /// The keys are in the store, wrapped by the transit engine of `OpenBao` or Vault.
    Transit(TransitSettings),
}

impl KeyringSetting {
    /// The setting of `--keyring`, `--transit-token-file` and `--transit-ca-file`.
    ///
    /// # Errors
    /// When the text names no source, or the files do not belong to it.
    pub fn parse(
        text: Option<&str>,
        transit_token_file: Option<&Path>,
        transit_ca_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let setting = match text.map(|text| (text, text.split_once(':'))) {
            None => Self::KeyDirectory,
            Some((_, Some(("file", path)))) if !path.is_empty() => Self::File(path.into()),
            Some((text, Some(("kms-v2", url)))) => match url.strip_prefix("unix://") {
                Some(path) if path.starts_with('/') => Self::KmsV2(path.into()),
                _ => anyhow::bail!("invalid --keyring {text:?}: must be kms-v2:unix:///PATH"),
            },
            Some((text, Some(("transit", url)))) => {
                let token_file = transit_token_file.with_context(|| {
                    format!("--keyring {text} needs a token: pass it in --transit-token-file")
                })?;
                let settings = TransitSettings::parse(url, token_file, transit_ca_file);
                Self::Transit(settings.with_context(|| format!("invalid --keyring {text:?}"))?)
            }
            Some((text, _)) => anyhow::bail!("invalid --keyring {text:?}: must be {SOURCES}"),
        };
        let has_transit_file = transit_token_file.is_some() || transit_ca_file.is_some();
        anyhow::ensure!(
            !has_transit_file || matches!(setting, Self::Transit(_)),
            "--transit-token-file and --transit-ca-file need --keyring transit:…"
        );
        Ok(setting)
    }
}

/// The source of the at-rest keys of this process. Clones are the same source.
#[derive(Clone)]
pub(crate) enum KeySource {
    /// The file in the key directory, which this process creates and changes.
    KeyDirectory(PathBuf),
    /// A file that is never written.
    Mounted(PathBuf),
    /// The store has the keys, wrapped by a KMS.
    Wrapped(WrappedKeySource),
}

/// A KMS, and whether the next start could use it, as far as this process knows.
#[derive(Clone)]
pub(crate) struct WrappedKeySource {
    kms: Arc<dyn Kms>,
    /// Whether the keys in the store could be decrypted when they were read last.
    are_readable: Arc<AtomicBool>,
    /// Whether the KMS worked when it was checked last.
    works: Arc<AtomicBool>,
}

impl KeySource {
    /// The source of a setting. Nothing is read yet.
    pub(crate) fn new(setting: &KeyringSetting, dir: &DataDir) -> Self {
        Self::with_file(setting, dir.keyring_file())
    }

    /// The source of a setting, where this is the file in the key directory.
    pub(crate) fn with_file(setting: &KeyringSetting, file: PathBuf) -> Self {
        match setting {
            KeyringSetting::KeyDirectory => Self::KeyDirectory(file),
            KeyringSetting::File(path) => Self::Mounted(path.clone()),
            KeyringSetting::KmsV2(socket) => Self::wrapped(Arc::new(KmsV2::new(socket))),
            KeyringSetting::Transit(settings) => {
                Self::wrapped(Arc::new(Transit::new(settings.clone())))
            }
        }
    }

    fn wrapped(kms: Arc<dyn Kms>) -> Self {
        let (are_readable, works) = (Arc::new(true.into()), Arc::new(true.into()));
        Self::Wrapped(WrappedKeySource { kms, are_readable, works })
    }

    /// The path of the file, or the address of the KMS.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::KeyDirectory(path) | Self::Mounted(path) => path.display().to_string(),
            Self::Wrapped(source) => source.kms.address().to_owned(),
        }
    }

    /// The KMS that has wrapped the keys, if the keys are in the store.
    pub(crate) fn kms(&self) -> Option<&dyn Kms> {
        match self {
            Self::KeyDirectory(_) | Self::Mounted(_) => None,
            Self::Wrapped(source) => Some(&*source.kms),
        }
    }

    /// Whether others than this process change the keys, also if it has the store for itself.
    pub(crate) fn changes_from_outside(&self) -> bool {
        !matches!(self, Self::KeyDirectory(_))
    }

    /// Reads the keyring of an open store.
    ///
    /// # Errors
    /// When it cannot be read. The error names the source.
    pub(crate) async fn load(&self, sealed: &Sealed) -> anyhow::Result<Keyring> {
        match self {
            Self::KeyDirectory(_) | Self::Mounted(_) => {
                let source = self.clone();
                tokio::task::spawn_blocking(move || source.read_file()).await?
            }
            Self::Wrapped(source) => {
                let read = sealed.read_wrapped(&*source.kms).await;
                source.are_readable.store(read.is_ok(), Ordering::Relaxed);
                Ok(read?)
            }
        }
    }

    /// Reads the keyring of a file. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, or the keys are not in a file.
    pub(crate) fn read_file(&self) -> anyhow::Result<Keyring> {
        let (path, read) = match self {
            Self::KeyDirectory(path) => (path, Keyring::load(path)),
            Self::Mounted(path) => (path, Keyring::load_mounted(path)),
            Self::Wrapped(source) => anyhow::bail!(
                "the keys are in the store, wrapped by {}, and not in a file",
                source.kms.address()
            ),
        };
        // The error is formatted, because it includes its source already.
        read.map_err(|error| anyhow!("cannot use the keyring {}: {error}", path.display()))
    }

    /// Adds a key, which is durable when this returns. It is the current one in the keyring that is returned.
    ///
    /// # Errors
    /// When the keyring cannot be changed.
    pub(crate) async fn add_key(&self, sealed: &Sealed) -> anyhow::Result<Keyring> {
        let path = match self {
            Self::KeyDirectory(path) => path.clone(),
            Self::Mounted(path) => return Err(never_written(path)),
            Self::Wrapped(source) => return Ok(sealed.add_wrapped(&*source.kms).await?),
        };
        let rotate = tokio::task::spawn_blocking(move || {
            Keyring::rotate(&path).with_context(|| {
                format!(
                    "cannot rotate the keyring {}; if it is read-only, such as a Secret in Kubernetes, add a key with \
                     postern storage rotate-key --print",
                    path.display()
                )
            })
        });
        rotate.await?
    }

    /// Removes a key, which must not be the current one.
    ///
    /// # Errors
    /// When the keyring cannot be changed.
    pub(crate) async fn remove_key(&self, sealed: &Sealed, id: KeyId) -> anyhow::Result<Keyring> {
        let path = match self {
            Self::KeyDirectory(path) => path.clone(),
            Self::Mounted(path) => return Err(never_written(path)),
            Self::Wrapped(source) => return Ok(sealed.remove_wrapped(&*source.kms, id).await?),
        };
        let remove = tokio::task::spawn_blocking(move || {
            Keyring::drop_key(&path, id)
                .with_context(|| format!("cannot change the keyring {}", path.display()))
        });
        remove.await?
    }

    /// Checks that the next start can decrypt the keys of the store, as far as that is not known from a file.
    ///
    /// # Errors
    /// When the KMS does not work.
    pub(crate) async fn check(&self, sealed: &Sealed) -> anyhow::Result<()> {
        let Self::Wrapped(source) = self else { return Ok(()) };
        let checked = sealed.check_kms(&*source.kms).await;
        source.works.store(checked.is_ok(), Ordering::Relaxed);
        Ok(checked?)
    }

    /// Whether the next start can use the keyring: the file as it is now, or the KMS when it was called last.
    pub(crate) fn is_readable(&self, sealed: &Sealed) -> bool {
        match self {
            Self::KeyDirectory(_) | Self::Mounted(_) => {
                self.read_file().is_ok_and(|keyring| sealed.is_current_key_in(&keyring))
            }
            Self::Wrapped(source) => {
                let flags = [&source.are_readable, &source.works];
                flags.iter().all(|flag| flag.load(Ordering::Relaxed))
            }
        }
    }

    /// How the other servers on a store get a key that this one has added.
    pub(crate) fn way_to_others(&self) -> String {
        match self {
            Self::KeyDirectory(path) | Self::Mounted(path) => {
                format!("copy {} to them", path.display())
            }
            Self::Wrapped(source) => format!(
                "they read it from the store within seconds, so look at their logs for errors of {}",
                source.kms.address()
            ),
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyDirectory(path) => f.debug_tuple("KeyDirectory").field(path).finish(),
            Self::Mounted(path) => f.debug_tuple("Mounted").field(path).finish(),
            Self::Wrapped(source) => f.debug_tuple("Wrapped").field(&source.kms.address()).finish(),
        }
    }
}

fn never_written(path: &Path) -> anyhow::Error {
    anyhow!(
        "the keyring {} of --keyring is never written: print a keyring with one more key with postern storage \
         rotate-key --print, or remove the line of a key that is not needed, and replace the file",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: Option<&str>) -> Result<KeyringSetting, String> {
        let token_file = text.filter(|text| text.starts_with("transit:"));
        let token_file = token_file.map(|_| Path::new("/token"));
        KeyringSetting::parse(text, token_file, None).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_setting_names_a_source() {
        assert_eq!(parse(None).unwrap(), KeyringSetting::KeyDirectory);
        assert_eq!(parse(Some("file:/keys")).unwrap(), KeyringSetting::File("/keys".into()));
        let kms = parse(Some("kms-v2:unix:///run/kms.sock")).unwrap();
        assert_eq!(kms, KeyringSetting::KmsV2("/run/kms.sock".into()));
        let transit = parse(Some("transit:https://bao:8200/transit/keys/postern")).unwrap();
        assert!(matches!(transit, KeyringSetting::Transit(_)));
        for wrong in [
            "",
            "/run/keys",
            "file:",
            "files:/keys",
            "kms-v2:/run/kms.sock",
            "kms-v2:unix://x",
            "transit:bao",
        ] {
            assert!(parse(Some(wrong)).unwrap_err().contains("--keyring"), "{wrong}");
        }
    }

    #[test]
    fn the_files_of_transit_belong_to_it() {
        let token = Some(Path::new("/token"));
        let unused = KeyringSetting::parse(Some("file:/keys"), token, None).unwrap_err();
        assert!(unused.to_string().contains("--transit-token-file"), "{unused}");
        let url = "transit:https://bao:8200/transit/keys/postern";
        let missing = KeyringSetting::parse(Some(url), None, None).unwrap_err();
        assert!(missing.to_string().contains("--transit-token-file"), "{missing}");
    }
}
