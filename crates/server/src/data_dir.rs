//! The layout on disk. Only this module reads and writes the server's files, except for the files that stay open: the
//! database, its write-ahead log, and the audit log.
//!
//! ```text
//! DIR/db/postern.redb       the database, encrypted at rest; its write-ahead log is next to it
//! DIR/db/migration          while the data is being moved, and after it was moved: why no server starts here
//! DIR/db/*.moved*           the database, after its data was moved
//! DIR/keys/seal.keys        the keyring (or --key-dir, which is better on another disk)
//! DIR/keys/tls-*.pem        the self-signed certificate authority and its key
//! DIR/audit/audit.log       the audit log (or --audit-log-path); `audit` writes it
//! DIR/admin.kubeconfig      the administrator's kubeconfig
//! DIR/admin.sock            the socket for commands of the machine's administrator, while the server runs
//! ```
//!
//! Only the server's user can read the files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

/// The modes: only the owner can read.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// The write permission bits of group and others: with them, other users can replace files.
const WRITE_BY_OTHERS: u32 = 0o022;

/// The name of the audit log's directory.
const AUDIT: &str = "audit";

/// The name of the keyring file.
const KEYRING_FILE: &str = "seal.keys";

/// The paths of the server's files.
#[derive(Clone, Debug)]
pub struct DataDir {
    root: PathBuf,
    keys: PathBuf,
}

impl DataDir {
    /// The name of the administrator's socket.
    pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

    /// The paths in a data directory. Creates missing directories. `keys` is the directory of the keys, if it is
    /// separate.
    ///
    /// # Errors
    /// When a directory cannot be created, belongs to another user, or is open to other users. A
    /// user with write permission there could replace files. Other users may list the data
    /// directory itself, which the operator may have created, but no directory in it.
    pub fn open(root: &Path, keys: Option<&Path>) -> io::Result<Self> {
        let keys = keys_in(root, keys);
        for dir in [root, &root.join("db"), &keys] {
            fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir).map_err(
                |error| {
                    let why = match error.kind() {
                        io::ErrorKind::AlreadyExists => "a file has this path".to_owned(),
                        _ => error.to_string(),
                    };
                    let what = format!("cannot create the directory {}: {why}", dir.display());
                    io::Error::new(error.kind(), what)
                },
            )?;
            check_private_dir(dir, if dir == root { WRITE_BY_OTHERS } else { OTHERS })?;
        }
        // The audit log creates the directory, unless --audit-log-path is elsewhere.
        let audit = root.join(AUDIT);
        if audit.try_exists()? {
            check_private_dir(&audit, OTHERS)?;
        }
        Ok(Self { root: root.to_owned(), keys })
    }

    /// Keeps other `postern init` from this data directory until the file is dropped. Without that, the kubeconfig of one
    /// of them could replace that of the other.
    ///
    /// # Errors
    /// When another process has the lock.
    pub(crate) fn lock_for_init(&self) -> io::Result<File> {
        let directory = File::open(&self.root)?;
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| {
                let path = self.root.display();
                let what = format!("another postern init uses the data directory {path}: {error}");
                io::Error::new(error.kind(), what)
            })?;
        Ok(directory)
    }

    /// The path of the database.
    pub fn database(&self) -> PathBuf {
        Self::database_in(&self.root)
    }

    /// The path of the database in a data directory, which may not exist.
    pub(crate) fn database_in(root: &Path) -> PathBuf {
        root.join("db/postern.redb")
    }

    /// The path of the mark of a migration in a data directory, which may not exist.
    pub(crate) fn migration_mark_in(root: &Path) -> PathBuf {
        root.join("db/migration")
    }

    /// The default path of the audit log in a data directory, which may not exist.
    pub fn audit_log_in(root: &Path) -> PathBuf {
        root.join(AUDIT).join("audit.log")
    }

    /// The path of the data directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of the administrator's socket.
    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.root.join(Self::ADMIN_SOCKET)
    }

    /// The path of the keyring.
    pub fn keyring_file(&self) -> PathBuf {
        self.keys.join(KEYRING_FILE)
    }

    /// The path of the keyring of a data directory, which may not exist.
    pub(crate) fn keyring_file_in(root: &Path, keys: Option<&Path>) -> PathBuf {
        keys_in(root, keys).join(KEYRING_FILE)
    }

    /// The path of the certificate authority's certificate.
    pub fn ca_certificate(&self) -> PathBuf {
        self.keys.join("tls-ca.pem")
    }

    /// The path of the certificate authority's key.
    pub fn ca_key(&self) -> PathBuf {
        self.keys.join("tls-ca-key.pem")
    }

    /// The path of the administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        Self::admin_kubeconfig_in(&self.root)
    }

    /// The path of the administrator's kubeconfig in a data directory, which may not exist.
    pub(crate) fn admin_kubeconfig_in(root: &Path) -> PathBuf {
        root.join("admin.kubeconfig")
    }
}

