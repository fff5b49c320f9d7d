//! The engine on one file, exclusive to one process.
//!
//! One thread decides, and makes all transactions that wait for it durable together: one sync for many
//! callers, in the write-ahead log. A second one writes them to the database. Here are the store itself, its
//! opening and its closing. The parts are:
//!
//! - `committer`: the first thread, and `accept`: its decisions,
//! - `wal`: the file of the write-ahead log, and `wal_group`: the bytes of its groups,
//! - `pending`: the changes that the database does not have yet,
//! - `applier`: the second thread, and `write`: its writes,
//! - `read`, `history`, `watch` and `tail`: the reads of callers,
//! - `layout`: the bytes in the database, and `notes`: the bytes of the notes on history,
//! - `file`: creation and opening, `start`: the steps before it is used,
//! - `restore`: creation from entries,
//! - `verify`: the check of all stored data, and `scan`: the parallel walk,
//! - `fault_mark`: whether the disk has failed,
//! - `shared`: the state that all of them share.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ::redb::StorageBackend;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use self::committer::{Committer, RESERVE_BYTES};
pub use self::file::log_path;
use self::file::{Opener, Space};
use self::history::Forgetting;
use self::queue::Queue;
use self::read::View;
pub(crate) use self::read::is_in_use;
pub use self::restore::RedbRestore;
use self::shared::Shared;
use self::start::Start;
use self::watch::RedbWatch;
use self::write::Task;
use crate::check::{self, Overhead};
use crate::cursor::Cursor;
use crate::{
    Entry, Epoch, Error, Events, Figures, Gate, ListRequest, Options, Page, Position, Result,
    Snapshot, Store, Txn, Visitor, Watch, WithOld,
};

mod accept;
mod applier;
mod applier_handle;
mod committer;
mod fault_mark;
mod file;
mod history;
mod layout;
mod notes;
mod pending;
mod queue;
mod read;
mod restore;
mod scan;
mod shared;
mod start;
mod tail;
mod verify;
mod wal;
mod wal_group;
mod watch;
mod write;

/// A store on one file.
///
/// After a fault of the disk it returns [`Error::Unavailable`], closes the file, and opens it again
/// as soon as that works. All acknowledged changes are present then.
///
/// Dropping it does what [`Store::close`] does, and blocks meanwhile.
pub struct Redb {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    space: Space,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Redb {
    /// Opens the database file at a path. Creates it, readable for its owner only, if there is none.
    /// Blocks: it verifies all that is stored.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file cannot be opened, or another process has it open;
    /// [`Error::Corrupt`] when it is corrupt.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref().to_owned();
        file::ensure(&path)?;
        Self::start(file::opener_of(&path, options))
    }

    /// Opens a database, and its log, in something other than files. `make` and `make_log` are called now, and
    /// again after each fault: `make_log` after `make`.
    pub fn open_with_backends<B: StorageBackend, L: StorageBackend>(
        make: impl Fn() -> io::Result<B> + Send + 'static,
        make_log: impl Fn() -> io::Result<L> + Send + 'static,
        options: Options,
    ) -> Result<Self> {
        Self::start(file::opener(make, make_log, options))
    }

    fn start(opener: Opener) -> Result<Self> {
        let Start { database, wal, begin, splits } = start::open(&opener)?;
        opener.fault.clear();
        let shared = Arc::new(Shared::new(database, begin.revision, splits));
        let (queue, jobs) = Queue::new();
        let queue = Arc::new(queue);
        let space = opener.space.clone();
        let of_committer = (Arc::clone(&shared), Arc::clone(&queue));
        let committer = Committer::new(of_committer.0, of_committer.1, jobs, opener, wal, &begin)?;
        let thread = std::thread::Builder::new()
            .name("store-commit".to_owned())
            .spawn(move || committer.run())
            .map_err(|error| Error::Unavailable(format!("cannot start the committer: {error}")))?;
        Ok(Self { shared, queue, space, committer: Mutex::new(Some(thread)) })
    }

    /// Runs a function on a snapshot. When that fails, the committer checks the database: only it may
    /// open the file again.
    fn read<T>(&self, run: impl FnOnce(&View) -> Result<T>) -> Result<T> {
        self.probe_if_unavailable(self.shared.read(run))
    }

    /// The next step of a compaction. Others can commit while it is computed.
    async fn next_forgetting(
        &self,
        revision: u64,
        prefixes: &Arc<[String]>,
    ) -> Result<Option<Forgetting>> {
        self.catch_up().await?;
        let (shared, prefixes) = (Arc::clone(&self.shared), Arc::clone(prefixes));
        let reading = spawn_blocking(move || {
            shared.read(|view| {
                if revision > view.state.revision {
                    return Err(Error::Future { current: view.state.revision });
                }
                view.forgetting(revision, &prefixes)
            })
        });
        let step = reading.await?;
        self.probe_if_unavailable(step)
    }

    /// Reads the next changes of a snapshot.
    async fn read_events(&self, cursor: &Cursor, until: Position) -> Result<Events> {
        let (shared, cursor) = (Arc::clone(&self.shared), cursor.clone());
        let reading = spawn_blocking(move || {
            shared.read(|view| Ok((view.next_events(&cursor, until)?, view.state.revision)))
        });
        let (read, revision) = self.probe_if_unavailable(reading.await?)?;
        self.shared.wait_until_published(revision).await;
        Ok(read)
    }

    /// Waits until snapshots have all acknowledged changes.
    async fn catch_up(&self) -> Result<()> {
        self.probe_if_unavailable(self.shared.catch_up().await)
    }

