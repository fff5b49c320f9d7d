//! The types of the contract: positions, entries, transactions, events, errors. No behaviour of a
//! store lives here.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinError;

/// Limits that every engine enforces, so that all engines accept the same transactions.
pub mod limits {
    /// Changes in one transaction. By default, etcd takes 128 operations in a transaction, and two are for the engine.
    pub const CHANGES_PER_TXN: usize = 126;
    /// Conditions in one transaction, for the same reason.
    pub const CONDITIONS_PER_TXN: usize = 126;
    /// Bytes in a key.
    pub const KEY_BYTES: usize = 1024;
    /// Bytes in a value, on an engine that takes the most: a 3 MiB request body and room for the
    /// server's additions.
    pub const VALUE_BYTES: usize = 4 * 1024 * 1024;
    /// Bytes of all values in one transaction, on an engine that takes the most.
    pub const TXN_BYTES: usize = 16 * 1024 * 1024;
    /// Prefixes in one call that asks for, or notes, the last change under each of them.
    pub const PREFIXES: usize = 256;
    /// The greatest revision: packed positions stay below 2⁶³, so that clients in languages without
    /// unsigned numbers can read them too.
    pub const REVISION: u64 = (1 << 55) - 1;
    /// Bytes by which a value may exceed the limits above when it reaches an engine. A transaction may
    /// have one more condition, too. A store that wraps another one, as sealing does, can so offer the
    /// same limits as the engine. Callers must not rely on it.
    pub const ENVELOPE_BYTES: usize = 64;
}

/// The sizes that an engine accepts, without the bytes that a store around it adds
/// ([`limits::ENVELOPE_BYTES`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a value.
    pub value_bytes: usize,
    /// Bytes of all values in one transaction.
    pub txn_bytes: usize,
}

impl Limits {
    /// The limits of the engines of this process.
    pub const EMBEDDED: Self =
        Self { value_bytes: limits::VALUE_BYTES, txn_bytes: limits::TXN_BYTES };
}

/// A part of a store's history in which revisions rise. A restore begins another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// 0 for a store that was never restored; greater for each later one.
    pub number: u32,
    /// Its first revision. All positions that were given out in earlier epochs are below.
    pub begins: u64,
}

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory for the pages of the database, in bytes.
    pub cache_bytes: usize,
    /// Revisions in one segment of history, at most. Only tests need another number than the default.
    #[doc(hidden)]
    pub segment_revisions: u64,
    /// Bytes of the log of a database that is created. Only tests need another number than the default.
    #[doc(hidden)]
    pub log_bytes: u64,
}

impl Options {
    /// The default for [`Options::cache_bytes`]: 32 MiB.
    pub const DEFAULT_CACHE_BYTES: usize = 32 * 1024 * 1024;
    /// The default for [`Options::segment_revisions`].
    #[doc(hidden)]
    pub const DEFAULT_SEGMENT_REVISIONS: u64 = 512;
    /// The default for [`Options::log_bytes`]: 8 MiB.
    #[doc(hidden)]
    pub const DEFAULT_LOG_BYTES: u64 = 8 * 1024 * 1024;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: Self::DEFAULT_CACHE_BYTES,
            segment_revisions: Self::DEFAULT_SEGMENT_REVISIONS,
            log_bytes: Self::DEFAULT_LOG_BYTES,
        }
    }
}

/// The position of a change in the store's history: the revision of its transaction, and its index
/// in that transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    revision: u64,
    index: u8,
}

impl Position {
    /// Before the first change.
    pub const ZERO: Self = Self { revision: 0, index: 0 };

    /// After the last change that there can be.
    pub const MAX: Self = Self::end_of(limits::REVISION);

    /// The position of one change.
    pub const fn new(revision: u64, index: u8) -> Self {
        Self { revision, index }
    }

    /// The position after every change of a revision. Lists and bookmarks carry it.
    pub const fn end_of(revision: u64) -> Self {
        Self { revision, index: u8::MAX }
    }

    /// The revision of the transaction.
    pub const fn revision(self) -> u64 {
        self.revision
    }

    /// The index of the change in its transaction; 255 for the end of a revision.
    pub const fn index(self) -> u8 {
        self.index
    }

