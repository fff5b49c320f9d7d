//! The commands of the machine's administrator: a new key when all are lost, new seal keys, a check
//! of everything that is stored, backups.
//!
//! A running server listens on `DIR/admin.sock` for them (`socket.rs`), and [`call`] connects to
//! it. When no server runs, `call` itself carries out those that only need the database. The
//! request is one line of JSON; the reply is any number of lines `{"progress": …}`, then
//! `{"answer": …}` or `{"error": …}`. Among the lines of a backup are lines `{"data": N}`, each
//! followed by N bytes of the backup.

mod backup;
mod check;
mod client;
pub(crate) mod reset_key;
mod signing_keys;
pub(crate) mod socket;
mod storage;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use arc_swap::ArcSwap;
use postern_meta::decode::decode_typed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use postern_registry::clock::Source;

pub use backup::{BackupFile, backup, restore};
pub use client::call;

/// The files of a server, which need not run.
#[derive(Clone, Copy)]
pub struct ServerFiles<'a> {
    /// The data directory.
    pub data_dir: &'a Path,
    /// Where the seal keys are, if not in the data directory. A running server knows that itself.
    pub key_dir: Option<&'a Path>,
    /// The clock, for what this process does itself.
    pub clock: &'a dyn Source,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdminCommand {
    /// Issues a new access key for the user `admin`, and writes it into the administrator's
    /// kubeconfig. It requires a running server.
    ResetKey,
    /// Makes a new key that signs endpoint tokens. It requires a running server.
    RotateSigningKey {
        /// Whether it signs at once, instead of being announced first.
        force: bool,
    },
    /// Drops a key that signed endpoint tokens: they count no more. It requires a running server.
    DropSigningKey {
        /// The key's id.
        kid: String,
    },
    /// Reads whether the server is ready. It requires a running server, and is not recorded in the audit log.
    Health,
    /// Makes a new seal key, for everything that is written from now on.
    RotateKey,
    /// Seals everything that is stored under an older seal key with the current one.
    Reseal,
    /// Opens and decodes everything that is stored, and reports what is corrupt.
    Check,
    /// Sends everything that is stored, sealed as it is, as one file: see [`backup`](fn@backup).
    #[serde(rename_all = "kebab-case")]
    Backup {
        /// Whether corrupt values are left out. Otherwise one of them is an error.
        skip_corrupt: bool,
    },
}

impl AdminCommand {
    /// Its name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ResetKey => "reset-key",
            Self::RotateSigningKey { .. } => "rotate-signing-key",
            Self::DropSigningKey { .. } => "drop-signing-key",
            Self::Health => "health",
            Self::RotateKey => "rotate-key",
            Self::Reseal => "reseal",
            Self::Check => "check",
            Self::Backup { .. } => "backup",
        }
    }

    /// Does only a running server carry it out?
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
    /// Stored values that have been read.
    pub seen: u64,
    /// Stored values that are still to be read, as far as is known.
    pub remaining: u64,
}

/// The output of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandOutput {
    /// Of [`AdminCommand::ResetKey`].
    ResetKey {
        /// Where the new key is: in this file, and nowhere else.
        kubeconfig: PathBuf,
        /// The name of the new OwnedAccessKey.
        key_name: String,
        /// The user had to be created, enabled, or put into `system:masters` again.
        user_mended: bool,
        /// The user's other keys, which still work: an administrator who has lost one should know.
        other_keys: Vec<String>,
    },
    /// Of [`AdminCommand::RotateSigningKey`].
    #[serde(rename_all = "kebab-case")]
    RotateSigningKey {
        /// The id of the key that comes next, or signs from now on. It is not secret.
        kid: String,
        /// From when on it signs.
        signs_from: String,
        /// Had it been announced before?
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
        /// The id of the new seal key, which is not secret.
        current: String,
        /// The ids of all seal keys, oldest first.
        all: Vec<String>,
    },
    /// Of [`AdminCommand::Reseal`].
    Reseal {
        /// Values that were read.
        seen: u64,
        /// Values that were sealed under another key before, and now are under the current one.
        rewritten: u64,
        /// Values that cannot be opened, and were left as they are.
        damaged: u64,
        /// The ids of the seal keys that something stored still needs, history included; `None`
        /// when that cannot be known because of corrupt values.
        needed: Option<Vec<String>>,
    },
    /// Of [`AdminCommand::Check`].
    Check {
        /// Values that were read.
        seen: u64,
        /// The corrupt values, at most [`MAX_REPORTED`] of them.
        damaged: Vec<Damage>,
        /// How many values are corrupt in all.
        damaged_total: u64,
    },
    /// Of [`AdminCommand::Backup`].
    Backup {
        /// The content of the backup.
        content: BackupContent,
        /// The first of the corrupt values that were left out.
        omitted: Vec<Damage>,
    },
    /// Of [`restore`].
    Restore {
        /// The path of the new database.
        database: PathBuf,
        /// The content of the backup.
        content: BackupContent,
        /// The revision at which the new database begins.
        revision: u64,
        /// The clock is behind the time at which the backup was made.
        clock_is_behind: bool,
    },
}

/// The content of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupContent {
    /// The revision whose state it is.
    pub revision: u64,
    /// When it was made, by the clock of the machine that made it.
    pub created: String,
    /// The values in it.
    pub values: u64,
    /// The values that were left out because they were corrupt.
    pub omitted: u64,
    /// The ids of the seal keys that it needs, which are not secret.
    pub seal_keys: Vec<String>,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256 checksum, in hex.
    pub checksum: String,
}

/// A stored value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Its storage key: for objects, group, plural, namespace and name.
    pub key: String,
    /// The defect. The text never contains any part of the value.
    pub reason: String,
}

/// Corrupt values that a check reports one by one.
pub const MAX_REPORTED: usize = 1000;

/// A line of the reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Progress(Progress),
    /// So many bytes of a backup follow the line.
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

/// The administrator's kubeconfig, and what has to be in it.
pub(crate) struct Access {
    /// Its path.
    pub(crate) kubeconfig: PathBuf,
    /// How clients on this machine reach the server.
    pub(crate) host: String,
    /// The certificates that they should trust, in PEM. A new certificate can change them.
    pub(crate) trust: ArcSwap<String>,
}
