//! The flags for a store on etcd: how this process reaches it. The server and the operator's commands have the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{ArgAction, Args};
use postern_server::RemoteEngine;
use postern_store_etcd::{EtcdAccess, EtcdEngine, Password};

/// The credentials of a process for etcd, and the authority of etcd.
#[derive(Args, Clone)]
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
        long, env = "POSTERN_ALLOW_OLD_ETCD", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", action = ArgAction::Set
    )]
    allow_old_etcd: bool,
}

/// A store on etcd that an operator's command uses directly.
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
    pub(crate) fn remote(&self) -> anyhow::Result<Option<Arc<dyn RemoteEngine>>> {
        self.etcd.store(self.store.as_deref())
    }
}

impl EtcdFlags {
    /// The store at the URL of `--store`, if there is one.
    ///
    /// # Errors
    /// When a flag is invalid, and for flags of etcd without a store; the error names the flag.
    pub(crate) fn store(&self, url: Option<&str>) -> anyhow::Result<Option<Arc<dyn RemoteEngine>>> {
        let Some(url) = url else {
            let files = [&self.etcd_ca_file, &self.etcd_cert_file, &self.etcd_password_file];
            let is_used = files.iter().any(|file| file.is_some()) || self.etcd_user.is_some();
            anyhow::ensure!(!is_used, "settings of etcd need --store etcd://HOST:PORT/PREFIX");
            return Ok(None);
        };
        self.engine("--store", url).map(Some)
    }

    /// The engine for an address `etcd://…`, which is the value of a flag.
    ///
    /// # Errors
    /// When the address or a flag of etcd is invalid; the error names the flag.
    pub(crate) fn engine(&self, flag: &str, url: &str) -> anyhow::Result<Arc<dyn RemoteEngine>> {
        let url = url.parse().with_context(|| flag.to_owned())?;
        Ok(Arc::new(EtcdEngine { url, access: self.access()? }))
    }

    /// How a store is reached.
    ///
    /// # Errors
    /// When flags do not go together, or the password cannot be read.
    fn access(&self) -> anyhow::Result<EtcdAccess> {
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
        Ok(EtcdAccess {
            ca_file: self.etcd_ca_file.clone(),
            client_cert,
            user,
            allow_old: self.allow_old_etcd,
        })
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
