//! The flags for a store on etcd: how this process reaches it. The server and the operator's commands have the same.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use postern_server::{EtcdAccess, Password, RemoteStore};
use serde::Deserialize;

/// How a process proves to etcd who it is, and recognizes etcd.
#[derive(Args, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct EtcdFlags {
    /// The file with the certificate authority of etcd, in PEM. Without it, etcd must be on this machine
    #[arg(long, env = "POSTERN_ETCD_CA_FILE", value_name = "FILE")]
    etcd_ca_file: Option<PathBuf>,

    /// The file with this server's client certificate for etcd, in PEM
    #[arg(long, env = "POSTERN_ETCD_CERT_FILE", value_name = "FILE")]
    etcd_cert_file: Option<PathBuf>,

    /// The file with the private key of --etcd-cert-file, in PEM
    #[arg(long, env = "POSTERN_ETCD_KEY_FILE", value_name = "FILE")]
    etcd_key_file: Option<PathBuf>,

    /// The user of etcd with a role on the prefix
    #[arg(long, env = "POSTERN_ETCD_USER", value_name = "NAME")]
    etcd_user: Option<String>,

    /// The file with the password of --etcd-user
    #[arg(long, env = "POSTERN_ETCD_PASSWORD_FILE", value_name = "FILE")]
    etcd_password_file: Option<PathBuf>,

    /// Accept a version of etcd with known loss of data or events. For a trial only
    #[arg(
        long,
        env = "POSTERN_ALLOW_OLD_ETCD",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    allow_old_etcd: Option<bool>,
}

/// A store on etcd that an operator's command uses by itself.
#[derive(Args, Clone)]
pub(crate) struct StoreFlags {
    /// The store that several servers share, as etcd://HOST:PORT,HOST:PORT/PREFIX. The command then uses the store
    /// itself, and no server [default: the server or the database of the data directory]
    #[arg(long, env = "POSTERN_STORE", value_name = "URL")]
    store: Option<String>,

    #[command(flatten)]
    etcd: EtcdFlags,
}

impl StoreFlags {
    /// The store, if there is one.
    ///
    /// # Errors
    /// When a flag is invalid; the error names it.
    pub(crate) fn remote(&self) -> anyhow::Result<Option<RemoteStore>> {
        self.etcd.store(self.store.as_deref())
    }
}

impl EtcdFlags {
    /// The store at the URL of `--store`, if there is one.
    ///
    /// # Errors
    /// When a flag is invalid, and for flags of etcd without a store; the error names the flag.
    pub(crate) fn store(&self, url: Option<&str>) -> anyhow::Result<Option<RemoteStore>> {
        let Some(url) = url else {
            let files = [&self.etcd_ca_file, &self.etcd_cert_file, &self.etcd_password_file];
            let is_used = files.iter().any(|file| file.is_some()) || self.etcd_user.is_some();
            anyhow::ensure!(!is_used, "settings of etcd need --store etcd://HOST:PORT/PREFIX");
            return Ok(None);
        };
        Ok(Some(RemoteStore { url: url.parse().context("--store")?, access: self.access()? }))
    }

    /// How a store is reached.
    ///
    /// # Errors
    /// When flags do not go together, or the password cannot be read.
    pub(crate) fn access(&self) -> anyhow::Result<EtcdAccess> {
        let client_cert = match (&self.etcd_cert_file, &self.etcd_key_file) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => anyhow::bail!("pass both --etcd-cert-file and --etcd-key-file, or neither"),
        };
        let user = match (&self.etcd_user, &self.etcd_password_file) {
            (Some(name), Some(file)) => Some((name.clone(), read_password(file)?)),
            (None, None) => None,
            _ => anyhow::bail!("pass both --etcd-user and --etcd-password-file, or neither"),
        };
        let allow_old = self.allow_old_etcd.unwrap_or_default();
        Ok(EtcdAccess { ca_file: self.etcd_ca_file.clone(), client_cert, user, allow_old })
    }

    /// These flags, and those of the next source where one is missing.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            etcd_ca_file: self.etcd_ca_file.or(other.etcd_ca_file),
            etcd_cert_file: self.etcd_cert_file.or(other.etcd_cert_file),
            etcd_key_file: self.etcd_key_file.or(other.etcd_key_file),
            etcd_user: self.etcd_user.or(other.etcd_user),
            etcd_password_file: self.etcd_password_file.or(other.etcd_password_file),
            allow_old_etcd: self.allow_old_etcd.or(other.allow_old_etcd),
        }
    }
}

/// The password in a file, without the line break at its end.
fn read_password(path: &Path) -> anyhow::Result<Password> {
    #[expect(clippy::disallowed_methods, reason = "the binary reads its own settings")]
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {} of --etcd-password-file", path.display()))?;
    let password = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    anyhow::ensure!(!password.is_empty(), "{} of --etcd-password-file is empty", path.display());
    Ok(Password::new(password))
}
