//! The file of a keyring, readable for its owner only. The text in it is defined in `keyring`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Gid, getegid, geteuid, getgroups};
use zeroize::Zeroizing;

use super::key_id::{KeyId, KeyringError};
use super::keyring::Keyring;

/// The most bytes in a keyring's file.
const FILE_BYTES: u64 = 128 * 1024;
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The permission bits of group and others, none of which a keyring or its directory may have.
const OTHERS: u32 = 0o077;
/// The permission bits with which a file of root is mounted for the group of this process.
const MOUNTED_MODE: u32 = 0o440;

impl Keyring {
    /// Reads a keyring from a file.
    ///
    /// # Errors
    /// [`KeyringError::Exposed`] when others have access to the file; [`KeyringError::Malformed`] when
    /// its text is not fully understood.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, KeyringError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(io_error("open", path))?;
        check_mode(&file, path, FILE_MODE)?;
        read(file, path)
    }

    /// Reads a keyring from a file that is mounted, such as a Secret in Kubernetes. It may also be a file of root that
    /// only a group of this process can read: a volume with `fsGroup` has such files.
    ///
    /// # Errors
    /// As for [`Keyring::load`].
    pub fn load_mounted(path: impl AsRef<Path>) -> Result<Self, KeyringError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(io_error("open", path))?;
        if !is_for_own_group(&file, path)? {
            check_mode(&file, path, FILE_MODE)?;
        }
        read(file, path)
    }

    /// Creates a keyring with one new key. Its directory is created if there is none; others must not
    /// have access to it. The file and its name are durable when this returns.
    ///
    /// # Errors
    /// [`KeyringError::Exists`] when the file exists already, with any content.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, KeyringError> {
        let path = path.as_ref();
        let _lock = lock_directory(path)?;
        let keyring = Self::generate()?;
        write_new(path, &keyring)?;
        sync_directory(path)?;
        Ok(keyring)
    }

    /// Adds a new key, which is the current one from now on, and keeps the old ones. The file is
    /// replaced atomically.
    pub fn rotate(path: impl AsRef<Path>) -> Result<Self, KeyringError> {
        replace(path.as_ref(), Self::rotated)
    }

    /// Removes a key from the file. The caller must have made sure that it is no longer in use: see
    /// [`Sealed::key_ids_in_use`](super::Sealed::key_ids_in_use).
    ///
    /// # Errors
    /// [`KeyringError::Current`] for the current key.
    pub fn drop_key(path: impl AsRef<Path>, id: KeyId) -> Result<Self, KeyringError> {
        replace(path.as_ref(), |keyring| keyring.without(id))
    }
}

fn read(file: File, path: &Path) -> Result<Keyring, KeyringError> {
    let mut text = Zeroizing::new(String::with_capacity(capacity(&file, path)?));
    file.take(FILE_BYTES).read_to_string(&mut text).map_err(io_error("read", path))?;
    Keyring::from_text(&text)
}

fn replace(
    path: &Path,
    change: impl FnOnce(&Keyring) -> Result<Keyring, KeyringError>,
) -> Result<Keyring, KeyringError> {
    let _lock = lock_directory(path)?;
    let keyring = change(&Keyring::load(path)?)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    // Left by an interrupted change. The lock makes sure that no other process is using it.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", &temporary)(error));
        }
        _ => {}
    }
    write_new(&temporary, &keyring)?;
    std::fs::rename(&temporary, path).map_err(io_error("replace", path))?;
    sync_directory(path)?;
    Ok(keyring)
}

fn write_new(path: &Path, keyring: &Keyring) -> Result<(), KeyringError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    let mut file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyringError::Exists(path.display().to_string()),
        _ => io_error("create", path)(error),
    })?;
    let written = file.write_all(keyring.to_text().as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // An incomplete keyring must not stay under the name of a complete one. If removing it fails
        // too, it is refused when it is read.
        drop(std::fs::remove_file(path));
        io_error("write", path)(error)
    })
}

/// Creates the directory if there is none, and locks it against other changes of the keyring.
fn lock_directory(path: &Path) -> Result<File, KeyringError> {
    let directory = directory(path);
    DirBuilder::new()
        .mode(DIRECTORY_MODE)
        .recursive(true)
        .create(directory)
        .map_err(io_error("make the directory", directory))?;
    let opened = File::open(directory).map_err(io_error("open", directory))?;
    check_mode(&opened, directory, DIRECTORY_MODE)?;
    flock(&opened, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| KeyringError::Busy(path.display().to_string()))?;
    Ok(opened)
}

fn sync_directory(path: &Path) -> Result<(), KeyringError> {
    let directory = directory(path);
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(io_error("sync", directory))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn check_mode(file: &File, path: &Path, wanted: u32) -> Result<(), KeyringError> {
    let metadata = file.metadata().map_err(io_error("look at", path))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyringError::Exposed { path: path.display().to_string(), mode, wanted });
    }
    Ok(())
}