    fn probe_if_unavailable<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Unavailable(_)) = &result {
            self.queue.request_probe();
        }
        result
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        self.queue.close();
        join(self.committer.get_mut().take());
    }
}

impl std::fmt::Debug for Redb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redb").finish_non_exhaustive()
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("the committer panicked");
    }
}

#[async_trait]
impl Store for Redb {
    /// The number is in memory: revisions are published before their callers get them, and no other
    /// process writes to this file. Every linearisable read of the server asks for it.
    fn revision_here(&self) -> Option<Result<u64>> {
        let revision = self.shared.with(|_| Ok(self.shared.published_revision()));
        Some(self.probe_if_unavailable(revision))
    }

    async fn revision(&self) -> Result<u64> {
        self.probe_if_unavailable(self.shared.with(|_| Ok(self.shared.published_revision())))
    }

    async fn epoch(&self) -> Result<Epoch> {
        self.read(View::epoch)
    }

    async fn compacted(&self) -> Result<u64> {
        self.read(|view| Ok(view.state.compacted))
    }

    /// Runs on the caller's thread: it reads a few pages, which are nearly always in memory. Before that, it
    /// looks among the changes that the database does not have yet.
    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        let (pending, revision) = {
            let pending = self.shared.pending.lock();
            (pending.get(key).cloned(), pending.revision())
        };
        let found = self.read(|view| match pending {
            Some(row) => Ok(Snapshot { value: row.entry(key), revision }),
            None => view.get(key),
        })?;
        // Nothing else has changed the key up to the revision of the pending change.
        let found = Snapshot { revision: found.revision.max(revision), ..found };
        self.shared.wait_until_published(found.revision).await;
        Ok(found)
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        self.catch_up().await?;
        let shared = Arc::clone(&self.shared);
        let listing = spawn_blocking(move || shared.read(|view| view.list(&request)));
        let page = self.probe_if_unavailable(listing.await?)?;
        self.shared.wait_until_published(page.revision).await;
        Ok(page)
    }

    async fn next_page(&self, prefix: &str, at: u64, after: Option<Arc<str>>) -> Result<Page> {
        self.catch_up().await?;
        let shared = Arc::clone(&self.shared);
        let prefix = prefix.to_owned();
        let reading = spawn_blocking(move || shared.read(|view| view.next_page(prefix, at, after)));
        let page = self.probe_if_unavailable(reading.await?)?;
        self.shared.wait_until_published(at).await;
        Ok(page)
    }

    async fn scan(&self, at: u64, visit: Visitor) -> Result<()> {
        self.catch_up().await?;
        let shared = Arc::clone(&self.shared);
        let scan =
            spawn_blocking(move || shared.read(|view| view.scan(at, &shared.splits, &*visit)));
        self.probe_if_unavailable(scan.await?)?;
        self.shared.wait_until_published(at).await;
        Ok(())
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        check::txn(&txn, self.limits(), Overhead::Envelope)?;
        self.queue.run(Task::Commit(txn)).await
    }

    async fn watch(&self, prefix: &str, after: Position, _: WithOld) -> Result<Box<dyn Watch>> {
        Ok(Box::new(RedbWatch::new(&self.shared, prefix, after)?))
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        let cursor = Cursor::new(prefix, after);
        let read = self.read_events(&cursor, until).await?;
        // Only a caller that already has all changes of a snapshot waits for newer acknowledged
        // ones.
        if !read.events.is_empty() || read.through > after {
            return Ok(read);
        }
        self.catch_up().await?;
        self.read_events(&cursor, until).await
    }

    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()> {
        check::prefixes(prefixes)?;
        let prefixes: Arc<[String]> = prefixes.into();
        while let Some(step) = self.next_forgetting(revision, &prefixes).await? {
            self.queue.run(Task::Forget(step)).await?;
        }
        Ok(())
    }

    async fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        check::prefixes(prefixes)?;
        self.catch_up().await?;
        let (shared, prefixes) = (Arc::clone(&self.shared), prefixes.to_vec());
        let search = spawn_blocking(move || shared.read(|view| view.last_changes(&prefixes, at)));
        let found = self.probe_if_unavailable(search.await?)?;
        self.shared.wait_until_published(at).await;
        Ok(found)
    }

    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64> {
        self.queue.run(Task::Age { now, keep }).await
    }

    fn set_gate(&self, gate: Gate) {
        if self.shared.gate.set(gate).is_err() {
            tracing::error!("a store has one gate; a second one was not taken");
        }
    }

    fn health(&self) -> Result<()> {
        self.read(|_| Ok(()))
    }

    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    fn figures(&self) -> Figures {
        let free_bytes = (self.space.free)();
        Figures {
            free_bytes,
            // Without a number of free bytes, no write fails for it.
            reserve_bytes: free_bytes.map(|_| RESERVE_BYTES),
            size_bytes: (self.space.used)(),
            applied_revision: self.shared.applied_revision(),
            commits: self.shared.commits.times(),
            failed_commits: self.shared.commits.failed(),
            remote: None,
        }
    }

    async fn recover(&self) -> Result<()> {
        self.queue.run(Task::Recover { now: true }).await.map(drop)
    }

    async fn close(&self) {
        self.queue.close();
        let thread = self.committer.lock().take();
        if let Err(error) = spawn_blocking(move || join(thread)).await {
            tracing::error!(%error, "waiting for the committer failed");
        }
    }
}
