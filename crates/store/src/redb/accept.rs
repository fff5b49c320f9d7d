//! Whether transactions are accepted: their conditions are checked against the newest version of each key, in
//! whichever place that is. Nothing is written here.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::layout::{self, CHECK_BYTES, Corruption, PUT, PreviousVersion};
use super::pending::{Pending, PendingRow, Rows};
use super::read::{View, corrupt_key, engine_error};
use super::tail::Recorded;
use super::wal_group::{Accepted, AcceptedTxn, Kind};
use crate::{Change, Condition, Entry, Error, Event, Position, Replaced, Result, Txn};

/// A group of transactions that is being accepted.
pub(super) struct Acceptance<'a> {
    pending: &'a Mutex<Pending>,
    /// A snapshot of the database that has all that `pending` does not.
    view: &'a View,
    /// The newest revision, with those of this group.
    revision: u64,
    /// The changes of the transactions of this group.
    pub(super) rows: Rows,
    /// The transactions that were accepted and change something.
    pub(super) txns: Vec<AcceptedTxn>,
    /// Their events.
    pub(super) recorded: Vec<Recorded>,
}

/// The version of a key that a change replaces.
struct Before {
    before: PreviousVersion,
    /// Its value, which may be corrupt; `None` when there is none.
    value: Option<std::result::Result<Bytes, Corruption>>,
}

impl Before {
    /// The packed position of the version, if it is live; 0 for a corrupt row, as in lists.
    fn live_position(&self) -> Option<u64> {
        match self.before {
            PreviousVersion::Value(packed) => Some(packed),
            PreviousVersion::Corrupt => Some(0),
            PreviousVersion::Nothing | PreviousVersion::Tombstone(_) => None,
        }
    }
}

impl<'a> Acceptance<'a> {
    /// Begins a group after the newest revision.
    pub(super) fn new(pending: &'a Mutex<Pending>, view: &'a View) -> Self {
        let revision = pending.lock().revision();
        let (rows, txns, recorded) = (Rows::new(), Vec::new(), Vec::new());
        Self { pending, view, revision, rows, txns, recorded }
    }

    /// The newest revision, with those of this group.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Accepts a transaction or refuses it. Returns the newest revision afterwards. The inner error concerns
    /// this transaction only.
    pub(super) fn add(&mut self, txn: &Txn) -> Result<Result<u64>> {
        let replaced = match self.check(txn) {
            Ok(Ok(replaced)) => replaced,
            // A corrupt key fails the transaction that names it, and no other of the group.
            Ok(Err(refusal)) | Err(refusal @ Error::Corrupt { key: Some(_), .. }) => {
                return Ok(Err(refusal));
            }
            Err(error) => return Err(error),
        };
        if !txn.changes.is_empty() {
            self.revision += 1;
            self.accept(txn, replaced);
        }
        Ok(Ok(self.revision))
    }

    fn accept(&mut self, txn: &Txn, replaced: Vec<Before>) {
        let revision = self.revision;
        let mut recorded = Recorded { revision, events: Vec::new(), complete: true };
        let mut changes = Vec::with_capacity(txn.changes.len());
        for ((index, change), replaced) in (0_u8..).zip(&txn.changes).zip(replaced) {
            let position = Position::new(revision, index);
            let (kind, value) = match change {
                Change::Put { value, .. } => (Kind::Put, value.as_ref()),
                Change::Delete { .. } => (Kind::Delete, [].as_slice()),
                Change::Rewrite { value, .. } => (Kind::Rewrite, value.as_ref()),
            };
            // A rewrite leaves the value at its position.
            let packed = match kind {
                Kind::Rewrite => replaced.before.packed(),
                Kind::Put | Kind::Delete => position.packed(),
            };
            let body = Bytes::from(layout::encode_value(packed, value));
            let value = body.slice(..body.len() - CHECK_BYTES);
            let row = PendingRow { packed, value: (kind != Kind::Delete).then_some(value) };
            let key = Arc::clone(change.key());
            self.rows.insert(Arc::clone(&key), row);
            changes.push(Accepted { kind, key, body });
            match kind {
                Kind::Rewrite => recorded.complete = false,
                Kind::Put | Kind::Delete => recorded.events.push(event(change, position, replaced)),
            }
        }
        self.txns.push(AcceptedTxn { revision, changes });
        self.recorded.push(recorded);
    }

