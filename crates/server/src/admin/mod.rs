//! The commands of the machine's administrator: a new administrator's key, at-rest key rotation, rewrapping, a check
//! of all stored values, backups.
//!
//! A running server listens for them on `DIR/admin.sock` (`socket.rs`), and [`call`] connects to this socket. If no
//! server runs, `call` itself runs the commands that only need the database. Some commands also read a shared store
//! directly. The request is one line of JSON. The
//! reply is any number of lines `{"progress": …}`, then `{"answer": …}` or `{"error": …}`. The reply to a backup
//! also has lines `{"data": N}`, each followed by N bytes of the backup.

mod backup;
mod backup_file;
mod check;
mod client;
mod migrate;
mod remote;
pub(crate) mod reset_key;
mod signing_keys;
pub(crate) mod socket;
mod storage;
#[cfg(test)]
pub(crate) mod tests;

use std::path::{Path, PathBuf};

use arc_swap::ArcSwap;
use postern_meta::decode::decode_typed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use postern_registry::clock::Source;
use postern_store::RemoteEngine;

use crate::keyring::KeyringSetting;

pub use backup::restore;
pub use backup_file::{BackupFile, backup};
pub use client::call;
pub use migrate::{Location, Migrated, Migration, migrate};
pub use remote::{NewEpoch, new_epoch, restore_remote};
pub use storage::rotated_keyring;

/// The files of a server, which may be stopped.
#[derive(Clone, Copy)]
pub struct ServerFiles<'a> {
    /// The data directory.
    pub data_dir: &'a Path,
    /// The directory of the keyring, if it is not in the data directory. A running server uses its own setting.
    pub key_dir: Option<&'a Path>,
    /// Where the at-rest keys come from. A running server uses its own setting.
    pub keyring: &'a KeyringSetting,
    /// The clock, for commands that this process runs itself.
    pub clock: &'a dyn Source,
    /// The store that several servers share, if this process reads it itself.
    pub store: Option<&'a dyn RemoteEngine>,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdminCommand {
    /// Creates an access key for the user `admin`, and writes it to the administrator's kubeconfig. It requires
    /// a running server.
    ResetKey,
    /// Creates a key that signs endpoint tokens. It requires a running server.
    RotateSigningKey {
        /// Whether the key signs at once. Otherwise it is published first.
        force: bool,
    },
    /// Removes a key that signed endpoint tokens, which makes its tokens invalid. It requires a running server.
    DropSigningKey {
        /// The key's id.
        kid: String,
    },
    /// Reads whether the server is ready. It requires a running server, and is not recorded in the audit log.
    Health,
    /// Creates an at-rest key for all later writes.
    RotateKey,
    /// Encrypts all values of older at-rest keys with the current one.
    #[serde(alias = "reseal")]
    Rewrap,
    /// Removes an at-rest key from the keyring that no value needs.
    DropKey {
        /// The key's id.
        id: String,
    },
    /// Decrypts and decodes all stored values, and reports the corrupt ones.
    Check,
    /// Sends all stored values, still encrypted, as one file. See [`backup`](fn@backup).
    #[serde(rename_all = "kebab-case")]
    Backup {
        /// Whether corrupt values are omitted. Otherwise a corrupt value is an error.
        skip_corrupt: bool,
    },
}

impl AdminCommand {
    /// The command's name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ResetKey => "reset-key",
            Self::RotateSigningKey { .. } => "rotate-signing-key",
            Self::DropSigningKey { .. } => "drop-signing-key",
            Self::Health => "health",
            Self::RotateKey => "rotate-key",
            Self::Rewrap => "rewrap",
            Self::DropKey { .. } => "drop-key",
            Self::Check => "check",
            Self::Backup { .. } => "backup",
        }
    }

    /// Whether the command requires a running server.
    fn needs_server(&self) -> bool {
        matches!(
            self,
            Self::ResetKey
                | Self::RotateSigningKey { .. }
                | Self::DropSigningKey { .. }
                | Self::Health
        )
    }
}

/// The progress of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The stored values that have been read.
    pub seen: u64,
    /// The estimated number of stored values that remain to be read.
    pub remaining: u64,
}