/// Whether a file belongs to root, and only this process's group can read it. A process of root needs no group.
fn is_for_own_group(file: &File, path: &Path) -> Result<bool, KeyringError> {
    let metadata = file.metadata().map_err(io_error("look at", path))?;
    let other_groups =
        getgroups().map_err(|error| io_error("look at the groups for", path)(error.into()))?;
    let groups: Vec<u32> = other_groups.into_iter().chain([getegid()]).map(Gid::as_raw).collect();
    let file = FileAccess {
        mode: metadata.permissions().mode() & 0o7777,
        owner: metadata.uid(),
        group: metadata.gid(),
    };
    Ok(file.is_for_group_of(geteuid().as_raw(), &groups))
}

/// The mode, the owner and the group of a file.
#[derive(Clone, Copy)]
struct FileAccess {
    mode: u32,
    owner: u32,
    group: u32,
}

impl FileAccess {
    /// Whether it is a file of root that only a group can read, and a process of this user is in the group.
    fn is_for_group_of(self, user: u32, groups: &[u32]) -> bool {
        let is_mounted = self.owner == 0 && self.mode & OTHERS & !MOUNTED_MODE == 0;
        is_mounted && user != 0 && groups.contains(&self.group)
    }
}

/// The capacity for reading the file: its length, so that the buffer with the seeds never has
/// to grow.
fn capacity(file: &File, path: &Path) -> Result<usize, KeyringError> {
    let length = file.metadata().map_err(io_error("look at", path))?.len();
    if length > FILE_BYTES {
        let why = format!("{} has {length} bytes, the limit is {FILE_BYTES}", path.display());
        return Err(KeyringError::Malformed(why));
    }
    Ok(usize::try_from(length + 1).unwrap_or(0))
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyringError {
    let path = path.display().to_string();
    move |source| KeyringError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_new_keyring_is_for_its_owner_only_and_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/seal");
        let keyring = Keyring::create(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(matches!(Keyring::create(&path), Err(KeyringError::Exists(_))));
        assert_eq!(Keyring::load(&path).unwrap().ids(), keyring.ids());
    }

    #[test]
    fn rotation_and_dropping_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/seal");
        let first = Keyring::create(&path).unwrap().current();
        // An interrupted rotation leaves this behind.
        File::create(directory.path().join("keys/seal.new")).unwrap();
        let second = Keyring::rotate(&path).unwrap().current();
        assert_eq!(Keyring::load(&path).unwrap().ids(), [first, second]);
        assert!(matches!(Keyring::drop_key(&path, second), Err(KeyringError::Current(_))));
        Keyring::drop_key(&path, first).unwrap();
        assert_eq!(Keyring::load(&path).unwrap().ids(), [second]);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn exposed_files_and_directories_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/seal");
        Keyring::create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Keyring::load(&path), Err(KeyringError::Exposed { mode: 0o640, .. })));
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path.parent().unwrap(), open).unwrap();
        let other = directory.path().join("keys/other");
        assert!(matches!(Keyring::create(&other), Err(KeyringError::Exposed { .. })));
    }

    #[test]
    fn a_mounted_file_of_root_is_for_a_group_of_the_process() {
        let file = FileAccess { mode: 0o440, owner: 0, group: 2000 };
        assert!(file.is_for_group_of(1000, &[1000, 2000]));
        assert!(FileAccess { mode: 0o640, ..file }.is_for_group_of(1000, &[2000]));
        // Another group, a process of root, and an owner that can change the mode.
        assert!(!file.is_for_group_of(1000, &[1000]));
        assert!(!file.is_for_group_of(0, &[2000]));
        assert!(!FileAccess { owner: 1000, ..file }.is_for_group_of(1000, &[2000]));
        for mode in [0o444, 0o460, 0o450, 0o441, 0o442] {
            assert!(!FileAccess { mode, ..file }.is_for_group_of(1000, &[2000]), "{mode:o}");
        }
    }

    #[test]
    fn a_mounted_file_is_read_as_any_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/seal");
        let keyring = Keyring::create(&path).unwrap();
        assert_eq!(Keyring::load_mounted(&path).unwrap().ids(), keyring.ids());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        assert!(matches!(Keyring::load_mounted(&path), Err(KeyringError::Exposed { .. })));
    }

    #[test]
    fn one_at_a_time_changes_a_keyring() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/seal");
        Keyring::create(&path).unwrap();
        let _held = lock_directory(&path).unwrap();
        assert!(matches!(Keyring::rotate(&path), Err(KeyringError::Busy(_))));
    }

    #[test]
    fn a_missing_file_is_an_error_of_its_own() {
        let error = Keyring::load("/nonexistent/seal").unwrap_err();
        assert!(matches!(
            error,
            KeyringError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound
        ));
    }
}
