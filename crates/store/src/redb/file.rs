//! Creation and opening of the database: in a file, or in the backend that a test uses instead of a
//! file. The contents of the database are not known here.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ::redb::backends::FileBackend;
use ::redb::{Builder, Database, DatabaseError, StorageBackend};
use rustix::fs::{FlockOperation, OFlags, flock, statvfs};

use super::fault_mark::FaultMark;
use super::read::engine_error;
use super::wal;
use super::write::prepare;
use crate::{Error, Options, Result};

/// Opens the database and its log. Called at the start, and again after each fault.
pub(super) struct Opener {
    /// Opens the database.
    pub(super) database: Box<dyn Fn() -> Result<Database> + Send>,
    /// Opens the file of the log, which is made if there is none.
    pub(super) log: Box<dyn Fn() -> Result<wal::File> + Send>,
    /// Renames a log that the database does not need, and that may be another's.
    pub(super) put_log_aside: Box<dyn Fn() + Send>,
    /// The space on the disk.
    pub(super) space: Space,
    /// Where it is noted that the disk has failed.
    pub(super) fault: FaultMark,
    /// Bytes of a log that is made.
    pub(super) log_bytes: u64,
    /// Revisions in one segment of history.
    pub(super) segment_revisions: u64,
}

/// A number of bytes that is asked for; `None` when it is not known.
type Bytes = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// The space on the disk.
#[derive(Clone)]
pub(super) struct Space {
    /// How many bytes of the disk are free.
    pub(super) free: Bytes,
    /// How many bytes the database and its log have.
    pub(super) used: Bytes,
}

/// An opener that calls `make` and `make_log` for new backends each time.
pub(super) fn opener<B: StorageBackend, L: StorageBackend>(
    make: impl Fn() -> io::Result<B> + Send + 'static,
    make_log: impl Fn() -> io::Result<L> + Send + 'static,
    options: Options,
) -> Opener {
    let Options { cache_bytes, segment_revisions, log_bytes } = options;
    let database = database_opener(make, cache_bytes);
    let log = Box::new(move || {
        let backend = make_log().map_err(|error| wal::unavailable(&error))?;
        Ok(Box::new(backend) as wal::File)
    });
    let (space, fault) =
        (Space { free: Arc::new(|| None), used: Arc::new(|| None) }, FaultMark::default());
    let put_log_aside = Box::new(|| ());
    Opener { database, log, put_log_aside, space, fault, log_bytes, segment_revisions }
}

/// The opener for the database at a path.
pub(super) fn opener_of(path: &Path, options: Options) -> Opener {
    let (database, log, disk) = (path.to_owned(), log_path(path), directory(path));
    let fault = FaultMark::of(path);
    let [of_database, of_log] = [fault.clone(), fault.clone()];
    let make = move || backend(&database, &of_database);
    let opener = opener(make, move || log_backend(&log, &of_log), options);
    let free = Arc::new(move || {
        let disk = statvfs(&disk).ok()?;
        disk.f_bavail.checked_mul(disk.f_frsize)
    });
    let files = [path.to_owned(), log_path(path)];
    let used = Arc::new(move || -> Option<u64> {
        files.iter().map(|file| Some(std::fs::metadata(file).ok()?.len())).sum()
    });
    let space = Space { free, used };
    let log = log_path(path);
    let put_log_aside = Box::new(move || put_aside(&log));
    Opener { put_log_aside, space, fault, ..opener }
}

/// Renames a log, if there is one.
fn put_aside(log: &Path) {
    let has_bytes = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
    if !has_bytes {
        return;
    }
    let mut name = log.as_os_str().to_owned();
    name.push(".old");
    let aside = PathBuf::from(name);
    match std::fs::rename(log, &aside) {
        Ok(()) => tracing::warn!(
            log = %aside.display(),
            "the write-ahead log is corrupt or belongs to another database; the database was closed and \
             does not need it, so it was renamed"
        ),
        Err(error) => {
            tracing::warn!(log = %log.display(), %error, "cannot rename the write-ahead log");
        }
    }
}

/// The path of the log of a database. It is made after the database.
pub fn log_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".log");
    PathBuf::from(name)
}