/// The output of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandOutput {
    /// Of [`AdminCommand::ResetKey`].
    ResetKey {
        /// The only file that contains the new key.
        kubeconfig: PathBuf,
        /// The name of the new OwnedAccessKey.
        key_name: String,
        /// Whether the user had to be created, enabled, or added to `system:masters` again.
        #[serde(alias = "user_mended")]
        user_repaired: bool,
        /// The user's other keys, which stay valid. If one of them was lost, the administrator must
        /// disable it.
        other_keys: Vec<String>,
    },
    /// Of [`AdminCommand::RotateSigningKey`].
    #[serde(rename_all = "kebab-case")]
    RotateSigningKey {
        /// The id of the key that signs next, or from now on. It is not secret.
        kid: String,
        /// The time from which the key signs.
        signs_from: String,
        /// Whether the key had been published before.
        was_announced: bool,
    },
    /// Of [`AdminCommand::DropSigningKey`].
    DropSigningKey {
        /// The id of the key.
        kid: String,
    },
    /// Of [`AdminCommand::Health`].
    Health {
        /// The names of the checks of `/readyz` that fail.
        failed: Vec<String>,
    },
    /// Of [`AdminCommand::RotateKey`].
    RotateKey {
        /// The id of the new at-rest key, which is not secret.
        current: String,
        /// The ids of all at-rest keys, oldest first.
        all: Vec<String>,
    },
    /// Of [`AdminCommand::RotateKey`] on a store that several servers share.
    PrepareKey {
        /// The id of the new at-rest key, which is not secret. It becomes active when all servers have it.
        prepared: String,
        /// The addresses of the servers that do not have it.
        without: Vec<String>,
        /// Whether they read it from the store by themselves.
        #[serde(default)]
        in_store: bool,
    },
    /// Of [`AdminCommand::DropKey`].
    DropKey {
        /// The ids of the at-rest keys that are left, oldest first.
        left: Vec<String>,
        /// Whether the keys are in the store, and so in its backups.
        #[serde(default)]
        in_store: bool,
    },
    /// Of [`AdminCommand::Rewrap`].
    #[serde(alias = "reseal")]
    Rewrap {
        /// Values that were read.
        seen: u64,
        /// Values that had an older at-rest key, and now have the current one.
        rewritten: u64,
        /// Values that cannot be decrypted, and were not changed.
        #[serde(alias = "damaged")]
        corrupt: u64,
        /// The ids of the at-rest keys that stored values still need, including history; `None` if corrupt values
        /// make it unknown.
        needed: Option<Vec<String>>,
    },
    /// Of [`AdminCommand::Check`].
    Check {
        /// Values that were read.
        seen: u64,
        /// The corrupt values, at most [`MAX_REPORTED`] of them.
        #[serde(alias = "damaged")]
        corrupt: Vec<CorruptValue>,
        /// The number of all corrupt values.
        #[serde(alias = "damaged_total")]
        corrupt_total: u64,
    },
    /// Of [`AdminCommand::Backup`].
    Backup {
        /// The content of the backup.
        content: BackupContent,
        /// The first of the corrupt values that were omitted.
        omitted: Vec<CorruptValue>,
    },
    /// Of [`restore`].
    Restore {
        /// The path of the new database, or the URL of the store.
        database: PathBuf,
        /// The content of the backup.
        content: BackupContent,
        /// The first revision of the new database.
        revision: u64,
        /// Whether the clock is behind the time of the backup.
        clock_is_behind: bool,
    },
}

/// The content of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupContent {
    /// The store revision of the backup.
    pub revision: u64,
    /// When the backup was made, by the clock of the machine that made it.
    pub created: String,
    /// The number of values in the backup.
    pub values: u64,
    /// The number of corrupt values that were omitted.
    pub omitted: u64,
    /// The ids of the at-rest keys that a restore needs, which are not secret.
    #[serde(alias = "seal_keys")]
    pub at_rest_keys: Vec<String>,
    /// The ids of the at-rest keys that are in the backup, wrapped by a KMS.
    #[serde(default)]
    pub wrapped_keys: Vec<String>,
    /// The length of the backup in bytes.
    pub bytes: u64,
    /// The SHA-256 checksum of the backup, in hex.
    pub checksum: String,
}

/// A stored value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorruptValue {
    /// The storage key of the value. For objects: group, plural, namespace and name.
    pub key: String,
    /// The defect. The text never contains any part of the value.
    pub reason: String,
}

/// The most corrupt values that a check reports one by one.
pub const MAX_REPORTED: usize = 1000;

/// A line of the reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Progress(Progress),
    /// This many bytes of a backup follow the line.
    Data(usize),
    #[serde(rename = "answer")]
    Output(CommandOutput),
    Error(String),
}

/// A line of the request.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    command: AdminCommand,
}

/// A decoded line.
fn read_line<T: DeserializeOwned>(line: &[u8]) -> anyhow::Result<T> {
    decode_typed(line).map_err(|error| anyhow::anyhow!("{error}"))
}

/// An encoded line.
fn to_line<T: Serialize>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// The administrator's kubeconfig, and the content for it.
pub(crate) struct Access {
    /// The path of the file.
    pub(crate) kubeconfig: PathBuf,
    /// The address at which clients on this machine reach the server.
    pub(crate) host: String,
    /// The certificates that these clients trust, in PEM. A new server certificate can change them.
    pub(crate) trust: ArcSwap<String>,
}
