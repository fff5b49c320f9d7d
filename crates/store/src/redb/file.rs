//! How the database is made and opened: in a file, or in whatever a test puts in a file's place.
//! What is in it, is not known here.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ::redb::backends::FileBackend;
use ::redb::{Builder, Database, DatabaseError, StorageBackend};
use rustix::fs::{FlockOperation, flock};

use super::read::fault;
use super::write::prepare;
use crate::{Error, Result};

/// How a database file begins, by the engine's description of its format.
const MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";
/// In the byte behind [`MAGIC`]: the file has not been closed in good order.
const IN_USE: u8 = 2;
/// Where those stand, in whole pages of every machine.
const HEADER_BYTES: usize = 64 * 1024;

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
///
/// A file that was closed in good order stays in the cache, since reading it anew takes long: the
/// engine says so in the file only after everything else has been synced, never after a failure,
/// and takes it back before it writes anything. That word itself is read from the disk.
fn settle(file: &File) -> io::Result<()> {
    file.sync_data()?;
    drop_from_cache(file, NonZeroU64::new(HEADER_BYTES as u64));
    if !was_closed_in_good_order(file) {
        drop_from_cache(file, None);
    }
    Ok(())
}

/// Drops the start of a file from the page cache, or all of it.
fn drop_from_cache(file: &File, bytes: Option<NonZeroU64>) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::fs::fadvise(file, 0, bytes, rustix::fs::Advice::DontNeed) {
        tracing::debug!(%error, "the page cache was not dropped");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, bytes);
}

/// What the engine's header says. Anything but a header that is known answers no.
fn was_closed_in_good_order(file: &File) -> bool {
    let mut header = [0; MAGIC.len() + 1];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => header.starts_with(&MAGIC) && header[MAGIC.len()] & IN_USE == 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_whether_it_was_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let closed = || was_closed_in_good_order(&File::open(&path).unwrap());
        let database = Builder::new().create(&path).unwrap();
        assert!(!closed(), "it is in use");
        drop(database);
        assert!(closed());
        File::create(&path).unwrap().set_len(512).unwrap();
        assert!(!closed(), "it is no database");
    }
}
