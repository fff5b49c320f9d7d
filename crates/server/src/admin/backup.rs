//! Backups: the command that makes one, the file that the caller keeps it in, and the way back to a
//! database. The store defines the content of a backup.

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
use super::{AdminCommand, BackupContent, CommandOutput, Damage, Progress, ServerFiles, storage};
use crate::data_dir::{DataDir, create_private};

/// The suffix of a backup's name until the backup is complete.
const UNFINISHED: &str = ".unfinished";

/// The file that a backup is written to.
#[derive(Clone, Debug)]
pub struct BackupFile {
    /// Its path. It appears when the backup is complete and on the disk.
    pub path: PathBuf,
    /// Whether a file that exists is replaced.
    pub overwrite: bool,
    /// Whether corrupt values are left out. Otherwise there is no backup when a value is corrupt.
    pub skip_corrupt: bool,
}

/// The time of a clock, as the store takes it.
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
    let damage = |corrupt: &postern_store::CorruptEntry| Damage {
        key: storage_key::display_name(&corrupt.key).to_owned(),
        reason: corrupt.reason.clone(),
    };
    let omitted = omitted.iter().map(damage).collect();
    Ok(CommandOutput::Backup { content: content(&summary), omitted })
}

fn progress(at: backup::Progress) -> Progress {
    Progress { seen: at.entries, remaining: at.total.saturating_sub(at.entries) }
}

fn content(summary: &Summary) -> BackupContent {
    let created = summary.created.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let created = i64::try_from(created.as_secs()).unwrap_or(i64::MAX);
    BackupContent {
        revision: summary.revision,
        created: Timestamp::from_unix_seconds(created).to_string(),
        values: summary.entries,
        omitted: summary.omitted,
        seal_keys: storage::to_strings(summary.key_ids.iter().copied()),
        bytes: summary.bytes,
        checksum: hex::encode(summary.checksum),
    }
}

/// Makes a backup of the database: the server that runs on it sends one, or without a server this
/// process reads the database. The file is read again before it gets its name.
///
/// # Errors
/// When the file exists or cannot be written; those of the command. There is no file then.
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
            anyhow::bail!("the server has replied to another command");
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
            ensure!(found.is_file(), "{path} exists and is not a file: nothing was written");
            ensure!(
                to.overwrite,
                "{path} exists already: give another name, or --overwrite to replace it"
            );
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot look at {path}")),
    }
}

/// A backup that is being written, under a name of its own and locked. It is removed on drop.
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
                // Left by a backup that was killed, unless it is locked.
                let left = open_left(&path)
                    .with_context(|| format!("cannot look at {}", path.display()))?;
                lock(&left).with_context(busy)?;
                std::fs::remove_file(&path)?;
                create_private(&path)?
            }
            created => created?,
        };
        lock(&file).with_context(busy)?;
        // Another process may have taken it for one that was left, before it was locked.
        ensure!(file.metadata()?.nlink() > 0, busy());
        Ok(Self { file, path })
    }

    /// Reads the file, and compares it with what was sent.
    fn check(&self, sent: &BackupContent) -> anyhow::Result<()> {
        self.file.sync_all()?;
        let mut file = &self.file;
        file.rewind()?;
        let written = backup::verify(&mut file)?;
        let matches = content(&written) == *sent;
        ensure!(matches, "what was written is not what was sent: make the backup again");
        Ok(())
    }

    /// Gives the file its name, durably.
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
        // It has its name when it is finished.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Opens the file that an earlier backup may have left. Another user may have put a pipe or a link
/// there.
fn open_left(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn lock(file: &File) -> Result<(), Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        // Where files cannot be locked, backups to one file are up to the caller.
        _ => Ok(()),
    }
}

/// Renames a file unless there is one of the new name.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can do both at once.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if std::fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        renamed => Ok(renamed?),
    }
}

/// Restores a backup to a new database in the data directory, which is made if it does not exist. Blocks. A
/// database that exists is never overwritten. `above` is a resourceVersion that clients are known to
/// have seen, or 0.
///
/// # Errors
/// When there is a database, when the backup is corrupt, and when its seal keys are missing. Nothing
/// is restored then.
pub fn restore(
    files: &ServerFiles<'_>,
    file: &Path,
    above: u64,
    mut report: impl FnMut(Progress),
) -> anyhow::Result<CommandOutput> {
    let ServerFiles { data_dir, key_dir, clock } = *files;
    let database = DataDir::database_in(data_dir);
    ensure!(
        std::fs::symlink_metadata(&database).is_err(),
        "there is a database already, {}: it is not overwritten; move it away, or restore to \
         another directory",
        database.display()
    );
    // Such a server goes on with a database that has been moved away, and what it acknowledges would be lost.
    let socket = data_dir.join(DataDir::ADMIN_SOCKET);
    ensure!(
        std::os::unix::net::UnixStream::connect(&socket).is_err(),
        "a server runs on {}: stop it before a restore",
        data_dir.display()
    );
    let mut opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let keys = DataDir::seal_keys_in(data_dir, key_dir);
    ensure!(
        keys.try_exists()?,
        "the seal keys {} are missing, and only they open a backup: put the seal.keys of the \
         database that was backed up there, or point --key-dir at them",
        keys.display()
    );
    let using = || format!("cannot use the seal keys {}", keys.display());
    let keyring = Keyring::load(&keys).with_context(using)?;
    let dir = DataDir::open(data_dir, key_dir)?;
    let now = system_time(clock);
    let above = Position::from_packed(above).revision();
    let options = RestoreOptions { now, above };
    let restoring = backup::restore_to(dir.database(), &mut opened, &keyring, options, |at| {
        report(progress(at));
    });
    let restored = restoring.map_err(|error| {
        let missing = matches!(error, backup::BackupError::MissingKeys(_));
        let error = anyhow::Error::new(error);
        if missing {
            error.context(format!(
                "{} are the keys of another database, or older than the backup: nothing was \
                 restored",
                keys.display()
            ))
        } else {
            error.context(format!("cannot restore {}", file.display()))
        }
    })?;
    Ok(CommandOutput::Restore {
        database: dir.database(),
        content: content(&restored.summary),
        revision: restored.revision,
        clock_is_behind: now < restored.summary.created,
    })
}
