//! The contract of a store: the traits [`Store`] and [`Watch`], and what every engine promises. The
//! types that they use are in `types`; no behaviour of a particular engine lives here.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::check;
use crate::figures::Figures;
use crate::fleet::Fleet;
use crate::types::{
    Batch, Entry, Epoch, Error, Events, Limits, ListRequest, Page, Position, Result, Snapshot, Txn,
    WithOld,
};

/// The function that [`Store::scan`] calls with each page, possibly from several threads at once.
pub type Visitor = Arc<dyn Fn(Page) + Send + Sync>;

/// A function that runs before each commit; or an error with the reason why nothing may be
/// committed. It may block, and it may be called from several threads at once. See
/// [`Store::set_gate`].
pub type Gate = Box<dyn Fn() -> std::result::Result<(), &'static str> + Send + Sync>;

/// Entries on a page of a scan, in engines that scan by lists.
const SCAN_PAGE: usize = 256;

/// A keyspace with one history of changes.
///
/// # The contract
///
/// **Keys** are UTF-8 strings, not empty, ordered by their bytes. An engine may require that they
/// begin with a slash. **Values** are bytes that the store never interprets.
///
/// **Revisions.** Every transaction that changes something takes a revision. A revision is greater
/// than all earlier ones, not always by one. It is assigned *at commit*, inside the transaction, by
/// the component that serialises commits. Other processes may commit as well; no code here assumes
/// that this process is the only one. Revisions start at 1, and their order is the order of
/// commits: once a revision is visible, no smaller one can still become visible. Within its
/// transaction each change has an *index*, its index in [`Txn::changes`]. There are at most
/// [`limits::CHANGES_PER_TXN`](crate::limits::CHANGES_PER_TXN) changes. The pair is the change's
/// [`Position`]. It is stored with the value, and clients see it as `resourceVersion`.
/// A transaction that fails its conditions, or has no changes, takes no revision. A transaction
/// without changes returns the newest revision if its conditions hold.
///
/// **Transactions** ([`Store::commit`]) are atomic, isolated and durable: when `Ok` is returned,
/// every change is on stable storage and is visible to every read that starts afterwards; when
/// [`Error::Conflict`] is returned, nothing was done. When [`Error::Unknown`] is returned, the
/// transaction may or may not have been committed, as a whole, never in part; the caller must read to
/// find out. The same holds when the future is dropped before it returns.
///
/// **Reads** ([`Store::get`], [`Store::list`]) without a revision are linearisable: they see every
/// transaction that was acknowledged before they began, from any process. A list at a revision sees
/// exactly the state after that revision's transaction, so the pages of one list are consistent.
/// For a compacted revision it fails with [`Error::Compacted`]. For a revision that does not exist
/// yet it fails with [`Error::Future`].
///
/// **Watches** ([`Store::watch`]) deliver every change after the given position to the keys under a
/// prefix. They are
/// - *ordered*: by position, and so the same for all watchers;
/// - *unique*: no change is delivered twice;
/// - *reliable*: no change is left out; a watch that cannot go on fails, it never skips changes;
/// - *atomic*: the changes of one transaction come in one [`Batch`], unless the watch began
///   between two of them;
/// - *resumable*: a new watch from any delivered position goes on right after it, also between
///   two changes of one transaction, also in another process or after a restart;
/// - *bookmarkable*: [`Batch::revision`] is the revision up to which the watcher has everything, also
///   when other keys changed and its own did not.
///
/// A watch from a position that is compacted fails with [`Error::Compacted`]; that covers
/// positions *below* the compacted revision: everything after that revision is still there, so a
/// watch from its end (`Position::end_of(compacted)`) works. A watch from a position in the future
/// waits for it.
///
/// **Compaction** ([`Store::compact`]) removes superseded values and tombstones up to and
/// including a revision: history after it stays complete, and an event after it still has its
/// previous value. The live value of a key is never removed.
///
/// **Last changes.** Compaction does not end watches of a prefix that has not changed:
/// [`Store::last_changes`] returns the position of the last change under a prefix. A watcher that
/// has everything up to that position can go on, even if later history is compacted. A compacted
/// tombstone leaves nothing behind. So a compaction notes the last change under the prefixes that
/// it is given ([`Store::compact_noting`]). If the last change is not known for certain, the prefix
/// counts as changed. That is the case if no compaction has noted it, if a later compaction did
/// not, and before a restore. A rewrite is no change.
///
/// **Age.** The store has no clock. Callers tell it the time from time to time
/// ([`Store::age_history`]), and it remembers which revision was the newest one then. So history
/// has the same age for all clients of a store, and a restart does not make it young again. If the
/// clock was set back between two calls, the time between them counts as zero. It never counts as
/// more than `keep` divided by [`HISTORY_STEPS`](crate::HISTORY_STEPS). So a step of the clock, or
/// a time without calls, changes the age at which history is removed by at most that amount.
///
/// **Rewrites** ([`Change::Rewrite`](crate::Change::Rewrite)) replace the bytes of a live value in
/// place: same position, no event. They exist for one purpose, re-encryption under a newer key, and
/// so must not change the meaning of the bytes. Like any transaction that changes something, one
/// with rewrites takes a revision.
///
/// **Corruption** is reported, never returned as data. [`Store::get`] and watches fail with
/// [`Error::Corrupt`], which names the key if it is known. A list or scan goes on and names the
/// corrupt keys in [`Page::corrupt`], so that one corrupt value does not hide its neighbours. A
/// list fails only when it cannot know which keys exist. A corrupt key can be replaced and deleted
/// like any other, but not rewritten. If its position is lost as well, the position is
/// [`Position::ZERO`], and conditions are compared with that. Watches deliver the change of a
/// corrupt key: if the previous entry is corrupt, the event comes without it. A watch fails only
/// when the change itself is corrupt. A watcher that gets [`Error::Corrupt`] lists again and
/// watches from there.
///
/// **Restored stores** are made from entries instead of transactions ([`RestoreTarget`]). Such a
/// store has a given newest revision. The entries keep their positions, which are all older.
/// Everything before the newest revision is compacted. The restore itself counts as that revision,
/// with which an [epoch](Store::epoch) begins. So a watch from any older position fails with
/// [`Error::Compacted`], and a list at the newest revision works.
///
/// **Faults.** While the storage below fails, operations return [`Error::Unavailable`]. An engine
/// that can recover does so without a call, and has all acknowledged changes afterwards.
/// [`Store::health`] reports the known state; [`Store::recover`] does not wait for the next
/// attempt.
///
/// **Closing** ([`Store::close`]) ends the store for all that share it. Afterwards every operation
/// returns [`Error::Unavailable`], and so does every watch.
///
/// [`Error::Compacted`]: crate::Error::Compacted
/// [`Error::Conflict`]: crate::Error::Conflict
/// [`Error::Corrupt`]: crate::Error::Corrupt
/// [`Error::Future`]: crate::Error::Future
/// [`Error::Unavailable`]: crate::Error::Unavailable
/// [`Error::Unknown`]: crate::Error::Unknown
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The sizes that the engine accepts.
    fn limits(&self) -> Limits {
        Limits::EMBEDDED
    }

    /// The answer of [`Store::revision`], if the engine knows it without waiting: one in this process does.
    fn revision_here(&self) -> Option<Result<u64>> {
        None
    }

    /// The newest visible revision. Linearisable, like every read.
    async fn revision(&self) -> Result<u64>;

    /// The present epoch.
    async fn epoch(&self) -> Result<Epoch>;

    /// The compacted revision: every revision up to and including it is compacted; 0 if none
    /// is.
    async fn compacted(&self) -> Result<u64>;

    /// The current entry of a key.
    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>>;

    /// The keys under a prefix, in key order, in the newest state or in that of a revision.
    async fn list(&self, request: ListRequest) -> Result<Page>;

    /// The next keys under a prefix as they were after a revision, in key order. They start at the
    /// first key after the given one; a page without keys is the last one. The engine decides how
    /// many keys are on a page, and bounds the page's bytes too. The `remaining` of these pages has
    /// no meaning.
    ///
    /// This is for reading everything bit by bit. The cost of a page depends only on its entries,
    /// and nothing is kept open between two pages.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the revision is below the compacted one: the state right after the
    /// compacted revision is still known. [`Error::Future`] as for [`Store::list`].
    ///
    /// [`Error::Compacted`]: crate::Error::Compacted
    /// [`Error::Future`]: crate::Error::Future
    async fn next_page(&self, prefix: &str, at: u64, after: Option<Arc<str>>) -> Result<Page>;

    /// Visits all keys as they were after a revision, in pages and in no particular order, as fast as
    /// the engine can. The entries are those of a list at that revision. The `remaining` of these
    /// pages has no meaning. When this fails, some pages may have been visited.
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

    /// Commits all of a transaction, or nothing. Returns its revision.
    ///
    /// # Errors
    /// [`Error::Conflict`] names the first condition that did not hold, with the position that was
    /// found. [`Error::Invalid`] is a malformed transaction: a key changed twice, too many changes,
    /// a key over its limit. [`Error::TooLarge`] if values exceed [`Store::limits`]. Deleting or
    /// rewriting a key that is absent is a conflict.
    ///
    /// [`Error::Conflict`]: crate::Error::Conflict
    /// [`Error::Invalid`]: crate::Error::Invalid
    /// [`Error::TooLarge`]: crate::Error::TooLarge
    async fn commit(&self, txn: Txn) -> Result<u64>;

    /// A watch on the keys under a prefix, which starts right after a position.
    async fn watch(&self, prefix: &str, after: Position, old: WithOld) -> Result<Box<dyn Watch>>;

    /// The next changes to keys under a prefix, from the first one after a position, and none after `until`. The engine
    /// decides how many there are, and bounds their bytes, which the first one may exceed. The call does not wait and
    /// keeps nothing open: it is for watchers that are behind and read history bit by bit.
    ///
    /// # Errors
    /// [`Error::Compacted`] as for a watch. [`Error::Corrupt`] when a change is corrupt. Other than in a
    /// watch, also when the replaced entry is corrupt: a reader of history needs the state before each change.
    ///
    /// [`Error::Compacted`]: crate::Error::Compacted
    /// [`Error::Corrupt`]: crate::Error::Corrupt
    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events>;

    /// Compacts history up to and including a revision. Compacting it again is no error. Notes no last
    /// changes: see [`Store::compact_noting`].
    ///
    /// # Errors
    /// [`Error::Future`] for a revision that does not exist yet.
    ///
    /// [`Error::Future`]: crate::Error::Future
    async fn compact(&self, revision: u64) -> Result<()> {
        self.compact_noting(revision, &[]).await
    }

    /// Compacts history as [`Store::compact`] does, and notes the position of the last change under
    /// each of these prefixes, for [`Store::last_changes`]. Forgets the notes on other prefixes.
    ///
    /// # Errors
    /// As for [`Store::compact`]; [`Error::Invalid`] for more than
    /// [`limits::PREFIXES`](crate::limits::PREFIXES) prefixes.
    ///
    /// [`Error::Invalid`]: crate::Error::Invalid
    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()>;

    /// For each prefix, a position after which no key under it was changed, up to the end of
    /// revision `at`. It is the position of the last change if that is known, and a later one
    /// otherwise. It costs a bounded number of reads. The prefixes must be spelled as they were for
    /// [`Store::compact_noting`].
    ///
    /// # Errors
    /// [`Error::Compacted`] when the revision is below the compacted one, [`Error::Future`] when it
    /// does not exist yet, [`Error::Invalid`] for too many prefixes.
    ///
    /// [`Error::Compacted`]: crate::Error::Compacted
    /// [`Error::Future`]: crate::Error::Future
    /// [`Error::Invalid`]: crate::Error::Invalid
    async fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        check::prefixes(prefixes)?;
        let (current, compacted) = (self.revision().await?, self.compacted().await?);
        if at > current {
            return Err(Error::Future { current });
        }
        if at < compacted {
            return Err(Error::Compacted { compacted });
        }
        Ok(vec![Position::end_of(at); prefixes.len()])
    }

    /// Notes that it is `now`, as time since 1970, and returns the revision that was the newest one
    /// `keep` ago, or some time before; 0 when that is not known. To be called at each start, and then
    /// every `keep` divided by [`HISTORY_STEPS`](crate::HISTORY_STEPS). Durable, takes no revision, and
    /// does not run the gate.
    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64>;

    /// Sets the gate: the function that runs before each commit, after the transactions were handed
    /// over and before any of them is visible. One call of it is for all transactions that are
    /// committed together. When it fails, nothing is committed, and [`Store::commit`] returns
    /// [`Error::Gated`]. Reads go on while it runs. Compaction does not run it.
    ///
    /// A store has one gate at most: a second one is not taken, which is logged.
    ///
    /// [`Error::Gated`]: crate::Error::Gated
    fn set_gate(&self, gate: Gate);

    /// Whether the store works, as far as is known without waiting.
    ///
    /// # Errors
    /// The known fault: [`Error::Unavailable`] after a fault, and when the store is closed.
    ///
    /// [`Error::Unavailable`]: crate::Error::Unavailable
    fn health(&self) -> Result<()>;

    /// The time for which the store has not answered. It is counted from the beginning of the last
    /// call that read or wrote the newest state. If a running watch is not known to have everything
    /// until that moment, it is counted from the last moment until which the watch has everything.
    /// So a server that reads its watches has missed nothing that is older than this. Zero for an
    /// engine in this process.
    ///
    /// An engine on other machines sends calls itself, so that this stays small while no caller
    /// asks. Reading it costs no call.
    fn silence(&self) -> Duration;

    /// The servers that share the store; `None` if this one is alone.
    fn fleet(&self) -> Option<&dyn Fleet> {
        None
    }

    /// The engine's figures for metrics. Does not wait for the committer.
    fn figures(&self) -> Figures {
        Figures::default()
    }

    /// Checks whether the store takes writes. After a fault, tries to recover now, without waiting
    /// for the engine's next attempt.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that fails, and when the store is closed.
    ///
    /// [`Error::Unavailable`]: crate::Error::Unavailable
    async fn recover(&self) -> Result<()>;

    /// Closes the store. Accepts no new transactions, finishes those that were accepted, and
    /// releases its resources: when this has returned, another process may open the database. Every
    /// other operation then returns [`Error::Unavailable`]. Closing twice is no error.
    ///
    /// [`Error::Unavailable`]: crate::Error::Unavailable
    async fn close(&self);
}

/// A store that is being made from entries. The contract describes the resulting store. Nothing of
/// it is visible before it is finished, and dropping it before that leaves nothing behind.
pub trait RestoreTarget {
    /// The result of [`RestoreTarget::finish`].
    type Output;

    /// Adds an entry, with its position. Its key and its position must be new, and the position older
    /// than the revision of the store.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an entry that is none of this, or over a limit;
    /// [`Error::Unavailable`](crate::Error::Unavailable) when it cannot be written. The restore has
    /// failed then. An engine may report these later, when more has been added or at the end.
    fn add(&mut self, entry: Entry) -> Result<()>;

    /// Makes the store visible and durable.
    ///
    /// # Errors
    /// As for [`RestoreTarget::add`].
    fn finish(self) -> Result<Self::Output>;
}

/// A running watch. Dropping it ends it.
#[async_trait]
pub trait Watch: Send {
    /// The next batch: changes, or only progress. Waits until there is one. Cancel-safe: a
    /// call that is dropped loses nothing.
    ///
    /// # Errors
    /// After an error the watch is over; a new one resumes from the last position that was delivered.
    async fn next(&mut self) -> Result<Batch>;
}
