//! The choice of an engine by the path of the database, so that callers do not name one.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::contract::Store;
use crate::redb::Redb;
use crate::types::{Error, Options, Result};

/// Opens the database at a path with the engine for it, which today is always
/// [`Redb`](crate::redb::Redb) on a file. Creates the database if there is none.
///
/// The engine verifies all that is stored before it returns, on a thread for blocking work. Only one
/// process at a time can have a database file open.
///
/// # Errors
/// [`Error::Unavailable`] when the database cannot be opened, or another process has it open;
/// [`Error::Corrupt`] when it is corrupt.
pub async fn open(path: impl Into<PathBuf>, options: Options) -> Result<Arc<dyn Store>> {
    let path = path.into();
    let opening = spawn_blocking(move || Redb::open(path, options));
    let store = opening.await.map_err(|error| Error::Unavailable(error.to_string()))??;
    Ok(Arc::new(store))
}
