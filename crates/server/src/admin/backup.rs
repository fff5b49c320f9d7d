//! Backups: the command, the file that the caller gets, and the restore into a new database. The store defines the
//! content of a backup.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use postern_meta::time::Timestamp;
use postern_registry::clock::Source;
use postern_registry::storage_key;
use postern_store::Position;
use postern_store::backup::{self, RestoreOptions, Summary, WriteOptions, Written};
use postern_store::seal::{Keyring, Sealed};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::client::call_with;
use super::{
    AdminCommand, BackupContent, CommandOutput, CorruptValue, Progress, ServerFiles, storage,
};
use crate::data_dir::{DataDir, create_private};
use crate::database;
use crate::keyring::KeySource;

/// The suffix of a backup's name until the backup is complete.
const UNFINISHED: &str = ".unfinished";

/// The file to which a backup is written.
#[derive(Clone, Debug)]
pub struct BackupFile {
    /// The path of the file. It appears when the backup is complete and on the disk.
    pub path: PathBuf,
    /// Whether an existing file is replaced.
    pub overwrite: bool,
    /// Whether corrupt values are omitted. Otherwise a corrupt value is an error, and no backup is written.
    pub skip_corrupt: bool,
}

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
        at_rest_keys: storage::to_strings(summary.key_ids.iter().copied()),
        wrapped_keys: storage::to_strings(summary.wrapped_ids.iter().copied()),
        bytes: summary.bytes,
        checksum: hex::encode(summary.checksum),
    }
}

/// Makes a backup of the database. A running server sends it. Without a server, this process reads the database. The
/// file is read again and verified before it gets its name.
///
/// # Errors
/// When the file exists or cannot be written, and those of the command. No file is left.
pub async fn backup(
    files: &ServerFiles<'_>,
    to: &BackupFile,
    mut progress: impl FnMut(Progress) + Send,
) -> anyhow::Result<CommandOutput> {
    ensure_replaceable(to)?;
    let unfinished = Unfinished::create(&to.path)?;
    let command = AdminCommand::Backup { skip_corrupt: to.skip_corrupt };
    let mut out = tokio::fs::File::from_std(unfinished.file.try_clone()?);
    let output = call_with(files, command, &mut out, &mut progress).await?;
    out.flush().await.with_context(|| format!("cannot write {}", to.path.display()))?;
    drop(out);
    let to = to.clone();
    tokio::task::spawn_blocking(move || {
        let CommandOutput::Backup { content: sent, .. } = &output else {
            anyhow::bail!(
                "the server sent the reply of another command: upgrade both to the same version"
            );
        };
        unfinished.check(sent)?;
        unfinished.finish(&to)?;
        Ok(output)
    })
    .await?
}

fn ensure_replaceable(to: &BackupFile) -> anyhow::Result<()> {
    let path = to.path.display();
    match std::fs::symlink_metadata(&to.path) {
        Ok(found) => {
            ensure!(
                found.is_file(),
                "{path} exists and is not a regular file: pass another name with --to"
            );
            ensure!(
                to.overwrite,
                "{path} already exists: pass another name, or --overwrite to replace it"
            );
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}

/// A backup in progress: a locked file with a temporary name. It is removed on drop.
struct Unfinished {
    file: File,
    path: PathBuf,
}

impl Unfinished {
    fn create(target: &Path) -> anyhow::Result<Self> {
        let mut name = target.as_os_str().to_owned();
        name.push(UNFINISHED);
        let path = PathBuf::from(name);
        let busy = || format!("another backup is being written to {}", target.display());
        let file = match create_private(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A backup that was killed left the file, unless it is locked.
                let left =
                    open_left(&path).with_context(|| format!("cannot read {}", path.display()))?;
                lock(&left).with_context(busy)?;
                std::fs::remove_file(&path)?;
                create_private(&path)?
            }
            created => created?,
        };
        lock(&file).with_context(busy)?;
        // Before the lock, another process may have removed the file as a left-over.
        ensure!(file.metadata()?.nlink() > 0, busy());
        Ok(Self { file, path })
    }

    /// Reads the file, and compares it with the content that the server reported.
    fn check(&self, sent: &BackupContent) -> anyhow::Result<()> {
        self.file.sync_all()?;
        let mut file = &self.file;
        file.rewind()?;
        let written = backup::verify(&mut file)?;
        let matches = content(&written) == *sent;
        ensure!(
            matches,
            "the written file differs from the backup that was sent: repeat the backup"
        );
        Ok(())
    }

    /// Renames the file to its final name, durably.
    fn finish(self, to: &BackupFile) -> anyhow::Result<()> {
        let renamed = || -> io::Result<()> {
            if to.overwrite {
                std::fs::rename(&self.path, &to.path)?;
            } else {
                rename_to_new(&self.path, &to.path)?;
            }
            let parent = to.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        };
        renamed().with_context(|| format!("cannot write {}", to.path.display()))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A finished backup has its final name, so nothing is removed.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Opens the file that an earlier backup may have left. It may also be a pipe or a link of another user.
fn open_left(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn lock(file: &File) -> Result<(), Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        // If the file system has no locks, the caller must not write two backups to one file.
        _ => Ok(()),
    }
}

/// Renames a file, unless the new name exists.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system supports this in one step.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if std::fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        renamed => Ok(renamed?),
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

/// The error of a restore, with what is to blame.
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
