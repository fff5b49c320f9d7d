//! The newest part of history, kept in memory for the watches that keep up. No I/O: a watch that has
//! fallen behind the tail reads the database.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Event;

/// The most transactions that the tail keeps.
const TAIL_TXNS: usize = 4096;
/// The most bytes of values, new and previous, that the tail keeps. A single transaction may exceed
/// it.
const TAIL_BYTES: usize = 16 * 1024 * 1024;
/// The most transactions that one read of the tail returns.
const READ_TXNS: usize = 256;

/// The events of one revision. Shared by all watches.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The revision.
    pub(super) revision: u64,
    /// Its events, in order.
    pub(super) events: Vec<Event>,
    /// Whether all of its events are here, and all earlier events are still valid. A rewrite replaces
    /// bytes that earlier events in the tail may hold.
    pub(super) complete: bool,
}

/// Consecutive revisions, up to the newest.
#[derive(Debug)]
pub(super) struct Tail {
    /// The revision before the first one that is kept.
    base: u64,
    txns: VecDeque<Arc<Recorded>>,
    bytes: usize,
}

impl Tail {
    /// An empty tail after the newest revision.
    pub(super) fn new(revision: u64) -> Self {
        Self { base: revision, txns: VecDeque::new(), bytes: 0 }
    }

    /// The newest revision.
    pub(super) fn newest(&self) -> u64 {
        self.txns.back().map_or(self.base, |last| last.revision)
    }

    /// Adds a revision. When it does not directly follow the newest one, or is not complete, the tail
    /// is emptied first, so that it has no gaps.
    pub(super) fn push(&mut self, recorded: Recorded) {
        if !recorded.complete {
            *self = Self::new(recorded.revision);
            return;
        }
        if recorded.revision != self.newest() + 1 {
            *self = Self::new(recorded.revision - 1);
        }
        self.bytes += bytes(&recorded);
        self.txns.push_back(Arc::new(recorded));
        while self.txns.len() > TAIL_TXNS || (self.bytes > TAIL_BYTES && self.txns.len() > 1) {
            let Some(dropped) = self.txns.pop_front() else { break };
            self.base = dropped.revision;
            self.bytes -= bytes(&dropped);
        }
    }

    /// The revisions after the given one, as many as one read returns; `None` when the tail
    /// does not go back that far.
    pub(super) fn after(&self, revision: u64) -> Option<Vec<Arc<Recorded>>> {
        let skip = usize::try_from(revision.checked_sub(self.base)?).ok()?;
        Some(self.txns.iter().skip(skip).take(READ_TXNS).cloned().collect())
    }
}

fn bytes(recorded: &Recorded) -> usize {
    recorded.events.iter().map(Event::bytes).sum()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Position, Replaced};

    fn recorded(revision: u64, bytes: usize) -> Recorded {
        let event = Event {
            key: "k".into(),
            position: Position::new(revision, 0),
            value: Some(Bytes::from(vec![0; bytes])),
            replaced: Replaced::New,
        };
        Recorded { revision, events: vec![event], complete: true }
    }

    #[test]
    fn it_is_bounded_in_count_and_in_bytes() {
        let mut tail = Tail::new(0);
        for revision in 1..=5000 {
            tail.push(recorded(revision, 1));
        }
        assert_eq!(tail.txns.len(), TAIL_TXNS);
        assert!(tail.after(10).is_none());
        tail.push(recorded(5001, TAIL_BYTES));
        tail.push(recorded(5002, TAIL_BYTES));
        assert_eq!((tail.txns.len(), tail.bytes), (1, TAIL_BYTES));
        assert_eq!(tail.after(5001).unwrap()[0].revision, 5002);
    }

    #[test]
    fn a_gap_empties_it() {
        let mut tail = Tail::new(3);
        tail.push(recorded(4, 1));
        tail.push(recorded(9, 1));
        assert!(tail.after(4).is_none());
        assert_eq!(tail.after(8).unwrap().len(), 1);
        assert!(tail.after(9).unwrap().is_empty());
        tail.push(Recorded { complete: false, ..recorded(10, 1) });
        assert!(tail.after(9).is_none());
        assert!(tail.after(10).unwrap().is_empty());
    }
}
