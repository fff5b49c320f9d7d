//! Whether a transaction is well formed. Here lives what can be judged without looking at what is
//! stored; conditions are the engines' business.

use std::collections::HashSet;

use crate::{Change, Condition, Error, Result, Txn, limits};

/// Whose limits apply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// What the contract promises to callers.
    Caller,
    /// The same, with room for what a store around the engine adds to each value.
    Engine,
}

impl Side {
    const fn slack(self) -> usize {
        match self {
            Self::Caller => 0,
            Self::Engine => limits::ENVELOPE_BYTES,
        }
    }
}

/// Refuses what no engine may take.
pub(crate) fn txn(txn: &Txn, side: Side) -> Result<()> {
    at_most("changes", txn.changes.len(), limits::CHANGES_PER_TXN)?;
    at_most("conditions", txn.conditions.len(), limits::CONDITIONS_PER_TXN)?;
    for condition in &txn.conditions {
        let (Condition::Absent(name) | Condition::At(name, _)) = condition;
        key(name)?;
    }
    let mut seen = HashSet::with_capacity(txn.changes.len());
    let mut bytes = 0;
    for change in &txn.changes {
        key(change.key())?;
        if !seen.insert(change.key()) {
            return Err(Error::Invalid(format!("{} is changed twice", change.key())));
        }
        let length = value_bytes(change);
        at_most("bytes in a value", length, limits::VALUE_BYTES + side.slack())?;
        bytes += length;
    }
    at_most(
        "bytes in a transaction",
        bytes,
        limits::TXN_BYTES + side.slack() * limits::CHANGES_PER_TXN,
    )
}

/// The length of what a change stores.
pub(crate) fn value_bytes(change: &Change) -> usize {
    match change {
        Change::Put { value, .. } | Change::Rewrite { value, .. } => value.len(),
        Change::Delete { .. } => 0,
    }
}

fn key(key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(Error::Invalid("a key is empty".to_owned()));
    }
    at_most("bytes in a key", key.len(), limits::KEY_BYTES)
}

fn at_most(what: &str, found: usize, limit: usize) -> Result<()> {
    if found > limit {
        return Err(Error::Invalid(format!("{found} {what}, the limit is {limit}")));
    }
    Ok(())
}
