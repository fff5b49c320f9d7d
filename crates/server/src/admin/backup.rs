//! Backups: the command, and the restore into a new database. The store defines the
//! content of a backup.

use crate::admin::ServerFiles;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use postern_meta::time::Timestamp;
use postern_registry::clock::Source;
use postern_registry::storage_key;
use postern_store::Position;
use postern_store::backup::{self, RestoreOptions, Summary, WriteOptions, Written};
use postern_store::seal::{KeyId, Keyring, Sealed};
use tokio::io::AsyncWrite;

use super::{BackupContent, CommandOutput, CorruptValue, Progress};
use crate::data_dir::DataDir;
use crate::database;
use crate::keyring::KeySource;

/// The time of a clock, in the store's type.
pub(super) fn system_time(source: &dyn Source) -> SystemTime {
    let microseconds = u64::try_from(source.now_micro().unix_microseconds()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_micros(microseconds)
}

/// Writes a backup of an open database.
pub(super) async fn write(
    sealed: &Sealed,
    options: WriteOptions,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let Written { summary, omitted } =
        backup::write(sealed, options, out, |at| report(progress(at))).await?;
    let value_of = |corrupt: &postern_store::CorruptEntry| CorruptValue {
        key: storage_key::display_name(&corrupt.key).to_owned(),
        reason: corrupt.reason.clone(),
    };
    let omitted = omitted.iter().map(value_of).collect();
    Ok(CommandOutput::Backup { content: content(&summary), omitted })
}

pub(super) fn progress(at: backup::Progress) -> Progress {
    Progress { seen: at.entries, remaining: at.total.saturating_sub(at.entries) }
}

pub(super) fn content(summary: &Summary) -> BackupContent {
    let created = summary.created.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let created = i64::try_from(created.as_secs()).unwrap_or(i64::MAX);
    BackupContent {
        revision: summary.revision,
        created: Timestamp::from_unix_seconds(created).to_string(),
        values: summary.entries,
        omitted: summary.omitted,
        at_rest_keys: to_strings(summary.key_ids.iter().copied()),
        wrapped_keys: to_strings(summary.wrapped_ids.iter().copied()),
        bytes: summary.bytes,
        checksum: hex::encode(summary.checksum),
    }
}

/// The keyring for a backup: that of a file, or the one in the backup, decrypted by a KMS.
pub(super) async fn keyring_for(keys: &KeySource, backup: &mut File) -> anyhow::Result<Keyring> {
    let wrapped = backup::wrapped_keys(backup)?;
    let Some(kms) = keys.kms() else {
        let advice = if wrapped.is_empty() {
            "copy the seal.keys of the database that was backed up to this path, or pass --key-dir or --keyring"
        } else {
            "the backup has its keys, wrapped by a KMS: pass that KMS in --keyring"
        };
        ensure!(
            Path::new(&keys.name()).try_exists()?,
            "the keyring {} is missing, and a restore needs it: {advice}",
            keys.name()
        );
        return keys.read_file();
    };
    ensure!(
        !wrapped.is_empty(),
        "the backup has no wrapped at-rest keys: pass the keyring file of the database that was backed up, and not {}",
        kms.address()
    );
    Ok(wrapped.unwrap(kms).await?)
}

/// Restores a backup to a new database in the data directory, which is created if necessary. Blocks. An existing
/// database is never overwritten. `above` is the highest resourceVersion that any client saw, or 0.
///
/// # Errors
/// When a database exists, when the backup is corrupt, and when its at-rest keys are missing. Nothing is restored
/// then.
pub fn restore(
    files: &ServerFiles<'_>,
    file: &Path,
    above: u64,
    mut report: impl FnMut(Progress),
) -> anyhow::Result<CommandOutput> {
    let ServerFiles { data_dir, key_dir, keyring, clock, .. } = *files;
    let database = DataDir::database_in(data_dir);
    database::check_not_moved(data_dir)?;
    ensure!(
        std::fs::symlink_metadata(&database).is_err(),
        "the database {} already exists: move it away, or pass another --data-dir",
        database.display()
    );
    // A running server keeps using a database that was moved away, and its acknowledged writes would be lost.
    let socket = data_dir.join(DataDir::ADMIN_SOCKET);
    ensure!(
        std::os::unix::net::UnixStream::connect(&socket).is_err(),
        "a server runs on {}: stop it before a restore",
        data_dir.display()
    );
    let mut opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let keys = KeySource::with_file(keyring, DataDir::keyring_file_in(data_dir, key_dir));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let keyring = runtime.block_on(keyring_for(&keys, &mut opened))?;
    let dir = DataDir::open(data_dir, key_dir)?;
    let now = system_time(clock);
    let above = Position::from_packed(above).revision();
    let options = RestoreOptions { now, above };
    let restoring = backup::restore_to(dir.database(), &mut opened, &keyring, options, |at| {
        report(progress(at));
    });
    let restored = restoring.map_err(|error| not_restored(error, file, &keys))?;
    Ok(CommandOutput::Restore {
        database: dir.database(),
        content: content(&restored.summary),
        revision: restored.revision,
        clock_is_behind: now < restored.summary.created,
    })
}

/// The error of a restore, with its cause.
pub(super) fn not_restored(
    error: backup::BackupError,
    file: &Path,
    keys: &KeySource,
) -> anyhow::Error {
    let missing = matches!(error, backup::BackupError::MissingKeys(_));
    let error = anyhow::Error::new(error);
    if missing {
        error.context(format!(
            "the keyring {} is of another database, or older than the backup: nothing was restored",
            keys.name()
        ))
    } else {
        error.context(format!("cannot restore {}", file.display()))
    }
}

/// The ids as strings.
pub(super) fn to_strings(ids: impl IntoIterator<Item = KeyId>) -> Vec<String> {
    ids.into_iter().map(|id| id.to_string()).collect()
}
