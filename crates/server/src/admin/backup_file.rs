//! A backup in a file: it is written next to its place, and gets its name when it is complete.

use crate::admin::backup::content;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use postern_store::backup::{self};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt as _;

use super::client::call_with;
use super::{AdminCommand, BackupContent, CommandOutput, Progress, ServerFiles};
use crate::data_dir::create_private;

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
