//! Replacing a file of the user's so that nothing in it is ever lost: under a lock, whole or not
//! at all, readable by its owner alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// How often, and after how long each time, a lock that another holds is tried again.
const LOCK_ATTEMPTS_MAX: usize = 40;
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// The lock that kubectl and others of its kind respect, too: a file beside the file.
pub(crate) struct Lock {
    target: PathBuf,
    lock: PathBuf,
}

impl Lock {
    /// Locks the file that `path` names, which need not be there yet. Where it is a link, the
    /// file behind it is meant, and the link stays.
    pub(crate) fn take(path: &Path) -> Result<Self, Failure> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let cannot = |what: &Path, error: &io::Error| {
            Failure::new(format!("cannot write {}: {error}", what.display()))
        };
        if let Some(directory) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(PRIVATE_DIR)
                .create(directory)
                .map_err(|error| cannot(directory, &error))?;
        }
        let lock = beside(&target, ".lock");
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
        Err(Failure::new(message).hint(
            "another program is changing the kubeconfig; if there is none, remove the lock file",
        ))
    }

    /// The locked file.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Replaces the file's content: after a crash there is the old one or the new one, whole.
    pub(crate) fn replace(&self, content: &[u8]) -> Result<(), Failure> {
        let new = beside(&self.target, ".postern-new");
        let replaced = self.replace_by(&new, content);
        replaced.map_err(|error| {
            // What is left of the attempt holds a key; the old file is untouched.
            let _ = fs::remove_file(&new);
            Failure::new(format!("cannot write {}: {error}", self.target.display()))
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

impl Drop for Lock {
    fn drop(&mut self) {
        // It is ours; when it cannot be removed, the next one says so.
        let _ = fs::remove_file(&self.lock);
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::surroundings::read_file;

    #[test]
    fn a_file_is_replaced_behind_its_link_and_is_private() {
        let home = tempfile::tempdir().unwrap();
        let (real, link) = (home.path().join("real"), home.path().join("link"));
        File::create(&real).unwrap();
        symlink(&real, &link).unwrap();
        Lock::take(&link).unwrap().replace(b"new").unwrap();
        assert_eq!(**read_file(&real, 10).unwrap(), *b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "nothing is left lying");
    }

    #[test]
    fn a_lock_holds_others_off() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/config");
        let lock = Lock::take(&path).unwrap();
        let failure = Lock::take(&path).err().unwrap();
        assert!(failure.message.contains("config.lock"), "{failure:?}");
        drop(lock);
        assert!(Lock::take(&path).is_ok());
    }
}
