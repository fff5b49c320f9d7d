//! The flags for the at-rest keys, which the operator's commands have in common.

use std::path::PathBuf;

use clap::Args;
use postern_server::KeyringSetting;

/// Where a command finds the at-rest keys.
#[derive(Args)]
pub(crate) struct KeyringFlags {
    /// The directory of the keyring (seal.keys) [default: keys in the data directory]
    #[arg(long, env = "POSTERN_KEY_DIR", value_name = "DIR")]
    pub(crate) key_dir: Option<PathBuf>,

    /// Where the at-rest keys come from, as for postern serve. A running server uses its own setting
    #[arg(long, env = "POSTERN_KEYRING", value_name = "SOURCE")]
    keyring: Option<String>,

    /// The file with the token for `--keyring transit:…`
    #[arg(long, env = "POSTERN_TRANSIT_TOKEN_FILE", value_name = "FILE")]
    transit_token_file: Option<PathBuf>,

    /// The file with the certificate authorities of `--keyring transit:…`, in PEM [default: those of the system]
    #[arg(long, env = "POSTERN_TRANSIT_CA_FILE", value_name = "FILE")]
    transit_ca_file: Option<PathBuf>,
}

impl KeyringFlags {
    /// The setting of `--keyring` and its files.
    ///
    /// # Errors
    /// When a flag is invalid; the error names it.
    pub(crate) fn setting(&self) -> anyhow::Result<KeyringSetting> {
        KeyringSetting::parse(
            self.keyring.as_deref(),
            self.transit_token_file.as_deref(),
            self.transit_ca_file.as_deref(),
        )
    }
}
