//! Validation of transactions without reading stored data: limits, empty keys, keys that are
//! changed twice. Conditions are evaluated by the engines.

use std::collections::HashSet;

use crate::{Change, Condition, Entry, Error, Limits, Position, Result, Txn, limits};

/// The bytes that a value may have in addition to those of the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Overhead {
    /// Nothing: the transaction comes from a caller, and the limits of the contract apply.
    None,
    /// The bytes that a store around the engine adds to each value, and one condition.
    Envelope,
}

impl Overhead {
    const fn bytes_per_value(self) -> usize {
        match self {
            Self::None => 0,
            Self::Envelope => limits::ENVELOPE_BYTES,
        }
    }

    /// The conditions that a store around the engine adds to a transaction.
    const fn conditions(self) -> usize {
        match self {
            Self::None => 0,
            Self::Envelope => 1,
        }
    }
}

/// Checks a transaction: [`Error::Invalid`] if no engine may accept it, and [`Error::TooLarge`] if its values exceed the
/// engine's limits.
pub fn txn(txn: &Txn, limits: Limits, overhead: Overhead) -> Result<()> {
    at_most("changes", txn.changes.len(), limits::CHANGES_PER_TXN)?;
    let conditions = limits::CONDITIONS_PER_TXN + overhead.conditions();
    at_most("conditions", txn.conditions.len(), conditions)?;
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
        fits("a value", length, limits.value_bytes + overhead.bytes_per_value())?;
        bytes += length;
    }
    let overhead = overhead.bytes_per_value() * limits::CHANGES_PER_TXN;
    fits("a transaction", bytes, limits.txn_bytes + overhead)
}

/// Checks prefixes: [`Error::Invalid`] for more than one call may name, or for one longer than a
/// key.
pub fn prefixes(prefixes: &[String]) -> Result<()> {
    at_most("prefixes", prefixes.len(), limits::PREFIXES)?;
    let longest = prefixes.iter().map(String::len).max().unwrap_or(0);
    at_most("bytes in a prefix", longest, limits::KEY_BYTES)
}

/// Checks a revision: [`Error::Invalid`] if no store can begin at it.
pub fn restored_revision(revision: u64) -> Result<()> {
    if (1..=limits::REVISION).contains(&revision) {
        return Ok(());
    }
    Err(Error::Invalid(format!("no store can begin at revision {revision}")))
}

/// Checks an entry: [`Error::Invalid`] if no store that begins at this revision can have it.
pub fn restored_entry(revision: u64, entry: &Entry) -> Result<()> {
    key(&entry.key)?;
    let limit = limits::VALUE_BYTES + Overhead::Envelope.bytes_per_value();
    at_most("bytes in a value", entry.value.len(), limit)?;
    let position = entry.position;
    let is_change = position.index() != u8::MAX;
    if !is_change || !(1..revision).contains(&position.revision()) {
        let key = &entry.key;
        return Err(Error::Invalid(format!("{key} has position {position}, which cannot be")));
    }
    Ok(())
}

/// Checks sorted packed positions: [`Error::Invalid`] if two of them are the same.
pub fn restored_positions(packed: &[u64]) -> Result<()> {
    match packed.windows(2).find(|two| two.first() == two.last()) {
        Some(twice) => {
            let position = twice.first().copied().map(Position::from_packed).unwrap_or_default();
            Err(Error::Invalid(format!("two keys have position {position}")))
        }
        None => Ok(()),
    }
}

/// The [`Error::Invalid`] for a restored entry with the key or position of another one.
pub(crate) fn restored_twice(entry: &Entry) -> Error {
    let Entry { key, position, .. } = entry;
    Error::Invalid(format!("{key} is there twice, or another key has position {position} too"))
}

/// The length of the value that a change stores, in bytes.
pub fn value_bytes(change: &Change) -> usize {
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

fn fits(of: &'static str, found: usize, limit: usize) -> Result<()> {
    if found > limit {
        return Err(Error::TooLarge { of, found, limit, advice: None });
    }
    Ok(())
}

fn at_most(what: &str, found: usize, limit: usize) -> Result<()> {
    if found > limit {
        return Err(Error::Invalid(format!("{found} {what}, the limit is {limit}")));
    }
    Ok(())
}
