//! Revisioned bytes: what every engine promises, and the types that the promise speaks of.
//!
//! Here lives the contract ([`Store`]) and its vocabulary. What does *not* live here: JSON,
//! kinds, access rights, or any idea of what the bytes mean. Engines are in [`memory`] and
//! [`redb`]; [`seal`] is a store that encrypts another store; [`mod@conformance`] is the suite that
//! each of them has to pass.

pub mod conformance;
pub mod memory;
pub mod redb;
pub mod seal;

mod check;
mod place;
mod types;

pub use types::{
    Batch, Change, Condition, Damaged, Entry, Error, Event, ListRequest, Page, Position, Result,
    Snapshot, Txn, limits,
};

use std::sync::Arc;

use async_trait::async_trait;

/// What [`Store::scan`] hands pages to, perhaps several at once from several threads.
pub type Visitor = Arc<dyn Fn(Page) + Send + Sync>;

/// Entries on a page of a scan, in engines that have nothing better than lists.
const SCAN_PAGE: usize = 256;

/// A keyspace with one history.
///
/// # The contract
///
/// **Keys** are UTF-8 strings, not empty, ordered by their bytes. **Values** are bytes that the store never
/// looks into.
///
/// **Revisions.** Every transaction that changes something takes the next revision: a number that
/// is assigned *at commit*, inside the transaction, by whoever serialises commits (there may be
/// other processes; nothing here assumes that this one is alone). Revisions start at 1 and have
/// no order other than that of commits: once a revision is visible, no smaller one can still
/// become visible. Within its transaction each change has an *index*, its place in
/// [`Txn::changes`], at most [`limits::CHANGES_PER_TXN`] of them. The pair is the change's
/// [`Position`], it is kept with the value, and it is what clients see as `resourceVersion`.
/// A transaction that fails its conditions, or has no changes, takes no revision; one without
/// changes whose conditions hold answers the newest revision.
///
/// **Transactions** ([`Store::commit`]) are atomic, isolated and durable: when `Ok` is returned,
/// every change is on stable storage and is visible to every read that starts afterwards; when
/// [`Error::Conflict`] is returned, nothing was done. When [`Error::Unknown`] is returned, the
/// transaction may or may not have happened, wholly, never in part; the caller must read to
/// find out. A future that is dropped before it answers is the same as `Unknown`.
///
/// **Reads** ([`Store::get`], [`Store::list`]) without a revision are linearisable: they see every
/// transaction whose commit was acknowledged before they began, from whichever process.
/// A list at a revision sees exactly the state after that revision's transaction, so that pages
/// of one list fit together; for a revision that is compacted it fails with
/// [`Error::Compacted`], for one that does not exist yet with [`Error::Future`].
///
/// **Watches** ([`Store::watch`]) deliver every change to keys under a prefix whose position is
/// greater than the given one, and are
/// - *ordered*: by position, and so the same for all watchers;
/// - *unique*: no change is delivered twice;
/// - *reliable*: no change is left out; a watch that cannot go on fails, it never skips;
/// - *atomic*: the changes of one transaction come in one [`Batch`], unless the watch began
///   between two of them;
/// - *resumable*: a new watch from any delivered position goes on right behind it, also between
///   two changes of one transaction, also in another process or after a restart;
/// - *bookmarkable*: [`Batch::revision`] says up to where the watcher has seen everything, also
///   when other keys changed and its own did not.
///
/// A watch from a position that is compacted fails with [`Error::Compacted`]; that covers
/// positions *below* the compacted revision: everything after that revision is still there, so a
/// watch from its end (`Position::end_of(compacted)`) works. A watch from the future waits.
///
/// **Compaction** ([`Store::compact`]) forgets superseded values and tombstones up to and
/// including a revision: history after it stays whole, and an event after it still has its
/// previous value. The live value of a key is never forgotten.
///
/// **Rewrites** ([`Change::Rewrite`]) replace the bytes of a live value in place: same position, no
/// event. They exist for one purpose, re-encryption under a newer key, and so must not change
/// what the bytes mean. Like any transaction that changes something, one with rewrites takes
/// a revision.
///
/// **Damage** is reported, never returned as data. [`Store::get`] and watches fail with
/// [`Error::Corrupt`], which names the key where one is known. A list or scan goes on and names the
/// damaged keys in [`Page::damaged`], so that one bad value does not take its neighbours along;
/// only damage that hides which keys there are fails the list. A damaged key can be replaced
/// and deleted like any other, but not rewritten. A watcher that meets damage lists again and
/// goes on from there.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The newest revision whose transaction is visible, in a linearisable way.
    async fn revision(&self) -> Result<u64>;

    /// Every revision up to and including this one has been compacted; 0 if none.
    async fn compacted(&self) -> Result<u64>;

    /// One key as it is now.
    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>>;

    /// Keys under a prefix, in key order, as they are now or were at a revision.
    async fn list(&self, request: ListRequest) -> Result<Page>;

    /// All keys as they were after a revision, in pages and in no particular order, as fast as
    /// the engine can: what a list answers in order and bit by bit. A page's `remaining` says
    /// nothing. When this fails, some pages may have been visited.
    ///
    /// # Errors
    /// As for [`Store::list`] at a revision.
    async fn scan(&self, at: u64, visit: Visitor) -> Result<()> {
        let mut request = ListRequest { at: Some(at), limit: SCAN_PAGE, ..ListRequest::default() };
        loop {
            let page = self.list(request.clone()).await?;
            request.after = page.last_key().cloned();
            let is_last = page.remaining == 0 || request.after.is_none();
            visit(page);
            if is_last {
                return Ok(());
            }
        }
    }

    /// All of a transaction, or nothing. Answers its revision.
    ///
    /// # Errors
    /// [`Error::Conflict`] names the first condition that did not hold, with what was found.
    /// [`Error::Invalid`] is a malformed transaction: a key changed twice, too many changes,
    /// a key or value over its limit. Deleting or rewriting a key that is absent is a conflict.
    async fn commit(&self, txn: Txn) -> Result<u64>;

    /// Changes under a prefix, from just behind a position.
    async fn watch(&self, prefix: &str, after: Position) -> Result<Box<dyn Watch>>;

    /// Forgets history up to and including a revision. Compacting what is compacted already is
    /// no error; a revision from the future is [`Error::Future`].
    async fn compact(&self, revision: u64) -> Result<()>;
}

/// A running watch. Dropping it ends it.
#[async_trait]
pub trait Watch: Send {
    /// The next batch: changes, or only progress. Cancel-safe: a call that is dropped loses
    /// nothing.
    ///
    /// # Errors
    /// After an error the watch is over; a new one resumes from the last position delivered.
    async fn next(&mut self) -> Result<Batch>;
}
