//! How the database is opened: from a file, or from whatever a test puts in a file's place.
//! What is in it, is not known here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::redb::backends::FileBackend;
use ::redb::{Builder, Database, DatabaseError, StorageBackend};

use super::read::fault;
use crate::Result;

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

/// A backend for a file, which is made if it does not exist.
pub(super) fn backend(path: &Path) -> io::Result<FileBackend> {
    let file = open(path).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display()))
    })?;
    settle(&file)?;
    FileBackend::new(file).map_err(|error| io::Error::other(error.to_string()))
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            // A file whose name is not on the disk is gone after a power failure, whatever was
            // synced into it.
            file.sync_all()?;
            File::open(directory(path))?.sync_all()?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        Err(error) => Err(error),
    }
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