    /// One number that orders as positions do: `revision × 256 + index`.
    pub const fn packed(self) -> u64 {
        (self.revision << 8) | self.index as u64
    }

    /// The position of a packed number: the inverse of [`Position::packed`]. Every number is
    /// a position.
    pub const fn from_packed(packed: u64) -> Self {
        Self { revision: packed >> 8, index: packed.to_le_bytes()[0] }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.packed())
    }
}

/// A key with its value and the position of the change that set it.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// The stored bytes. They may be secret, so `Debug` prints only their length.
    pub value: Bytes,
    /// The position of the last change of this key.
    pub position: Position,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} @ {}, {} bytes)", self.key, self.position, self.value.len())
    }
}

/// The result of a read, and the revision at which it was true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot<T> {
    /// The result.
    pub value: T,
    /// The newest revision that the read saw.
    pub revision: u64,
}

/// Which keys a list returns.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Only keys after this one, in byte order; for the next page.
    pub after: Option<Arc<str>>,
    /// The most keys on the page; 0 means no limit.
    pub limit: usize,
    /// The state after this revision; `None` means the newest state.
    pub at: Option<u64>,
}

/// A key with a stored value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptEntry {
    /// The key.
    pub key: Arc<str>,
    /// The position of the last change of this key. [`Condition::At`] needs it to replace or delete
    /// the key.
    pub position: Position,
    /// The reason. It never has stored bytes.
    pub reason: String,
}

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In key order.
    pub entries: Vec<Entry>,
    /// Keys of this page with corrupt values, in key order; normally none. They count towards the
    /// page's limit, and the next page starts after the greatest key of both lists.
    pub corrupt: Vec<CorruptEntry>,
    /// The number of keys under the prefix after the last key of this page.
    pub remaining: u64,
    /// The revision of this state.
    pub revision: u64,
}

impl Page {
    /// The greatest key on this page, corrupt or not: the [`ListRequest::after`] of the next
    /// page.
    pub fn last_key(&self) -> Option<&Arc<str>> {
        let intact = self.entries.last().map(|entry| &entry.key);
        let corrupt = self.corrupt.last().map(|corrupt| &corrupt.key);
        intact.max(corrupt)
    }
}

/// Changes that were read from history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// In order of position.
    pub events: Vec<Event>,
    /// Everything under the prefix up to this position has been returned.
    pub through: Position,
}

/// A condition that must hold for a transaction to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
    Absent(Arc<str>),
    /// The key exists, and its last change has this position.
    At(Arc<str>, Position),
}

/// One change of a transaction.
#[derive(Clone)]
pub enum Change {
    /// Sets a key, which may exist already.
    Put {
        /// The key.
        key: Arc<str>,
        /// Its new value.
        value: Bytes,
    },
    /// Removes a key that exists.
    Delete {
        /// The key.
        key: Arc<str>,
    },
    /// Replaces the bytes of a key that exists, without an event: see the contract.
    Rewrite {
        /// The key.
        key: Arc<str>,
        /// The same meaning in other bytes.
        value: Bytes,
    },
}

impl Change {
    /// The key that is changed.
    pub fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } | Self::Rewrite { key, .. } => key,
        }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value } => write!(f, "Put({key}, {} bytes)", value.len()),
            Self::Delete { key } => write!(f, "Delete({key})"),
            Self::Rewrite { key, value } => write!(f, "Rewrite({key}, {} bytes)", value.len()),
        }
    }
}

/// A transaction: all of its changes are committed when all of its conditions hold; otherwise none
/// is.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// All of them must hold.
    pub conditions: Vec<Condition>,
    /// In this order: a change's index in this list is the index of its position.
    pub changes: Vec<Change>,
}

/// The value that a change replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: the key did not exist.
    New,
    /// A value. Its entry is missing if it is corrupt, or if the watch was asked for none ([`WithOld::No`]).
    Old(Option<Entry>),
}

impl Replaced {
    /// The entry that was replaced, if it is known.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Self::New => None,
            Self::Old(entry) => entry.as_ref(),
        }
    }
}

/// Whether the events of a watch have the entries that they replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithOld {
    /// An engine may leave them out. [`Replaced`] still tells whether the key existed.
    No,
    /// They have them.
    Yes,
}