    /// Checks the conditions of a transaction, and returns the version that each change replaces.
    fn check(&self, txn: &Txn) -> Result<Result<Vec<Before>>> {
        let replaced = txn.changes.iter().map(|change| self.replaced(change.key()));
        let replaced = replaced.collect::<Result<Vec<_>>>()?;
        for condition in &txn.conditions {
            let (key, wanted) = match condition {
                Condition::Absent(key) => (key, None),
                Condition::At(key, position) => (key, Some(position.packed())),
            };
            // A change mostly has a condition on its own key, which is not looked up again.
            let is_own = |(change, _): &(&Change, &Before)| Arc::ptr_eq(change.key(), key);
            let found = match txn.changes.iter().zip(&replaced).find(is_own) {
                Some((_, replaced)) => replaced.live_position(),
                None => self.live_position(key)?,
            };
            if found != wanted {
                return Ok(Err(conflict(key, found)));
            }
        }
        for (change, replaced) in txn.changes.iter().zip(&replaced) {
            let key = change.key();
            if replaced.live_position().is_none() && !matches!(change, Change::Put { .. }) {
                return Ok(Err(conflict(key, None)));
            }
            if let Change::Rewrite { .. } = change
                && let Err(refusal) = self.check_rewrite(key, replaced)?
            {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(replaced))
    }

    /// Runs a function on the newest version of a key that the database does not have.
    fn pending<T>(&self, key: &str, see: impl FnOnce(&PendingRow) -> T) -> Option<T> {
        match self.rows.get(key) {
            Some(row) => Some(see(row)),
            None => self.pending.lock().get(key).map(see),
        }
    }

    /// The packed position of a key's live version; 0 for a key with a corrupt row, as in lists.
    fn live_position(&self, key: &str) -> Result<Option<u64>> {
        if let Some(found) = self.pending(key, |row| row.value.is_some().then_some(row.packed)) {
            return Ok(found);
        }
        let found = self.view.row(key)?;
        let Some(bytes) = &found else { return Ok(None) };
        Ok(match layout::decode_row(key.as_bytes(), bytes.value()) {
            Ok(row) => (row.mark == PUT).then_some(row.packed),
            Err(_) => Some(0),
        })
    }

    fn replaced(&self, key: &str) -> Result<Before> {
        let of_pending = |row: &PendingRow| match &row.value {
            Some(value) => Before {
                before: PreviousVersion::Value(row.packed),
                value: Some(Ok(value.clone())),
            },
            None => Before { before: PreviousVersion::Tombstone(row.packed), value: None },
        };
        if let Some(replaced) = self.pending(key, of_pending) {
            return Ok(replaced);
        }
        let found = self.view.row(key)?;
        let Some(bytes) = &found else {
            return Ok(Before { before: PreviousVersion::Nothing, value: None });
        };
        Ok(match layout::decode_row(key.as_bytes(), bytes.value()) {
            Ok(row) if row.mark == PUT => {
                let value = row.body.check().map(Bytes::copy_from_slice);
                Before { before: PreviousVersion::Value(row.packed), value: Some(value) }
            }
            Ok(row) => Before { before: PreviousVersion::Tombstone(row.packed), value: None },
            Err(reason) => Before { before: PreviousVersion::Corrupt, value: Some(Err(reason)) },
        })
    }

    /// Rejects the rewrite of a value if the value or its change is corrupt.
    fn check_rewrite(&self, key: &str, replaced: &Before) -> Result<Result<()>> {
        if let Some(Err(reason)) = &replaced.value {
            return Ok(Err(corrupt_key(key, *reason)));
        }
        if self.pending(key, |_| ()).is_some() {
            return Ok(Ok(()));
        }
        let checked = self.view.check_record(replaced.before.packed())?;
        Ok(checked.map_err(|reason| corrupt_key(key, reason)))
    }
}

impl View {
    /// The bytes of the row of a key.
    fn row(&self, key: &str) -> Result<Option<::redb::AccessGuard<'_, &'static [u8]>>> {
        ::redb::ReadableTable::get(self.live(), key.as_bytes()).map_err(engine_error)
    }
}

/// The event of a change. It has no previous value when that is corrupt: the change itself
/// is how a corrupt key is repaired, and watches must get it.
fn event(change: &Change, position: Position, before: Before) -> Event {
    let key = change.key();
    let value = match change {
        Change::Put { value, .. } => Some(value.clone()),
        Change::Delete { .. } | Change::Rewrite { .. } => None,
    };
    let replaced = match (before.before, before.value) {
        (PreviousVersion::Value(packed), Some(Ok(value))) => {
            let position = Position::from_packed(packed);
            Replaced::Old(Some(Entry { key: Arc::clone(key), value, position }))
        }
        (PreviousVersion::Nothing | PreviousVersion::Tombstone(_), _) => Replaced::New,
        (PreviousVersion::Value(_) | PreviousVersion::Corrupt, reason) => {
            let reason = reason.and_then(std::result::Result::err);
            tracing::warn!(%key, reason, "a replaced value is corrupt; its event is without it");
            Replaced::Old(None)
        }
    };
    Event { key: Arc::clone(key), position, value, replaced }
}

fn conflict(key: &Arc<str>, found: Option<u64>) -> Error {
    Error::Conflict { key: Arc::clone(key), found: found.map(Position::from_packed) }
}
