//! The newest stretch of history, kept in memory for the watches that keep up. No I/O: a watch
//! that has fallen behind the tail reads the database.

use std::collections::VecDeque;
use std::sync::Arc;

use super::read::event_bytes;
use crate::Event;

/// Transactions that the tail keeps.
const TAIL_TXNS: usize = 4096;
/// Bytes of values, new and previous, that the tail keeps. One transaction more may be there.
const TAIL_BYTES: usize = 16 * 1024 * 1024;
/// Transactions that a watch takes at once.
const TAKE_TXNS: usize = 256;

/// What one revision changed. Shared by all watches.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The revision.
    pub(super) revision: u64,
    /// Its events, in order.
    pub(super) events: Vec<Event>,
    /// Whether all of them are here, and all before them still true. An event over a damaged
    /// previous value is left out: the watches have to meet the damage in the database. A
    /// rewrite replaced bytes that earlier events in the tail may hold.
    pub(super) whole: bool,
}

/// A gapless run of revisions that ends with the newest.
#[derive(Debug)]
pub(super) struct Tail {
    /// The revision before the first one kept.
    base: u64,
    txns: VecDeque<Arc<Recorded>>,
    bytes: usize,
}

impl Tail {
    /// Keeps nothing yet; the newest revision is given.
    pub(super) fn new(revision: u64) -> Self {
        Self { base: revision, txns: VecDeque::new(), bytes: 0 }
    }

    /// The newest revision.
    pub(super) fn newest(&self) -> u64 {
        self.txns.back().map_or(self.base, |last| last.revision)
    }

    /// Takes the next revision in. One that does not follow the newest would leave a gap, and so
    /// starts the tail afresh, as does one that is not whole.
    pub(super) fn push(&mut self, recorded: Recorded) {
        if !recorded.whole {
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

    /// The revisions behind one, as many as are handed out at once; `None` when the tail does
    /// not reach back so far.
    pub(super) fn behind(&self, revision: u64) -> Option<Vec<Arc<Recorded>>> {
        let skip = usize::try_from(revision.checked_sub(self.base)?).ok()?;
        Some(self.txns.iter().skip(skip).take(TAKE_TXNS).cloned().collect())
    }
}

fn bytes(recorded: &Recorded) -> usize {
    recorded.events.iter().map(event_bytes).sum()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Position;

    fn recorded(revision: u64, bytes: usize) -> Recorded {
        let event = Event {
            key: "k".into(),
            position: Position::new(revision, 0),
            value: Some(Bytes::from(vec![0; bytes])),
            previous: None,
        };
        Recorded { revision, events: vec![event], whole: true }
    }

    #[test]
    fn it_is_bounded_in_count_and_in_bytes() {
        let mut tail = Tail::new(0);
        for revision in 1..=5000 {
            tail.push(recorded(revision, 1));
        }
        assert_eq!(tail.txns.len(), TAIL_TXNS);
        assert!(tail.behind(10).is_none());
        tail.push(recorded(5001, TAIL_BYTES));
        tail.push(recorded(5002, TAIL_BYTES));
        assert_eq!((tail.txns.len(), tail.bytes), (1, TAIL_BYTES));
        assert_eq!(tail.behind(5001).unwrap()[0].revision, 5002);
    }

    #[test]
    fn a_gap_starts_it_afresh() {
        let mut tail = Tail::new(3);
        tail.push(recorded(4, 1));
        tail.push(recorded(9, 1));
        assert!(tail.behind(4).is_none());
        assert_eq!(tail.behind(8).unwrap().len(), 1);
        assert!(tail.behind(9).unwrap().is_empty());
        tail.push(Recorded { whole: false, ..recorded(10, 1) });
        assert!(tail.behind(9).is_none());
        assert!(tail.behind(10).unwrap().is_empty());
    }
}
