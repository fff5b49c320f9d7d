//! Validation of transactions without a look at what is stored: limits, empty keys, keys that are
//! changed twice. Conditions are evaluated by the engines.

use std::collections::HashSet;

use crate::{Change, Condition, Error, Result, Txn, limits};

/// What a value may have in addition to the bytes of the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overhead {
    /// Nothing: the transaction comes from a caller, and the limits of the contract apply.
    None,
    /// What a store around the engine adds to each value.
    Envelope,
}

impl Overhead {
    const fn bytes_per_value(self) -> usize {
        match self {
            Self::None => 0,
            Self::Envelope => limits::ENVELOPE_BYTES,
        }
    }
}

/// Returns [`Error::Invalid`] for a transaction that no engine may accept.
pub(crate) fn txn(txn: &Txn, overhead: Overhead) -> Result<()> {
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
        at_most("bytes in a value", length, limits::VALUE_BYTES + overhead.bytes_per_value())?;
        bytes += length;
    }
    at_most(
        "bytes in a transaction",
        bytes,
        limits::TXN_BYTES + overhead.bytes_per_value() * limits::CHANGES_PER_TXN,
    )
}

/// Returns the length of the value that a change stores, in bytes.
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