/// A change as a watch delivers it.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// The key.
    pub key: Arc<str>,
    /// The position of the change.
    pub position: Position,
    /// The new value; `None` when the key was removed.
    pub value: Option<Bytes>,
    /// The value that the change replaced.
    pub replaced: Replaced,
}

impl Event {
    /// The bytes that its values take in memory.
    pub(crate) fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, Bytes::len);
        value + self.replaced.entry().map_or(0, |entry| entry.value.len())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.value.as_ref().map(Bytes::len);
        write!(f, "Event({} @ {}, {bytes:?} bytes)", self.key, self.position)
    }
}

/// One step of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Changes in order of position; empty when the batch only reports progress.
    pub events: Vec<Event>,
    /// Everything under the prefix up to the end of this revision has been delivered.
    pub revision: u64,
}

/// Why a store did not perform a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A condition did not hold. Nothing was done.
    #[error("conflict on {key}: {}", found.map_or_else(|| "absent".to_owned(), |p| format!("changed at {p}")))]
    Conflict {
        /// The key of the first condition that failed.
        key: Arc<str>,
        /// The position of its last change; `None` when it does not exist.
        found: Option<Position>,
    },
    /// The revision asked for is no longer kept.
    #[error("revision is compacted; the oldest kept is {}", compacted + 1)]
    Compacted {
        /// Every revision up to this one is gone.
        compacted: u64,
    },
    /// The revision asked for does not exist yet.
    #[error("revision is in the future; the newest is {current}")]
    Future {
        /// The newest revision.
        current: u64,
    },
    /// The request itself is malformed.
    #[error("invalid request to the store: {0}")]
    Invalid(String),
    /// The values are larger than the engine accepts. Nothing was done.
    #[error("{found} bytes in {of}; the store accepts {limit}{}", advice.map_or_else(String::new, |advice| format!(": {advice}")))]
    TooLarge {
        /// The kind of the thing that is too large: a value or a transaction.
        of: &'static str,
        /// Its bytes.
        found: usize,
        /// The most bytes that are accepted.
        limit: usize,
        /// How an operator can raise the limit, if that is possible.
        advice: Option<&'static str>,
    },
    /// The store was restored: history before `begins` may have been another one. Load everything again.
    #[error("the store was restored, and its history begins at revision {begins}")]
    EpochChanged {
        /// The first revision of the new epoch.
        begins: u64,
    },
    /// Another server has encrypted a value with an at-rest key that this server does not have. Reads succeed when the
    /// operator has copied the keyring.
    #[error(
        "stored data is encrypted with the at-rest key {id}, which the keyring of this server does not have: copy the \
         keyring file of another server"
    )]
    UnknownSealKey {
        /// The id of the key.
        id: String,
    },
    /// Nothing was done, and nothing can be done at the moment.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// Nothing was done: the store takes no writes because its space is used up. Reads succeed.
    #[error(
        "storage is unavailable: etcd's storage is full: compact and defragment it, raise its quota, and disarm its alarm"
    )]
    Full,
    /// Nothing was done: the gate before the commit failed, with this reason. See
    /// [`Gate`](crate::Gate).
    #[error("{0}")]
    Gated(&'static str),
    /// The transaction may or may not have been committed.
    #[error("storage failed while committing, the outcome is not known: {0}")]
    Unknown(String),
    /// The stored bytes are not those that were written.
    #[error("stored data is corrupt{}: {reason}", key.as_ref().map_or_else(String::new, |k| format!(" at {k}")))]
    Corrupt {
        /// The key that is affected, if known.
        key: Option<Arc<str>>,
        /// The reason. It never has stored bytes.
        reason: String,
    },
}

/// A panic in a task of the store. Its message is left out, because it may contain stored values.
impl Error {
    /// The error of every operation on a closed store.
    pub fn closed() -> Self {
        Self::Unavailable("the store was closed".to_owned())
    }

    /// The error for a server with an address that another server has announced.
    pub fn address_taken(address: &str) -> Self {
        Self::Invalid(format!(
            "another server on this store is announced at {address}: give each server an address of its own with \
             --member-host"
        ))
    }
}

impl From<JoinError> for Error {
    fn from(_: JoinError) -> Self {
        Self::Unavailable("a task of the store has panicked".to_owned())
    }
}

/// The result of a store's operation.
pub type Result<T> = std::result::Result<T, Error>;
