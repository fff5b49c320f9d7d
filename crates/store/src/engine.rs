//! The choice of an engine by the place of the database, so that callers do not name one; and the wait
//! for another process that has the database file open.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::contract::Store;
use crate::etcd::{self, Etcd, EtcdAccess, EtcdSource, EtcdTarget, EtcdUrl, StoreState};
use crate::fleet::Member;
use crate::mark::MigrationMark;
use crate::redb::{self, Redb, RedbRestore};
#[cfg(doc)]
use crate::types::Error;
use crate::types::{Epoch, Limits, Options, Result};

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

/// A store on other machines, which several servers can share.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    /// Its address.
    pub url: EtcdUrl,
    /// How this server proves who it is.
    pub access: EtcdAccess,
}

impl RemoteStore {
    /// Opens the store. Changes nothing.
    ///
    /// # Errors
    /// As for [`Etcd::open`].
    pub async fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Etcd::open(&self.url, &self.access).await?))
    }

    /// Opens the store to prepare it. If nothing is there, the first transaction creates it.
    ///
    /// # Errors
    /// As for [`Etcd::open`].
    pub async fn prepare(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Etcd::prepare(&self.url, &self.access).await?))
    }

    /// The sizes that the store accepts.
    pub fn limits(&self) -> Limits {
        etcd::LIMITS
    }

    /// The state of the store. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for data of something else; those of a store that does not answer.
    pub async fn state(&self) -> Result<StoreState> {
        etcd::state(&self.url, &self.access).await
    }

    /// The servers that are announced on the store.
    ///
    /// # Errors
    /// Those of a store that does not answer.
    pub async fn members(&self) -> Result<Vec<Member>> {
        etcd::members(&self.url, &self.access).await
    }

    /// Begins to fill the store from another store, which is named as on the command line.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store is in use, or has a mark of something else.
    pub async fn begin_target(&self, from: &str) -> Result<EtcdTarget> {
        EtcdTarget::begin(&self.url, &self.access, from).await
    }

    /// Checks that the store can be filled from another store. Changes nothing.
    ///
    /// # Errors
    /// As for [`RemoteStore::begin_target`].
    pub async fn check_target(&self, from: &str) -> Result<()> {
        let mark = MigrationMark::Unfinished { from: from.to_owned() };
        self.state().await?.check_target(&mark, &self.url.to_string())
    }

    /// Begins to fill the store under a mark.
    pub(crate) async fn begin_target_with(&self, mark: &MigrationMark) -> Result<EtcdTarget> {
        EtcdTarget::begin_with(&self.url, &self.access, mark).await
    }

    /// Opens the store to move its data to another store, which is named as on the command line.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no store, or its data was moved elsewhere.
    pub async fn open_source(&self, to: &str) -> Result<EtcdSource> {
        EtcdSource::open(&self.url, &self.access, to).await
    }

    /// Begins a new epoch, after a restore of the database below that no server has noticed. Its revisions are greater
    /// than `above`; if that is `None`, they are greater than all that any server can have given out.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no store, if a server is announced, or if no revision is left.
    pub async fn begin_epoch(&self, above: Option<u64>) -> Result<Epoch> {
        etcd::begin_epoch(&self.url, &self.access, above).await
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
