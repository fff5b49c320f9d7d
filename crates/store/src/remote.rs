//! What an engine on other machines offers before a store is opened, and for the move of data to it and from it.
//! These traits let the registry, the server and the commands use such an engine without a dependency on its crate.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::Store;
use crate::fleet::Member;
use crate::mark::MigrationMark;
use crate::types::{Entry, Epoch, Error, Limits, Page, Result};

/// A store on other machines, which several servers can share.
#[async_trait]
pub trait RemoteEngine: Debug + Send + Sync {
    /// The address of the store, as on the command line. It has no password.
    fn url(&self) -> String;

    /// The sizes that the store accepts.
    fn limits(&self) -> Limits;

    /// Opens the store. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the engine cannot be used, if there is no store, and for data of something else.
    /// [`Error::Unavailable`] if the engine does not answer, or refuses this process.
    async fn open(&self) -> Result<Arc<dyn Store>>;

    /// Opens the store to prepare it. If nothing is there, the first transaction creates it.
    ///
    /// # Errors
    /// As for [`RemoteEngine::open`].
    async fn prepare(&self) -> Result<Arc<dyn Store>>;

    /// The state of the store. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for data of something else; those of a store that does not answer.
    async fn state(&self) -> Result<StoreState>;

    /// The servers that are announced on the store.
    ///
    /// # Errors
    /// Those of a store that does not answer.
    async fn members(&self) -> Result<Vec<Member>>;

    /// Begins to fill an unused store under a mark, or goes on with a store that has the same mark. A store that was
    /// moved to the source is filled again.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store is in use, has another mark, or has data of something else;
    /// [`Error::Unavailable`] if the engine does not answer.
    async fn begin_target(&self, mark: &MigrationMark) -> Result<Box<dyn MigrationTarget>>;

    /// Checks that the store can be filled under a mark. Changes nothing.
    ///
    /// # Errors
    /// As for [`RemoteEngine::begin_target`].
    async fn check_target(&self, mark: &MigrationMark) -> Result<()> {
        self.state().await?.check_target(mark, &self.url())
    }

    /// Opens the store to move its data to another store, which is named as on the command line.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no store, or its data was moved elsewhere.
    async fn open_source(&self, to: &str) -> Result<Box<dyn MigrationSource>>;

    /// Begins a new epoch, after a restore of the database below that no server has noticed. Its revisions are greater
    /// than `above`; if that is `None`, they are greater than all that any server can have given out.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no store, if a server is announced, or if no revision is left.
    async fn begin_epoch(&self, above: Option<u64>) -> Result<Epoch>;
}

/// A store on other machines that is being filled with the entries of another one. No server starts on it before
/// [`MigrationTarget::finish`]. If it is dropped before, it stays as it is, and [`RemoteEngine::begin_target`] goes on
/// with it.
#[async_trait]
pub trait MigrationTarget: Send + Sync {
    /// The next entries in key order, after a key. A page without keys is the last one. Changes
    /// that were not flushed are not included.
    ///
    /// # Errors
    /// Those of a store that does not answer.
    async fn next_page(&self, after: Option<&str>) -> Result<Page>;

    /// Adds a change. It is in the store at the latest after [`MigrationTarget::flush`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for an entry that the store cannot have; those of [`MigrationTarget::flush`].
    async fn change(&mut self, change: TargetChange) -> Result<()>;

    /// Writes all changes that were added.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the store does not answer, is full, or another process fills it now.
    async fn flush(&mut self) -> Result<()>;

    /// Opens the store for servers. It begins a new epoch at a revision, or a later one if the store had that. Returns
    /// the revision.
    ///
    /// # Errors
    /// Those of a commit; [`Error::Invalid`] for a revision that no store can have.
    async fn finish(self: Box<Self>, begins: u64) -> Result<u64>;
}

/// A change of a store that is being filled.
#[derive(Clone, Debug)]
pub enum TargetChange {
    /// Puts an entry, with its position.
    Put(Entry),
    /// Removes a key.
    Remove(Arc<str>),
}

/// A store on other machines whose data is being moved to another one.
#[async_trait]
pub trait MigrationSource: Send + Sync {
    /// The store, for reads.
    fn store(&self) -> Arc<dyn Store>;

    /// Marks the data as moved: from now on, no server starts on the store, and no process can write to it. It is done
    /// only if the given revision is still the newest one, and no server is announced.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a server has started or has written; [`Error::Unavailable`] if the store does not answer.
    async fn mark_moved(&self, to: &str, revision: u64) -> Result<()>;
}

/// The state of a store, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// Nothing is there.
    Unused,
    /// Servers can use it.
    InUse,
    /// No server can use it, for this reason.
    Marked(MigrationMark),
}

impl StoreState {
    /// Checks that the store `here`, which is in this state, can be filled under a mark.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store is in use or has another mark.
    pub fn check_target(&self, mark: &MigrationMark, here: &str) -> Result<()> {
        match (self, mark) {
            (Self::Unused, _) => Ok(()),
            (Self::Marked(found), mark) if found == mark => Ok(()),
            // The way back: the data in this store is older than the source.
            (Self::Marked(MigrationMark::Moved { to }), MigrationMark::Unfinished { from })
                if to == from =>
            {
                Ok(())
            }
            (Self::Marked(found), _) => Err(Error::Invalid(found.explain(here))),
            (Self::InUse, _) => Err(Error::Invalid(format!(
                "the store {here} is in use, and is not overwritten: choose another prefix"
            ))),
        }
    }
}
