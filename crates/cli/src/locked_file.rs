//! Replacing a file of the user without loss: under a lock, atomically, and readable by its owner
//! alone. The callers decide on the content of the file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::CliError;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// How often, and at which interval, a lock that another process holds is tried again.
const LOCK_ATTEMPTS_MAX: usize = 40;
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// A lock that kubectl respects, too: a file next to the locked one.
pub(crate) struct FileLock {
    target: PathBuf,
    lock: PathBuf,
}

impl FileLock {
    /// Locks the file at `path`, which need not exist. Of a symbolic link the target is locked and
    /// replaced, and the link stays.
    pub(crate) fn take(path: &Path) -> Result<Self, CliError> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let cannot = |what: &Path, error: &io::Error| {
            CliError::new(format!("cannot write {}: {error}", what.display()))
        };
        if let Some(directory) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(PRIVATE_DIR)
                .create(directory)
                .map_err(|error| cannot(directory, &error))?;
        }
        let lock = sibling(&target, ".lock");
        for _ in 0..LOCK_ATTEMPTS_MAX {
            match OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&lock) {
                Ok(_) => return Ok(Self { target, lock }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    std::thread::sleep(LOCK_INTERVAL);
                }
                Err(error) => return Err(cannot(&lock, &error)),
            }
        }
        let message = format!("{} is locked by {}", target.display(), lock.display());
        Err(CliError::new(message).hint(
            "another program is changing the kubeconfig; if there is none, remove the lock file",
        ))
    }

    /// The path of the locked file.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Replaces the file's content atomically: after a crash it is the old one or the new one.
    pub(crate) fn replace(&self, content: &[u8]) -> Result<(), CliError> {
        let new = sibling(&self.target, ".postern-new");
        let replaced = self.replace_by(&new, content);
        replaced.map_err(|error| {
            // The unfinished file holds a key. The old file is unchanged.
            let _ = fs::remove_file(&new);
            CliError::new(format!("cannot write {}: {error}", self.target.display()))
        })
    }

    fn replace_by(&self, new: &Path, content: &[u8]) -> io::Result<()> {
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(new, &self.target)?;
        let directory = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // When it cannot be removed, the next attempt to lock reports it.
        let _ = fs::remove_file(&self.lock);
    }
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::process::read_file;

    #[test]
    fn a_file_is_replaced_through_its_link_and_is_private() {
        let home = tempfile::tempdir().unwrap();
        let (real, link) = (home.path().join("real"), home.path().join("link"));
        File::create(&real).unwrap();
        symlink(&real, &link).unwrap();
        FileLock::take(&link).unwrap().replace(b"new").unwrap();
        assert_eq!(**read_file(&real, 10).unwrap(), *b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "no other file is left");
    }

    #[test]
    fn a_locked_file_cannot_be_locked_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/config");
        let lock = FileLock::take(&path).unwrap();
        let error = FileLock::take(&path).err().unwrap();
        assert!(error.message.contains("config.lock"), "{error:?}");
        drop(lock);
        assert!(FileLock::take(&path).is_ok());
    }
}
