//! The acknowledged changes that are not in the database yet: the newest version of each of their keys.
//! The write-ahead log has them as well, so nothing here has to be durable.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::{Entry, Position};

/// The newest version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingRow {
    /// Its packed position.
    pub(super) packed: u64,
    /// The value; `None` when the key was removed.
    pub(super) value: Option<Bytes>,
}

impl PendingRow {
    /// The entry of the key; `None` when it was removed.
    pub(super) fn entry(self, key: &str) -> Option<Entry> {
        let position = Position::from_packed(self.packed);
        self.value.map(|value| Entry { key: key.into(), value, position })
    }
}

/// The keys that were changed by some transactions, each with its newest version.
pub(super) type Rows = HashMap<Arc<str>, PendingRow>;

/// The keys that were changed by the transactions that the database does not have.
#[derive(Debug, Default)]
pub(super) struct Pending {
    rows: HashMap<Arc<str>, (u64, PendingRow)>,
    /// The keys of each revision, or of some consecutive ones with the last of them.
    order: VecDeque<(u64, Vec<Arc<str>>)>,
    /// The newest revision.
    revision: u64,
}

impl Pending {
    /// No changes, after the newest revision of a database.
    pub(super) fn new(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// The newest revision.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The newest version of a key; `None` when the database has it.
    pub(super) fn get(&self, key: &str) -> Option<&PendingRow> {
        self.rows.get(key).map(|(_, row)| row)
    }

    /// Adds what transactions up to a revision have changed.
    pub(super) fn extend(&mut self, revision: u64, rows: Rows) {
        self.revision = revision;
        self.order.push_back((revision, rows.keys().cloned().collect()));
        self.rows.extend(rows.into_iter().map(|(key, row)| (key, (revision, row))));
    }

    /// Forgets all transactions up to a revision, which the database has.
    pub(super) fn forget(&mut self, applied: u64) {
        while self.order.front().is_some_and(|(revision, _)| *revision <= applied) {
            let Some((revision, keys)) = self.order.pop_front() else { break };
            for key in keys {
                // A later transaction may have changed it again.
                if self.rows.get(&key).is_some_and(|(newest, _)| *newest == revision) {
                    self.rows.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_until_the_database_has_its_newest_version() {
        let row = |packed| PendingRow { packed, value: None };
        let rows = |keys: &[(&str, u64)]| -> Rows {
            keys.iter().map(|(key, packed)| (Arc::from(*key), row(*packed))).collect()
        };
        let mut pending = Pending::new(3);
        pending.extend(4, rows(&[("/a", 1), ("/b", 2)]));
        pending.extend(6, rows(&[("/a", 3)]));
        assert_eq!(pending.revision(), 6);
        pending.forget(3);
        assert_eq!(pending.get("/b"), Some(&row(2)));
        pending.forget(5);
        assert_eq!((pending.get("/a"), pending.get("/b")), (Some(&row(3)), None));
        pending.forget(6);
        assert_eq!((pending.get("/a"), pending.rows.len(), pending.order.len()), (None, 0, 0));
    }
}