fn database_opener<B: StorageBackend>(
    make: impl Fn() -> io::Result<B> + Send + 'static,
    cache_bytes: usize,
) -> Box<dyn Fn() -> Result<Database> + Send> {
    Box::new(move || {
        let backend = make().map_err(DatabaseError::from).map_err(engine_error)?;
        let begin = Instant::now();
        let repairs = Rc::new(Cell::new(false));
        let has_begun = Rc::clone(&repairs);
        let database = open_repairing(backend, cache_bytes, move |percent| {
            if has_begun.replace(true) {
                tracing::warn!("the database is being repaired: {percent:.0} % are done");
            } else {
                tracing::warn!(
                    "the database was not closed cleanly, and which of its pages are free is not \
                     known; it is being repaired, which takes about as long as to read it"
                );
            }
        })?;
        if repairs.get() {
            let seconds = begin.elapsed().as_secs_f64();
            tracing::warn!("the database was repaired within {seconds:.1} s");
        }
        Ok(database)
    })
}

/// Opens a database, or makes one in a backend that is empty. Calls `repairing` with the percentage
/// that is done, once or more, when the whole file has to be read to find out which pages are free. Our
/// commits save that, so it is only so when the file was not closed cleanly by another program.
fn open_repairing(
    backend: impl StorageBackend,
    cache_bytes: usize,
    repairing: impl Fn(f64) + 'static,
) -> Result<Database> {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    builder.set_repair_callback(move |session| repairing(100.0 * session.progress()));
    builder.create_with_backend(backend).map_err(engine_error)
}

/// A backend for a file that exists.
fn backend(path: &Path, fault: &FaultMark) -> io::Result<FileBackend> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|error| named("open", path, &error))?;
    sync_and_read_ahead(&file, fault).map_err(|error| named("sync", path, &error))?;
    FileBackend::new(file).map_err(io::Error::other)
}

/// A backend for the log at a path. It is made, readable for its owner only and durably, if there is
/// none.
fn log_backend(path: &Path, fault: &FaultMark) -> io::Result<FileBackend> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            options.create_new(true).open(path)
        }
        opened => opened,
    };
    let file = file.map_err(|error| named("open", path, &error))?;
    File::open(directory(path)).and_then(|directory| directory.sync_all())?;
    sync_and_read_ahead(&file, fault).map_err(|error| named("sync", path, &error))?;
    FileBackend::new(file).map_err(io::Error::other)
}

/// Creates an empty database, readable for its owner only, unless there is a file already. A file that
/// disappears while the store is open is not created again.
pub(super) fn ensure(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let directory = lock_directory(path)?;
    if path.exists() {
        return Ok(());
    }
    NewFile::create(path, directory)?.finish()
}

fn lock_directory(path: &Path) -> Result<File> {
    let directory =
        File::open(directory(path)).map_err(|error| unavailable("create", path, &error))?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Error::Unavailable(format!("another process is creating {}", path.display()))
    })?;
    Ok(directory)
}

/// A database that is being created.
///
/// It is created under another name, and renamed when it is complete. Otherwise a power failure while redb
/// writes a new file would leave a file that redb does not recognise later. A restore that is
/// interrupted would leave a part of the data. Dropping it removes it.
pub(super) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    /// Open until the file is finished.
    database: Option<Database>,
    /// Locked, so that no other process is creating the same database.
    directory: File,
}

impl NewFile {
    /// Creates the database of a path.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is a file already, or it cannot be created.
    pub(super) fn begin(path: &Path) -> Result<Self> {
        let directory = lock_directory(path)?;
        if path.exists() {
            return Err(Error::Unavailable(format!(
                "{} exists already, and is not overwritten",
                path.display()
            )));
        }
        Self::create(path, directory)
    }

    fn create(path: &Path, directory: File) -> Result<Self> {
        let failed = |error: &io::Error| unavailable("create", path, error);
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let temporary = PathBuf::from(name);
        // Left by an interrupted attempt. The lock makes sure that no other process is using it.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&temporary).map_err(|error| failed(&error))?;
        let copy = file.try_clone().map_err(|error| failed(&error))?;
        let mut new = Self { path: path.to_owned(), temporary, file, database: None, directory };
        let backend = FileBackend::new(copy).map_err(engine_error)?;
        let database = Builder::new().create_with_backend(backend).map_err(engine_error)?;
        prepare(&database)?;
        new.database = Some(database);
        Ok(new)
    }

