//! The engine of a database file, so that callers do not name one; and the wait for another process that
//! has the file open. The program chooses the engine of a store on other machines: see [`crate::RemoteEngine`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::contract::Store;
use crate::redb::{self, Redb, RedbRestore};
#[cfg(doc)]
use crate::types::Error;
use crate::types::{Options, Result};

/// How long [`open`] waits for another process that has the database open.
pub const OPEN_WAIT: Duration = Duration::from_secs(5);
/// The time between two attempts to open a database that another process has open.
const OPEN_RETRY: Duration = Duration::from_millis(100);

/// Opens the database at a path with the engine for it, which today is always
/// [`Redb`](crate::redb::Redb) on a file. Creates the database if there is none.
///
/// The engine verifies all that is stored before it returns, on a thread for blocking work. Only one
/// process at a time can have a database file open. When another one has, this waits for up to
/// [`OPEN_WAIT`], and logs once that it does.
///
/// # Errors
/// [`Error::Unavailable`] when the database cannot be opened, or another process still has it open
/// after the wait; [`Error::Corrupt`] when it is corrupt.
pub async fn open(path: impl Into<PathBuf>, options: Options) -> Result<Arc<dyn Store>> {
    let waiting = |path: &Path| {
        tracing::warn!(
            path = %path.display(),
            "another process has the database open; waiting up to {} s until it closes it",
            OPEN_WAIT.as_secs()
        );
    };
    open_within(path, options, OPEN_WAIT, waiting).await
}

/// Opens the database as [`open`] does, but waits for up to `wait`, and calls `waiting` with the path
/// when the wait begins. With a wait of zero, there is one attempt, and `waiting` is not called.
///
/// # Errors
/// As for [`open`].
pub async fn open_within(
    path: impl Into<PathBuf>,
    options: Options,
    wait: Duration,
    waiting: impl FnOnce(&Path) + Send,
) -> Result<Arc<dyn Store>> {
    let path = path.into();
    let deadline = Instant::now() + wait;
    let mut waiting = Some(waiting);
    loop {
        let opened = open_once(path.clone(), options).await;
        let now = Instant::now();
        match opened {
            Err(error) if redb::is_in_use(&error) && now < deadline => {
                if let Some(waiting) = waiting.take() {
                    waiting(&path);
                }
                sleep_until(deadline.min(now + OPEN_RETRY)).await;
            }
            opened => return opened,
        }
    }
}

async fn open_once(path: PathBuf, options: Options) -> Result<Arc<dyn Store>> {
    let opening = spawn_blocking(move || Redb::open(path, options));
    let store = opening.await??;
    Ok(Arc::new(store))
}

/// Begins a database at a path from entries, with the engine for it: see
/// [`RedbRestore::begin`](crate::redb::RedbRestore::begin).
pub(crate) fn begin_restore(path: PathBuf, revision: u64) -> Result<RedbRestore> {
    RedbRestore::begin(path, revision)
}
