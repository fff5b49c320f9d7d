//! Backups of an encrypted store: one file with the state after one revision, and new stores from
//! it.
//!
//! `format` has the bytes of the file. `write` makes it from a store. `restore` verifies it and
//! makes a store from it, or fills a remote one (`remote`). The values in the file are encrypted as
//! they are in the database, so the same keyring decrypts them. The caller decides where the file
//! comes from and goes to.

mod format;
mod remote;
mod restore;
mod write;

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, SystemTime};

pub use self::remote::{BackupEntries, restore_remote};
pub use self::restore::{
    REVISION_MARGIN, RestoreOptions, Restored, restore, restore_to, verify, wrapped_keys,
};
pub use self::write::{WriteOptions, Written, write};

use crate::seal::KeyId;
use crate::{CorruptEntry, Error};

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The revision of the state in the backup.
    pub revision: u64,
    /// When it was made, by the clock of the machine that made it.
    pub created: SystemTime,
    /// The keys in it, with the marker of the encryption.
    pub entries: u64,
    /// The keys that were left out because their values were corrupt.
    pub omitted: u64,
    /// The at-rest keys that its values need.
    pub key_ids: BTreeSet<KeyId>,
    /// The at-rest keys that are in it, wrapped by a KMS.
    pub wrapped_ids: BTreeSet<KeyId>,
    /// The length of the file.
    pub bytes: u64,
    /// The SHA-256 checksum at its end, of everything before it.
    pub checksum: [u8; 32],
}

/// The progress of a backup or of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Keys that were copied.
    pub entries: u64,
    /// All keys; for a backup, those that there were shortly after it began.
    pub total: u64,
}

/// Why a backup could not be made or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The file could not be read or written.
    #[error("cannot {action} the backup: {source}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Values are corrupt. Nothing that could be restored was written.
    #[error("{count} values are corrupt, and a backup would not have them: {}", named(entries, *count))]
    CorruptValues {
        /// The first of them.
        entries: Vec<CorruptEntry>,
        /// How many there are.
        count: u64,
    },
    /// The history that the backup needs was compacted meanwhile.
    #[error(
        "revision {revision} was compacted while the backup was written: make the backup again, \
         and keep history for longer than it takes"
    )]
    Overtaken {
        /// The revision of the backup.
        revision: u64,
    },
    /// The file does not begin like a backup.
    #[error("the file is not a backup")]
    NotABackup,
    /// The file has a format that this program does not know.
    #[error("the backup has format {0}, and this program knows format {known}", known = format::VERSION)]
    UnknownFormat(u32),
    /// The file is corrupt.
    #[error("the backup is corrupt, and nothing was restored: {0}")]
    CorruptBackup(String),
    /// The keyring does not hold keys that the backup needs.
    #[error("the keyring does not have these at-rest keys, which the backup needs: {}", joined(.0))]
    MissingKeys(Vec<KeyId>),
    /// A restored store would have no room for further revisions.
    #[error(
        "there are too few revisions left after revision {0} for a restore; is the clock right?"
    )]
    NoRevisionsLeft(u64),
}

/// The first corrupt keys with the reason for each.
fn named(entries: &[CorruptEntry], count: u64) -> String {
    let each = entries.iter().map(|corrupt| format!("{} ({})", corrupt.key, corrupt.reason));
    let mut text = each.collect::<Vec<_>>().join(", ");
    if count > entries.len() as u64 {
        text.push_str(", …");
    }
    text
}

fn joined(ids: &[KeyId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn io_error(action: &'static str) -> impl FnOnce(io::Error) -> BackupError {
    move |source| BackupError::Io { action, source }
}

/// A time in milliseconds since 1970; 0 for one before that.
fn to_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The time of milliseconds since 1970; 1970 itself when the system cannot express it.
fn from_millis(millis: u64) -> SystemTime {
    let epoch = SystemTime::UNIX_EPOCH;
    epoch.checked_add(Duration::from_millis(millis)).unwrap_or(epoch)
}
