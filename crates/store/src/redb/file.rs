//! How the database is made and opened: in a file, or in whatever a test puts in a file's place.
//! What is in it, is not known here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::redb::backends::FileBackend;
use ::redb::{Builder, Database, DatabaseError, StorageBackend};
use rustix::fs::{FlockOperation, flock};

use super::read::fault;
use super::write::prepare;
use crate::{Error, Result};

/// Opens the database, each time anew: after a fault the engine closes it and opens it again.
pub(super) type Opener = Box<dyn Fn() -> Result<Database> + Send>;

/// An opener that asks for a new backend each time.
pub(super) fn opener<B: StorageBackend>(
    make: impl Fn() -> io::Result<B> + Send + 'static,
    cache_bytes: usize,
) -> Opener {
    Box::new(move || {
        let backend = make().map_err(DatabaseError::from).map_err(fault)?;
        let mut builder = Builder::new();
        builder.set_cache_size(cache_bytes);
        builder.create_with_backend(backend).map_err(fault)
    })
}

/// A backend for a file that exists.
pub(super) fn backend(path: &Path) -> io::Result<FileBackend> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|error| named("open", path, &error))?;
    settle(&file).map_err(|error| named("sync", path, &error))?;
    FileBackend::new(file).map_err(io::Error::other)
}

/// Makes an empty database, readable for its owner only, unless there is a file already.
///
/// It is made under another name, and gets its own when it is complete: a power failure while
/// the engine lays out a new file would leave one that it does not recognise later. That is
/// also why a file that disappears under a running store is not made anew.
pub(super) fn ensure(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let failed = |error: &io::Error| Error::Unavailable(named("create", path, error).to_string());
    let directory = File::open(directory(path)).map_err(|error| failed(&error))?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Error::Unavailable(format!("another process is creating {}", path.display()))
    })?;
    if path.exists() {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    // What an interrupted attempt left goes; nobody else is at it, because of the lock.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&temporary).map_err(|error| failed(&error))?;
    let copy = file.try_clone().map_err(|error| failed(&error))?;
    let database = Builder::new().create_file(copy).map_err(fault)?;
    prepare(&database)?;
    drop(database);
    file.sync_all()
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| directory.sync_all())
        .map_err(|error| failed(&error))
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

/// Makes what is read be what is on the disk.
///
/// When an fsync fails, the kernel takes the pages for clean although they were not written, and
/// would go on serving them from its cache. Opening the database then must not see them: hence
/// whatever can still be written is written, and the rest is dropped from the cache. The
/// kernel is free to ignore the advice, so a failure of it is none of ours.
fn settle(file: &File) -> io::Result<()> {
    file.sync_data()?;
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed) {
        tracing::debug!(%error, "the page cache was not dropped");
    }
    Ok(())
}
