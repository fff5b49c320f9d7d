//! The store's vocabulary: positions, entries, transactions, events, errors.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Bounds that every engine enforces, so that a transaction that one engine takes, all take.
pub mod limits {
    /// Changes in one transaction. A position's index is one byte, and 255 stands for the end of
    /// a revision; etcd's default for operations in one transaction is also 128.
    pub const CHANGES_PER_TXN: usize = 128;
    /// Conditions in one transaction.
    pub const CONDITIONS_PER_TXN: usize = 256;
    /// Bytes in a key.
    pub const KEY_BYTES: usize = 1024;
    /// Bytes in a value: a 3 MiB request body with room for what the server adds.
    pub const VALUE_BYTES: usize = 4 * 1024 * 1024;
    /// Bytes of all values in one transaction.
    pub const TXN_BYTES: usize = 16 * 1024 * 1024;
    /// Bytes by which an engine lets each value be longer than the limits above say, so that a
    /// store which wraps values before it hands them on can keep those limits itself. Callers
    /// do not rely on it.
    pub const ENVELOPE_BYTES: usize = 64;
}

/// The place of a change in the store's history: its transaction's revision, and its index there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    revision: u64,
    index: u8,
}

impl Position {
    /// Before everything.
    pub const ZERO: Self = Self { revision: 0, index: 0 };

    /// The place of one change.
    pub const fn new(revision: u64, index: u8) -> Self {
        Self { revision, index }
    }

    /// Behind every change of a revision: what lists and bookmarks carry.
    pub const fn end_of(revision: u64) -> Self {
        Self { revision, index: u8::MAX }
    }

    /// The transaction's revision.
    pub const fn revision(self) -> u64 {
        self.revision
    }

    /// The change's place in its transaction; 255 for the end of a revision.
    pub const fn index(self) -> u8 {
        self.index
    }

    /// One number that orders as positions do: `revision × 256 + index`.
    pub const fn packed(self) -> u64 {
        (self.revision << 8) | self.index as u64
    }

    /// The inverse of [`Position::packed`]; every number is some position.
    pub const fn from_packed(packed: u64) -> Self {
        Self { revision: packed >> 8, index: packed.to_le_bytes()[0] }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.packed())
    }
}

/// A key with its value and the place of the change that set it.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// What is stored. May be secret, so `Debug` tells only its length.
    pub value: Bytes,
    /// The last change of this key.
    pub position: Position,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} @ {}, {} bytes)", self.key, self.position, self.value.len())
    }
}

/// What was read, and the revision at which it was true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot<T> {
    /// What was read.
    pub value: T,
    /// The newest revision that the read saw.
    pub revision: u64,
}

/// Which keys a list wants.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Keys that begin so.
    pub prefix: String,
    /// Only keys behind this one, in byte order; for the next page.
    pub after: Option<Arc<str>>,
    /// At most so many; 0 means no limit.
    pub limit: usize,
    /// The state after this revision; `None` for now.
    pub at: Option<u64>,
}

/// A key whose value is there, but cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The key.
    pub key: Arc<str>,
    /// The last change of this key: what [`Condition::At`] needs to replace or delete it.
    pub position: Position,
    /// How the damage shows. Never holds stored bytes.
    pub reason: String,
}

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In key order.
    pub entries: Vec<Entry>,
    /// Keys of this page whose values are damaged, in key order; none in good times. They count
    /// towards the page's limit, and the next page goes on behind the greatest key of both.
    pub damaged: Vec<Damaged>,
    /// How many keys under the prefix stand behind the last of these.
    pub remaining: u64,
    /// The revision whose state this is.
    pub revision: u64,
}

impl Page {
    /// The greatest key on this page, damaged or not: the next page's [`ListRequest::after`].
    pub fn last_key(&self) -> Option<&Arc<str>> {
        let sound = self.entries.last().map(|entry| &entry.key);
        let damaged = self.damaged.last().map(|damaged| &damaged.key);
        sound.max(damaged)
    }
}

/// What has to hold for a transaction to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
    Absent(Arc<str>),
    /// The key exists, and its last change stands at this position.
    At(Arc<str>, Position),
}

/// One change of a transaction.
#[derive(Clone)]
pub enum Change {
    /// Sets a key, new or not.
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

/// Conditions and changes that hold and happen together, or not at all.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// In this order; the place in it is the change's index.
    pub changes: Vec<Change>,
}

/// A change as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key.
    pub key: Arc<str>,
    /// The change's place.
    pub position: Position,
    /// The new value; `None` when the key was removed.
    pub value: Option<Bytes>,
    /// What stood there before; `None` when the key is new.
    pub previous: Option<Entry>,
}

/// What a watch delivers at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Changes in order of position; empty when there is only progress to tell.
    pub events: Vec<Event>,
    /// Everything under the prefix up to the end of this revision has been delivered.
    pub revision: u64,
}

/// What a store answers instead.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A condition did not hold; nothing was done.
    #[error("conflict on {key}: {}", found.map_or_else(|| "absent".to_owned(), |p| format!("changed at {p}")))]
    Conflict {
        /// The key of the first condition that failed.
        key: Arc<str>,
        /// Where its last change stands; `None` when it does not exist.
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
    /// Nothing was done, and nothing can be done just now.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// Nothing was done: what must be done before a commit has failed, for the reason given.
    #[error("{0}")]
    Gated(&'static str),
    /// The transaction may or may not have happened.
    #[error("storage failed while committing, the outcome is not known: {0}")]
    Unknown(String),
    /// What is stored is not what was written.
    #[error("stored data is damaged{}: {reason}", key.as_ref().map_or_else(String::new, |k| format!(" at {k}")))]
    Corrupt {
        /// Where, if known.
        key: Option<Arc<str>>,
        /// How it shows. Never holds stored bytes.
        reason: String,
    },
}

/// A store's answer.
pub type Result<T> = std::result::Result<T, Error>;