/// The directory of the keys.
fn keys_in(root: &Path, keys: Option<&Path>) -> PathBuf {
    keys.map_or_else(|| root.join("keys"), Path::to_owned)
}

/// Checks that a directory belongs to this process' user, and has no `forbidden` permission bit.
fn check_private_dir(dir: &Path, forbidden: u32) -> io::Result<()> {
    let metadata = fs::metadata(dir)?;
    let (path, mode) = (dir.display(), metadata.permissions().mode() & 0o7777);
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let what = if owner != own {
        format!(
            "the directory {path} belongs to user {owner}, and this process runs as user {own}: run \
             it as the directory's owner, or change the owner"
        )
    } else if mode & forbidden != 0 {
        format!(
            "the directory {path} is open to other users (mode {mode:04o}): run chmod 700 on it, or \
             pass a directory in it that does not exist yet"
        )
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// The content of a file, if it exists.
///
/// # Errors
/// When it exists and cannot be read.
pub(crate) fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    #[expect(clippy::disallowed_methods, reason = "this module owns the server's files")]
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::InvalidData => {
                    "it is corrupt or another file, because it is not text".to_owned()
                }
                io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
                _ => error.to_string(),
            };
            Err(io::Error::new(error.kind(), format!("cannot read {}: {why}", path.display())))
        }
    }
}

/// The content of a file with a secret, if it exists.
///
/// # Errors
/// When it cannot be read, or when other users can read or write it.
pub(crate) fn read_private_if_there(path: &Path) -> io::Result<Option<String>> {
    let Some(text) = read_if_there(path)? else { return Ok(None) };
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS != 0 {
        let what = format!(
            "{} can be read or written by other users (mode {:04o}): run chmod 600 on it, and replace \
             the secret if they may have read it",
            path.display(),
            mode & 0o7777
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(Some(text))
}

/// Creates a file that only its owner can read, and opens it.
///
/// # Errors
/// When the path exists already, also as a symbolic link.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let created = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(PRIVATE_FILE)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path);
    created.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot create {}: {error}", path.display()))
    })
}

/// Writes a file that only its owner can read. After a crash, either the old or the new file is complete.
///
/// # Errors
/// When it cannot be written. The old file then does not change.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let written = (|| {
        let unfinished = path.with_extension("unfinished");
        // An earlier run may have left one.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = create_private(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    })();
    written.map_err(|error: io::Error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn directories_that_others_can_use_are_rejected() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("data");
        DataDir::open(&root, None).unwrap();
        fs::create_dir(root.join("audit")).unwrap();
        fs::set_permissions(root.join("audit"), Permissions::from_mode(PRIVATE_DIR)).unwrap();
        for dir in ["", "db", "keys", "audit"] {
            for mode in [0o720, 0o702, 0o770] {
                fs::set_permissions(root.join(dir), Permissions::from_mode(mode)).unwrap();
                let error = DataDir::open(&root, None).unwrap_err().to_string();
                let (path, mode) = (root.join(dir), format!("mode {mode:04o}"));
                let named = error.contains(path.to_str().unwrap().trim_end_matches('/'));
                assert!(named && error.contains(&mode), "{error}");
            }
            let readable = fs::set_permissions(root.join(dir), Permissions::from_mode(0o755));
            readable.unwrap();
            assert_eq!(DataDir::open(&root, None).is_ok(), dir.is_empty(), "{dir}");
            fs::set_permissions(root.join(dir), Permissions::from_mode(0o700)).unwrap();
        }
        DataDir::open(&root, None).unwrap();
    }

    #[test]
    fn one_init_at_a_time_has_the_data_directory() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::open(home.path(), None).unwrap();
        let first = dir.lock_for_init().unwrap();
        let refused = dir.lock_for_init().unwrap_err().to_string();
        assert!(refused.contains("another postern init"), "{refused}");
        drop(first);
        dir.lock_for_init().unwrap();
    }

    #[test]
    fn a_private_file_replaces_nothing_and_follows_no_link() {
        let home = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (home.path().join("file"), home.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let refused = create_private(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        // A replaced file may also be a link.
        std::os::unix::fs::symlink(&elsewhere, path.with_extension("unfinished")).unwrap();
        write_private(&path, "text").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file() && !elsewhere.exists());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE_FILE);
    }
}