    /// The path of the file as long as it is not finished.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Runs a function on the database.
    ///
    /// # Errors
    /// Those of the function; [`Error::Unavailable`] after [`NewFile::close`].
    pub(super) fn with<T>(&self, run: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let closed = || Error::Unavailable("the new database is closed already".to_owned());
        run(self.database.as_ref().ok_or_else(closed)?)
    }

    /// Closes the database. The file stays as it is.
    pub(super) fn close(&mut self) {
        self.database = None;
    }

    /// Gives the file its name. It is durable then.
    pub(super) fn finish(mut self) -> Result<()> {
        self.close();
        self.file
            .sync_all()
            .and_then(|()| std::fs::rename(&self.temporary, &self.path))
            .and_then(|()| self.directory.sync_all())
            .map_err(|error| unavailable("create", &self.path, &error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        self.close();
        // Fails when it has its name, and then there is nothing to remove.
        drop(std::fs::remove_file(&self.temporary));
    }
}

fn unavailable(action: &str, path: &Path, error: &io::Error) -> Error {
    Error::Unavailable(named(action, path, error).to_string())
}

fn named(action: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {action} {}: {error}", path.display()))
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Syncs the file, and reads it ahead. After a fault of the disk, drops the file from the kernel's
/// page cache, so that the next reads return the data on the disk. The kernel is free to ignore
/// that advice, so a failure of that call is not an error here.
fn sync_and_read_ahead(file: &File, fault: &FaultMark) -> io::Result<()> {
    let synced = file.sync_data();
    if synced.is_err() {
        fault.set();
    }
    if fault.is_set() {
        drop_from_cache(file);
    }
    read_ahead(file);
    synced
}

/// Drops a file from the page cache.
fn drop_from_cache(file: &File) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed) {
        tracing::debug!(%error, "the page cache was not dropped");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Asks for a whole file from the disk. A start reads all of it, page by page in no order of the disk, which
/// takes many times as long. Pages that are in the cache already cost nothing.
fn read_ahead(file: &File) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::WillNeed) {
        tracing::debug!(%error, "the file is not read ahead");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::redb::layout;
    use crate::redb::write::{self, Task};

    /// Opens the database at a path as a start does. Returns it, and how often a repair was reported.
    fn open(path: &Path) -> (Database, u64) {
        let reports = Rc::new(Cell::new(0));
        let reported = Rc::clone(&reports);
        let count = move |_| reported.set(reported.get() + 1);
        let backend = backend(path, &FaultMark::default()).unwrap();
        let database = open_repairing(backend, 1 << 20, count).unwrap();
        (database, reports.get())
    }

    #[test]
    fn only_a_file_whose_last_commit_is_anothers_is_repaired_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["db", "copy"].map(|name| directory.path().join(name));
        ensure(&path).unwrap();
        let (database, repairs) = open(&path);
        assert_eq!(repairs, 0, "it is new");
        let task = Task::Age { now: Duration::from_secs(1), keep: Duration::from_secs(100) };
        write::perform(&database, Options::DEFAULT_SEGMENT_REVISIONS, &task).unwrap();
        // The files of a killed process.
        std::fs::copy(&path, &copy).unwrap();
        let (killed, repairs) = open(&copy);
        assert_eq!(repairs, 0, "it was not closed, but its free pages are known");
        drop(killed);
        let transaction = database.begin_write().unwrap();
        drop(transaction.open_table(layout::NOTES).unwrap());
        transaction.open_table(layout::META).unwrap().insert("other", 1).unwrap();
        transaction.commit().unwrap();
        std::fs::copy(&path, &copy).unwrap();
        drop(database);
        assert_eq!(open(&path).1, 0, "it was closed");
        let (database, repairs) = open(&copy);
        assert!(repairs > 0, "it was not closed, and its free pages are not known");
        drop(database);
        assert_eq!(open(&copy).1, 0, "it was repaired, and closed");
    }
}
